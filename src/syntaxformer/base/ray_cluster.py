"""Connect to a Ray cluster: one that is running, or one on this machine while a command runs."""

# pyright: basic
# (Ray has no complete types.)

from __future__ import annotations

import logging
import os
import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from syntaxformer.base.errors import BackendMissingError, SyntaxformerError
from syntaxformer.base.files import MAX_LINE_BYTES

ANSWER_S = 10.0


def import_ray(*modules: str) -> Any:
    """Import the package ray; `modules` are parts of it that are needed, such as "ray.data".

    Raises:
        BackendMissingError: Ray, or a package that a part needs, is not installed.
    """
    try:
        for module in modules:
            import_module(module)
        return import_module("ray")
    except ImportError as error:
        raise BackendMissingError("the package ray", "python -m pip install 'ray[data]>=2.60'") from error


def connect(address: str | None, n_cpus: int) -> bool:
    """Connect to a running cluster, at "auto" or "ray://host:10001", if this process is not connected to one.

    Without an address, one of so many processors is started here.

    Returns:
        Whether this call connected, so that its caller must call `ray.shutdown`.

    Raises:
        BackendMissingError: Ray is not installed.
        SyntaxformerError: There is no cluster at the address.
    """
    ray = import_ray()
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
