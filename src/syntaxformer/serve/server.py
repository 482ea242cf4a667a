"""Runs the application in one or several processes, with logs as JSON lines and a graceful end."""

from __future__ import annotations

import logging
import math
import os
import re
import signal
import socket
import sys
import tempfile
import time
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import h11
import psutil
import uvicorn
from fastapi import FastAPI
from fastapi.responses import FileResponse, Response
from starlette.staticfiles import StaticFiles
from starlette.types import Scope
from uvicorn.protocols.http.h11_impl import H11Protocol

from syntaxformer.base.errors import ConfigError
from syntaxformer.base.progress import end_with_parent
from syntaxformer.serve.app import STOP_S, create_app
from syntaxformer.serve.config import ServiceConfig
from syntaxformer.serve.engines import check_folder, load_engine
from syntaxformer.serve.gate import JsonLines

FOLDER = Path(__file__).parent / "explorer"

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
"""Content-Security-Policy: no inline code, nothing from other sites, no frame in another page."""

_HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}


class _Files(StaticFiles):
    """Files with the page's headers."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        """Answer a request for a file."""
        response = await super().get_response(path, scope)
        response.headers.update(_HEADERS)
        return response


def add_explorer(app: FastAPI) -> None:
    """Add the explorer at `/` and `/explore`."""

    async def page() -> Response:
        return FileResponse(FOLDER / "index.html", headers=_HEADERS)

    for path in ("/", "/explore"):
        app.get(path, include_in_schema=False)(page)
    app.mount("/explore/static", _Files(directory=FOLDER), name="explorer")


CONFIG = "SYNTAXFORMER_SERVE"
"""Environment variable that passes the settings to worker processes."""

FAILURE, LOADED = "failure.txt", "loaded"
"""Files that workers leave for the main process: why none can start, and that one has started."""

_log = logging.getLogger("syntaxformer.serve")

HEALTHCHECK_S = 60
"""A worker has as long to answer its parent: loading models on a busy machine takes time."""

HEAD_S = 30
"""The head of a request must come within so many seconds: a connection takes one of the process's files."""

N_FILES = getattr(os, "sysconf", lambda name: 1024)("SC_OPEN_MAX")
"""Files and connections that the process may open. Of more connections than half as many, or than 4,096, that
is closed which asks nothing for longest."""


class SmallReads(H11Protocol):
    """HTTP that reads little at a time, because its parser blocks all others on many tiny chunks."""

    def connection_made(self, transport: Any) -> None:  # type: ignore[override]
        """Begin a connection; `max_size` is the number of bytes that asyncio reads at once."""
        transport.max_size = 8192
        self._head_end: float | None = None
        super().connection_made(transport)
        self._since = self.loop.time()
        self._wait_for_a_head()
        if len(self.connections) > min(4096, N_FILES // 2):
            others: Any = self.connections
            asking = [peer for peer in others if peer.conn.their_state in (h11.IDLE, h11.SEND_BODY)]
            min(asking, key=lambda peer: peer._since).transport.abort()

    def data_received(self, data: bytes) -> None:
        """Read what came, and close the connection later if it is no whole head by then."""
        super().data_received(data)
        if self.cycle is not None and not self.cycle.response_complete:
            self._head_end = None
        elif self.timeout_keep_alive_task is None:
            self._wait_for_a_head()

    def on_response_complete(self) -> None:
        """Begin to wait for another request."""
        self._since = self.loop.time()
        super().on_response_complete()

    def shutdown(self) -> None:
        """End soon, because the service was told to stop."""
        self.app_state["stop"]()
        super().shutdown()

    def _wait_for_a_head(self) -> None:
        self._head_end = self._head_end or self.loop.time() + HEAD_S
        self.timeout_keep_alive_task = self.loop.call_at(self._head_end, self.timeout_keep_alive_handler)


def name_models(folders: list[Path]) -> dict[str, Path]:
    """Name models after their folders, in the given order.

    Raises:
        ConfigError: Two folders have the same name.
    """
    named: dict[str, Path] = {}
    for folder in folders:
        name = Path(os.path.abspath(folder)).name  # noqa: PTH100  # a link keeps its own name
        if name in named:
            raise ConfigError(f"models: expected folders of different names, got {named[name]} and {folder}.")
        named[name] = folder
    return named


def run(config: ServiceConfig) -> None:
    """Serve until told to stop.

    Raises:
        CheckpointError: A folder is not a model.
        BackendMissingError: An annotator or backend is not installed.
        ConfigError: There is no such device, the address cannot be used, it needs allowed host names, no
            worker can load the models, or a model needs more than the texts of requests.
    """
    for folder in config.models.values():
        check_folder(folder, config.trust_annotator)
    _check_address(config)
    if config.workers == 1:
        _log_as_json()
        serve_app(_build(config), config)
        return
    os.environ[CONFIG] = config.model_dump_json()
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // config.workers)))
    with tempfile.TemporaryDirectory(prefix="syntaxformer-metrics-") as folder:
        os.environ["PROMETHEUS_MULTIPROC_DIR"] = folder
        serve_app("syntaxformer.serve.server:app_from_environment", config)
        if (failure := Path(folder, FAILURE)).exists():
            reason = failure.read_text("utf-8")
            raise ConfigError(f"--workers: expected each to load the models, got: {reason}")


def serve_app(app: FastAPI | str, config: ServiceConfig) -> None:
    """Serve an application until the end; a name of a function that builds it allows several processes."""
    _log_as_json()
    uvicorn.run(
        app,
        factory=isinstance(app, str),
        workers=config.workers if isinstance(app, str) else None,
        host=config.host,
        port=config.port,
        loop="asyncio",
        http=SmallReads,
        log_config=None,
        access_log=False,
        server_header=False,
        backlog=min(2048, N_FILES // 4),  # as many may be accepted before others are closed
        timeout_graceful_shutdown=math.ceil(STOP_S) + 1,
        timeout_worker_healthcheck=HEALTHCHECK_S,
    )


def app_from_environment() -> FastAPI:
    """The application of a worker; if loading fails before any worker has succeeded, all workers end."""
    _log_as_json()
    end_with_parent(lambda: os.kill(os.getpid(), signal.SIGTERM))
    shared = Path(os.environ["PROMETHEUS_MULTIPROC_DIR"])
    for file in shared.glob("gauge_live*.db"):  # what workers had waiting that were killed
        if not psutil.pid_exists(int(file.stem.rpartition("_")[2])):
            file.unlink(missing_ok=True)
    try:
        app = _build(ServiceConfig.model_validate_json(os.environ[CONFIG]))
    except Exception as error:
        _log.error("cannot load: %s", error)
        if not (shared / LOADED).exists():
            (shared / FAILURE).write_text(str(error), "utf-8")
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.kill(os.getppid(), signal.SIGTERM)
            time.sleep(HEALTHCHECK_S)  # until the parent ends it, which may just wait for its answer
        raise SystemExit(1) from error
    (shared / LOADED).touch()
    return app


_HOST_NAME = re.compile(r"([\w.-]+|\[[0-9A-Fa-f:.]+\])(:\d+)?")
"""What the header `Host` may be: a name or an address, with a port or without."""


def _check_address(config: ServiceConfig) -> None:
    """Check the address before models are loaded, which takes long."""
    try:
        family, *_, address = socket.getaddrinfo(config.host, config.port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((config.host, config.port))
    except OSError as error:
        got = f"{config.host}:{config.port}: {error.strerror}"
        raise ConfigError(f"--host, --port: expected an address to listen on, got {got}.") from error
    if wrong := [name for name in config.allowed_hosts if not _HOST_NAME.fullmatch(name)]:
        raise ConfigError(
            f"--allowed-host: expected a host's name or address, such as example.org, got {wrong[0]!r}. "
            "Give it without https:// and path, an address of IPv6 in brackets; * stands for no name."
        )
    if not config.allowed_hosts and not ip_address(address[0]).is_loopback:
        message = f"--allowed-host: expected the names by which others call {config.host}, got none."
        raise ConfigError(f"{message} Give each name that the header `Host` may have: --allowed-host NAME.")


def _build(config: ServiceConfig) -> FastAPI:
    engines = {}
    for name, folder in config.models.items():
        _log.info("loading the model %s from %s", name, folder)
        engines[name] = load_engine(name, folder, config.device, config.annotator, config.trust_annotator)
    for name, engine in engines.items():
        _log.info("measuring how fast %s works", name)
        engine.warm_up(min(32, config.max_batch), config.batch_s)
    app = create_app(config, engines)
    add_explorer(app)
    return app


def _log_as_json() -> None:
    last = "", 0.0

    def is_new(record: logging.LogRecord) -> bool:
        """Let an error of asyncio through once a second: without free files each connection has one."""
        nonlocal last
        if record.name != "asyncio":
            return True
        text = str(record.msg)
        if text == last[0] and record.created - last[1] < 1:
            return False
        last = text, record.created
        return True

    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    handler.addFilter(is_new)
    for name in ("syntaxformer.serve", "uvicorn.error", "asyncio"):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(logging.INFO)
