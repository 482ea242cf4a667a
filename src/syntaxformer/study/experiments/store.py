"""The store of an experiment: one SQLite row a run, beside the folders of the runs; survives a kill.

And which runs an experiment has: those of its grid, or the trials of its search; done or not.

STORE/store.sqlite            state, settings and result of every run
STORE/cells/NAME/cell.json    what the run is to do
STORE/cells/NAME/log.txt      what it said
STORE/cells/NAME/model        its folder, to resume from
STORE/cells/NAME/result.json  written last; a run that has it is done
"""

from __future__ import annotations

import json
import math
import sqlite3
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from itertools import count, product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from filelock import FileLock, Timeout

from syntaxformer.base.config import MAX_SEED
from syntaxformer.base.errors import BackendMissingError, DataError
from syntaxformer.study.experiments.spec import TRIAL, Cell, Only, SearchConfig, Space, Spec, is_wanted

if TYPE_CHECKING:
    import optuna

WAITING, RUNNING, DONE, FAILED, KILLED = "waiting", "running", "done", "failed", "killed"
"""States. `failed` is an error of the run itself, tried again on request; `killed` is tried again anyway."""

_SCHEMA = """
CREATE TABLE IF NOT EXISTS runs (
  key TEXT PRIMARY KEY, name TEXT NOT NULL, verb TEXT NOT NULL, recipe TEXT, labels TEXT NOT NULL,
  settings TEXT NOT NULL, test TEXT, state TEXT NOT NULL, attempts INTEGER NOT NULL DEFAULT 0,
  seconds REAL NOT NULL DEFAULT 0, error TEXT, result TEXT)
"""


@dataclass(frozen=True)
class StoredRun:
    """A row: seconds are those of all attempts, the error is the last, the result what `run_cell` found."""

    cell: Cell
    state: str
    attempts: int
    seconds: float
    error: str | None
    result: dict[str, Any]

    @property
    def metrics(self) -> dict[str, float | None]:
        """Name → score; None for one that was not measured."""
        return self.result.get("metrics", {})


class RunStore:
    """Rows of one experiment, in a folder that is created where there is none."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.path = self.folder / "store.sqlite"

    def cell_folder(self, cell: Cell) -> Path:
        """Where a run keeps its files."""
        return self.folder / "cells" / cell.name

    def add(self, cells: Sequence[Cell]) -> None:
        """Add runs that are not there; those that are stay as they are.

        Raises:
            DataError: The store cannot be written.
        """
        rows = [
            (one.key, one.name, one.verb, one.recipe, _json(one.labels), _json(one.settings), _json(one.test))
            for one in cells
        ]
        with self._open() as connection:
            connection.executemany(
                "INSERT INTO runs (key, name, verb, recipe, labels, settings, test, state) "
                f"VALUES (?, ?, ?, ?, ?, ?, ?, '{WAITING}') "
                "ON CONFLICT (key) DO NOTHING",
                rows,
            )

    def runs(self) -> dict[str, StoredRun]:
        """All rows by key, in the order in which they were added.

        One that was running when its runner was killed is `KILLED`.

        Raises:
            DataError: The store cannot be read.
        """
        if not self.path.exists():
            return {}
        columns = "key, verb, recipe, labels, settings, test, state, attempts, seconds, error, result, name"
        with self._open() as connection:
            rows = connection.execute(f"SELECT {columns} FROM runs ORDER BY rowid").fetchall()
        found = {row[0]: _read(row) for row in rows}
        left = [key for key, run in found.items() if run.state == RUNNING]
        if left and not self._has_runner():
            for key in left:
                found[key] = replace(found[key], state=KILLED, error="its runner was killed")
        return found

    def _has_runner(self) -> bool:
        lock = self.lock()
        try:
            lock.acquire(timeout=0)
        except (Timeout, OSError, NotImplementedError):  # or a disk without locks, where nobody knows
            return True
        lock.release()
        return False

    def lock(self) -> FileLock:
        """What a runner holds while it works on the store."""
        return FileLock(self.folder / "runner.lock")

    def start(self, key: str) -> None:
        """A run is started once more."""
        self._update(key, f"state = '{RUNNING}', attempts = attempts + 1, error = NULL")

    def finish(self, key: str, seconds: float, result: dict[str, Any]) -> None:
        """A run is done, after so many seconds of all its attempts."""
        self._update(key, f"state = '{DONE}', seconds = ?, result = ?", seconds, _json(result))

    def stop(self, key: str, state: str, seconds: float, error: str) -> None:
        """A run ended without a result, `FAILED` or `KILLED`, after so many seconds of all its attempts."""
        self._update(key, "state = ?, seconds = ?, error = ?", state, seconds, error)

    def release(self, states: Sequence[str], keys: Collection[str] | None = None) -> None:
        """Let runs in these states wait again, all of them or those of some keys."""
        marks = ", ".join("?" * len(states))
        chosen = [key for key, run in self.runs().items() if keys is None or key in keys]
        with self._open() as connection:
            connection.executemany(
                f"UPDATE runs SET state = '{WAITING}' WHERE key = ? AND state IN ({marks})",
                [(key, *states) for key in chosen],
            )

    def _update(self, key: str, change: str, *values: object) -> None:
        with self._open() as connection:
            connection.execute(f"UPDATE runs SET {change} WHERE key = ?", (*values, key))

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        """A connection for one transaction: written whole or not at all."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with closing(sqlite3.connect(self.path, timeout=60)) as connection, connection:
                connection.execute(_SCHEMA)
                yield connection
        except (sqlite3.Error, OSError) as error:
            raise DataError(f"expected a store of runs, got: {error}.", self.path) from error


def _json(value: Any) -> str | None:
    return None if value is None else json.dumps(value, ensure_ascii=False, default=str)


def _read(row: tuple[Any, ...]) -> StoredRun:
    _, verb, recipe, labels, settings, test, state, attempts, seconds, error, result, name = row
    cell = Cell(
        verb, recipe, json.loads(labels), json.loads(settings), json.loads(test) if test else None, name
    )
    return StoredRun(cell, state, attempts, seconds, error, json.loads(result) if result else {})


MOST_REPEATS = 50
"""A sampler that proposes so many known settings in a row has seen the space."""


def next_trial(
    spec: Spec, search: SearchConfig, runs: Mapping[str, StoredRun], only: Only | None = None
) -> Cell | None:
    """A trial that waits, or a new one of a study that has none at work; None where there is nothing to do.

    Raises:
        BackendMissingError: Optuna is needed, and not installed.
    """
    for labels in spec.combinations():
        if not is_wanted(labels, only or {}):
            continue
        trials = study_trials(spec, search, runs, labels)
        cell = next((one.cell for one in trials if one.state == WAITING), None)
        ended = all(one.state in (DONE, FAILED, KILLED) for one in trials)
        if ended and len(trials) < search.trials:
            cell = _propose(spec, search, labels, trials)
        if cell is not None:
            return cell
    return None


def open_trials(spec: Spec, search: SearchConfig, runs: Mapping[str, StoredRun]) -> list[Cell]:
    """The trials that are still to be proposed, without the settings that are searched."""
    cells = []
    for labels in spec.combinations():
        trials = study_trials(spec, search, runs, labels)
        most = search.trials
        if search.sampler == "grid":  # which ends with its last combination
            most = min(most, math.prod(len(space.values or ()) for space in search.space.values()))
        first, n_open = _next_number(trials), max(0, most - len(trials))
        cells += [spec.cell({**labels, TRIAL: f"{number:03d}"}) for number in range(first, first + n_open)]
    return cells


def best_trial(search: SearchConfig, trials: list[StoredRun]) -> StoredRun | None:
    """The best of the trials that are done."""
    scored = [one for one in trials if trial_value(search, one) is not None]
    sign = 1 if search.goal == "minimize" else -1
    return min(scored, key=lambda one: sign * (trial_value(search, one) or 0.0), default=None)


def study_trials(
    spec: Spec, search: SearchConfig, runs: Mapping[str, StoredRun], labels: Mapping[str, str]
) -> list[StoredRun]:
    """The stored trials of one study, with its labels as they are now.

    A run belongs to a study by what decides its result, whoever asked for it first: where settings or the
    space were edited since, it is one of another search. It has the number of its label, or, where it has
    none that is free, the least that is.
    """
    mine = [one for one in runs.values() if _belongs(spec, search, one.cell, labels)]
    numbers: dict[str, str] = {}
    for one in mine:
        if (number := one.cell.labels.get(TRIAL)) is not None and number not in numbers.values():
            numbers[one.cell.key] = number
    free = (number for place in count() if (number := f"{place:03d}") not in numbers.values())
    for one in mine:
        if one.cell.key not in numbers:
            numbers[one.cell.key] = next(free)
    return [
        replace(one, cell=replace(one.cell, labels={**labels, TRIAL: numbers[one.cell.key]})) for one in mine
    ]


def _belongs(spec: Spec, search: SearchConfig, cell: Cell, labels: Mapping[str, str]) -> bool:
    if not search.space.keys() <= cell.settings.keys():
        return False
    searched = {name: cell.settings[name] for name in search.space}
    in_space = all(_holds(space, searched[name]) for name, space in search.space.items())
    return in_space and spec.cell(labels, searched).key == cell.key


def _holds(space: Space, value: Any) -> bool:
    if space.values is not None:
        return json.dumps(value, default=str) in [json.dumps(one, default=str) for one in space.values]
    if space.low is None or space.high is None or isinstance(value, bool):
        return False
    kinds = int if isinstance(space.low, int) and isinstance(space.high, int) else int | float
    return isinstance(value, kinds) and space.low <= value <= space.high


def _next_number(trials: list[StoredRun]) -> int:
    return 1 + max((int(one.cell.labels[TRIAL]) for one in trials), default=-1)


def trial_value(search: SearchConfig, run: StoredRun) -> float | None:
    """What a trial is judged by; None for one that has failed: without a result, or with no finite one."""
    value = run.metrics.get(search.metric) if run.state == DONE else None
    return value if value is not None and math.isfinite(value) else None


def _propose(
    spec: Spec, search: SearchConfig, labels: Mapping[str, str], trials: list[StoredRun]
) -> Cell | None:
    """A trial with settings that the study has not seen."""
    numbered = {**labels, TRIAL: f"{_next_number(trials):03d}"}
    known = {one.cell.key: one for one in trials}
    if search.sampler == "grid":
        names = list(search.space)
        rows = product(*(space.values or () for space in search.space.values()))
        cells = (spec.cell(numbered, dict(zip(names, row, strict=True))) for row in rows)
        return next((cell for cell in cells if cell.key not in known), None)
    study = _study(search, trials)
    for _ in range(MOST_REPEATS):
        trial = study.ask(_distributions(search))
        cell = spec.cell(numbered, dict(trial.params))
        if cell.key not in known:
            return cell
        study.tell(trial, trial_value(search, known[cell.key]), state=_state(search, known[cell.key]))
    return None


def _study(search: SearchConfig, trials: list[StoredRun]) -> optuna.Study:
    """A study that has seen the trials; its sampler starts anew with each, from a seed of its own."""
    try:
        import optuna
    except ImportError as error:
        install = 'pip install "syntaxformer[search]"'
        raise BackendMissingError("optuna, which searches settings,", install) from error
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    seed = (search.seed + len(trials)) % (MAX_SEED + 1)
    sampler: optuna.samplers.BaseSampler = optuna.samplers.RandomSampler(seed)
    if search.sampler == "tpe":
        # Optuna's own ten would leave nothing to learn from in a study of ten trials.
        n_random = min(10, max(1, search.trials // 3))
        sampler = optuna.samplers.TPESampler(n_startup_trials=n_random, seed=seed)
    study = optuna.create_study(direction=search.goal, sampler=sampler)
    for one in trials:
        params = {name: one.cell.settings[name] for name in search.space}
        seen = {"value": trial_value(search, one), "state": _state(search, one)}
        study.add_trial(
            optuna.trial.create_trial(params=params, distributions=_distributions(search), **seen)
        )
    return study


def _distributions(search: SearchConfig) -> dict[str, Any]:
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    found: dict[str, Any] = {}
    for name, space in search.space.items():
        if space.values is not None:
            found[name] = CategoricalDistribution(space.values)
        elif isinstance(space.low, int) and isinstance(space.high, int):
            found[name] = IntDistribution(space.low, space.high, log=space.log)
        else:
            found[name] = FloatDistribution(space.low, space.high, log=space.log)
    return found


def _state(search: SearchConfig, run: StoredRun) -> Any:
    from optuna.trial import TrialState

    return TrialState.FAIL if trial_value(search, run) is None else TrialState.COMPLETE


def own_runs(spec: Spec, runs: Mapping[str, StoredRun]) -> dict[str, StoredRun]:
    """The runs of a store that belong to an experiment as it is now, labelled as it does.

    A store also keeps the runs of earlier forms, and those of other experiments that share it.
    """
    if spec.search is None:
        mine = [(runs[cell.key], cell.labels) for cell in spec.cells() if cell.key in runs]
        return {run.cell.key: replace(run, cell=replace(run.cell, labels=labels)) for run, labels in mine}
    return {
        one.cell.key: one
        for labels in spec.combinations()
        for one in study_trials(spec, spec.search, runs, labels)
    }


def planned_cells(spec: Spec, runs: Mapping[str, StoredRun], only: Only) -> list[Cell]:
    """All runs of an experiment, done or not; trials yet to be proposed lack the settings that are searched.

    Raises:
        ConfigError: There is no such axis or level.
    """
    spec.check_only(only)
    cells = spec.cells()
    if spec.search is not None:
        trials = [one.cell for one in own_runs(spec, runs).values()]
        cells = [*trials, *open_trials(spec, spec.search, runs)]
    return [cell for cell in cells if is_wanted(cell.labels, only)]
