"""What a run will cost: that of the same cell with another seed, else of runs of like work."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from syntaxformer.errors import ConfigError, DataError
from syntaxformer.evaluation.significance import spread
from syntaxformer.experiments.cell_config import resolve
from syntaxformer.experiments.provenance import recipe_settings
from syntaxformer.experiments.spec import SEED, Cell, Spec
from syntaxformer.experiments.store import DONE, StoredRun

__all__ = ["estimate_seconds"]

STEPS = ("training.max_steps", "training.max_batch_tokens", "training.accumulate")
EPOCHS = ("training.epochs", "data.fraction")
"""Settings that multiply the time of a translator, and of a fine-tuning."""


def estimate_seconds(spec: Spec, cell: Cell, runs: Mapping[str, StoredRun]) -> float | None:
    """Seconds by the clock on the machine of the earlier runs; None where nothing is known.

    Raises:
        ConfigError: The settings of the cell cannot work.
        DataError: Its recipe cannot be read.
    """
    done = [one for one in runs.values() if one.state == DONE]
    wanted = _but_for_seed(spec, cell)
    same = [one.seconds for one in done if _but_for_seed(spec, one.cell) == wanted]
    if same:
        return spread(same).mean
    like = [(one.seconds, _stored_work(one)) for one in done if _same_task(one.cell, cell)]
    known = [(seconds, work) for seconds, work in like if work is not None]
    if known:
        whole = cell if cell.settings.keys() >= set(spec.searched) else spec.sample_cell(cell.labels)
        work = _work(cell.verb, recipe_settings(resolve(whole)))
        return work * sum(seconds for seconds, _ in known) / sum(work for _, work in known)
    return spec.seconds


def _but_for_seed(spec: Spec, cell: Cell) -> str:
    """What decides the result of a run, without what the levels of the seed axis set."""
    levels = spec.levels(SEED).values() if SEED in spec.axes else ()
    of_seed = {key for settings in levels for key in settings}
    rest = {key: value for key, value in cell.settings.items() if key not in of_seed}
    return replace(cell, settings=rest).key


def _same_task(first: Cell, second: Cell) -> bool:
    return first.settings.get("task") == second.settings.get("task")


def _stored_work(run: StoredRun) -> float | None:
    """None where the recipe of an older run is gone."""
    try:
        return _work(run.cell.verb, run.result.get("recipe") or recipe_settings(resolve(run.cell)))
    except (ConfigError, DataError):
        return None


def _work(verb: str, settings: Mapping[str, Any]) -> float:
    """Examples or pieces that are trained on, up to a factor that all runs share."""
    if verb == "train":
        return math.prod(float(settings[name]) for name in STEPS)
    rates = settings["training.learning_rates"] if settings["training.learning_rate"] == "auto" else (1,)
    return len(rates) * math.prod(float(settings[name]) for name in EPOCHS)
