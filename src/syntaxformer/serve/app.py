"""The application: routes, and what they have in common.

`create_app` takes loaded models; pages (the explorer) are added to what it returns, which holds the models in
`app.state.engines` and their queues in `app.state.batchers`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Hashable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse, PlainTextResponse
from prometheus_client import CONTENT_TYPE_LATEST

from syntaxformer import __version__
from syntaxformer.base.errors import SyntaxformerError
from syntaxformer.serve.batcher import Batcher, Metrics
from syntaxformer.serve.checks import (
    BoundedRoute,
    check_explained,
    check_pairs,
    check_texts,
    choose,
    n_characters,
    translate_settings,
)
from syntaxformer.serve.config import ServiceConfig
from syntaxformer.serve.engines import ClassifierEngine, Engine, ExplainSettings, TranslatorEngine
from syntaxformer.serve.gate import Gate
from syntaxformer.serve.problems import Problem, handle_problems
from syntaxformer.serve.schemas import (
    ClassifyAnswer,
    ClassifyRequest,
    ErrorBody,
    ExplainAnswer,
    ExplainRequest,
    ModelList,
    TranslateAnswer,
    TranslateRequest,
)

LOOK_S = 0.2
"""Seconds between two looks at whether a client still waits."""

_REASONS = {
    400: "The body is not JSON.",
    401: "The key is missing or wrong.",
    413: "The body is too large.",
    421: "The name in `Host` is none of the service's.",
    422: "The request asks for what cannot be; the message says what to change.",
    429: "Too many texts are waiting.",
    503: "There was no answer in time.",
}
_ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": ErrorBody, "description": description} for status, description in _REASONS.items()
}
_UNAUTHORISED = {401: _ERRORS[401]}


def create_app(config: ServiceConfig, engines: Mapping[str, Engine]) -> FastAPI:
    """Build the application.

    Args:
        config: Limits and key.
        engines: Loaded models by name; the first of each task is its default.
    """
    metrics = Metrics()
    batchers = {
        name: Batcher(
            engine.work,
            config.max_batch,
            config.max_waiting,
            metrics.observer(name),
            cost=n_characters,
            max_cost=config.max_batch_characters,
        )
        for name, engine in engines.items()
    }

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        app.state.ready = True
        yield
        app.state.ready = False
        for batcher in batchers.values():
            await batcher.close()

    app = FastAPI(
        title="syntaxformer",
        version=__version__,
        description="Translation and classification with syntax. An error is JSON that says what to change.",
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
    )
    app.state.config, app.state.engines, app.state.batchers = config, dict(engines), batchers
    app.state.ready, app.state.metrics = False, metrics
    app.router.route_class = BoundedRoute
    handle_problems(app)
    _add_work(app)
    _add_explain(app)
    _add_probes(app)
    app.add_middleware(Gate, config=config, metrics=metrics)
    return app


def _add_work(app: FastAPI) -> None:
    config: ServiceConfig = app.state.config

    @app.post("/v1/translate", response_model_exclude_none=True, responses=_ERRORS, summary="Translate texts")
    async def translate(body: TranslateRequest, request: Request) -> TranslateAnswer:
        """Translate a batch of texts, in order."""
        engine = choose(app.state.engines, "translation", body.model)
        assert isinstance(engine, TranslatorEngine)
        _note(request, config, engine, body.texts)
        check_texts(body.texts, config)
        settings = translate_settings(body, engine)
        name = engine.description.name
        found = await _work(request, name, body.texts, settings)
        return TranslateAnswer(model=name, translations=found)

    @app.post("/v1/classify", response_model_exclude_none=True, responses=_ERRORS, summary="Classify texts")
    async def classify(body: ClassifyRequest, request: Request) -> ClassifyAnswer:
        """Classify a batch of texts or pairs of texts, in order."""
        engine = choose(app.state.engines, "classification", body.model)
        assert isinstance(engine, ClassifierEngine)
        parts = [part for text in body.texts for part in ([text] if isinstance(text, str) else text)]
        _note(request, config, engine, parts)
        check_texts(body.texts, config)
        items = check_pairs(body.texts, engine)
        name = engine.description.name
        found = await _work(request, name, items, None)
        return ClassifyAnswer(model=name, classifications=found)

    @app.get(
        "/v1/models",
        response_model_exclude_none=True,
        responses=_UNAUTHORISED,
        summary="Models that are served",
    )
    async def models() -> ModelList:
        """All models and what can be asked of them."""
        return ModelList(models=[engine.description for engine in app.state.engines.values()])


def _add_explain(app: FastAPI) -> None:
    config: ServiceConfig = app.state.config

    @app.post("/v1/explain", response_model_exclude_none=True, responses=_ERRORS, summary="Look into a model")
    async def explain(body: ExplainRequest, request: Request) -> ExplainAnswer:
        """Translate or classify a text, and show words, trees, relations, pieces, attention, sub-networks."""
        engine = choose(app.state.engines, None, body.model)
        texts = [body.text] if isinstance(body.text, str) else body.text
        _note(request, config, engine, texts)
        check_texts(texts, config)
        check_explained(texts, config)
        if isinstance(engine, ClassifierEngine):
            items = check_pairs([body.text], engine)
        elif len(texts) > 1:
            raise Problem(422, f"text: expected a text for {engine.description.name}, got a pair.")
        else:
            items = texts
        settings = ExplainSettings(body.layer, body.head, body.network, body.max_distance)
        name = engine.description.name
        (found,) = await _work(request, name, items, settings)
        return found


async def _work(request: Request, name: str, items: Sequence[Any], settings: Hashable) -> list[Any]:
    """A model's results, as long as the client waits for them.

    Raises:
        Problem: 422, the model cannot work on an item; 499, the client went away; those of `Batcher.submit`.
    """
    state = request.app.state
    work = asyncio.create_task(state.batchers[name].submit(items, settings, state.config.deadline_s))
    try:
        while not (await asyncio.wait({work}, timeout=LOOK_S))[0]:
            if await request.is_disconnected():
                raise Problem(499, "client: expected one that waits for its answer, got none any more.")
        return work.result()
    except SyntaxformerError as error:
        raise Problem(422, str(error)) from error
    finally:
        work.cancel()  # the batcher drops what nobody waits for


def _note(request: Request, config: ServiceConfig, engine: Engine, texts: list[str]) -> None:
    """For the log: how much, and the texts themselves only where that was asked for."""
    log: dict[str, Any] = {
        "model": engine.description.name,
        "texts": len(texts),
        "characters": n_characters(texts),
    }
    if config.log_texts:
        log["content"] = texts
    request.state.log = log


def _add_probes(app: FastAPI) -> None:
    @app.head("/healthz", include_in_schema=False)
    @app.get("/healthz", summary="Whether the process lives")
    async def healthz() -> dict[str, str]:
        """Always ok while the process answers."""
        return {"status": "ok"}

    @app.head("/readyz", include_in_schema=False)
    @app.get(
        "/readyz",
        summary="Whether requests are taken",
        responses={503: {"description": "Models are loading, or the service is stopping."}},
    )
    async def readyz() -> Response:
        """Ok from when all models are loaded until the service is told to stop."""
        status = "ready" if app.state.ready else "not ready"
        return JSONResponse({"status": status}, 200 if app.state.ready else 503)

    @app.get("/metrics", response_class=PlainTextResponse, summary="Counters for Prometheus")
    async def metrics() -> Response:
        """Requests, times, batches, queues."""
        return Response(app.state.metrics.text(), media_type=CONTENT_TYPE_LATEST)
