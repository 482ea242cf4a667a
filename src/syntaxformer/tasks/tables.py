"""Rows of TSV, CSV and JSON-lines files as mappings from column to cell, plain or gzip.

The format is told by the name. TSV is read as the GLUE files are written: a tab ends a cell, and a quote is a
character like any other. What the columns mean is the task's business.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

from syntaxformer.errors import DataError
from syntaxformer.textfile import read_lines

__all__ = ["BrokenRow", "Row", "first_cells", "pick_column", "read_rows", "table_format"]

_FORMATS = {".jsonl": "json", ".json": "json", ".ndjson": "json", ".csv": "csv"}
_LONGEST_CELL = 2**27

_Content = TypeVar("_Content", str, list[str])


@dataclass(frozen=True, slots=True)
class Row:
    """One row.

    Args:
        number: 1-based number of its (last) line in the file.
        cells: Column → cell; strings, but for JSON, whose values stay what they are.
    """

    number: int
    cells: dict[str, Any]


@dataclass(frozen=True, slots=True)
class BrokenRow:
    """A row with more or fewer cells than there are columns.

    Args:
        number: 1-based line number.
        problem: What is wrong with it.
    """

    number: int
    problem: str

    def error(self, source: str | Path) -> DataError:
        """What to raise where such rows are refused."""
        return DataError(
            f"row: {self.problem}. A tab or an unclosed quote inside a text does this.", source, self.number
        )


def table_format(path: str | Path) -> str:
    """The format that a file's name tells: "tsv", "csv" or "json"; packed (.gz) or not."""
    name = Path(str(path).removesuffix(".gz"))
    return _FORMATS.get(name.suffix.lower(), "tsv")


def read_rows(
    path: str | Path, columns: Sequence[str] | None = None, blank_lines: bool = True
) -> Iterator[Row | BrokenRow]:
    """Yield the rows of a file; what to do with a broken one is for the caller to say.

    Args:
        path: The file.
        columns: Names of the columns where the file has no header line; plays no part in JSON lines.
        blank_lines: Whether blank lines between rows are passed over; else they are refused.

    Raises:
        DataError: The file cannot be read, is empty, a line is not a JSON object, or a quote is never closed.
    """
    kind = table_format(path)
    if kind == "json":
        return _json_rows(path, blank_lines)
    cells = _csv_cells(path) if kind == "csv" else _tsv_cells(path)
    return _table_rows(path, columns, _not_blank(cells, path, blank_lines))


def first_cells(path: str | Path) -> list[str]:
    """The cells of the first line of a TSV or CSV file, header or not.

    Raises:
        DataError: The file cannot be read or is empty.
    """
    rows = _csv_cells(path) if table_format(path) == "csv" else _tsv_cells(path)
    for _, cells in _not_blank(rows, path):
        return [cell.strip() for cell in cells]
    raise DataError("expected rows, got an empty file.", path)


def pick_column(found: Iterable[str], names: Sequence[str], what: str, path: str | Path | None) -> str:
    """The first of some names that is a column.

    Args:
        found: Columns of a table.
        names: Names that the column may have.
        what: What it holds, for the message.
        path: The table's file.

    Raises:
        DataError: None of them is.
    """
    found = list(found)
    for name in names:
        if name in found:
            return name
    wanted = " or ".join(map(repr, names))
    raise DataError(f"{what}: expected a column {wanted}, got {', '.join(map(repr, found))}.", path)


def _not_blank(
    rows: Iterable[tuple[int, _Content]], path: str | Path, blank_lines: bool = True
) -> Iterator[tuple[int, _Content]]:
    """Numbered rows that hold something; see `read_rows`."""
    blank = None
    for number, content in rows:
        if not content:
            blank = blank or number
        elif blank is not None and not blank_lines:
            raise DataError(
                "expected a row, got a blank line: results of rows after it would stand a line too early. "
                "Remove it.",
                path,
                blank,
            )
        else:
            yield number, content


def _tsv_cells(path: str | Path) -> Iterator[tuple[int, list[str]]]:
    for number, line in enumerate(read_lines(path), 1):
        yield number, line.split("\t") if line.strip(" ") else []


def _csv_cells(path: str | Path) -> Iterator[tuple[int, list[str]]]:
    csv.field_size_limit(_LONGEST_CELL)
    reader = csv.reader((f"{line}\n" for line in read_lines(path)), strict=True)
    try:
        for cells in reader:
            yield reader.line_num, cells
    except csv.Error as error:
        raise DataError(
            f"expected CSV with every quote closed, got: {error}.", path, reader.line_num
        ) from error


def _table_rows(
    path: str | Path, columns: Sequence[str] | None, rows: Iterator[tuple[int, list[str]]]
) -> Iterator[Row | BrokenRow]:
    first = next(rows, None)
    if first is None:
        raise DataError("expected rows, got an empty file.", path)
    if columns is not None:
        rows = chain([first], rows)
    names = [name.strip() for name in columns or first[1]]
    for number, cells in rows:
        if len(cells) == len(names):
            yield Row(number, dict(zip(names, cells, strict=True)))
        else:
            yield BrokenRow(number, f"expected {len(names)} cells, got {len(cells)}")


def _json_rows(path: str | Path, blank_lines: bool) -> Iterator[Row]:
    lines = ((number, line.strip()) for number, line in enumerate(read_lines(path), 1))
    for number, line in _not_blank(lines, path, blank_lines):
        try:
            cells = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise DataError(f"expected a JSON object on each line, got: {error}.", path, number) from error
        if not isinstance(cells, dict):
            raise DataError(f"expected a JSON object on each line, got {type(cells).__name__}.", path, number)
        yield Row(number, cells)
