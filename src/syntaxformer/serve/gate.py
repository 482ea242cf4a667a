"""Checks of every request: id, host name, size and key, and then whether a model can answer it.

`Gate` is plain ASGI around the whole application, so that even internal errors are answered in the usual
form. It also logs and counts each request. The checks below it are for well-formed requests: counts,
lengths, characters, names of models. What they refuse, they raise as a `Problem` of status 422.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
import re
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from ipaddress import IPv6Address, ip_address, ip_network
from typing import Any, TypeVar

from fastapi import Request, Response
from fastapi.routing import APIRoute
from pydantic import BaseModel
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from syntaxformer.base.errors import ConfigError
from syntaxformer.serve.batcher import Metrics
from syntaxformer.serve.config import ServiceConfig
from syntaxformer.serve.engines import ClassifierEngine, Engine, TranslatorEngine
from syntaxformer.serve.problems import HEADER, Problem, problem_response, set_request_id, shown
from syntaxformer.serve.schemas import MAX_KEYS, TranslateRequest, TranslateSettings

_Settings = TypeVar("_Settings", bound=BaseModel)
_log = logging.getLogger("syntaxformer.serve")

PROTECTED = "/v1/"
"""Paths below this need the key; probes, metrics and pages do not."""

_HERE = re.compile(r"localhost|127(\.\d{1,3}){3}|\[::1\]")


class JsonLines(logging.Formatter):
    """Formats a record as one line of JSON: time, level, event, and the record's `fields`."""

    def format(self, record: logging.LogRecord) -> str:
        """Format a record."""
        seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line = {"time": f"{seconds}.{record.msecs:03.0f}Z", "level": record.levelname.lower()}
        line |= {"event": record.getMessage(), **getattr(record, "fields", {})}
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=True)


class Gate:
    """Wraps an application and enforces its limits and its key."""

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
            message = "service: expected to answer, got an internal error. See its log."
            await problem_response(Problem(500, message))(scope, receive, sending)
        finally:
            self._record(scope, request_id, status, time.monotonic() - start)

    def _refusal(self, scope: Scope, headers: dict[bytes, bytes]) -> Problem | None:
        """Why a request is not answered at all: its host name, its size or its key."""
        host = headers.get(b"host", b"").decode("latin-1")
        if (name := _without_port(host)) not in self.hosts and not _HERE.fullmatch(name):
            message = f"host: expected localhost or a name that --allowed-host gives, got {shown(host)}."
            return Problem(421, f"{message} Start the service with --allowed-host NAME.")
        length = headers.get(b"content-length", b"0")
        if length.isdigit() and (len(length) > 18 or int(length) > self.config.max_body_bytes):
            return self._too_large(length[:18].decode())
        if not scope["path"].startswith(PROTECTED) or self.config.api_key is None:
            return None
        scheme, _, key = headers.get(b"authorization", b"").partition(b" ")
        client_key = headers.get(b"x-api-key") or (key.strip() if scheme.lower() == b"bearer" else scheme)
        if hmac.compare_digest(client_key, self.config.api_key.encode()):
            return None
        message = f"key: expected the service's key, got {'another' if client_key else 'none'}."
        remedy = "Send the header `Authorization: Bearer KEY`."
        return Problem(401, f"{message} {remedy}", headers={"WWW-Authenticate": "Bearer"})

    def _too_large(self, size: str) -> Problem:
        message = f"body: expected at most {self.config.max_body_bytes} bytes, got {size}."
        return Problem(413, f"{message} Send the texts in several requests.")

    def _counted(self, receive: Receive) -> Receive:
        """Pass on the body up to the limits: a client may send more than it announced, or never end."""
        n_bytes, seconds = 0, self.config.deadline_s
        end, is_whole = time.monotonic() + seconds, False

        async def receiving() -> Message:
            nonlocal n_bytes, is_whole
            try:
                async with asyncio.timeout(None if is_whole else max(0.0, end - time.monotonic())):
                    message = await receive()
            except TimeoutError as error:
                raise Problem(408, f"body: expected all of it within {seconds:g} s, got a part.") from error
            is_whole = not message.get("more_body", False)
            n_bytes += len(message.get("body", b""))
            if n_bytes > self.config.max_body_bytes:
                raise self._too_large("more")
            return message

        return receiving

    def _record(self, scope: Scope, request_id: str, status: int, seconds: float) -> None:
        path = getattr(scope.get("route"), "path", "other")
        self.metrics.requests.labels(path, str(status)).inc()
        self.metrics.seconds.labels(path).observe(seconds)
        fields = {"request_id": request_id, "method": scope["method"], "path": path, "status": status}
        fields |= {"seconds": round(seconds, 4), **scope.get("state", {}).get("log", {})}
        _log.info("request", extra={"fields": fields})


def _without_port(host: str) -> str:
    return re.sub(r":\d*$", "", host).rstrip(".").lower()


_HALF = re.compile("[\ud800-\udfff]")

TASKS = {"translation": "a translator", "classification": "a classifier"}


def client_of(request: Request) -> str:
    """Whose turn a request takes: the address, or with IPv6 the network of 64 bits that a client has."""
    host = request.client.host if request.client else ""
    with suppress(ValueError):
        if isinstance(address := ip_address(host), IPv6Address) and not address.ipv4_mapped:
            return str(ip_network((int(address), 64), strict=False))
    return host


def choose(engines: Mapping[str, Engine], task: str | None, name: str | None) -> Engine:
    """The model of a request; if none is named, the first one of the task, or the first of all."""
    known = {key: engine for key, engine in engines.items() if task in (None, engine.description.task)}
    if name is None and known:
        return next(iter(known.values()))
    if name is not None and name in known:
        return known[name]
    choice = f"one of {', '.join(known)}"
    if not known:
        choice = f"{TASKS[task or '']} among the served models, which have none"
    message = f"model: expected {choice}, got {'nothing' if name is None else shown(name)}."
    raise Problem(422, f"{message} See GET /v1/models.", "no_such_model")


def check_explained(texts: Sequence[str], config: ServiceConfig) -> None:
    """Check that a text to explain is not empty, and short: its matrices grow with the square of that."""
    if (length := sum(map(len, texts))) > config.max_explained_characters:
        message = f"text: expected at most {config.max_explained_characters} characters, got {length}."
        remedy = "Send a part of it, because the answer grows with the square of the length."
        raise Problem(422, f"{message} {remedy}", "text_too_long")
    if not all(text.strip() for text in texts):
        raise Problem(422, "text: expected one that is not empty, got ''.", "empty_text")


def check_texts(texts: Sequence[str | Sequence[str]], config: ServiceConfig) -> None:
    """Check that texts or pairs of texts are not too many, not too long, and Unicode."""
    if len(texts) > config.max_texts:
        message = f"texts: expected at most {config.max_texts}, got {len(texts)}. Send several requests."
        raise Problem(422, message, "too_many_texts")
    parts = {
        f"texts.{index}" if isinstance(entry, str) else f"texts.{index}.{side}": text
        for index, entry in enumerate(texts)
        for side, text in enumerate([entry] if isinstance(entry, str) else entry)
    }
    for field, text in parts.items():
        if len(text) > config.max_characters:
            message = f"{field}: expected at most {config.max_characters} characters, got {len(text)}."
            raise Problem(422, f"{message} Send it in parts, such as sentences.", "text_too_long")
        if half := _HALF.search(text):
            message = f"{field}: expected Unicode text, got {half[0]!a}, half a character, at {half.start()}."
            raise Problem(422, message, "not_unicode")


def translate_settings(
    request: TranslateRequest, engine: TranslatorEngine, config: ServiceConfig
) -> TranslateSettings:
    """The settings of a request, if there are as many beams and the model can show what is asked for."""
    beam = request.beam_size or engine.translator.info.decoding.beam_size
    if request.n_best > beam:
        message = f"n_best: expected at most the beam size, {beam}, got {request.n_best}. Raise beam_size."
        raise Problem(422, message)
    if (request.beam_size or 0) > config.max_beam:
        raise Problem(422, f"beam_size: expected at most {config.max_beam}, got {request.beam_size}.")
    if request.terms is not None:
        try:
            engine.translator.cleaned_terms(request.terms)
        except ConfigError as error:
            raise Problem(422, str(error)) from error
    model = engine.description
    if hidden := sorted(set(request.show) - set(model.shows)):
        message = f"show: expected {' or '.join(model.shows)}, got {', '.join(hidden)}, which {model.name}"
        remedy = "Ask a model that was not exported."
        raise Problem(422, f"{message}, exported to {model.backend}, does not give. {remedy}")
    limit, squares = config.max_explained_characters, sum(len(text) ** 2 for text in request.texts)
    if {"alignment", "attention"} & {*request.show} and squares > limit**2:
        most = f"{limit} characters in one, or {limit**2} as the sum of the squares of several texts' lengths"
        remedy = "Send fewer or shorter texts, or do not show attention."
        raise Problem(422, f"texts: expected at most {most}, got {squares}. {remedy}", "text_too_long")
    settings = settings_of(request, TranslateSettings)
    settings.show = sorted(set(request.show))  # so that requests that differ only in order share a batch
    return settings


def settings_of(request: BaseModel, kind: type[_Settings]) -> _Settings:
    """The settings of a request, which texts in one batch must share."""
    return kind.model_construct(**{name: getattr(request, name) for name in kind.model_fields})


def check_pairs(texts: Sequence[str | list[str]], engine: ClassifierEngine) -> list[str | tuple[str, str]]:
    """Texts in the form that a classifier takes: none empty, and pairs where it was trained on pairs."""
    items: list[str | tuple[str, str]] = []
    for index, text in enumerate(texts):
        parts = [text] if isinstance(text, str) else text
        if len(parts) != engine.n_texts:
            form = "a text" if engine.n_texts == 1 else "a pair of texts"
            message = f"texts.{index}: expected {form} for {engine.description.name}, got {len(parts)}."
            raise Problem(422, message)
        if not all(side.strip() for side in parts):
            raise Problem(422, f"texts.{index}: expected a text that is not empty, got ''.", "empty_text")
        items.append(parts[0] if engine.n_texts == 1 else (parts[0], parts[1]))
    return items


MAX_DEPTH = 10
"""Largest number of nested brackets: no request needs a third of it."""

_TOKEN = re.compile(r'"(?:[^"\\]++|\\.)*+"?|[\[{\]},:]', re.DOTALL)
"""A string, or a JSON delimiter outside strings."""


class BoundedRoute(APIRoute):
    """A route that limits the content of its body."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Give the handler a request that checks its body."""
        handle = super().get_route_handler()

        async def bounded(request: Request) -> Response:
            return await handle(_BoundedRequest(request.scope, request.receive))

        return bounded


class _BoundedRequest(Request):
    async def json(self) -> Any:
        text = (await self.body()).decode("utf-8-sig")  # the check then sees exactly what is read
        _check_size(text, self.app.state.config.max_texts)
        return json.loads(text)


def _check_size(text: str, max_texts: int) -> None:
    """Check that JSON has few values, keys and nested brackets, and stop at the first excess."""
    depth = n_keys = 0
    for n_tokens, token in enumerate(_TOKEN.finditer(text)):
        mark = text[token.start()]
        depth += (mark in "[{") - (mark in "]}")
        n_keys += mark == ":"
        if depth > MAX_DEPTH:
            raise Problem(400, f"body: expected brackets at most {MAX_DEPTH} deep, got more.")
        if n_keys > MAX_KEYS:
            raise Problem(422, f"body: expected at most {MAX_KEYS} keys, got more.", "too_many_keys")
        if n_tokens > 8 * (max_texts + MAX_KEYS):  # a pair: two brackets, two texts, two commas
            message = f"body: expected at most {max_texts} texts, got far more values than these take."
            raise Problem(422, f"{message} Send several requests.", "too_many_texts")
