"""Errors of requests as JSON that says what to change, all in the same form.

`{"error": {"status": 422, "code": "too_many_texts", "message": "texts: expected …", "request_id": …}}`
"""

from __future__ import annotations

import re
import uuid
from contextvars import ContextVar
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

STATUSES = {
    400: ("not_json", "The body is not JSON."),
    401: ("no_key", "The key is missing or wrong."),
    404: ("no_such_path", ""),
    405: ("wrong_method", ""),
    408: ("too_slow", "The body did not come in time."),
    413: ("too_large", "The body is too large."),
    421: ("wrong_host", "The name in `Host` is not one of the service's."),
    422: ("invalid", "The request is not valid; the message says what to change."),
    429: ("busy", "Too many texts are waiting."),
    499: ("gone", ""),
    500: ("internal", ""),
    503: ("too_late", "There was no answer in time."),
}
"""The usual code of each status, and its OpenAPI description if routes may answer with it."""

_PREFIX = re.compile(r"^(Value error, |(Input|List|String|Value) should (be |have )?)")
"""The beginning of pydantic's messages, which is removed."""


class Problem(HTTPException):
    """An error answer; its `code` is for programs, and None gives the usual one of the status."""

    def __init__(
        self, status: int, message: str, code: str | None = None, headers: dict[str, str] | None = None
    ) -> None:
        super().__init__(status, message, headers)
        self.status, self.message = status, message
        self.code = code or STATUSES[status][0]


def shown(value: object) -> str:
    """A value from a request as messages quote it, cut to 60 characters."""
    text = ascii(value[:60] if isinstance(value, str) else value)
    return text if len(text) <= 60 else f"{text[:60]}…"


def problem_response(problem: Problem) -> JSONResponse:
    """The body of every error."""
    error = {
        "status": problem.status,
        "code": problem.code,
        "message": problem.message[:2000].encode("utf-8", "backslashreplace").decode(),
        "request_id": _current.get(),
    }
    return JSONResponse({"error": error}, problem.status, problem.headers)


def handle_problems(app: FastAPI) -> None:
    """Make an application answer all errors in this form."""

    @app.exception_handler(RequestValidationError)
    async def _invalid(_: Request, error: RequestValidationError) -> JSONResponse:
        details = error.errors()
        if any(detail["loc"] == ("body",) and isinstance(detail.get("input"), bytes) for detail in details):
            message = "body: expected JSON, got another content type."
            problem = Problem(422, f"{message} Send `Content-Type: application/json`.")
        elif any(detail["type"] == "json_invalid" for detail in details):
            reason = details[0].get("ctx", {}).get("error", "other bytes")
            problem = Problem(400, f"body: expected JSON, got: {reason}.")
        else:
            problem = Problem(422, " ".join(map(_sentence, details[:10])))
        return problem_response(problem)

    @app.exception_handler(HTTPException)
    async def _http(request: Request, error: HTTPException) -> JSONResponse:
        return problem_response(error if isinstance(error, Problem) else _http_problem(request, error))


def _sentence(detail: Any) -> str:
    field = ".".join(str(key)[:60] for key in detail["loc"] if key not in ("body", "query", "path")) or "body"
    if detail["type"] == "missing":
        return f"{field}: expected a value, got nothing."
    if detail["type"] == "extra_forbidden":
        return f"{field}: unknown field."
    expected = _PREFIX.sub("", detail["msg"])
    return f"{field}: expected {expected}, got {shown(detail.get('input'))}."


def _http_problem(request: Request, error: HTTPException) -> Problem:
    headers = dict(error.headers or {})
    if error.status_code == 404:
        message = f"path: expected one of the service's paths, got {shown(request.url.path)}."
        return Problem(404, f"{message} See /openapi.json.")
    if error.status_code == 405:
        allowed = headers.get("Allow") or headers.get("allow", "another method")
        return Problem(405, f"method: expected {allowed}, got {request.method[:60]}.", headers=headers)
    if error.status_code == 400:
        return Problem(400, "body: expected JSON, got brackets too deep, a number too long, or no UTF-8.")
    code, _ = STATUSES.get(error.status_code, ("http", ""))
    return Problem(error.status_code, f"request: {error.detail}.", code, headers)


HEADER = "x-request-id"

_PROPER = re.compile(r"[A-Za-z0-9._-]{1,64}")
_current: ContextVar[str] = ContextVar("request_id", default="")


def set_request_id(header: str) -> str:
    """Begin a request; a given id of letters, digits, ".", "_" and "-" is kept."""
    request_id = header if _PROPER.fullmatch(header) else uuid.uuid4().hex
    _current.set(request_id)
    return request_id
