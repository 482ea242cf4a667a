"""Batches the texts of many requests: a bounded queue in front of one worker thread.

While the thread is busy, requests gather; it then takes as many as fit into a batch. An idle service starts
at once, so a single request is answered as fast as without a queue. Requests with different settings go into
different batches. No batch is long, whoever sends it: it ends where the seconds that its items may take are
spent, and the rest of its last request waits again.

Clients take turns, not requests: the client goes first whose work took least time lately. So nobody waits for
all of another's texts, however many requests they are in.
"""

from __future__ import annotations

import asyncio
import math
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

from syntaxformer.serve.problems import Problem

Work = Callable[[Any, list[Any], Callable[[], bool]], Sequence[Any]]
"""Returns a result for each item, from settings and items, or raises TimeoutError if they take too long."""

HALF_S, WAIT_S = 3.0, 20.0
"""After the first a client's work counts half; waiting as long as the second outweighs a second of work."""

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class Metrics:
    """All counters of one application."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()

        def add(kind: Any, name: str, text: str, labels: Sequence[str] = ("model",), **options: Any) -> Any:
            return kind(f"syntaxformer_{name}", text, labels, registry=self._registry, **options)

        self.requests = add(Counter, "requests_total", "Requests answered.", ["path", "status"])
        self.seconds = add(Histogram, "request_seconds", "Time to answer.", ["path"], buckets=SECONDS)
        self.texts = add(Counter, "texts_total", "Texts worked on.")
        self.batch_texts = add(Histogram, "batch_texts", "Texts of a batch.", buckets=SIZES)
        self.batch_seconds = add(Histogram, "batch_seconds", "Time of a batch.", buckets=SECONDS)
        self.waiting = add(Gauge, "waiting_texts", "Texts that wait.", multiprocess_mode="livesum")
        self.refused = add(Counter, "refused_total", "Requests refused under load.", ["model", "reason"])

    def text(self) -> bytes:
        """All counters in Prometheus's text format."""
        if "PROMETHEUS_MULTIPROC_DIR" not in os.environ:
            return generate_latest(self._registry)
        shared = CollectorRegistry()
        MultiProcessCollector(shared)
        return generate_latest(shared)


@dataclass(eq=False)
class _Job:
    items: Sequence[Any]
    costs: Sequence[float]
    settings: Any
    client: str
    deadline: float
    answer: asyncio.Future[list[Any]]
    n_together: int
    results: list[Any] = field(default_factory=list)
    n_taken: int = 0
    since: float = field(default_factory=time.monotonic)

    @property
    def n_left(self) -> int:
        return len(self.items) - self.n_taken

    @property
    def is_over(self) -> bool:
        return self.answer.done() or self.deadline < time.monotonic()


@dataclass
class Batcher:
    """Gathers items and processes them in its own thread.

    Args:
        work: Processes a batch; it runs in the thread.
        max_batch: Largest number of items in a batch; a larger request is split.
        max_waiting: Largest number of waiting items of a client; a request that does not fit is refused.
        max_cost: Largest cost of a batch of several items.
        metrics: Counters of its work, under the name of the `model`.
    """

    work: Work
    max_batch: int = 64
    max_waiting: int = 1024
    max_cost: float = math.inf
    metrics: Metrics = field(default_factory=Metrics)
    model: str = ""
    _jobs: list[_Job] = field(default_factory=list, init=False)
    _used: dict[str, tuple[float, float]] = field(default_factory=dict, init=False)
    _task: asyncio.Task[None] | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="batch")
        self._count()

    async def submit(
        self,
        items: Sequence[Any],
        settings: Any,
        deadline_s: float,
        client: str = "",
        costs: Sequence[float] | None = None,
    ) -> list[Any]:
        """Wait for the results of some items; items with equal settings may share a batch.

        Raises:
            Problem: 429 if too many items wait already, 503 if the results do not come in time.
        """
        n_waiting = sum(job.n_left for job in self._jobs if job.client == client)
        if n_waiting and n_waiting + len(items) > self.max_waiting:
            self.metrics.refused.labels(self.model, "busy").inc()
            got = f"{n_waiting} waiting, of at most {self.max_waiting}"
            message = f"queue: expected room for {len(items)} texts, got {got}. Send it again later."
            raise Problem(429, message, headers={"Retry-After": "1"})
        answer = asyncio.get_running_loop().create_future()
        costs, deadline = costs or [0.0] * len(items), time.monotonic() + deadline_s
        job = _Job(items, costs, settings, client, deadline, answer, n_together=self.max_batch)
        self._jobs.append(job)
        self._count()
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run())
        try:
            return await asyncio.wait_for(answer, deadline_s)
        except TimeoutError as error:
            self.metrics.refused.labels(self.model, "too_late").inc()
            message = f"service: expected an answer within {deadline_s:g} s, got none."
            remedy, headers = "Send fewer texts or wait.", {"Retry-After": "5"}
            raise Problem(503, f"{message} {remedy}", headers=headers) from error
        finally:  # what nobody waits for any longer makes room at once, also while a part of it is worked on
            self._jobs.remove(job)
            self._count()

    async def close(self) -> None:
        """Finish all waiting items, then stop."""
        if self._task is not None:
            await self._task
        self._thread.shutdown()

    def _count(self) -> None:
        self.metrics.waiting.labels(self.model).set(sum(job.n_left for job in self._jobs))

    def _lately(self, client: str, now: float) -> float:
        """Seconds that the work of a client took, less those long ago."""
        seconds, when = self._used.get(client, (0.0, now))
        return seconds * 0.5 ** ((now - when) / HALF_S)

    async def _run(self) -> None:
        while batch := self._take():
            start = time.monotonic()
            await self._finish(batch)
            now, costs = time.monotonic(), [sum(job.costs[span]) or 1.0 for job, span in batch]
            for (job, _), cost in zip(batch, costs, strict=True):
                used = self._lately(job.client, now) + (now - start) * cost / sum(costs)
                self._used[job.client] = used, now
                job.since = now  # the rest of a large job goes behind jobs that came meanwhile
            self._used = {name: used for name, used in self._used.items() if self._lately(name, now) > 1e-3}

    async def _finish(self, batch: Sequence[tuple[_Job, slice]]) -> None:
        """Process a batch; if it fails, process each part alone, so that only the faulty request fails."""
        items = [item for job, span in batch for item in job.items[span]]
        jobs, start = [job for job, _ in batch], time.monotonic()
        work = self._work, jobs[0].settings, items, lambda: all(job.is_over for job in jobs)
        try:
            results = iter(await asyncio.get_running_loop().run_in_executor(self._thread, *work))
            self.metrics.texts.labels(self.model).inc(len(items))
            self.metrics.batch_texts.labels(self.model).observe(len(items))
            self.metrics.batch_seconds.labels(self.model).observe(time.monotonic() - start)
            for job, span in batch:
                job.results += [next(results) for _ in job.items[span]]
                if len(job.results) == len(job.items) and not job.answer.done():
                    job.answer.set_result(job.results)
        except TimeoutError as error:
            for job, span in batch:  # it waits again, for fewer at a time
                job.n_taken, job.n_together = span.start, max(1, len(items) // 4)
            if len(items) == 1 and not jobs[0].is_over:
                message = f"texts.{jobs[0].n_taken}: {error}. Send its sentences, or ask for fewer beams."
                jobs[0].answer.set_exception(Problem(422, message, "text_too_long"))
        except Exception as error:
            for job, span in batch if len(batch) > 1 else ():
                if not job.is_over:
                    await self._finish([(job, span)])
            if len(batch) == 1 and not jobs[0].answer.done():
                jobs[0].answer.set_exception(error)

    def _work(self, settings: Any, items: list[Any], is_over: Callable[[], bool]) -> Sequence[Any]:
        """Process items in the thread, and turn exceptions such as a tokenizer's panic into errors."""
        try:
            return self.work(settings, items, is_over)
        except BaseException as error:
            if isinstance(error, Exception | KeyboardInterrupt | SystemExit):
                raise
            raise RuntimeError(f"model: expected results, got {type(error).__name__}: {error}") from error

    def _take(self) -> list[tuple[_Job, slice]]:
        """Take a part of the first job, and further jobs with its settings that fit.

        The first is that of the client whose work, with its next item, takes least time lately.
        """
        batch: list[tuple[_Job, slice]] = []
        n_items, cost, now = 0, 0.0, time.monotonic()
        waiting = [job for job in self._jobs if job.n_left and not job.is_over]

        def order(job: _Job) -> tuple[float, float]:
            seconds = self._lately(job.client, now) + min(job.costs[job.n_taken], self.max_cost)
            return seconds - (now - job.since) / WAIT_S, job.since

        for job in sorted(waiting, key=order):
            n_fitting = self._n_fitting(job, n_items, cost)
            first = batch[0][0] if batch else job
            is_whole = n_fitting == job.n_left and job.settings == first.settings
            if job is first or (is_whole and job.n_together == first.n_together == self.max_batch):
                span = slice(job.n_taken, job.n_taken + n_fitting)
                batch.append((job, span))
                cost += sum(job.costs[span])
                n_items += n_fitting
                job.n_taken = span.stop
        self._count()
        return batch

    def _n_fitting(self, job: _Job, n_items: int, cost: float) -> int:
        """Number of a job's items that fit into a batch besides its content; at least one if it is empty."""
        for n_fitting, item_cost in enumerate(job.costs[job.n_taken :]):
            cost += item_cost
            if n_items + n_fitting and (n_items + n_fitting >= job.n_together or cost > self.max_cost):
                return n_fitting
        return job.n_left
