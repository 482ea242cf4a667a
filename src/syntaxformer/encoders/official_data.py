"""The data of official tasks: their files, sentiment treebanks, and data sets of `datasets`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from syntaxformer.base.config import corpus_path
from syntaxformer.base.errors import ConfigError, DataError
from syntaxformer.base.files import plain_or_packed, read_lines
from syntaxformer.encoders.examples import Binding, TextExample, TextSet, examples_from_rows, text_set
from syntaxformer.encoders.tables import (
    BadRows,
    Row,
    is_dataset,
    open_dataset,
    pick_column,
    read_table,
    split_of,
)
from syntaxformer.encoders.tasks import Task
from syntaxformer.trees import format_tree, leaves_of, parse_trees
from syntaxformer.trees.constituency import subtrees_of

SHORTEST_PHRASE = 4  # in words, of a treebank, that is trained on; sentences may have any length
NO_LABEL = "-"


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
    if table.rows and table.rows[0].problem:
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

    Of `phrases`, each sequence of words is read once.

    Source: Socher et al. (2013); Bai et al. (2021), section 4.1: "all phrases with lengths larger than 3".
    """
    examples: list[TextExample] = []
    left_out: Counter[str] = Counter()
    for number, tree in enumerate(parse_trees(read_lines(path), path=path), 1):
        known: set[tuple[str, ...]] = set()
        for node in subtrees_of(tree) if phrases else (tree,):
            words = leaves_of(node)
            if words in known or (node is not tree and len(words) < SHORTEST_PHRASE):
                continue
            known.add(words)
            if node.label not in ("0", "1", "2", "3", "4"):
                raise DataError(f"sentiment: expected 0 to 4, got {node.label!r}.", path, number)
            if node.label not in task.treebank:
                left_out["neutral, in a task of two classes"] += 1
                continue
            text, label = " ".join(words), task.treebank[node.label]
            examples.append(TextExample((text,), label, (format_tree(node),), str(number - 1), number))
    return text_set(examples, left_out, split, BadRows(path))


def read_dataset_split(task: Task, dataset: Any, split: str, source: str = "data set") -> TextSet:
    """Read a split of a `datasets.DatasetDict`, of a mapping from split to `Dataset`, or of one `Dataset`.

    Labels are read by name; numbers without names follow the task's order, and -1 means no label.

    Raises:
        ConfigError: There is no such split.
        DataError: A column is missing, or a row cannot be used; with its number.
    """
    dataset = split_of(dataset, split, source)
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
