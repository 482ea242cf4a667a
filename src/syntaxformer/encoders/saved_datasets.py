"""Hugging Face `datasets` as a source: folders of `save_to_disk`, data sets in memory, names on the Hub.

Columns are known by the names that the GLUE, SNLI, SICK and SST data sets have there; class numbers by the
names that the data set gives them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from syntaxformer.base.errors import ConfigError, DataError
from syntaxformer.encoders.labelled_rows import examples_from_rows
from syntaxformer.encoders.official_files import bind_columns
from syntaxformer.encoders.tables import Row
from syntaxformer.encoders.task_table import Task
from syntaxformer.encoders.text_sets import TextSet

__all__ = ["HUB", "is_saved_dataset", "open_dataset", "read_dataset_split"]

HUB = "hub:"
"""Before a name on the Hub: "hub:nyu-mll/glue:cola"."""

NO_LABEL = "-"

_SPLITS = {
    "train": ("train",),
    "dev": ("validation", "validation_matched", "dev", "trial"),
    "dev_mismatched": ("validation_mismatched",),
    "test": ("test", "test_matched"),
    "test_mismatched": ("test_mismatched",),
}
_MARKS = ("dataset_dict.json", "state.json")


def is_saved_dataset(folder: str | Path) -> bool:
    """Whether a folder was written by `save_to_disk`."""
    return any((Path(folder) / mark).is_file() for mark in _MARKS)


def open_dataset(source: str | Path) -> Any:
    """Open a data set.

    Args:
        source: A folder of `save_to_disk`, or "hub:NAME" or "hub:NAME:CONFIGURATION".

    Raises:
        ConfigError: There is none, or the Hub cannot be reached.
    """
    from datasets import load_dataset, load_from_disk

    text = str(source)
    try:
        if text.startswith(HUB):
            name, _, configuration = text.removeprefix(HUB).partition(":")
            return load_dataset(name, configuration or None)
        return load_from_disk(text)
    except Exception as error:  # the library raises a dozen classes, most of them for a missing network
        reason = " ".join(str(error).split())[:200]
        raise ConfigError(f"data: expected a data set at {text}, got: {reason}") from error


def read_dataset_split(task: Task, dataset: Any, split: str, source: str = "data set") -> TextSet:
    """Read a split of a data set.

    Args:
        task: The task.
        dataset: `datasets.DatasetDict`, a mapping from split to `datasets.Dataset`, or one `Dataset`.
        split: "train", "dev", "test", ….
        source: What messages call it.

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
    return examples_from_rows(_rows(task, dataset, binding.label, where), binding, split, where)


def _rows(task: Task, dataset: Any, label: str | None, source: str) -> Iterator[Row]:
    """Rows with labels by name; a class number without a name is taken in the task's order, -1 is none."""
    feature = dataset.features.get(label) if label else None
    known = task.labels or ()
    names = getattr(feature, "names", None) or known
    if not set(map(str.lower, names)) <= {name.lower() for name in known}:
        names = known
    for number, cells in enumerate(dataset, 1):
        if label is not None and task.labels is not None and isinstance(cells[label], int):
            value = cells[label]
            if not -1 <= value < len(names):
                raise DataError(
                    f"label: expected a class number from 0 to {len(names) - 1}, got {value}.", source, number
                )
            cells = {**cells, label: NO_LABEL if value == -1 else names[value]}
        yield Row(number, cells)
