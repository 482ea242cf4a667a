"""`Ragged`: rows of different lengths as one flat array, and where each row begins.

It holds everything whose number differs between sentences: pieces, words, governors. Columns with the same
rows share the splits: `Ragged(other_values, ragged.splits)`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray


def splits_of(lengths: ArrayLike) -> NDArray[np.int64]:
    """Compute from the lengths of rows where each begins, and the end of the last, `[rows + 1]`."""
    return np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])


def lengths_of(splits: NDArray[np.int64], rows: ArrayLike) -> NDArray[np.int64]:
    """Lengths of some rows, from the splits of all rows."""
    chosen = np.asarray(rows, np.int64)
    return splits[chosen + 1] - splits[chosen]


def places_of(splits: NDArray[np.int64], rows: ArrayLike) -> NDArray[np.int64]:
    """Positions of all items of some rows in a flat array, row after row."""
    lengths = lengths_of(splits, rows)
    starts = splits_of(lengths)
    places: NDArray[np.int64] = np.arange(starts[-1], dtype=np.int64)
    return places + np.repeat(splits[np.asarray(rows, np.int64)] - starts[:-1], lengths)


@dataclass(frozen=True, slots=True, eq=False)
class Ragged:
    """Rows of different lengths."""

    values: NDArray[Any]  # all rows one after the other, [items, ...]
    splits: NDArray[np.int64]  # row `row` has the items splits[row]:splits[row + 1], [rows + 1]

    @classmethod
    def of(cls, rows: Sequence[ArrayLike], dtype: DTypeLike = np.int64) -> Ragged:
        """Make it from a list of rows."""
        arrays = [np.asarray(row, dtype) for row in rows]
        values = np.concatenate(arrays) if arrays else np.zeros(0, dtype)
        return cls(values, splits_of(list(map(len, arrays))))

    def __len__(self) -> int:
        return len(self.splits) - 1

    def __getitem__(self, row: int) -> NDArray[Any]:
        """The values of one row."""
        return self.values[self.splits[row] : self.splits[row + 1]]

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Length of each row, `[rows]`."""
        return np.diff(self.splits)

    def lengths_of(self, rows: ArrayLike) -> NDArray[np.int64]:
        """Lengths of some rows; of a corpus on disk nothing else is read."""
        return lengths_of(self.splits, rows)

    @property
    def row_of_item(self) -> NDArray[np.int64]:
        """Row that each item belongs to, `[items]`."""
        return np.repeat(np.arange(len(self), dtype=np.int64), self.lengths)

    def places(self, rows: ArrayLike) -> NDArray[np.int64]:
        """Positions of all items of some rows among the values, row after row."""
        return places_of(self.splits, rows)

    def take(self, rows: ArrayLike) -> Ragged:
        """Some rows, in the given order."""
        return Ragged(self.values[self.places(rows)], splits_of(self.lengths_of(rows)))

    def padded(self, fill: int, rows: ArrayLike | None = None, width: int | None = None) -> NDArray[Any]:
        """All rows, or some in order, padded to the same width, `[rows, width, ...]`.

        `fill` is put after the end of a row; `width` is by default the length of the longest.
        """
        lengths = self.lengths if rows is None else self.lengths_of(rows)
        widest = int(lengths.max(initial=0)) if width is None else width
        filled = np.full((len(lengths), widest, *self.values.shape[1:]), fill, np.int64)
        inside = np.arange(widest) < lengths[:, None]
        filled[inside] = self.values if rows is None else self.values[self.places(rows)]
        return filled
