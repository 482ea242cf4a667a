"""Batches of encoded pairs: rows chosen by a budget of target pieces, and their padded tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset, Sampler

from syntaxformer.nn.kernels.cross_entropy import IGNORED_LABEL
from syntaxformer.syntax.inputs import BATCH, EpochDraws
from syntaxformer.syntax.ragged import Ragged
from syntaxformer.translation.source import EncodedText, source_batch

IntArray = NDArray[np.int64]

NO_TAG = 0
"""Target tag `<none>`: the end piece and other pieces that belong to no word."""
UNKNOWN_TAG = 1
"""Target tag `<unk>`: the annotator's tag is not one of Universal Dependencies."""


class TokenBudgetBatches(Sampler[list[int]]):
    """Lists of row numbers whose padded target side fits a budget.

    Rows are sorted by target and source length and cut into batches. Every epoch breaks ties and orders the
    batches anew, by (seed, epoch) alone: two runs with the same seed see the same data in the same order,
    whatever random numbers the model draws. The cuts depend on the first lengths alone: every epoch has the
    same number of batches.

    Several processes share the batches of each update: process `rank` takes every `world`-th batch, so an
    update sees the same rows however many processes there are. The last update of an epoch is filled up with
    the first batches of that epoch.

    Args:
        src_lengths: Source pieces of each row.
        tgt_lengths: Target pieces of each row.
        max_batch_tokens: Largest number of target pieces in a batch, padding included.
        shuffle: False keeps the sorted order, as evaluation does.
        per_update: Batches of one update, over all processes, whose number divides it.
        at_epoch: Is called with the number of each epoch before its batches. It may return new lengths, whose
            batches may exceed the budget a little.
        shares: Chooses the rows of each epoch; None for all, each once.

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
        per_update: int = 1,
        rank: int = 0,
        world: int = 1,
        at_epoch: Callable[[int], tuple[IntArray, IntArray] | None] | None = None,
        shares: Shares | None = None,
    ) -> None:
        if len(tgt_lengths) and tgt_lengths.max() > max_batch_tokens:
            raise ValueError(
                f"max_batch_tokens: expected at least the longest target, {tgt_lengths.max()} pieces, "
                f"got {max_batch_tokens}. Raise it or lower data.max_pieces."
            )
        # Narrow integers save memory: a run over ten million pairs holds little else.
        self.src_lengths, self.tgt_lengths = (side.astype(np.int32) for side in (src_lengths, tgt_lengths))
        self.seed, self.shuffle = seed, shuffle
        self.per_update, self.rank, self.world = per_update, rank, world
        self.epoch, self.at_epoch, self.shares = 0, at_epoch, shares
        longest = self.tgt_lengths if shares is None else self.tgt_lengths[shares.longest]
        self._cuts = _cut(np.sort(longest), max_batch_tokens)

    @property
    def n_batches(self) -> int:
        """Number of different batches in an epoch."""
        return len(self._cuts) - 1

    def __len__(self) -> int:
        """Number of batches that this process sees in an epoch."""
        return -(-self.n_batches // self.per_update) * self.per_update // self.world

    def set_epoch(self, epoch: int) -> None:
        """Choose the order of an epoch; the trainer calls it."""
        self.epoch = epoch
        if self.at_epoch is not None and (lengths := self.at_epoch(epoch)) is not None:
            self.src_lengths, self.tgt_lengths = (side.astype(np.int32) for side in lengths)

    def __iter__(self) -> Iterator[list[int]]:
        random = np.random.default_rng((self.seed, self.epoch))
        lengths, rows = (self.src_lengths, self.tgt_lengths), None
        if self.shares is not None:
            rows = self.shares.rows(self.epoch)
            lengths = self.src_lengths[rows], self.tgt_lengths[rows]
        n_rows = len(lengths[0])
        ties = random.permutation(n_rows) if self.shuffle else np.arange(n_rows)
        order = np.lexsort((ties, *lengths)).astype(np.int32)
        order = order if rows is None else rows[order]
        del ties, lengths, rows
        batches = random.permutation(self.n_batches) if self.shuffle else np.arange(self.n_batches)
        shared = np.resize(batches, len(self) * self.world)
        for batch in shared[self.rank :: self.world]:
            yield order[self._cuts[batch] : self._cuts[batch + 1]].tolist()


class Shares:
    """Rows of each epoch, so that every corpus has its share: round(pairs × weight) rows, in each the same.

    Each pair comes as often as the whole part of its corpus's weight. For the rest, pairs of like lengths
    take turns, from a random one on: the lengths of all epochs are alike.

    Args:
        corpora: `[pairs]`, number of each pair's corpus.
        weights: One for each corpus.
        lengths: `[pairs]`, target pieces.
    """

    def __init__(self, corpora: IntArray, weights: Sequence[float], lengths: IntArray, seed: int) -> None:
        whole, self._turns = [np.zeros(0, np.int64)], list[tuple[IntArray, IntArray, IntArray]]()
        self.sizes = list[int]()  # rows of an epoch of each corpus
        random = np.random.default_rng((seed, len(weights)))
        for number, weight in enumerate(weights):
            rows = np.flatnonzero(corpora == number)
            whole.append(np.tile(rows, int(weight)))
            n_rest = max(round(len(rows) * (weight % 1)), int(weight < 1 and len(rows) > 0))
            self.sizes.append(len(whole[-1]) + n_rest)
            if n_rest:
                borders = np.arange(n_rest + 1) * len(rows) // n_rest
                by_length = rows[np.argsort(lengths[rows], kind="stable")]
                self._turns.append((by_length, borders, random.integers(len(rows), size=n_rest)))
        self._whole = np.concatenate(whole)
        self.longest = np.concatenate([self._whole, *(rows[at[1:] - 1] for rows, at, _ in self._turns)])

    def rows(self, epoch: int) -> IntArray:
        """The rows of an epoch."""
        turns = [rows[at[:-1] + (first + epoch) % np.diff(at)] for rows, at, first in self._turns]
        return np.concatenate([self._whole, *turns])


def _cut(sorted_lengths: NDArray[np.integer[Any]], budget: int) -> list[int]:
    """Row numbers at which to cut ascending lengths into batches: rows × longest row ≤ budget."""
    cuts = [0]
    for start in range(0, len(sorted_lengths), 100_000):  # one list of all would need much more memory
        for row, length in enumerate(sorted_lengths[start : start + 100_000].tolist(), start):
            if (row + 1 - cuts[-1]) * length > budget:
                cuts.append(row)
    return [*cuts, len(sorted_lengths)] if len(sorted_lengths) else [0]


class EncodedPairs(Dataset[int]):
    """Encoded pairs. An item is a row number; the collator fetches whole batches from the flat arrays."""

    again: Callable[[int], EncodedPairs] | None = None  # encodes them for an epoch, at random
    epoch: int | None = None
    shares: Shares | None = None

    def __init__(self, src: EncodedText, tgt: EncodedText, corpora: IntArray | None = None) -> None:
        """`corpora` are the numbers of the pairs' corpora, `[pairs]`; None if there is one."""
        if len(src) != len(tgt):
            raise ValueError(f"pairs: expected as many sources as targets, got {len(src)} and {len(tgt)}.")
        self.src, self.tgt, self.corpora = src, tgt, corpora

    def __len__(self) -> int:
        return len(self.src)

    def __getitem__(self, row: int) -> int:
        return row

    def set_epoch(self, epoch: int) -> tuple[IntArray, IntArray] | None:
        """Encode the pairs for an epoch, if each has its own pieces, and return their lengths."""
        if self.again is None:
            return None
        if epoch != self.epoch:
            pairs, self.epoch = self.again(epoch), epoch
            self.src, self.tgt = pairs.src, pairs.tgt
        return self.src.text_lengths, self.tgt.lengths


@dataclass(frozen=True)
class TranslationCollator:
    """Builds a batch; in training with the parse task in a share of the batches.

    With `rounded`, batches have few different shapes: see `rounded_up`.
    """

    pairs: EncodedPairs
    pad_id: int
    parse_share: float = 1.0
    draws: EpochDraws | None = None
    rounded: bool = False

    def __call__(self, rows: Sequence[int]) -> dict[str, Tensor]:
        """Pad the rows on the right.

        Returns:
            `input_ids` [batch, src] and `labels` [batch, tgt]. Also `factor_ids` [batch, src, factors] if
            there are factors, `attention_mask` [batch, src] if something is padded, the tensors of
            `LineSyntax.batch` if the encoder reads trees, and `target_tags` [batch, tgt] if the target is
            tagged, with -100 for pieces without a known tag. With a parse task also `parse` [batch, labels],
            -100 for padding, in the share of the batches that `draws` chooses, or in all without it.
        """
        batch = source_batch(self.pairs.src, rows, self.pad_id)
        tgt = self.pairs.tgt
        labels = Ragged(tgt.pieces, tgt.splits).padded(IGNORED_LABEL, rows)
        batch["labels"] = torch.from_numpy(labels)
        if tgt.factors.shape[1]:
            tags = Ragged(tgt.factors[:, 0], tgt.splits).padded(NO_TAG, rows)
            batch["target_tags"] = torch.from_numpy(np.where(tags <= UNKNOWN_TAG, IGNORED_LABEL, tags))
        written = self.pairs.src.syntax and self.pairs.src.syntax.labels
        draw = None if self.draws is None else self.draws.uniform(BATCH, rows[0], len(rows))[0]
        if written and (draw is None or draw < self.parse_share):
            batch["parse"] = torch.from_numpy(written.padded(IGNORED_LABEL, rows))
        return rounded_up(batch, self.pad_id) if self.rounded else batch


_STEP = 8
"""Numbers of rows and lengths of rounded batches are multiples of this."""

_NOTHING = dict.fromkeys(("labels", "target_tags", "parse"), IGNORED_LABEL) | {
    "governors": -1,
    "first_pieces": 0,
}
"""What a piece without a loss has; other tensors have 0, and pieces that of padding."""

_ALONG = {"factor_ids": (1,), "syntax": (2, 3), "syntax_settings": ()}
"""Axes along the pieces; in other tensors this is axis 1."""


def rounded_up(batch: dict[str, Tensor], pad_id: int) -> dict[str, Tensor]:
    """The batch with more padding, and with its first row again as often as rows are missing, without a loss.

    The sum of the losses, the gradients and the answers that count stay the same but for rounding.
    """
    n_rows, pieces = len(batch["labels"]), batch["input_ids"]
    batch = {"attention_mask": torch.ones_like(pieces), **batch}
    rounded = {}
    for name, tensor in batch.items():
        blank = pad_id if name == "input_ids" else _NOTHING.get(name, 0)
        axes = _ALONG.get(name, (1,))
        shape = [
            -(-size // _STEP) * _STEP if axis in (0, *axes) else size
            for axis, size in enumerate(tensor.shape)
        ]
        to = rounded[name] = tensor.new_full(shape, blank)
        to[tuple(map(slice, tensor.shape))] = tensor
        if name not in _NOTHING:
            to[n_rows:] = to[:1]
    return rounded
