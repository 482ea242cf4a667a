"""What a run will cost: that of the same cell with another seed, else of runs of like work."""

from __future__ import annotations

from collections.abc import Mapping

from syntaxformer.evaluation.significance import spread
from syntaxformer.experiments.spec import SEED, Cell, Spec
from syntaxformer.experiments.store import DONE, StoredRun

__all__ = ["estimate_seconds"]

WORK = ("training.max_steps", "training.max_batch_tokens", "training.accumulate", "training.epochs")
"""Settings that multiply the time of a run; what a recipe sets and no level changes is the same for all."""


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
