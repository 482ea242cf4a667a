"""Scores of classification and regression, as the GLUE benchmark computes them.

Those of classes come from one table of counts, because tests over rows need thousands of scores, and
scikit-learn, which gives the same numbers, takes milliseconds for each.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

Numbers = Sequence[float] | np.ndarray
Metric = Callable[[Numbers, Numbers], float]


def _counts(labels: Numbers, predictions: Numbers, n_classes: int = 2) -> np.ndarray:
    """Number of rows of each class (row) for which each class is predicted (column), `[classes, classes]`."""
    gold, predicted = np.asarray(labels, int), np.asarray(predictions, int)
    n_classes = max(n_classes, int(gold.max()) + 1, int(predicted.max()) + 1)
    counts = np.bincount(n_classes * gold + predicted, minlength=n_classes**2)
    return counts.reshape(n_classes, n_classes).astype(float)


def _matthews(labels: Numbers, predictions: Numbers) -> float:
    """Matthews correlation; 0 if all predictions or all labels are the same.

    Source: Gorodkin (2004), eq. 8, for any number of classes.
    """
    counts = _counts(labels, predictions)
    there, predicted, n = counts.sum(1), counts.sum(0), len(labels)
    spread = math.sqrt((n * n - there @ there) * (n * n - predicted @ predicted))
    return float(n * counts.trace() - there @ predicted) / spread if spread else 0.0


def per_class(labels: Numbers, predictions: Numbers, n_classes: int = 2) -> np.ndarray:
    """Precision, recall, F1 (0 where there is none) and number of rows of each class, `[4, classes]`."""
    counts = _counts(labels, predictions, n_classes)
    right, there, predicted = counts.diagonal(), counts.sum(1), counts.sum(0)
    return np.vstack([right / np.maximum([predicted, there, (there + predicted) / 2], 0.5), there])


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
    "accuracy": lambda labels, predicted: float(np.mean(np.asarray(labels) == np.asarray(predicted))),
    # Of class 1; 0 if there is none.
    "f1": lambda labels, predicted: float(per_class(labels, predicted)[2, 1]),
    # Of all classes that occur or are predicted.
    "macro_f1": lambda labels, predicted: float(
        per_class(labels, predicted)[2, np.union1d(labels, predicted).astype(int)].mean()
    ),
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
