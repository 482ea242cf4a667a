"""Input and output of `predict`: a split, a table or lines of text; tables and files for the GLUE server."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from syntaxformer.base.errors import ConfigError, DataError
from syntaxformer.base.files import read_lines, without_packing
from syntaxformer.base.progress import standard_input
from syntaxformer.encoders.classifier import Classifier
from syntaxformer.encoders.examples import TextExample, TextSet, examples_from_rows, raw_example
from syntaxformer.encoders.official_data import bind_columns, read_any_split
from syntaxformer.encoders.own_tables import CONLLU, has_lists, has_questions, read_own_table
from syntaxformer.encoders.tables import (
    BadRows,
    Source,
    TableColumns,
    csv_quoted,
    find_rows,
    holds_objects,
    is_dataset,
    read_table,
    table_format,
)
from syntaxformer.encoders.task_types import Predictions, SeveralScores
from syntaxformer.encoders.tasks import TASKS, USUAL, ClassifierInfo, Task, find_task

STDIN = "-"

_MOST_SHOWN, _LONGEST_SHOWN = 5, 30


def read_split_for(info: ClassifierInfo, task: str | None, data: str, split: str) -> tuple[Task, TextSet]:
    """Read a split of an official task for a model, or of a data set like those that it was trained on.

    `task` None means the model's own task.

    Raises:
        ConfigError: The model was trained on a task with other labels, or the split is missing.
        DataError: The split cannot be used.
    """
    if task is None and info.task not in TASKS:
        if is_dataset(data):
            return USUAL, read_texts_for(info, find_rows(data, split))
        expected = f"a saved data set, as the model's task is {info.task!r}"
        remedy = "Give a table without --data, or --task for official files."
        raise ConfigError(f"--data: expected {expected}, got {data}. {remedy}")
    official = find_task(task or info.task)
    _check_alike("task", official, official.title, info)
    return official, read_any_split(official, data, split)


def predictions_beside(
    folder: Path, info: ClassifierInfo, texts: TextSet, how_to_load: tuple[Any, ...], **how: Any
) -> Predictions:
    """Predictions of another model for the rows that a model scores; options as `Classifier` takes them.

    Raises:
        ConfigError: It was trained for another type of answer, on other labels or another number of texts.
    """
    other = Classifier.from_folder(folder, *how_to_load)
    _check_alike("--baseline", other.info, folder, info)
    predictions = other.predict_set(texts, **how)
    if other.info.type == SeveralScores.name:  # whose columns may have another order
        by_name = [other.task_type.answer(label, None)["scores"] for label in predictions.labels]
        labels = [tuple(map(scores.get, info.task_type.names)) for scores in by_name]
        predictions = replace(predictions, labels=labels)
    return predictions


def read_texts_for(info: ClassifierInfo, source: Source) -> TextSet:
    """Read the texts of a file, or of standard input if `source` is "-".

    A file with the model's columns is read as a table, with labels if it has them. Otherwise each line is a
    text without tabs, or a pair of texts with a tab between them if the model takes pairs.

    Raises:
        DataError: The file cannot be used; with the line.
    """
    if source != STDIN and _has_parts(info, source):
        column, is_listed = str(info.text_column), has_lists(source, info.text_column)
        same = is_listed != (column.isdecimal() or column in CONLLU)
        same |= is_listed and column in CONLLU and column in read_table(source, n_lines=1).columns
        columns = TableColumns(info.text_column, info.label_column) if same else TableColumns()
        return read_own_table(source, info.task_type, columns, "texts", labelled=False)[0]
    if source != STDIN and not info.task_type.parts and (table := _as_table(info, source)) is not None:
        return table
    source = str(source)  # what is no file was read above
    name = "standard input" if source == STDIN else source
    lines = standard_input() if source == STDIN else read_lines(source)
    examples = [_example(info, line, name, number) for number, line in enumerate(lines, 1)]
    if not examples:
        raise DataError("expected at least one text, got an empty file.", name)
    return TextSet("texts", name, examples)


def _has_parts(info: ClassifierInfo, source: Any) -> bool:
    """Whether a file holds words or questions and not texts: by its name, its header, or blank lines."""
    if not info.task_type.parts or holds_objects(source):
        return bool(info.task_type.parts)
    if info.task_type.parts == "span":
        return has_questions(source)
    if has_lists(source, info.text_column):
        return True
    is_named = re.search(r"\.(conll\w*|iob\d?|bio|tsv)$", without_packing(source))
    has_blanks = not is_named and "\n\n" in (text := "\n".join(read_lines(source)).strip())
    if has_blanks and " " in text and "\t" not in text and not text.startswith("-DOCSTART-"):
        n_cells = {len(cells) for line in text.split("\n") if (cells := line.split())}
        if len(n_cells) > 1 or n_cells == {1} or not re.search(r"\S *\n *\S", text):  # one row a sentence
            problem = "expected a text on each line, got blank lines between them. If it has columns, let its"
            raise DataError(f"{problem} name end in .conll; or else remove those lines.", source)
    return bool(is_named) or has_blanks


def _as_table(info: ClassifierInfo, source: Source) -> TextSet | None:
    """The rows of a table with the model's columns; None if the file is not such a table."""
    columns = TableColumns(info.text_column, info.label_column, info.text_pair_column, info.quotes)
    task = TASKS.get(info.task)
    if columns.text is None and task is not None and (table := _official_table(task, source)) is not None:
        return table
    is_numbered = columns.text is not None and all(map(str.isdecimal, columns.named))
    if is_numbered and holds_objects(source):
        columns = TableColumns()  # they have names
    if (form := table_format(source)) == "tsv" or (form == "csv" and is_numbered):
        cells = read_table(source, quoted=csv_quoted(source, info.quotes)[0], n_lines=1).columns
        if columns.text is None:
            if not all(set(names) & set(cells) for names in USUAL.texts[: info.n_texts]):
                return None
        elif not is_numbered:
            if not set(columns.texts) <= set(cells):
                return None
        elif len(cells) < max(map(int, columns.named)):
            if len(cells) != info.n_texts:
                return None
            columns = replace(columns, label=None)
    texts, read, _ = read_own_table(source, info.task_type, columns, name="texts", labelled=False)
    if len(read.texts) != info.n_texts:
        got = f"{len(read.texts)}: {', '.join(map(repr, read.texts))}"
        expected = f"{info.n_texts} text columns, as the model was trained on"
        raise ConfigError(f"{source}: expected {expected}, got {got}.")
    return texts


def _official_table(task: Task, source: Source) -> TextSet | None:
    """The rows of a table with the columns of the task's official files; None if it has others."""
    headerless = task.headerless.get("dev", ())

    def is_header(cells: list[str]) -> bool:
        return all(set(names) & set(cells) for names in task.texts)

    def names_of(cells: list[str]) -> Sequence[str] | None:
        return None if is_header(cells) or len(headerless) != len(cells) else headerless

    if not is_header(read_table(source, names_of, n_lines=1).columns):
        return None
    table = read_table(source, names_of, blank_lines=False)
    binding = bind_columns(task, table.columns, source, labelled=False)
    unlabelled = binding.task_type.blanks(task.no_label)
    binding = replace(binding, no_label=(), unlabelled=unlabelled)
    return examples_from_rows(table.rows, binding, "texts", BadRows(source))


def _example(info: ClassifierInfo, line: str, name: str, number: int) -> TextExample:
    parts = line.split("\t") if info.n_texts > 1 else line.strip().split("\t")
    if info.n_texts == 1 < len(parts):
        shown = ", ".join(repr(cell[:_LONGEST_SHOWN]) for cell in parts[:_MOST_SHOWN])
        names = (info.text_column,) if info.text_column else TASKS.get(info.task, USUAL).texts[0]
        expected = f"one text on a line, or a table with the column {' or '.join(map(repr, names))}"
        got = f"{len(parts)} cells with tabs between them: {shown}"
        remedy = "Rename the columns, or remove the tabs."
        raise DataError(f"expected {expected}, got {got}. {remedy}", name, number)
    if len(parts) != info.n_texts:
        problem = f"expected {info.n_texts} texts with a tab between them, got {len(parts)}."
        raise DataError(problem, name, number)
    return raw_example(parts, number, name, str(number - 1), bool(info.task_type.parts))


def _check_alike(option: str, other: ClassifierInfo | Task, name: Any, info: ClassifierInfo) -> None:
    """Refuse other answers or texts than the model's; a label is one, written or not.

    Scores are scores, whether a network reads both texts at once or each by itself.
    Labels of a task have the numbers of the model's, so they must be in the same order.
    """
    kinds = [side.task_type.same_as or side.type for side in (info, other)]
    if kinds[0] != kinds[1]:
        expected = f"one with answers of the type {kinds[0]!r}"
        raise ConfigError(f"{option}: expected {expected}, got {name}, {kinds[1]!r}.")
    n_texts, order = (len(other.texts), tuple) if isinstance(other, Task) else (other.n_texts, set)
    labels = [side.task_type.names for side in (info, other)]
    if order(labels[0]) != order(labels[1]) or n_texts != info.n_texts:
        expected, got = (", ".join(names) or "scores" for names in labels)
        problem = f"expected one with the model's labels ({expected}) and {info.n_texts} texts"
        raise ConfigError(f"{option}: {problem}, got {name} ({got}; {n_texts}).")


def submission_rows(task: Task, split: str, texts: TextSet, predictions: Predictions) -> Iterator[str]:
    """Lines of a GLUE submission: `index`, a tab, and the label name or the score with three decimals.

    Raises:
        ConfigError: The server takes no submission for this split.
        DataError: Examples are not numbered from 0 without gaps, so this is not the server's test set.
    """
    if split not in task.submission:
        known = ", ".join(task.submission) or "none"
        raise ConfigError(f"submission: expected a split of {task.title} with one ({known}), got {split!r}.")
    yield "index\tprediction"
    for number, (example, label) in enumerate(zip(texts.examples, predictions.labels, strict=True)):
        if example.index != str(number):
            problem = f"index: expected {number}, got {example.index!r}."
            remedy = "The GLUE server numbers its test sets from 0."
            raise DataError(f"{problem} {remedy}", texts.source, example.line)
        yield f"{number}\t{label if isinstance(label, str) else f'{label:.3f}'}"
