"""Does the missing runs of an experiment in parallel processes, each with a GPU if there are any.

An executor starts processes on this machine or tasks on a Ray cluster; the runner watches and records them.
If the runner is killed, its processes continue. The next runner finds their results or waits for them,
because each process holds the lock of its run's folder.
"""

from __future__ import annotations

import logging
import math
import os
import platform
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import chain, takewhile
from pathlib import Path
from typing import Any

from filelock import Timeout

from syntaxformer.base.errors import ConfigError, DataError, SyntaxformerError
from syntaxformer.base.files import read_json
from syntaxformer.base.ray_cluster import connect, import_ray, reason
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
from syntaxformer.syntax.own_relations import VARIABLE

_log = logging.getLogger("syntaxformer.experiments")

LOG = "log.txt"
"""File with the log of a run's process, in the folder of the run."""

POLL_S = 0.2
"""Seconds between two checks of running processes."""

Command = Callable[[Path], list[str]]
"""Folder of a run → the command that does it."""


class LocalExecutor:
    """Starts runs as parallel processes on this machine, at most one for each GPU if there are any."""

    waits = False
    """A run begins at once, so the runner can measure its time."""

    def __init__(self, n_jobs: int, command: Command | None = None) -> None:
        self._devices = _devices()
        self.n_jobs = one_a_device(n_jobs, len(self._devices))
        self._command = command or cell_command
        self._slots: list[subprocess.Popen[bytes] | None] = [None] * self.n_jobs

    def open(self) -> None:
        """Do nothing: no connection is needed."""

    def start(self, folder: Path) -> subprocess.Popen[bytes]:
        """Start the run of a folder in the first free slot; its output is appended to its LOG.

        Threads are shared out, unless the user has set their number; each slot has a device of its own.
        """
        ended = (
            number
            for number, process in enumerate(self._slots)
            if process is None or process.poll() is not None
        )
        slot, variables = next(ended), {}
        if "OMP_NUM_THREADS" not in os.environ:
            variables["OMP_NUM_THREADS"] = str(max(1, (os.cpu_count() or 1) // self.n_jobs))
        if self._devices:
            variables["CUDA_VISIBLE_DEVICES"] = self._devices[slot]
        process = self._slots[slot] = _process(self._command, folder, variables)
        return process


def _process(
    command: Command, folder: Path, environment: Mapping[str, str], directory: str | None = None
) -> subprocess.Popen[bytes]:
    environment = {**os.environ, **environment}
    with (folder / LOG).open("ab") as log:
        return subprocess.Popen(
            command(folder), stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=directory, env=environment
        )


def cell_command(folder: Path) -> list[str]:
    """This package's own command for one run, with the interpreter of this process."""
    return [sys.executable, "-m", "syntaxformer", "experiment", "cell", str(folder)]


def one_a_device(n_jobs: int, n_devices: int) -> int:
    """The number of jobs, but at most the number of devices if there are any."""
    if 0 < n_devices < n_jobs:
        _log.warning("jobs: %d, one for each GPU, and not %d", n_devices, n_jobs)
        return n_devices
    return n_jobs


def _devices() -> list[str]:
    """The GPUs that runs may use; CUDA reads the list up to the first negative number."""
    if (visible := os.environ.get("CUDA_VISIBLE_DEVICES")) is not None:
        numbers = takewhile(lambda number: not number.strip().startswith("-"), visible.split(","))
        return list(filter(None, numbers))
    import torch

    return [str(number) for number in range(torch.cuda.device_count())]


class RayExecutor:
    """Starts runs as tasks of a Ray cluster, to which it is connected until the end of a `with` block.

    The address is "auto" or "ray://host:10001"; without one, a cluster is started here. A run gets one GPU.

    Raises:
        BackendMissingError: Ray is not installed.
        SyntaxformerError: There is no cluster at the address, or later the cluster or one of its machines
            does not work.
    """

    waits = True
    """A run may wait for a machine, so only the run itself can measure its time."""

    def __init__(self, n_jobs: int, address: str | None = None, command: Command | None = None) -> None:
        self.n_jobs, self._address, self._command = n_jobs, address, command or cell_command
        self._ray = import_ray()
        self._is_connected, self._threads = False, ""
        self._task: Any = None

    def __enter__(self) -> RayExecutor:
        return self

    def __exit__(self, *error: object) -> None:
        if self._is_connected:
            self._ray.shutdown()
        self._is_connected, self._task = False, None

    def open(self) -> None:
        """Connect, and find out which resources the cluster has for a run."""
        if self._task is not None:
            return
        self._is_connected = connect(self._address, max(self.n_jobs, os.cpu_count() or 1))
        with _cluster_errors(self._ray):
            machines = [node["Resources"] for node in self._ray.nodes() if node["Alive"]]
        n_gpus = int(sum(machine.get("GPU", 0) for machine in machines))
        self.n_jobs = one_a_device(self.n_jobs, n_gpus)
        n_cpus = share_of_a_run(machines, self.n_jobs)
        self._threads = os.environ.get("OMP_NUM_THREADS", str(max(1, n_cpus)))
        resources = {"num_cpus": n_cpus, "num_gpus": 1 if n_gpus else 0, "max_retries": 0}
        self._task = self._ray.remote(_work).options(**resources)

    def start(self, folder: Path) -> _RayProcess:
        """Submit a run to the cluster, where it waits until a machine is free."""
        self.open()
        variables = {"OMP_NUM_THREADS": self._threads, VARIABLE: os.environ.get(VARIABLE, "")}
        folders = str(folder.absolute()), str(Path.cwd())
        with _cluster_errors(self._ray):
            return _RayProcess(self._ray, self._task.remote(*folders, variables, self._command))


def share_of_a_run(machines: Sequence[Mapping[str, float]], n_jobs: int) -> int:
    """Number of processors for each of `n_jobs` parallel runs, on machines with so many "CPU" and "GPU".

    With GPUs it is chosen so that each machine can use all of its GPUs; without, so that all runs can work at
    once, but at least one.
    """
    with_gpus = [machine for machine in machines if machine.get("GPU", 0) >= 1]
    if with_gpus:
        return int(min(machine.get("CPU", 0) // machine["GPU"] for machine in with_gpus))
    cpus = [machine.get("CPU", 0) for machine in machines]
    shares = range(int(max(cpus, default=1)), 1, -1)
    return next((share for share in shares if sum(n // share for n in cpus) >= n_jobs), 1)


class _RayProcess:
    """A task with the interface of a process."""

    def __init__(self, ray: Any, task: Any) -> None:
        self._ray, self._task = ray, task

    def poll(self) -> int | None:
        with _cluster_errors(self._ray):
            ready, _ = self._ray.wait([self._task], timeout=0)
        return self.wait() if ready else None

    def terminate(self) -> None:
        with _cluster_errors(self._ray):
            self._ray.cancel(self._task)

    def wait(self) -> int:
        errors = self._ray.exceptions
        with _cluster_errors(self._ray):
            try:
                return self._ray.get(self._task)
            except errors.TaskCancelledError:
                return -signal.SIGTERM
            except (errors.WorkerCrashedError, errors.NodeDiedError, errors.OutOfMemoryError):
                return -signal.SIGKILL


@contextmanager
def _cluster_errors(ray: Any) -> Iterator[None]:
    """Turn errors of Ray and its client into ours."""
    client = sys.modules.get("grpc")
    kinds = (ray.exceptions.RayError, ConnectionError, *([client.RpcError] if client else []))
    try:
        yield
    except kinds as error:
        raise SyntaxformerError(
            f"ray: expected the cluster to work, got: {reason(error)} Finished runs are kept; run the same "
            "command again."
        ) from error


def _work(folder: str, directory: str, environment: Mapping[str, str], command: Command) -> int:
    """Do a run on a machine of the cluster, in a process that ends with the task."""
    process = None
    try:
        process = _process(command, Path(folder), environment, directory)
        while (code := process.poll()) is None:
            time.sleep(POLL_S)  # Ray can interrupt `sleep`, but not `wait`
        return code
    except OSError as error:
        raise OSError(f"{platform.node()} could not start {folder}: {error}") from error
    finally:
        if process is not None:
            process.terminate()
            process.wait()


Executor = LocalExecutor | RayExecutor

MOST_KILLS = 2
"""After so many kills, a run is left for the next runner, because it may be what fills the memory."""


def run_experiment(
    spec: Spec,
    store: RunStore,
    n_jobs: int = 1,
    retry_failed: bool = False,
    command: Command | None = None,
    only: Only | None = None,
    executor: Executor | None = None,
) -> Counter[str]:
    """Do the runs that are not done; of an experiment with `tune`, first those that choose its settings.

    Args:
        spec: The experiment.
        store: The store of its runs.
        n_jobs: Number of parallel processes; each gets a GPU if there are any.
        retry_failed: Do failed runs again, of those that `only` names.
        command: Makes the command for the folder of one run; by default this package's command line.
        only: Axis → levels of the runs to do; the others wait. None for all.
        executor: Does the runs instead of `n_jobs` processes on this machine with `command`.

    Returns:
        State → number of runs, of those that `only` names.

    Raises:
        ConfigError: Another runner uses this store, there is no such axis or level, settings or test files
            cannot work (all of them together), or the recipe is not that of the finished runs, even if it
            was edited after the first run started.
        DataError: The store cannot be written.
        BackendMissingError: A search needs Optuna, which is not installed.
        SyntaxformerError: Any error of `executor`; running runs are ended, and resumed the next time.
    """
    only = only or {}
    spec.check_only(only)
    check_experiment(spec, store.runs())
    store.folder.mkdir(parents=True, exist_ok=True)
    lock = store.lock()
    try:
        lock.acquire(timeout=1)  # a process that lists the runs holds it for a moment
    except Timeout as error:
        raise ConfigError(
            f"{store.folder}: expected no other runner on this store, got one. Wait for it to end."
        ) from error
    try:
        store.release([RUNNING])
        counts: Counter[str] = Counter()
        stages = [(spec, only)]
        if (tuning := spec.tuning()) is not None:
            stages.insert(0, (tuning, {axis: levels for axis, levels in only.items() if axis != SEED}))
        executor = executor or LocalExecutor(n_jobs, command)
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
    """A running process."""

    cell: Cell
    process: subprocess.Popen[bytes] | _RayProcess
    start: float
    log_start: int
    seconds_before: float


class _Runner:
    def __init__(self, spec: Spec, store: RunStore, executor: Executor, only: Only) -> None:
        self.spec, self.store, self.executor, self.only = spec, store, executor, only
        self.jobs: list[_Job] = []
        self.kills: Counter[str] = Counter()

    def run(self) -> Counter[str]:
        try:
            while True:
                has_slot = not self.jobs or len(self.jobs) < self.executor.n_jobs
                if has_slot and (cell := self._next()) is not None:
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
                with suppress(SyntaxformerError):  # the cluster may be lost, which may be why the runner ends
                    job.process.terminate()
            for job in self.jobs:
                with suppress(SyntaxformerError):
                    job.process.wait()
                self.store.stop(job.cell.key, KILLED, self._seconds(job), "the runner was interrupted")
            raise
        runs = own_runs(self.spec, self.store.runs()).values()
        return Counter(run.state for run in runs if is_wanted(run.cell.labels, self.only))

    def _next(self) -> Cell | None:
        """The next waiting run of the grid, or the next trial of a search."""
        runs = self.store.runs()
        if self.spec.search is not None:
            cell = next_trial(self.spec, self.spec.search, runs, self.only)
            if cell is not None:
                self.store.add([cell])
            return cell
        ready = (cell for cell in self.spec.cells() if self.spec.is_ready(cell.labels))
        stored = (runs[cell.key] for cell in ready if is_wanted(cell.labels, self.only))
        return next((run.cell for run in stored if run.state == WAITING), None)

    def _start(self, cell: Cell) -> None:
        self.executor.open()
        runs = self.store.runs()
        check_recipe(own_runs(self.spec, runs).values())  # it may be edited during runs
        folder = self.store.cell_folder(cell)
        folder.mkdir(parents=True, exist_ok=True)
        write_cell(cell, folder, self.spec.keep)
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
            primary = self.spec.report.primary
            plan = primary and primary.model_dump()  # None: nothing was planned
            self.store.finish(key, seconds, read_json(folder / RESULT) | {"primary": {self.spec.name: plan}})
            states = Counter(run.state for run in self.store.runs().values())
            summary = ", ".join(f"{count} {state}" for state, count in sorted(states.items()))
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
        """Seconds of all attempts, as measured by the runner, or by the run if it waited or had no runner."""
        counted = counted_seconds(self.store.cell_folder(job.cell))
        watched = job.seconds_before + time.monotonic() - job.start
        return counted if self.executor.waits else max(watched, counted)


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
            return math.prod(float(settings[name]) for name in STEPS)
        rates = settings["training.learning_rates"] if settings["training.learning_rate"] == "auto" else (1,)
        return len(rates) * math.prod(float(settings[name]) for name in EPOCHS)

    done = [run for run in runs.values() if run.state == DONE]
    if same := [run.seconds for run in done if without_seed(run.cell) == without_seed(cell)]:
        return spread(same).mean
    seconds = work = 0.0
    for run in done:
        if run.cell.settings.get("task") == cell.settings.get("task"):
            with suppress(ConfigError, DataError):  # the recipe of an older run may be gone
                work += amount(run.result.get("recipe") or recipe_settings(resolve(run.cell)))
                seconds += run.seconds
    if not work:
        return spec.seconds
    whole = replace(cell, settings={**spec.searched, **cell.settings})
    return amount(recipe_settings(resolve(whole))) * seconds / work


STEPS = ("training.max_steps", "training.max_batch_tokens", "training.accumulate")
EPOCHS = ("training.epochs", "data.fraction")
"""Settings that multiply the time of training a translator, and of fine-tuning."""
