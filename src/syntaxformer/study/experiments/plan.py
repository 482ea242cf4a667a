"""Which runs an experiment has: those of its grid, or the trials of its search; done or not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from syntaxformer.study.experiments.search import open_trials, study_trials
from syntaxformer.study.experiments.spec import Cell, Only, Spec, is_wanted
from syntaxformer.study.experiments.store import StoredRun

__all__ = ["own_runs", "planned_cells"]


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
