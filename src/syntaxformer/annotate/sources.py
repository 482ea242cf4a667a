"""Lines to annotate: text files, plain or .gz, or Parquet with a column `text`."""

# pyright: basic
# (pyarrow has no complete types.)

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

from syntaxformer.base.errors import DataError, SyntaxformerError
from syntaxformer.base.files import count_lines, open_bytes, read_lines

__all__ = ["SourceLines"]

TEXT_COLUMN = "text"
_ROWS_AT_A_TIME = 4096
_LINE_ENDS = re.compile(r"\r?\n")


class SourceLines:
    """The lines of a source, to be walked through as often as needed.

    Args:
        source: A path; `.gz` is unpacked, `.parquet` gives its column `text`, a line for each row: line ends
            in a row become spaces.

    Raises:
        DataError: While reading: it cannot be read, a line is no UTF-8 or holds a NUL, or there is no such
            column.
    """

    def __init__(self, source: str) -> None:
        self.source = source
        self._length: int | None = None

    def __iter__(self) -> Iterator[str]:
        return self._from(0)

    def part(self, first: int, n_lines: int) -> list[str]:
        """Return some lines; what comes before them is read, but not decoded.

        Args:
            first: The first of them, from 0.
            n_lines: How many; fewer where the source ends before.
        """
        return list(islice(self._from(first), n_lines))

    def _from(self, first: int) -> Iterator[str]:
        if self.source.endswith(".parquet"):
            return islice(self._column(), first, None)
        return read_lines(self.source, first)

    def __len__(self) -> int:
        if self._length is None:
            is_table = self.source.endswith(".parquet")
            self._length = sum(1 for _ in self) if is_table else count_lines(self.source)
        return self._length

    def _column(self) -> Iterator[str]:
        import pyarrow.parquet as pq

        try:
            with open_bytes(self.source) as file:
                table = pq.ParquetFile(file)
                if TEXT_COLUMN not in table.schema_arrow.names:
                    names = ", ".join(table.schema_arrow.names)
                    raise DataError(f"expected a column {TEXT_COLUMN!r}, got {names[:100]}.", self.source)
                batches = table.iter_batches(_ROWS_AT_A_TIME, columns=[TEXT_COLUMN])
                yield from self._checked(value for batch in batches for value in batch.column(0).to_pylist())
        except SyntaxformerError:
            raise
        except Exception as error:
            reason = " ".join(str(error).split())[:160]
            raise DataError(f"expected a Parquet file, got: {reason}.", self.source) from error

    def _checked(self, values: Iterable[Any]) -> Iterator[str]:
        for row, value in enumerate(values, 1):
            if not isinstance(value, str) or "\0" in value:
                found = "a NUL" if isinstance(value, str) else repr(value)
                raise DataError(
                    f"column {TEXT_COLUMN}: expected text in each row, got {found} in row {row}.", self.source
                )
            yield _LINE_ENDS.sub(" ", value)
