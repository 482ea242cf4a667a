"""A served model: loads its folder, works on batches, describes itself. Nothing here depends on HTTP."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from syntaxformer.annotate.registry import trusted_annotator
from syntaxformer.base.errors import CheckpointError, ConfigError, DataError, SyntaxformerError
from syntaxformer.encoders.tasks import OWN_TASKS, read_classifier_info
from syntaxformer.runs.loading import CLASSIFIER, TRANSLATOR, verify_folder
from syntaxformer.serve import schemas
from syntaxformer.serve.schemas import ExplainSettings, ScoreSettings, TranslateSettings
from syntaxformer.syntax import FACTORS, n_relations, relation_name
from syntaxformer.translation.markup import Markup
from syntaxformer.translation.model_folder import read_info
from syntaxformer.translation.translator import MAX_SOURCE_PIECES
from syntaxformer.trees import parse_tree, spans_of

if TYPE_CHECKING:
    from syntaxformer.encoders.classifier import Classifier
    from syntaxformer.study.attention import SubnetworkView
    from syntaxformer.study.text_view import Parser, TextView
    from syntaxformer.translation.translator import Translator

WARM_UP = "A man in a blue shirt is standing on a ladder and cleaning a window."

MOST_CUT = 10
"""Texts of more than ten times the pieces that a model reads are refused, because all of them is parsed."""

LONG_S = 3.0
"""A measurement that takes so long is not repeated."""

FAR, BEAMS, USUAL_PIECES = 100, 20, 64
"""Work on a piece that looks at 100 others is taken to be twice as much as on one alone."""

IsOver = Callable[[], bool] | None


class Engine:
    """A served model, with its name in requests, its task, and the annotator that it reads.

    `paces` are the seconds of a unit of work, alone and in a full batch; before `warm_up` it takes no time.
    """

    description: schemas.ModelDescription
    paces = 0.0, 0.0
    n_beams = 1

    def __init__(
        self, name: str, task: schemas.Task, model: Any, reader: Any, annotator: str | None, **described: Any
    ) -> None:
        self._reader = reader  # it has the tokenizer
        self.parser = annotator  # whose trees are shown if the model reads none
        reads = (model.annotator and annotator) or model.info.annotator
        self.description = schemas.ModelDescription(name=name, task=task, annotator=reads, **described)

    def work(self, settings: Any, items: list[Any], is_over: IsOver = None) -> Sequence[Any]:
        """Return a result for each item; this runs in its own thread, one batch at a time.

        Raises:
            TimeoutError: An item takes too long, or `is_over` says that nobody waits any more.
        """
        raise NotImplementedError

    def costs(self, settings: Any, items: Sequence[str | Sequence[str]]) -> list[float]:
        """About how many seconds each item takes in a full batch, from its pieces and beams."""
        if not (pace := self.paces[1]):
            return [0.0] * len(items)
        n_beams = getattr(settings, "beam_size", None) or self.n_beams
        n_looks = 4 if isinstance(settings, ExplainSettings) else 1
        return [pace * n_beams * n_looks * work for work in self.works(items)]

    def works(self, items: Sequence[str | Sequence[str]]) -> list[float]:
        """The work that each item takes with one beam."""
        texts = [list([item] if isinstance(item, str) else item) for item in items]
        n_pieces = [sum(map(len, self._pieces.encode_batch_fast(parts))) for parts in texts]
        longest = getattr(self._reader, "max_length", MAX_SOURCE_PIECES)
        if (most := max(n_pieces)) > MOST_CUT * longest:
            raise DataError(
                f"texts.{n_pieces.index(most)}: expected at most {MOST_CUT * longest} pieces, got {most}. "
                f"The model reads the first {longest}: send these, or sentences."
            )
        return [n * (1 + 2 * min(n, longest) / FAR) for n in n_pieces]

    def try_out(self, n_texts: int) -> float:
        """Process `WARM_UP` so many times, and return the work of that."""
        raise NotImplementedError

    def warm_up(self, n_texts: int, batch_s: float) -> None:
        """Measure the paces: each is the better of two, of which the first also waits for what is loaded.

        If the first took long, that wait does not matter, and there is no second.
        """
        self._pieces = deepcopy(self._reader.tokenizer.backend_tokenizer)  # that works in another thread
        self._pieces.no_truncation()
        self._pieces.no_padding()
        self._pieces.encode_special_tokens = True
        self.batch_s = batch_s
        self.paces = self._pace(1), self._pace(n_texts)

    def _pace(self, n_texts: int) -> float:
        paces, seconds = list[float](), 0.0
        while len(paces) < 2 and seconds < LONG_S:
            start = time.monotonic()
            work = self.try_out(n_texts)
            seconds = time.monotonic() - start
            paces.append(seconds / work)
        return min(paces)


class TranslatorEngine(Engine):
    """Translates; see `Engine`."""

    def __init__(self, name: str, translator: Translator, annotator: str | None = None) -> None:
        self.translator, info = translator, translator.info
        self.n_beams = info.decoding.beam_size
        source, target = info.languages
        described: dict[str, Any] = {"source_language": source, "target_language": target, "shows": ["tags"]}
        described |= {"backend": info.backend, "factors": list(translator.encoder.factors)}
        if info.backend == "pytorch":
            described["shows"] += ["alignment", "attention"]
            described |= _shape(translator.model, "decoder_layers", "num_attention_heads")
            infusion = getattr(translator.model, "infusion", None)
            described["networks"] = infusion is not None and infusion.config.masks is not None
        super().__init__(name, "translation", translator, translator.encoder, annotator, **described)

    def try_out(self, n_texts: int) -> float:
        """See `Engine`; one text alone is searched with many beams."""
        lines, n_beams = [WARM_UP] * n_texts, BEAMS if n_texts == 1 else self.n_beams
        # A model that has not learned to end would go on and on.
        bounds = {"beam_size": n_beams, "max_length_factor": 1.0}
        settings = self.translator.info.decoding.model_copy(update=bounds)
        translator = self.translator.to(next(iter(self.translator.info.directions), None))
        source = translator.encode(lines)
        hypotheses = self.translator.search(lines, source, settings)
        n_made = [1 + len(best[0].pieces) for best in hypotheses]
        return n_beams * sum(map(_work, n_made, source.lengths.tolist()))

    def costs(self, settings: Any, items: Sequence[str | Sequence[str]]) -> list[float]:
        """See `Engine`; markup must be well formed."""
        for number, item in enumerate(items if getattr(settings, "format", "text") == "html" else ()):
            try:
                Markup(str(item))
            except DataError as error:
                raise DataError(f"texts.{number}: {error}") from error
        return super().costs(settings, items)

    def limits(self, n_beams: int, n_texts: int, n_read: int) -> tuple[float, int | None]:
        """Seconds that a search may take, and pieces of its translations, so that others need not wait.

        Those of `USUAL_PIECES` are never too long with the model's own beams, however slow it is.
        """
        alone, full = self.paces
        if not full:
            return math.inf, None
        usual = alone * self.n_beams * _work(2 * USUAL_PIECES, USUAL_PIECES)
        # Some translations of a batch, but not a single one, may go on up to their limits.
        seconds = max(2 * self.batch_s, usual) if n_texts == 1 else 3 * self.batch_s
        if self.translator.info.backend == "pytorch":  # it looks at the time
            return seconds, None
        work, first = seconds / n_beams / (alone if n_texts == 1 else full * n_texts), 1 + n_read / FAR
        return seconds, 1 + int(FAR / 2 * (math.sqrt(first**2 + 4 * work / FAR) - first))  # `_work` of it

    def work(self, settings: Any, items: list[Any], is_over: IsOver = None) -> Sequence[Any]:
        """Translate or explain texts, or score pairs; line breaks become spaces, where files have them."""
        if isinstance(settings, ScoreSettings):
            return self.score(settings, *(list(map(_as_line, side)) for side in zip(*items, strict=True)))
        lines = [_as_line(text) for text in items]
        if isinstance(settings, ExplainSettings):
            return [explain_translation(self, line, settings, is_over) for line in lines]
        return self.translate(settings, lines, is_over)

    def translate(
        self, settings: TranslateSettings, lines: list[str], is_over: IsOver = None
    ) -> list[schemas.Translation]:
        """Translate lines."""
        names = {"beam_size", "length_penalty", "max_length_factor"}
        changes = settings.model_dump(include=names, exclude_none=True)
        translator = self.translator.to(settings.to)
        decoding = translator.info.decoding.model_copy(update=changes)
        documents = [Markup(line) for line in lines] if settings.format == "html" else []
        lines = [document.text for document in documents] or lines
        is_aligned = bool(documents) or settings.alignments
        shows_attention = bool({"alignment", "attention"} & {*settings.show})
        prefixes = [settings.prefix] * len(lines) if settings.prefix else None
        is_whole = bool(prefixes) or is_aligned or shows_attention
        split = settings.split_sentences
        if split is None:
            split = "never" if is_whole or not translator.info.usual_sentences else "auto"
        elif split != "never" and is_whole:
            problem = f"expected never with a prefix, alignments, attention or format=html, got {split}"
            raise ConfigError(f"split_sentences: {problem}. Send sentences.")
        cut = translator.cut(lines, split)
        lines = [text for line in cut for text in line[::2]]
        source = translator.encode(lines, terms=settings.terms, with_offsets=is_aligned, prefixes=prefixes)
        self.translator.encoder.unseen.counts.clear()  # a service has no reader of the warning
        seconds, most = self.limits(decoding.beam_size, len(lines), int(source.lengths.max()))
        deadline = time.monotonic() + seconds
        bounds = {
            "max_pieces": most,
            "is_over": lambda: time.monotonic() > deadline or (is_over is not None and is_over()),
            "alignment": translator.aligning_head() if is_aligned else None,
            "min_length": settings.min_length,
            "coverage_penalty": settings.coverage_penalty,
        }
        n_best, scores = settings.n_best, settings.scores
        spaces = [line[1::2] for line in cut]
        hypotheses = translator.search(lines, source, decoding, n_best, scores, spaces, **bounds)
        translations, end = [], 0
        for of_line, best in zip(spaces, hypotheses, strict=True):
            row, end = end, end + len(of_line) + 1
            if documents:
                best = [replace(hypothesis, text=documents[row].restore(hypothesis)) for hypothesis in best]
            translation = schemas.Translation(text=best[0].text, n_sentences=end - row if of_line else None)
            if settings.alignments and (words := best[0].alignment) is not None:
                translation.words = schemas.WordAlignment(
                    source=words.src, target=words.tgt, links=words.links
                )
            translation.repairs = [*map(list, best[0].repairs)] or None
            if n_best > 1 or scores:
                pairs = ((hypothesis.text, hypothesis.score) for hypothesis in best)
                translation.hypotheses = [schemas.Hypothesis(text=text, score=score) for text, score in pairs]
            translation.truncated = source.is_cut is not None and bool(source.is_cut[row:end].any())
            if "tags" in settings.show:
                encoder, (start, stop) = self.translator.encoder, source.splits[[row, end]].tolist()
                factors = encoder.factor_values(source.factors[start:stop])
                pieces = encoder.piece_names(source.pieces[start:stop])
                translation.source = schemas.Source(pieces=pieces, factors=factors)
            if shows_attention and translation.text:
                self._show_attention(translator, translation, lines[row], settings.show)
            translations.append(translation)
        return translations

    def score(
        self, settings: ScoreSettings, lines: list[str], translations: list[str]
    ) -> list[schemas.Score]:
        """Score a translation of each line."""
        translator = self.translator.to(settings.to)
        source, answers = translator.encode(lines), []
        self.translator.encoder.unseen.counts.clear()
        for row, (score,) in enumerate(translator.score_encoded(lines, source, translations)):
            answer = schemas.Score(log_prob=score.log_prob, n_pieces=len(score.pieces), mean=score.mean)
            if settings.pieces:
                answer.pieces, answer.log_probs = list(score.pieces), list(score.log_probs)
            answer.truncated = source.is_cut is not None and bool(source.is_cut[row])
            answers.append(answer)
        return answers

    def _show_attention(
        self, translator: Translator, translation: schemas.Translation, line: str, show: Sequence[str]
    ) -> None:
        from syntaxformer.study.attention import cross_attention

        cross = cross_attention(translator, line, translation=translation.text)
        weights = cross.average()
        if "alignment" in show:
            translation.alignment = [[piece, at] for at, piece in enumerate(weights.argmax(1).tolist())]
        if "attention" in show:
            axes = {"source": cross.src_pieces, "target": cross.tgt_pieces}
            translation.attention = schemas.Attention(**axes, weights=_rounded(weights))


def _as_line(text: str) -> str:
    return " ".join(text.replace("\r\n", "\n").rstrip("\n").split("\n"))


def _work(n_pieces: int, n_read: int) -> float:
    """Work on pieces of which each looks at all of them and at what is read."""
    return n_pieces * (1 + (n_pieces + n_read) / FAR)


class ClassifierEngine(Engine):
    """Classifies; see `Engine`."""

    def __init__(self, name: str, classifier: Classifier, annotator: str | None = None) -> None:
        self.classifier, info = classifier, classifier.info
        self.n_texts = info.n_texts
        labels = None if info.labels is None else list(info.labels)
        described: dict[str, Any] = {"backend": classifier.backend, "labels": labels, "n_texts": info.n_texts}
        if classifier.backend == "pytorch":
            described |= _shape(classifier.model, "num_hidden_layers", "num_attention_heads")
            described["networks"] = classifier.collator.config.masks is not None
        super().__init__(name, "classification", classifier, classifier.collator, annotator, **described)

    def try_out(self, n_texts: int) -> float:
        """See `Engine`."""
        items: list[Any] = [WARM_UP if self.n_texts == 1 else (WARM_UP, WARM_UP)] * n_texts
        self.classify(items)
        return sum(self.works(items))

    def work(self, settings: Any, items: list[Any], is_over: IsOver = None) -> Sequence[Any]:
        """Classify or explain texts or pairs."""
        if settings is not None:
            texts = [(item,) if isinstance(item, str) else item for item in items]
            return [explain_classification(self, text, settings) for text in texts]
        return self.classify(items)

    def classify(self, items: list[str | tuple[str, str]]) -> list[schemas.Classification]:
        """Classify texts or pairs."""
        predictions = self.classifier.predict(items)
        cut = [predictions.n_truncated > 0 and self.classifier.is_cut(item) for item in items]
        answers = zip(self.classifier.answers(predictions), cut, strict=True)
        return [schemas.Classification(**answer, truncated=is_cut) for answer, is_cut in answers]


def check_folder(folder: Path, trust: bool = False) -> None:
    """Check that a folder is a model, without loading it.

    Raises:
        CheckpointError: The folder is unfinished, altered or not a model.
    """
    if (folder / CLASSIFIER).is_file():
        verify_folder(folder, CLASSIFIER, trust)
        read_classifier_info(folder)
    else:
        verify_folder(folder, TRANSLATOR, trust)
        read_info(folder)


def load_engine(
    name: str, folder: Path, device: str | None = None, annotator: str | None = None, trust: bool = False
) -> Engine:
    """Load a translator (trained or exported) or a classifier, which must be able to answer any text.

    Raises:
        CheckpointError: The folder cannot be read.
        BackendMissingError: The annotator or backend is not installed.
        ConfigError: There is no such device or annotator, the annotator cannot annotate any text, or the
            model reads the user's own factors.
    """
    if (folder / CLASSIFIER).is_file():
        from syntaxformer.encoders.classifier import Classifier

        model: Any = Classifier.from_folder(folder, annotator, device, trust)
        engine: Engine = ClassifierEngine(name, model, annotator)
    else:
        from syntaxformer.translation.translator import Translator

        model = Translator.load(folder, annotator, device, None, trust)
        if factors := ", ".join(factor for factor in model.encoder.factors if factor not in FACTORS):
            got = f"one with factors of your own, {factors}, which a request cannot give"
            remedy = "Use `syntaxformer translate` with --factor."
            raise ConfigError(f"{folder}: expected a model that reads text alone, got {got}. {remedy}")
        engine = TranslatorEngine(name, model, annotator)
    try:
        if model.annotator is not None:
            model.annotator.annotate(["a"])  # one that only has parses of given lines has loaded, too
    except SyntaxformerError as error:
        message = f"{folder}: expected an annotator of any text, got one that fails on 'a': {error}"
        raise ConfigError(f"{message} Give another with --annotator.") from error
    # Trees are shown of the annotator that the folder names, if it is trusted.
    with suppress(CheckpointError):
        engine.parser = trusted_annotator(model.info.annotator, annotator, folder, trust)
    return engine


def _shape(model: Any, layers: str, heads: str) -> dict[str, int | None]:
    """Layers and heads whose attention can be shown; T5 has names of its own for them."""
    config = model.config
    n_layers = getattr(config, layers, getattr(config, f"num_{layers}", None))
    return {"n_layers": n_layers, "n_heads": getattr(config, heads, None)}


def explain_translation(
    engine: TranslatorEngine, line: str, settings: ExplainSettings, is_over: IsOver = None
) -> schemas.ExplainAnswer:
    """Explain a line: its translation, and the attention of the translator or of an encoder's sub-network.

    Raises:
        ConfigError: There is no such layer, head or sub-network, or the model reads the user's own factors.
    """
    from syntaxformer.study.attention import cross_attention, subnetwork_view
    from syntaxformer.study.text_view import parser_for, translator_text

    translator = engine.translator.to(settings.to)
    info = translator.info
    parser = parser_for(translator.annotator, engine.parser, info.languages[0], info.tokenized)
    (translated,) = engine.translate(TranslateSettings(to=settings.to), [line], is_over)
    answer: dict[str, Any] = {"translation": translated.text, "missing": {}}
    if info.backend != "pytorch":
        reason = f"This model was exported to {info.backend}, which gives no attention."
        answer["missing"]["attention"] = f"{reason} Serve the folder from which it was exported."
    else:
        view = subnetwork_view(translator, line) if engine.description.networks else None
        answer["networks"] = view and _networks(view)
        if view is not None and settings.network is not None:
            like = view.attention[:1].repeat(view.layers[-1] + 1, 0)  # only its shape counts
            answer["attention"] = _attention("self", like, view.pieces, view.pieces, settings, view)
        else:
            cross = cross_attention(translator, line, translation=translated.text)
            axes = cross.tgt_pieces, cross.src_pieces
            answer["attention"] = _attention("cross", cross.weights, *axes, settings)
    if not engine.description.networks:
        answer["missing"]["networks"] = "This model was trained without masks."
    text = translator_text(translator, line, parser, settings.max_distance)
    return _answer(engine, text, parser, **answer)


def explain_classification(
    engine: ClassifierEngine, texts: tuple[str, ...], settings: ExplainSettings
) -> schemas.ExplainAnswer:
    """Explain a text or a pair: the classifier's answer and its encoder's attention.

    Raises:
        ConfigError: There is no such layer, head or sub-network.
    """
    from syntaxformer.study.attention import encoder_attention, subnetwork_view
    from syntaxformer.study.text_view import classifier_text, parser_for

    classifier = engine.classifier
    item: Any = texts[0] if len(texts) == 1 else texts
    language = None if classifier.info.task in OWN_TASKS else "en"  # the official tasks are in English
    parser = parser_for(classifier.annotator, engine.parser, language, False)
    answer: dict[str, Any] = {"classification": engine.classify([item])[0], "missing": {}}
    if (backend := engine.description.backend) != "pytorch":
        reason = f"This model was exported to {backend}, which does not give it."
        answer["missing"] = {"attention": reason, "networks": reason}
    else:
        encoder = encoder_attention(classifier, item)
        view = subnetwork_view(classifier, item) if engine.description.networks else None
        answer["networks"] = view and _networks(view)
        if view is None:
            answer["missing"]["networks"] = "This model was fine-tuned without masks."
        axes = encoder.pieces, encoder.pieces
        answer["attention"] = _attention("self", encoder.weights, *axes, settings, view)
    text = classifier_text(classifier, texts, parser, settings.max_distance)
    return _answer(engine, text, parser, **answer)


def _networks(view: SubnetworkView) -> schemas.NetworksView:
    occurs, weights = view.masks.any((1, 2)).tolist(), _rounded(view.topical_weights())
    return schemas.NetworksView(layers=view.layers, names=view.networks, occurs=occurs, weights=weights)


def _answer(
    engine: Engine, text: TextView, parser: Parser, missing: dict[str, str], **answer: Any
) -> schemas.ExplainAnswer:
    if parser.lacks is not None:
        missing["trees"] = parser.lacks
    elif not text.sentences[0].words:
        missing["trees"] = "The text has no words."
    sentences, distance = [], text.max_distance
    for sentence in text.sentences:
        view = schemas.SentenceView.model_validate(sentence, from_attributes=True)
        if view.constituency is not None:
            view.phrases = [tuple(span) for span in spans_of(parse_tree(view.constituency))]
        sentences.append(view)
    return schemas.ExplainAnswer(
        model=engine.description.name,
        task=engine.description.task,
        sentences=sentences,
        pieces=schemas.PiecesView(texts=text.pieces, words=text.words_of_pieces, factors=text.factors),
        relations=schemas.RelationsView(
            max_distance=distance,
            names=[relation_name(number, distance) for number in range(n_relations(distance))],
            trees={kind: matrix.tolist() for kind, matrix in text.relations.items()},
        ),
        missing=missing,
        **answer,
    )


def _attention(
    kind: Any,
    weights: Any,
    rows: Sequence[str],
    columns: Sequence[str],
    settings: ExplainSettings,
    view: SubnetworkView | None = None,
) -> schemas.AttentionView:
    """One layer of `[layers, heads, rows, columns]`, or one sub-network of it."""
    n_layers, n_heads = weights.shape[:2]
    for what, number, n in (("layer", settings.layer, n_layers), ("head", settings.head, n_heads)):
        if number is not None and number >= n:
            raise ConfigError(f"{what}: expected at most {n - 1} in this model, got {number}.")
    layer, head = settings.layer % n_layers, settings.head
    attention = weights[layer].mean(0) if head is None else weights[layer, head]
    network = None if view is None else settings.network
    if view is not None and network is not None:
        if layer not in view.layers:
            layers = ", ".join(map(str, view.layers))
            raise ConfigError(f"layer: expected one with sub-networks ({layers}), got {layer}.")
        attention = view.sub_attention(view.layers.index(layer), view.network(network), head)
    which = {"n_layers": n_layers, "n_heads": n_heads, "layer": layer, "head": head, "network": network}
    axes = {"rows": [*rows], "columns": [*columns]}
    return schemas.AttentionView(kind=kind, **axes, weights=_rounded(attention), **which)


def _rounded(weights: Any) -> list[list[float]]:
    return [[round(weight, 5) for weight in row] for row in weights.tolist()]
