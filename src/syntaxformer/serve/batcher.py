"""Batches the texts of many requests: a bounded queue in front of one worker thread.

While the thread is busy, requests gather; it then takes as many as fit into a batch. An idle service starts
at once, so a single request is answered as fast as without a queue. Requests with different settings go into
different batches. A large request is split, and goes to the end of the queue after each part. So others need
not wait for all of it, and it ends with its current part if its client has gone.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

from syntaxformer.serve.problems import Problem

Work = Callable[[Any, list[Any]], Sequence[Any]]
"""Returns a result for each item, from settings and items."""


@dataclass(eq=False)
class _Job:
    items: Sequence[Any]
    settings: Any
    deadline: float
    answer: asyncio.Future[list[Any]]
    results: list[Any] = field(default_factory=list)
    n_taken: int = 0

    @property
    def left(self) -> Sequence[Any]:
        return self.items[self.n_taken :]

    @property
    def is_over(self) -> bool:
        return self.answer.done() or self.deadline < time.monotonic()


_Part = tuple[_Job, Sequence[Any]]
"""A job and the items of it that are next."""


@dataclass
class Batcher:
    """Gathers items and processes them in its own thread.

    Args:
        work: Processes a batch; it runs in the thread.
        max_batch: Largest number of items in a batch; a larger request is split.
        max_waiting: Largest number of waiting items; a request that does not fit is refused.
        max_cost: Largest cost of a batch of several items.
        metrics: Counters of its work, under the name of the `model`.
    """

    work: Work
    max_batch: int = 64
    max_waiting: int = 1024
    max_cost: int = 1 << 62
    cost: Callable[[Any], int] = lambda item: 1
    metrics: Metrics = field(default_factory=lambda: Metrics())
    model: str = ""
    _jobs: deque[_Job] = field(default_factory=deque, init=False)
    _n_waiting: int = field(default=0, init=False)
    _task: asyncio.Task[None] | None = field(default=None, init=False)
    _thread: ThreadPoolExecutor = field(
        default_factory=lambda: ThreadPoolExecutor(1, thread_name_prefix="batch"), init=False
    )

    def __post_init__(self) -> None:
        self._count(0)

    async def submit(self, items: Sequence[Any], settings: Any, deadline_s: float) -> list[Any]:
        """Wait for the results of some items; items with equal settings may share a batch.

        Raises:
            Problem: 429 if too many items wait already, 503 if the results do not come in time.
        """
        if self._n_waiting and self._n_waiting + len(items) > self.max_waiting:
            self.metrics.refused.labels(self.model, "busy").inc()
            raise Problem(
                429,
                f"queue: expected room for {len(items)} texts, got {self._n_waiting} waiting, of at most "
                f"{self.max_waiting}. Send it again later.",
                headers={"Retry-After": "1"},
            )
        job = _Job(items, settings, time.monotonic() + deadline_s, asyncio.get_running_loop().create_future())
        self._jobs.append(job)
        self._count(len(items))
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run())
        try:
            return await asyncio.wait_for(job.answer, deadline_s)
        except TimeoutError as error:
            self.metrics.refused.labels(self.model, "too_late").inc()
            raise Problem(
                503,
                f"service: expected an answer within {deadline_s:g} s, got none. Send fewer texts or wait.",
                headers={"Retry-After": "5"},
            ) from error
        finally:  # what nobody waits for any longer makes room at once, also while a part of it is worked on
            self._count(-len(job.left))
            job.n_taken = len(job.items)
            with suppress(ValueError):  # it may be at work
                self._jobs.remove(job)

    async def close(self) -> None:
        """Finish all waiting items, then stop."""
        if self._task is not None:
            await self._task
        self._thread.shutdown()

    def _count(self, change: int) -> None:
        self._n_waiting += change
        self.metrics.waiting.labels(self.model).set(self._n_waiting)

    async def _run(self) -> None:
        """Work until nothing waits."""
        while batch := self._take():
            await self._finish(batch)
            # The rest of a large job goes behind jobs that came meanwhile.
            self._jobs += [job for job, _ in batch if job.left]

    async def _finish(self, batch: Sequence[_Part]) -> None:
        """Process a batch; if it fails, process each part alone, so that only the faulty request fails."""
        items = [item for _, part in batch for item in part]
        start = time.monotonic()
        loop = asyncio.get_running_loop()
        try:
            results = await loop.run_in_executor(self._thread, self._work, batch[0][0].settings, items)
            self.metrics.add_batch(self.model, len(items), time.monotonic() - start)
            _deliver(batch, results)
        except Exception as error:
            for part in batch if len(batch) > 1 else ():
                await self._finish([part])
            if len(batch) == 1 and not batch[0][0].answer.done():
                batch[0][0].answer.set_exception(error)

    def _work(self, settings: Any, items: list[Any]) -> Sequence[Any]:
        """Process items in the thread, and turn exceptions such as a tokenizer's panic into errors."""
        try:
            return self.work(settings, items)
        except BaseException as error:
            if isinstance(error, Exception | KeyboardInterrupt | SystemExit):
                raise
            raise RuntimeError(f"model: expected results, got {type(error).__name__}: {error}") from error

    def _take(self) -> list[_Part]:
        """Take a part of the oldest job and further jobs with its settings that fit; drop late jobs."""
        batch: list[_Part] = []
        kept: deque[_Job] = deque()
        n_items = cost = 0
        for job in self._jobs:
            left = job.left
            if job.is_over:  # `submit` gives its room back
                continue
            part = left[: self._n_fitting(left, n_items, cost)]
            if not batch or (job.settings == batch[0][0].settings and len(part) == len(left)):
                batch.append((job, part))
                job.n_taken += len(part)
                n_items += len(part)
                cost += sum(map(self.cost, part))
            else:
                kept.append(job)
        self._jobs = kept
        self._count(-n_items)
        return batch

    def _n_fitting(self, items: Sequence[Any], n_items: int, cost: int) -> int:
        """Number of items that fit into a batch besides its content; an empty batch takes at least one."""
        for n_fitting, item in enumerate(items):
            cost += self.cost(item)
            if n_items + n_fitting and (n_items + n_fitting >= self.max_batch or cost > self.max_cost):
                return n_fitting
        return len(items)


def _deliver(batch: Sequence[_Part], results: Sequence[Any]) -> None:
    place = 0
    for job, part in batch:
        job.results += results[place : place + len(part)]
        place += len(part)
        if len(job.results) == len(job.items) and not job.answer.done():
            job.answer.set_result(job.results)


SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class Metrics:
    """All counters of one application."""

    def __init__(self) -> None:
        self._registry = registry = CollectorRegistry()
        self.requests = Counter(
            "syntaxformer_requests_total", "Requests answered.", ["path", "status"], registry=registry
        )
        self.seconds = Histogram(
            "syntaxformer_request_seconds", "Time to answer.", ["path"], buckets=SECONDS, registry=registry
        )
        of_model: dict[str, Any] = {"labelnames": ["model"], "registry": registry}
        self.texts = Counter("syntaxformer_texts_total", "Texts worked on.", **of_model)
        self.batch_texts = Histogram(
            "syntaxformer_batch_texts", "Texts of a batch.", buckets=SIZES, **of_model
        )
        self.batch_seconds = Histogram(
            "syntaxformer_batch_seconds", "Time of a batch.", buckets=SECONDS, **of_model
        )
        self.waiting = Gauge(
            "syntaxformer_waiting_texts", "Texts that wait.", multiprocess_mode="livesum", **of_model
        )
        self.refused = Counter(
            "syntaxformer_refused_total",
            "Requests refused under load.",
            ["model", "reason"],
            registry=registry,
        )

    def add_batch(self, model: str, n_texts: int, seconds: float) -> None:
        """Count a batch of a model."""
        self.texts.labels(model).inc(n_texts)
        self.batch_texts.labels(model).observe(n_texts)
        self.batch_seconds.labels(model).observe(seconds)

    def text(self) -> bytes:
        """All counters in Prometheus's text format."""
        if "PROMETHEUS_MULTIPROC_DIR" not in os.environ:
            return generate_latest(self._registry)
        shared = CollectorRegistry()
        MultiProcessCollector(shared)
        return generate_latest(shared)
