"""Attention as arrays: of a translator, its spread, and inside syntax attention. `plots` draws them.

For syntax attention, a view shows what each sub-network attends to in one sentence, and its weight.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import softmax
from torch import Tensor

from syntaxformer.base.config import nearest
from syntaxformer.base.errors import ConfigError
from syntaxformer.base.progress import track
from syntaxformer.base.statistics import Interval, bootstrap_interval
from syntaxformer.encoders.classifier import Classifier
from syntaxformer.encoders.examples import raw_example
from syntaxformer.runs.loading import check_outputs
from syntaxformer.study.word_states import source_owners
from syntaxformer.syntax import (
    FACTORS,
    NO_PATH,
    NO_WORD,
    batch_dependency_distances,
    n_relations,
    relation_name,
)
from syntaxformer.translation.decoding import source_pad_id
from syntaxformer.translation.model import shift_right
from syntaxformer.translation.source import EncodedText, source_batch
from syntaxformer.translation.torch_decoder import aligning_attention, cross_attentions, shown_attention
from syntaxformer.translation.translator import Translator
from syntaxformer.trees import Sentence


@dataclass(frozen=True)
class CrossAttentionMap:
    """Cross-attention for one sentence and its translation.

    Args:
        src_pieces: Source pieces, `[src]`.
        tgt_pieces: Target pieces, `[tgt]`.
        weights: `[layers, heads, tgt, src]`; each row sums to 1.
        factors: Factor name → value of each source piece.
        linked: Source piece of each target piece by the head that aligns, `[tgt]`; None without such a head.
    """

    src_pieces: list[str]
    tgt_pieces: list[str]
    weights: NDArray[np.float32]
    factors: dict[str, list[str]]
    translation: str
    linked: NDArray[np.int64] | None = None

    def average(self, layer: int = -1, head: int | None = None) -> NDArray[np.float32]:
        """The weights of one layer, `[tgt, src]`: the mean over its heads, or one head."""
        return _mean(self.weights[layer], head)


@torch.inference_mode()
def cross_attention(
    translator: Translator,
    line: str,
    user_factors: Mapping[str, Sequence[str]] | None = None,
    translation: str | None = None,
) -> CrossAttentionMap:
    """Return the attention of a line's translation, which is translated now unless it is given.

    Raises:
        ValueError: The line is empty.
        ConfigError: The values of a user factor are missing.

    Source: Sundararaman et al. (2019), figure 3.
    """
    if not line.strip():
        raise ValueError("line: expected text, got an empty line.")
    factors = {name: [list(values)] for name, values in (user_factors or {}).items()}
    if translation is None:
        (hypotheses,) = translator.translate([line], user_factors=factors)
        translation = hypotheses[0].text
    source = translator.encode([line], factors)
    attentions, (target,) = _cross_attentions(translator, source, [line], [translation])
    linked, chosen = None, translator.info.alignment
    if chosen is not None:
        steps = np.minimum(np.arange(len(target)) + chosen.shift, len(target) - 1)
        linked = aligning_attention(attentions, chosen)[0][steps].argmax(1)
    return CrossAttentionMap(
        translator.encoder.piece_names(source.pieces),
        translator.encoder.target_tokenizer.convert_ids_to_tokens(target),
        torch.stack(attentions)[:, 0].float().cpu().numpy(),
        translator.encoder.factor_values(source.factors),
        translation,
        linked,
    )


def _cross_attentions(
    translator: Translator, source: EncodedText, lines: Sequence[str], targets: Sequence[str]
) -> tuple[Sequence[Tensor], list[list[int]]]:
    """Attention of each layer, `[sentences, heads, tgt, src]`, and the target pieces with their ends."""
    model, pieces = translator.model, translator.target_pieces(lines, targets)
    longest = max(map(len, pieces))
    labels = torch.tensor([ids + [-100] * (longest - len(ids)) for ids in pieces], device=model.device)
    batch = source_batch(source, range(len(pieces)), source_pad_id(model))
    return cross_attentions(model, batch, shift_right(labels, model.config)), pieces


@dataclass(frozen=True)
class EncoderAttention:
    """Self-attention, `[layers, heads, pieces, pieces]`; in an infused layer, over all its sub-networks."""

    pieces: list[str]
    weights: NDArray[np.float32]


@torch.no_grad()
def encoder_attention(classifier: Classifier, text: str | tuple[str, str]) -> EncoderAttention:
    """Run one text or pair through a classifier's encoder and return its attention.

    Raises:
        ConfigError: The model does not return its attention.
    """
    batch, pieces = _read(classifier, text)
    infusion = getattr(classifier.model, "infusion", None)
    if infusion is not None and infusion.attends:
        with infusion.record(attention=True):
            classifier.predict([text])
        by_layer = infusion.seen.attention
        layers = [weights for layer in sorted(by_layer) for weights in by_layer[layer]]
    else:
        model: Any = classifier.model
        encoder = model.get_encoder() if model.config.is_encoder_decoder else model.base_model
        inputs = {name: tensor.to(model.device) for name, tensor in batch.items()}
        with shown_attention(encoder):
            attentions = encoder(**inputs, output_attentions=True).attentions
        if not attentions or any(weights is None for weights in attentions):
            raise ConfigError(
                f"model: expected an encoder that returns its attention, got {type(encoder).__name__}, "
                "which does not."
            )
        layers = list(attentions)
    check_outputs(*layers)
    return EncoderAttention(pieces, torch.stack([layer[0] for layer in layers]).float().cpu().numpy())


def _read(classifier: Classifier, text: str | tuple[str, str]) -> tuple[dict[str, Tensor], list[str]]:
    """The batch of one text or pair, and its pieces; ConfigError if each text is a row of its own."""
    if classifier.task_type.separate:
        raise ConfigError("model: expected one that reads a pair at once, got one of similarity.")
    texts = (text,) if isinstance(text, str) else text
    example = raw_example(texts, 1, keep_places=bool(classifier.task_type.parts))
    batch = classifier.collator(classifier.read([example], classifier.annotator, False, cached=False))
    return batch, classifier.collator.tokenizer.convert_ids_to_tokens(batch["input_ids"][0].tolist())


def _mean(weights: NDArray[np.float32], head: int | None) -> NDArray[np.float32]:
    """The mean over heads, the first axis, or one head."""
    return weights.mean(0) if head is None else weights[head]


MEASURES = {
    "entropy": "entropy, bits",
    "words": "mean distance, words",
    "edges": "mean distance, edges",
    "on_words": "weight on words",
}
"""Measure → its description; edges are those of the tree, and weight not on words is on other pieces."""

BATCH_LINES = 32


@dataclass(frozen=True)
class SpreadOfAttention:
    """For each measure, one value for each sentence: the mean over its target pieces, or NaN if undefined."""

    values: dict[str, NDArray[np.float64]]

    def interval(self, measure: str) -> Interval:
        """The mean and its 95 % interval over resampled test sets; NaN if too few sentences have a value."""
        return bootstrap_interval(self.values[measure])

    def difference(self, baseline: SpreadOfAttention, measure: str) -> Interval:
        """The mean difference to a baseline on the same sentences, and its interval as in `interval`."""
        return bootstrap_interval(self.values[measure] - baseline.values[measure])


@torch.inference_mode()
def attention_spread(
    translator: Translator,
    sentences: Sequence[Sentence],
    layer: int = -1,
    head: int | None = None,
    targets: Sequence[str] | None = None,
) -> SpreadOfAttention:
    """Measure the cross-attention of parsed source lines, on the model's translations or on given targets.

    Raises:
        ConfigError: The model reads tags between its words or the user's own factors, or has no such
            layer or head.
    """
    if translator.encoder.prepend:
        raise ConfigError("spread: expected a model without tags between its words, got one that has them.")
    if user_factors := [name for name in translator.encoder.factors if name not in FACTORS]:
        names = ", ".join(user_factors)
        raise ConfigError(
            f"spread: expected a model without factors of your own, got one that reads {names}. "
            "Look at single sentences with `syntaxformer attend`, which takes their values with --factor."
        )
    lines = [sentence.text for sentence in sentences]
    if targets is None:
        targets = [hypotheses[0].text for hypotheses in translator.translate(lines)]
    values = {measure: np.full(len(lines), np.nan) for measure in MEASURES}
    order = [row for row in np.argsort([-len(line) for line in lines], kind="stable") if lines[row].strip()]
    for start in track(range(0, len(order), BATCH_LINES), "attention", unit="batches"):
        rows = [int(row) for row in order[start : start + BATCH_LINES]]
        source: Any = translator.encode([lines[row] for row in rows], with_offsets=True)
        of_rows = [sentences[row] for row in rows]
        owners = source_owners(translator.encoder, of_rows, source.offsets, source.splits)
        sides = ([texts[row] for row in rows] for texts in (lines, targets))
        layers, pieces = _cross_attentions(translator, source, *sides)
        if not -len(layers) <= layer < len(layers):
            raise ConfigError(f"layer: expected {-len(layers)} to {len(layers) - 1}, got {layer}.")
        of_layer = layers[layer].float().cpu().numpy()
        if head is not None and head >= of_layer.shape[1]:
            raise ConfigError(f"head: expected below {of_layer.shape[1]}, got {head}.")
        for number, (row, target) in enumerate(zip(rows, pieces, strict=True)):
            weights = _mean(of_layer[number, :, : len(target), : len(owners[number])], head)
            for measure, value in spread_of_weights(weights, owners[number], sentences[row]).items():
                values[measure][row] = value
    return SpreadOfAttention(values)


def spread_of_weights(
    weights: NDArray[np.float32], owners: NDArray[np.int32], sentence: Sentence
) -> dict[str, float]:
    """The measures of one sentence, averaged over its target pieces.

    Distances are Σ_ij p_i p_j d(i, j) over the pairs of words that a tree connects, by Σ_ij p_i p_j of these.

    Args:
        weights: `[tgt, src]`; each row sums to 1.
        owners: Word of each source piece, `NO_WORD` for none, `[src]`.
        sentence: The words; without governors, distances in edges are NaN.
    """
    n_words = len(sentence)
    of_words = np.zeros((len(weights), n_words))
    owned = np.flatnonzero(owners != NO_WORD)
    np.add.at(of_words.T, owners[owned], weights.T[owned])
    total = of_words.sum(1)
    measures = {**dict.fromkeys(MEASURES, float("nan")), "on_words": float(total.mean())}
    shares = of_words[total > 0] / total[total > 0][:, None]
    if not len(shares):
        return measures
    logs = np.log2(shares, out=np.zeros_like(shares), where=shares > 0)
    measures["entropy"] = float(-(shares * logs).sum(1).mean())
    words = np.arange(n_words)
    distances = {"words": np.abs(words[:, None] - words[None, :])}
    if sentence.governors is not None:
        distances["edges"] = batch_dependency_distances([sentence.governors], [n_words])[0]
    for measure, between in distances.items():
        is_linked = between != NO_PATH
        sums, linked = (
            np.einsum("ti,ij,tj->t", shares, values.astype(float), shares, optimize=True)
            for values in (np.where(is_linked, between, 0), is_linked)
        )
        measures[measure] = float((sums / np.maximum(linked, 1e-12)).mean())
    return measures


FULL = "full"
"""Name of the sub-network that attends to all pieces (preset `preserving`)."""


@dataclass(frozen=True)
class SubnetworkView:
    """One sentence or pair in an infused encoder.

    Args:
        pieces: `[pieces]`.
        networks: Names such as "dependency sibling 3", and "full" if it is one of them.
        topical: α, `[layers, pieces, networks]`.
        logits: Scaled logits before masks, `[layers, heads, pieces, pieces]`; -inf outside a local layer's
            window.
        masks: Whether M_r is 1, `[networks, pieces, pieces]`.
        attention: Attention of all sub-networks together, `[layers, heads, pieces, pieces]`.
        layers: Numbers of the layers in the order in which they run: ALBERT's parameters run several times.
        mode: "multiplicative" or "additive".
        on_empty_row: "full" or "zero"; used if the mode is additive.
        prediction: The label, or the translation.
    """

    pieces: list[str]
    networks: list[str]
    topical: NDArray[np.float32]
    logits: NDArray[np.float32]
    masks: NDArray[np.bool_]
    attention: NDArray[np.float32]
    layers: list[int]
    mode: str
    on_empty_row: str
    prediction: str

    def network(self, name: str) -> int:
        """The number of a sub-network.

        Raises:
            ConfigError: There is no sub-network of this name.
        """
        if name not in self.networks:
            raise ConfigError(f"network: unknown sub-network {name!r}. {nearest(name, self.networks)}")
        return self.networks.index(name)

    def sub_attention(self, layer: int, network: int, head: int | None = None) -> NDArray[np.float32]:
        """The weights of A_r, softmax(QKᵀ ⊙ M_r / √d), `[pieces, pieces]`; mean over heads or one head.

        Source: Bai et al. (2021), eq. 1.
        """
        logits = self.logits[layer]
        if self.networks[network] == FULL:
            return _mean(softmax(logits, -1), head)
        mask = self.masks[network] & ~np.isneginf(logits)  # relations outside a local window do not count
        if self.mode == "multiplicative":
            return _mean(softmax(np.where(mask, logits, 0), -1), head)
        is_empty = ~mask.any(-1, keepdims=True)
        attention = softmax(np.where(mask | is_empty, logits, -1e9), -1)
        return _mean(attention if self.on_empty_row == "full" else attention * ~is_empty, head)

    def plain_attention(self, layer: int, head: int | None = None) -> NDArray[np.float32]:
        """The attention of the layer's own logits without masks, `[pieces, pieces]`.

        The paper's figure has another model, trained without masks; see `plain_attention_beside`.
        """
        return _mean(softmax(self.logits[layer], -1), head)

    def topical_weights(self) -> NDArray[np.float32]:
        """α by layer, averaged over pieces, `[layers, networks]`."""
        return self.topical.mean(1)

    def strongest(self, n: int = 10) -> list[int]:
        """The sub-networks with the largest mean weights, except "full" and those that link no pair."""
        weights = self.topical_weights().mean(0)
        order = np.argsort(-weights, kind="stable").tolist()
        return [r for r in order if self.networks[r] != FULL and self.masks[r].any()][:n]


def subnetwork_view(model: Classifier | Translator, text: str | tuple[str, str]) -> SubnetworkView:
    """Run one text or pair through a model whose encoder has masks and return what happens inside.

    Raises:
        ConfigError: The model has no masks.
        DataError: A text is empty, or a single text is given for a model of pairs.

    Source: Bai et al. (2021), section 5.2 and figure 2.
    """
    infusion = getattr(model.model, "infusion", None)
    if infusion is None or infusion.config.masks is None:
        raise ConfigError("model: expected one that was trained with masks, got one without.")
    with infusion.record(attention=True):
        if isinstance(model, Translator):
            shown = cross_attention(model, str(text))
            answer, pieces = shown.translation, shown.src_pieces
            batch = source_batch(model.encode([str(text)]), range(1), source_pad_id(model.model))
        else:
            answer = str(model.predict([text]).labels[0])
            batch, pieces = _read(model, text)
    seen, config = infusion.seen, infusion.config.masks
    passes = [(number, layer) for number, layer in enumerate(seen.passes) if layer in infusion.masked_layers]

    def of_passes(by_layer: dict[int, list[Tensor]]) -> NDArray[np.float32]:
        layers = [by_layer[layer][seen.passes[:number].count(layer)][0] for number, layer in passes]
        return torch.stack(layers).float().cpu().numpy()

    topical, logits, attention = map(of_passes, (seen.weights, seen.logits, seen.attention))
    reach, ids = config.max_distance, range(1, n_relations(config.max_distance))
    names = [
        f"{tree} {i if tree in config.relations and i < ids[-1] else relation_name(i, reach)}"
        for tree in config.planes
        for i in ids
    ]
    masks = np.stack([relations == i for relations in batch["syntax"][0].numpy() for i in ids])
    if topical.shape[-1] == len(names) + 1:
        names, masks = [*names, FULL], np.concatenate([masks, np.ones_like(masks[:1])])
    return SubnetworkView(
        pieces, names, topical, logits, masks, attention, [number for number, _ in passes],
        config.mode, config.on_empty_row, answer,
    )  # fmt: skip


def plain_attention_beside(
    view: SubnetworkView,
    plain: Classifier,
    text: str | tuple[str, str],
    layer: int = -1,
    head: int | None = None,
) -> NDArray[np.float32]:
    """The attention of a model without syntax attention in the layer of a view, `[pieces, pieces]`.

    Raises:
        ConfigError: The model's attention is not plain, it has no such layer or head, reads other pieces, or
            does not return its attention.
        DataError: A single text is given for a model of pairs, or the reverse.

    Source: Bai et al. (2021), section 5.2 and figure 2.
    """
    infusion = getattr(plain.model, "infusion", None)
    if plain.backend == "onnx" or (infusion is not None and infusion.attends):
        got = "an exported one" if plain.backend == "onnx" else "one whose attention is infused"
        raise ConfigError(
            f"beside: expected a model fine-tuned without masks, relation_bias and lisa, got {got}. "
            "Fine-tune the checkpoint with --infuse none."
        )
    plain.predict([text])  # refuses a text that the model cannot read
    beside, number = encoder_attention(plain, text), view.layers[layer]
    n_layers, n_heads = beside.weights.shape[:2]
    if number >= n_layers or (head is not None and head >= n_heads):
        raise ConfigError(
            f"beside: expected a model with layer {number} and head {head or 0}, got {n_layers} layers of "
            f"{n_heads} heads. Choose another layer or head."
        )
    if beside.pieces != view.pieces:
        raise ConfigError(
            f"beside: expected a model that reads the same {len(view.pieces)} pieces, got "
            f"{len(beside.pieces)} others. Use one that was fine-tuned from the same checkpoint."
        )
    return _mean(beside.weights[number], head)
