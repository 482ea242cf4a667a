"""Rows of TSV, CSV and JSON-lines files as mappings from column to cell, plain or gzip.

The format is told by the name. TSV is read as the GLUE files are written: a tab ends a cell, and a quote is a
character like any other, if not `csv_quoted`. What the columns mean is the task's business.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

from syntaxformer.base.errors import DataError
from syntaxformer.base.files import read_lines

__all__ = ["BrokenRow", "Row", "csv_quoted", "first_cells", "pick_column", "read_rows", "table_format"]

_FORMATS = {".jsonl": "json", ".json": "json", ".ndjson": "json", ".csv": "csv"}
_LONGEST_CELL = 2**27
_WHOLE_QUOTED = re.compile(r'"(?:[^"]|"")*"')

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


def csv_quoted(path: str | Path, wanted: str = "auto") -> tuple[bool, str]:
    """Whether the cells of a TSV are quoted as in CSV, and why; no reason where no cell begins with a quote.

    They are if every cell that begins with a quote ends with one and has its others doubled, and some has
    others or all of line 1 is quoted; or if only so all rows have as many cells; or if "csv" is wanted.
    """
    if table_format(path) != "tsv" or wanted != "auto":
        return wanted == "csv", ""
    rows = [cells for _, cells in _tsv_cells(path) if cells]
    quoted = [cell for cells in rows for cell in cells if cell.startswith('"')]
    whole = [cell for cell in quoted if _WHOLE_QUOTED.fullmatch(cell)]
    if not quoted:
        return False, ""
    if len(set(map(len, rows))) > 1:
        fits = _fits_csv(path)
        return fits, ("only so have" if fits else "in neither way have") + " all rows as many cells"
    if len(whole) < len(quoted):
        return False, "some do not enclose a cell"
    if any('""' in cell[1:-1] for cell in whole):
        return True, "they enclose cells, and those inside are doubled"
    if all(map(_WHOLE_QUOTED.fullmatch, rows[0])):
        return True, "they enclose cells, those of line 1 too"
    return False, "nothing tells, as they enclose cells but none is doubled"


def _fits_csv(path: str | Path) -> bool:
    try:
        return len({len(cells) for _, cells in _csv_cells(path, "\t") if cells}) == 1
    except DataError:
        return False


def read_rows(
    path: str | Path, columns: Sequence[str] | None = None, blank_lines: bool = True, quoted: bool = False
) -> Iterator[Row | BrokenRow]:
    """Yield the rows of a file; what to do with a broken one is for the caller to say.

    Args:
        path: The file.
        columns: Names of the columns where the file has no header line; plays no part in JSON lines.
        blank_lines: Whether blank lines between rows are passed over; else they are refused.
        quoted: Whether a TSV is quoted as in CSV.

    Raises:
        DataError: The file cannot be read, is empty, a line is not a JSON object, or a quote is never closed.
    """
    kind = table_format(path)
    if kind == "json":
        return _json_rows(path, blank_lines)
    return _table_rows(path, columns, _not_blank(_cells(path, quoted), path, blank_lines))


def first_cells(path: str | Path, quoted: bool = False) -> list[str]:
    """The cells of the first line of a TSV or CSV file, header or not; `quoted` as in `read_rows`.

    Raises:
        DataError: The file cannot be read or is empty.
    """
    for _, cells in _not_blank(_cells(path, quoted), path):
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


def _cells(path: str | Path, quoted: bool) -> Iterator[tuple[int, list[str]]]:
    if table_format(path) == "csv":
        return _csv_cells(path)
    return _csv_cells(path, "\t") if quoted else _tsv_cells(path)


def _tsv_cells(path: str | Path) -> Iterator[tuple[int, list[str]]]:
    for number, line in enumerate(read_lines(path), 1):
        yield number, line.split("\t") if line.strip(" ") else []


def _csv_cells(path: str | Path, delimiter: str = ",") -> Iterator[tuple[int, list[str]]]:
    csv.field_size_limit(_LONGEST_CELL)
    reader = csv.reader((f"{line}\n" for line in read_lines(path)), strict=True, delimiter=delimiter)
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
