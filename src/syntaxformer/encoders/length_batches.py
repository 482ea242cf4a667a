"""Batches of a fixed number of examples of like length: little padding, and an order that a seed decides."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from torch.utils.data import Sampler

__all__ = ["LengthBatches"]

POOL_BATCHES = 50
"""Batches sorted by length together: enough for little padding, few enough to keep epochs different."""


class LengthBatches(Sampler[list[int]]):
    """Lists of row numbers, `batch_size` each but for the last.

    Rows are shuffled, sorted by length within pools of 50 batches, cut, and the batches shuffled. The order
    comes from (seed, epoch) alone: two runs with one seed see the same batches, whatever the model draws.

    Args:
        lengths: Pieces of each row.
        batch_size: Rows of a batch.
        seed: Seed of the order.
    """

    def __init__(self, lengths: Sequence[int] | np.ndarray, batch_size: int, seed: int) -> None:
        self.lengths = np.asarray(lengths)
        self.batch_size, self.seed, self.epoch = batch_size, seed, 0

    def __len__(self) -> int:
        return -(-len(self.lengths) // self.batch_size)

    def set_epoch(self, epoch: int) -> None:
        """Choose the order of an epoch; the trainer calls it."""
        self.epoch = epoch

    def __iter__(self) -> Iterator[list[int]]:
        random = np.random.default_rng((self.seed, self.epoch))
        rows = random.permutation(len(self.lengths))
        pool = self.batch_size * POOL_BATCHES
        batches: list[list[int]] = []
        for start in range(0, len(rows), pool):
            part = rows[start : start + pool]
            part = part[np.argsort(-self.lengths[part], kind="stable")].tolist()
            batches += [part[at : at + self.batch_size] for at in range(0, len(part), self.batch_size)]
        for place in random.permutation(len(batches)).tolist():
            yield batches[place]
