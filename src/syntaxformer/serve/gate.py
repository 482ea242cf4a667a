"""What every request passes: its id, the name it calls, its size, the key; afterwards a log line and counts.

Plain ASGI around the whole application, so that an error of ours is answered in the form of all others.
"""

from __future__ import annotations

import hmac
import json
import logging
import re
import time
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from syntaxformer.serve.batcher import Metrics
from syntaxformer.serve.config import ServiceConfig
from syntaxformer.serve.problems import HEADER, Problem, problem_response, set_request_id, shown

_log = logging.getLogger("syntaxformer.serve")

PROTECTED = "/v1/"
"""Paths below ask for the key; probes, metrics and pages do not."""

_HERE = re.compile(r"localhost|127(\.\d{1,3}){3}|\[::1\]")


class JsonLines(logging.Formatter):
    """One JSON object a line: time, level, event, and what the record's `fields` hold."""

    def format(self, record: logging.LogRecord) -> str:
        """Format a record."""
        line: dict[str, Any] = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
            + f".{record.msecs:03.0f}Z",
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=True)


class Gate:
    """Wraps an application.

    Args:
        app: The application.
        config: Its limits and its key.
        metrics: Its counters.
    """

    def __init__(self, app: ASGIApp, config: ServiceConfig, metrics: Metrics) -> None:
        self.app, self.config, self.metrics = app, config, metrics
        self.hosts = set(map(_without_port, config.allowed_hosts))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        request_id = set_request_id(headers.get(HEADER.encode(), b"").decode("latin-1"))
        start, status = time.monotonic(), 0

        async def sending(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", []), (HEADER.encode(), request_id.encode())]
            await send(message)

        try:
            if problem := self._refusal(scope, headers):
                await problem_response(problem)(scope, receive, sending)
            else:
                await self.app(scope, self._counted(receive), sending)
        except Exception:
            _log.error("unforeseen", exc_info=True, extra={"fields": {"request_id": request_id}})
            if status:
                raise
            message = "service: expected to answer, got an error of its own. Its log tells more."
            await problem_response(Problem(500, message))(scope, receive, sending)
        finally:
            self._record(scope, request_id, status, time.monotonic() - start)

    def _refusal(self, scope: Scope, headers: dict[bytes, bytes]) -> Problem | None:
        host = headers.get(b"host", b"").decode("latin-1")
        if (name := _without_port(host)) not in self.hosts and not _HERE.fullmatch(name):
            message = f"host: expected localhost or a name that --allowed-host gives, got {shown(host)}."
            return Problem(421, f"{message} Start the service with --allowed-host NAME.")
        length = headers.get(b"content-length", b"0")
        if length.isdigit() and (len(length) > 18 or int(length) > self.config.max_body_bytes):
            return Problem(413, self._too_large(length[:18].decode()))
        if not scope["path"].startswith(PROTECTED) or self.config.api_key is None:
            return None
        scheme, _, key = headers.get(b"authorization", b"").partition(b" ")
        given = headers.get(b"x-api-key") or (key.strip() if scheme.lower() == b"bearer" else scheme)
        if hmac.compare_digest(given, self.config.api_key.encode()):
            return None
        message = "key: expected the service's key, got {}. Send the header `Authorization: Bearer KEY`."
        found = "another" if given else "none"
        return Problem(401, message.format(found), headers={"WWW-Authenticate": "Bearer"})

    def _too_large(self, found: str) -> str:
        return (
            f"body: expected at most {self.config.max_body_bytes} bytes, got {found}. "
            "Send the texts in several requests."
        )

    def _counted(self, receive: Receive) -> Receive:
        """The same bytes, up to the limit: a client may send more than it said, or not say."""
        n_bytes = 0

        async def receiving() -> Message:
            nonlocal n_bytes
            message = await receive()
            n_bytes += len(message.get("body", b""))
            if n_bytes > self.config.max_body_bytes:
                raise Problem(413, self._too_large("more"))
            return message

        return receiving

    def _record(self, scope: Scope, request_id: str, status: int, seconds: float) -> None:
        path = getattr(scope.get("route"), "path", "other")
        self.metrics.requests.labels(path, str(status)).inc()
        self.metrics.seconds.labels(path).observe(seconds)
        fields = {
            "request_id": request_id,
            "method": scope["method"],
            "path": path,
            "status": status,
            "seconds": round(seconds, 4),
            **scope.get("state", {}).get("log", {}),
        }
        _log.info("request", extra={"fields": fields})


def _without_port(host: str) -> str:
    return re.sub(r":\d*$", "", host).rstrip(".").lower()
