"""Where the processes of runs work: on this machine, or as tasks of a Ray cluster; with GPUs, one each."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from itertools import takewhile
from pathlib import Path
from typing import Any, Protocol

__all__ = [
    "LOG",
    "POLL_S",
    "Command",
    "Executor",
    "LocalExecutor",
    "RunProcess",
    "one_a_device",
    "own_command",
]

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
