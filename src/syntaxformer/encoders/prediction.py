"""What `predict` reads: a split of the task, a table with the model's columns, or plain lines of text."""

from __future__ import annotations

import sys
from dataclasses import replace

from syntaxformer.base.errors import ConfigError, DataError
from syntaxformer.base.files import decode_lines, read_lines
from syntaxformer.encoders.classifier_folder import ClassifierInfo
from syntaxformer.encoders.finetune_data import read_any_split
from syntaxformer.encoders.labelled_rows import examples_from_rows, unlabelled_cells
from syntaxformer.encoders.official_files import TASKS, bind_columns, find_task
from syntaxformer.encoders.own_table import TEXT_NAMES, TableColumns, own_task, read_own_table
from syntaxformer.encoders.tables import Row, csv_quoted, first_cells, read_rows, table_format
from syntaxformer.encoders.task_table import Task
from syntaxformer.encoders.text_sets import TextExample, TextSet

__all__ = ["read_split_for", "read_texts_for"]

STDIN = "-"

_MOST_SHOWN, _LONGEST_SHOWN = 5, 30


def read_split_for(
    info: ClassifierInfo, task: str | None, data: str, split: str, given: str | None = None
) -> tuple[Task, TextSet]:
    """A split of an official task for a model.

    Args:
        info: The model's.
        task: Task name; None for the model's own.
        data: Folder of its files or saved data set, or "hub:NAME".
        split: "dev", "test", ….
        given: A file to take instead.

    Raises:
        ConfigError: The model was trained for a task with other labels, or the split is not there.
        DataError: It cannot be used.
    """
    if task is None and info.task not in TASKS:
        raise ConfigError(
            f"task: expected --task beside --data, as the model's own is {info.task!r}, got none."
        )
    found = find_task(task or info.task)
    if (found.labels, len(found.texts)) != (info.labels, info.n_texts):
        raise ConfigError(
            f"task: expected one with the model's labels ({_labels(info.labels)}) and {info.n_texts} texts, "
            f"got {found.title} ({_labels(found.labels)}; {len(found.texts)})."
        )
    return found, read_any_split(found, data, split, given)


def read_texts_for(info: ClassifierInfo, source: str) -> TextSet:
    """Texts of a file, or of standard input where it is "-".

    A table that has the model's columns is read as one, with its labels where it has them; else each line is
    a text, which no tab divides, or two with a tab between them where the model takes pairs.

    Raises:
        DataError: The file cannot be used; with the line.
    """
    if source != STDIN and (table := _as_table(info, source)) is not None:
        return table
    name = "standard input" if source == STDIN else source
    lines = decode_lines(sys.stdin.buffer, name) if source == STDIN else read_lines(source)
    examples = [_example(info, line, name, number) for number, line in enumerate(lines, 1)]
    if not examples:
        raise DataError("expected at least one text, got an empty file.", name)
    return TextSet("texts", name, examples)


def _as_table(info: ClassifierInfo, source: str) -> TextSet | None:
    """The rows of a table with the model's columns; None for a file that is none."""
    columns = TableColumns(info.text_column, info.label_column, info.text_pair_column, info.quotes)
    task = TASKS.get(info.task)
    if columns.text is None and task is not None and (table := _official_table(task, source)) is not None:
        return table
    if table_format(source) == "tsv":
        cells = first_cells(source, csv_quoted(source, info.quotes)[0])
        if columns.text is None:
            if not all(set(names) & set(cells) for names in own_task("classify", None, info.n_texts).texts):
                return None
        elif not columns.text.isdecimal():
            if not set(columns.texts) <= set(cells):
                return None
        elif len(cells) < max(map(int, columns.given)):
            if len(cells) != info.n_texts:
                return None
            columns = replace(columns, label=None)
    kind = "regress" if info.is_regression else "classify"
    texts, found, _ = read_own_table(source, kind, columns, info.labels, name="texts", labelled=False)
    if len(found.texts) != info.n_texts:
        raise ConfigError(
            f"{source}: expected {info.n_texts} text columns, as the model was trained on, got "
            f"{len(found.texts)}: {', '.join(map(repr, found.texts))}."
        )
    return texts


def _official_table(task: Task, source: str) -> TextSet | None:
    """The rows of a table with the columns of the task's own files; None where it has others."""
    if table_format(source) == "json":
        first = next(read_rows(source), None)
        cells = list(first.cells) if isinstance(first, Row) else []
    else:
        cells = first_cells(source)
    headerless = task.headerless.get("dev")
    if all(set(names) & set(cells) for names in task.texts):
        rows = read_rows(source, blank_lines=False)
    elif headerless is not None and len(headerless) == len(cells):
        cells, rows = list(headerless), read_rows(source, headerless, blank_lines=False)
    else:
        return None
    binding = bind_columns(task, cells, source, labelled=False)
    unlabelled = unlabelled_cells(binding.labels, task.no_label)
    binding = replace(binding, no_label=(), unlabelled=unlabelled)
    return examples_from_rows(rows, binding, "texts", source)


def _example(info: ClassifierInfo, line: str, name: str, number: int) -> TextExample:
    parts = line.split("\t") if info.n_texts > 1 else line.strip().split("\t")
    if info.n_texts == 1 < len(parts):
        shown = ", ".join(repr(part[:_LONGEST_SHOWN]) for part in parts[:_MOST_SHOWN])
        raise DataError(
            f"expected one text on a line, or a table with the column {_wanted_column(info)}, got "
            f"{len(parts)} cells with tabs between them: {shown}. Rename the columns, or remove the tabs.",
            name,
            number,
        )
    if len(parts) != info.n_texts:
        raise DataError(
            f"expected {info.n_texts} texts with a tab between them, got {len(parts)}.", name, number
        )
    texts = tuple(" ".join(part.split()) for part in parts)
    if not all(texts):
        raise DataError("text: expected one that is not empty, got ''.", name, number)
    return TextExample(texts, None, (), str(number - 1), number)


def _wanted_column(info: ClassifierInfo) -> str:
    """What a table must call the text."""
    task = TASKS.get(info.task)
    names = (info.text_column,) if info.text_column else TEXT_NAMES if task is None else task.texts[0]
    return " or ".join(map(repr, names))


def _labels(labels: tuple[str, ...] | None) -> str:
    return "scores" if labels is None else ", ".join(labels)
