"""What of a well-formed request the served models can do: counts, lengths, characters, names of models."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

from fastapi import Request, Response
from fastapi.routing import APIRoute

from syntaxformer.serve.config import ServiceConfig
from syntaxformer.serve.engines import ClassifierEngine, Engine, TranslateSettings, TranslatorEngine
from syntaxformer.serve.problems import Problem, shown
from syntaxformer.serve.schemas import TranslateRequest

_HALF = re.compile("[\ud800-\udfff]")

TASKS = {"translation": "a translator", "classification": "a classifier"}


def n_characters(texts: str | Sequence[str]) -> int:
    """Characters of a text, or of several."""
    return len(texts) if isinstance(texts, str) else sum(map(len, texts))


def choose(engines: Mapping[str, Engine], task: str | None, name: str | None) -> Engine:
    """The model of a request; the first one of the task, or of all, where none is named.

    Raises:
        Problem: 422, there is no such model for the task.
    """
    known = {key: engine for key, engine in engines.items() if task in (None, engine.description.task)}
    if name is None and known:
        return next(iter(known.values()))
    if name is None or name not in known:
        found = "nothing" if name is None else shown(name)
        choice = (
            f"one of {', '.join(known)}"
            if known
            else f"{TASKS[task or '']} among the served models, where none is"
        )
        raise Problem(422, f"model: expected {choice}, got {found}. See GET /v1/models.", "no_such_model")
    return known[name]


def check_explained(texts: Sequence[str], config: ServiceConfig) -> None:
    """Hold that a text to look into is short: its matrices grow with the square of it.

    Raises:
        Problem: 422, it is too long or empty.
    """
    if (found := n_characters(texts)) > config.max_explained_characters:
        raise Problem(
            422,
            f"text: expected at most {config.max_explained_characters} characters, got {found}. "
            "Send a part of it: what is shown grows with the square of the length.",
            "text_too_long",
        )
    if not all(text.strip() for text in texts):
        raise Problem(422, "text: expected one that is not empty, got ''.", "empty_text")


def check_texts(texts: Sequence[str | Sequence[str]], config: ServiceConfig) -> None:
    """Hold that texts, or pairs of texts, are few, short and Unicode.

    Raises:
        Problem: 422.
    """
    if len(texts) > config.max_texts:
        message = f"texts: expected at most {config.max_texts}, got {len(texts)}. Send several requests."
        raise Problem(422, message, "too_many_texts")
    parts = {
        f"texts.{place}" if isinstance(one, str) else f"texts.{place}.{part}": text
        for place, one in enumerate(texts)
        for part, text in enumerate([one] if isinstance(one, str) else one)
    }
    for place, text in parts.items():
        if len(text) > config.max_characters:
            raise Problem(
                422,
                f"{place}: expected at most {config.max_characters} characters, got {len(text)}. "
                "Send it in parts, a sentence each.",
                "text_too_long",
            )
        if half := _HALF.search(text):
            message = f"{place}: expected Unicode text, got {half[0]!a}, half a character, at {half.start()}."
            raise Problem(422, message, "not_unicode")


def translate_settings(request: TranslateRequest, engine: TranslatorEngine) -> TranslateSettings:
    """The settings of a request, as far as the model can follow them.

    Raises:
        Problem: 422, more translations than beams, or something to show that the model does not show.
    """
    beam = request.beam_size or engine.translator.info.decoding.beam_size
    if request.n_best > beam:
        message = f"n_best: expected at most the beam size, {beam}, got {request.n_best}. Raise beam_size."
        raise Problem(422, message)
    shows = engine.description.shows
    if hidden := sorted(set(request.show) - set(shows)):
        name = engine.description.name
        raise Problem(
            422,
            f"show: expected {' or '.join(shows)}, got {', '.join(hidden)}, which {name}, exported to "
            f"{engine.description.backend}, does not give. Ask a model that was not exported.",
        )
    return TranslateSettings(
        request.beam_size, request.n_best, request.length_penalty, request.scores, frozenset(request.show)
    )


def check_pairs(texts: Sequence[str | list[str]], engine: ClassifierEngine) -> list[str | tuple[str, str]]:
    """Texts in the form that a classifier takes.

    Raises:
        Problem: 422, single texts for a model of pairs or the reverse, or an empty text.
    """
    items: list[str | tuple[str, str]] = []
    for place, text in enumerate(texts):
        parts = [text] if isinstance(text, str) else text
        if len(parts) != engine.n_texts:
            wanted = "a text" if engine.n_texts == 1 else "a pair of texts"
            raise Problem(
                422, f"texts.{place}: expected {wanted} for {engine.description.name}, got {len(parts)}."
            )
        if not all(part.strip() for part in parts):
            raise Problem(422, f"texts.{place}: expected a text that is not empty, got ''.", "empty_text")
        items.append(parts[0] if engine.n_texts == 1 else (parts[0], parts[1]))
    return items


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
