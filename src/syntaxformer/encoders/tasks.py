"""Tasks of fine-tuning, with official files or on a table of one's own, and what a model folder keeps.

A task is a row of `tasks.yaml`, no class; what its networks answer is its type, a class in `TYPES`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, model_validator

from syntaxformer.base.config import nearest, read_yaml
from syntaxformer.base.errors import ConfigError
from syntaxformer.base.files import read_record
from syntaxformer.encoders.task_types import OneLabel, Score, TaskType, WrittenLabel
from syntaxformer.runs.loading import CLASSIFIER, verify_folder

TYPES: dict[str, type[TaskType]] = {one.name: one for one in (OneLabel, Score, WrittenLabel)}
"""What a network may answer: one of several labels, a score, or a label that it writes."""

FORMAT_VERSION = 1

Names = tuple[str, ...]
"""Names that a column or a file may have, the official one first."""


class Task(BaseModel):
    """A task.

    Args:
        name: On the command line.
        title: In papers, and the name of the folder in the GLUE distribution.
        type: One of `TYPES`.
        labels: Label names in the order of their numbers, as the files have them; None for scores.
        metrics: Official metrics; the mean of them chooses the best epoch.
        texts: For each of one or two texts the names of its column.
        files: Split → names of its file, with or without ".gz".
        label: Names of the label column.
        trees: For each text the names of its tree column, if there is one.
        index: Names of the column that numbers the examples of a test set.
        headerless: Split → columns, for files without a header line.
        no_label: Labels that mean that there is none: such a row is left out, and counted.
        score_range: Smallest and largest score; scores that are predicted are clipped to it.
        tolerant: Rows with too many cells or an empty text are left out and counted, not refused: the
            official file has some.
        treebank: The files are sentiment trees, one a line: label of a node → number of the label; nodes
            with another are left out.
        submission: Split → name of the file that the GLUE server takes.
        aliases: Further names on the command line.
        own: It has no files: the user gives a table.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    title: str
    type: str = "label"
    labels: Names | None = None
    metrics: Names
    texts: tuple[Names, ...]
    files: Mapping[str, Names] = {}
    label: Names = ("label",)
    trees: tuple[Names, ...] = ()
    index: Names = ("index", "id", "idx", "pairID", "pair_ID")
    headerless: Mapping[str, Names] = {}
    no_label: Names = ()
    score_range: tuple[float, float] | None = None
    tolerant: bool = False
    treebank: Mapping[str, int] = {}
    submission: Mapping[str, str] = {}
    aliases: Names = ()
    own: bool = False

    @property
    def task_type(self) -> TaskType:
        """What a network answers."""
        return TYPES[self.type].of(self)


_ALL = [
    Task(name=name, **content)
    for name, content in read_yaml(Path(__file__).with_name("tasks.yaml")).items()
    if not name.startswith(".")
]

TASKS: dict[str, Task] = {task.name: task for task in _ALL if not task.own}
"""Every task with official files, by its name."""

OWN_TASKS: dict[str, Task] = {task.name: task for task in _ALL if task.own}
"""Tasks on a user's own table; the labels are the table's."""

USUAL = next(iter(OWN_TASKS.values()))
"""Holds the names of columns that all tasks on own tables know by themselves."""

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


class ClassifierInfo(BaseModel):
    """Content of `classifier.json`, one of the files in the folder of a fine-tuned model.

    - config.json, model.safetensors, infusion.json: the network
    - tokenizer files and the collator's settings: text to batches
    - classifier.json: task, its type, labels, metrics, annotator
    - recipe.yaml, run.json: how it came to be, its scores on dev
    - manifest.json: sizes and hashes of all others; written last, so a folder that has it is whole
    """

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    format_version: int = FORMAT_VERSION
    task: str
    type: str
    """One of `TYPES`; folders of older versions do not name it."""
    labels: tuple[str, ...] | None = None
    words: tuple[str, ...] | None = None
    """What a text-to-text model writes for each label; None for a model with a classifier."""
    metrics: tuple[str, ...]
    n_texts: int = Field(ge=1, le=2)
    score_range: tuple[float, float] | None = None
    score_scale: tuple[float, float] | None = None
    """Mean and standard deviation of the training scores, where the network's output is in units of these."""
    annotator: str | None = Field(max_length=250, pattern="^[^\\x00-\\x1f]*$")
    """For text without trees of its own."""
    annotator_version: str | None
    needs: tuple[str, ...] = ()
    """Columns of a sentence that the model reads."""
    gold_trees: bool = False
    """Whether trees that the data carries take the annotator's place."""
    text_column: str | None = None
    text_pair_column: str | None = None
    label_column: str | None = None
    quotes: str = "auto"
    """How a TSV has them, as in `data.quotes`."""
    eval_batch_size: int = Field(default=64, ge=1, le=2**20)

    @model_validator(mode="before")
    @classmethod
    def _name_type(cls, content: Any) -> Any:
        """The type of a folder that does not name it."""
        if not isinstance(content, dict) or "type" in content:
            return content
        with_labels = "label" if content.get("words") is None else "text"
        return {**content, "type": "score" if content.get("labels") is None else with_labels}

    @model_validator(mode="after")
    def _check_type(self) -> ClassifierInfo:
        if self.type not in TYPES:
            raise ValueError(f"type: expected one of {', '.join(TYPES)}, got {self.type!r}")
        self.task_type  # noqa: B018 - refuses what does not fit it
        return self

    @property
    def task_type(self) -> TaskType:
        """What the network answers."""
        return TYPES[self.type].of(self)


def read_classifier_info(folder: Path) -> ClassifierInfo:
    """Read `classifier.json`.

    Raises:
        CheckpointError: It is missing or not what this version writes.
    """
    return read_record(folder / CLASSIFIER, ClassifierInfo, FORMAT_VERSION)


def missed_note(never_predicted: Mapping[str, int]) -> str:
    """What to say of labels that are never predicted, with their rows, as `run.json` has them."""
    shown = (f"{label} ({n:,} row{'s' * (n > 1)})" for label, n in never_predicted.items())
    return f"never predicted: {', '.join(shown)}"


verify_classifier_folder = partial(verify_folder, wanted=CLASSIFIER)
"""Check that a folder is a fine-tuned model that is finished and as it was written."""
