"""Runs as tasks of a Ray cluster, on all its machines; with GPUs, each has one of its own.

All machines see the folders of the runs, the data and this package at the same places. A task that dies with
its machine counts as killed: the runner gives the run to another, which goes on from its last checkpoint.
"""

# pyright: basic
# (Ray has no complete types.)

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

from syntaxformer.errors import SyntaxformerError
from syntaxformer.experiments.executors import LOG, Command, one_a_device, own_command
from syntaxformer.ray_cluster import connect, import_ray, reason

__all__ = ["RayExecutor"]

POLL_S = 0.2


class RayExecutor:
    """Tasks of a cluster, to which it is connected from `with` to the end of its block.

    Args:
        n_jobs: Side by side; not more than the cluster's GPUs, where it has any.
        address: Of a running cluster, "auto" or "ray://host:10001"; None starts one on this machine.
        command: What runs a folder; by default this package's own command line.

    Raises:
        BackendMissingError: Ray is not installed.
        SyntaxformerError: On entry: there is no cluster at the address.
    """

    def __init__(self, n_jobs: int, address: str | None = None, command: Command | None = None) -> None:
        self.n_jobs, self._address, self._command = n_jobs, address, command or own_command
        self._ray = import_ray()
        self._connected, self._task = False, None

    def __enter__(self) -> RayExecutor:
        ray = self._ray
        self._connected = connect(self._address, max(self.n_jobs, os.cpu_count() or 1))
        machines = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        n_gpus = int(sum(one.get("GPU", 0) for one in machines))
        self.n_jobs = one_a_device(self.n_jobs, n_gpus)
        # Ray gives a task as many threads (OMP_NUM_THREADS) as processors.
        share = int(sum(one.get("CPU", 0) for one in machines)) // self.n_jobs
        widest = int(max(one.get("CPU", 0) for one in machines))
        self._task = ray.remote(_work).options(
            num_cpus=max(1, min(share, widest)), num_gpus=1 if n_gpus else 0, max_retries=0
        )
        return self

    def __exit__(self, *error: object) -> None:
        if self._connected:
            self._ray.shutdown()

    def start(self, folder: Path) -> _RayProcess:
        """Hand a run to the cluster; it waits there until a machine is free."""
        if self._task is None:
            raise RuntimeError("RayExecutor: expected to be entered by `with` first.")
        place = folder.resolve()
        return _RayProcess(self._ray, self._task.remote(str(place), str(Path.cwd()), self._command), place)


class _RayProcess:
    """A task as the runner sees it: like a process."""

    def __init__(self, ray: Any, task: Any, folder: Path) -> None:
        self._ray, self._task, self._folder = ray, task, folder

    def poll(self) -> int | None:
        ready, _ = self._ray.wait([self._task], timeout=0)
        return self.wait() if ready else None

    def terminate(self) -> None:
        self._ray.cancel(self._task)

    def wait(self) -> int:
        errors = self._ray.exceptions
        try:
            return self._ray.get(self._task)
        except errors.TaskCancelledError:
            return -signal.SIGTERM
        except (errors.WorkerCrashedError, errors.NodeDiedError, errors.OutOfMemoryError):
            return -signal.SIGKILL
        except errors.RayTaskError as error:  # the machine could not even start it
            with (self._folder / LOG).open("a", encoding="utf-8") as log:
                log.write(f"error: ray: expected the run to start on its machine, got: {reason(error)}\n")
            return 1
        except errors.RayError as error:
            raise SyntaxformerError(
                f"ray: expected the cluster to work, got: {reason(error)} What is done is kept; run the same "
                "command again."
            ) from error


def _work(folder: str, directory: str, command: Command) -> int:
    """On a machine of the cluster: the run in a process of its own, which ends with the task."""
    with (Path(folder) / LOG).open("ab") as log:
        process = subprocess.Popen(
            command(Path(folder)), stdout=log, stderr=log, stdin=subprocess.DEVNULL, cwd=directory
        )
    try:
        while (code := process.poll()) is None:
            time.sleep(POLL_S)  # where Ray can interrupt it; `wait` would not hear of it
        return code
    finally:
        process.terminate()
        process.wait()
