"""A user's own table of texts and labels: TSV, CSV or JSON lines, with or without a header line.

Columns are named by the user, known by usual names, or, in a table of two columns without a header, text and
label.
"""

from __future__ import annotations

import csv
import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import TypeVar

import numpy as np

from syntaxformer.base.errors import ConfigError, DataError
from syntaxformer.base.files import read_lines
from syntaxformer.encoders.finetune_config import OWN_TASKS
from syntaxformer.encoders.labelled_rows import Binding, examples_from_rows, one_line, unlabelled_cells
from syntaxformer.encoders.tables import (
    BrokenRow,
    Row,
    csv_quoted,
    first_cells,
    pick_column,
    read_rows,
    table_format,
)
from syntaxformer.encoders.task_table import Task
from syntaxformer.encoders.text_sets import TextSet
from syntaxformer.runs.config import FRACTION_SEED

__all__ = ["OWN_TASKS", "TableColumns", "hold_out", "own_task", "read_own_table"]

TEXT_NAMES = ("text", "sentence", "sentence1", "premise")
PAIR_NAMES = ("text_pair", "sentence2", "hypothesis")
LABEL_NAMES = ("label", "score", "gold_label")
Item = TypeVar("Item")

_log = logging.getLogger("syntaxformer.finetune")

_MOST_SHOWN = 12

HELD_OUT = 0.1
"""Share of the training rows that is held out where there is no development file."""


@dataclass(frozen=True)
class TableColumns:
    """Columns of a table by name; numbers count, from 1, the columns of a table without a header.

    Args:
        text: Column of the text.
        label: Column of the label or score; None where there need not be one.
        pair: Column of the second text of a pair.
        quotes: How a TSV has them: "csv", "text", or "auto" to look.
    """

    text: str | None = None
    label: str | None = None
    pair: str | None = None
    quotes: str = "auto"

    @property
    def given(self) -> list[str]:
        """Those that the user named."""
        return [name for name in (self.text, self.pair, self.label) if name is not None]

    @property
    def texts(self) -> tuple[str, ...]:
        """The text columns."""
        return tuple(name for name in (self.text, self.pair) if name is not None)


def own_task(kind: str, labels: Sequence[str] | None, n_texts: int) -> Task:
    """The task of a user's table."""
    metrics = ("accuracy", "macro_f1") if kind == "classify" else ("pearson", "spearman")
    texts = (TEXT_NAMES, PAIR_NAMES)[:n_texts]
    return Task(
        name=kind,
        title=kind,
        labels=None if labels is None else tuple(labels),
        metrics=metrics,
        texts=texts,
        label=LABEL_NAMES,
        files={},
    )


def read_own_table(
    path: str | Path,
    kind: str,
    columns: TableColumns,
    labels: Sequence[str] | None = None,
    name: str = "train",
    labelled: bool = True,
) -> tuple[TextSet, TableColumns, tuple[str, ...] | None]:
    """Read a table.

    Args:
        path: The file.
        kind: "classify" or "regress".
        columns: What the user named.
        labels: Labels that are allowed; None takes those of the file.
        name: Of the split.
        labelled: Whether there must be labels; else they are read where they are, and no blank line may
            stand between rows, which are counted.

    Returns:
        The examples, the columns that were found, and the labels in order (None for scores).

    Raises:
        DataError: The file cannot be used; with the line.
        ConfigError: It cannot be told which column is what.
    """
    rows, columns = _open(path, columns, labelled)
    rows = list(rows)
    if kind == "classify" and labels is None and columns.label is not None:
        labels = _labels_of(rows, columns.label, path)
    numbers = None if kind == "regress" else {label: number for number, label in enumerate(labels or ())}
    rows = _without_header(rows, columns, kind)
    binding = Binding(
        texts=columns.texts,
        label=columns.label,
        labels=numbers,
        unlabelled=[] if labelled else unlabelled_cells(numbers),
    )
    texts = examples_from_rows(rows, binding, name, path)
    return texts, columns, None if kind == "regress" else tuple(labels or ())


def hold_out(train: TextSet) -> tuple[TextSet, TextSet]:
    """Split a tenth of the rows off as development set; the same rows every time.

    Each class has its share of them, one row at least where it has two. Rows of equal texts stay together,
    where there are enough different ones: a text that is trained on tells nothing about others.

    Raises:
        DataError: There are too few.
    """
    if len(train) < 20:
        raise DataError(
            f"expected at least 20 rows to hold a tenth out, got {len(train)}. Give a file with --dev.",
            train.source,
        )
    groups: dict[tuple[str, ...], list[int]] = {}
    for row, example in enumerate(train.examples):
        groups.setdefault(example.texts, []).append(row)
    held = _held_rows(train, list(groups.values())) or _held_rows(train, [[row] for row in range(len(train))])
    parts: tuple[list, list] = ([], [])
    for row, example in enumerate(train.examples):
        parts[row in held].append(example)
    return replace(train, examples=parts[0]), replace(train, examples=parts[1], name="dev", left_out={})


def _held_rows(train: TextSet, groups: Sequence[Sequence[int]]) -> set[int]:
    """Rows of the groups that fit into what is held out of each class."""
    classes = [one.label if isinstance(one.label, int) else None for one in train.examples]  # scores are one
    counts = Counter(classes)
    left = Counter({name: max(1, int(n * HELD_OUT)) for name, n in counts.items() if n > 1})
    n_spare = max(0, round(len(train) * HELD_OUT) - left.total())
    left.update(sorted(left, key=lambda name: counts[name] * HELD_OUT % 1, reverse=True)[:n_spare])
    held: set[int] = set()
    for rows in _shuffled(groups):
        wanted = Counter(classes[row] for row in rows)
        if wanted <= left:
            left -= wanted
            held.update(rows)
    return held


def _shuffled(items: Sequence[Item]) -> list[Item]:
    """The same order every time."""
    return [items[place] for place in np.random.default_rng(FRACTION_SEED).permutation(len(items))]


def _open(
    path: str | Path, columns: TableColumns, labelled: bool
) -> tuple[Iterator[Row | BrokenRow], TableColumns]:
    """The rows of a file, and its columns with every name settled."""
    quoted, why = csv_quoted(path, columns.quotes)
    if why:
        level = logging.WARNING if why.startswith("nothing tells") else logging.INFO
        way, other = ("as in CSV, and taken off", "text") if quoted else ("as part of the text", "csv")
        _log.log(level, "%s: quotes are read %s: %s. Else set data.quotes=%s.", path, way, why, other)
    read = partial(read_rows, path, blank_lines=labelled, quoted=quoted)
    if table_format(path) == "json":
        return _bound_by_names(read(), columns, path, labelled)
    _refuse_other_separators(path, columns, labelled)
    first = first_cells(path, quoted)
    numbered = [str(number) for number in range(1, len(first) + 1)]
    if columns.given:
        # One cell like a column's number is a label; a header has them all.
        if all(name in numbered for name in columns.given) and not set(columns.given) <= set(first):
            return read(numbered), columns
        return _bound_by_names(read(), columns, path, labelled)
    if set(first) & set(TEXT_NAMES) and (set(first) & set(LABEL_NAMES) or not labelled):
        return _bound_by_names(read(), columns, path, labelled)
    if len(first) == 2:
        return read(numbered), replace(columns, text="1", label="2")
    if len(first) == 1 and not labelled:
        return read(numbered), replace(columns, text="1")
    remedy = "Name yours with --text-column and --label-column." if labelled else "Rename yours in the file."
    raise ConfigError(
        f"{path}: expected two columns, text and label, or columns named {TEXT_NAMES[0]!r} and "
        f"{LABEL_NAMES[0]!r}, got {len(first)} cells in line 1: {', '.join(map(repr, first[:5]))}. {remedy}"
    )


def _refuse_other_separators(path: str | Path, columns: TableColumns, labelled: bool) -> None:
    """Hold that a CSV has no semicolons or tabs where commas should be.

    A single column of texts may hold them: there a name that a column may have must stand between.

    Raises:
        DataError: It has.
    """
    line = next(iter(read_lines(path)), "") if table_format(path) == "csv" else ""
    known = {*TEXT_NAMES, *LABEL_NAMES, *columns.given}
    for separator, what in ((";", "semicolons"), ("\t", "tabs")):
        cells = next(csv.reader([line], delimiter=separator), [])
        if "," not in line and len(cells) > 1 and (labelled or known & set(cells)):
            raise DataError(
                f"expected commas between the cells of a CSV file, got {what}: {line[:80]!r}. "
                "Convert the file to commas, or to tabs with a name in .tsv.",
                path,
                1,
            )


def _bound_by_names(
    rows: Iterator[Row | BrokenRow], columns: TableColumns, path: str | Path, labelled: bool
) -> tuple[Iterator[Row | BrokenRow], TableColumns]:
    rows = iter(rows)
    first = next(rows, None)
    if not isinstance(first, Row):
        raise DataError("expected rows of text and label, got none.", path)
    found = list(first.cells)
    # Where labels need not be, a model is asked, whose columns are settled: no option names others.
    text_option = "--text-column" if labelled else "text, as in training"
    text = pick_column(found, (columns.text,) if columns.text else TEXT_NAMES, text_option, path)
    pair = columns.pair or next((name for name in PAIR_NAMES if name in found and not columns.text), None)
    if columns.pair:
        pair_option = "--text-pair-column" if labelled else "second text, as in training"
        pick_column(found, (columns.pair,), pair_option, path)
    names = (columns.label,) if columns.label else LABEL_NAMES
    if labelled:
        label = pick_column(found, names, "--label-column", path)
    else:
        label = next((name for name in names if name in found), None)
    return chain([first], rows), TableColumns(text, label, pair, columns.quotes)


def _labels_of(rows: Sequence[Row | BrokenRow], column: str, path: str | Path) -> tuple[str, ...]:
    """Label names, sorted; numbers by value.

    Raises:
        DataError: A row has none, there is one only, or nearly every row has its own.
    """
    counts: Counter[str] = Counter()
    for row in rows:
        if isinstance(row, BrokenRow):
            raise row.error(path)
        label = one_line(row.cells.get(column))
        if not label:
            raise DataError(f"column {column!r}: expected a label, got an empty cell.", path, row.number)
        counts[label] += 1
    if column.isdecimal():
        _refuse_header(rows, counts, column, path)
    if len(counts) < 2:
        raise DataError(
            f"column {column!r}: expected at least two labels, got only {', '.join(map(repr, counts))}.", path
        )
    if len(counts) > 20 and len(counts) > counts.total() / 2:
        raise DataError(
            f"column {column!r}: expected labels that occur again, got {len(counts)} different ones in "
            f"{counts.total()} rows. Name the label's column with --label-column, or use --task regress.",
            path,
        )
    labels = sorted(counts, key=lambda label: (not label.isdecimal(), label.zfill(20), label))
    shown = ", ".join(f"{label} ({counts[label]:,})" for label in labels[:_MOST_SHOWN])
    more = f", … ({len(labels)} in all)" if len(labels) > _MOST_SHOWN else ""
    _log.info("%s: labels: %s%s", path, shown, more)
    return tuple(labels)


def _refuse_header(
    rows: Sequence[Row | BrokenRow], counts: Counter[str], column: str, path: str | Path
) -> None:
    """A first row whose label never comes again, while another does, is a header in disguise."""
    first = next((row for row in rows if isinstance(row, Row)), None)
    if first is None or len(rows) < 4:
        return
    label = one_line(first.cells[column])
    others = [count for name, count in counts.items() if name != label]
    if counts[label] == 1 and max(others, default=0) > 1:
        names = list(first.cells.values())
        raise DataError(
            f"expected rows of text and label, got what looks like a header: {', '.join(map(repr, names))}. "
            f"Give --text-column {names[0]} --label-column {label}, or remove the line; if it is a row, "
            "put it further down.",
            path,
            first.number,
        )


def _without_header(rows: list[Row | BrokenRow], columns: TableColumns, kind: str) -> list[Row | BrokenRow]:
    """Scores: a first line without a number, before lines with one, is a header."""
    if kind != "regress" or columns.label is None or not columns.label.isdecimal():
        return rows
    cells = [str(row.cells[columns.label]) for row in islice(rows, 2) if isinstance(row, Row)]
    return rows[1:] if len(cells) == 2 and not _is_number(cells[0]) and _is_number(cells[1]) else rows


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True
