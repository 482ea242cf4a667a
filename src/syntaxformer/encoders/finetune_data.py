"""The data of a fine-tuning run: official files, saved data sets, or a table of the user's own."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from pathlib import Path

from syntaxformer.base.errors import ConfigError, DataError
from syntaxformer.encoders.finetune_config import FinetuneConfig
from syntaxformer.encoders.official_files import TASKS, find_task, read_split
from syntaxformer.encoders.own_table import OWN_TASKS, TableColumns, hold_out, own_task, read_own_table
from syntaxformer.encoders.saved_datasets import HUB, is_saved_dataset, open_dataset, read_dataset_split
from syntaxformer.encoders.task_table import Task
from syntaxformer.encoders.text_sets import TextSet

__all__ = ["FinetuneData", "read_any_split", "read_finetune_data"]

_log = logging.getLogger("syntaxformer.finetune")


@dataclass(frozen=True)
class FinetuneData:
    """What a run learns from.

    Args:
        task: The task; for a table of the user's own made from it.
        train: Training examples.
        dev: Development examples.
        columns: Columns of the user's own table.
    """

    task: Task
    train: TextSet
    dev: TextSet
    columns: TableColumns = field(default_factory=TableColumns)


def read_finetune_data(config: FinetuneConfig) -> FinetuneData:
    """Read training and development data, and say what was left out.

    Raises:
        ConfigError: A file or folder is missing, or there is no such task.
        DataError: A file cannot be used, or holds one class only; with file and line.
    """
    found = _own(config) if config.task in OWN_TASKS else _known(config)
    found = FinetuneData(found.task, found.train.fraction(config.data.fraction), found.dev, found.columns)
    for texts in (found.train, found.dev):
        for reason, count in texts.left_out.items():
            _log.info("%s: left out %d rows: %s", texts.source, count, reason)
    _hold_classes(found)
    return found


def read_any_split(task: Task, source: str | Path, split: str, given: str | None = None) -> TextSet:
    """A split of a known task from official files, a saved data set or the Hub.

    Raises:
        ConfigError: There is none.
        DataError: It cannot be used.
    """
    if given is None and (str(source).startswith(HUB) or is_saved_dataset(source)):
        return read_dataset_split(task, open_dataset(source), split, str(source))
    return read_split(task, source, split, given)


def _known(config: FinetuneConfig) -> FinetuneData:
    task, data = find_task(config.task), config.data
    if data.dir is None:
        raise ConfigError(f"data: expected --data, the folder of {task.title}'s files, got none.")
    if given := [name for name in (data.text_column, data.text_pair_column, data.label_column) if name]:
        raise ConfigError(
            f"columns: expected none for the official files of {task.title}, got {', '.join(given)}. "
            "For a table of your own use --task classify or regress."
        )
    if data.train is None and (str(data.dir).startswith(HUB) or is_saved_dataset(data.dir)):
        dataset = open_dataset(data.dir)
        parts = [read_dataset_split(task, dataset, split, str(data.dir)) for split in ("train", "dev")]
        return FinetuneData(task, *parts)
    train = read_split(task, data.dir, "train", data.train, phrases=data.phrases)
    return FinetuneData(task, train, read_split(task, data.dir, "dev", data.dev))


def _own(config: FinetuneConfig) -> FinetuneData:
    data = config.data
    if data.train is None:
        raise ConfigError(
            f"train: expected --train, a table of texts and labels, for --task {config.task}, got none. "
            f"Known tasks: {', '.join(TASKS)}."
        )
    wanted = TableColumns(data.text_column, data.label_column, data.text_pair_column, data.quotes)
    train, columns, labels = read_own_table(_within(data.dir, data.train), config.task, wanted)
    if data.dev is None:
        train, dev = hold_out(train)
        _log.info("%s: held out %d of its rows as development set", train.source, len(dev))
    else:
        path = _within(data.dir, data.dev)
        dev, found, _ = read_own_table(path, config.task, columns, labels, name="dev")
        if len(found.texts) != len(columns.texts):
            raise DataError(f"columns: expected those of {train.source}, got others.", path)
    return FinetuneData(own_task(config.task, labels, len(columns.texts)), train, dev, columns)


def _within(folder: Path | None, name: str) -> Path:
    """A path, or a name in the data folder."""
    path = Path(name)
    return folder / path if folder is not None and not path.exists() else path


def _hold_classes(data: FinetuneData) -> None:
    """Training on one class, or on equal scores, would teach nothing; dev without a class says nothing of it.

    Raises:
        DataError: It would.
    """
    found = {one.label for one in data.train.examples}
    if len(found) < 2:
        value = next(iter(found))
        name = value if data.task.labels is None else data.task.labels[int(value or 0)]
        raise DataError(
            f"label: expected at least two different ones to learn from, got only {name!r}.",
            data.train.source,
        )
    there = {one.label for one in data.dev.examples}
    if missing := [name for number, name in enumerate(data.task.labels or ()) if number not in there]:
        _log.warning(
            "%s: expected every class among the %d development rows, got none of %s: scores ignore it. "
            "Give --dev with all, or more rows: a single one, or a single text, cannot be in both parts.",
            *(data.dev.source, len(data.dev), ", ".join(missing)),
        )
