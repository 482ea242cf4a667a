"""Word vectors of a treebank in padded batches of sentences of like length, the same in every epoch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from syntaxformer.study.treebank import ProbeTreebank

__all__ = ["ProbeBatches"]


class ProbeBatches:
    """Batches of one treebank; vectors are looked up when a batch is asked for.

    Args:
        treebank: Sentences with what is to be found.
        vectors: `[words, d_model]`, all sentences one after the other.
        batch_size: Sentences of a batch.
    """

    def __init__(self, treebank: ProbeTreebank, vectors: Tensor, batch_size: int) -> None:
        self.vectors, self.n_sentences = vectors, len(treebank)
        lengths = np.diff(treebank.splits)
        order = np.argsort(lengths, kind="stable").tolist()
        self.rows = [order[start : start + batch_size] for start in range(0, len(order), batch_size)]
        self.lengths = [lengths[rows] for rows in self.rows]
        self.is_word = [torch.from_numpy(np.arange(one.max()) < one[:, None]) for one in self.lengths]
        self.where = [
            torch.from_numpy(
                np.minimum(treebank.splits[rows][:, None] + np.arange(one.max()), len(vectors) - 1)
            )
            for rows, one in zip(self.rows, self.lengths, strict=True)
        ]
        self.distances = [self._padded(treebank.distances, place, 2) for place in range(len(self))]
        self.depths = [self._padded(treebank.depths, place, 1) for place in range(len(self))]

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, place: int) -> tuple[Tensor, Tensor]:
        """Vectors `[batch, words, d_model]`, zero where padded, and what is a word `[batch, words]`."""
        if not 0 <= place < len(self):
            raise IndexError(place)
        is_word = self.is_word[place]
        return self.vectors[self.where[place]] * is_word[..., None], is_word

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        return (self[place] for place in range(len(self)))

    @torch.inference_mode()
    def predict(self, probe: nn.Module) -> list[NDArray[np.float32]]:
        """What a probe says of each sentence, in the treebank's order, without padding."""
        found: list[NDArray[np.float32]] = [np.zeros(0, np.float32)] * self.n_sentences
        for place, (vectors, _) in enumerate(self):
            predicted = probe(vectors).numpy()
            for row, length, one in zip(self.rows[place], self.lengths[place], predicted, strict=True):
                found[row] = one[(slice(length),) * one.ndim].copy()
        return found

    def _padded(self, values: Sequence[NDArray[np.int32]], place: int, n_axes: int) -> Tensor:
        rows, longest = self.rows[place], int(self.lengths[place].max())
        padded = torch.zeros(len(rows), *(longest,) * n_axes)
        for number, row in enumerate(rows):
            one = torch.from_numpy(values[row]).float()
            padded[(number, *(slice(size) for size in one.shape))] = one
        return padded
