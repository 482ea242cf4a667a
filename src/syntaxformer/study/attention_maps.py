"""Attention of a translator as arrays: which source pieces a target piece looks at. See `plots`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from syntaxformer.translation.source import encode_pieces, source_batch
from syntaxformer.translation.translator import Translator

__all__ = ["CrossAttentionMap", "cross_attention", "target_pieces"]


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
