"""Scores of classification and regression, as the GLUE benchmark computes them, by scikit-learn and SciPy."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

Numbers = Sequence[float] | np.ndarray
Metric = Callable[[Numbers, Numbers], float]


def _matthews(labels: Numbers, predictions: Numbers) -> float:
    """Matthews correlation; 0 if all predictions or all labels are the same.

    Computed here from the table of counts, because scikit-learn takes 2 ms, and a bootstrap thousands of it.

    Source: Gorodkin (2004), eq. 8.
    """
    classes, (rows, columns) = np.unique(np.array([labels, predictions]), return_inverse=True)
    n, n_all = len(classes), len(rows)
    counts = np.bincount(rows * n + columns, minlength=n * n).reshape(n, n).astype(float)
    true, found = counts.sum(1), counts.sum(0)
    norm = (n_all**2 - true @ true) * (n_all**2 - found @ found)
    return float((np.trace(counts) * n_all - true @ found) / math.sqrt(norm)) if norm else 0.0


def _accuracy(labels: Numbers, predictions: Numbers) -> float:
    """Share of correct predictions."""
    return float(np.mean(np.asarray(labels) == np.asarray(predictions)))


def _f1(labels: Numbers, predictions: Numbers, **which: Any) -> float:
    """F1 of class 1, 0 if it neither occurs nor is predicted, or the mean over all classes that occur."""
    from sklearn.metrics import f1_score

    return float(f1_score(labels, predictions, zero_division=0.0, **which))


def _correlation(labels: Numbers, predictions: Numbers, name: str) -> float:
    """Correlation of numbers or of ranks; 0 if a side is constant or there are fewer than two pairs."""
    from scipy import stats

    first, second = np.asarray(labels, float), np.asarray(predictions, float)
    if len(first) < 2 or np.ptp(first) == 0 or np.ptp(second) == 0:
        return 0.0
    value = float(getattr(stats, name)(first, second)[0])
    return 0.0 if math.isnan(value) else value


CLASSIFICATION_METRICS: dict[str, Metric] = {
    "matthews": _matthews,
    "accuracy": _accuracy,
    "f1": partial(_f1, pos_label=1, average="binary"),
    "macro_f1": partial(_f1, average="macro"),
}
REGRESSION_METRICS: dict[str, Metric] = {
    "pearson": partial(_correlation, name="pearsonr"),
    "spearman": partial(_correlation, name="spearmanr"),
}


def score_predictions(
    metrics: Sequence[str], labels: Sequence[float], predictions: Sequence[float]
) -> dict[str, float]:
    """Score predictions by several metrics.

    Returns:
        The value of each metric, from -1 to 1; with several metrics also their `mean`, by which GLUE ranks.

    Raises:
        ValueError: The sides differ in length or are empty, or a metric is unknown.
    """
    if len(labels) != len(predictions) or not len(labels):
        raise ValueError(f"predictions: expected {len(labels)}, one for each label, got {len(predictions)}.")
    known = CLASSIFICATION_METRICS | REGRESSION_METRICS
    if unknown := [name for name in metrics if name not in known]:
        raise ValueError(f"metric: expected one of {', '.join(known)}, got {unknown[0]!r}.")
    scores = {name: known[name](labels, predictions) for name in metrics}
    return scores | {"mean": sum(scores.values()) / len(scores)} if len(scores) > 1 else scores
