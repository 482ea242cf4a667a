"""The store of an experiment: one SQLite row for each run, and the folders of the runs; a kill does no harm.

This module also lists the runs of an experiment: those of its grid, or the trials of its search.

STORE/store.sqlite            state, settings and result of every run
STORE/cells/NAME/cell.json    settings of the run
STORE/cells/NAME/log.txt      log of the run
STORE/cells/NAME/model        output folder of the run, from which it is resumed
STORE/cells/NAME/result.json  written last; a run that has it is done
"""

from __future__ import annotations

import json
import math
import sqlite3
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from itertools import chain, product
from pathlib import Path
from statistics import fmean
from typing import Any, Literal

from filelock import FileLock, Timeout
from pydantic import BaseModel, Field, Json, ValidationError

from syntaxformer.base.config import MAX_SEED
from syntaxformer.base.errors import DataError, needs_extra
from syntaxformer.base.files import MAX_PIECES_BYTES
from syntaxformer.study.experiments.spec import (
    SEED,
    TRIAL,
    Cell,
    Only,
    SearchConfig,
    Spec,
    is_wanted,
    without_seed,
)

WAITING, RUNNING, DONE, FAILED, KILLED = "waiting", "running", "done", "failed", "killed"
"""States. A `failed` run had an error and is tried again on request; a `killed` one is always tried again."""

_SCHEMA = """
CREATE TABLE IF NOT EXISTS runs (
  key TEXT PRIMARY KEY, name TEXT NOT NULL, verb TEXT NOT NULL, recipe TEXT, labels TEXT NOT NULL,
  settings TEXT NOT NULL, test TEXT, state TEXT NOT NULL, attempts INTEGER NOT NULL DEFAULT 0,
  seconds REAL NOT NULL DEFAULT 0, error TEXT, result TEXT)
"""


@dataclass(frozen=True)
class StoredRun:
    """A row: the seconds of all attempts, the last error, and the result of `run_cell`."""

    cell: Cell
    state: str
    attempts: int
    seconds: float
    error: str | None
    result: dict[str, Any]

    @property
    def metrics(self) -> dict[str, float | None]:
        """Name → score; None if it was not measured."""
        return self.result.get("metrics", {})


class RunStore:
    """The runs of one experiment, in a folder that is created if necessary."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.path = self.folder / "store.sqlite"

    def cell_folder(self, cell: Cell) -> Path:
        """The folder of a run."""
        return self.folder / "cells" / cell.name

    def add(self, cells: Sequence[Cell]) -> None:
        """Add runs that are not stored; stored runs do not change.

        Raises:
            DataError: The store cannot be written.
        """
        columns = "key, name, verb, recipe, labels, settings, test, state"
        insert = f"INSERT OR IGNORE INTO runs ({columns}) VALUES (?, ?, ?, ?, ?, ?, ?, '{WAITING}')"
        rows = [
            (c.key, c.name, c.verb, c.recipe, _json(c.labels), _json(c.settings), _json(c.test))
            for c in cells
        ]
        with self._open() as connection:
            connection.executemany(insert, rows)

    def runs(self) -> dict[str, StoredRun]:
        """All rows by key, in the order in which they were added.

        A run whose runner was killed is `KILLED`.

        Raises:
            DataError: The store cannot be read.
        """
        if not self.path.exists():
            return {}
        with self._open() as connection:
            columns = ", ".join(_Row.model_fields)
            rows = connection.execute(f"SELECT {columns} FROM runs ORDER BY rowid").fetchall()
            runs = {row[0]: _read(row) for row in rows}
        if any(run.state == RUNNING for run in runs.values()):
            lock = self.lock()
            try:
                lock.acquire(timeout=0)
            except (Timeout, OSError, NotImplementedError):  # a runner has it, or the disk has no locks
                return runs
            lock.release()
            killed = {"state": KILLED, "error": "its runner was killed"}
            runs = {key: replace(run, **killed if run.state == RUNNING else {}) for key, run in runs.items()}
        return runs

    def lock(self) -> FileLock:
        """The lock that a runner holds while it uses the store."""
        return FileLock(self.folder / "runner.lock")

    def start(self, key: str) -> None:
        """Record that a run starts, once more if it was stopped."""
        self._update(key, f"state = '{RUNNING}', attempts = attempts + 1, error = NULL")

    def finish(self, key: str, seconds: float, result: dict[str, Any]) -> None:
        """Record the result of a run and the seconds of all its attempts."""
        self._update(key, f"state = '{DONE}', seconds = ?, result = ?", seconds, _json(result))

    def stop(self, key: str, state: str, seconds: float, error: str) -> None:
        """Record that a run ended without a result, `FAILED` or `KILLED`, and the seconds of all attempts."""
        self._update(key, "state = ?, seconds = ?, error = ?", state, seconds, error)

    def release(self, states: Sequence[str], keys: Collection[str] | None = None) -> None:
        """Set runs in these states to waiting again: all of them, or those with some keys."""
        marks = ", ".join("?" * len(states))
        chosen = [(key, *states) for key in self.runs() if keys is None or key in keys]
        change = f"UPDATE runs SET state = '{WAITING}' WHERE key = ? AND state IN ({marks})"
        with self._open() as connection:
            connection.executemany(change, chosen)

    def _update(self, key: str, change: str, *values: object) -> None:
        with self._open() as connection:
            connection.execute(f"UPDATE runs SET {change} WHERE key = ?", (*values, key))

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        """A connection for one transaction, which is written completely or not at all."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with closing(sqlite3.connect(self.path, timeout=60)) as connection, connection:
                connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_PIECES_BYTES)
                connection.execute(_SCHEMA)
                tables = connection.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL").fetchall()
                if [sql.split() for (sql,) in tables] != [_SCHEMA.replace("IF NOT EXISTS ", "").split()]:
                    raise ValueError("other tables than a store has")
                yield connection
        except ValidationError as error:
            what = ".".join(map(str, (problem := error.errors()[0])["loc"]))
            raise DataError(f"expected a store of runs, got {what}: {problem['msg']}.", self.path) from error
        except (sqlite3.Error, OSError, ValueError) as error:
            raise DataError(f"expected a store of runs, got: {error}.", self.path) from error


def _json(value: Any) -> str | None:
    return None if value is None else json.dumps(value, ensure_ascii=False, default=str)


_Named = dict[str, Any] | None


class _Result(BaseModel):
    """What a report reads of a result, which has more."""

    metrics: dict[str, float | None] = {}
    curve: list[dict[str, float | None]] = []
    command: str = ""
    commit: str = ""
    precision: str | None = None
    n_parameters: int | None = None
    signatures: dict[str, str] = {}
    recipe: _Named = None
    versions: _Named = None
    scoring: _Named = None
    data_sha256: _Named = None
    test_sha256: _Named = None
    primary: dict[str, _Named] | None = None
    secondary: dict[str, list[dict[str, Any]] | None] | None = None
    lines: dict[str, str] = {}
    by_column: dict[str, dict[str, dict[str, tuple[float, int]]]] = {}
    along: dict[str, dict[str, float]] = {}
    dev_predictions: dict[str, str] | None = None
    test_predictions: dict[str, str] | None = None


class _Row(BaseModel):
    """A row as it is stored; the name is that of a folder."""

    key: str
    verb: str
    recipe: str | None
    labels: Json[dict[str, str]]
    settings: Json[dict[str, Any]]
    test: Json[dict[str, Any]] | None
    state: Literal["waiting", "running", "done", "failed", "killed"]
    attempts: int
    seconds: float
    error: str | None
    result: Json[_Result] | None
    name: str = Field(pattern=r"^[^/\\\x00]*[^/\\\x00.][^/\\\x00]*$")


def _read(row: tuple[Any, ...]) -> StoredRun:
    columns = dict(zip(_Row.model_fields, row, strict=True))
    run, result = _Row.model_validate(columns), json.loads(columns["result"] or "{}")
    cell = Cell(run.verb, run.recipe, run.labels, run.settings, run.test, run.name)
    return StoredRun(cell, run.state, run.attempts, run.seconds, run.error, result)


MOST_REPEATS = 50
"""After so many known settings in a row, a sampler is considered to have seen the whole space."""


def trial_value(search: SearchConfig, run: StoredRun) -> float | None:
    """The value by which a trial is judged; None if the trial failed, without a finite result."""
    value = run.metrics.get(search.metric) if run.state == DONE else None
    return value if value is not None and math.isfinite(value) else None


def best_trial(search: SearchConfig, trials: list[StoredRun]) -> StoredRun | None:
    """The best of the finished trials."""
    scored = [(value, trial) for trial in trials if (value := trial_value(search, trial)) is not None]
    return search.best(scored, key=lambda pair: pair[0])[1] if scored else None


def study_trials(spec: Spec, runs: Mapping[str, StoredRun], labels: Mapping[str, str]) -> list[StoredRun]:
    """The stored trials of one study, numbered in the order of the store, with its current labels.

    A run belongs to a study if it has its settings and lies in its space, whichever experiment ran it first;
    if these were edited since, it does not.
    """
    trials, spaces = list[StoredRun](), spec.search.space
    for run in runs.values():
        values = {name: run.cell.settings.get(name, ...) for name in spaces}
        in_space = all(space.holds(values[name]) for name, space in spaces.items())
        if in_space and spec.cell(labels, values).key == run.cell.key:
            numbered = {**labels, TRIAL: f"{len(trials):03d}"}
            trials.append(replace(run, cell=replace(run.cell, labels=numbered)))
    return trials


def next_trial(spec: Spec, runs: Mapping[str, StoredRun], only: Only | None = None) -> Cell | None:
    """A waiting trial, or a new one; None if there is nothing to do. Only a grid has trials side by side.

    Raises:
        BackendMissingError: Optuna is needed but not installed.
    """
    search = spec.search
    for labels in (labels for labels in spec.combinations() if is_wanted(labels, only or {})):
        trials = study_trials(spec, runs, labels)
        cell = next((trial.cell for trial in trials if trial.state == WAITING), None)
        is_free = search.sampler == "grid" or all(trial.state in (DONE, FAILED, KILLED) for trial in trials)
        if cell is None and is_free and len(trials) < search.trials:
            cell = _propose(spec, labels, trials)
        if cell is not None:
            return cell
    return None


def _propose(spec: Spec, labels: Mapping[str, str], trials: list[StoredRun]) -> Cell | None:
    """A trial with settings that the study has not tried, by Optuna unless all values are tried in order."""
    search, numbered = spec.search, {**labels, TRIAL: f"{len(trials):03d}"}
    known = {trial.cell.key: trial for trial in trials}
    if search.sampler == "grid":
        rows = product(*(space.values or () for space in search.space.values()))
        cells = (spec.cell(numbered, dict(zip(search.space, row, strict=True))) for row in rows)
        return next((cell for cell in cells if cell.key not in known), None)
    with needs_extra("search", "searches settings"):
        import optuna
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
    from optuna.trial import TrialState

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    distributions: dict[str, Any] = {}
    for name, space in search.space.items():
        if space.values is not None:
            distributions[name] = CategoricalDistribution(space.values)
        else:
            numbers: Any = IntDistribution if space.is_whole else FloatDistribution
            distributions[name] = numbers(space.low, space.high, log=space.log)

    def outcome(trial: StoredRun) -> tuple[float | None, Any]:
        value = trial_value(search, trial)
        return value, TrialState.FAIL if value is None else TrialState.COMPLETE

    seed = (search.seed + len(trials)) % (MAX_SEED + 1)  # a new one for each trial
    sampler: optuna.samplers.BaseSampler = optuna.samplers.RandomSampler(seed)
    if search.sampler == "tpe":
        # Optuna's default of ten would leave a study of ten trials without a trial that learns.
        n_random = min(10, max(1, search.trials // 3))
        sampler = optuna.samplers.TPESampler(n_startup_trials=n_random, seed=seed)
    study = optuna.create_study(direction=search.goal, sampler=sampler)
    for trial in trials:
        params = {name: trial.cell.settings[name] for name in search.space}
        value, state = outcome(trial)
        study.add_trial(
            optuna.trial.create_trial(params=params, distributions=distributions, value=value, state=state)
        )
    for _ in range(MOST_REPEATS):
        asked = study.ask(distributions)
        cell = spec.cell(numbered, dict(asked.params))
        if cell.key not in known:
            return cell
        value, state = outcome(known[cell.key])
        study.tell(asked, value, state=state)
    return None


@dataclass(frozen=True)
class Choice:
    """What `tune` tried for a combination, and what it chose.

    Args:
        trials: Values → the runs with them, one for each choosing seed.
        means: Values → their mean score on dev, of those that all seeds have finished.
        best: The values with the best mean; None as long as a run has not ended.
        settings: The same as settings.
    """

    trials: dict[str, list[StoredRun]]
    means: dict[str, float]
    best: str | None = None
    settings: dict[str, Any] | None = None


def choices(spec: Spec, runs: Mapping[str, StoredRun]) -> dict[str, Choice]:
    """Combination without its seed → what was chosen for it by its mean over the choosing seeds."""
    tuning = spec.tuning()
    if tuning is None:
        return {}
    search = tuning.search
    studies = defaultdict[str, list[list[StoredRun]]](list)
    for labels in tuning.combinations():
        studies[without_seed(labels)].append(study_trials(tuning, runs, labels))
    choice_of: dict[str, Choice] = {}
    for name, of_seeds in studies.items():
        by_values, means = defaultdict[str, list[StoredRun]](list), dict[str, float]()
        for trial in chain.from_iterable(of_seeds):
            by_values[", ".join(str(trial.cell.settings[key]) for key in search.space)].append(trial)
        for values, trials in by_values.items():
            scores = [score for trial in trials if (score := trial_value(search, trial)) is not None]
            if len(scores) == len(of_seeds):
                means[values] = fmean(scores)
        has_ended = all(trial.state in (DONE, FAILED) for trial in chain.from_iterable(of_seeds))
        choice_of[name] = Choice(by_values, means)
        if has_ended and means and all(len(trials) == search.trials for trials in of_seeds):
            best = search.best(means, key=lambda values: means[values])
            settings = {key: by_values[best][0].cell.settings[key] for key in search.space}
            choice_of[name] = Choice(by_values, means, best, settings)
    return choice_of


def tuned(spec: Spec, runs: Mapping[str, StoredRun]) -> Spec:
    """The grid with the settings that were best on dev, for each combination that has all of its trials."""
    chosen = choices(spec, runs).items()
    return spec.choosing({name: choice.settings for name, choice in chosen if choice.settings is not None})


def own_runs(spec: Spec, runs: Mapping[str, StoredRun]) -> dict[str, StoredRun]:
    """The runs of a store that belong to an experiment in its current form, with its current labels.

    A store also keeps runs of earlier forms of the experiment, and of other experiments that share it.
    """
    if spec.search is None:
        stored = [(cell, runs[cell.key]) for cell in tuned(spec, runs).cells() if cell.key in runs]
        return {cell.key: replace(run, cell=replace(run.cell, labels=cell.labels)) for cell, run in stored}
    studies = (study_trials(spec, runs, labels) for labels in spec.combinations())
    return {trial.cell.key: trial for trials in studies for trial in trials}


def planned_cells(spec: Spec, runs: Mapping[str, StoredRun], only: Only) -> list[Cell]:
    """All runs of an experiment, done or not; trials that are not yet proposed lack their searched settings.

    Raises:
        ConfigError: There is no such axis or level.
    """
    spec.check_only(only)
    cells = tuned(spec, runs).cells()
    if (search := spec.search) is not None:
        n_trials = min(search.trials, search.n_combinations) if search.sampler == "grid" else search.trials
        for labels in spec.combinations():
            trials = study_trials(spec, runs, labels)
            cells += [trial.cell for trial in trials]
            cells += [spec.cell({**labels, TRIAL: f"{n:03d}"}) for n in range(len(trials), n_trials)]
    planned = [cell for cell in cells if is_wanted(cell.labels, only)]
    if (tuning := spec.tuning()) is not None:
        before = {axis: levels for axis, levels in only.items() if axis != SEED}  # all of its seeds choose
        planned = [*planned_cells(tuning, runs, before), *planned]
    return planned
