"""Reads rows of files (TSV, CSV, JSON lines, Parquet) and of data sets of the library `datasets`.

The file name gives the format, compressed or not; another format is one more entry of `_FORMATS` and
`_READERS`. Rows that cannot be used are collected in one pass. TSV is read as GLUE's files are written: a tab
ends a cell, and a quote is an ordinary character unless `csv_quoted`. The readers of text are our own because
those of `datasets` fill short rows without a word and know no line numbers.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

from syntaxformer.base.downloads import say_download
from syntaxformer.base.errors import BadRowsError, ConfigError, DataError, one_line
from syntaxformer.base.files import HELD_OUT, max_line_bytes, read_lines, without_packing
from syntaxformer.runs.loading import checkpoint_errors

_FORMATS = {".jsonl": "json", ".json": "json", ".ndjson": "json", ".csv": "csv", ".parquet": "parquet"}
_UNREAD = (".arrow", ".xlsx", ".xls", ".ods", ".pkl")
_WHOLE_QUOTED = re.compile(r'"(?:[^"]|"")*"')
_BROKEN = "cells"  # the column of a broken row that holds it as it stands in the file
_FORMULA = re.compile(r"'*[=+\-@\t\r]")


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a file or data set; in JSON and data sets, the values of cells keep their types."""

    number: int  # from 1, of its (last) line in the file
    cells: dict[str, Any]
    problem: str = ""  # if it has more or fewer cells than there are columns, or is no row

    def text(self, column: str | None) -> str:
        """A cell as one line, with single spaces for white space; empty if there is no cell."""
        return as_line(self.cells.get(column) if column is not None else None)

    def label(self, column: str) -> str:
        """A cell that holds one label, as one line.

        Raises:
            ValueError: It holds a list, which is never one class.
        """
        if isinstance(self.cells.get(column), list | dict):
            problem = f"column {column!r}: expected one label or score, got {str(self.cells[column])[:60]}."
            remedy = "Use --task multilabel for lists of labels, vector for lists of numbers."
            raise ValueError(f"{problem} {remedy}")
        return self.text(column)

    def check(self) -> None:
        """Check that the row is whole.

        Raises:
            ValueError: It is broken.
        """
        if self.problem:
            raise ValueError(self.problem)


@dataclass(frozen=True)
class DatasetRows:
    """A split of a data set, which is read like a file; messages call it by the name."""

    rows: Any  # a `datasets.Dataset`
    name: str

    def __str__(self) -> str:
        return self.name


Source = str | Path | DatasetRows
"""Where rows come from."""

_Read = TypeVar("_Read")


@dataclass
class BadRows:
    """The rows of a source that cannot be used, each with its problem; more than `limit` are refused."""

    source: Source
    limit: int = 0
    rows: list[tuple[Row, str]] = field(default_factory=list)

    def whole(self, rows: Iterable[Row], read: Callable[[Row], _Read]) -> Iterator[tuple[Row, _Read]]:
        """The rows with what `read` returns; those of which it raises a `ValueError` are collected."""
        for row in rows:
            try:
                content = read(row)
            except ValueError as error:
                self.rows.append((row, str(error)))
            else:
                yield row, content

    def add(self, line: int, cells: Any, problem: str) -> None:
        """Add what stands on a line of a file that is no table."""
        self.rows.append((Row(line, {_BROKEN: cells}), problem))

    @property
    def error(self) -> BadRowsError:
        """The error that shows the first of the rows."""
        return BadRowsError(self.source, sorted((row.number, problem) for row, problem in self.rows))

    def refuse(self) -> None:
        """Check that there are no more than the limit.

        Raises:
            BadRowsError: There are more.
        """
        if len(self.rows) > self.limit:
            raise self.error


@dataclass(frozen=True)
class Table:
    """A file of rows."""

    columns: list[str]
    rows: list[Row]
    has_header: bool = True


def as_line(cell: Any) -> str:
    """A cell as one line, with single spaces for white space; empty for None and NaN."""
    return "" if cell is None or cell != cell else " ".join(str(cell).split())


def number_of(cell: Any) -> float | None:
    """The number that a cell spells; None for other text."""
    try:
        return float(cell)
    except (TypeError, ValueError, OverflowError):  # the last of whole numbers in JSON
        return None


def for_spreadsheet(cell: str) -> str:
    """The cell with a quote before it if a spreadsheet would run it as a formula; numbers are none."""
    return f"'{cell}" if _FORMULA.match(cell) and number_of(cell) is None else cell


def from_spreadsheet(cell: str) -> str:
    """The cell that `for_spreadsheet` was given."""
    return cell[1:] if cell.startswith("'") and _FORMULA.match(cell) else cell


def table_format(path: Source) -> str:
    """The format: "dataset", or by the file's name "tsv", "csv", "json" or "parquet", compressed or not.

    Raises:
        DataError: It names a format of tables that is not read.
    """
    if isinstance(path, DatasetRows):
        return "dataset"
    suffix = Path(without_packing(path)).suffix.lower()
    if suffix in _UNREAD:
        problem = f"expected TSV, CSV, JSON lines or Parquet, got {suffix}."
        raise DataError(f"{problem} Convert it, as by pandas.", path)
    return _FORMATS.get(suffix, "tsv")


def holds_objects(path: Source) -> bool:
    """Whether a format names the columns in each row, and its cells have types."""
    return table_format(path) in ("json", "parquet", "dataset")


def read_table(
    path: Source,
    name_columns: Callable[[list[str]], Sequence[str] | None] = lambda first: None,
    quoted: bool = False,
    blank_lines: bool = True,
    n_lines: int | None = None,
) -> Table:
    """Read a table; the caller decides what to do with a broken row.

    `name_columns` gets the cells of the first line, but not of objects, and returns names for the columns if
    it is a row, or None if it is a header. A TSV may be `quoted` like CSV. Blank lines between rows are
    skipped, or refused if `blank_lines` is false. Others are read to the end, or only the first `n_lines`.

    Raises:
        DataError: The file cannot be read or is empty, its first line is no row, or a quote is never closed.
    """
    table_kind = "csv" if quoted and table_format(path) == "tsv" else table_format(path)
    lines: list[tuple[int, Any]] = []
    blank = None
    for number, content in _READERS[table_kind](path):
        if content is None:
            blank = blank or number
        elif blank is not None and not blank_lines:
            problem = "expected a row, got a blank line, after which results would be one line too early."
            raise DataError(f"{problem} Remove it.", path, blank)
        else:
            lines.append((number, content))
            if len(lines) == n_lines:
                break
    if holds_objects(path):
        rows = [content if isinstance(content, Row) else Row(number, content) for number, content in lines]
        return Table(next((list(row.cells) for row in rows if not row.problem), []), rows)
    if not lines:
        raise DataError("expected rows, got an empty file.", path)
    if isinstance(lines[0][1], Row):
        raise DataError(lines[0][1].problem, path, lines[0][0])
    first = [cell.strip() for cell in lines[0][1]]
    numbered = name_columns(first)
    has_header, names = numbered is None, list(numbered or first)
    rows = []
    breaks = "a comma without quotes around the cell" if table_format(path) == "csv" else "a tab"
    for number, cells in lines[has_header:]:
        if isinstance(cells, Row):
            rows.append(cells)
        elif len(cells) == len(names):
            rows.append(Row(number, dict(zip(names, cells, strict=True))))
        else:
            problem = f"row: expected {len(names)} cells, got {len(cells)}."
            problem += f" Look for {breaks} or an unclosed quote inside a text."
            rows.append(Row(number, {_BROKEN: cells}, problem))
    return Table(names, rows, has_header)


def _tsv_lines(path: Any) -> Iterator[tuple[int, list[str] | None]]:
    for number, line in enumerate(read_lines(path), 1):
        yield number, line.split("\t") if line.strip(" ") else None


def _csv_lines(path: Any) -> Iterator[tuple[int, Any]]:
    """Cells of each row, with the number of its last line: a quoted cell may span several lines."""
    csv.field_size_limit(max_line_bytes())
    lines = (f"{line}\n" for line in read_lines(path))
    reader = csv.reader(lines, strict=True, delimiter="," if table_format(path) == "csv" else "\t")
    is_held_out = without_packing(path) == HELD_OUT  # which a run of ours wrote
    while True:
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            problem = f"expected CSV with every quote closed, got: {error}."
            if "end of data" in str(error):  # the rest of the file is one cell
                raise DataError(problem, path, reader.line_num) from error
            yield reader.line_num, Row(reader.line_num, {}, problem)
        else:
            yield reader.line_num, ([*map(from_spreadsheet, cells)] if is_held_out else cells) or None


def _json_lines(path: Any) -> Iterator[tuple[int, Any]]:
    for number, line in enumerate(read_lines(path), 1):
        if not line.strip():
            yield number, None
            continue
        try:
            cells = json.loads(line)
            remedy = " Write an object on each line, not one list." if isinstance(cells, list) else ""
            problem = "" if isinstance(cells, dict) else f"{type(cells).__name__}.{remedy}"
        except (ValueError, RecursionError) as error:
            cells, problem = {}, f"{error}."
        if problem:
            problem = f"expected a JSON object on each line, got: {problem}"
            yield number, Row(number, {_BROKEN: line}, problem)
        else:
            yield number, cells


def _parquet_lines(path: Any) -> Iterator[tuple[int, dict[str, Any]]]:
    from pyarrow import ArrowException
    from pyarrow.parquet import ParquetFile

    try:
        file = ParquetFile(path)
        described = json.loads((file.schema_arrow.metadata or {}).get(b"huggingface", b"{}"))
        features = described.get("info", {}).get("features", {})
        rows = chain.from_iterable(batch.to_pylist() for batch in file.iter_batches())
        yield from _named_classes(rows, features)
    except (ArrowException, OSError, ValueError, AttributeError, RecursionError) as error:
        raise DataError(f"expected a Parquet file, got: {one_line(error)}", path) from error


def _named_classes(rows: Iterable[Any], features: Any) -> Iterator[tuple[int, dict[str, Any]]]:
    """Rows with the names of classes for their numbers, as `features` of `datasets` have them; -1 is None."""
    names: dict[str, list[Any]] = {}
    for column, feature in features.items():
        while isinstance(feature, Mapping) and "names" not in feature:  # in a list
            feature = feature.get("feature")
        if isinstance(feature, Mapping) and isinstance(feature["names"], list):
            names[column] = feature["names"]

    def named(cell: Any, classes: list[Any]) -> Any:
        if isinstance(cell, list):
            return [named(number, classes) for number in cell]
        is_class = isinstance(cell, int) and 0 <= cell < len(classes)
        return classes[cell] if is_class else None if cell == -1 else cell

    for number, cells in enumerate(rows, 1):
        yield number, {**cells, **{column: named(cells.get(column), names[column]) for column in names}}


_READERS: dict[str, Callable[[Any], Iterator[tuple[int, Any]]]] = {
    "tsv": _tsv_lines,
    "csv": _csv_lines,
    "json": _json_lines,
    "parquet": _parquet_lines,
    "dataset": lambda source: _named_classes(source.rows, source.rows.features.to_dict()),
}
"""Format → its lines with their numbers: cells or an object, a broken `Row`, None for a blank line."""


def csv_quoted(path: Source, quotes: str = "auto") -> tuple[bool, str]:
    """Whether the cells of a TSV are quoted like CSV, and why; no reason if no cell begins with a quote.

    They are quoted if `quotes` is "csv", or if only this reading gives all rows the same number of cells.
    They are also quoted if every cell that begins with a quote ends with one and doubles all others, and
    either some cell has doubled quotes or all cells of line 1 are quoted.
    """
    if table_format(path) != "tsv" or quotes != "auto":
        return quotes == "csv", ""
    rows = [cells for _, cells in _READERS["tsv"](path) if cells]
    quoted = [cell for cells in rows for cell in cells if cell.startswith('"')]
    if not quoted:
        return False, ""
    if len(set(map(len, rows))) > 1:
        try:
            cells_of_rows = [cells for _, cells in _READERS["csv"](path) if cells]
            fits = not any(isinstance(c, Row) for c in cells_of_rows) and len({*map(len, cells_of_rows)}) == 1
        except DataError:
            fits = False
        return fits, ("only so have" if fits else "in neither way have") + " all rows as many cells"
    if not all(map(_WHOLE_QUOTED.fullmatch, quoted)):
        return False, "some do not enclose a cell"
    if any('""' in cell[1:-1] for cell in quoted):
        return True, "they enclose cells, and quotes inside cells are doubled"
    if all(map(_WHOLE_QUOTED.fullmatch, rows[0])):
        return True, "they enclose cells, also in line 1"
    return False, "nothing tells for sure: they enclose cells, but none is doubled"


def pick_column(columns: Sequence[str], names: Sequence[str], what: str, path: Source | None) -> str:
    """The first of some names that is a column.

    Raises:
        DataError: None of the names is a column.
    """
    for name in names:
        if name in columns:
            return name
    expected, got = " or ".join(map(repr, names)), ", ".join(map(repr, columns))
    raise DataError(f"{what}: expected a column {expected}, got {got}.", path)


HUB = "hub:"  # before a name on the Hub: "hub:nyu-mll/glue:cola"
_SPLITS = {  # our name for a split → its names in data sets
    "train": ("train",),
    "dev": ("validation", "validation_matched", "dev", "trial"),
    "dev_mismatched": ("validation_mismatched",),
    "test": ("test", "test_matched"),
    "test_mismatched": ("test_mismatched",),
}


@dataclass(frozen=True)
class TableColumns:
    """Columns of an own table by name, or by number from 1 in a table without a header."""

    text: str | None = None
    label: str | None = None  # of the label or score, or several with commas
    pair: str | None = None  # of the second text of a pair
    quotes: str = "auto"  # as `data.quotes`

    @property
    def named(self) -> list[str]:
        """The columns that the user named."""
        return [name for name in (self.text, self.pair, *(self.label or "").split(",")) if name]

    @property
    def texts(self) -> tuple[str, ...]:
        """The text columns."""
        return tuple(name for name in (self.text, self.pair) if name is not None)


def open_dataset(source: str | Path) -> Any:
    """Open a folder of `save_to_disk`, or "hub:NAME" or "hub:NAME:CONFIGURATION".

    Raises:
        ConfigError: There is no such data set, or the Hub cannot be reached.
    """
    from datasets import load_dataset, load_from_disk

    text = str(source)
    with checkpoint_errors(text, "data: expected a data set"):
        if text.startswith(HUB):
            name, _, configuration = text.removeprefix(HUB).partition(":")
            say_download(name, ".*", "dataset")
            return load_dataset(name, configuration or None)
        return load_from_disk(text)


def split_of(dataset: Any, split: str, source: str) -> Any:
    """A split by our name for it; one `Dataset` is itself.

    Raises:
        ConfigError: There is no such split.
    """
    if hasattr(dataset, "column_names") and not isinstance(dataset.column_names, dict):
        return dataset
    names = dict.fromkeys((split, *_SPLITS.get(split, ())))
    for name in names:
        if name in dataset:
            return dataset[name]
    got = ", ".join(map(str, dataset))
    raise ConfigError(f"split: expected {' or '.join(names)} in {source}, got {got}.")


def is_dataset(source: object) -> bool:
    """Whether a path is a folder of `save_to_disk` or a name on the Hub."""
    marks = ("dataset_dict.json", "state.json")
    return str(source).startswith(HUB) or any((Path(str(source)) / mark).is_file() for mark in marks)


def find_rows(source: str | Path, split: str) -> Source:
    """A file as it is, and of a data set the split.

    Raises:
        ConfigError: There is no such data set or split.
    """
    if not is_dataset(source):
        return source
    return DatasetRows(split_of(open_dataset(source), split, str(source)), f"{source}, {split}")


def find_dev(folder: Path | None) -> Source | None:
    """The development split of a data set; None if it has none, or is one `Dataset` or no data set."""
    if folder is None or not is_dataset(folder) or (folder / "state.json").is_file():
        return None
    has_dev = {"dev", *_SPLITS["dev"]} & {*(dataset := open_dataset(folder))}
    return DatasetRows(split_of(dataset, "dev", str(folder)), f"{folder}, dev") if has_dev else None


def first_cells(path: Source) -> set[str]:
    """The cells of line 1, as far as they can be told before it is known how the file is read."""
    return {cell.strip(' "') for cell in re.split("[\t,]", next(iter(read_lines(str(path))), ""))}


def as_json(cell: Any) -> Any:
    """A list or an object that JSON writes in a cell of text; other cells are themselves."""
    try:
        return json.loads(cell) if isinstance(cell, str) and cell[:1] in "[{" else cell
    except (ValueError, RecursionError):
        return cell
