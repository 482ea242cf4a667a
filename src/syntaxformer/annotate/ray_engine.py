"""The engine of `shards` for a Ray cluster: a running one, or one on this machine while a command runs."""

# pyright: basic
# (Ray has no complete types.)

from __future__ import annotations

import logging
import os
import re
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from functools import cached_property
from pathlib import Path
from typing import Any

from syntaxformer.annotate.annotator import Annotator
from syntaxformer.annotate.registry import load_annotator
from syntaxformer.annotate.shards import Engine, Shard, annotate_shard
from syntaxformer.base.errors import SyntaxformerError, needs_extra
from syntaxformer.base.files import MAX_LINE_BYTES

with needs_extra("ray", "annotates on a cluster"):
    import ray
    from ray import exceptions

MAX_ATTEMPTS = 5
"""Number of workers that a shard may kill."""

ANSWER_S = 10.0


def on_ray(name: str, n_workers: int, address: str | None = None) -> Engine:
    """Return the engine of a Ray cluster: a pool of actors that each load annotator `name` once.

    Ray restarts actors that die, and gives them their shard again. The actors, each with one processor, load
    the annotator by its name, with the backend's options; it is not written to disk. `address` is that of a
    running cluster, "auto" or "ray://host:10001"; None starts one here for this job.

    Raises:
        SyntaxformerError: During the work: there is no cluster at the address, or the cluster fails.
    """

    def work(shards: Iterator[Shard]) -> Iterator[tuple[Path, str | None]]:
        started = connect(address, n_workers + 1)
        try:
            # Ray reports dead workers on stdout, which is for results.
            with redirect_stdout(sys.stderr):
                yield from _in_actors(name, n_workers, shards)
        except (exceptions.RayError, ConnectionError) as error:
            raise SyntaxformerError(
                f"ray: expected the cluster to work, got: {reason(error)} Finished shards are kept; run the "
                "same command again."
            ) from error
        finally:
            if started and ray.is_initialized():
                ray.shutdown()

    return work


def _in_actors(name: str, n_workers: int, shards: Iterator[Shard]) -> Iterator[tuple[Path, str | None]]:
    """Hand out shards one by one, each only when an actor is free to take it."""
    actor = ray.remote(num_cpus=1, max_restarts=-1, max_task_retries=MAX_ATTEMPTS - 1)(_Worker)
    free, running = [actor.remote(name) for _ in range(n_workers)], {}
    while True:
        while free and (shard := next(shards, None)) is not None:
            worker = free.pop()
            running[worker.annotate.remote(shard)] = worker, shard.path
        if not running:
            return
        (task, *_), _ = ray.wait([*running])
        worker, path = running.pop(task)
        free.append(worker)
        try:
            yield ray.get(task)
        except exceptions.RayActorError:
            killed = f"expected workers to outlive their shards, got {MAX_ATTEMPTS} killed by this one"
            yield path, f"{path}: {killed} (out of memory?)."


class _Worker:
    """An actor that loads its annotator with the first shard, so that an error then belongs to that shard."""

    def __init__(self, name: str) -> None:
        self.name = name

    @cached_property
    def annotator(self) -> Annotator:
        return load_annotator(self.name)

    def annotate(self, shard: Shard) -> tuple[Path, str | None]:
        try:
            annotator = self.annotator
        except SyntaxformerError as error:
            return shard.path, str(error)
        return annotate_shard(annotator, shard)


def connect(address: str | None, n_cpus: int) -> bool:
    """Connect to a running cluster, at "auto" or "ray://host:10001", if this process is not connected to one.

    Without an address, one of so many processors is started here.

    Returns:
        Whether this call connected, so that its caller must call `ray.shutdown`.

    Raises:
        SyntaxformerError: There is no cluster at the address.
    """
    if ray.is_initialized():
        return False
    settings: dict[str, Any] = {} if address else {"num_cpus": n_cpus, "include_dashboard": False}
    if address and MAX_LINE_BYTES in os.environ:  # processes elsewhere do not have it from this one
        settings["runtime_env"] = {"env_vars": {MAX_LINE_BYTES: os.environ[MAX_LINE_BYTES]}}
    # Ray's C++ writes errors to stderr also where all goes well, and says that it was told not to.
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")
    try:
        if match := re.search(r"([^/@\[\]]+|\[[^\]]+\]):(\d+)$", address or ""):
            # Ray itself would try for minutes.
            socket.create_connection((match[1].strip("[]"), int(match[2])), timeout=ANSWER_S).close()
        with _without_stderr():
            ray.init(address=address or "local", log_to_driver=False, logging_level=logging.ERROR, **settings)
    except (OSError, OverflowError, RuntimeError, ValueError) as error:
        ray.shutdown()
        raise SyntaxformerError(
            f"ray: expected a cluster at {address or 'this machine'}, got: "
            f"{' '.join(str(error).split())[:200]}. Start one with `ray start --head`, or leave out "
            "--address."
        ) from error
    return True


@contextmanager
def _without_stderr() -> Iterator[None]:
    """Drop what this process writes to its descriptor of stderr, also from outside Python."""
    stderr_copy, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(stderr_copy, 2)
        os.close(stderr_copy)
        os.close(nowhere)


def reason(error: BaseException) -> str:
    """The error itself, without the worker's traceback that Ray puts before it."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    errors = [line for line in lines if re.match(r"(?!.*UserCodeEx)[\w.]*(Error|Exception)\b", line)]
    return (errors[-1] if errors else " ".join(lines))[:300].rstrip(".") + "."
