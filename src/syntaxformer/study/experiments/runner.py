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
from itertools import takewhile
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
        self._command = command or own_command
        self._slots: list[subprocess.Popen[bytes] | None] = [None] * self.n_jobs

    def open(self) -> None:
        """Do nothing: no connection is needed."""

    def start(self, folder: Path) -> subprocess.Popen[bytes]:
        """Start the run of a folder in the first free slot; its output is appended to its LOG."""
        slot = next(number for number, one in enumerate(self._slots) if one is None or one.poll() is not None)
        process = self._slots[slot] = _process(self._command, folder, self._resources(slot))
        return process

    def _resources(self, slot: int) -> Mapping[str, str]:
        """Variables for one of several processes: threads, unless the user has set them, and a device."""
        given = {}
        if "OMP_NUM_THREADS" not in os.environ:
            given["OMP_NUM_THREADS"] = str(max(1, (os.cpu_count() or 1) // self.n_jobs))
        if self._devices:
            given["CUDA_VISIBLE_DEVICES"] = self._devices[slot]
        return given


def _process(
    command: Command, folder: Path, environment: Mapping[str, str], directory: str | None = None
) -> subprocess.Popen[bytes]:
    with (folder / LOG).open("ab") as log:
        return subprocess.Popen(
            command(folder),
            stdout=log,
            stderr=log,
            stdin=subprocess.DEVNULL,
            cwd=directory,
            env={**os.environ, **environment},
        )


def own_command(folder: Path) -> list[str]:
    """This package's own command for one run, with the interpreter of this process."""
    return [sys.executable, "-m", "syntaxformer", "experiment", "cell", str(folder)]


def one_a_device(n_jobs: int, n_devices: int) -> int:
    """The number of jobs: as wanted, but at most the number of devices if there are any."""
    if 0 < n_devices < n_jobs:
        _log.warning("jobs: %d, one for each GPU, and not %d", n_devices, n_jobs)
        return n_devices
    return n_jobs


def _devices() -> list[str]:
    """The GPUs that runs may use; CUDA reads the list up to the first negative number."""
    if (visible := os.environ.get("CUDA_VISIBLE_DEVICES")) is not None:
        named = takewhile(lambda one: not one.strip().startswith("-"), visible.split(","))
        return [one for one in named if one]
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
        self.n_jobs, self._address, self._command = n_jobs, address, command or own_command
        self._ray = import_ray()
        self._connected, self._threads = False, ""
        self._task: Any = None

    def __enter__(self) -> RayExecutor:
        return self

    def __exit__(self, *error: object) -> None:
        if self._connected:
            self._ray.shutdown()
        self._connected, self._task = False, None

    def open(self) -> None:
        """Connect, and find out which resources the cluster has for a run."""
        if self._task is not None:
            return
        self._connected = connect(self._address, max(self.n_jobs, os.cpu_count() or 1))
        with _cluster_errors(self._ray):
            machines = [node["Resources"] for node in self._ray.nodes() if node["Alive"]]
        n_gpus = int(sum(one.get("GPU", 0) for one in machines))
        self.n_jobs = one_a_device(self.n_jobs, n_gpus)
        n_cpus = share_of_a_run(machines, self.n_jobs)
        self._threads = os.environ.get("OMP_NUM_THREADS", str(max(1, n_cpus)))
        self._task = self._ray.remote(_work).options(
            num_cpus=n_cpus, num_gpus=1 if n_gpus else 0, max_retries=0
        )

    def start(self, folder: Path) -> _RayProcess:
        """Submit a run to the cluster, where it waits until a machine is free."""
        self.open()
        places = str(folder.absolute()), str(Path.cwd())
        with _cluster_errors(self._ray):
            variables = {"OMP_NUM_THREADS": self._threads, VARIABLE: os.environ.get(VARIABLE, "")}
            return _RayProcess(self._ray, self._task.remote(*places, variables, self._command))


def share_of_a_run(machines: Sequence[Mapping[str, float]], n_jobs: int) -> int:
    """Number of processors for each of `n_jobs` parallel runs, on machines with so many "CPU" and "GPU".

    With GPUs it is chosen so that each machine can use all of its GPUs; without, so that all runs can work at
    once, but at least one.
    """
    with_gpus = [one for one in machines if one.get("GPU", 0) >= 1]
    if with_gpus:
        return int(min(one.get("CPU", 0) // one["GPU"] for one in with_gpus))
    widest = int(max((one.get("CPU", 0) for one in machines), default=1))
    shares = range(widest, 1, -1)
    return next((n for n in shares if sum(one.get("CPU", 0) // n for one in machines) >= n_jobs), 1)


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

STEPS = ("training.max_steps", "training.max_batch_tokens", "training.accumulate")
EPOCHS = ("training.epochs", "data.fraction")
"""Settings that multiply the time of training a translator, and of fine-tuning."""


@dataclass
class _Job:
    """A running process."""

    cell: Cell
    process: subprocess.Popen[bytes] | _RayProcess
    start: float
    log_start: int
    seconds_before: float


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
    spec.check_only(only or {})
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
        stages = [(spec, only or {})]
        if (tuning := spec.tuning()) is not None:
            stages.insert(
                0, (tuning, {axis: levels for axis, levels in stages[0][1].items() if axis != SEED})
            )
        executor = executor or LocalExecutor(n_jobs, command)
        for stage, of_stage in stages:
            ready = tuned(stage, store.runs())
            store.add([cell for cell in ready.cells() if ready.is_ready(cell.labels)])
            runs = own_runs(ready, store.runs())
            wanted = [key for key, run in runs.items() if is_wanted(run.cell.labels, of_stage)]
            store.release([KILLED, *([FAILED] if retry_failed else [])], wanted)
            counts += _Runner(ready, store, executor, of_stage).run()
        return counts
    finally:
        lock.release()


class _Runner:
    def __init__(self, spec: Spec, store: RunStore, executor: Executor, only: Only) -> None:
        self.spec, self.store, self.executor, self.only = spec, store, executor, only
        self.jobs: list[_Job] = []
        self.kills: Counter[str] = Counter()

    def run(self) -> Counter[str]:
        try:
            while (started := self._start_next()) or self.jobs:
                if not started:
                    time.sleep(POLL_S)
                for job in list(self.jobs):
                    if (code := job.process.poll()) is not None:
                        self.jobs.remove(job)
                        self._record(job, code)
        except BaseException:
            self._end_children()
            raise
        runs = own_runs(self.spec, self.store.runs()).values()
        return Counter(run.state for run in runs if is_wanted(run.cell.labels, self.only))

    def _start_next(self) -> bool:
        """Start one more process if there are a free slot and a waiting run."""
        if (self.jobs and len(self.jobs) >= self.executor.n_jobs) or (cell := self._next()) is None:
            return False
        self.executor.open()
        check_recipe(own_runs(self.spec, self.store.runs()).values())  # it may be edited during runs
        folder = self.store.cell_folder(cell)
        folder.mkdir(parents=True, exist_ok=True)
        write_cell(cell, folder, self.spec.keep)
        seconds_before = self.store.runs()[cell.key].seconds
        self.store.start(cell.key)
        (folder / LOG).touch()
        log_start = (folder / LOG).stat().st_size
        process = self.executor.start(folder)
        self.jobs.append(_Job(cell, process, time.monotonic(), log_start, seconds_before))
        _log.info("started %s", cell.name)
        return True

    def _next(self) -> Cell | None:
        """The next waiting run of the grid, or the next trial of a search."""
        runs = self.store.runs()
        if self.spec.search is not None:
            cell = next_trial(self.spec, self.spec.search, runs, self.only)
            if cell is not None:
                self.store.add([cell])
            return cell
        cells = (cell for cell in self.spec.cells() if self.spec.is_ready(cell.labels))
        wanted = (runs[cell.key] for cell in cells if is_wanted(cell.labels, self.only))
        return next((run.cell for run in wanted if run.state == WAITING), None)

    def _record(self, job: _Job, code: int) -> None:
        folder, seconds = self.store.cell_folder(job.cell), self._seconds(job)
        if (folder / RESULT).exists():
            result = read_json(folder / RESULT)
            primary = self.spec.report.primary
            result["primary"] = {
                self.spec.name: primary and primary.model_dump()
            }  # None: nothing was planned
            self.store.finish(job.cell.key, seconds, result)
            states = Counter(one.state for one in self.store.runs().values())
            summary = ", ".join(f"{count} {state}" for state, count in sorted(states.items()))
            _log.info("done %s in %.0f s; %s", job.cell.name, seconds, summary)
        elif code < 0:
            name = signal.Signals(-code).name
            self.kills[job.cell.key] += 1
            self.store.stop(job.cell.key, KILLED, seconds, f"killed by {name}")
            _log.warning("killed %s by %s", job.cell.name, name)
            if self.kills[job.cell.key] < MOST_KILLS:
                self.store.release([KILLED], [job.cell.key])
        else:
            error = _last_error(folder / LOG, job.log_start, code)
            self.store.stop(job.cell.key, FAILED, seconds, error)
            _log.warning("failed %s: %s", job.cell.name, error)

    def _seconds(self, job: _Job) -> float:
        """Seconds of all attempts, as measured by the runner, or by the run if it waited or had no runner."""
        counted = counted_seconds(self.store.cell_folder(job.cell))
        watched = job.seconds_before + time.monotonic() - job.start
        return counted if self.executor.waits else max(watched, counted)

    def _end_children(self) -> None:
        """End the processes of an interrupted runner; their runs are resumed the next time."""
        for job in self.jobs:
            with suppress(SyntaxformerError):  # the cluster may be lost, which may be why the runner ends
                job.process.terminate()
        for job in self.jobs:
            with suppress(SyntaxformerError):
                job.process.wait()
            self.store.stop(job.cell.key, KILLED, self._seconds(job), "the runner was interrupted")


def _last_error(log: Path, start: int, code: int) -> str:
    """The last error line of an attempt, or its last line; earlier attempts end at byte `start`."""
    text = log.read_bytes()[start:].decode("utf-8", errors="replace")
    lines = [line for line in text.splitlines() if line.strip()]
    found = [line.removeprefix("error: ") for line in lines if line.startswith("error: ")]
    return found[-1] if found else (lines[-1] if lines else f"exit code {code}")


def estimate_seconds(spec: Spec, cell: Cell, runs: Mapping[str, StoredRun]) -> float | None:
    """Estimated seconds by the clock on the machine of earlier runs; None if nothing is known.

    Raises:
        ConfigError: The settings of the cell cannot work.
        DataError: Its recipe cannot be read.
    """
    done = [one for one in runs.values() if one.state == DONE]
    wanted = _but_for_seed(spec, cell)
    same = [one.seconds for one in done if _but_for_seed(spec, one.cell) == wanted]
    if same:
        return spread(same).mean
    task = cell.settings.get("task")
    like = [(one.seconds, _stored_amount(one)) for one in done if one.cell.settings.get("task") == task]
    known = [(seconds, work) for seconds, work in like if work is not None]
    if known:
        whole = replace(cell, settings={**spec.searched, **cell.settings})
        work = _amount(cell.verb, recipe_settings(resolve(whole)))
        return work * sum(seconds for seconds, _ in known) / sum(work for _, work in known)
    return spec.seconds


def _but_for_seed(spec: Spec, cell: Cell) -> str:
    """The key of a run without the settings of the seed axis."""
    levels = spec.levels(SEED).values() if SEED in spec.axes else ()
    of_seed = {key for settings in levels for key in settings}
    rest = {key: value for key, value in cell.settings.items() if key not in of_seed}
    return replace(cell, settings=rest).key


def _stored_amount(run: StoredRun) -> float | None:
    """The amount of work of a stored run; None if the recipe of an older run is gone."""
    try:
        return _amount(run.cell.verb, run.result.get("recipe") or recipe_settings(resolve(run.cell)))
    except (ConfigError, DataError):
        return None


def _amount(verb: str, settings: Mapping[str, Any]) -> float:
    """The number of examples or pieces trained on, up to a factor that all runs share."""
    if verb == "train":
        return math.prod(float(settings[name]) for name in STEPS)
    rates = settings["training.learning_rates"] if settings["training.learning_rate"] == "auto" else (1,)
    return len(rates) * math.prod(float(settings[name]) for name in EPOCHS)
