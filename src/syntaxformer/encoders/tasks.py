"""Tasks of fine-tuning, with official files or own tables, and the record of the task in a model folder.

A task is an entry of `tasks.yaml` and not a class. Its type, a class in `TYPES`, says what a network answers.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, model_validator

from syntaxformer.base.config import nearest, read_yaml
from syntaxformer.base.errors import ConfigError
from syntaxformer.base.files import read_record
from syntaxformer.encoders.metrics import CLASSIFICATION_METRICS, REGRESSION_METRICS
from syntaxformer.encoders.task_types import TYPES, TaskType
from syntaxformer.runs.loading import CLASSIFIER

FORMAT_VERSION = 1

Names = tuple[str, ...]
"""Possible names of a column or a file; the official one is first."""


class Task(BaseModel):
    """A task, an entry of `tasks.yaml`."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    name: str  # on the command line
    title: str  # in papers, and of the folder in the GLUE distribution
    type: str = "label"  # one of `TYPES`
    labels: Names | None = None  # as in the files, in the order of their numbers; None for scores
    metrics: Names  # official ones; their mean chooses the best epoch
    texts: tuple[Names, ...]  # the columns of one text or of two
    files: Mapping[str, Names] = {}  # of each split, plain or packed
    label: Names = ("label",)
    trees: tuple[Names, ...] = ()  # the column of each text's tree, if there is one
    index: Names = ("index", "id", "idx", "pairID", "pair_ID")  # numbers the examples of a test set
    headerless: Mapping[str, Names] = {}  # split → columns, for files without a header line
    no_label: Names = ()  # labels that mean "no label"; such rows are left out and counted
    score_range: tuple[float, float] | None = None  # predicted scores are clipped to it
    # Rows with too many cells or an empty text are left out and counted, as the official file has some.
    tolerant: bool = False
    # Label of a node → number of the label, for files of sentiment trees, one on each line; nodes with other
    # labels are left out.
    treebank: Mapping[str, int] = {}
    submission: Mapping[str, str] = {}  # split → name of the file that the GLUE server expects
    aliases: Names = ()  # further names on the command line
    own: bool = False  # the task has no files: the user gives a table

    @property
    def task_type(self) -> TaskType:
        """The type of the network's answers."""
        return TYPES[self.type].of(self)


_ALL = [
    Task(name=name, **content)
    for name, content in read_yaml(Path(__file__).with_name("tasks.yaml")).items()
    if not name.startswith(".")
]

TASKS: dict[str, Task] = {task.name: task for task in _ALL if not task.own}
"""All tasks with official files, by name."""

OWN_TASKS: dict[str, Task] = {task.name: task for task in _ALL if task.own}
"""Tasks on the user's own table, which also gives the labels."""

USUAL = next(iter(OWN_TASKS.values()))
"""The task that holds the usual column names of own tables."""

_OF_TYPES = {name for task in _ALL for name in (*task.metrics, *task.task_type.choosing)}

_NAMES = {
    name.replace("-", "").replace("_", ""): task
    for task in TASKS.values()
    for name in (task.name, *task.aliases)
}


def find_task(name: str) -> Task:
    """Find a task by name, in any case and with or without hyphens: "sst-2", "STS-B", "cola".

    Raises:
        ConfigError: There is no such task; the message names the nearest.
    """
    key = name.lower().replace("-", "").replace("_", "")
    if name in OWN_TASKS:
        problem = f"expected one with official files, got {name!r}, which is for your own tables."
        raise ConfigError(f"task: {problem}")
    if key not in _NAMES:
        hint = nearest(name.lower(), [*TASKS, *OWN_TASKS])
        raise ConfigError(f"task: expected a known task, got {name!r}. {hint}")
    return _NAMES[key]


class ClassifierInfo(BaseModel):
    """Content of `classifier.json`, one of the files in the folder of a fine-tuned model.

    - config.json, model.safetensors, infusion.json: the network
    - tokenizer files and the collator's settings: how texts become batches
    - classifier.json: task, its type, labels, metrics, annotator
    - recipe.yaml, run.json: how the model was trained, and its scores on dev
    - manifest.json: sizes and hashes of all other files; written last, so a folder that has it is complete
    """

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    format_version: int = FORMAT_VERSION
    task: str
    type: str  # one of `TYPES`
    labels: tuple[str, ...] | None = None
    words: tuple[str, ...] | None = None  # that a text-to-text model writes for each label
    metrics: tuple[str, ...]
    n_texts: int = Field(ge=1, le=2)
    score_range: tuple[float, float] | None = None
    score_scale: tuple[float, ...] | None = None  # as in `Score`
    longest_answer: int = 0  # characters, in training
    unanswerable: bool = False  # some questions had no answer in training
    annotator: str | None = Field(max_length=250, pattern="^[^\\x00-\\x1f]*$")  # of texts without trees
    annotator_version: str | None
    needs: tuple[str, ...] = ()  # columns of a sentence; a loaded model has those that its collator needs
    gold_trees: bool = False  # trees in the data replace those of the annotator
    text_column: str | None = None
    text_pair_column: str | None = None
    label_column: str | None = None
    quotes: str = "auto"  # as `data.quotes`
    eval_batch_size: int = Field(default=64, ge=1, le=2**20)

    @model_validator(mode="after")
    def _check_type(self) -> ClassifierInfo:
        if self.type not in TYPES:
            raise ValueError(f"type: expected one of {', '.join(TYPES)}, got {self.type!r}")
        if self.task_type.separate and self.n_texts != 2:
            raise ValueError(f"n_texts: expected 2 for the type {self.type!r}, got {self.n_texts}")
        if unknown := {*self.metrics} - {*CLASSIFICATION_METRICS, *REGRESSION_METRICS, *_OF_TYPES}:
            raise ValueError(f"metrics: expected known ones, got {unknown.pop()!r}")
        names = self.task_type.names  # raises an error if a field does not fit the type
        if len(names) > len({*names}):
            raise ValueError(f"labels: expected each once, got {', '.join(names)}")
        return self

    @property
    def task_type(self) -> TaskType:
        """The type of the network's answers, with the stored labels."""
        return TYPES[self.type].of(self)


def read_classifier_info(folder: Path) -> ClassifierInfo:
    """Read `classifier.json`.

    Raises:
        CheckpointError: The file is missing or has a format that this version does not write.
    """
    return read_record(folder / CLASSIFIER, ClassifierInfo, FORMAT_VERSION)


def missed_note(never_predicted: Mapping[str, int]) -> str:
    """A message about labels that are never predicted, with the number of their rows, as in `run.json`."""
    shown = (f"{label} ({n:,} row{'s' * (n > 1)})" for label, n in never_predicted.items())
    return f"never predicted: {', '.join(shown)}"
