"""The application and its routes.

`create_app` takes loaded models and keeps them in `app.state.engines`, and their queues in
`app.state.batchers`. Pages (the explorer) are added to the application that it returns.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from fastapi import APIRouter, Depends, FastAPI, Request, Response
from fastapi.responses import JSONResponse, PlainTextResponse
from fastapi.security import HTTPBearer
from prometheus_client import CONTENT_TYPE_LATEST

from syntaxformer import __version__
from syntaxformer.base.errors import SyntaxformerError, panics
from syntaxformer.serve import gate, schemas
from syntaxformer.serve.batcher import Batcher, Metrics
from syntaxformer.serve.config import ServiceConfig
from syntaxformer.serve.engines import ClassifierEngine, Engine, TranslatorEngine
from syntaxformer.serve.problems import STATUSES, Problem, handle_problems, shown

LOOK_S = 0.2
"""Seconds between two checks whether a client still waits."""

STOP_S = 5.0
"""Requests that still wait so many seconds after the service was told to stop get 503."""

_ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": schemas.ErrorBody, "description": text}
    for status, (_, text) in STATUSES.items()
    if text
}

_work = APIRouter(route_class=gate.BoundedRoute, responses=_ERRORS)
_models = APIRouter(responses={status: _ERRORS[status] for status in (401, 421)})
_probes = APIRouter(responses={421: _ERRORS[421]})


def create_app(config: ServiceConfig, engines: Mapping[str, Engine]) -> FastAPI:
    """Build the application for loaded models; the first model of each task is its default."""
    metrics = Metrics()
    bounds = config.max_batch, config.max_waiting, config.batch_s, metrics
    batchers = {name: Batcher(engine.work, *bounds, name) for name, engine in engines.items()}

    def stop() -> None:
        app.state.ready, app.state.end = False, min(app.state.end, time.monotonic() + STOP_S)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[dict[str, Any]]:
        app.state.ready, app.state.end = True, math.inf
        yield {"stop": stop}
        app.state.ready = False
        for batcher in batchers.values():
            await batcher.close()

    app = FastAPI(
        title="syntaxformer",
        version=__version__,
        description="Translation and classification with syntax. Errors are JSON that says what to change.",
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
    )
    app.state.config, app.state.engines, app.state.batchers = config, dict(engines), batchers
    app.state.ready, app.state.metrics = False, metrics
    handle_problems(app)
    # `Gate` checks the key; this says so in OpenAPI.
    needs_key = [] if config.api_key is None else [Depends(HTTPBearer(auto_error=False))]
    app.include_router(_work, dependencies=needs_key)
    app.include_router(_models, dependencies=needs_key)
    app.include_router(_probes)
    app.add_middleware(gate.Gate, config=config, metrics=metrics)
    return app


@_work.post("/v1/translate", response_model_exclude_none=True, summary="Translate texts")
async def translate(body: schemas.TranslateRequest, request: Request) -> schemas.TranslateAnswer:
    """Translate a batch of texts, in order."""
    engine = _engine(request, "translation", body.model, body.texts)
    assert isinstance(engine, TranslatorEngine)
    settings = gate.translate_settings(body, engine, request.app.state.config)
    translations = await _results(request, engine, body.texts, settings)
    return schemas.TranslateAnswer(model=engine.description.name, translations=translations)


@_work.post("/v1/score", response_model_exclude_none=True, summary="Score given translations")
async def score(body: schemas.ScoreRequest, request: Request) -> schemas.ScoreAnswer:
    """Score pairs of a source and its translation, in order."""
    engine = _engine(request, "translation", body.model, body.texts)
    settings = gate.settings_of(body, schemas.ScoreSettings)
    scores = await _results(request, engine, body.texts, settings)
    return schemas.ScoreAnswer(model=engine.description.name, scores=scores)


@_work.post("/v1/classify", response_model_exclude_none=True, summary="Classify texts")
async def classify(body: schemas.ClassifyRequest, request: Request) -> schemas.ClassifyAnswer:
    """Classify a batch of texts or pairs of texts, in order."""
    engine = _engine(request, "classification", body.model, body.texts)
    assert isinstance(engine, ClassifierEngine)
    classifications = await _results(request, engine, gate.check_pairs(body.texts, engine), None)
    return schemas.ClassifyAnswer(model=engine.description.name, classifications=classifications)


@_work.post("/v1/explain", response_model_exclude_none=True, summary="Look into a model")
async def explain(body: schemas.ExplainRequest, request: Request) -> schemas.ExplainAnswer:
    """Translate or classify a text, and show its words, trees, relations, pieces and attention."""
    texts = [body.text] if isinstance(body.text, str) else body.text
    engine = _engine(request, None, body.model, texts)
    gate.check_explained(texts, request.app.state.config)
    if isinstance(engine, ClassifierEngine):
        if body.to is not None:
            name, got = engine.description.name, shown(body.to)
            raise Problem(422, f"to: expected none for {name}, which does not translate, got {got}.")
        items = gate.check_pairs([body.text], engine)
    elif len(texts) > 1:
        raise Problem(422, f"text: expected a text for {engine.description.name}, got a pair.")
    else:
        items = texts
    (explanation,) = await _results(request, engine, items, gate.settings_of(body, schemas.ExplainSettings))
    return explanation


def _engine(
    request: Request, task: str | None, name: str | None, texts: Sequence[str | Sequence[str]]
) -> Engine:
    """The model of a request; its counts are noted for the log, its texts only if the service logs texts."""
    state = request.app.state
    engine = gate.choose(state.engines, task, name)
    parts = [side for text in texts for side in ([text] if isinstance(text, str) else text)]
    log = {"model": engine.description.name, "texts": len(parts), "characters": sum(map(len, parts))}
    request.state.log = {**log, "content": parts} if state.config.log_texts else log
    gate.check_texts(texts, state.config)
    return engine


async def _results(request: Request, engine: Engine, items: Sequence[Any], settings: Any) -> list[Any]:
    """A model's results, unless the client goes away.

    Raises:
        Problem: 422 if the model cannot process an item, 499 if the client left, 503 if the service stops;
            also as `Batcher.submit`.
    """
    state = request.app.state
    batcher: Batcher = state.batchers[engine.description.name]
    work: asyncio.Task[list[Any]] | None = None
    try:
        with panics():
            if len(str(items)) > state.config.max_characters:  # others go on while the pieces are counted
                costs = await asyncio.to_thread(engine.costs, settings, items)
            else:
                costs = engine.costs(settings, items)
        turn = gate.client_of(request), costs
        work = asyncio.create_task(batcher.submit(items, settings, state.config.deadline_s, *turn))
        while not (await asyncio.wait({work}, timeout=LOOK_S))[0]:
            if await request.is_disconnected():
                raise Problem(499, "client: expected one that waits for its answer, got a closed connection.")
            if time.monotonic() > state.end:
                message = "service: expected one that goes on, got one that was told to stop. Send it later."
                raise Problem(503, message, headers={"Retry-After": "5"})
        return work.result()
    except SyntaxformerError as error:
        raise Problem(422, str(error)) from error
    finally:
        if work is not None:
            work.cancel()  # the batcher drops jobs that are cancelled


@_models.get("/v1/models", response_model_exclude_none=True, summary="Models that are served")
async def models(request: Request) -> schemas.ModelList:
    """List all models and what they can do."""
    return schemas.ModelList(models=[engine.description for engine in request.app.state.engines.values()])


@_probes.head("/healthz", include_in_schema=False)
@_probes.get("/healthz", summary="Whether the process is alive")
async def healthz() -> dict[str, str]:
    """Answer ok as long as the process runs."""
    return {"status": "ok"}


@_probes.head("/readyz", include_in_schema=False)
@_probes.get(
    "/readyz",
    summary="Whether requests are accepted",
    responses={503: {"description": "Models are loading, or the service is stopping."}},
)
async def readyz(request: Request) -> Response:
    """Answer ok after all models are loaded and until the service is told to stop."""
    ready = request.app.state.ready
    return JSONResponse({"status": "ready" if ready else "not ready"}, 200 if ready else 503)


@_probes.get("/metrics", response_class=PlainTextResponse, summary="Counters for Prometheus")
async def metrics(request: Request) -> Response:
    """Return counters of requests, times, batches and queues."""
    return Response(request.app.state.metrics.text(), media_type=CONTENT_TYPE_LATEST)
