"""Lines of text on disk as a sequence of strings: UTF-8 end to end, and the place of each line."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import overload

import numpy as np
from numpy.typing import NDArray

from syntaxformer.translation.stored_arrays import GrowingArray, map_array

__all__ = ["StoredLines"]

CHUNK = 10_000
"""Lines that are in memory at once."""


class StoredLines(Sequence[str]):
    """Lines that `write` put on the disk.

    Args:
        folder: Where they are.
        side: "src" or "tgt".
        rows: Only these lines, in that order; None for all.
    """

    def __init__(self, folder: Path, side: str, rows: NDArray[np.int64] | None = None) -> None:
        self.folder, self.side, self.rows = folder, side, rows
        self._ends = map_array(folder / f"{side}.ends.npy")

    @classmethod
    def write(cls, folder: Path, sides: Sequence[str], lines: Iterator[tuple[str, ...]]) -> int:
        """Store lines of several sides, one tuple a row; returns how many rows there were."""
        n_rows = 0
        with ExitStack() as stack:
            files = [stack.enter_context((folder / f"{side}.txt").open("wb")) for side in sides]
            places = [folder / f"{side}.ends.npy" for side in sides]
            ends = [stack.enter_context(GrowingArray(path, np.int64)) for path in places]
            while chunk := list(islice(lines, CHUNK)):
                n_rows += len(chunk)
                for file, end, texts in zip(files, ends, zip(*chunk, strict=True), strict=True):
                    raw = [f"{text}\n".encode() for text in texts]
                    end.append(file.tell() + np.cumsum([len(one) for one in raw]))
                    file.write(b"".join(raw))
        return n_rows

    def take(self, rows: Sequence[int]) -> StoredLines:
        """Some of the lines, in that order."""
        wanted = np.asarray(rows, np.int64)
        return StoredLines(self.folder, self.side, wanted if self.rows is None else self.rows[wanted])

    def __len__(self) -> int:
        return len(self._ends if self.rows is None else self.rows)

    def __iter__(self) -> Iterator[str]:
        for start in range(0, len(self), CHUNK):
            yield from self[start : start + CHUNK]

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            start, stop, step = index.indices(len(self))
            if self.rows is None and step == 1:
                return self._between(start, stop)
            return [self[row] for row in range(start, stop, step)]
        row = index + len(self) if index < 0 else index
        if not 0 <= row < len(self):
            raise IndexError(f"line: expected 0 to {len(self) - 1}, got {index}.")
        place = row if self.rows is None else int(self.rows[row])
        return self._between(place, place + 1)[0]

    def _between(self, start: int, stop: int) -> list[str]:
        if stop <= start:
            return []
        first = int(self._ends[start - 1]) if start else 0
        n_bytes = int(self._ends[stop - 1]) - first
        # Read and not mapped: pages of a map count as the process's own memory for as long as they are there.
        with (self.folder / f"{self.side}.txt").open("rb", buffering=0) as file:
            raw = os.pread(file.fileno(), n_bytes, first)
        return raw.decode()[:-1].split("\n")
