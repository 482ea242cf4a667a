"""Where a result comes from: the commit of the code, the recipe as it was, the size of the model."""

from __future__ import annotations

import hashlib
import json
import math
import subprocess
from collections.abc import Iterable, Mapping
from itertools import accumulate
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from syntaxformer import __version__
from syntaxformer.base.errors import ConfigError
from syntaxformer.base.files import atomic_file, hash_file, read_json
from syntaxformer.encoders.finetune_config import FinetuneConfig
from syntaxformer.runs.run_folder import NO_EFFECT
from syntaxformer.study.experiments.cell_config import resolve
from syntaxformer.study.experiments.store import StoredRun
from syntaxformer.translation.recipe import Recipe

__all__ = [
    "UNKNOWN",
    "check_recipe",
    "checkpoint_sha256",
    "code_versions",
    "count_parameters",
    "differing_settings",
    "recipe_settings",
    "value_at",
]

VERSIONS = "code.json"
UNKNOWN = object()
"""Stands for a setting that a version of this package does not have."""


def code_version() -> str:
    """The last commit of this package's sources, "+" if they were changed since; else the version.

    Commits that touch other files only make no other code.
    """
    folder = Path(__file__).resolve().parent
    log = ["log", "-1", "--format=%h", "--abbrev=12", "--", folder.parent]
    commands = (log, ["status", "--porcelain", "-uno", "--", folder.parent])
    try:
        commit, changes = (
            subprocess.run(
                ["git", "-C", folder, *command], capture_output=True, text=True, check=True, timeout=30
            ).stdout.strip()
            for command in commands
        )
    except (OSError, subprocess.SubprocessError):
        return __version__
    if not commit:  # installed below another project's repository
        return __version__
    return f"{commit}+" if changes else commit


def code_versions(folder: Path) -> list[str]:
    """The versions of the code that the processes of a run had, in order; this one is noted in its folder.

    Raises:
        CheckpointError: The note is not one.
        DataError: The folder cannot be written.
    """
    path, now = folder / VERSIONS, code_version()
    before: list[str] = read_json(path)["versions"] if path.exists() else []
    versions = list(dict.fromkeys([*before, now]))
    if versions != before:
        with atomic_file(path) as temporary:
            temporary.write_text(json.dumps({"versions": versions}), "utf-8")
    return versions


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
    return {key: value for key, value in _settings(recipe).items() if key not in NO_EFFECT}


def _settings(section: BaseModel, prefix: str = "") -> dict[str, Any]:
    """Sections are taken apart; a mapping with keys of its own, also an empty one, is one value."""
    found: dict[str, Any] = {}
    for name, value in section.model_dump(mode="json").items():
        part = getattr(section, name)
        found |= (
            _settings(part, f"{prefix}{name}.") if isinstance(part, BaseModel) else {prefix + name: value}
        )
    return found


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
        for key, (expected, got) in differing_settings(stored, now).items():
            raise ConfigError(
                f"{run.cell.recipe or run.cell.verb}: expected {key}={expected!r}, as in the "
                f"finished run {run.cell.name}, got {got!r}. Set it back, or give the experiment "
                "another name."
            )


def differing_settings(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Setting → its two values, where they differ; of a section that only one of them has, the whole.

    What one of them does not know at all is of another version of this package, and left out.

    Args:
        first: As `recipe_settings` has it.
        second: Likewise.
    """
    found: dict[str, tuple[Any, Any]] = {}
    for key in sorted(first.keys() | second.keys()):
        for place in accumulate(key.split("."), "{}.{}".format):
            if place in first or place in second:
                values = value_at(first, place), value_at(second, place)
                if UNKNOWN not in values and values[0] != values[1]:
                    found[place] = values
    return found


def value_at(settings: Mapping[str, Any], place: str) -> Any:
    """What `recipe_settings` has at a place: a value, the section below it, or UNKNOWN."""
    if place in settings:
        return settings[place]
    start = f"{place}."
    section = {key.removeprefix(start): value for key, value in settings.items() if key.startswith(start)}
    return section or UNKNOWN
