"""Reads rows of tables (TSV, CSV, JSON lines) and of data sets as labelled examples, and checks them.

The file name gives the format, compressed (.gz) or not. TSV is read as GLUE's files are written: a tab ends a
cell, and a quote is an ordinary character unless `csv_quoted`. The reader is our own because those of
`datasets` silently fill short rows and do not know line numbers.
"""

from __future__ import annotations

import csv
import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from syntaxformer.base.errors import CheckpointError, DataError
from syntaxformer.base.files import HELD_OUT, TRAINED_ON, max_line_bytes, read_lines
from syntaxformer.encoders.labels import from_spreadsheet
from syntaxformer.encoders.task_types import TaskType
from syntaxformer.runs.config import FRACTION_SEED

_FORMATS = {".jsonl": "json", ".json": "json", ".ndjson": "json", ".csv": "csv"}
_UNREAD = (".parquet", ".arrow", ".xlsx", ".xls", ".ods", ".pkl")
_WHOLE_QUOTED = re.compile(r'"(?:[^"]|"")*"')

_Content = TypeVar("_Content", str, list[str])


@dataclass(frozen=True, slots=True)
class Row:
    """One row.

    Args:
        number: 1-based number of its (last) line in the file.
        cells: Column → cell; a string, except in JSON, whose values keep their types.
        problem: What is wrong with the row, if it has more or fewer cells than there are columns.
    """

    number: int
    cells: dict[str, Any]
    problem: str = ""

    def text(self, column: str | None) -> str:
        """A cell as one line, with single spaces for white space; empty if there is no cell."""
        cell = self.cells.get(column) if column is not None else None
        return "" if cell is None or cell != cell else " ".join(str(cell).split())  # NaN is no text

    def label(self, column: str, source: str | Path) -> str:
        """A cell that holds one label, as one line.

        Raises:
            DataError: It holds a list, which is never one class.
        """
        if isinstance(self.cells.get(column), list | dict):
            problem = f"column {column!r}: expected one label or score, got {str(self.cells[column])[:60]}."
            remedy = "Use --task multilabel for lists of labels, vector for lists of numbers."
            raise DataError(f"{problem} {remedy}", source, self.number)
        return self.text(column)

    def whole(self, source: str | Path) -> Row:
        """The row itself, if it is not broken.

        Raises:
            DataError: It is broken.
        """
        if self.problem:
            breaks = "a comma without quotes around the cell" if table_format(source) == "csv" else "a tab"
            told = f"row: {self.problem}. Look for {breaks} or an unclosed quote inside a text."
            raise DataError(told, source, self.number)
        return self


@dataclass(frozen=True)
class Table:
    """A file of rows."""

    columns: list[str]
    rows: Iterator[Row]
    has_header: bool = True


@dataclass(frozen=True, slots=True)
class TextExample:
    """One text or pair of texts.

    Args:
        label: Class number or score, or what `TaskType.read` of another type gives; None if unknown.
        trees: The bracketed constituency tree of each text, if the corpus has one.
        index: The example's id in the corpus, which is the first column of a submission.
        line: 1-based line in the file; of a question, the number of its paragraph.
        words: The words of the text, with single spaces between them, if the file gives words.
    """

    texts: tuple[str, ...]
    label: Any = None
    trees: tuple[str | None, ...] = ()
    index: str = ""
    line: int = 0
    words: tuple[str, ...] = ()


def in_place(text: str) -> str:
    """The text on one line, each white space as one space, so that every character keeps its place."""
    return re.sub(r"\s", " ", text)


def raw_example(
    texts: Sequence[str], line: int, source: str | None = None, index: str = "", keep_places: bool = False
) -> TextExample:
    """Make an example of raw texts, with single spaces for white space, unless characters keep their places.

    Raises:
        DataError: A text is empty.
    """
    cleaned = tuple(in_place(text) if keep_places else " ".join(text.split()) for text in texts)
    if not all(map(str.strip, cleaned)):
        raise DataError("text: expected one that is not empty, got ''.", source, line)
    return TextExample(cleaned, None, (), index, line)


@dataclass(frozen=True)
class TextSet:
    """The examples of one split."""

    name: str
    source: str
    examples: Sequence[TextExample]
    left_out: dict[str, int] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.examples)

    @property
    def has_trees(self) -> bool:
        """Whether the data has a tree for every text."""
        return bool(self.examples) and all(
            one.trees and all(tree is not None for tree in one.trees) for one in self.examples
        )

    def part(self, n_rows: int | None, share: float) -> TextSet:
        """A random share of the first rows, in order; every smaller share is part of a larger one.

        In `n_rows`, all phrases of one tree count as one; None takes all rows. The share is at most 1.
        """
        lines = sorted({one.line for one in self.examples})[:n_rows]
        n_kept = max(1, round(len(lines) * share))
        order = np.random.default_rng(FRACTION_SEED).permutation(len(lines))[:n_kept]
        kept = {lines[place] for place in order.tolist()}
        return replace(self, examples=[one for one in self.examples if one.line in kept])


def hash_examples(examples: Iterable[TextExample]) -> str:
    """sha256 over texts, trees and labels."""
    digest = hashlib.sha256()
    for one in examples:
        cells = [*one.texts, *(tree or "" for tree in one.trees), repr(one.label)]
        digest.update("\0".join(cells).encode("utf-8", "surrogatepass"))
        digest.update(b"\n")
    return digest.hexdigest()


def fingerprints(examples: Iterable[TextExample]) -> list[str]:
    """A hash of 48 bits of the text or texts of each example, whatever its label."""
    texts = ("\0".join(one.texts).encode("utf-8", "surrogatepass") for one in examples)
    return [hashlib.blake2b(one, digest_size=6).hexdigest() for one in texts]


_MOST_FINGERPRINTS = 2**28
"""Bytes of the largest list of fingerprints that is read, of 20 million texts."""


def n_trained_on(folder: Path, texts: TextSet) -> int:
    """Number of examples whose texts a model was trained on; 0 if its folder has no fingerprints.

    Raises:
        CheckpointError: The list is larger than training writes it.
    """
    path = folder / TRAINED_ON
    if not path.is_file():
        return 0
    if (size := path.stat().st_size) > _MOST_FINGERPRINTS:
        raise CheckpointError(f"{path}: expected at most {_MOST_FINGERPRINTS} bytes, got {size}. Remove it.")
    texts_of = Counter(one.encode() for one in fingerprints(texts.examples))
    with path.open("rb") as lines:
        return sum(texts_of.pop(line.strip(), 0) for line in lines)


def table_format(path: str | Path) -> str:
    """The format that a file's name gives: "tsv", "csv" or "json", compressed (.gz) or not.

    Raises:
        DataError: It names a format of tables that is not read.
    """
    suffix = Path(str(path).removesuffix(".gz")).suffix.lower()
    if suffix in _UNREAD:
        raise DataError(f"expected TSV, CSV or JSON lines, got {suffix}. Convert it, as by pandas.", path)
    return _FORMATS.get(suffix, "tsv")


def read_table(
    path: str | Path,
    name_columns: Callable[[list[str]], Sequence[str] | None] = lambda first: None,
    quoted: bool = False,
    blank_lines: bool = True,
) -> Table:
    """Open a table; the caller decides what to do with a broken row.

    `name_columns` gets the cells of the first line, but not of JSON lines, and returns names for the columns
    if it is a row, or None if it is a header. A TSV may be `quoted` like CSV. Blank lines between rows are
    skipped, or refused if `blank_lines` is false.

    Raises:
        DataError: Now or while rows are read: the file cannot be read or is empty, a line is not a JSON
            object, or a quote is never closed.
    """
    if table_format(path) == "json":
        rows = _json_rows(path, blank_lines)
        head = next(rows, None)
        return Table(list(head.cells) if head else [], chain([head] if head else [], rows))
    lines = _not_blank(_cells(path, quoted), path, blank_lines)
    first = next(lines, None)
    if first is None:
        raise DataError("expected rows, got an empty file.", path)
    cells = [cell.strip() for cell in first[1]]
    given = name_columns(cells)
    if given is None:
        return Table(cells, _rows(cells, lines))
    return Table(list(given), _rows(given, chain([first], lines)), has_header=False)


def csv_quoted(path: str | Path, wanted: str = "auto") -> tuple[bool, str]:
    """Whether the cells of a TSV are quoted like CSV, and why; no reason if no cell begins with a quote.

    They are quoted if "csv" is `wanted`, or if only this reading gives all rows the same number of cells.
    They are also quoted if every cell that begins with a quote ends with one and doubles all others, and
    either some cell has doubled quotes or all cells of line 1 are quoted.
    """
    if table_format(path) != "tsv" or wanted != "auto":
        return wanted == "csv", ""
    rows = [cells for _, cells in _cells(path, False) if cells]
    quoted = [cell for cells in rows for cell in cells if cell.startswith('"')]
    whole = [cell for cell in quoted if _WHOLE_QUOTED.fullmatch(cell)]
    if not quoted:
        return False, ""
    if len(set(map(len, rows))) > 1:
        try:
            fits = len({len(cells) for _, cells in _cells(path, True) if cells}) == 1
        except DataError:
            fits = False
        return fits, ("only so have" if fits else "in neither way have") + " all rows as many cells"
    if len(whole) < len(quoted):
        return False, "some do not enclose a cell"
    if any('""' in cell[1:-1] for cell in whole):
        return True, "they enclose cells, and quotes inside cells are doubled"
    if all(map(_WHOLE_QUOTED.fullmatch, rows[0])):
        return True, "they enclose cells, also in line 1"
    return False, "nothing tells for sure: they enclose cells, but none is doubled"


def pick_column(found: Sequence[str], names: Sequence[str], what: str, path: str | Path | None) -> str:
    """The first of some names that is a column.

    Raises:
        DataError: None of the names is a column.
    """
    for name in names:
        if name in found:
            return name
    wanted = " or ".join(map(repr, names))
    raise DataError(f"{what}: expected a column {wanted}, got {', '.join(map(repr, found))}.", path)


@dataclass(frozen=True, kw_only=True)
class Binding:
    """The columns of a table for the roles that a `Task` names, and how their cells are read.

    Args:
        label: None if there is none, as in a test set.
        index: None counts the examples from 0.
        unlabelled: Cells of the label column that mean "no label", as in test sets.
        fold_case: Ignore the case of labels.
    """

    texts: Sequence[str]
    label: str | None
    task_type: TaskType
    trees: Sequence[str] = ()
    index: str | None = None
    no_label: Sequence[str] = ()
    tolerant: bool = False
    unlabelled: Sequence[str] = ()
    fold_case: bool = False


def examples_from_rows(rows: Iterable[Row], binding: Binding, name: str, source: str | Path) -> TextSet:
    """Make examples from rows; all checks of texts, labels and scores are here.

    Raises:
        DataError: A row is broken, a text is empty, a label is unknown, a score is not a number or out of
            range (with the line), or no row is left.
    """
    examples: list[TextExample] = []
    left_out: Counter[str] = Counter()
    for row in rows:
        if reason := _reason_to_leave_out(row, binding, source):
            left_out[reason] += 1
            continue
        texts = tuple(row.text(column) for column in binding.texts)
        trees = tuple(row.text(column) or None for column in binding.trees)
        index = str(len(examples)) if binding.index is None else row.text(binding.index)
        examples.append(TextExample(texts, _label(row, binding, source), trees, index, row.number))
    if not examples:
        counts = "".join(f"; left out: {count} ({reason})" for reason, count in left_out.items())
        raise DataError(f"expected at least one example, got none{counts}.", source)
    return TextSet(name, str(source), examples, dict(left_out))


def _reason_to_leave_out(row: Row, binding: Binding, source: str | Path) -> str | None:
    """Why a row is left out; None if it is kept."""
    if row.problem and binding.tolerant:
        return "broken row"
    row.whole(source)
    if binding.label is not None and row.text(binding.label) in binding.no_label:
        return "no gold label"
    for column in binding.texts:
        if column not in row.cells:
            raise DataError(f"column {column!r}: expected it in every row, got none.", source, row.number)
        if isinstance(row.cells[column], list | dict | bool):  # of JSON
            problem = f"column {column!r}: expected a text, got {str(row.cells[column])[:60]}."
            raise DataError(
                f"{problem} Join words with spaces; texts have a column each.", source, row.number
            )
        if not row.text(column):
            if binding.tolerant:
                return "empty text"
            raise DataError(
                f"column {column!r}: expected a text, got an empty one. Remove the row.", source, row.number
            )
    return None


def _label(row: Row, binding: Binding, source: str | Path) -> Any:
    if binding.label is None:
        return None
    takes_lists = binding.task_type.takes_lists
    cell = row.cells.get(binding.label) if takes_lists else row.label(binding.label, source)
    if binding.unlabelled and cell in (None, *binding.unlabelled):
        return None
    try:
        return binding.task_type.read(cell, binding.fold_case)
    except ValueError as error:
        raise DataError(str(error), source, row.number) from error


def _not_blank(
    rows: Iterable[tuple[int, _Content]], path: str | Path, blank_lines: bool
) -> Iterator[tuple[int, _Content]]:
    """Numbered rows that are not blank; see `read_table`."""
    blank = None
    for number, content in rows:
        if not content:
            blank = blank or number
        elif blank is not None and not blank_lines:
            raise DataError(
                "expected a row, got a blank line, after which results would be one line too early. "
                "Remove it.",
                path,
                blank,
            )
        else:
            yield number, content


def _cells(path: str | Path, quoted: bool) -> Iterator[tuple[int, list[str]]]:
    """Cells of each row, with the number of its last line: a quoted cell may span several lines."""
    is_csv = table_format(path) == "csv"
    if not is_csv and not quoted:
        for number, line in enumerate(read_lines(path), 1):
            yield number, line.split("\t") if line.strip(" ") else []
        return
    csv.field_size_limit(max_line_bytes())
    lines = (f"{line}\n" for line in read_lines(path))
    reader = csv.reader(lines, strict=True, delimiter="," if is_csv else "\t")
    try:
        for cells in reader:
            # Which a run of ours wrote.
            is_held_out = Path(path).name.removesuffix(".gz") == HELD_OUT
            yield reader.line_num, [*map(from_spreadsheet, cells)] if is_held_out else cells
    except csv.Error as error:
        raise DataError(
            f"expected CSV with every quote closed, got: {error}.", path, reader.line_num
        ) from error


def _rows(names: Sequence[str], lines: Iterator[tuple[int, list[str]]]) -> Iterator[Row]:
    for number, cells in lines:
        if len(cells) == len(names):
            yield Row(number, dict(zip(names, cells, strict=True)))
        else:
            yield Row(number, {}, f"expected {len(names)} cells, got {len(cells)}")


def _json_rows(path: str | Path, blank_lines: bool) -> Iterator[Row]:
    lines = ((number, line.strip()) for number, line in enumerate(read_lines(path), 1))
    for number, line in _not_blank(lines, path, blank_lines):
        try:
            cells = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise DataError(f"expected a JSON object on each line, got: {error}.", path, number) from error
        if not isinstance(cells, dict):
            remedy = " Write an object on each line, not one list." if isinstance(cells, list) else ""
            problem = f"expected a JSON object on each line, got {type(cells).__name__}.{remedy}"
            raise DataError(problem, path, number)
        yield Row(number, cells)
