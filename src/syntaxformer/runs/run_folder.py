"""The output folder of a run (new, resumed or overwritten), its running time, and the model it writes."""

from __future__ import annotations

import json
import logging
import os
import platform
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from fnmatch import fnmatch
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Generic, TypeVar

import torch
from accelerate import PartialState
from filelock import FileLock, Timeout
from pydantic import ValidationError
from transformers.utils import logging as hf_logging

from syntaxformer.base.config import flat_settings, read_yaml
from syntaxformer.base.errors import ConfigError, DataError
from syntaxformer.base.files import (
    BAD_ROWS,
    CARD,
    HELD_OUT,
    KEPT,
    LOCK,
    MANIFEST,
    PARTIAL,
    TRAINED_ON,
    disk_errors,
    make_readable,
    remove_partials,
    write_json,
    write_manifest,
    write_text,
)
from syntaxformer.infusion.model_card import write_card
from syntaxformer.nn.kernels.memory import bound_kernel_cache
from syntaxformer.runs.checkpoints import complete_checkpoints, numbered_checkpoints
from syntaxformer.runs.config import RunConfig
from syntaxformer.runs.processes import check_compiler, check_graphs, pick_precision, process_team

_log = logging.getLogger("syntaxformer.training")

RECIPE = "recipe.yaml"
RUN = "run.json"
OWN = (
    *(RECIPE, MANIFEST, RUN, "syntaxformer.json", "config.json", "generation_config.json"),
    *("model*.safetensors", "*.safetensors.index.json", "tokenizer*", "special_tokens_map.json"),
    *("target_tokenizer.json",),
    *("vocab.*", "merges.txt", "spiece.model", "added_tokens.json", "chat_template.jinja"),
    *("classifier.json", "collator.json", "infusion.json", "predictions.tsv", CARD, "data_report.json"),
    *(HELD_OUT, TRAINED_ON, BAD_ROWS),
    *("checkpoints", "logs", "cache", "lora", KEPT, LOCK, f".*{PARTIAL}"),
)
"""Files that a run writes, which `--overwrite` may delete."""

NO_EFFECT = {
    *("output", "data.cache", "data.dir", "annotation.processes", "annotation.force", "training.log_every"),
    *("training.tensorboard", "training.keep_checkpoints", "training.sharded", "training.workers"),
    "training.activation_checkpointing",
}
"""Settings that do not change results: places of files, and how work is shown and distributed."""

FREE_ON_RESUME = NO_EFFECT | {
    *("training.max_steps", "training.patience", "training.average", "training.compile"),
    "training.cuda_graphs",
}
"""Settings that may change between an interruption and its resumption."""

Settings = TypeVar("Settings", bound=RunConfig)


@dataclass
class Run(Generic[Settings]):
    """A run in one of its processes."""

    settings: Settings  # with the precision decided
    resume: bool
    overwrite: bool
    team: PartialState
    start: float  # of this process, by `time.monotonic`
    resources: ExitStack  # what ends with the run: the lock of its folder and its stopwatch
    watch: Stopwatch | None = None  # only in the process that writes, once the folder is open

    @property
    def writes(self) -> bool:
        """Whether this is the process that writes files."""
        return self.team.is_main_process

    def open(self) -> None:
        """Lock and prepare the output folder and start the stopwatch; only for the process that writes.

        Raises:
            ConfigError: As `check_run`.
            DataError: The folder cannot be written.
        """
        output = self.settings.output
        self.resources.enter_context(hold_run(output))
        open_run(self.settings, self.resume, self.overwrite)
        self.watch = self.resources.enter_context(Stopwatch(output / "checkpoints", start=self.start))

    def write_model(
        self, save: Callable[[Path], object], report: Mapping[str, Any], packages: Sequence[str]
    ) -> None:
        """Write the model's files and `run.json`; the manifest comes last.

        Raises:
            DataError: The folder cannot be written.
        """
        settings, output = self.settings, self.settings.output
        content = {
            **report,
            "seconds": self.watch.stop() if self.watch else None,
            "seed": settings.seed,
            "precision": settings.training.precision,
            "versions": {name: version(name) for name in packages},
            "python": platform.python_version(),
            "processor": platform.processor() or platform.machine(),
            "threads": torch.get_num_threads(),
        }
        with disk_errors(output), TemporaryDirectory(PARTIAL, ".", output) as temporary:
            save(Path(temporary))
            (Path(temporary) / RUN).write_text(json.dumps(content, indent=1), "utf-8")
            (Path(temporary) / CARD).unlink(missing_ok=True)
            move_files(Path(temporary), output)
            write_card(output)
            write_manifest(output)


@contextmanager
def running(settings: Settings, resume: bool = False, overwrite: bool = False) -> Iterator[Run[Settings]]:
    """Begin a run in each of its processes, before any work; at the end they wait for one another.

    Raises:
        ConfigError: As `check_run` and `process_team`, or the processes cannot share an update evenly.
    """
    start = time.monotonic()
    hf_logging.disable_progress_bar()
    bound_kernel_cache()
    team = process_team()
    n_processes, shares_batches = team.num_processes, hasattr(settings.training, "batch_size")
    key, what = ("batch_size", "examples") if shares_batches else ("accumulate", "batches")
    if (value := getattr(settings.training, key)) % n_processes:
        raise ConfigError(
            f"training.{key}: expected a multiple of {n_processes}, the number of processes, got "
            f"{value}. It counts the {what} of all processes: set it to {n_processes} or a multiple."
        )
    settings = settle_precision(settings, resume)
    if settings.training.compile:
        check_compiler(settings.training)
    if settings.training.cuda_graphs:
        check_graphs(settings, n_processes)
    if team.is_main_process:
        check_run(settings, resume, overwrite)
    if resume and not (settings.output / RECIPE).exists():
        _log.info("%s: nothing to resume: starting from the beginning", settings.output)
        resume = False
    with ExitStack() as resources:
        run = Run(settings, resume, overwrite, team, start, resources)
        try:
            yield run
        except KeyboardInterrupt:
            if run.watch is None:
                advice = "nothing was changed; the same command begins again"
            elif any(settings.output.glob(f"checkpoints/**/checkpoint-*/{MANIFEST}")):
                advice = "with --resume the command continues from the last checkpoint"
            else:
                advice = "with --resume the command begins again: there is no checkpoint yet"
            _log.warning("%s: %s", settings.output, advice)
            raise
        team.wait_for_everyone()


def settle_precision(recipe: Settings, resume: bool = False) -> Settings:
    """Decide what `training.precision: auto` means in this run, so that its folder stores it.

    A resumed run keeps its precision, even if another would be faster.
    """
    precision, stored = recipe.training.precision, recipe.output / RECIPE
    if resume and precision == "auto" and stored.exists():
        precision = (read_yaml(stored).get("training") or {}).get("precision", precision)
    training = recipe.training.model_copy(update={"precision": pick_precision(precision)})
    return recipe.model_copy(update={"training": training})


def check_run(recipe: RunConfig, resume: bool = False, overwrite: bool = False) -> None:
    """Check before any work that the output folder may be used; this changes nothing.

    Raises:
        ConfigError: The folder holds another run or other files, or another command uses it.
    """
    _check(recipe, resume, overwrite)
    if (recipe.output / LOCK).exists():
        with hold_run(recipe.output):
            pass


def _check(recipe: RunConfig, resume: bool, overwrite: bool) -> None:
    """As `check_run`, without the lock."""
    output, stored = recipe.output, recipe.output / RECIPE
    if resume and overwrite:
        raise ConfigError("resume and overwrite: expected one of them, got both.")
    if resume and stored.exists():
        _check_same_run(recipe, stored)
        return
    cache = recipe.data.cache
    if cache is not None and cache.resolve().is_relative_to(output.resolve()):
        raise ConfigError(
            f"data.cache: expected a folder outside output, {output}, which holds a run and nothing else, "
            f"got {cache}."
        )
    # Files that no run of ours wrote are never deleted.
    names = sorted(path.name for path in output.iterdir()) if output.is_dir() else []
    patterns = OWN if RECIPE in names else (LOCK, f".*{PARTIAL}")
    foreign = [name for name in names if not any(fnmatch(name, pattern) for pattern in patterns)]
    if output.exists() and not output.is_dir():
        foreign = [output.name]
    if foreign or (stored.exists() and not overwrite):
        what = f"other files: {', '.join(foreign[:3])}" if foreign else "another run"
        remedy = "" if foreign else ", or give --resume or --overwrite"
        raise ConfigError(
            f"output: expected a new or empty folder, got {output}, which holds {what}. "
            f"Choose another output{remedy}."
        )
    if overwrite:
        # Inputs in the output folder would be deleted before they are used.
        settings = flat_settings(recipe.model_dump(mode="json", exclude={"output"}))
        problems = [
            f"{key}: expected a place outside output, {output}, whose files --overwrite would delete, got "
            f"{value}. Choose another output."
            for key, values in settings.items()
            for value in (values if isinstance(values, list) else [values])
            if isinstance(value, str)
            for path in (value, value.partition(":")[2])  # as of conllu:PATH
            if os.path.lexists(path) and Path(path).resolve().is_relative_to(output.resolve())
        ]
        if problems:
            raise ConfigError(problems)


def _check_same_run(recipe: RunConfig, stored: Path) -> None:
    """Check that a resumed run has the settings of the interrupted one, but for those that may change."""
    content = read_yaml(stored)
    with suppress(ValidationError, ConfigError):  # defaults for settings that an earlier version did not have
        content = type(recipe).model_validate(content).completed().model_dump(mode="json")
    old, new = flat_settings(content), flat_settings(recipe.model_dump(mode="json"))
    problems = [
        f"resume: expected {key}={old.get(key)!r} as in the interrupted run, got {new.get(key)!r}."
        for key in sorted(old.keys() | new.keys())
        if old.get(key) != new.get(key)
        and key not in FREE_ON_RESUME
        and not (key == "training.precision" and old.get(key) == "auto")
    ]
    if problems:
        raise ConfigError(problems)


def is_finished_without_checkpoints(recipe: RunConfig) -> bool:
    """Whether the output folder is a finished model without checkpoints, so that there is nothing to resume.

    Raises:
        ConfigError: It is, but the recipe asks for more updates than the model had.
    """
    output = recipe.output
    if not (output / MANIFEST).exists() or numbered_checkpoints(output / "checkpoints"):
        return False
    max_steps, steps = recipe.training.max_steps, read_yaml(output / RECIPE)["training"]["max_steps"]
    if max_steps > steps:
        raise ConfigError(
            f"resume: expected checkpoints from which to train up to {max_steps} updates, got {output}, a "
            f"model that is finished with {steps} and has none. Give --overwrite to train again."
        )
    _log.info("%s: already finished", output)
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
    """Lock the output folder, which is created if necessary, while this command uses it.

    On a disk without locks nothing is locked. The lock of a process that is killed is released.

    Raises:
        ConfigError: Another command uses the folder.
        DataError: The folder cannot be written.
    """
    lock = FileLock(output / LOCK)
    try:
        output.mkdir(parents=True, exist_ok=True)
        lock.acquire(timeout=0)
    except Timeout as error:
        raise ConfigError(
            f"output: expected a folder that no other command uses, got {output}, which is in use. "
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
            (output / LOCK).unlink(missing_ok=True)  # no process waits for it
            lock.release()


def open_run(recipe: RunConfig, resume: bool = False, overwrite: bool = False) -> None:
    """Prepare the output folder, which `hold_run` has locked: delete an older run and store the recipe.

    A resumed run is unfinished again, so its manifest and half-written files of killed processes are deleted.

    Raises:
        ConfigError: As `check_run`, because another process may have used the folder before it was locked.
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
    write_text(output / RECIPE, recipe.to_yaml())


def move_files(folder: Path, output: Path) -> None:
    """Move the files of a finished model into the output folder, with the user's usual permissions."""
    for file in folder.iterdir():
        for path in (file, *file.rglob("*")):
            make_readable(path)
        if file.is_dir() and (output / file.name).is_dir():
            shutil.rmtree(output / file.name)
        file.replace(output / file.name)


def empty_folder(folder: Path, last: str = RECIPE) -> None:
    """Delete the content of a folder, which may be a link, except a lock.

    The file `last` is deleted last: if this is interrupted, it still marks the other files as ours.
    """
    paths = (path for path in folder.iterdir() if path.name != LOCK)
    for path in sorted(paths, key=lambda path: path.name == last):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()


def same_data(hashes: Mapping[str, str], stored: Mapping[str, str]) -> None:
    """Check that a resumed run has the data of the interrupted one, by their sha256.

    Hashes that an older version did not store are skipped.

    Raises:
        ConfigError: A part differs.
    """
    words = {"train": "train text", "dev": "dev text"}
    words["annotation"] = "annotation (annotator, its files, factor files)"
    problems = [
        f"resume: expected the {words[name]} of the interrupted run, got another: its sha256 differs."
        for name, sha256 in hashes.items()
        if stored.get(name, sha256) != sha256
    ]
    if problems:
        raise ConfigError(problems)


SECONDS = "seconds.json"
EVERY_S = 5.0
"""Seconds between two writes, which is the most that is lost if a process is killed."""


class Stopwatch:
    """Measures time while it is entered, continuing from the last process of a run that was interrupted."""

    def __init__(self, folder: Path, every_s: float = EVERY_S, start: float | None = None) -> None:
        self.folder, self.every_s = folder, every_s
        self._before = counted_seconds(folder)
        self._start = time.monotonic() if start is None else start
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._write, daemon=True)

    @property
    def seconds(self) -> float:
        """Seconds of all processes up to now."""
        return round(self._before + time.monotonic() - self._start, 1)

    def __enter__(self) -> Stopwatch:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def stop(self) -> float:
        """Stop measuring and return the seconds of all processes."""
        self._ended.set()
        self._thread.join()
        return self.seconds

    def _write(self) -> None:
        """Store the seconds again and again, and at the end. The run itself reports that a disk is full."""
        is_over = False
        while not is_over:
            is_over = self._ended.wait(self.every_s)
            try:
                write_json(self.folder / SECONDS, {"seconds": self.seconds})
            except DataError as error:
                _log.warning("the time of this run was not stored: %s", error)


def counted_seconds(folder: Path) -> float:
    """Seconds that the processes of a run have stored; 0 if none has."""
    try:
        return float(json.loads((folder / SECONDS).read_text("utf-8"))["seconds"])
    except (OSError, ValueError, KeyError, TypeError):
        return 0.0
