"""Counters for Prometheus. With several processes they share a folder, which `server` names."""

from __future__ import annotations

import os

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

from syntaxformer.serve.batcher import Observer

__all__ = ["Metrics"]

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class Metrics:
    """All counters of one application."""

    def __init__(self) -> None:
        registry = CollectorRegistry()
        self._registry = registry
        self.requests = Counter(
            "syntaxformer_requests_total", "Requests answered.", ["path", "status"], registry=registry
        )
        self.seconds = Histogram(
            "syntaxformer_request_seconds", "Time to answer.", ["path"], buckets=SECONDS, registry=registry
        )
        self.texts = Counter("syntaxformer_texts_total", "Texts worked on.", ["model"], registry=registry)
        self.batch_texts = Histogram(
            "syntaxformer_batch_texts", "Texts of a batch.", ["model"], buckets=SIZES, registry=registry
        )
        self.batch_seconds = Histogram(
            "syntaxformer_batch_seconds", "Time of a batch.", ["model"], buckets=SECONDS, registry=registry
        )
        self.waiting = Gauge(
            "syntaxformer_waiting_texts",
            "Texts that wait.",
            ["model"],
            registry=registry,
            multiprocess_mode="livesum",
        )
        self.refused = Counter(
            "syntaxformer_refused_total",
            "Requests refused under load.",
            ["model", "reason"],
            registry=registry,
        )

    def observer(self, model: str) -> Observer:
        """What a model's batcher tells goes into these counters."""
        return Observer(
            waiting=self.waiting.labels(model).set,
            batch=lambda n_texts, seconds: self._batch(model, n_texts, seconds),
            refused=lambda reason: self.refused.labels(model, reason).inc(),
        )

    def _batch(self, model: str, n_texts: int, seconds: float) -> None:
        self.texts.labels(model).inc(n_texts)
        self.batch_texts.labels(model).observe(n_texts)
        self.batch_seconds.labels(model).observe(seconds)

    def text(self) -> bytes:
        """All of them in Prometheus's text format."""
        if "PROMETHEUS_MULTIPROC_DIR" not in os.environ:
            return generate_latest(self._registry)
        shared = CollectorRegistry()
        MultiProcessCollector(shared)
        return generate_latest(shared)
