"""The labelled data of a run: training and development set, of official files or of the user's own.

`tables` reads rows, `examples` makes examples of them; `own_tables` and `official_data` know the columns.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, BeforeValidator, Field, ValidationError

from syntaxformer.base.config import apply_overrides, corpus_path
from syntaxformer.base.errors import ConfigError, DataError
from syntaxformer.encoders.examples import TextSet, fingerprints
from syntaxformer.encoders.official_data import read_any_split
from syntaxformer.encoders.own_tables import cells_of, read_own_table
from syntaxformer.encoders.tables import BadRows, Source, TableColumns, find_dev, find_rows, is_dataset
from syntaxformer.encoders.task_types import Score, TaskType
from syntaxformer.encoders.tasks import OWN_TASKS, TASKS, Task, find_task
from syntaxformer.runs.config import FRACTION_SEED, Section

if TYPE_CHECKING:
    from syntaxformer.encoders.finetune_config import FinetuneConfig

_log = logging.getLogger("syntaxformer.finetune")

HELD_OUT = 0.1  # share of the training rows, if there is no development file
FEW = 5  # a class with fewer examples is warned of
DUPLICATES, CONTRARY = "duplicates of an earlier row", "with the text of a row that has another label"
_MOST_SHOWN = 12


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
class FinetuneData:
    """The task of a run and its training and development data."""

    task: Task
    train: TextSet
    dev: TextSet
    columns: TableColumns = field(default_factory=TableColumns)
    held_out: tuple[list[str], ...] = ()  # whole rows of the user's table for development, and its header
    bad_rows: tuple[BadRows, ...] = ()  # that were left out by `data.skip_bad_rows`, of each file
    is_held_out: bool = False  # the development set was taken from the training rows


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
        problem = f"expected no option of tables, got {', '.join(options)}. Leave it out."
        raise ConfigError(f"--task {config.task}: {problem}")

    def find(name: str, split: str) -> Source:
        path = Path(corpus_path(name))
        is_below = data.dir is not None and not path.exists() and not is_dataset(path)
        return find_rows(data.dir / path if data.dir is not None and is_below else path, split)

    if data.train is not None:
        path = find(data.train, "train")
    elif data.dir is not None and is_dataset(data.dir):
        path = find_rows(data.dir, "train")
    else:
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
            held_out = tuple(cells_of(dev, path, columns))
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


def _check_classes(data: FinetuneData) -> None:
    """Check that there are different labels to learn, and warn of classes that the dev data lacks."""
    task_type = data.task.task_type
    of_train, of_dev = (
        {label for example in texts.examples for label in task_type.classes(example.label)}
        for texts in (data.train, data.dev)
    )
    # Of several labels, each holds or not.
    answers = {(*example.label,) for example in data.train.examples} if task_type.takes_lists else of_train
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
        DataError: There are too few rows, or none of the same class.
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
    if not held:
        problem = "expected a label with two rows, one of which can be held out, got none."
        raise DataError(f"{problem} Give a file with --dev.", train.source)
    rest = train.at([row for row in range(len(train)) if row not in held])
    return rest, replace(train.at(sorted(held)), name="dev", left_out={})


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


def report_labels(
    task_type: TaskType, train: TextSet, held_out: Sequence[TextSet] = ()
) -> tuple[dict[str, list[int]], list[str]]:
    """Compare rows to train on with each other, and with sets that must not share texts with them.

    Returns:
        Fault or class → the rows that have it, ascending, counted from 0; and warnings of what makes a model
        worse, or its scores on dev better than they are.
    """
    rows_of: dict[str, list[int]] = {}
    for row, fingerprint in enumerate(fingerprints(train.examples)):
        rows_of.setdefault(fingerprint, []).append(row)
    labels = [example.label for example in train.examples]
    is_classes = bool(task_type.names) and not isinstance(task_type, Score)
    contrary = [rows for rows in rows_of.values() if is_classes and len({labels[row] for row in rows}) > 1]
    faults = {
        DUPLICATES: sorted(row for rows in rows_of.values() for row in rows[1:]),
        CONTRARY: sorted(row for rows in contrary for row in rows),
    }
    warnings = []
    if contrary:
        pairs = [(train.examples[row].line, task_type.show(labels[row])) for row in contrary[0][:_MOST_SHOWN]]
        shown = ", ".join(f"line {line} ({label})" for line, label in pairs)
        problem = f"expected one label for each text, got several in {len(faults[CONTRARY]):,} rows"
        warnings.append(f"{train.source}: {problem}, as in {shown}. Mend or remove them.")
    for texts in held_out:
        shared = [fingerprint for fingerprint in fingerprints(texts.examples) if fingerprint in rows_of]
        faults[f"also in {texts.source}"] = sorted({row for name in shared for row in rows_of[name]})
        if shared:
            problem = f"{len(shared)} of its {len(texts)} rows have texts of the training rows"
            remedy = f"which raises scores on {texts.name}. Leave them out of one of the two."
            warnings.append(f"{texts.source}: {problem}, {remedy}")
    if is_classes:
        classes: dict[str, list[int]] = {name: [] for name in task_type.names}
        for row, label in enumerate(labels):
            for name in {*map(task_type.show, task_type.classes(label))}:
                classes[name].append(row)
        faults |= {f"of class {name}": rows for name, rows in classes.items()}
        if few := [f"{name} ({len(rows)})" for name, rows in classes.items() if len(rows) < FEW]:
            shown = ", ".join(few[:_MOST_SHOWN]) + ", …" * (len(few) > _MOST_SHOWN)
            problem = f"{train.source}: expected at least {FEW} rows with each class, got fewer of {shown}"
            warnings.append(f"{problem}. Such a class is hardly learned: add rows, or join classes.")
    return faults, warnings
