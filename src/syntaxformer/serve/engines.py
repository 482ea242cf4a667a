"""A served model: its folder loaded, its work on a batch, its description. Knows nothing of HTTP."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from syntaxformer.base.errors import ConfigError, SyntaxformerError
from syntaxformer.encoders.tasks import CLASSIFIER, read_classifier_info, verify_classifier_folder
from syntaxformer.serve.schemas import (
    Attention,
    Classification,
    Hypothesis,
    ModelDescription,
    Source,
    Translation,
)
from syntaxformer.syntax import FACTORS
from syntaxformer.translation.model_folder import read_info, verify_model_folder

if TYPE_CHECKING:
    from syntaxformer.annotate import Annotator
    from syntaxformer.encoders.classifier import Classifier
    from syntaxformer.study import CrossAttentionMap
    from syntaxformer.translation.source import EncodedText
    from syntaxformer.translation.translator import Translator
from typing import TYPE_CHECKING

from syntaxformer.encoders.tasks import OWN_TASKS
from syntaxformer.serve.schemas import (
    AttentionView,
    ExplainAnswer,
    NetworksView,
    PiecesView,
    RelationsView,
    SentenceView,
)
from syntaxformer.syntax import n_relations, relation_name
from syntaxformer.trees import Sentence, parse_tree, spans_of
from syntaxformer.trees.sentence import PER_WORD

if TYPE_CHECKING:
    from syntaxformer.serve.engines import ClassifierEngine, TranslatorEngine
    from syntaxformer.study import Parser, SubnetworkView, TextView

__all__ = [
    "ClassifierEngine",
    "Engine",
    "ExplainSettings",
    "TranslateSettings",
    "TranslatorEngine",
    "check_folder",
    "explain_classification",
    "explain_translation",
    "load_engine",
]


@dataclass(frozen=True)
class TranslateSettings:
    """Settings that texts of one batch share; None is the model's own."""

    beam_size: int | None = None
    n_best: int = 1
    length_penalty: float | None = None
    scores: bool = False
    show: frozenset[str] = field(default_factory=frozenset)


class Engine(Protocol):
    """What the service asks of a model."""

    description: ModelDescription

    def work(self, settings: Any, items: list[Any]) -> Sequence[Any]:
        """A result for each item; runs in a thread of its own, one batch at a time."""
        ...


class TranslatorEngine:
    """Translates.

    Args:
        name: Of the model in requests.
        translator: A loaded model.
        annotator: Name of the annotator that the user gives; None for its own.
    """

    def __init__(self, name: str, translator: Translator, annotator: str | None = None) -> None:
        self.translator = translator
        info = translator.info
        self.parser = annotator or info.annotator
        factors = list(translator.encoder.factors)
        inside = ["alignment", "attention"] if info.backend == "pytorch" else []
        self.description = ModelDescription(
            name=name,
            task="translation",
            backend=info.backend,
            annotator=self.parser if translator.annotator else info.annotator,
            source_language=info.languages[0],
            target_language=info.languages[1],
            factors=factors,
            shows=["tags", *inside],  # type: ignore[list-item]
            **(_shape(translator.model, "decoder_layers", "n_heads") if inside else {}),
        )

    def work(self, settings: TranslateSettings | ExplainSettings, items: list[str]) -> Sequence[Any]:
        """Translate or explain texts; line breaks in them are spaces."""
        lines = [" ".join(text.splitlines()) for text in items]
        if isinstance(settings, ExplainSettings):
            return [explain_translation(self, line, settings) for line in lines]
        return self.translate(settings, lines)

    def translate(self, settings: TranslateSettings, lines: list[str]) -> list[Translation]:
        """Translate lines."""
        given = {"beam_size": settings.beam_size, "length_penalty": settings.length_penalty}
        decoding = self.translator.info.decoding.model_copy(
            update={name: value for name, value in given.items() if value is not None}
        )
        source = self.translator.encode(lines)
        self.translator.encoder.unseen.counts.clear()  # nobody would read the warning
        found = self.translator.search(lines, source, decoding, settings.n_best, settings.scores)
        several = settings.n_best > 1 or settings.scores
        translations = [
            Translation(
                text=best[0].text,
                hypotheses=[Hypothesis(text=one.text, score=one.score) for one in best] if several else None,
            )
            for best in found
        ]
        for place, translation in enumerate(translations):
            translation.truncated = source.is_cut is not None and bool(source.is_cut[place])
            self._show(translation, settings.show, lines[place], source, place)
        return translations

    def _show(
        self, translation: Translation, show: frozenset[str], line: str, source: EncodedText, row: int
    ) -> None:
        if "tags" in show:
            translation.source = self._source(source, row)
        if show & {"alignment", "attention"} and translation.text:
            from syntaxformer.study import cross_attention

            looked = cross_attention(self.translator, line, translation=translation.text)
            if "alignment" in show:
                best = looked.average().argmax(1).tolist()
                translation.alignment = [[piece, place] for place, piece in enumerate(best)]
            if "attention" in show:
                translation.attention = _attention(looked)

    def _source(self, source: EncodedText, row: int) -> Source:
        encoder = self.translator.encoder
        start, stop = list(pairwise(source.splits.tolist()))[row]
        factors = {
            name: encoder.vocabularies[name].decode(source.factors[start:stop, column])
            for column, name in enumerate(encoder.columns)
        }
        return Source(pieces=encoder.piece_names(source.pieces[start:stop]), factors=factors)


class ClassifierEngine:
    """Classifies.

    Args:
        name: Of the model in requests.
        classifier: A loaded model.
        annotator: Name of the annotator that the user gives; None for its own.
    """

    def __init__(self, name: str, classifier: Classifier, annotator: str | None = None) -> None:
        self.classifier = classifier
        info = classifier.info
        self.parser = annotator or info.annotator
        self.n_texts = info.n_texts
        self.description = ModelDescription(
            name=name,
            task="classification",
            backend=classifier.backend,
            annotator=self.parser if classifier.annotator else info.annotator,
            labels=None if info.labels is None else list(info.labels),
            n_texts=info.n_texts,
            **(_inside(classifier) if classifier.backend == "pytorch" else {}),
        )

    def work(self, settings: Hashable, items: list[str | tuple[str, str]]) -> Sequence[Any]:
        """Classify or explain texts or pairs."""
        if isinstance(settings, ExplainSettings):
            texts = [(item,) if isinstance(item, str) else item for item in items]
            return [explain_classification(self, one, settings) for one in texts]
        return self.classify(items)

    def classify(self, items: list[str | tuple[str, str]]) -> list[Classification]:
        """Classify texts or pairs."""
        found = self.classifier.predict(items)
        cut = [found.n_truncated > 0 and self.classifier.is_cut(item) for item in items]
        answers = zip(self.classifier.answers(found), cut, strict=True)
        return [Classification(**answer, truncated=is_cut) for answer, is_cut in answers]


def check_folder(folder: Path) -> None:
    """Hold that a folder is a model, without loading it.

    Raises:
        CheckpointError: It is unfinished, altered or something else.
    """
    if (folder / CLASSIFIER).is_file():
        verify_classifier_folder(folder)
        read_classifier_info(folder)
        return
    verify_model_folder(folder)
    read_info(folder)


def load_engine(
    name: str, folder: Path, device: str | None = None, annotator: str | None = None, trust: bool = False
) -> Engine:
    """Load a translator (trained or exported) or a classifier that can answer any text.

    Args:
        name: Of the model in requests.
        folder: Model folder.
        device: "cpu", "cuda", …; None for the best there is.
        annotator: Use this annotator and not the one that the folder names, where the model needs one.
        trust: Let the folder name an annotator on the network, or at a path outside of it.

    Raises:
        CheckpointError: It cannot be read.
        BackendMissingError: Its annotator or backend is not installed.
        ConfigError: There is no such device or annotator, the annotator cannot annotate any text, or the
            model reads factors of the user's own.
    """
    if (folder / CLASSIFIER).is_file():
        from syntaxformer.encoders.classifier import Classifier

        classifier = Classifier.from_folder(folder, annotator, device, trust)
        _try_annotator(classifier.annotator, folder)
        return ClassifierEngine(name, classifier, annotator)
    from syntaxformer.translation.translator import Translator

    translator = Translator.load(folder, annotator, device, None, trust)
    if own := [factor for factor in translator.encoder.factors if factor not in FACTORS]:
        raise ConfigError(
            f"{folder}: expected a model that reads text alone, got one with factors of your own, "
            f"{', '.join(own)}, which a request cannot give. Use `syntaxformer translate` with --factor."
        )
    _try_annotator(translator.annotator, folder)
    return TranslatorEngine(name, translator, annotator)


def _try_annotator(annotator: Annotator | None, folder: Path) -> None:
    """Hold that an annotator takes any text: one that only holds the parses of given lines loads, too."""
    if annotator is None:
        return
    try:
        annotator.annotate(["a"])
    except SyntaxformerError as error:
        raise ConfigError(
            f"{folder}: expected an annotator of any text, got one that fails on 'a': {error} "
            "Give another with --annotator."
        ) from error


def _inside(classifier: Classifier) -> dict[str, Any]:
    """What can be seen of a classifier's network."""
    shape = _shape(classifier.model, "num_hidden_layers", "num_attention_heads")
    return {"networks": classifier.collator.config.masks is not None, **shape}


def _shape(model: Any, layers: str, heads: str) -> dict[str, int | None]:
    """Layers and heads whose attention can be shown."""
    config = model.config
    return {"n_layers": getattr(config, layers, None), "n_heads": getattr(config, heads, None)}


def _attention(looked: CrossAttentionMap) -> Attention:
    return Attention(
        source=looked.src_pieces,
        target=looked.tgt_pieces,
        weights=[[round(float(weight), 5) for weight in row] for row in looked.average()],
    )


DIGITS = 5
"""Of a weight after the point."""


@dataclass(frozen=True)
class ExplainSettings:
    """What is to be seen; see `ExplainRequest`."""

    layer: int = -1
    head: int | None = None
    network: str | None = None
    max_distance: int = 15


def explain_translation(engine: TranslatorEngine, line: str, settings: ExplainSettings) -> ExplainAnswer:
    """A line, its translation and what the translator looked at.

    Raises:
        ConfigError: There is no such layer or head, or the model reads factors of the user's own.
    """
    from syntaxformer.study import cross_attention, parser_for, translator_text

    translator, info = engine.translator, engine.translator.info
    parser = parser_for(translator.annotator, engine.parser, info.languages[0], info.tokenized)
    missing = {"networks": "Sub-networks are shown of classifiers that were fine-tuned with masks."}
    attention = None
    if info.backend == "pytorch":
        looked = cross_attention(translator, line)
        translation = looked.translation
        attention = _shown_attention("cross", looked.weights, looked.tgt_pieces, looked.src_pieces, settings)
    else:
        (best,) = translator.translate([line])
        translation = best[0].text
        missing["attention"] = (
            f"This model was exported to {info.backend}, which gives no attention. "
            "Serve the folder that it was exported from."
        )
    view = translator_text(translator, line, parser, settings.max_distance)
    return _answer(
        engine.description.name, "translation", view, parser, missing,
        translation=translation, attention=attention,
    )  # fmt: skip


def explain_classification(
    engine: ClassifierEngine, texts: tuple[str, ...], settings: ExplainSettings
) -> ExplainAnswer:
    """A text or a pair, what the classifier says of it, and how its encoder looked at it.

    Raises:
        ConfigError: There is no such layer, head or sub-network.
    """
    from syntaxformer.study import classifier_text, encoder_attention, parser_for, subnetwork_view

    classifier = engine.classifier
    item: Any = texts[0] if len(texts) == 1 else texts
    (found,) = engine.classify([item])
    missing, networks, attention = {}, None, None
    language = None if classifier.info.task in OWN_TASKS else "en"  # the public tasks are in English
    parser = parser_for(classifier.annotator, engine.parser, language, False)
    if engine.description.backend != "pytorch":
        reason = f"This model was exported to {engine.description.backend}, which does not give it."
        missing |= {"attention": reason, "networks": reason}
    else:
        looked = encoder_attention(classifier, item)
        if classifier.collator.config.masks is None:
            missing["networks"] = "This model was fine-tuned without masks."
        else:
            inside = subnetwork_view(classifier, item)
            networks = _networks(inside)
            if settings.network is not None:
                attention = _attention_of_network(inside, len(looked.weights), settings)
        if attention is None:
            attention = _shown_attention("self", looked.weights, looked.pieces, looked.pieces, settings)
    view = classifier_text(classifier, texts, parser, settings.max_distance)
    return _answer(
        engine.description.name, "classification", view, parser, missing,
        classification=found, attention=attention, networks=networks,
    )  # fmt: skip


def _answer(
    name: str, task: Any, view: TextView, parser: Parser, missing: dict[str, str], **parts: Any
) -> ExplainAnswer:
    if parser.lacks is not None:
        missing["trees"] = parser.lacks
    elif not view.sentences[0].words:
        missing["trees"] = "The text has no words."
    distance = view.max_distance
    names = [relation_name(one, distance) for one in range(n_relations(distance))]
    return ExplainAnswer(
        model=name,
        task=task,
        sentences=[_sentence(one) for one in view.sentences],
        pieces=PiecesView(texts=view.pieces, words=view.words_of_pieces, factors=view.factors),
        relations=RelationsView(
            max_distance=distance,
            names=names,
            trees={kind: matrix.tolist() for kind, matrix in view.relations.items()},
        ),
        missing=missing,
        **parts,
    )


def _sentence(sentence: Sentence) -> SentenceView:
    columns = {name: getattr(sentence, name) for name in PER_WORD}
    tree = sentence.constituency
    return SentenceView(
        text=sentence.text,
        words=list(sentence.words),
        constituency=tree,
        phrases=None if tree is None else [tuple(span) for span in spans_of(parse_tree(tree))],
        **{name: None if values is None else list(values) for name, values in columns.items()},
    )


def _shown_attention(
    kind: Any, weights: Any, rows: Sequence[str], columns: Sequence[str], settings: ExplainSettings
) -> AttentionView:
    """One layer of `[layers, heads, rows, columns]`."""
    n_layers, n_heads = weights.shape[:2]
    layer = _place(settings.layer, n_layers, "layer")
    head = None if settings.head is None else _place(settings.head, n_heads, "head")
    shown = weights[layer].mean(0) if head is None else weights[layer, head]
    return AttentionView(
        kind=kind, n_layers=n_layers, n_heads=n_heads, layer=layer, head=head, rows=list(rows),
        columns=list(columns), weights=_rounded(shown),
    )  # fmt: skip


def _attention_of_network(inside: SubnetworkView, n_layers: int, settings: ExplainSettings) -> AttentionView:
    layer, n_heads = _place(settings.layer, n_layers, "layer"), inside.logits.shape[1]
    head = None if settings.head is None else _place(settings.head, n_heads, "head")
    if layer not in inside.layers:
        layers = ", ".join(map(str, inside.layers))
        raise ConfigError(f"layer: expected one with sub-networks ({layers}), got {layer}.")
    name = str(settings.network)
    weights = inside.sub_attention(inside.layers.index(layer), inside.network(name), head)
    return AttentionView(
        kind="self", n_layers=n_layers, n_heads=n_heads, layer=layer, head=head, network=name,
        rows=inside.pieces, columns=inside.pieces, weights=_rounded(weights),
    )  # fmt: skip


def _networks(inside: SubnetworkView) -> NetworksView:
    return NetworksView(
        layers=inside.layers,
        names=inside.networks,
        occurs=inside.masks.any((1, 2)).tolist(),
        weights=_rounded(inside.topical_weights()),
    )


def _place(wanted: int, n_places: int, what: str) -> int:
    if wanted >= n_places:
        raise ConfigError(f"{what}: expected at most {n_places - 1} in this model, got {wanted}.")
    return wanted % n_places


def _rounded(weights: Any) -> list[list[float]]:
    return [[round(weight, DIGITS) for weight in row] for row in weights.tolist()]
