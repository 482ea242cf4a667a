"""Reads the examples of a task: official files, sentiment treebanks, data sets of `datasets`, or own tables.

Files may be compressed (.gz), and the user may choose another file for a split. Columns of an own table are
named by the user, recognised by usual names, or are text and label in a table of two columns without header.
"""

from __future__ import annotations

import csv
import json
import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from syntaxformer.base.config import corpus_path
from syntaxformer.base.downloads import say_download
from syntaxformer.base.errors import ConfigError, DataError
from syntaxformer.base.files import plain_or_packed, read_lines
from syntaxformer.encoders.tables import (
    Binding,
    Row,
    Table,
    TextExample,
    TextSet,
    csv_quoted,
    examples_from_rows,
    fingerprints,
    pick_column,
    read_table,
    table_format,
)
from syntaxformer.encoders.task_types import Score, TaskType
from syntaxformer.encoders.tasks import OWN_TASKS, TASKS, USUAL, Task, find_task
from syntaxformer.runs.config import FRACTION_SEED
from syntaxformer.runs.loading import checkpoint_errors
from syntaxformer.trees import Tree, format_tree, leaves_of, parse_trees
from syntaxformer.trees.constituency import subtrees_of

if TYPE_CHECKING:
    from syntaxformer.encoders.finetune_config import FinetuneConfig

_log = logging.getLogger("syntaxformer.finetune")
HUB = "hub:"
"""Prefix of a name on the Hub: "hub:nyu-mll/glue:cola"."""

SHORTEST_PHRASE = 4
"""Shortest phrase of a treebank, in words, that is trained on; sentences may have any length."""

HELD_OUT = 0.1
"""Share of the training rows that is held out if there is no development file."""

NO_LABEL = "-"
_AS_TRAINED = ("text, as in training", "second text, as in training")

_SPLITS = {
    "train": ("train",),
    "dev": ("validation", "validation_matched", "dev", "trial"),
    "dev_mismatched": ("validation_mismatched",),
    "test": ("test", "test_matched"),
    "test_mismatched": ("test_mismatched",),
}
"""Our name for a split → its names in data sets."""


@dataclass(frozen=True)
class TableColumns:
    """Columns of an own table by name, or by number from 1 in a table without a header.

    Args:
        label: Column of the label or score, or several with commas; None if none is needed.
        pair: Column of the second text of a pair.
        quotes: How quotes in a TSV are read: "csv", "text", or "auto" to find out.
    """

    text: str | None = None
    label: str | None = None
    pair: str | None = None
    quotes: str = "auto"

    @property
    def given(self) -> list[str]:
        """The columns that the user named."""
        return [name for name in (self.text, self.pair, *(self.label or "").split(",")) if name]

    @property
    def texts(self) -> tuple[str, ...]:
        """The text columns."""
        return tuple(name for name in (self.text, self.pair) if name is not None)


@dataclass(frozen=True)
class FinetuneData:
    """The task of a run and its training and development data."""

    task: Task
    train: TextSet
    dev: TextSet
    columns: TableColumns = field(default_factory=TableColumns)
    held_out: tuple[list[str], ...] = ()
    """Rows of the user's table that became the development set, with all cells, and its header."""


def read_finetune_data(config: FinetuneConfig) -> FinetuneData:
    """Read training and development data, and log what was left out.

    Raises:
        ConfigError: A file or folder is missing, or there is no such task.
        DataError: A file cannot be used, or has only one class; with file and line.
    """
    found = _own(config) if config.task in OWN_TASKS else _known(config)
    found = replace(found, train=found.train.part(config.data.rows, config.data.fraction))
    for texts in (found.train, found.dev):
        for reason, count in texts.left_out.items():
            _log.info("%s: left out %d rows: %s", texts.source, count, reason)
    _check_classes(found)
    if config.task in OWN_TASKS and config.data.dev is not None:
        known = {*fingerprints(found.train.examples)}
        if n := sum(one in known for one in fingerprints(found.dev.examples)):
            _log.warning(
                "%s: %d of its %d rows have texts of the training rows, which raises scores on dev. "
                "Leave them out of one of the two.",
                *(found.dev.source, n, len(found.dev)),
            )
    return found


def _known(config: FinetuneConfig) -> FinetuneData:
    task, data = find_task(config.task), config.data
    if data.dir is None:
        raise ConfigError(f"data: expected --data, the folder of {task.title}'s files, got none.")
    if given := [name for name in (data.text_column, data.text_pair_column, data.label_column) if name]:
        raise ConfigError(
            f"columns: expected none for the official files of {task.title}, got {', '.join(given)}. "
            "For a table of your own use --task classify or regress."
        )
    train = read_any_split(task, data.dir, "train", data.train, data.phrases)
    return FinetuneData(task, train, read_any_split(task, data.dir, "dev", data.dev))


def _own(config: FinetuneConfig) -> FinetuneData:
    data = config.data
    if data.train is None:
        raise ConfigError(
            f"train: expected --train, a table of texts and labels, for --task {config.task}, got none. "
            f"Known tasks: {', '.join(TASKS)}."
        )
    wanted = TableColumns(data.text_column, data.label_column, data.text_pair_column, data.quotes)
    path, task_type = _within(data.dir, data.train), OWN_TASKS[config.task].task_type
    unread = ["text_pair_column", "quotes", *["text_column", "label_column"] * (task_type.parts == "span")]
    given = [f"data.{name}" for name in unread if getattr(data, name) not in (None, "auto")]
    if task_type.parts and given:
        raise ConfigError(
            f"--task {config.task}: expected no option of tables, got {', '.join(given)}. Leave it out."
        )
    train, columns, task_type = read_own_table(path, task_type, wanted)
    held_out: tuple[list[str], ...] = ()
    if data.dev is None:
        train, dev = hold_out(train, task_type.parts == "span")
        held_out = () if task_type.parts else tuple(_cells_of(dev, path, columns))  # those have no table
        _log.info("%s: held out %d of its rows as development set", train.source, len(dev))
    else:
        path = _within(data.dir, data.dev)
        dev, found, _ = read_own_table(path, task_type, columns, name="dev")
        if len(found.texts) != len(columns.texts):
            raise DataError(f"columns: expected those of {train.source}, got others.", path)
    task = OWN_TASKS[config.task]
    update = {"labels": task_type.names or None, "texts": task.texts[: len(columns.texts)]}
    return FinetuneData(task.model_copy(update=update), train, dev, columns, held_out)


def _cells_of(texts: TextSet, path: Path, columns: TableColumns) -> Iterator[list[str]]:
    """The rows of some examples as they stand in their table, after its header if it has one."""
    quoted, _ = csv_quoted(path, columns.quotes)
    table = read_table(path, partial(_numbered, path, columns, True), quoted)
    if table.has_header:
        yield table.columns
    lines = {one.line for one in texts.examples}
    for row in table.rows:
        if row.number in lines:
            cells = ("" if (cell := row.cells.get(name)) is None else cell for name in table.columns)
            yield [json.dumps(c, ensure_ascii=False) if isinstance(c, list | dict) else str(c) for c in cells]


def _within(folder: Path | None, name: str) -> Path:
    """A path as it is, or else a name in the data folder."""
    path = Path(corpus_path(name))
    return folder / path if folder is not None and not path.exists() else path


def _check_classes(data: FinetuneData) -> None:
    """Check that there are different labels to learn, and warn of classes that the dev data lacks."""
    task_type = data.task.task_type
    found, there = (
        {one for example in texts.examples for one in task_type.classes(example.label)}
        for texts in (data.train, data.dev)
    )
    # Of several labels, each holds or not.
    answers = {(*one.label,) for one in data.train.examples} if task_type.takes_lists else found
    if len(answers) < 2:
        raise DataError(
            "label: expected at least two different ones to learn from, got only "
            f"{task_type.show(answers.pop())!r}.",
            data.train.source,
        )
    names = enumerate(task_type.names if not isinstance(task_type, Score) else ())
    if missing := [name for number, name in names if not there & {number, name}]:
        _log.warning(
            "%s: expected every class among the %d development rows, got none of %s, which scores ignore. "
            "Give --dev with all classes, or more rows: one row or one text cannot be in both parts.",
            *(data.dev.source, len(data.dev), ", ".join(missing)),
        )


def hold_out(train: TextSet, by_last: bool = False) -> tuple[TextSet, TextSet]:
    """Split off a tenth of the rows as development set, the same rows every time.

    Each class gets its share, and at least one row if it has two. Rows with equal texts, or `by_last` with
    equal last ones, stay together if they can, because a text from training does not test the model.

    Raises:
        DataError: There are too few rows.
    """
    if len(train) < 20:
        raise DataError(
            f"expected at least 20 rows to hold a tenth out, got {len(train)}. Give a file with --dev.",
            train.source,
        )
    groups: dict[tuple[str, ...], list[int]] = {}
    for row, example in enumerate(train.examples):
        groups.setdefault(example.texts[-1:] if by_last else example.texts, []).append(row)
    singly = _held_rows(train, [[row] for row in range(len(train))])
    if 2 * len(held := _held_rows(train, list(groups.values()))) < len(singly):
        held = singly
        _log.warning("%s: both parts have equal texts, which raises scores on dev. Give --dev.", train.source)
    parts: tuple[list, list] = ([], [])
    for row, example in enumerate(train.examples):
        parts[row in held].append(example)
    return replace(train, examples=parts[0]), replace(train, examples=parts[1], name="dev", left_out={})


def _held_rows(train: TextSet, groups: Sequence[Sequence[int]]) -> set[int]:
    """Choose groups of rows at random that fit into the share of each class."""
    classes = [one.label if isinstance(one.label, int) else None for one in train.examples]  # scores are one
    counts = Counter(classes)
    left = Counter({name: max(1, int(n * HELD_OUT)) for name, n in counts.items() if n > 1})
    n_spare = max(0, round(len(train) * HELD_OUT) - left.total())
    left.update(sorted(left, key=lambda name: counts[name] * HELD_OUT % 1, reverse=True)[:n_spare])
    held: set[int] = set()
    for place in np.random.default_rng(FRACTION_SEED).permutation(len(groups)):  # the same every time
        wanted = Counter(classes[row] for row in groups[place])
        if wanted <= left:
            left -= wanted
            held.update(groups[place])
    return held


# Official files.


def read_any_split(
    task: Task, source: str | Path, split: str, given: str | None = None, phrases: bool | None = None
) -> TextSet:
    """Read a split of a known task from official files, a saved data set or the Hub.

    Raises:
        ConfigError: There is no such file or split.
        DataError: The split cannot be used; with file and line.
    """
    marks = ("dataset_dict.json", "state.json")
    is_saved = any((Path(source) / mark).is_file() for mark in marks)
    if given is None and (is_saved or str(source).startswith(HUB)):
        return read_dataset_split(task, open_dataset(source), split, str(source))
    path = _find_file(task, source, split, given)
    if task.treebank:
        return _read_treebank(task, path, split, split == "train" if phrases is None else phrases)
    table = read_table(path, lambda _: task.headerless.get(split))
    first = next(table.rows, None)
    if first is None:
        raise DataError("expected at least one example, got none.", path)
    if first.problem:
        problem = f"row: {first.problem}. Check that this is the {split} file of {task.title}."
        raise DataError(problem, path, first.number)
    labelled = not split.startswith("test") or split == "test_labeled"
    binding = bind_columns(task, table.columns, path, labelled and split != "diagnostic")
    return examples_from_rows(chain([first], table.rows), binding, split, path)


def _find_file(task: Task, folder: str | Path, split: str, given: str | None = None) -> Path:
    """The file of a split; `given` is a path, or a name in the folder."""
    folder = Path(folder)
    if given is None and split not in task.files:
        raise ConfigError(f"split: expected one of {', '.join(task.files)} for {task.title}, got {split!r}.")
    if given is None and not folder.is_dir():
        raise ConfigError(f"data: expected the folder of {task.title}'s files, got {folder}.")
    given = corpus_path(given)
    names = (given,) if given is not None else task.files[split]
    for path in [folder / name for name in names] + ([Path(given)] if given is not None else []):
        if (found := plain_or_packed(path)) is not None:
            return found
    raise ConfigError(
        f"data: expected {' or '.join(names)} (plain or .gz) in {folder}, the {split} split of {task.title}, "
        "found none."
    )


def bind_columns(task: Task, columns: Sequence[str], source: str | Path, labelled: bool) -> Binding:
    """Find a task's columns in a table; labels are optional unless `labelled`.

    Raises:
        DataError: A column is missing.
    """

    def first(names: Sequence[str]) -> str | None:
        return next((name for name in names if name in columns), None)

    texts = [pick_column(columns, names, "text", source) for names in task.texts]
    trees = [name for names in task.trees if (name := first(names)) is not None]
    return Binding(
        texts=texts,
        label=pick_column(columns, task.label, "label", source) if labelled else first(task.label),
        task_type=task.task_type,
        trees=trees if len(trees) == len(texts) else (),
        index=first(task.index),
        no_label=task.no_label,
        tolerant=task.tolerant and labelled,
        fold_case=True,
    )


def _read_treebank(task: Task, path: Path, split: str, phrases: bool) -> TextSet:
    """Read sentiment trees, one on each line; they also serve as the constituency trees of their texts.

    Source: Socher et al. (2013); Bai et al. (2021), section 4.1: "all phrases with lengths larger than 3".
    """
    examples: list[TextExample] = []
    n_neutral = 0
    for number, tree in enumerate(parse_trees(read_lines(path), path=path), 1):
        for node in _phrases(tree) if phrases else (tree,):
            if node.label not in ("0", "1", "2", "3", "4"):
                raise DataError(f"sentiment: expected 0 to 4, got {node.label!r}.", path, number)
            if node.label not in task.treebank:
                n_neutral += 1
                continue
            text, label = " ".join(leaves_of(node)), task.treebank[node.label]
            examples.append(TextExample((text,), label, (format_tree(node),), str(number - 1), number))
    if not examples:
        raise DataError("expected at least one tree with a label, got none.", path)
    left_out = {"neutral, in a task of two classes": n_neutral} if n_neutral else {}
    return TextSet(split, str(path), examples, left_out)


def _phrases(tree: Tree) -> Iterator[Tree]:
    """The tree and its phrases of at least `SHORTEST_PHRASE` words, each sequence of words once."""
    seen: set[tuple[str, ...]] = set()
    for node in subtrees_of(tree):
        words = leaves_of(node)
        if words not in seen and (node is tree or len(words) >= SHORTEST_PHRASE):
            seen.add(words)
            yield node


# Data sets of the library `datasets`, whose class numbers are read by their names.


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


def read_dataset_split(task: Task, dataset: Any, split: str, source: str = "data set") -> TextSet:
    """Read a split of a `datasets.DatasetDict`, of a mapping from split to `Dataset`, or of one `Dataset`.

    Raises:
        ConfigError: There is no such split.
        DataError: A column is missing, or a row cannot be used; with its number.
    """
    if not hasattr(dataset, "column_names") or isinstance(dataset.column_names, dict):
        names = dict.fromkeys((split, *_SPLITS.get(split, ())))
        found = next((name for name in names if name in dataset), None)
        if found is None:
            raise ConfigError(
                f"split: expected {' or '.join(names)} in {source}, got {', '.join(map(str, dataset))}."
            )
        dataset = dataset[found]
    labelled = not split.startswith("test")
    where = f"{source}, {split}"
    binding = bind_columns(task, dataset.column_names, where, labelled)
    # Test sets of GLUE have the label -1 in every row.
    unlabelled = not labelled and binding.label and len(dataset) and dataset[0][binding.label] in (-1, None)
    binding = replace(binding, label=None if unlabelled else binding.label, no_label=(NO_LABEL,))
    return examples_from_rows(_dataset_rows(dataset, binding, where), binding, split, where)


def _dataset_rows(dataset: Any, binding: Binding, source: str) -> Iterator[Row]:
    """Rows with labels by name; numbers without names follow the task's order, and -1 means no label."""
    label, known = binding.label, binding.task_type.names
    names = getattr(dataset.features.get(label), "names", None) or known
    if not set(map(str.lower, names)) <= {name.lower() for name in known}:
        names = known
    for number, cells in enumerate(dataset, 1):
        if label is not None and known and isinstance(cells[label], int):
            value = cells[label]
            if not -1 <= value < len(names):
                raise DataError(
                    f"label: expected a class number from 0 to {len(names) - 1}, got {value}.", source, number
                )
            cells = {**cells, label: NO_LABEL if value == -1 else names[value]}
        yield Row(number, cells)


# The user's own tables.


def read_own_table(
    path: str | Path, task_type: TaskType, columns: TableColumns, name: str = "train", labelled: bool = True
) -> tuple[TextSet, TableColumns, TaskType]:
    """Read a table, or another file if the type has files of its own.

    A type without names of labels takes those of the file. `columns` are those that the user named. If it
    need not be `labelled`, blank lines between rows are refused, because rows are counted.

    Returns:
        The examples, the columns that were found, and the type with its labels.

    Raises:
        DataError: The file cannot be used; with the line.
        ConfigError: The role of the columns is not clear.
    """
    if (found := task_type.read_file(path, columns, name, labelled)) is not None:
        return found
    quoted, why = csv_quoted(path, columns.quotes)
    if why:
        level = logging.WARNING if why.startswith("nothing tells") else logging.INFO
        way, other = ("as in CSV, and removed", "text") if quoted else ("as part of the text", "csv")
        _log.log(level, "%s: quotes are read %s: %s. Otherwise set data.quotes=%s.", path, way, why, other)
    _refuse_other_separators(path, columns, labelled)
    table = read_table(path, partial(_numbered, path, columns, labelled), quoted, blank_lines=labelled)
    if columns.given or table.has_header:
        first = ["score"] if task_type.name == Score.name else []
        labels = list(dict.fromkeys([*first, *USUAL.label]))
        table, columns = _settle_columns(table, columns, path, labelled, labels)
    else:
        columns = replace(columns, text="1", label="2" if len(table.columns) == 2 else None)
    rows = list(table.rows)
    if columns.label is not None:
        task_type, rows = task_type.settle(rows, columns.label, path)
    binding = Binding(
        texts=columns.texts,
        label=columns.label,
        task_type=task_type,
        unlabelled=[] if labelled else task_type.blanks(),
    )
    return examples_from_rows(rows, binding, name, path), columns, task_type


def _numbered(
    path: str | Path, columns: TableColumns, labelled: bool, first: Sequence[str]
) -> list[str] | None:
    """Numbers as the names of columns if the first line is a row; None if it is a header."""
    numbers = [str(number) for number in range(1, len(first) + 1)]
    if columns.given:
        # A single cell that equals a column's number is a label; a header has all given names.
        given = set(columns.given)
        return numbers if given <= set(numbers) and not given <= set(first) else None
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
    table: Table, columns: TableColumns, path: str | Path, labelled: bool, labels: Sequence[str]
) -> tuple[Table, TableColumns]:
    """Find the columns by the names that the user gave, or by usual names; `labels` are those of labels."""
    first = next(table.rows, None)
    if first is None:
        raise DataError("expected rows of text and label, got none.", path)
    found, usual = table.columns, USUAL.texts
    # Without required labels a model predicts; its columns are known, and no option can name others.
    text, pair = ("--text-column", "--text-pair-column") if labelled else _AS_TRAINED
    text_column = pick_column(found, (columns.text,) if columns.text else usual[0], text, path)
    pair_column = next((name for name in usual[1] if name in found and not columns.text), None)
    if columns.pair:
        pair_column = pick_column(found, (columns.pair,), pair, path)
    names = (columns.label,) if columns.label else labels
    rows = chain([first], table.rows)
    if pair_column is None and not columns.text and table_format(path) == "json":
        rows = (_without_pair(one, path) for one in rows)
    if columns.label and "," in columns.label and columns.label not in found:
        several, label = columns.label.split(","), columns.label
        for name in several if labelled else ():
            pick_column(found, (name,), "--label-column", path)
        label = label if set(several) <= set(found) else None
        if label is not None:
            rows = (one if one.problem else _joined(one, several, label) for one in rows)
    elif labelled:
        label = pick_column(found, names, "--label-column", path)
    else:
        label = next((name for name in names if name in found), None)
    settled = TableColumns(text_column, label, pair_column, columns.quotes)
    if twice := [name for name in settled.given if found.count(name) > 1]:
        raise DataError(f"line 1: expected column {twice[0]!r} once, got it twice. Rename one.", path)
    if labelled and not columns.given and (unread := {*usual[0], *labels} & set(found) - set(settled.given)):
        read, more = ", ".join(map(repr, settled.given)), ", ".join(sorted(map(repr, unread)))
        _log.warning("%s: %s are read, %s not. Choose by --text-column and --label-column.", path, read, more)
    return replace(table, rows=rows), settled


def _without_pair(row: Row, path: str | Path) -> Row:
    """The row of JSON, if it has no second text: line 1, which says the columns, has none."""
    if more := [name for name in USUAL.texts[1] if row.text(name)]:
        problem = f"row: expected the columns of line 1, got {', '.join(more)} as well."
        raise DataError(f"{problem} Give a second text in every row, or in none.", path, row.number)
    return row


def _joined(row: Row, columns: Sequence[str], name: str) -> Row:
    """The row with the cells of several columns in one."""
    return replace(row, cells={**row.cells, name: {one: row.cells.get(one) for one in columns}})


def _refuse_other_separators(path: str | Path, columns: TableColumns, labelled: bool) -> None:
    """Check that a CSV is not separated by semicolons or tabs.

    A single column of texts may contain them, so without labels one of the cells must be a column's name.
    """
    line = next(iter(read_lines(path)), "") if table_format(path) == "csv" else ""
    known = {*USUAL.texts[0], *USUAL.label, *columns.given}
    for separator, what in ((";", "semicolons"), ("\t", "tabs")):
        cells = next(csv.reader([line.replace("\r", " ")], delimiter=separator), [])
        if "," not in line and len(cells) > 1 and (labelled or known & set(cells)):
            raise DataError(
                f"expected commas between the cells of a CSV file, got {what}: {line[:80]!r}. "
                "Convert the file to commas, or to tabs with a name that ends in .tsv.",
                path,
                1,
            )
