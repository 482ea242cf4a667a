"""Where a result comes from: the commit of the code, the recipe as it was, the size of the model."""

from __future__ import annotations

import hashlib
import math
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from syntaxformer import __version__
from syntaxformer.config import flat_settings
from syntaxformer.errors import ConfigError
from syntaxformer.experiments.cell_config import resolve
from syntaxformer.experiments.store import StoredRun
from syntaxformer.folders import hash_file
from syntaxformer.tasks.run_folder import NO_EFFECT
from syntaxformer.training.finetune_config import FinetuneConfig
from syntaxformer.training.recipe import Recipe

__all__ = ["check_recipe", "checkpoint_sha256", "code_version", "count_parameters", "recipe_settings"]


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


def checkpoint_sha256(model: str) -> str | None:
    """Hash of the weights and settings in a checkpoint's folder; None for a name on the Hub."""
    names = ("*.safetensors", "*.bin", "*.json", "*.txt")
    files = sorted(file for name in names for file in Path(model).glob(name) if file.is_file())
    if not files:
        return None
    return hashlib.sha256("\n".join(f"{file.name} {hash_file(file)}" for file in files).encode()).hexdigest()


def recipe_settings(recipe: Recipe | FinetuneConfig) -> dict[str, Any]:
    """All settings that decide what a run finds: `section.key` → value."""
    found = flat_settings(recipe.model_dump(mode="json"))
    return {key: value for key, value in found.items() if key not in NO_EFFECT}


def check_recipe(runs: Iterable[StoredRun]) -> None:
    """Hold that finished runs come from recipe and defaults as they are now: an experiment must not mix two.

    Raises:
        ConfigError: They changed since, in a setting that the experiment itself does not give.
    """
    for run in runs:
        stored: Mapping[str, Any] | None = run.result.get("recipe")
        if stored is None:
            continue  # of an earlier version
        now = recipe_settings(resolve(run.cell))
        for key in sorted(stored.keys() & now.keys()):
            if stored[key] != now[key]:
                raise ConfigError(
                    f"{run.cell.recipe or run.cell.verb}: expected {key}={stored[key]!r}, as in the "
                    f"finished run {run.cell.name}, got {now[key]!r}. Set it back, or give the experiment "
                    "another name."
                )
