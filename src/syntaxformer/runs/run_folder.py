"""Whether a run may use an output folder: a new one, an interrupted one to resume, or one to overwrite."""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, TypeVar

from filelock import FileLock, Timeout
from pydantic import ValidationError

from syntaxformer.base.config import flat_settings, read_yaml
from syntaxformer.base.errors import ConfigError, DataError
from syntaxformer.base.files import LOCK, MANIFEST, PARTIAL, atomic_file, remove_partials
from syntaxformer.runs.checkpoints import complete_checkpoints, numbered_checkpoints
from syntaxformer.runs.config import RunConfig
from syntaxformer.runs.processes import pick_precision

__all__ = [
    "NO_EFFECT",
    "RECIPE",
    "RUN",
    "check_run",
    "empty_folder",
    "hold_run",
    "is_finished_without_checkpoints",
    "last_checkpoint",
    "move_files",
    "open_run",
    "settle_precision",
    "share_files",
]

_log = logging.getLogger("syntaxformer.training")

RECIPE = "recipe.yaml"
RUN = "run.json"
OWN = (
    *(RECIPE, MANIFEST, RUN, "syntaxformer.json", "config.json", "generation_config.json"),
    *("model*.safetensors", "*.safetensors.index.json", "tokenizer*", "special_tokens_map.json"),
    *("target_tokenizer.json",),
    *("vocab.*", "merges.txt", "spiece.model", "added_tokens.json", "chat_template.jinja"),
    *("classifier.json", "collator.json", "infusion.json", "predictions.tsv"),
    *("checkpoints", "logs", "cache", LOCK, f".*{PARTIAL}"),
)
"""What a run writes, and `--overwrite` may delete."""

NO_EFFECT = {
    "output",
    "training.log_every",
    "training.tensorboard",
    "training.keep_checkpoints",
    "training.sharded",
    "training.activation_checkpointing",
    "annotation.processes",
    "annotation.force",
    "data.cache",
    "data.dir",
}
"""Places, which may move with their content, and how work is shown and shared out: results do not change."""

FREE_ON_RESUME = NO_EFFECT | {"training.max_steps", "training.patience", "training.average"}
"""Settings that may change between an interruption and its resumption."""


Settings = TypeVar("Settings", bound=RunConfig)


def settle_precision(recipe: Settings, resume: bool = False) -> Settings:
    """Say what `training.precision: auto` is in this run, so that its folder stores it.

    A resumed run goes on as it began, also where another precision would be faster.
    """
    wanted, stored = recipe.training.precision, recipe.output / RECIPE
    if resume and wanted == "auto" and stored.exists():
        wanted = (read_yaml(stored).get("training") or {}).get("precision", wanted)
    training = recipe.training.model_copy(update={"precision": pick_precision(wanted)})
    return recipe.model_copy(update={"training": training})


def check_run(recipe: RunConfig, resume: bool = False, overwrite: bool = False) -> None:
    """Hold that the output folder may be used, before any work is done; changes nothing.

    Raises:
        ConfigError: It holds another run or other files, another command works in it, there is none to
            resume, or that has another recipe.
    """
    _check(recipe, resume, overwrite)
    if (recipe.output / LOCK).exists():
        with hold_run(recipe.output):
            pass


def _check(recipe: RunConfig, resume: bool, overwrite: bool) -> None:
    output, stored = recipe.output, recipe.output / RECIPE
    if resume and overwrite:
        raise ConfigError("resume and overwrite: expected one of them, got both.")
    if resume:
        _same_run(recipe, stored)
        return
    cache = recipe.data.cache
    if cache is not None and cache.resolve().is_relative_to(output.resolve()):
        raise ConfigError(
            f"data.cache: expected a folder outside output, {output}, which holds a run and nothing else, "
            f"got {cache}."
        )
    foreign = _foreign(output)
    if foreign or (stored.exists() and not overwrite):
        what = f"other files: {', '.join(foreign[:3])}" if foreign else "another run"
        remedy = "" if foreign else ", or give --resume or --overwrite"
        raise ConfigError(
            f"output: expected a new or empty folder, got {output}, which holds {what}. "
            f"Choose another output{remedy}."
        )


def is_finished_without_checkpoints(recipe: RunConfig) -> bool:
    """Whether the output folder is a finished model whose checkpoints were deleted: nothing to resume.

    Raises:
        ConfigError: It is, and the recipe asks for more updates than it had.
    """
    output = recipe.output
    if not (output / MANIFEST).exists() or numbered_checkpoints(output / "checkpoints"):
        return False
    wanted, had = recipe.training.max_steps, read_yaml(output / RECIPE)["training"]["max_steps"]
    if wanted > had:
        raise ConfigError(
            f"resume: expected checkpoints to go on from to {wanted} updates, got {output}, a model that is "
            f"finished with {had} and has none. Give --overwrite to train anew."
        )
    _log.info("%s: finished already", output)
    return True


def last_checkpoint(output: Path) -> Path | None:
    """The newest complete checkpoint."""
    whole, _ = complete_checkpoints(output / "checkpoints")
    if not whole:
        _log.warning("no complete checkpoint in %s: starting from the beginning", output)
        return None
    _log.info("resuming from %s", whole[-1])
    return whole[-1]


@contextmanager
def hold_run(output: Path) -> Iterator[None]:
    """Keep the output folder, created where there is none, from other commands while this one works in it.

    Where a disk knows no locks, nothing is held. A process that is killed holds nothing any more.

    Raises:
        ConfigError: Another command works in it.
        DataError: The folder cannot be written.
    """
    lock = FileLock(output / LOCK)
    try:
        output.mkdir(parents=True, exist_ok=True)
        lock.acquire(timeout=0)
    except Timeout as error:
        raise ConfigError(
            f"output: expected a folder that no other command works in, got {output}, where one does. "
            "Wait for it to end, or choose another."
        ) from error
    except NotImplementedError:
        pass
    except OSError as error:
        raise DataError(f"expected to write the folder, got: {error.strerror}.", output) from error
    try:
        yield
    finally:
        if lock.is_locked:
            (output / LOCK).unlink(missing_ok=True)  # nobody waits for it
            lock.release()


def open_run(recipe: RunConfig, resume: bool = False, overwrite: bool = False) -> None:
    """Make the output folder, which `hold_run` holds, ready: an older run goes, the recipe is stored.

    A run that is resumed is unfinished again: its manifest goes, and what a killed process left half-written.

    Raises:
        ConfigError: As `check_run`: another process may have used the folder before it was held.
        DataError: The folder cannot be written.
    """
    _check(recipe, resume, overwrite)
    output = recipe.output
    try:
        output.mkdir(parents=True, exist_ok=True)
        if resume:
            (output / MANIFEST).unlink(missing_ok=True)
            remove_partials(output)
            remove_partials(output / "checkpoints", below=True)
        else:
            empty_folder(output)
    except OSError as error:
        raise DataError(f"expected to write the folder, got: {error.strerror}.", output) from error
    with atomic_file(output / RECIPE) as temporary:
        temporary.write_text(recipe.to_yaml(), "utf-8")


def move_files(folder: Path, output: Path) -> None:
    """Move the files of a finished model into the output folder, as readable as any that the user creates."""
    share_files(folder)
    for file in folder.iterdir():
        file.replace(output / file.name)


def share_files(folder: Path) -> None:
    """Let everyone read the files of a folder whom the umask lets: safetensors writes for the owner alone."""
    umask = os.umask(0)
    os.umask(umask)
    for file in folder.iterdir():
        file.chmod(0o666 & ~umask)


def empty_folder(folder: Path, last: str = RECIPE) -> None:
    """Delete what is in a folder, which may itself be a link; a lock is kept.

    Args:
        folder: The folder.
        last: The name that goes last: by it one knows the rest as ours, should this be cut short.
    """
    paths = (path for path in folder.iterdir() if path.name != LOCK)
    for path in sorted(paths, key=lambda path: path.name == last):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()


def _foreign(output: Path) -> list[str]:
    """Names in a folder that no run of ours wrote; they are never deleted."""
    if not output.exists():
        return []
    if not output.is_dir():
        return [output.name]
    names = sorted(path.name for path in output.iterdir())
    own = OWN if RECIPE in names else (LOCK, f".*{PARTIAL}")
    return [name for name in names if not any(fnmatch(name, pattern) for pattern in own)]


def _same_run(recipe: RunConfig, stored: Path) -> None:
    if not stored.exists():
        raise ConfigError(
            f"resume: expected a run in {stored.parent}, found none. Leave --resume out to start one."
        )
    old, new = (
        flat_settings(content)
        for content in (_with_defaults(read_yaml(stored), type(recipe)), recipe.model_dump(mode="json"))
    )
    changed = [key for key in sorted(old.keys() | new.keys()) if old.get(key) != new.get(key)]
    problems = [
        f"resume: expected {key}={old.get(key)!r} as in the interrupted run, got {new.get(key)!r}."
        for key in changed
        if key not in FREE_ON_RESUME and not (key == "training.precision" and old.get(key) == "auto")
    ]
    if problems:
        raise ConfigError(problems)


def _with_defaults(content: dict[str, Any], kind: type[RunConfig]) -> dict[str, Any]:
    """A stored recipe with what it does not name: an earlier version had fewer settings."""
    try:
        return kind.model_validate(content).model_dump(mode="json")
    except ValidationError:
        return content
