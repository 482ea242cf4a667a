"""Does the missing runs of an experiment in parallel processes, each with a GPU if there are any.

If the runner is killed, its processes continue. The next runner finds their results or waits for them,
because each process holds the lock of its run's folder.
"""

from __future__ import annotations

import logging
import math
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain, takewhile
from pathlib import Path
from typing import Any

from filelock import Timeout

from syntaxformer.base.errors import ConfigError, DataError
from syntaxformer.base.files import read_json
from syntaxformer.base.statistics import spread
from syntaxformer.runs.run_folder import counted_seconds
from syntaxformer.study.experiments.cell import (
    RESULT,
    check_experiment,
    check_recipe,
    recipe_settings,
    resolve,
    write_cell,
)
from syntaxformer.study.experiments.spec import SEED, Cell, Only, Spec, is_wanted
from syntaxformer.study.experiments.store import (
    DONE,
    FAILED,
    KILLED,
    RUNNING,
    WAITING,
    RunStore,
    StoredRun,
    next_trial,
    own_runs,
    tuned,
)

_log = logging.getLogger("syntaxformer.experiments")

LOG = "log.txt"
POLL_S = 0.2
"""Seconds between two checks of running processes."""


def cell_command(folder: Path) -> list[str]:
    """The command line that does the run of a folder."""
    return [sys.executable, "-m", "syntaxformer", "experiment", "cell", str(folder)]


class LocalExecutor:
    """Starts runs as parallel processes on this machine, at most one for each GPU if there are any."""

    def __init__(self, n_jobs: int, command: Callable[[Path], list[str]] = cell_command) -> None:
        self._devices = _devices()
        self.n_jobs = min(n_jobs, len(self._devices) or n_jobs)
        if self.n_jobs < n_jobs:
            _log.warning("jobs: %d, one for each GPU, and not %d", self.n_jobs, n_jobs)
        self._command = command
        self._slots: list[subprocess.Popen[bytes] | None] = [None] * self.n_jobs

    def start(self, folder: Path) -> subprocess.Popen[bytes]:
        """Start the run of a folder in the first free slot; its output is appended to its LOG.

        Threads are shared out, unless the user has set their number; each slot has a device of its own.
        """
        ended = [process is None or process.poll() is not None for process in self._slots]
        slot, environment = ended.index(True), dict(os.environ)
        environment.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // self.n_jobs)))
        if self._devices:
            environment["CUDA_VISIBLE_DEVICES"] = self._devices[slot]
        with (folder / LOG).open("ab") as log:
            process = subprocess.Popen(
                self._command(folder), stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment
            )
        self._slots[slot] = process
        return process


def _devices() -> list[str]:
    """The GPUs that runs may use; CUDA reads the list up to the first negative number."""
    if (visible := os.environ.get("CUDA_VISIBLE_DEVICES")) is not None:
        numbers = takewhile(lambda number: not number.strip().startswith("-"), visible.split(","))
        return list(filter(None, numbers))
    import torch

    return [str(number) for number in range(torch.cuda.device_count())]


MOST_KILLS = 2
"""After so many kills, a run is left for the next runner, because it may be what fills the memory."""


def run_experiment(
    spec: Spec,
    store: RunStore,
    n_jobs: int = 1,
    retry_failed: bool = False,
    only: Only | None = None,
    executor: LocalExecutor | None = None,
) -> Counter[str]:
    """Do the runs that are not done; of an experiment with `tune`, first those that choose its settings.

    Args:
        spec: The experiment.
        store: The store of its runs.
        n_jobs: Number of parallel processes; each gets a GPU if there are any.
        retry_failed: Do failed runs again, of those that `only` names.
        only: Axis → levels of the runs to do; the others wait. None for all.
        executor: Starts the runs, instead of a `LocalExecutor`.

    Returns:
        State → number of runs, of those that `only` names.

    Raises:
        ConfigError: Another runner uses this store, there is no such axis or level, settings or test files
            cannot work (all of them together), or the recipe is not that of the finished runs, even if it
            was edited after the first run started.
        DataError: The store cannot be written.
        BackendMissingError: A search needs Optuna, which is not installed.
    """
    only = only or {}
    spec.check_only(only)
    check_experiment(spec, store.runs())
    lock = store.lock()
    try:
        store.folder.mkdir(parents=True, exist_ok=True)
        lock.acquire(timeout=1)  # a process that lists the runs holds it for a moment
    except Timeout as error:
        raise ConfigError(
            f"{store.folder}: expected no other runner on this store, got one. Wait for it to end."
        ) from error
    except OSError as error:
        raise DataError(f"expected a folder for a store of runs, got: {error}.", store.folder) from error
    try:
        store.release([RUNNING])
        counts: Counter[str] = Counter()
        stages = [(spec, only)]
        if (tuning := spec.tuning()) is not None:
            stages.insert(0, (tuning, {axis: levels for axis, levels in only.items() if axis != SEED}))
        executor = executor or LocalExecutor(n_jobs)
        for stage, of_stage in stages:
            ready = tuned(stage, store.runs())
            store.add([cell for cell in ready.cells() if ready.is_ready(cell.labels)])
            runs = own_runs(ready, store.runs())
            keys = [key for key, run in runs.items() if is_wanted(run.cell.labels, of_stage)]
            store.release([KILLED, *([FAILED] if retry_failed else [])], keys)
            counts += _Runner(ready, store, executor, of_stage).run()
        return counts
    finally:
        lock.release()


@dataclass
class _Job:
    cell: Cell
    process: subprocess.Popen[bytes]
    start: float
    log_start: int
    seconds_before: float


@dataclass
class _Runner:
    spec: Spec
    store: RunStore
    executor: LocalExecutor
    only: Only
    jobs: list[_Job] = field(default_factory=list)
    kills: Counter[str] = field(default_factory=Counter)

    def run(self) -> Counter[str]:
        try:
            while True:
                if len(self.jobs) < self.executor.n_jobs and (cell := self._next()) is not None:
                    self._start(cell)
                elif not self.jobs:
                    break
                else:
                    time.sleep(POLL_S)
                for job in list(self.jobs):
                    if (code := job.process.poll()) is not None:
                        self.jobs.remove(job)
                        self._record(job, code)
        except BaseException:  # the processes of an interrupted runner end; their runs are resumed
            for job in self.jobs:
                job.process.terminate()
            for job in self.jobs:
                job.process.wait()
                self.store.stop(job.cell.key, KILLED, self._seconds(job), "the runner was interrupted")
            raise
        runs = own_runs(self.spec, self.store.runs()).values()
        return Counter(run.state for run in runs if is_wanted(run.cell.labels, self.only))

    def _next(self) -> Cell | None:
        runs = self.store.runs()
        if self.spec.search is not None:
            cell = next_trial(self.spec, runs, self.only)
            if cell is not None:
                self.store.add([cell])
            return cell
        ready = (cell for cell in self.spec.cells() if self.spec.is_ready(cell.labels))
        stored = (runs[cell.key] for cell in ready if is_wanted(cell.labels, self.only))
        return next((run.cell for run in stored if run.state == WAITING), None)

    def _start(self, cell: Cell) -> None:
        runs = self.store.runs()
        check_recipe(own_runs(self.spec, runs).values())  # it may be edited during runs
        folder = self.store.cell_folder(cell)
        folder.mkdir(parents=True, exist_ok=True)
        write_cell(cell, folder, self.spec)
        self.store.start(cell.key)
        (folder / LOG).touch()
        log_start = (folder / LOG).stat().st_size
        process, start = self.executor.start(folder), time.monotonic()
        self.jobs.append(_Job(cell, process, start, log_start, runs[cell.key].seconds))
        _log.info("started %s", cell.name)

    def _record(self, job: _Job, code: int) -> None:
        key, name, seconds = job.cell.key, job.cell.name, self._seconds(job)
        folder = self.store.cell_folder(job.cell)
        if (folder / RESULT).exists():
            plans = self.spec.report.model_dump(exclude_defaults=True, include={"primary", "secondary"})
            plans = {"primary": None, **plans}  # None: nothing was planned
            plans = {name: {self.spec.name: plan} for name, plan in plans.items()}
            self.store.finish(key, seconds, read_json(folder / RESULT) | plans)
            states = sorted(Counter(run.state for run in self.store.runs().values()).items())
            summary = ", ".join(f"{count} {state}" for state, count in states)
            _log.info("done %s in %.0f s; %s", name, seconds, summary)
        elif code < 0:
            self.kills[key] += 1
            self.store.stop(key, KILLED, seconds, f"killed by {signal.Signals(-code).name}")
            _log.warning("killed %s by %s", name, signal.Signals(-code).name)
            if self.kills[key] < MOST_KILLS:
                self.store.release([KILLED], [key])
        else:
            # The last error line of this attempt, or its last line.
            text = (folder / LOG).read_bytes()[job.log_start :].decode("utf-8", errors="replace")
            lines = [line for line in text.splitlines() if line.strip()] or [f"exit code {code}"]
            errors = [line.removeprefix("error: ") for line in lines if line.startswith("error: ")]
            error = (errors or lines)[-1]
            self.store.stop(key, FAILED, seconds, error)
            _log.warning("failed %s: %s", name, error)

    def _seconds(self, job: _Job) -> float:
        """Of all attempts, as measured by the runner, or by the run if it had no runner."""
        watched = job.seconds_before + time.monotonic() - job.start
        return max(watched, counted_seconds(self.store.cell_folder(job.cell)))


def estimate_seconds(spec: Spec, cell: Cell, runs: Mapping[str, StoredRun]) -> float | None:
    """Estimated seconds by the clock on the machine of earlier runs; None if nothing is known.

    The mean of runs that differ only in the seed, or else the rate of runs of the same task.

    Raises:
        ConfigError: The settings of the cell cannot work.
        DataError: Its recipe cannot be read.
    """
    of_seed = set(chain.from_iterable(spec.levels(SEED).values())) if SEED in spec.axes else set()

    def without_seed(cell: Cell) -> str:
        rest = {key: value for key, value in cell.settings.items() if key not in of_seed}
        return replace(cell, settings=rest).key

    def amount(settings: Mapping[str, Any]) -> float:
        """The number of examples or pieces trained on, up to a factor that all runs share."""
        if cell.verb == "train":
            factors = ("training.max_steps", "training.max_batch_tokens", "training.accumulate")
            return math.prod(float(settings[name]) for name in factors)
        rates = settings["training.learning_rates"] if settings["training.learning_rate"] == "auto" else (1,)
        return len(rates) * (float(settings["training.epochs"]) * float(settings["data.fraction"]))

    done = [run for run in runs.values() if run.state == DONE]
    if same := [run.seconds for run in done if without_seed(run.cell) == without_seed(cell)]:
        return spread(same).mean
    seconds = work = 0.0
    for run in done:
        if run.cell.settings.get("task") == cell.settings.get("task"):
            # The recipe of an older run may be gone, or lack settings of today.
            with suppress(ConfigError, DataError, KeyError):
                work += amount(run.result.get("recipe") or recipe_settings(resolve(run.cell)))
                seconds += run.seconds
    whole = replace(cell, settings={**spec.searched, **cell.settings})
    if not work:
        if spec.seconds is None or cell.verb == "train":  # whose updates do not depend on the share
            return spec.seconds
        return spec.seconds * recipe_settings(resolve(whole))["data.fraction"]
    return amount(recipe_settings(resolve(whole))) * seconds / work
