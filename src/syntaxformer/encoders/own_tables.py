"""Reads the user's own tables of labelled texts.

Columns are named by the user, recognised by usual names, or are text and label in a table of two columns
without header. Tags of words and questions have files of their own.
"""

from __future__ import annotations

import csv
import json
import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from syntaxformer.base.errors import ConfigError, DataError
from syntaxformer.base.files import read_lines
from syntaxformer.encoders.examples import Binding, TextSet, examples_from_rows
from syntaxformer.encoders.multi_output_tasks import WordTags
from syntaxformer.encoders.questions import read_questions
from syntaxformer.encoders.tables import (
    BadRows,
    Row,
    Source,
    Table,
    TableColumns,
    csv_quoted,
    holds_objects,
    pick_column,
    read_table,
    table_format,
)
from syntaxformer.encoders.tagged_words import read_words
from syntaxformer.encoders.task_types import OneLabel, Score, TaskType
from syntaxformer.encoders.tasks import USUAL

_log = logging.getLogger("syntaxformer.finetune")


def read_own_table(
    path: Source,
    task_type: TaskType,
    columns: TableColumns,
    name: str = "train",
    labelled: bool = True,
    bad: BadRows | None = None,
) -> tuple[TextSet, TableColumns, TaskType]:
    """Read a table, or the file of a type that has files of its own.

    A type without names of labels takes those of the file; other labels than its names are refused for
    training, and else read as classes that the type never predicts. `columns` are those that the user named.
    If it need not be `labelled`, blank lines between rows are refused, because rows are counted. Rows that
    cannot be used are added to `bad`, and refused if they are more than it allows.

    Returns:
        The examples, the columns that were read, and the type with its labels.

    Raises:
        DataError: The file cannot be used; with the line.
        ConfigError: The role of the columns is not clear.
    """
    bad = bad or BadRows(path)
    if isinstance(task_type, WordTags):
        return read_words(path, task_type, columns, name, labelled, bad)
    if task_type.parts == "span":
        columns = replace(columns, text="question", pair="context")
        return read_questions(path, name, labelled, bad), columns, task_type
    quoted, why = csv_quoted(path, columns.quotes)
    if why:
        level = logging.WARNING if why.startswith("nothing tells") else logging.INFO
        way, other = ("as in CSV, and removed", "text") if quoted else ("as part of the text", "csv")
        _log.log(level, "%s: quotes are read %s: %s. Otherwise set data.quotes=%s.", path, way, why, other)
    _refuse_other_separators(path, columns, labelled)
    table = read_table(path, partial(_numbered, path, columns, labelled), quoted, blank_lines=labelled)
    table = replace(table, rows=[row for row, _ in bad.whole(table.rows, Row.check)])
    if bad.rows and not table.rows:
        bad.refuse()
    if columns.named or table.has_header:
        first = ["score"] if task_type.name == Score.name or task_type.separate else []
        labels = list(dict.fromkeys([*first, *USUAL.label]))
        table, columns = _settle_columns(table, columns, path, labelled, labels, bad)
    else:
        columns = replace(columns, text="1", label="2" if len(table.columns) == 2 else None)
    if task_type.separate and columns.pair is None:
        problem = f"columns: expected two texts in a row for {task_type.name}, got one column of them"
        raise DataError(f"{problem}. Name them with --text-column and --text-pair-column.", path)
    rows, unlabelled = table.rows, [] if labelled else task_type.blanks()
    if columns.label is not None:
        try:
            learned, rows = task_type.settle(rows, columns.label, bad)
        except DataError:
            bad.refuse()  # which says why nothing can be learned
            raise
        if name != "train" and isinstance(learned, OneLabel):
            read = (lambda row, of: row.cells.get(of)) if learned.takes_lists else Row.text
            cells = (cell for row in rows if (cell := read(row, columns.label)) not in ("", *unlabelled))
            learned = learned.widened(cells, path)
        task_type = learned
    binding = Binding(texts=columns.texts, label=columns.label, task_type=task_type, unlabelled=unlabelled)
    return examples_from_rows(rows, binding, name, bad), columns, task_type


def cells_of(texts: TextSet, path: Source, columns: TableColumns) -> Iterator[list[str]]:
    """The rows of some examples as they stand in their table, after its header if it has one."""
    table = read_table(path, partial(_numbered, path, columns, True), csv_quoted(path, columns.quotes)[0])
    if table.has_header:
        yield table.columns
    lines = {example.line for example in texts.examples}
    for row in table.rows:
        if row.number in lines:
            cells = ("" if (cell := row.cells.get(name)) is None else cell for name in table.columns)
            yield [json.dumps(c, ensure_ascii=False) if isinstance(c, list | dict) else str(c) for c in cells]


def _numbered(path: Source, columns: TableColumns, labelled: bool, first: Sequence[str]) -> list[str] | None:
    """Numbers as the names of columns if the first line is a row; None if it is a header."""
    numbers = [str(number) for number in range(1, len(first) + 1)]
    if columns.named:
        # A single cell that equals a column's number is a label; a header has all names.
        named = set(columns.named)
        return numbers if named <= set(numbers) and not named <= set(first) else None
    texts, labels = USUAL.texts[0], USUAL.label
    if set(first) & set(texts) and (set(first) & set(labels) or not labelled):
        return None
    if len(first) == 2 or (len(first) == 1 and not labelled):
        return numbers
    remedy = "Name yours with --text-column and --label-column." if labelled else "Rename yours in the file."
    raise ConfigError(
        f"{path}: expected two columns, text and label, or columns named {texts[0]!r} and "
        f"{labels[0]!r}, got {len(first)} cells in line 1: {', '.join(map(repr, first[:5]))}. {remedy}"
    )


def _settle_columns(
    table: Table, columns: TableColumns, path: Source, labelled: bool, labels: Sequence[str], bad: BadRows
) -> tuple[Table, TableColumns]:
    """Find the columns by the names that the user gave, or by usual names; `labels` are those of labels."""
    names, usual, rows = table.columns, USUAL.texts, table.rows
    if not rows:
        raise DataError("expected rows of text and label, got none.", path)
    # Without required labels a model predicts; its columns are known, and no option can name others.
    options = ("--text-column", "--text-pair-column")
    what = options if labelled else ("text, as in training", "second text, as in training")
    text = pick_column(names, (columns.text,) if columns.text else usual[0], what[0], path)
    pair = next((name for name in usual[1] if name in names and not columns.text), None)
    if columns.pair:
        pair = pick_column(names, (columns.pair,), what[1], path)
    if pair is None and not columns.text and holds_objects(path):

        def check(row: Row) -> None:  # line 1, which says the columns, has no second text
            if more := [name for name in usual[1] if row.text(name)]:
                problem = f"row: expected the columns of line 1, got {', '.join(more)} as well."
                raise ValueError(f"{problem} Give a second text in every row, or in none.")

        rows = [row for row, _ in bad.whole(rows, check)]
    label = columns.label
    if label and "," in label and label not in names:
        several = label.split(",")
        for name in several if labelled else ():
            pick_column(names, (name,), "--label-column", path)
        label = label if set(several) <= set(names) else None
        if label is not None:
            cells = [{**row.cells, label: {name: row.cells.get(name) for name in several}} for row in rows]
            rows = [replace(row, cells=of_row) for row, of_row in zip(rows, cells, strict=True)]
    elif labelled:
        label = pick_column(names, (label,) if label else labels, "--label-column", path)
    else:
        label = next((name for name in ((label,) if label else labels) if name in names), None)
    settled = TableColumns(text, label, pair, columns.quotes)
    if twice := [name for name in settled.named if names.count(name) > 1]:
        raise DataError(f"line 1: expected column {twice[0]!r} once, got it twice. Rename one.", path)
    if labelled and not columns.named and (unread := {*usual[0], *labels} & set(names) - set(settled.named)):
        read, more = ", ".join(map(repr, settled.named)), ", ".join(sorted(map(repr, unread)))
        _log.warning("%s: %s are read, %s not. Choose by --text-column and --label-column.", path, read, more)
    return replace(table, rows=rows), settled


def _refuse_other_separators(path: Any, columns: TableColumns, labelled: bool) -> None:
    """Check that a CSV is not separated by semicolons or tabs.

    A single column of texts may contain them, so without labels one of the cells must be a column's name.
    """
    line = next(iter(read_lines(path)), "") if table_format(path) == "csv" else ""
    known = {*USUAL.texts[0], *USUAL.label, *columns.named}
    for separator, what in ((";", "semicolons"), ("\t", "tabs")):
        cells = next(csv.reader([line.replace("\r", " ")], delimiter=separator), [])
        if "," not in line and len(cells) > 1 and (labelled or known & set(cells)):
            problem = f"expected commas between the cells of a CSV file, got {what}: {line[:80]!r}."
            remedy = "Convert the file to commas, or to tabs with a name that ends in .tsv."
            raise DataError(f"{problem} {remedy}", path, 1)
