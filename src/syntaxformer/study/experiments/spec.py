"""The specification of an experiment: a YAML file with a base run, axes of named settings, and comparisons.

`load_spec` reads and checks it, and `Spec.cells` lists the runs of the grid. `store` knows which runs are
done and adds the runs of searches (Optuna).
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass
from functools import reduce
from itertools import chain, product
from pathlib import Path
from shlex import quote
from typing import Annotated, Any, Literal

import yaml
from pydantic import AfterValidator, Field, PrivateAttr, model_validator

from syntaxformer.base.config import MAX_SEED, apply_overrides, nearest, read_yaml, validate
from syntaxformer.base.errors import ConfigError
from syntaxformer.encoders.metrics import CLASSIFICATION_METRICS, REGRESSION_METRICS
from syntaxformer.infusion.config import INFUSIONS
from syntaxformer.runs.config import Section

Settings = dict[str, Any]
SEED = "seed"
TRIAL = "trial"
Only = Mapping[str, Set[str]]
"""Axis → levels of the wanted runs."""

TEST_SCORES = ("bleu", "chrf", "chrf++", "ter")
"""Metrics of translations of the test set."""

MAX_RUNS = 100_000
"""Most runs of an experiment; all are listed before the first one begins."""

MOST_PAIRS = 24
"""Most seeds of a planned comparison, whose test goes through all 2^n signs of their differences."""

MAX_NAME_BYTES = 200
"""Largest size of the readable part of a folder's name; file systems allow 255 in all."""


class ScoredText(Section):
    """A translated and scored test set; for `train` only."""

    src: Path = Field(description="source text, plain or packed")
    ref: Path = Field(description="reference translations, line by line")
    factors: dict[str, Path] = Field(
        default={}, description="your own factor → file with its values for src, as in data.factor_files"
    )
    annotator: str | None = Field(
        default=None, description="annotator of src; null: the recipe's, unless it has parses for each split"
    )

    def as_settings(self) -> dict[str, str]:
        """As a cell stores it: part → file or name."""
        factors = {f"factors.{name}": str(file) for name, file in self.factors.items()}
        annotator = {} if self.annotator is None else {"annotator": self.annotator}
        return {"src": str(self.src), "ref": str(self.ref), **factors, **annotator}


OWN_METRIC = re.compile(r"[^:]+\.py:[A-Za-z_]\w*")
METRICS_OF_FORM = {
    "src and ref": ("exact_match", *TEST_SCORES),
    "contrast": ("contrastive_accuracy",),
    "table": ("accuracy", *CLASSIFICATION_METRICS, *REGRESSION_METRICS),
}


class NamedTest(Section):
    """A test set with a name and metrics of its own. Results are called NAME_METRIC."""

    src: Path | None = Field(default=None, description="train: source text, plain or packed")
    ref: Path | None = Field(default=None, description="train: reference translations, line by line")
    contrast: Path | None = Field(
        default=None, description="train: a contrastive test as `score` reads it, in place of src and ref"
    )
    table: Path | None = Field(default=None, description="finetune: a labelled table, as data.dev")
    columns: Path | None = Field(
        default=None, description="a table with properties of each line: a header and a row for each line"
    )
    factors: dict[str, Path] = Field(default={}, description="as in test.factors")
    annotator: str | None = Field(default=None, description="as in test.annotator")
    metrics: list[str] = Field(
        min_length=1,
        description="exact_match, bleu, chrf, chrf++, ter; contrastive_accuracy of `contrast`; of `table` "
        "accuracy and the task's metrics; or your own function, FILE.py:NAME, whose file lies beside the "
        "experiment and which is called with source, hypothesis, reference and the columns of the line",
    )
    along: bool = Field(
        default=False,
        description="train: score at each evaluation of the training, too; the last is METRIC_last",
    )

    @model_validator(mode="after")
    def _is_consistent(self) -> NamedTest:
        forms = {"src and ref": self.src and self.ref, "contrast": self.contrast, "table": self.table}
        named = [name for name, path in forms.items() if path is not None]
        if len(named) != 1 or (self.src is None) != (self.ref is None):
            raise ValueError(
                f"expected src and ref, or contrast, or table, got {', '.join(named) or 'none'}."
            )
        (form,) = named
        known = METRICS_OF_FORM[form]
        for metric in self.metrics:
            if metric not in known and (form == "contrast" or not OWN_METRIC.fullmatch(metric)):
                or_file = "" if form == "contrast" else " or your own FILE.py:NAME"
                raise ValueError(f"metrics: expected {', '.join(known)}{or_file} with {form}, got {metric}.")
        if len({metric_name(metric) for metric in self.metrics}) < len(self.metrics):
            raise ValueError(f"metrics: expected different names, got {', '.join(self.metrics)}.")
        if form == "table" and (self.along or self.factors or self.annotator):
            raise ValueError("expected no along, factors or annotator with table, which are of translators.")
        if form == "contrast" and self.columns is not None:
            raise ValueError("columns: expected none with contrast, whose entries have keys of their own.")
        return self


def metric_name(metric: str) -> str:
    """The name of a metric in tables: of the user's own, that of the function."""
    return metric.rpartition(":")[2]


class PaperNumber(Section):
    """A number that a paper reports for some cells, of the report's first metric."""

    cell: dict[str, str] = Field(description="axis → level; omitted axes may have any level")
    value: float = Field(description="the number as the paper prints it")
    baseline: float | None = Field(
        default=None, description="number that the paper compares it with; null: its number for the baseline"
    )


class Contrast(Section):
    """A comparison that was written down before the first run."""

    name: str = Field(default="", description="what it asks, in a few words")
    cell: dict[str, str] = Field(min_length=1, description="axis → level of the rows in question")
    against: dict[str, str] = Field(
        min_length=1, description="axis → level of the rows that they are compared with"
    )
    metric: str | None = Field(
        default=None, description="metric, of a named test NAME_METRIC; null: the first of report.metrics"
    )
    direction: Literal["greater", "less", "either"] = Field(
        default="either", description="where p looks for a difference of cell from against"
    )
    seeds: int = Field(ge=2, le=MOST_PAIRS, description="number of seeds of both")
    sd: float | None = Field(
        default=None,
        gt=0,
        description="expected standard deviation over seeds of their difference, as the table prints it; "
        "null: that of the seeds of tune",
    )

    @property
    def words(self) -> str:
        """The comparison in words."""
        return self.name or f"{in_words(self.cell)} against {in_words(self.against)}"

    @property
    def sides(self) -> list[dict[str, str]]:
        """Axis → level of the rows that are compared with, and of those in question."""
        return [{**self.cell, **self.against}, self.cell]


class ReportConfig(Section):
    """What the report compares and draws."""

    primary: Contrast | None = Field(
        default=None, description="the one comparison that the experiment was made for"
    )
    secondary: list[Contrast] = Field(
        default=[], description="further planned comparisons; p is corrected over all planned ones (Holm)"
    )
    by: dict[str, str] = Field(
        default={}, description="NAME_METRIC of a named test → numeric column along which a figure shows it"
    )
    metrics: list[str] = Field(
        default=[],
        description="columns, of which the first is tested; empty: bleu, chrf++ and ter, or the task's",
    )
    baseline: dict[str, str] = Field(
        default={}, description="axis → level of the rows with which others are compared"
    )
    controls: list[dict[str, str]] = Field(
        default=[],
        description="further rows with which all are compared, each in its own table: axis → level",
    )
    effects: list[str] | None = Field(
        default=None,
        description="axes whose main effects and interactions are shown, each against its first level; null: "
        "those that are infusions, as `masks: [null, {}]`",
    )
    x: str | None = Field(
        default=None, description="axis along which a curve is drawn, by the number in each level's name"
    )
    x_label: str = Field(default="", description="label of the x axis")
    paper: list[PaperNumber] = Field(default=[], description="numbers of a paper to show next to ours")
    paper_source: str = Field(default="", description="where the paper prints them")
    scale: float = Field(default=1.0, gt=0, description="metrics are multiplied by this (100 for shares)")
    notes: list[str] = Field(default=[], description="paragraphs for the reader")

    @property
    def planned(self) -> list[Contrast]:
        """All comparisons that were planned, the primary one first."""
        return [*([self.primary] if self.primary else []), *self.secondary]

    def x_number(self, level: str) -> float:
        """The position of a level on the x axis: the first number in its name, or NaN.

        A number is one that stands alone, so that 2k is not 2; 1,450 is read as 1450.
        """
        try:
            return float(level)
        except ValueError:
            number = _ALONE.search(level)
            return float(number[0].replace(",", "")) if number else math.nan


_POINTLESS = re.compile(r"[-+]?\d+e[-+]?\d+", re.IGNORECASE)
_ALONE = re.compile(r"(?<![\w.,-])\d+(?:,\d{3})*(?:\.\d+)?(?:e[-+]?\d+)?(?![\w,]|\.\d)", re.IGNORECASE)


def _different(values: list[Any]) -> list[Any]:
    """The values, if there are some and none twice; YAML reads 1e-3, without a point, as text."""
    if not values:
        raise ValueError("expected at least one value, got none.")
    numbers = [float(v) if isinstance(v, str) and _POINTLESS.fullmatch(v) else v for v in values]
    if len(set(map(str, numbers))) < len(numbers):
        raise ValueError(f"expected different values, got {numbers}.")
    return numbers


Values = Annotated[list[Any], AfterValidator(_different)]


class Space(Section):
    """Values of a searched setting: a list, or bounds."""

    values: Values | None = Field(default=None, description="all values")
    low: int | float | None = Field(
        default=None, description="smallest value; if both bounds are whole numbers, so are all values"
    )
    high: int | float | None = Field(default=None, description="largest value")
    log: bool = Field(default=False, description="search on a logarithmic scale")

    @model_validator(mode="after")
    def _one_form(self) -> Space:
        n_bounds = (self.low is not None) + (self.high is not None)
        if n_bounds != (2 if self.values is None else 0):
            raise ValueError("expected values, or low and high.")
        if self.low is not None and self.high is not None:
            if self.low > self.high:
                raise ValueError(f"expected low up to high, got low {self.low} and high {self.high}.")
            if self.log and self.low <= 0:
                raise ValueError(f"expected low above 0 for log, got {self.low}.")
        return self

    @property
    def is_whole(self) -> bool:
        """Whether both bounds are whole numbers."""
        return isinstance(self.low, int) and isinstance(self.high, int)

    def holds(self, value: Any) -> bool:
        """Whether a search of this space may propose a value."""
        if self.values is not None:
            return json.dumps(value, default=str) in [json.dumps(v, default=str) for v in self.values]
        if self.low is None or self.high is None or isinstance(value, bool):
            return False
        return isinstance(value, int if self.is_whole else int | float) and self.low <= value <= self.high


class SearchConfig(Section):
    """A search by Optuna, with one study for each combination of levels, whose trials run one by one."""

    space: dict[str, Space] = Field(min_length=1, description="setting key → values")
    trials: int = Field(default=10, ge=1, description="trials of each study")
    metric: str = Field(default="dev_loss", description="metric by which trials are judged")
    direction: Literal["minimize", "maximize"] | None = Field(
        default=None,
        description="the better direction; null: minimize for dev_loss and ter, maximize for others",
    )
    sampler: Literal["tpe", "random", "grid"] = Field(
        default="tpe",
        description="how values are proposed; tpe draws a third of the trials, at most ten, at random first",
    )
    seed: int = Field(default=1, ge=0, le=MAX_SEED, description="seed of the sampler")

    @model_validator(mode="after")
    def _grid_of_values(self) -> SearchConfig:
        bounded = [name for name, space in self.space.items() if space.values is None]
        if self.sampler == "grid" and bounded:
            raise ValueError(f"grid: expected values for {', '.join(bounded)}, got low and high.")
        return self

    @property
    def n_combinations(self) -> int:
        """The number of combinations of all values."""
        return math.prod(len(space.values or ()) for space in self.space.values())

    @property
    def goal(self) -> Literal["minimize", "maximize"]:
        """The better direction: as given, or else that of the metric."""
        return self.direction or ("minimize" if self.metric in ("dev_loss", "ter") else "maximize")

    @property
    def best(self) -> Callable[..., Any]:
        """`min` or `max`, by the better direction."""
        return min if self.goal == "minimize" else max


class TuneConfig(Section):
    """Settings that are chosen on dev for each system, in runs of their own before those of the grid."""

    space: dict[str, Values] = Field(min_length=1, description="setting key → values to try")
    settings: Settings = Field(
        default={"seed": 99},
        description="of these runs, in place of an axis seed: a seed that no other run has",
    )
    seeds: list[int] = Field(
        default=[],
        description="seeds of these runs in place of settings, whose mean decides; three or more for systems "
        "of a planned comparison",
    )
    metric: str = Field(default="dev_loss", description="metric by which values are judged")
    direction: Literal["minimize", "maximize"] | None = Field(default=None, description="as in search")

    @property
    def in_words(self) -> str:
        """The seeds or settings of these runs."""
        if self.seeds:
            return f"the {'seeds' if len(self.seeds) > 1 else 'seed'} {', '.join(map(str, self.seeds))}"
        return json.dumps(self.settings)[1:-1]

    def as_search(self) -> SearchConfig:
        """The search that tries all combinations of the values."""
        space = {name: Space(values=values) for name, values in self.space.items()}
        search = SearchConfig(space=space, metric=self.metric, direction=self.direction, sampler="grid")
        return search.model_copy(update={"trials": search.n_combinations})


class Spec(Section):
    """An experiment."""

    name: str = Field(pattern=r"^[\w.-]+$", description="name of the folder of its runs in the store")
    title: str = Field(default="", description="heading of the report")
    question: str = Field(default="", description="the question that it answers, as a paragraph")
    verb: Literal["train", "finetune"] = Field(description="train: a translator; finetune: an encoder")
    recipe: str | None = Field(default=None, description="train: recipe file or bundled name")
    settings: Settings = Field(default={}, description="key.sub → value, for all runs")
    axes: dict[str, dict[str, Settings] | list[Any]] = Field(
        default={},
        description="axis → level → settings; a list gives the values of the key with this name, or for "
        "embedding, masks, relation_bias and lisa those of this section of infusion, of which null is `none` "
        "and {} is `default`",
    )
    exclude: list[dict[str, str]] = Field(default=[], description="combinations to leave out")
    test: ScoredText | None = Field(default=None, description="train: text to translate and score")
    tests: dict[str, NamedTest] = Field(
        default={}, description="name → a test set with metrics of its own, by line"
    )
    test_split: str | None = Field(
        default=None, description="finetune: a labelled split, such as test, that is scored besides dev"
    )
    search: SearchConfig | None = Field(default=None, description="search settings for each combination")
    tune: TuneConfig | None = Field(
        default=None, description="choose settings on dev for each combination before the runs of all seeds"
    )
    keep: Literal["all", "model", "scores"] = Field(
        default="model", description="what is kept of a run: all with checkpoints, the model, or only scores"
    )
    seconds: float | None = Field(
        default=None,
        gt=0,
        description="your estimate of a run's time (with all rows), used until one has finished",
    )
    report: ReportConfig = ReportConfig()
    _chosen: dict[str, Settings] = PrivateAttr(default_factory=dict)
    _folder: Path = PrivateAttr(default=Path())

    @model_validator(mode="after")
    def _is_consistent(self) -> Spec:
        if problems := [*self._grid_problems(), *self._tune_problems(), *self._report_problems()]:
            raise ValueError("\n".join(problems))
        return self

    @property
    def folder(self) -> Path:
        """The folder of the experiment's file, in which the user's own metrics lie."""
        return self._folder

    def _grid_problems(self) -> Iterator[str]:
        """Problems of verb and axes; whether the recipe takes their settings is checked with it."""
        if self.verb == "train" and self.recipe is None:
            yield "recipe: expected a recipe for the verb train, got none."
        if self.verb == "train" and self.test_split is not None:
            yield f"test_split: expected none for train, got {self.test_split!r}. Give test.src and test.ref."
        if self.verb == "finetune" and (self.recipe or self.test):
            yield "recipe, test: expected none for finetune; give task, model and data.dir in settings."
        for name, test in self.tests.items():
            taken = ["dev", *(["test"] if self.test_split is not None else [])]
            if not re.fullmatch(r"[A-Za-z]\w*", name) or name in taken:
                but = " or ".join(taken)
                yield f"tests.{name}: expected a name of letters, digits and _, not {but}, got {name!r}."
            if (test.table is None) != (self.verb == "train"):
                form = "src and ref, or contrast," if self.verb == "train" else "table"
                yield f"tests.{name}: expected {form} with the verb {self.verb}."
        for axis, values in self.axes.items():
            if isinstance(values, list) and len(self.levels(axis)) < len(values):
                yield f"axes.{axis}: expected different values, got {', '.join(map(str, values))}."
        for axis in self._infusion_axes():
            for value in self.axes[axis]:
                if value is not None and not isinstance(value, dict):
                    yield f"axes.{axis}: expected null or settings, as in [null, {{}}], got {value!r}."
            levels = chain.from_iterable(self.levels(other).values() for other in self.axes if other != axis)
            for key in sorted({*self.settings, *self.searched, *chain.from_iterable(levels)}):
                if key == "infuse" or f"{key.removeprefix('infusion.')}.".startswith(f"{axis}."):
                    yield (
                        f"{key}: expected no such setting beside the axis {axis}, which sets all of "
                        f"infusion.{axis}, got one. Write it into the levels of the axis."
                    )
        # Counted before they are listed, so `exclude` does not count.
        n_levels = {axis: len(levels) for axis, levels in self.axes.items()}
        grids = {"axes": math.prod(n_levels.values())}
        if self.tune is not None:
            n_values = self.tune.as_search().n_combinations
            grids["tune.space"] = n_values * grids["axes"] // max(1, n_levels.get(SEED, 1))
        if self.search is not None:
            grids["search.trials"] = grids["axes"] * self.search.trials
            if self.search.sampler == "grid":
                grids["search.space"] = self.search.n_combinations
        for key, n_runs in grids.items():
            if n_runs > MAX_RUNS:
                yield f"{key}: expected at most {MAX_RUNS:,} runs, got {n_runs:,}. Leave some levels out."

    def _tune_problems(self) -> Iterator[str]:
        """Settings that an axis or a choice would override, and a choice by a run of the grid."""
        if self.tune is None:
            return
        if self.search is not None:
            yield "tune: expected none beside a search, which also chooses settings on dev."
        levels = {axis: list(self.levels(axis).values()) for axis in self.axes}
        seeds = levels.pop(SEED, [])
        axis_keys = set(chain.from_iterable(chain.from_iterable(levels.values())))
        for key in sorted(self.tune.space.keys() & axis_keys.union(*seeds)):
            yield f"tune.space: expected keys that no axis sets, got {key}."
        for key in sorted(self.tune.settings.keys() & axis_keys):
            yield f"tune.settings: expected keys that no axis but {SEED} sets, got {key}."
        choosing, key = [self.tune.settings.get(SEED)], "tune.settings"
        if self.tune.seeds:
            choosing, key = self.tune.seeds, "tune.seeds"
            if len({*choosing}) < len(choosing):
                yield f"tune.seeds: expected different seeds, got {', '.join(map(str, choosing))}."
            if "settings" in self.tune.model_fields_set:
                yield "tune.settings: expected none beside tune.seeds."
        for seed in dict.fromkeys(choosing):
            if any(settings[SEED] == seed for settings in seeds or [self.settings] if SEED in settings):
                yield f"{key}: expected a seed that no other run has, got {seed}."

    def _report_problems(self) -> Iterator[str]:
        """Levels and metrics that no run has, and what a report could not show or would leave out."""
        report, search, tune = self.report, self.search, self.tune
        rows = {"report.baseline": report.baseline}
        rows |= {f"report.controls.{number}": labels for number, labels in enumerate(report.controls)}
        rows |= {f"report.paper.{number}.cell": printed.cell for number, printed in enumerate(report.paper)}
        for key, labels in rows.items():
            if SEED in labels:
                yield f"{key}: expected no seed, got {labels[SEED]}. Numbers are means over seeds."
        rows |= {f"exclude.{number}": labels for number, labels in enumerate(self.exclude)}
        metrics = [("report.metrics", metric) for metric in report.metrics]
        metrics += [("report.by", metric) for metric in report.by]
        metrics += [("search.metric", search.metric)] if search else []
        metrics += [("tune.metric", tune.metric)] if tune else []
        if report.secondary and report.primary is None:
            yield "report.secondary: expected report.primary as well, the comparison that comes first."
        keys = [f"report.secondary.{number}" for number in range(len(report.secondary))]
        keys = ["report.primary", *keys] if report.primary else keys
        for number, (key, contrast) in enumerate(zip(keys, report.planned, strict=True)):
            rows |= {f"{key}.cell": contrast.cell, f"{key}.against": contrast.against}
            metrics += [(f"{key}.metric", contrast.metric)] if contrast.metric else []
            if contrast in report.planned[:number]:
                yield f"{key}: expected another comparison, got {contrast.words} twice."
            if contrast.cell == contrast.against:
                yield f"{key}.against: expected another cell, got {in_words(contrast.cell)} twice."
            if missing := [axis for axis in self.axes if axis != SEED and axis not in contrast.cell]:
                yield f"{key}.cell: expected a level of each axis, got none of {', '.join(missing)}."
            n_seeds = len(self.axes.get(SEED, ()))
            if search is None and contrast.seeds != n_seeds:
                yield f"{key}.seeds: expected the {n_seeds} of the axis seed, got {contrast.seeds}."
            if contrast.sd is None and (tune is None or len(tune.seeds) < 2):
                yield f"{key}.sd: expected a number without several tune.seeds that would give it, got none."
        for key, labels in rows.items():
            yield from self._level_problems(key, labels)
        for number, labels in enumerate(report.controls):
            if not labels or labels in (report.baseline, *report.controls[:number]):
                yield f"report.controls.{number}: expected levels of other rows than before, got {labels}."
        for key in ("controls", "effects"):
            if search is not None and getattr(report, key):
                yield f"report.{key}: expected none for a search, whose report compares trials only."
        for axis in report.effects or ():
            if axis not in self.axes:
                yield f"report.effects: unknown axis {axis!r}. {nearest(axis, list(self.axes))}"
            elif axis == SEED or len(self.levels(axis)) < 2:
                yield f"report.effects: expected axes of two levels or more other than seed, got {axis}."
        for key, metric in metrics:
            if metric not in self.metrics():
                yield f"{key}: unknown metric {metric!r}. {nearest(metric, self.metrics())}"
            elif key == "report.by" and metric not in self.test_metrics():
                yield f"report.by: expected a metric of a named test, got {metric}."
            elif key == "tune.metric" and (
                metric in (*TEST_SCORES, *self.test_metrics()) or metric.startswith("test_")
            ):
                yield f"{key}: expected a metric on dev, as settings are chosen there, got {metric}."
        if (x := report.x) == SEED:
            yield "report.x: expected an axis other than seed. Numbers are means over seeds."
        elif x is not None and x not in self.axes:
            yield f"report.x: unknown axis {x!r}. {nearest(x, list(self.axes))}"
        elif x is not None:
            levels = list(self.levels(x))
            if bare := [level for level in levels if not math.isfinite(report.x_number(level))]:
                remedy = f"got none for {', '.join(bare)}. Name it there."
                yield f"report.x: expected a number for each level of {x}, {remedy}"

    def _level_problems(self, key: str, labels: Mapping[str, str]) -> Iterator[str]:
        for axis, level in labels.items():
            if axis not in self.axes:
                yield f"{key}: unknown axis {axis!r}. {nearest(axis, list(self.axes))}"
            elif level not in self.levels(axis):
                yield f"{key}: {axis} has no level {level!r}. {nearest(level, list(self.levels(axis)))}"

    def check_only(self, only: Only) -> None:
        """Check that axes and levels exist.

        Raises:
            ConfigError: Lists all that do not.
        """
        pairs = [{axis: level} for axis, levels in only.items() for level in sorted(levels)]
        problems = chain.from_iterable(self._level_problems("only", pair) for pair in pairs)
        if unique := list(dict.fromkeys(problems)):
            raise ConfigError(unique)

    def metrics(self) -> list[str]:
        """The names of all metrics that a run of this experiment may have."""
        if self.verb == "train":
            return [*(TEST_SCORES if self.test else []), *self.test_metrics(), "dev_loss", "dev_bleu"]
        names = ["score", "mean", *CLASSIFICATION_METRICS, *REGRESSION_METRICS]
        of_split = [f"test_{name}" for name in names if self.test_split is not None]
        return [*names, *of_split, *self.test_metrics()]

    def test_metrics(self) -> list[str]:
        """NAME_METRIC of all named tests; NAME_METRIC_last, after the last update, of those scored along."""
        names = [
            (f"{name}_{metric_name(m)}", test) for name, test in self.tests.items() for m in test.metrics
        ]
        return [*(name for name, _ in names), *(f"{name}_last" for name, test in names if test.along)]

    def _infusion_axes(self) -> list[str]:
        return [axis for axis in INFUSIONS if isinstance(self.axes.get(axis), list)]

    @property
    def effects(self) -> list[str]:
        """The axes whose effects are shown, in the order of the file."""
        chosen = self._infusion_axes() if self.report.effects is None else self.report.effects
        return [axis for axis in self.axes if axis in chosen]

    def levels(self, axis: str) -> dict[str, Settings]:
        """Level → settings of one axis."""
        values = self.axes[axis]
        if not isinstance(values, list):
            return values
        if axis in INFUSIONS:
            return {_level_of_infusion(value): {f"infusion.{axis}": value} for value in values}
        return {str(value): {axis: value} for value in values}

    @property
    def searched(self) -> Settings:
        """Some value for each searched setting, or for each that is chosen before the runs of the grid."""
        if self.tune is not None:
            return {name: values[0] for name, values in self.tune.space.items()}
        spaces = {} if self.search is None else self.search.space
        return {
            name: space.low if space.values is None else space.values[0] for name, space in spaces.items()
        }

    def tuning(self) -> Spec | None:
        """The search that comes before the grid: the same combinations, without their seeds."""
        if self.tune is None:
            return None
        axes = {name: levels for name, levels in self.axes.items() if name != SEED}
        settings = dict(self.settings)
        if self.tune.seeds:
            axes[SEED] = [*self.tune.seeds]
        else:
            settings |= self.tune.settings
        changes = {"search": self.tune.as_search(), "tune": None, "report": ReportConfig()}
        return self.model_copy(update={**changes, "settings": settings, "axes": axes})

    def choosing(self, chosen: Mapping[str, Settings]) -> Spec:
        """The same grid with chosen settings: name of a combination, by `without_seed` → settings."""
        copy = self.model_copy()
        copy._chosen = dict(chosen)
        return copy

    def is_ready(self, labels: Mapping[str, str]) -> bool:
        """Whether all settings of a combination are known, so that it can be run."""
        return self.tune is None or without_seed(labels) in self._chosen

    def cells(self) -> list[Cell]:
        """All runs of the grid, in the order of the axes; none if there is a search."""
        return [self.cell(labels) for labels in self.combinations()] if self.search is None else []

    def combinations(self) -> list[dict[str, str]]:
        """Axis → level of each run, in order, without excluded combinations."""
        rows = product(*(self.levels(axis) for axis in self.axes))
        combinations = [dict(zip(self.axes, row, strict=True)) for row in rows]
        return [labels for labels in combinations if not any(matches(labels, row) for row in self.exclude)]

    def cell(self, labels: Mapping[str, str], extra: Settings | None = None) -> Cell:
        """The run of one combination; later axes and `extra` override earlier settings."""
        settings = dict(self.settings)
        for axis, level in labels.items():
            if axis in self.axes:
                settings |= self.levels(axis)[level]
        settings |= self._chosen.get(without_seed(labels), {})  # on dev; nothing before
        settings |= extra or {}
        test: dict[str, Any] = {} if self.test is None else dict(self.test.as_settings())
        test |= {} if self.test_split is None else {"split": self.test_split}
        if self.tests:
            test["tests"] = {
                name: named.model_dump(mode="json", exclude_defaults=True)
                for name, named in self.tests.items()
            }
        return Cell(self.verb, self.recipe, dict(labels), settings, test or None)


@dataclass(frozen=True)
class Cell:
    """One run: axis → level, key → value over the recipe, and the text that is translated and scored.

    `test` has src, ref, factors.NAME and annotator, or the split of a task, and in `tests` those with names;
    `stored_name` is the folder of a run in a store.
    """

    verb: str
    recipe: str | None
    labels: dict[str, str]
    settings: Settings
    test: dict[str, Any] | None
    stored_name: str | None = None

    @property
    def key(self) -> str:
        """A hash of what decides the result, so that labels may be renamed and axes reordered."""
        content = [self.verb, self.recipe, self.settings, self.test]
        text = json.dumps(content, sort_keys=True, ensure_ascii=False, default=str)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def name(self) -> str:
        """The folder name: readable levels, and a part of the key."""
        if self.stored_name is not None:
            return self.stored_name
        readable = re.sub(r"[^\w.]", "-", "_".join(self.labels.values()))
        readable = readable.encode()[:MAX_NAME_BYTES].decode(errors="ignore")
        return f"{readable}_{self.key[:8]}" if self.labels else self.key[:8]

    def command(self) -> str:
        """The command line that repeats this run by hand, into the folder OUTPUT."""
        texts = {key: _yaml(value) for key, value in self.settings.items()}
        if self.verb == "train":
            settings = " ".join(quote(f"{key}={text}") for key, text in texts.items())
            return f"syntaxformer train {quote(self.recipe or '')} {settings} output=OUTPUT"
        named = [key for key in ("task", "model", "infuse") if key in texts]
        options = [f"--{key} {quote(str(self.settings[key]))}" for key in named]
        options += [f"--set {quote(f'{key}={text}')}" for key, text in texts.items() if key not in named]
        return f"syntaxformer finetune {' '.join(options)} -o OUTPUT"


def in_words(labels: Mapping[str, str]) -> str:
    """Axes and levels as text."""
    return ", ".join(f"{axis} {level}" for axis, level in labels.items())


def without_seed(labels: Mapping[str, str]) -> str:
    """Axes and levels other than the seed as text, a name for all seeds of one combination."""
    return in_words({axis: level for axis, level in labels.items() if axis != SEED})


def matches(labels: Mapping[str, str], levels: Mapping[str, str]) -> bool:
    """Whether a run has all of these levels."""
    return all(labels.get(axis) == level for axis, level in levels.items())


def is_wanted(labels: Mapping[str, str], only: Only) -> bool:
    """Whether a run has one of the levels of each axis."""
    return all(labels.get(axis) in levels for axis, levels in only.items())


def _level_of_infusion(section: Any) -> str:
    """The name of a level: `none`, `default`, or its settings in words."""
    if not isinstance(section, dict):
        return "none" if section is None else str(section)
    texts = {
        key: " ".join(map(str, value)) if isinstance(value, list) else value for key, value in section.items()
    }
    return in_words(texts) or "default"


def load_spec(path: str | Path, overrides: Sequence[str] = ()) -> Spec:
    """Read an experiment from YAML; `overrides`, "key.sub=value", count as if its `settings` had them.

    Raises:
        DataError: The file cannot be read.
        ConfigError: Lists all problems together, or an axis or a search replaces one of `overrides`.
    """
    content, nested = read_yaml(path), apply_overrides({}, overrides)
    content.pop("relations", None)  # a file that the command line has registered
    keys = [override.partition("=")[0] for override in overrides]
    settings = {key: reduce(lambda node, name: node[name], key.split("."), nested) for key in keys}
    if settings and isinstance(content.get("settings") or {}, dict):
        content["settings"] = {**(content.get("settings") or {}), **settings}
    spec = validate(Spec, content, str(path))
    spec._folder = Path(path).parent
    replacing = {f"the axis {axis}": set(chain(*spec.levels(axis).values())) for axis in spec.axes}
    for origin, replaced in (replacing | {"search or tune": set(spec.searched)}).items():
        for key in sorted(settings.keys() & replaced):
            raise ConfigError(f"--set {key}: expected a key that nothing replaces, got one of {origin}.")
    names: dict[str, str] = {}
    combinations = spec.combinations()
    if not combinations:
        raise ConfigError(f"{path}: expected at least one run, got none. Look at axes and exclude.")
    for labels in combinations:
        cell = spec.cell(labels, dict.fromkeys(spec.searched))
        if (other := names.setdefault(cell.key, cell.name)) != cell.name:
            raise ConfigError(
                f"{path}: expected runs that differ in their settings, got {other} = {cell.name}."
            )
    return spec


def _yaml(value: Any) -> str:
    """Write a value so that the command line reads it back, without quotes if possible."""
    if isinstance(value, str):
        with suppress(yaml.YAMLError, ValueError):
            if yaml.safe_load(value) == value:
                return value
    return json.dumps(value, ensure_ascii=False)
