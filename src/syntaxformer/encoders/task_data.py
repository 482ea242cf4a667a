"""The labelled data of a task: official files, sentiment treebanks, data sets of `datasets`, or own files.

`tables` reads rows, and `examples_from_rows` makes examples of them, with all checks of texts and labels.
Columns of an own table are named by the user, recognised by usual names, or are text and label in a table of
two columns without header. Tags of words and questions have files of their own: CoNLL columns, CoNLL-U among
them, lists in JSON, and SQuAD's JSON.
"""

from __future__ import annotations

import csv
import json
import logging
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, BeforeValidator, Field, ValidationError

from syntaxformer.base.config import apply_overrides, corpus_path
from syntaxformer.base.downloads import say_download
from syntaxformer.base.errors import ConfigError, DataError
from syntaxformer.base.files import plain_or_packed, read_lines, without_packing
from syntaxformer.encoders.label_report import report_labels
from syntaxformer.encoders.multi_output_tasks import WordTags, spans_of
from syntaxformer.encoders.tables import (
    BadRows,
    DatasetRows,
    Row,
    Source,
    Table,
    TextExample,
    TextSet,
    as_line,
    csv_quoted,
    holds_objects,
    in_place,
    pick_column,
    read_table,
    table_format,
)
from syntaxformer.encoders.task_types import OneLabel, Score, TaskType
from syntaxformer.encoders.tasks import OWN_TASKS, TASKS, USUAL, Task, find_task
from syntaxformer.runs.config import FRACTION_SEED, Section
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

CONLLU = ["id", "form", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc"]
"""Columns of CoNLL-U."""

NO_LABEL = "-"
BAD = "row that cannot be used"
_WORDS = ("tokens", "words")
_COMMENT = re.compile(r"#\s?\S+\s*[=:]|# ?(new\w+|id)\b|#$")

_SPLITS = {
    "train": ("train",),
    "dev": ("validation", "validation_matched", "dev", "trial"),
    "dev_mismatched": ("validation_mismatched",),
    "test": ("test", "test_matched"),
    "test_mismatched": ("test_mismatched",),
}
"""Our name for a split → its names in data sets."""


class LabelledData(Section):
    """Where texts and labels come from."""

    dir: Annotated[Path | None, BeforeValidator(corpus_path)] = Field(
        default=None,
        description="folder of the task's official files or of a saved data set, or hub:NAME on the Hub",
    )
    train: str | None = Field(default=None, description="training file, if it is not the task's official one")
    dev: str | None = Field(
        default=None,
        description="development file; an own table without one holds out a tenth of its training rows",
    )
    fraction: float = Field(
        default=1.0, gt=0, le=1, description="share of the training data to use; smaller ones are nested"
    )
    rows: int | None = Field(
        default=None, ge=1, description="first rows of the training file (squad: paragraphs); null: all"
    )
    phrases: bool = Field(
        default=True, description="treebanks: also train on phrases of four words or more (Bai et al. 2021)"
    )
    text_column: str | None = Field(
        default=None, description="own tables: name or number of the text's column"
    )
    text_pair_column: str | None = Field(default=None, description="own tables: column of a second text")
    label_column: str | None = Field(default=None, description="own tables: column of the label or score")
    quotes: Literal["auto", "csv", "text"] = Field(
        default="auto",
        description="own TSV: quotes enclose cells (csv) or are text; auto decides by the file and logs why",
    )
    skip_bad_rows: int = Field(
        default=0,
        ge=0,
        description="own data: leave out up to so many rows of a file that cannot be used, and list them in "
        "bad_rows.csv; more are refused",
    )
    cache: Path | None = Field(
        default=None, description="folder for annotated text; null: the user's cache folder"
    )


class DataSettings(BaseModel):
    """The settings of a run that its data need; others are not looked at."""

    task: str
    data: LabelledData = LabelledData()


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
    def named(self) -> list[str]:
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
    bad_rows: tuple[BadRows, ...] = ()
    """Rows that were left out by `data.skip_bad_rows`, of each file."""
    is_held_out: bool = False
    """Whether the development set was taken from the training rows."""


def read_early(content: Mapping[str, Any], overrides: Sequence[str]) -> FinetuneData | None:
    """Read the data of a run before all else, because its other settings need torch, which takes seconds.

    None if the settings of the data cannot be used: `load_finetune` then says all that is wrong.
    """
    try:
        settings = DataSettings.model_validate(apply_overrides(content, overrides))
    except (ConfigError, ValidationError):
        return None
    return read_finetune_data(settings)


def read_finetune_data(config: DataSettings | FinetuneConfig) -> FinetuneData:
    """Read training and development data, and log what was left out.

    Raises:
        ConfigError: A file or folder is missing, or there is no such task.
        DataError: A file cannot be used, or has only one class; with file and line.
    """
    is_own = config.task in OWN_TASKS
    data = _own_data(config) if is_own else _official_data(config)
    data = replace(data, train=data.train.part(config.data.rows, config.data.fraction))
    for texts in (data.train, data.dev):
        for reason, count in texts.left_out.items():
            _log.info("%s: left out %d rows: %s", texts.source, count, reason)
    _check_classes(data)
    if is_own:
        sets = [] if data.is_held_out else [data.dev]
        for warning in report_labels(data.task.task_type, data.train, sets)[1]:
            _log.warning("%s", warning)
    return data


def _official_data(config: DataSettings | FinetuneConfig) -> FinetuneData:
    task, data = find_task(config.task), config.data
    if data.dir is None:
        raise ConfigError(f"data: expected --data, the folder of {task.title}'s files, got none.")
    if named := [name for name in (data.text_column, data.text_pair_column, data.label_column) if name]:
        raise ConfigError(
            f"columns: expected none for the official files of {task.title}, got {', '.join(named)}. "
            "For a table of your own use --task classify or regress."
        )
    if data.skip_bad_rows:
        raise ConfigError(f"data.skip_bad_rows: expected 0 for the official files of {task.title}, got more.")
    train = read_any_split(task, data.dir, "train", data.train, data.phrases)
    return FinetuneData(task, train, read_any_split(task, data.dir, "dev", data.dev))


def _own_data(config: DataSettings | FinetuneConfig) -> FinetuneData:
    data = config.data
    task = OWN_TASKS[config.task]
    task_type = task.task_type
    unread = ["text_pair_column", "quotes", *["text_column", "label_column"] * (task_type.parts == "span")]
    options = [f"data.{name}" for name in unread if getattr(data, name) not in (None, "auto")]
    if task_type.parts and options:
        raise ConfigError(
            f"--task {config.task}: expected no option of tables, got {', '.join(options)}. Leave it out."
        )

    def find(name: str, split: str) -> Source:
        path = Path(corpus_path(name))
        is_below = data.dir is not None and not path.exists() and not is_dataset(path)
        return find_rows(data.dir / path if data.dir is not None and is_below else path, split)

    path = None if data.train is None else find(data.train, "train")
    if path is None and data.dir is not None and is_dataset(data.dir):
        path = find_rows(data.dir, "train")
    if path is None:
        raise ConfigError(
            f"train: expected --train, a table of texts and labels, for --task {config.task}, or --data with "
            f"a saved data set, got none. Known tasks: {', '.join(TASKS)}."
        )
    columns = TableColumns(data.text_column, data.label_column, data.text_pair_column, data.quotes)
    bad = [BadRows(path, data.skip_bad_rows)]
    train, columns, task_type = read_own_table(path, task_type, columns, bad=bad[0])
    held_out: tuple[list[str], ...] = ()
    dev_path = find_dev(data.dir) if data.dev is None else find(data.dev, "dev")
    if dev_path is None:
        train, dev = hold_out(train, task_type.parts == "span")
        if not task_type.parts:  # those have no table
            held_out = tuple(_cells_of(dev, path, columns))
        _log.info("%s: held out %d of its rows as development set", train.source, len(dev))
    else:
        bad.append(BadRows(dev_path, data.skip_bad_rows))
        dev, dev_columns, _ = read_own_table(dev_path, task_type, columns, name="dev", bad=bad[1])
        if len(dev_columns.texts) != len(columns.texts):
            raise DataError(f"columns: expected those of {train.source}, got others.", dev_path)
    update = {"labels": task_type.names or None, "texts": task.texts[: len(columns.texts)]}
    left_out = tuple(of_file for of_file in bad if of_file.rows)
    task = task.model_copy(update=update)
    return FinetuneData(task, train, dev, columns, held_out, left_out, dev_path is None)


def _cells_of(texts: TextSet, path: Source, columns: TableColumns) -> Iterator[list[str]]:
    """The rows of some examples as they stand in their table, after its header if it has one."""
    table = read_table(path, partial(_numbered, path, columns, True), csv_quoted(path, columns.quotes)[0])
    if table.has_header:
        yield table.columns
    lines = {example.line for example in texts.examples}
    for row in table.rows:
        if row.number in lines:
            cells = ("" if (cell := row.cells.get(name)) is None else cell for name in table.columns)
            yield [json.dumps(c, ensure_ascii=False) if isinstance(c, list | dict) else str(c) for c in cells]


def _check_classes(data: FinetuneData) -> None:
    """Check that there are different labels to learn, and warn of classes that the dev data lacks."""
    task_type = data.task.task_type
    of_train, of_dev = (
        {label for example in texts.examples for label in task_type.classes(example.label)}
        for texts in (data.train, data.dev)
    )
    # Of several labels, each holds or not.
    answers = {(*one.label,) for one in data.train.examples} if task_type.takes_lists else of_train
    if len(answers) < 2:
        got = f"{task_type.show(answers.pop())!r}"
        problem = f"label: expected at least two different ones to learn from, got only {got}."
        raise DataError(problem, data.train.source)
    names = enumerate(task_type.names if not isinstance(task_type, Score) else ())
    if missing := [name for number, name in names if not of_dev & {number, name}]:
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
        problem = f"expected at least 20 rows to hold a tenth out, got {len(train)}. Give a file with --dev."
        raise DataError(problem, train.source)
    groups: dict[tuple[str, ...], list[int]] = {}
    for row, example in enumerate(train.examples):
        groups.setdefault(example.texts[-1:] if by_last else example.texts, []).append(row)
    singly = _held_rows(train, [[row] for row in range(len(train))])
    held = _held_rows(train, list(groups.values()))
    if 2 * len(held) < len(singly):
        held = singly
        _log.warning("%s: both parts have equal texts, which raises scores on dev. Give --dev.", train.source)
    dev = [train.examples[row] for row in sorted(held)]
    rest = [example for row, example in enumerate(train.examples) if row not in held]
    return replace(train, examples=rest), replace(train, examples=dev, name="dev", left_out={})


def _held_rows(train: TextSet, groups: Sequence[Sequence[int]]) -> set[int]:
    """Choose groups of rows at random that fit into the share of each class; scores are one class."""
    classes = [example.label if isinstance(example.label, int) else None for example in train.examples]
    counts = Counter(classes)
    left = Counter({name: max(1, int(n * HELD_OUT)) for name, n in counts.items() if n > 1})
    n_spare = max(0, round(len(train) * HELD_OUT) - left.total())
    left.update(sorted(left, key=lambda name: counts[name] * HELD_OUT % 1, reverse=True)[:n_spare])
    held: set[int] = set()
    for group in np.random.default_rng(FRACTION_SEED).permutation(len(groups)):  # the same every time
        of_group = Counter(classes[row] for row in groups[group])
        if of_group <= left:
            left -= of_group
            held.update(groups[group])
    return held


# Rows to examples.


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


def examples_from_rows(rows: Iterable[Row], binding: Binding, name: str, bad: BadRows) -> TextSet:
    """Make examples from rows.

    Raises:
        DataError: No row is left, or more rows than `bad` allows are broken, have an empty text, an unknown
            label, or a score that is not a number or out of range.
    """
    examples: list[TextExample] = []
    left_out: Counter[str] = Counter()

    def read(row: Row) -> TextExample | str:
        if row.problem and binding.tolerant:
            return "broken row"
        row.check()
        if binding.label is not None and row.text(binding.label) in binding.no_label:
            return "no gold label"
        texts = tuple(_text(row, column, binding.tolerant) for column in binding.texts)
        if not all(texts):
            return "empty text"
        trees = tuple(row.text(column) or None for column in binding.trees)
        index = str(len(examples)) if binding.index is None else row.text(binding.index)
        return TextExample(texts, _label(row, binding), trees, index, row.number)

    for _, example in bad.whole(rows, read):
        if isinstance(example, str):
            left_out[example] += 1
        else:
            examples.append(example)
    return _text_set(examples, left_out, name, bad)


def _text_set(examples: list[TextExample], left_out: Mapping[str, int], name: str, bad: BadRows) -> TextSet:
    """The examples of a source of which all rows were read, without its bad rows."""
    bad.refuse()
    left_out = {**left_out, **({BAD: len(bad.rows)} if bad.rows else {})}
    if not examples:
        counts = "".join(f"; left out: {count} ({reason})" for reason, count in left_out.items())
        raise DataError(f"expected at least one example, got none{counts}.", bad.source)
    return TextSet(name, str(bad.source), examples, left_out)


def _text(row: Row, column: str, may_be_empty: bool) -> str:
    what, text = f"column {column!r}: expected", row.text(column)
    if column not in row.cells:
        raise ValueError(f"{what} it in every row, got none.")
    if isinstance(row.cells[column], list | dict | bool):  # of JSON
        problem = f"{what} a text, got {str(row.cells[column])[:60]}."
        raise ValueError(f"{problem} Join words with spaces; texts have a column each.")
    if not text and not may_be_empty:
        raise ValueError(f"{what} a text, got an empty one. Remove the row.")
    return text


def _label(row: Row, binding: Binding) -> Any:
    if binding.label is None:
        return None
    takes_lists = binding.task_type.takes_lists
    cell = row.cells.get(binding.label) if takes_lists else row.label(binding.label)
    if binding.unlabelled and cell in (None, *binding.unlabelled):
        return None
    return binding.task_type.read(cell, binding.fold_case)


# Official files.


def read_any_split(
    task: Task, source: str | Path, split: str, file: str | None = None, phrases: bool | None = None
) -> TextSet:
    """Read a split of a known task from official files, a saved data set or the Hub.

    `file` replaces the official file of the split: a path, or a name in the folder.

    Raises:
        ConfigError: There is no such file or split.
        DataError: The split cannot be used; with file and line.
    """
    if file is None and is_dataset(source):
        return read_dataset_split(task, open_dataset(source), split, str(source))
    path = _find_file(task, Path(source), split, file)
    if task.treebank:
        return _read_treebank(task, path, split, split == "train" if phrases is None else phrases)
    table = read_table(path, lambda _: task.headerless.get(split))
    if not table.rows:
        raise DataError("expected at least one example, got none.", path)
    if table.rows[0].problem:
        problem = f"{table.rows[0].problem} Check that this is the {split} file of {task.title}."
        raise DataError(problem, path, table.rows[0].number)
    labelled = not split.startswith("test") or split == "test_labeled"
    binding = bind_columns(task, table.columns, path, labelled and split != "diagnostic")
    return examples_from_rows(table.rows, binding, split, BadRows(path))


def _find_file(task: Task, folder: Path, split: str, file: str | None) -> Path:
    if file is None and split not in task.files:
        raise ConfigError(f"split: expected one of {', '.join(task.files)} for {task.title}, got {split!r}.")
    if file is None and not folder.is_dir():
        raise ConfigError(f"data: expected the folder of {task.title}'s files, got {folder}.")
    file = corpus_path(file)
    names = (file,) if file is not None else task.files[split]
    for path in [folder / name for name in names] + ([Path(file)] if file is not None else []):
        if (existing := plain_or_packed(path)) is not None:
            return existing
    raise ConfigError(
        f"data: expected {' or '.join(names)} (plain or packed) in {folder}, the {split} split of "
        f"{task.title}, found none."
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
    known: set[tuple[str, ...]] = set()
    for node in subtrees_of(tree):
        words = leaves_of(node)
        if words not in known and (node is tree or len(words) >= SHORTEST_PHRASE):
            known.add(words)
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


def _split_of(dataset: Any, split: str, source: str) -> Any:
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
    return DatasetRows(_split_of(open_dataset(source), split, str(source)), f"{source}, {split}")


def find_dev(folder: Path | None) -> Source | None:
    """The development split of a data set; None if it has none, or is one `Dataset` or no data set."""
    if folder is None or not is_dataset(folder) or (folder / "state.json").is_file():
        return None
    has_dev = {"dev", *_SPLITS["dev"]} & {*(dataset := open_dataset(folder))}
    return DatasetRows(_split_of(dataset, "dev", str(folder)), f"{folder}, dev") if has_dev else None


def read_dataset_split(task: Task, dataset: Any, split: str, source: str = "data set") -> TextSet:
    """Read a split of a `datasets.DatasetDict`, of a mapping from split to `Dataset`, or of one `Dataset`.

    Labels are read by name; numbers without names follow the task's order, and -1 means no label.

    Raises:
        ConfigError: There is no such split.
        DataError: A column is missing, or a row cannot be used; with its number.
    """
    dataset = _split_of(dataset, split, source)
    where, labelled = f"{source}, {split}", not split.startswith("test")
    binding = bind_columns(task, dataset.column_names, where, labelled)
    # Test sets of GLUE have the label -1 in every row.
    unlabelled = not labelled and binding.label and len(dataset) and dataset[0][binding.label] in (-1, None)
    label = None if unlabelled else binding.label
    known = binding.task_type.names
    names = getattr(dataset.features.get(label), "names", None) or known
    if not set(map(str.lower, names)) <= {name.lower() for name in known}:
        names = known

    def rows() -> Iterator[Row]:
        for number, cells in enumerate(dataset, 1):
            if label is not None and known and isinstance(value := cells[label], int):
                if not -1 <= value < len(names):
                    problem = f"label: expected a class number from 0 to {len(names) - 1}, got {value}."
                    raise DataError(problem, where, number)
                cells = {**cells, label: NO_LABEL if value == -1 else names[value]}
            yield Row(number, cells)

    binding = replace(binding, label=label, no_label=(NO_LABEL,))
    return examples_from_rows(rows(), binding, split, BadRows(where))


# The user's own tables.


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
        return _read_words(path, task_type, columns, name, labelled, bad)
    if task_type.parts == "span":
        columns = replace(columns, text="question", pair="context")
        return _read_questions(path, name, labelled, bad), columns, task_type
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


# Tags of words.


@dataclass(frozen=True)
class _TaggedSentence:
    """The line, word and tag of each row of a sentence; without tags if they are unknown."""

    lines: list[int]
    words: list[str]
    tags: list[str]


def _read_words(
    path: Source, task_type: WordTags, columns: TableColumns, name: str, labelled: bool, bad: BadRows
) -> tuple[TextSet, TableColumns, TaskType]:
    """Read sentences in CoNLL columns, or with lists of words and tags in the rows of a table.

    Raises:
        DataError: Rows have too few or too many cells, a tag is missing, or unknown in training, or nothing
            is there.
    """
    if table_format(path) == "csv" or has_lists(path, columns.text):
        sentences, columns = _listed_words(task_type.labels, path, columns, labelled, bad)
    else:
        sentences, columns = _conll_words(path, columns, labelled, bad)
    counts = Counter(tag for sentence in sentences for tag in sentence.tags if tag)
    learns = bool(counts) and not task_type.labels
    if learns:
        task_type = task_type.with_labels(counts, path)
        if odd := task_type.unlike_spans(counts):
            told = "%s: tags mark spans, except %s. So words are scored, not spans by F1. Correct these."
            _log.warning(told, path, ", ".join(map(repr, odd)))
    read_by: Any = task_type
    if name != "train" and task_type.labels:
        read_by = task_type.widened(counts.elements(), path)
    known, examples, n_bare = {*read_by.labels}, [], 0
    for sentence in sentences:
        if wrong := {*sentence.tags} - known:
            for line, word, tag in zip(sentence.lines, sentence.words, sentence.tags, strict=True):
                if tag in wrong:
                    expected = f"tag of {word!r}: expected one of {', '.join(task_type.labels)}"
                    bad.add(line, [word, tag], f"{expected}, got {repr(tag) if tag else 'none'}.")
            continue
        if task_type.is_bio:
            n_bare += sum(sentence.tags[first][0] == "I" for _, first, _ in spans_of(sentence.tags))
        text, label = " ".join(sentence.words), tuple(sentence.tags) or None
        index, words = str(len(examples)), tuple(sentence.words)
        examples.append(TextExample((text,), label, (), index, sentence.lines[0], words))
    if n_bare:
        _log.info("%s: %d spans begin with I-, not B-; they count, as in seqeval", path, n_bare)
    return _text_set(examples, {}, name, bad), columns, task_type


def _header(path: Source) -> set[str]:
    """The cells of line 1, as far as they can be told before it is known how the file is read."""
    return {cell.strip(' "') for cell in re.split("[\t,]", next(iter(read_lines(str(path))), ""))}


def has_lists(path: Source, column: str | None = None) -> bool:
    """Whether words and tags stand in lists in the cells of a table, and not in CoNLL columns."""
    if holds_objects(path):
        return True
    second = next(islice(read_lines(str(path)), 1, None), "")
    return bool({column, *_WORDS} & _header(path)) and '["' in second.replace('""', '"')


def _listed_words(
    known: Sequence[str], path: Source, columns: TableColumns, labelled: bool, bad: BadRows
) -> tuple[list[_TaggedSentence], TableColumns]:
    table = read_table(path, quoted=csv_quoted(path)[0])
    word = pick_column(table.columns, (columns.text,) if columns.text else _WORDS, "words", path)
    names = (columns.label,) if columns.label else ("tags", "ner_tags", "pos_tags", "upos", "labels")
    tag = next((name for name in names if name in table.columns), names[0])

    def read(row: Row) -> _TaggedSentence:
        row.check()
        words, tags = _as_json(row.cells.get(word)), _as_json(row.cells.get(tag))
        tags = [] if tags in (None, "") and not labelled else tags
        are_lists = isinstance(words, list) and isinstance(tags, list)
        is_right = are_lists and (len(tags) == len(words) or not (tags or labelled))
        if not is_right or not words or not all(str(text).strip() for text in words):
            problem = f"expected lists {word!r} and {tag!r} of as many words as tags, at least one, got"
            raise ValueError(f"{problem} {str(words)[:60]} and {str(tags)[:60]}.")
        numbers = (cell for cell in tags or () if isinstance(cell, int) and str(cell) not in known)
        if (number := next(numbers, None)) is not None:
            problem = f"{tag}: expected names of tags, such as B-PER, got the number {number}. A data set of"
            remedy = f"`datasets` has them in data.features[{tag!r}].feature.names: write these."
            raise ValueError(f"{problem} {remedy}")
        return _TaggedSentence([row.number] * len(words), list(map(str, words)), list(map(as_line, tags)))

    sentences = [sentence for _, sentence in bad.whole(table.rows, read)]
    return sentences, replace(columns, text=word, label=tag)


def _as_json(cell: Any) -> Any:
    """A list or an object that JSON writes in a cell of text; other cells are themselves."""
    try:
        return json.loads(cell) if isinstance(cell, str) and cell[:1] in "[{" else cell
    except ValueError:
        return cell


def _conll_words(
    path: Any, columns: TableColumns, labelled: bool, bad: BadRows
) -> tuple[list[_TaggedSentence], TableColumns]:
    lines = list(enumerate(read_lines(path), 1))
    rows = [line for line in lines if line[1].strip() and not line[1].startswith("-DOCSTART-")]
    # A row for sure: # may begin a comment or be a word.
    start, first = next((line for line in rows if line[1][0] != "#"), rows[0] if rows else (1, ""))
    separator = "\t" if "\t" in first else None
    n_cells, is_conllu = len(first.split(separator)), bool(re.match(r"\d\S*\t([^\t]*\t){8}[^\t]*$", first))
    blocks: list[list[tuple[int, list[str]]]] = [[]]
    for number, line in lines:
        is_comment = is_conllu or (separator or "") not in line or _COMMENT.match(line)
        if not line.strip() or line.startswith("-DOCSTART-"):
            blocks.append([])
        elif blocks[-1] or not (line.startswith("#") and is_comment):
            blocks[-1].append((number, line.split(separator)))
    if not (blocks := [block for block in blocks if block]):
        raise DataError("expected a word and its tag in each line, got an empty file.", path)
    numbers = [str(number) for number in range(1, n_cells + 1)]
    names = CONLLU if is_conllu else numbers  # as they are stored: a number may be another column elsewhere
    usual = ("form", "upos") if is_conllu else ("1", numbers[-1])
    chosen = columns.text or usual[0], columns.label or usual[1]
    word, tag = ({**_places(numbers), **_places(names)}.get(name) for name in chosen)
    if word is None or (labelled and tag in (None, word)) or (is_conllu and word == 0):
        problem = f"columns: expected two from 1 to {n_cells} (in CoNLL-U also {', '.join(CONLLU)}) for word"
        remedy = "Name them for training with --text-column and --label-column; other files need that layout."
        raise DataError(f"{problem} and tag, got {' and '.join(chosen)}. {remedy}", path, start)
    sentences = []
    for block in blocks:
        broken = [(number, row) for number, row in block if len(row) != n_cells or not row[word].strip()]
        for number, row in broken:
            problem = f"row: expected {n_cells} cells, as in line {start}, got {len(row)}: {row[:5]}."
            if len(row) == n_cells:
                problem = f"word: expected one in cell {word + 1}, got a blank: {row[:5]}."
            bad.add(number, row, f"{problem} Blank lines separate sentences.")
        if broken:
            continue
        # CoNLL-U has rows for multiword tokens (1-2) and empty nodes (1.1), too.
        words = [(number, row) for number, row in block if not is_conllu or row[0].isdecimal()]
        tags = [] if tag in (None, word) else [as_line(row[tag]) for _, row in words]
        sentences.append(
            _TaggedSentence([number for number, _ in words], [row[word] for _, row in words], tags)
        )
    return sentences, replace(columns, text=names[word], label=chosen[1] if tag is None else names[tag])


def _places(names: Sequence[str]) -> dict[str, int]:
    return {name: place for place, name in enumerate(names)}


# Questions.


def _read_questions(path: Source, name: str, labelled: bool, bad: BadRows) -> TextSet:
    """Read questions in SQuAD's JSON, version 1.1 or 2, or in the rows of a table, as on the Hub.

    Raises:
        DataError: It is neither, an answer does not stand at its place, or an id occurs twice.
    """
    examples, table, columns = dict[str, TextExample](), None, ("question", "context")
    if table_format(path) == "csv" or has_questions(path):
        table = read_table(path, quoted=csv_quoted(path)[0])
        for column in columns:
            pick_column(table.columns, (column,), column, path)

    def read(row: Row) -> None:
        row.check()
        question, index = row.cells, str(row.cells.get("id") or row.number)
        try:
            texts = tuple(in_place(cell) for name in columns if isinstance(cell := question.get(name), str))
            if len(texts) < 2 or index in examples or not all(map(str.strip, texts)):
                raise ValueError("expected an id of its own, a question and a context")
            label = _answers(question, texts[1], labelled)
        except ValueError as error:
            shown = f"question {index!r}: {error}. docs/guides/finetune.md shows the formats."
            raise ValueError(shown) from error
        number = row.number if table else question["paragraph"]
        examples[index] = TextExample(texts, label, (), index, number)

    for _ in bad.whole(table.rows if table else _squad_rows(path), read):
        pass
    return _text_set(list(examples.values()), {}, name, bad)


def has_questions(path: Source) -> bool:
    """Whether questions stand in the rows of a table, and not in a document of JSON."""
    if holds_objects(path):
        return Path(without_packing(str(path))).suffix.lower() != ".json"
    return {"question", "context"} <= _header(path)


def _squad_rows(path: Any) -> Iterator[Row]:
    """The questions of a document, each with its paragraph's context and number, and the line of its id."""
    content, line, position = "\n".join(read_lines(path, is_document=True)), 1, 0
    try:
        paragraphs = chain.from_iterable(article["paragraphs"] for article in json.loads(content)["data"])
        for number, paragraph in enumerate(paragraphs, 1):
            for question in paragraph["qas"]:
                place = content.find(json.dumps(question["id"], ensure_ascii=False), position)
                line = line + content.count("\n", position, place) if place >= 0 else 1
                position = place if place >= 0 else len(content)  # so none is looked for again
                yield Row(line, {**question, "context": paragraph["context"], "paragraph": number})
    except json.JSONDecodeError as error:
        got = "JSON lines" if error.msg == "Extra data" else f"what is no JSON: {error.msg}"
        problem = f"expected one object of JSON with all questions, as SQuAD's files are, got {got}."
        raise DataError(f"{problem} docs/guides/finetune.md shows it.", path, error.lineno) from error
    except (LookupError, TypeError, AttributeError) as error:
        problem = f"expected SQuAD's format, got: {error!r}. docs/guides/finetune.md shows it."
        raise DataError(problem, path) from error


def _answers(question: Any, context: str, labelled: bool) -> tuple[tuple[int, str], ...] | None:
    """All right answers: none where nothing answers the question, None where they are unknown."""
    if question.get("is_impossible"):
        return ()
    cell = _as_json(question.get("answers"))
    try:
        if isinstance(cell, dict):  # a table has lists of texts and of places
            pairs = [*zip(cell["answer_start"], cell["text"], strict=True)]
        else:
            pairs = [(answer["answer_start"], answer["text"]) for answer in cell or ()]
        answers = tuple((int(start), in_place(text)) for start, text in pairs)
    except (LookupError, TypeError) as error:
        expected = "answers: expected text and answer_start of each"
        raise ValueError(f"{expected}, got {str(cell)[:60]}") from error
    for start, text in answers:
        if not text or context[start : start + len(text)] != text:
            got = context[start : start + len(text)][:60]
            raise ValueError(f"expected {text[:60]!r} at character {start} of the context, got {got!r}")
    if isinstance(cell, dict):
        return answers
    if not answers and labelled:
        raise ValueError("expected answers, or is_impossible, got neither")
    return answers or None
