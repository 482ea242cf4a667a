"""Which runs an experiment has: those of its grid, or the trials of its search; done or not."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import replace
from itertools import count, product
from typing import TYPE_CHECKING, Any

from syntaxformer.base.config import MAX_SEED
from syntaxformer.base.errors import BackendMissingError
from syntaxformer.study.experiments.spec import TRIAL, Cell, Only, SearchConfig, Space, Spec, is_wanted
from syntaxformer.study.experiments.store import DONE, FAILED, KILLED, WAITING, StoredRun

if TYPE_CHECKING:
    import optuna

MOST_REPEATS = 50
"""A sampler that proposes so many known settings in a row has seen the space."""


def next_trial(
    spec: Spec, search: SearchConfig, runs: Mapping[str, StoredRun], only: Only | None = None
) -> Cell | None:
    """A trial that waits, or a new one of a study that has none at work; None where there is nothing to do.

    Args:
        spec: The experiment.
        search: Its search.
        runs: All that the store has.
        only: Axis → levels of the studies to go on with; None for all.

    Raises:
        BackendMissingError: Optuna is needed, and not installed.
    """
    for labels in spec.combinations():
        if not is_wanted(labels, only or {}):
            continue
        trials = study_trials(spec, search, runs, labels)
        waiting = [one for one in trials if one.state == WAITING]
        if waiting:
            return waiting[0].cell
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
        first, n_open = _next_number(trials), max(0, _most_trials(search) - len(trials))
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


def _most_trials(search: SearchConfig) -> int:
    """A grid ends with its last combination, also where more trials are asked for."""
    if search.sampler != "grid":
        return search.trials
    return min(search.trials, math.prod(len(space.values or ()) for space in search.space.values()))


def trial_value(search: SearchConfig, run: StoredRun) -> float | None:
    """What a trial is judged by; None for one that has failed: without a result, or with no finite one."""
    value = run.result.get("metrics", {}).get(search.metric) if run.state == DONE else None
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
    distributions = _distributions(search)
    for one in trials:
        params = {name: one.cell.settings[name] for name in search.space}
        study.add_trial(
            optuna.trial.create_trial(
                state=_state(search, one),
                params=params,
                distributions=distributions,
                value=trial_value(search, one),
            )
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
    """The stored runs that belong to an experiment as it is now, labelled as it does.

    A store also keeps the runs of earlier forms, and those of other experiments that share it.

    Args:
        spec: The experiment.
        runs: All that its store has.
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

    Args:
        spec: The experiment.
        runs: All that its store has.
        only: Axis → levels of the runs to list; empty for all.

    Raises:
        ConfigError: There is no such axis or level.
    """
    spec.check_only(only)
    if spec.search is None:
        cells = spec.cells()
    else:
        trials = [one.cell for one in own_runs(spec, runs).values()]
        cells = [*trials, *open_trials(spec, spec.search, runs)]
    return [cell for cell in cells if is_wanted(cell.labels, only)]
