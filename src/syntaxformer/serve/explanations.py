"""Answers of `POST /v1/explain`: arrays of `analysis` put into the body's form. Knows nothing of HTTP."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from syntaxformer.base.errors import ConfigError
from syntaxformer.encoders.tasks import OWN_TASKS
from syntaxformer.serve.explain_schemas import (
    AttentionView,
    ExplainAnswer,
    NetworksView,
    PiecesView,
    RelationsView,
    SentenceView,
)
from syntaxformer.syntax import n_relations, relation_name
from syntaxformer.trees import Sentence, parse_tree, spans_of

if TYPE_CHECKING:
    from syntaxformer.serve.engines import ClassifierEngine, TranslatorEngine
    from syntaxformer.study import Parser, SubnetworkView, TextView

__all__ = ["ExplainSettings", "explain_classification", "explain_translation"]

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
        attention = _attention("cross", looked.weights, looked.tgt_pieces, looked.src_pieces, settings)
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
            attention = _attention("self", looked.weights, looked.pieces, looked.pieces, settings)
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
    columns = {name: getattr(sentence, name) for name in ("upos", "xpos", "lemmas", "governors", "deprels")}
    tree = sentence.constituency
    return SentenceView(
        text=sentence.text,
        words=list(sentence.words),
        constituency=tree,
        phrases=None if tree is None else [tuple(span) for span in spans_of(parse_tree(tree))],
        **{name: None if values is None else list(values) for name, values in columns.items()},
    )


def _attention(
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
