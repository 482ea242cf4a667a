"""`Ragged`: rows of different lengths as one flat array and where each row begins.

The form of everything that sentences have different numbers of: pieces, words, governors. Columns that share
their rows share the splits: `Ragged(other_values, ragged.splits)`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

__all__ = ["Ragged", "splits_of"]


def splits_of(lengths: ArrayLike) -> NDArray[np.int64]:
    """Where each row begins, and the end of the last, `[rows + 1]`, of the lengths of rows."""
    return np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])


@dataclass(frozen=True, slots=True, eq=False)
class Ragged:
    """Rows of different lengths.

    Args:
        values: All rows one after the other, `[items, ...]`.
        splits: Row `row` has the items `splits[row]:splits[row + 1]`, `[rows + 1]`.
    """

    values: NDArray[Any]
    splits: NDArray[np.int64]

    @classmethod
    def of(cls, rows: Sequence[ArrayLike], dtype: DTypeLike = np.int64) -> Ragged:
        """Rows of a list."""
        arrays = [np.asarray(row, dtype) for row in rows]
        return cls(
            np.concatenate(arrays) if arrays else np.zeros(0, dtype), splits_of(list(map(len, arrays)))
        )

    @classmethod
    def join(cls, parts: Sequence[Ragged]) -> Ragged:
        """The rows of several, one after the other.

        Args:
            parts: One at least.
        """
        lengths = np.concatenate([part.lengths for part in parts])
        return cls(np.concatenate([part.values for part in parts]), splits_of(lengths))

    def __len__(self) -> int:
        return len(self.splits) - 1

    def __getitem__(self, row: int) -> NDArray[Any]:
        """The values of one row."""
        return self.values[self.splits[row] : self.splits[row + 1]]

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Items of each row, `[rows]`."""
        return np.diff(self.splits)

    @property
    def row_of_item(self) -> NDArray[np.int64]:
        """Row that each item belongs to, `[items]`."""
        return np.repeat(np.arange(len(self), dtype=np.int64), self.lengths)

    def places(self, rows: ArrayLike) -> NDArray[np.int64]:
        """Where all items of some rows stand among the values, row after row."""
        chosen = np.asarray(rows, np.int64)
        lengths = self.lengths[chosen]
        starts = splits_of(lengths)
        places: NDArray[np.int64] = np.arange(starts[-1], dtype=np.int64)
        return places + np.repeat(self.splits[chosen] - starts[:-1], lengths)

    def take(self, rows: ArrayLike) -> Ragged:
        """Some rows, in the order given."""
        lengths = self.lengths[np.asarray(rows, np.int64)]
        return Ragged(self.values[self.places(rows)], splits_of(lengths))

    def padded(
        self,
        fill: int,
        rows: ArrayLike | None = None,
        width: int | None = None,
        dtype: DTypeLike = np.int64,
    ) -> NDArray[Any]:
        """All rows, or some, side by side.

        Args:
            fill: What stands behind the end of a row.
            rows: Those wanted; None for all, in order.
            width: Of the result; by default the longest row's.
            dtype: Of the result.

        Returns:
            `[rows, width, ...]`.
        """
        lengths = self.lengths if rows is None else self.lengths[np.asarray(rows, np.int64)]
        widest = int(lengths.max(initial=0)) if width is None else width
        filled = np.full((len(lengths), widest, *self.values.shape[1:]), fill, dtype)
        inside = np.arange(widest) < lengths[:, None]
        filled[inside] = self.values if rows is None else self.values[self.places(rows)]
        return filled
