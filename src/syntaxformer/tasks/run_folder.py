"""Whether a run may use an output folder: a new one, an interrupted one to resume, or one to overwrite."""

from __future__ import annotations

import shutil
from pathlib import Path

from syntaxformer.atomic import atomic_file
from syntaxformer.config import read_yaml
from syntaxformer.errors import ConfigError, DataError
from syntaxformer.folders import MANIFEST, remove_partial_folders
from syntaxformer.training.recipe import Recipe

__all__ = ["RECIPE", "check_run", "open_run"]

RECIPE = "recipe.yaml"
FREE_ON_RESUME = {
    "output",
    "training.max_steps",
    "training.log_every",
    "training.tensorboard",
    "training.patience",
    "training.keep_checkpoints",
    "training.average",
    "annotation.processes",
    "data.cache",
    "data.dir",
}
"""Settings that may change between an interruption and its resumption."""


def check_run(recipe: Recipe, resume: bool = False, overwrite: bool = False) -> None:
    """Hold that the output folder may be used, before any work is done; changes nothing.

    Raises:
        ConfigError: It holds another run, there is none to resume, or the recipe to resume is another.
    """
    output, stored = recipe.output, recipe.output / RECIPE
    if resume and overwrite:
        raise ConfigError("resume and overwrite: expected one of them, got both.")
    if resume:
        _same_run(recipe, stored)
    elif _is_taken(output) and not (overwrite and stored.exists()):
        what = "another run" if stored.exists() else "other files"
        remedy = (
            "Choose another output, or give --resume or --overwrite."
            if stored.exists()
            else "Choose another output."
        )
        raise ConfigError(
            f"output: expected a new or empty folder, got {output}, which holds {what}. {remedy}"
        )


def open_run(recipe: Recipe, resume: bool = False) -> None:
    """Make the output folder ready, after `check_run`: an older run goes, the resolved recipe is stored.

    A run that is resumed is unfinished again: its manifest goes, and what a killed process left half-written.

    Raises:
        DataError: The folder cannot be written.
    """
    output = recipe.output
    try:
        if resume:
            (output / MANIFEST).unlink(missing_ok=True)
            remove_partial_folders(output)
            remove_partial_folders(output / "checkpoints")
        elif _is_taken(output):
            shutil.rmtree(output)
        output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(f"expected to write the folder, got: {error.strerror}.", output) from error
    with atomic_file(output / RECIPE) as temporary:
        temporary.write_text(recipe.to_yaml(), "utf-8")


def _is_taken(output: Path) -> bool:
    return output.exists() and (not output.is_dir() or any(output.iterdir()))


def _same_run(recipe: Recipe, stored: Path) -> None:
    if not stored.exists():
        raise ConfigError(
            f"resume: expected a run in {stored.parent}, found none. Leave --resume out to start one."
        )
    old, new = _flat(read_yaml(stored)), _flat(recipe.model_dump(mode="json"))
    changed = [key for key in sorted(old.keys() | new.keys()) if old.get(key) != new.get(key)]
    problems = [
        f"resume: expected {key}={old.get(key)!r} as in the interrupted run, got {new.get(key)!r}."
        for key in changed
        if key not in FREE_ON_RESUME
    ]
    if problems:
        raise ConfigError(problems)


def _flat(content: dict[str, object], prefix: str = "") -> dict[str, object]:
    flat: dict[str, object] = {}
    for key, value in content.items():
        if isinstance(value, dict):
            flat |= _flat(value, f"{prefix}{key}.")
        else:
            flat[prefix + key] = value
    return flat
