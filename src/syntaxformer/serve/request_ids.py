"""An id for each request: the client's own where it sent a proper one, else a new one."""

from __future__ import annotations

import re
import uuid
from contextvars import ContextVar

__all__ = ["HEADER", "current_request_id", "set_request_id"]

HEADER = "x-request-id"

_PROPER = re.compile(r"[A-Za-z0-9._-]{1,64}")
_current: ContextVar[str] = ContextVar("request_id", default="")


def current_request_id() -> str:
    """The id of the request that is being answered; empty outside of one."""
    return _current.get()


def set_request_id(given: str | None) -> str:
    """Begin a request; an id of letters, digits, ".", "_" and "-" is taken over."""
    request_id = given if given and _PROPER.fullmatch(given) else uuid.uuid4().hex
    _current.set(request_id)
    return request_id
