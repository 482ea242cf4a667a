"""Bodies of requests, held against bounds before any value is made of them: the loop waits for each."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request, Response
from fastapi.routing import APIRoute

from syntaxformer.serve.problems import Problem

__all__ = ["BoundedRoute"]

MAX_KEYS, MAX_DEPTH = 50, 10
"""Keys of all objects, and brackets within each other: no request needs a third of either."""

_TOKEN = re.compile(r'"(?:[^"\\]++|\\.)*+"?|[\[{\]},:]', re.DOTALL)
"""A string, or a mark of JSON outside of strings."""


class BoundedRoute(APIRoute):
    """A route whose body is bounded."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Answer with a request that reads its body here."""
        handle = super().get_route_handler()

        async def bounded(request: Request) -> Response:
            return await handle(_BoundedRequest(request.scope, request.receive))

        return bounded


class _BoundedRequest(Request):
    async def json(self) -> Any:
        text = (await self.body()).decode("utf-8-sig")  # nothing else: what is counted is what is read
        _check_size(text, self.app.state.config.max_texts)
        return json.loads(text)


def _check_size(text: str, max_texts: int) -> None:
    """Hold that JSON has few values, keys and brackets within each other; it is read no further."""
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
