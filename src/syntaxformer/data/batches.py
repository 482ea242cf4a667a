"""Batches by a budget of target pieces: sentences of like length together, so that little is padded."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import Sampler

__all__ = ["TokenBudgetBatches", "padding_share"]

IntArray = NDArray[np.int64]


class TokenBudgetBatches(Sampler[list[int]]):
    """Lists of row numbers whose padded target side fits a budget.

    Rows are sorted by target and source length and cut into batches. Ties are broken anew in every epoch,
    and the batches come in a new order, both from (seed, epoch) alone: two runs with one seed see the same
    data in the same order, whatever the model draws. Where the cuts fall depends on lengths alone, so every
    epoch has the same number of batches.

    Args:
        src_lengths: Source pieces of each row.
        tgt_lengths: Target pieces of each row.
        max_batch_tokens: Most target pieces of a batch, padding included.
        seed: Seed of the order.
        shuffle: False keeps the sorted order (evaluation).

    Raises:
        ValueError: A row is longer than the budget.
    """

    def __init__(
        self,
        src_lengths: IntArray,
        tgt_lengths: IntArray,
        max_batch_tokens: int,
        seed: int = 0,
        shuffle: bool = True,
    ) -> None:
        if len(tgt_lengths) and tgt_lengths.max() > max_batch_tokens:
            raise ValueError(
                f"max_batch_tokens: expected at least the longest target, {tgt_lengths.max()} pieces, "
                f"got {max_batch_tokens}. Raise it or lower data.max_pieces."
            )
        self.src_lengths, self.tgt_lengths = src_lengths, tgt_lengths
        self.seed, self.shuffle = seed, shuffle
        self.epoch = 0
        order = np.lexsort((src_lengths, tgt_lengths))
        self._cuts = _cut(tgt_lengths[order], max_batch_tokens)

    def __len__(self) -> int:
        return len(self._cuts) - 1

    def set_epoch(self, epoch: int) -> None:
        """Choose the order of an epoch; the trainer calls it."""
        self.epoch = epoch

    def __iter__(self) -> Iterator[list[int]]:
        random = np.random.default_rng((self.seed, self.epoch))
        n_rows = len(self.tgt_lengths)
        ties = random.permutation(n_rows) if self.shuffle else np.arange(n_rows)
        order = np.lexsort((ties, self.src_lengths, self.tgt_lengths))
        batches = random.permutation(len(self)) if self.shuffle else np.arange(len(self))
        for batch in batches:
            yield order[self._cuts[batch] : self._cuts[batch + 1]].tolist()


def _cut(sorted_lengths: IntArray, budget: int) -> list[int]:
    """Borders of batches over ascending lengths: rows × longest row ≤ budget."""
    cuts = [0]
    for row, length in enumerate(sorted_lengths.tolist()):
        if (row + 1 - cuts[-1]) * length > budget:
            cuts.append(row)
    return [*cuts, len(sorted_lengths)] if len(sorted_lengths) else [0]


def padding_share(lengths: IntArray, batches: Iterator[list[int]]) -> float:
    """Share of padded cells among all cells of one side, over some batches."""
    cells = pieces = 0
    for rows in batches:
        taken = lengths[rows]
        cells += len(rows) * int(taken.max())
        pieces += int(taken.sum())
    return 1 - pieces / cells if cells else 0.0
