"""Encoded pairs as batches: which rows, by a budget of target pieces, and their padded tensors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset, Sampler

from syntaxformer.base.errors import ConfigError
from syntaxformer.nn.kernels.cross_entropy import IGNORED_LABEL
from syntaxformer.syntax.ragged import Ragged
from syntaxformer.translation.source import EncodedText, source_batch

IntArray = NDArray[np.int64]

NO_TAG = 0
"""`<none>` of the target's tags: the end piece and other pieces without a word."""
UNKNOWN_TAG = 1
"""`<unk>` of the target's tags: what the annotator gave is no tag of Universal Dependencies."""


class TokenBudgetBatches(Sampler[list[int]]):
    """Lists of row numbers whose padded target side fits a budget.

    Rows are sorted by target and source length and cut into batches. Ties are broken anew in every epoch,
    and the batches come in a new order, both from (seed, epoch) alone: two runs with one seed see the same
    data in the same order, whatever the model draws. Where the cuts fall depends on lengths alone, so every
    epoch has the same number of batches.

    Several processes share the batches of each update: process `rank` of `world` takes every `world`-th of
    them, so an update sees the same rows however many processes there are. The last update of an epoch is
    filled up with the epoch's first batches.

    Args:
        src_lengths: Source pieces of each row.
        tgt_lengths: Target pieces of each row.
        max_batch_tokens: Most target pieces of a batch, padding included.
        seed: Seed of the order.
        shuffle: False keeps the sorted order (evaluation).
        per_update: Batches of one update, over all processes.
        rank: Number of this process.
        world: How many processes there are.

    Raises:
        ValueError: A row is longer than the budget.
        ConfigError: The batches of an update cannot be shared evenly.
    """

    def __init__(
        self,
        src_lengths: IntArray,
        tgt_lengths: IntArray,
        max_batch_tokens: int,
        seed: int = 0,
        shuffle: bool = True,
        per_update: int = 1,
        rank: int = 0,
        world: int = 1,
    ) -> None:
        if len(tgt_lengths) and tgt_lengths.max() > max_batch_tokens:
            raise ValueError(
                f"max_batch_tokens: expected at least the longest target, {tgt_lengths.max()} pieces, "
                f"got {max_batch_tokens}. Raise it or lower data.max_pieces."
            )
        if per_update % world:
            raise ConfigError(
                f"training.accumulate: expected a multiple of the {world} processes, got {per_update}: it "
                f"counts the batches of an update over all processes. Set it to {world} or a multiple, and "
                "divide training.max_batch_tokens by as much to keep the size of an update."
            )
        # Half the width: of ten million pairs these are what a run holds in memory.
        self.src_lengths, self.tgt_lengths = (side.astype(np.int32) for side in (src_lengths, tgt_lengths))
        self.seed, self.shuffle = seed, shuffle
        self.per_update, self.rank, self.world = per_update, rank, world
        self.epoch = 0
        self._cuts = _cut(np.sort(self.tgt_lengths), max_batch_tokens)

    @property
    def n_batches(self) -> int:
        """Different batches of an epoch."""
        return len(self._cuts) - 1

    def __len__(self) -> int:
        """Batches that this process sees in an epoch."""
        return -(-self.n_batches // self.per_update) * self.per_update // self.world

    def set_epoch(self, epoch: int) -> None:
        """Choose the order of an epoch; the trainer calls it."""
        self.epoch = epoch

    def __iter__(self) -> Iterator[list[int]]:
        random = np.random.default_rng((self.seed, self.epoch))
        n_rows = len(self.tgt_lengths)
        ties = random.permutation(n_rows) if self.shuffle else np.arange(n_rows)
        order = np.lexsort((ties, self.src_lengths, self.tgt_lengths)).astype(np.int32)
        del ties
        batches = random.permutation(self.n_batches) if self.shuffle else np.arange(self.n_batches)
        shared = np.resize(batches, len(self) * self.world)
        for batch in shared[self.rank :: self.world]:
            yield order[self._cuts[batch] : self._cuts[batch + 1]].tolist()


def _cut(sorted_lengths: NDArray[np.integer[Any]], budget: int) -> list[int]:
    """Borders of batches over ascending lengths: rows × longest row ≤ budget."""
    cuts = [0]
    for start in range(0, len(sorted_lengths), 100_000):  # a list of all would take more than the array
        for row, length in enumerate(sorted_lengths[start : start + 100_000].tolist(), start):
            if (row + 1 - cuts[-1]) * length > budget:
                cuts.append(row)
    return [*cuts, len(sorted_lengths)] if len(sorted_lengths) else [0]


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
    """Builds a batch."""

    pairs: EncodedPairs
    pad_id: int

    def __call__(self, rows: Sequence[int]) -> dict[str, Tensor]:
        """Pad the rows on the right.

        Returns:
            `input_ids` [batch, src], `factor_ids` [batch, src, factors] where there are factors,
            `attention_mask` [batch, src] where something is padded, `labels` [batch, tgt], what
            `LineSyntax.batch` gives where the encoder reads trees, and `target_tags` [batch, tgt] where the
            target is tagged, -100 for pieces without a known tag.
        """
        batch = source_batch(self.pairs.src, rows, self.pad_id)
        tgt = self.pairs.tgt
        labels = Ragged(tgt.pieces, tgt.splits).padded(IGNORED_LABEL, rows)
        batch["labels"] = torch.from_numpy(labels)
        if tgt.factors.shape[1]:
            tags = Ragged(tgt.factors[:, 0], tgt.splits).padded(NO_TAG, rows)
            batch["target_tags"] = torch.from_numpy(np.where(tags <= UNKNOWN_TAG, IGNORED_LABEL, tags))
        return batch
