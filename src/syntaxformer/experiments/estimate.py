"""What is to do, and its cost: that of the same cell with another seed, else of runs of like work."""

from __future__ import annotations

from collections.abc import Mapping

from syntaxformer.evaluation.significance import spread
from syntaxformer.experiments.search import open_trials
from syntaxformer.experiments.spec import SEED, Cell, Spec, matches
from syntaxformer.experiments.store import DONE, StoredRun

__all__ = ["estimate_seconds", "planned_cells"]

WORK = ("training.max_steps", "training.max_batch_tokens", "training.accumulate", "training.epochs")
"""Settings that multiply the time of a run; what a recipe sets and no level changes is the same for all."""


def planned_cells(spec: Spec, runs: Mapping[str, StoredRun], only: Mapping[str, str]) -> list[Cell]:
    """All runs of an experiment, done or not; trials yet to be proposed lack the settings that are searched.

    Args:
        spec: The experiment.
        runs: All that its store has.
        only: Axis → level of the runs to list; empty for all.

    Raises:
        ConfigError: There is no such axis or level.
    """
    spec.check_levels("only", only)
    if spec.search is None:
        cells = spec.cells()
    else:
        cells = [*(one.cell for one in runs.values()), *open_trials(spec, spec.search, runs)]
    return [cell for cell in cells if matches(cell.labels, only)]


def estimate_seconds(spec: Spec, cell: Cell, runs: Mapping[str, StoredRun]) -> float | None:
    """Seconds by the clock on the machine of the earlier runs; None where nothing is known."""
    done = [one for one in runs.values() if one.state == DONE]
    same = [one.seconds for one in done if _without_seed(one.cell) == _without_seed(cell)]
    if same:
        return spread(same).mean
    like = [one for one in done if _same_task(one.cell, cell)]
    if like:
        return _work(cell) * sum(one.seconds for one in like) / sum(_work(one.cell) for one in like)
    return spec.seconds


def _without_seed(cell: Cell) -> dict[str, str]:
    return {axis: level for axis, level in cell.labels.items() if axis != SEED}


def _same_task(first: Cell, second: Cell) -> bool:
    return first.settings.get("task") == second.settings.get("task")


def _work(cell: Cell) -> float:
    """Relative: one for a run that sets nothing."""
    work = float(cell.settings.get("data.fraction", 1.0)) if cell.verb == "finetune" else 1.0
    for name in WORK:
        value = cell.settings.get(name)
        if isinstance(value, int | float):
            work *= value
    return work
