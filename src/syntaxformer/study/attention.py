"""Attention of a translator as arrays: which source pieces a target piece looks at. See `plots`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from syntaxformer.base.errors import ConfigError
from syntaxformer.base.progress import track
from syntaxformer.base.statistics import Interval, bootstrap_interval
from syntaxformer.encoders.classifier import Classifier, annotate_examples
from syntaxformer.encoders.tables import TextExample
from syntaxformer.study.cases import MIN_SENTENCES
from syntaxformer.syntax import (
    FACTORS,
    NO_PATH,
    NO_WORD,
    batch_dependency_distances,
    batch_word_of_piece,
    encoding_offsets,
)
from syntaxformer.translation.source import encode_pieces, fitting_pieces, source_batch
from syntaxformer.translation.translator import MAX_SOURCE_PIECES, Translator
from syntaxformer.trees import Sentence


@dataclass(frozen=True)
class CrossAttentionMap:
    """Cross-attention for one sentence and its translation.

    Args:
        src_pieces: Source pieces, `[src]`.
        tgt_pieces: Target pieces, `[tgt]`.
        weights: `[layers, heads, tgt, src]`, each row sums to 1.
        factors: Factor name → value of each source piece.
        translation: The target side as text.
    """

    src_pieces: list[str]
    tgt_pieces: list[str]
    weights: NDArray[np.float32]
    factors: dict[str, list[str]]
    translation: str

    def average(self, layer: int = -1, head: int | None = None) -> NDArray[np.float32]:
        """One layer's weights, `[tgt, src]`: the mean over its heads, or one head."""
        weights = self.weights[layer]
        return weights.mean(0) if head is None else weights[head]


@torch.inference_mode()
def cross_attention(
    translator: Translator,
    line: str,
    user_factors: Mapping[str, Sequence[str]] | None = None,
    translation: str | None = None,
) -> CrossAttentionMap:
    """Look at the attention that scores the translation of a line.

    Args:
        translator: A loaded model.
        line: Raw text with at least one word.
        user_factors: For each factor of the user's own, the values of the line's words.
        translation: As the translator gave it; None to translate the line now.

    Raises:
        ValueError: The line is empty.
        ConfigError: The values of a user factor are missing.

    Source: Sundararaman et al. (2019), figure 3.
    """
    if not line.strip():
        raise ValueError("line: expected text, got an empty line.")
    own = {name: [list(values)] for name, values in (user_factors or {}).items()}
    if translation is None:
        (best,) = translator.translate([line], user_factors=own)
        translation = best[0].text
    source = translator.encode([line], own)
    (target,) = target_pieces(translator, [translation])
    device, pad_id = translator.model.device, translator.model.source_pad_id
    batch = {name: tensor.to(device) for name, tensor in source_batch(source, [0], pad_id).items()}
    output = translator.model(**batch, labels=torch.tensor([target], device=device), output_attentions=True)
    factors = {
        name: translator.encoder.vocabularies[name].decode(source.factors[:, column])
        for column, name in enumerate(translator.encoder.columns)
    }
    return CrossAttentionMap(
        translator.encoder.piece_names(source.pieces),
        translator.encoder.target_tokenizer.convert_ids_to_tokens(target),
        torch.stack(output.cross_attentions)[:, 0].float().cpu().numpy(),
        factors,
        translation,
    )


def target_pieces(translator: Translator, texts: Sequence[str]) -> list[list[int]]:
    """Pieces of translations, each with its end piece, as the decoder writes them.

    Args:
        translator: A loaded model.
        texts: In the target language, as a reader sees them: joined after Moses, in any case.
    """
    info = translator.info
    prepared = info.preparation(info.tgt).prepare(texts)
    return [one.ids for one in encode_pieces(translator.encoder.target_tokenizer, prepared.texts)]


@dataclass(frozen=True)
class EncoderAttention:
    """Self-attention for one text, or pair.

    Args:
        pieces: `[pieces]`.
        weights: `[layers, heads, pieces, pieces]`, each row sums to 1; of an infused layer what all its
            sub-networks together attend to.
    """

    pieces: list[str]
    weights: NDArray[np.float32]


@torch.no_grad()
def encoder_attention(classifier: Classifier, text: str | tuple[str, str]) -> EncoderAttention:
    """Run one text through a classifier's encoder and look at its attention.

    Args:
        classifier: A fine-tuned model, infused or plain.
        text: A text, or a pair where the model was trained on pairs.

    Raises:
        ConfigError: The model does not tell its attention.
    """
    texts = (text,) if isinstance(text, str) else text
    example = TextExample(tuple(" ".join(one.split()) for one in texts))
    batch = classifier.collator(annotate_examples([example], classifier.annotator, False, cached=False))
    pieces = classifier.collator.tokenizer.convert_ids_to_tokens(batch["input_ids"][0].tolist())
    infusion = getattr(classifier.model, "infusion", None)
    if infusion is not None and infusion.attends:
        with infusion.record(attention=True):
            classifier.predict([text])
        seen = infusion.seen.attention
        layers = [one for layer in sorted(seen) for one in seen[layer]]
    else:
        layers = _eager(classifier, batch)
    return EncoderAttention(pieces, torch.stack([one[0] for one in layers]).float().cpu().numpy())


def _eager(classifier: Classifier, batch: dict[str, Tensor]) -> list[Tensor]:
    """Attention of a plain encoder, which only the plain kernel gives."""
    model: Any = classifier.model
    encoder = model.get_encoder() if model.config.is_encoder_decoder else model.base_model
    before = encoder.config._attn_implementation
    try:
        encoder.set_attn_implementation("eager")
        output = encoder(
            **{name: tensor.to(model.device) for name, tensor in batch.items()}, output_attentions=True
        )
    finally:
        encoder.set_attn_implementation(before)
    if not (found := output.attentions) or any(one is None for one in found):
        raise ConfigError(
            f"model: expected an encoder that tells its attention, got {type(encoder).__name__}, "
            "which does not."
        )
    return list(found)


MEASURES = {
    "entropy": "entropy, bits",
    "words": "mean distance, words",
    "edges": "mean distance, edges",
    "on_words": "weight on words",
}
"""What is measured → what it is; edges are those of the tree, and what is not on words is on other pieces."""

BATCH_LINES = 32


@dataclass(frozen=True)
class SpreadOfAttention:
    """One value a sentence for each measure, the mean over its target pieces.

    Args:
        values: Measure → `[sentences]`; NaN where a sentence has no value.
    """

    values: dict[str, NDArray[np.float64]]

    def interval(self, measure: str) -> Interval:
        """Mean and its 95 % interval over resampled test sets; NaN where no sentence has a value.

        The ends are NaN below `MIN_SENTENCES`.
        """
        return _interval(self.values[measure])

    def difference(self, baseline: SpreadOfAttention, measure: str) -> Interval:
        """Mean difference to a baseline on the same sentences, and its interval, as `interval`."""
        return _interval(self.values[measure] - baseline.values[measure])


def _interval(values: NDArray[np.float64]) -> Interval:
    kept = values[~np.isnan(values)]
    if len(kept) < MIN_SENTENCES:
        return Interval(float(kept.mean()) if len(kept) else np.nan, np.nan, np.nan)
    return bootstrap_interval(kept.tolist())


@torch.inference_mode()
def attention_spread(
    translator: Translator,
    sentences: Sequence[Sentence],
    layer: int = -1,
    head: int | None = None,
    targets: Sequence[str] | None = None,
) -> SpreadOfAttention:
    """Measure the cross-attention of a test set.

    Args:
        translator: A loaded model.
        sentences: Parsed source lines; the words and trees that distances are counted in.
        layer: Of the decoder, the last by default.
        head: One head; None for the mean over heads.
        targets: Text to read the attention on; None for the model's own translations.

    Raises:
        ConfigError: The model reads tags between its words or factors of the user's own, or has no such
            layer or head.
    """
    if translator.encoder.prepend:
        raise ConfigError("spread: expected a model without tags between its words, got one that has them.")
    if own := [name for name in translator.encoder.factors if name not in FACTORS]:
        raise ConfigError(
            f"spread: expected a model without factors of your own, got one that reads {', '.join(own)}. "
            "Look at single sentences: `syntaxformer attend` takes their values with --factor."
        )
    lines = [one.text for one in sentences]
    if targets is None:
        targets = [best[0].text for best in translator.translate(lines)]
    values = {measure: np.full(len(lines), np.nan) for measure in MEASURES}
    order = [row for row in np.argsort([-len(line) for line in lines], kind="stable") if lines[row].strip()]
    for start in track(range(0, len(order), BATCH_LINES), "attention", unit="batches"):
        rows = [int(row) for row in order[start : start + BATCH_LINES]]
        weights = _weights(translator, [lines[row] for row in rows], [targets[row] for row in rows], layer)
        for row, one in zip(rows, weights, strict=True):
            if head is not None and head >= len(one):
                raise ConfigError(f"head: expected below {len(one)}, got {head}.")
            of_pieces = one.mean(0) if head is None else one[head]
            owners = _owners(translator, sentences[row])
            found = spread_of_weights(of_pieces, owners, sentences[row])
            for measure, value in found.items():
                values[measure][row] = value
    return SpreadOfAttention(values)


def spread_of_weights(
    weights: NDArray[np.float32], owners: NDArray[np.int32], sentence: Sentence
) -> dict[str, float]:
    """The measures of one sentence, mean over its target pieces.

    Args:
        weights: `[tgt, src]`, each row sums to 1.
        owners: Word of each source piece, `NO_WORD` for none, `[src]`.
        sentence: The words; with governors, else distances in edges are NaN.
    """
    n_words = len(sentence)
    of_words = np.zeros((len(weights), n_words))
    owned = np.flatnonzero(owners != NO_WORD)
    np.add.at(of_words.T, owners[owned], weights.T[owned])
    total = of_words.sum(1)
    kept = of_words[total > 0] / total[total > 0][:, None]
    if not len(kept):
        return {**dict.fromkeys(MEASURES, float("nan")), "on_words": float(total.mean())}
    logs = np.log2(kept, out=np.zeros_like(kept), where=kept > 0)
    places = np.arange(n_words)
    in_words = np.abs(places[:, None] - places[None, :]).astype(float)
    edges = float("nan")
    if sentence.governors is not None:
        between = batch_dependency_distances([sentence.governors], [n_words])[0].astype(float)
        edges = _mean_distance(kept, between)
    return {
        "entropy": float(-(kept * logs).sum(1).mean()),
        "words": _mean_distance(kept, in_words),
        "edges": edges,
        "on_words": float(total.mean()),
    }


def _mean_distance(weights: NDArray[np.float64], distances: NDArray[np.float64]) -> float:
    """Σ_ij p_i p_j d(i, j) over the pairs that a tree links, mean over rows."""
    linked = distances != NO_PATH
    sums = np.einsum("ti,ij,tj->t", weights, np.where(linked, distances, 0.0), weights, optimize=True)
    shares = np.einsum("ti,ij,tj->t", weights, linked.astype(float), weights, optimize=True)
    return float((sums / np.maximum(shares, 1e-12)).mean())


def _weights(
    translator: Translator, lines: Sequence[str], targets: Sequence[str], layer: int
) -> list[NDArray[np.float32]]:
    """Cross-attention of one layer for each line, `[heads, tgt, src]`, without padding."""
    source, model = translator.encode(lines), translator.model
    encoded = target_pieces(translator, targets)
    longest = max(map(len, encoded))
    labels = torch.tensor([ids + [-100] * (longest - len(ids)) for ids in encoded], device=model.device)
    batch = source_batch(source, range(len(lines)), model.source_pad_id)
    batch = {name: tensor.to(model.device) for name, tensor in batch.items()}
    found = model(**batch, labels=labels, output_attentions=True).cross_attentions
    if not -len(found) <= layer < len(found):
        raise ConfigError(f"layer: expected {-len(found)} to {len(found) - 1}, got {layer}.")
    weights = found[layer].float().cpu().numpy()
    sizes = zip(weights, encoded, source.lengths.tolist(), strict=True)
    return [one[:, : len(ids), :length] for one, ids, length in sizes]


def _owners(translator: Translator, sentence: Sentence) -> NDArray[np.int32]:
    """Word of each source piece of a line, as the translator cleans and cuts it."""
    encoder, preparation = translator.encoder, translator.encoder.preparation
    prepared = preparation.prepare([preparation.clean(sentence.text)])
    encodings = encode_pieces(encoder.tokenizer, prepared.texts)
    offsets, splits = encoding_offsets(encodings)
    words = preparation.clean_offsets(sentence.text, sentence.offsets)
    owners = batch_word_of_piece(prepared.to_raw(offsets, splits), splits, words, [0, len(sentence)])
    return owners[fitting_pieces(splits, MAX_SOURCE_PIECES)]
