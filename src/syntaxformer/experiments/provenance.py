"""Where a result comes from: the commit of the code, the recipe as it was, the size of the model."""

from __future__ import annotations

import math
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from syntaxformer import __version__
from syntaxformer.config import flat_settings
from syntaxformer.errors import ConfigError
from syntaxformer.experiments.store import StoredRun
from syntaxformer.tasks.run_folder import NO_EFFECT
from syntaxformer.training.recipe import Recipe, load_recipe

__all__ = ["check_recipe", "code_version", "count_parameters", "recipe_settings"]


def code_version() -> str:
    """The commit of the source tree that this package runs from, "+" if it was changed; else the version."""
    folder = Path(__file__).resolve().parent
    commands = (["rev-parse", "--short=12", "HEAD"], ["status", "--porcelain", "-uno", "--", folder.parent])
    try:
        commit, changes = (
            subprocess.run(
                ["git", "-C", folder, *command], capture_output=True, text=True, check=True, timeout=30
            ).stdout.strip()
            for command in commands
        )
    except (OSError, subprocess.SubprocessError):
        return __version__
    return f"{commit}+" if changes else commit


def count_parameters(folder: Path) -> int:
    """Numbers in a folder's safetensors files; a tied table is stored, and counted, once."""
    from safetensors import safe_open

    total = 0
    for file in sorted(folder.glob("*.safetensors")):
        with safe_open(file, "np") as tensors:
            total += sum(math.prod(tensors.get_slice(name).get_shape()) for name in tensors.keys())  # noqa: SIM118
    return total


def recipe_settings(recipe: Recipe) -> dict[str, Any]:
    """All settings that decide what a run of a recipe finds: `section.key` → value."""
    found = flat_settings(recipe.model_dump(mode="json"))
    return {key: value for key, value in found.items() if key not in NO_EFFECT}


def check_recipe(runs: Iterable[StoredRun]) -> None:
    """Hold that finished translators come from the recipe as it is now: an experiment must not mix two.

    Raises:
        ConfigError: It was edited since, in a setting that the experiment itself does not give.
    """
    for run in runs:
        stored: Mapping[str, Any] | None = run.result.get("recipe")
        if stored is None or run.cell.recipe is None:
            continue
        now = recipe_settings(load_recipe(run.cell.recipe, run.cell.overrides()))
        for key in sorted(stored.keys() & now.keys()):
            if stored[key] != now[key]:
                raise ConfigError(
                    f"{run.cell.recipe}: expected {key}={stored[key]!r}, as in the finished run "
                    f"{run.cell.name}, got {now[key]!r}. Set it back, or give the experiment another name."
                )
