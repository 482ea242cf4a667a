"""Official files of a task to examples: which file a split is, which column is what.

Files may be packed (.gz); a file of the user's own choosing may stand for a split.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path

from syntaxformer.base.config import nearest
from syntaxformer.base.errors import ConfigError, DataError
from syntaxformer.encoders.glue import GLUE_TASKS
from syntaxformer.encoders.labelled_rows import Binding, examples_from_rows
from syntaxformer.encoders.nli import NLI_TASKS
from syntaxformer.encoders.own_table import OWN_TASKS
from syntaxformer.encoders.sst import SST_TASKS, read_treebank
from syntaxformer.encoders.tables import BrokenRow, Row, pick_column, read_rows
from syntaxformer.encoders.task_table import Names, Task
from syntaxformer.encoders.text_sets import TextSet

__all__ = ["TASKS", "bind_columns", "find_split_file", "find_task", "read_split"]

TASKS: dict[str, Task] = {task.name: task for task in (*GLUE_TASKS, *SST_TASKS, *NLI_TASKS)}
"""Every task by its name."""

_NAMES = {
    name.replace("-", "").replace("_", ""): task
    for task in TASKS.values()
    for name in (task.name, *task.aliases)
}


def find_task(name: str) -> Task:
    """The task of a name, written in any case and with or without hyphens: "sst-2", "STS-B", "cola".

    Raises:
        ConfigError: There is none; names the nearest.
    """
    key = name.lower().replace("-", "").replace("_", "")
    if name in OWN_TASKS:
        raise ConfigError(
            f"task: expected one with official files, got {name!r}, which is for your own tables."
        )
    if key not in _NAMES:
        known = [*TASKS, *OWN_TASKS]
        raise ConfigError(f"task: expected a known task, got {name!r}. {nearest(name.lower(), known)}")
    return _NAMES[key]


def find_split_file(task: Task, folder: str | Path, split: str, given: str | None = None) -> Path:
    """The file of a split.

    Args:
        task: The task.
        folder: Folder of the task's files.
        split: "train", "dev", ….
        given: A file to take instead: a path, or a name in the folder.

    Raises:
        ConfigError: The folder or the file is not there, or the task has no such split.
    """
    folder = Path(folder)
    if given is None and split not in task.files:
        raise ConfigError(f"split: expected one of {', '.join(task.files)} for {task.title}, got {split!r}.")
    if given is None and not folder.is_dir():
        raise ConfigError(f"data: expected the folder of {task.title}'s files, got {folder}.")
    names = (given,) if given is not None else task.files[split]
    candidates = [folder / name for name in names] + ([Path(given)] if given is not None else [])
    for path in candidates:
        for candidate in (path, path.with_name(path.name + ".gz")):
            if candidate.is_file():
                return candidate
    raise ConfigError(
        f"data: expected {' or '.join(names)} (plain or .gz) in {folder}, the {split} split of {task.title}, "
        "found none."
    )


def read_split(
    task: Task, folder: str | Path, split: str, given: str | None = None, phrases: bool | None = None
) -> TextSet:
    """Read a split of a task from its official files.

    Args:
        task: The task.
        folder: Folder of its files.
        split: "train", "dev", "test", "dev_mismatched", ….
        given: A file to take instead of the official one.
        phrases: For a treebank, whether phrases are examples too; None: in training.

    Raises:
        ConfigError: There is no such file or split.
        DataError: The file cannot be used; with file and line.
    """
    path = find_split_file(task, folder, split, given)
    if task.treebank:
        return read_treebank(task, path, split, split == "train" if phrases is None else phrases)
    rows = read_rows(path, task.headerless.get(split))
    labelled = not split.startswith("test") or split == "test_labeled"
    return _read(task, rows, split, path, labelled and split != "diagnostic")


def bind_columns(
    task: Task, columns: Iterable[str], source: str | Path, labelled: bool, fold_case: bool = True
) -> Binding:
    """Find a task's columns in a table.

    Args:
        task: The task.
        columns: What the table has.
        source: For messages.
        labelled: Whether labels must be there; where they need not be, they are used if they are.
        fold_case: Take labels in any case.

    Raises:
        DataError: A column is missing.
    """
    found = list(columns)
    texts = [pick_column(found, names, "text", source) for names in task.texts]
    label = pick_column(found, task.label, "label", source) if labelled else _first(task.label, found)
    trees = [name for names in task.trees if (name := _first(names, found)) is not None]
    return Binding(
        texts=texts,
        label=label,
        labels=None if task.labels is None else {name: number for number, name in enumerate(task.labels)},
        trees=trees if len(trees) == len(texts) else (),
        index=_first(task.index, found),
        no_label=task.no_label,
        score_range=task.score_range,
        tolerant=task.tolerant and labelled,
        fold_case=fold_case,
    )


def _read(task: Task, rows: Iterator[Row | BrokenRow], split: str, path: Path, labelled: bool) -> TextSet:
    first = next(rows, None)
    if first is None:
        raise DataError("expected at least one example, got none.", path)
    if isinstance(first, BrokenRow):
        raise DataError(
            f"row: {first.problem}. Is this the {split} file of {task.title}?", path, first.number
        )
    binding = bind_columns(task, first.cells, path, labelled)
    return examples_from_rows(chain([first], rows), binding, split, path)


def _first(names: Names, found: Iterable[str] | Mapping[str, object]) -> str | None:
    found = list(found)
    return next((name for name in names if name in found), None)
