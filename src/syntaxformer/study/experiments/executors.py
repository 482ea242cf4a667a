"""Where the processes of runs work: on this machine, or as tasks of a Ray cluster; with GPUs, one each."""

from __future__ import annotations

import logging
import os
import platform
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import takewhile
from pathlib import Path
from typing import Any, Protocol

from syntaxformer.base.errors import SyntaxformerError
from syntaxformer.base.ray_cluster import connect, import_ray, reason

_log = logging.getLogger("syntaxformer.experiments")

LOG = "log.txt"
"""What a run's process says, in the folder of the run."""

POLL_S = 0.2
"""Between looks at processes at work."""

Command = Callable[[Path], list[str]]
"""Folder of a run → what runs it."""


class RunProcess(Protocol):
    """A run at work."""

    def poll(self) -> int | None:
        """Its exit status, minus the signal that killed it; None while it works."""
        ...

    def terminate(self) -> None:
        """Ask it to end."""
        ...

    def wait(self) -> int:
        """Its exit status, once it has ended."""
        ...


class Executor(Protocol):
    """Starts runs."""

    @property
    def n_jobs(self) -> int:
        """So many side by side, once it is open."""
        ...

    @property
    def waits(self) -> bool:
        """Whether a run may wait for its place: then only the time that it counts itself is its own."""
        ...

    def open(self) -> None:
        """Make ready for runs; called before the first of them starts, and any time after."""
        ...

    def start(self, folder: Path) -> RunProcess:
        """Start the run of a folder; what it says is added to its LOG."""
        ...


class LocalExecutor:
    """Processes of this machine.

    Args:
        n_jobs: Side by side; not more than GPUs, where there are any.
        command: What runs a folder; by default this package's own command line.
    """

    waits = False

    def __init__(self, n_jobs: int, command: Command | None = None) -> None:
        self._devices = _devices()
        self.n_jobs = one_a_device(n_jobs, len(self._devices))
        self._command = command or own_command
        self._slots: list[subprocess.Popen[bytes] | None] = [None] * self.n_jobs

    def open(self) -> None:
        """Nothing is needed."""

    def start(self, folder: Path) -> RunProcess:
        """Start a run in the first place that is free."""
        slot = next(number for number, one in enumerate(self._slots) if one is None or one.poll() is not None)
        environment = {**os.environ, **self._resources(slot)}
        with (folder / LOG).open("ab") as log:
            process = subprocess.Popen(
                self._command(folder), stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=environment
            )
        self._slots[slot] = process
        return process

    def _resources(self, slot: int) -> Mapping[str, str]:
        """Threads and a device for one of several processes; what the user has set stays."""
        given: dict[str, Any] = {}
        if "OMP_NUM_THREADS" not in os.environ:
            given["OMP_NUM_THREADS"] = str(max(1, (os.cpu_count() or 1) // self.n_jobs))
        if self._devices:
            given["CUDA_VISIBLE_DEVICES"] = self._devices[slot]
        return given


def own_command(folder: Path) -> list[str]:
    """This package's own command for one run, by the interpreter of the process that asks."""
    return [sys.executable, "-m", "syntaxformer.cli.main", "experiment", "cell", str(folder)]


def one_a_device(n_jobs: int, n_devices: int) -> int:
    """As many jobs as wanted, but not more than devices, where there are any."""
    if 0 < n_devices < n_jobs:
        _log.warning("jobs: %d, one a GPU, not %d", n_devices, n_jobs)
        return n_devices
    return n_jobs


def _devices() -> list[str]:
    """GPUs that runs may use; CUDA reads the list up to the first negative number."""
    if (visible := os.environ.get("CUDA_VISIBLE_DEVICES")) is not None:
        named = takewhile(lambda one: not one.strip().startswith("-"), visible.split(","))
        return [one for one in named if one]
    import torch

    return [str(number) for number in range(torch.cuda.device_count())]


# pyright: basic
# (Ray has no complete types.)


class RayExecutor:
    """Tasks of a cluster; the connection lasts from the first run to the end of a `with` block.

    Args:
        n_jobs: Side by side; not more than the cluster's GPUs, where it has any.
        address: Of a running cluster, "auto" or "ray://host:10001"; None starts one on this machine.
        command: What runs a folder; by default this package's own command line.

    Raises:
        BackendMissingError: Ray is not installed.
        SyntaxformerError: When it is opened: there is no cluster at the address. Later: the cluster, or one
            of its machines, does not work.
    """

    waits = True

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
        """Connect, and see what the cluster has for a run."""
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
        """Hand a run to the cluster; it waits there until a machine is free."""
        self.open()
        places = str(folder.absolute()), str(Path.cwd())
        with _cluster_errors(self._ray):
            return _RayProcess(self._ray, self._task.remote(*places, self._threads, self._command))


def share_of_a_run(machines: Sequence[Mapping[str, float]], n_jobs: int) -> int:
    """Processors for one run.

    With GPUs, as many as let each machine use all of its own; without, as many as let all runs work at once,
    and at least one.

    Args:
        machines: Resources of each, "CPU" and "GPU".
        n_jobs: Runs side by side.
    """
    with_gpus = [one for one in machines if one.get("GPU", 0) >= 1]
    if with_gpus:
        return int(min(one.get("CPU", 0) // one["GPU"] for one in with_gpus))
    widest = int(max((one.get("CPU", 0) for one in machines), default=1))
    shares = range(widest, 1, -1)
    return next((n for n in shares if sum(one.get("CPU", 0) // n for one in machines) >= n_jobs), 1)


class _RayProcess:
    """A task as the runner sees it: like a process."""

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
    """What Ray and its client raise becomes an error of ours."""
    client = sys.modules.get("grpc")
    kinds = (ray.exceptions.RayError, ConnectionError, *([client.RpcError] if client else []))
    try:
        yield
    except kinds as error:
        raise SyntaxformerError(
            f"ray: expected the cluster to work, got: {reason(error)} What is done is kept; run the same "
            "command again."
        ) from error


def _work(folder: str, directory: str, threads: str, command: Command) -> int:
    """On a machine of the cluster: the run in a process of its own, which ends with the task."""
    environment = {**os.environ, "OMP_NUM_THREADS": threads}
    process = None
    try:
        with (Path(folder) / LOG).open("ab") as log:
            process = subprocess.Popen(
                command(Path(folder)),
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                cwd=directory,
                env=environment,
            )
        while (code := process.poll()) is None:
            time.sleep(POLL_S)  # where Ray can interrupt it; `wait` would not hear of it
        return code
    except OSError as error:
        raise OSError(f"{platform.node()} could not start {folder}: {error}") from error
    finally:
        if process is not None:
            process.terminate()
            process.wait()
