"""Rows to padded tensors. The one place that pads; which rows form a batch is decided in `batches`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from syntaxformer.translation.source import EncodedText

__all__ = ["EncodedPairs", "TranslationCollator"]

IGNORED_LABEL = -100
NO_TAG = 0
"""`<none>` of the target's tags: the end piece and other pieces without a word."""
UNKNOWN_TAG = 1
"""`<unk>` of the target's tags: what the annotator gave is no tag of Universal Dependencies."""


class EncodedPairs(Dataset[int]):
    """Encoded pairs. An item is a row number; the collator fetches whole batches from the flat arrays."""

    def __init__(self, src: EncodedText, tgt: EncodedText) -> None:
        if len(src) != len(tgt):
            raise ValueError(f"pairs: expected as many targets as sources, got {len(src)} and {len(tgt)}.")
        self.src, self.tgt = src, tgt

    def __len__(self) -> int:
        return len(self.src)

    def __getitem__(self, row: int) -> int:
        return row


@dataclass(frozen=True)
class TranslationCollator:
    """Builds a batch.

    Args:
        pairs: Where rows are looked up.
        pad_id: Piece id of padding.
    """

    pairs: EncodedPairs
    pad_id: int

    def __call__(self, rows: Sequence[int]) -> dict[str, Tensor]:
        """Pad the rows on the right.

        Returns:
            `input_ids` [batch, src], `factor_ids` [batch, src, factors] where there are factors,
            `attention_mask` [batch, src] where something is padded, `labels` [batch, tgt], what
            `SourceSyntax.batch` gives where the encoder reads trees, and `target_tags` [batch, tgt] where the
            target is tagged, -100 for pieces without a known tag.
        """
        batch = source_batch(self.pairs.src, rows, self.pad_id)
        labels, _ = _pad(self.pairs.tgt.pieces, self.pairs.tgt.splits, rows, IGNORED_LABEL)
        batch["labels"] = torch.from_numpy(labels)
        if self.pairs.tgt.factors.shape[1]:
            tags, _ = _pad(self.pairs.tgt.factors[:, 0], self.pairs.tgt.splits, rows, NO_TAG)
            batch["target_tags"] = torch.from_numpy(np.where(tags <= UNKNOWN_TAG, IGNORED_LABEL, tags))
        return batch


def source_batch(src: EncodedText, rows: Sequence[int], pad_id: int) -> dict[str, Tensor]:
    """The encoder's inputs for some rows; see `TranslationCollator`."""
    pieces, mask = _pad(src.pieces, src.splits, rows, pad_id)
    batch = {"input_ids": torch.from_numpy(pieces)}
    if not mask.all():
        batch["attention_mask"] = torch.from_numpy(mask.astype(np.int64))
    if src.factors.shape[1]:
        factors, _ = _pad(src.factors, src.splits, rows, 0)
        batch["factor_ids"] = torch.from_numpy(factors)
    if src.syntax is not None:
        batch |= src.syntax.batch(rows, src.splits)
    return batch


def _pad(values: Any, splits: Any, rows: Sequence[int], fill: int) -> tuple[Any, Any]:
    """Gather rows of a flat array into [rows, longest, …] int64 and a mask of what is not padding."""
    starts, stops = splits[np.asarray(rows)], splits[np.asarray(rows) + 1]
    lengths = stops - starts
    mask = np.arange(lengths.max()) < lengths[:, None]
    padded = np.full((*mask.shape, *values.shape[1:]), fill, np.int64)
    flat = np.repeat(starts - np.concatenate([[0], np.cumsum(lengths)[:-1]]), lengths) + np.arange(
        lengths.sum()
    )
    padded[mask] = values[flat]
    return padded, mask
