"""Scores of classification and regression, as the GLUE benchmark computes them.

Numbers only; what a task's labels mean is `tasks`' business. Scikit-learn and SciPy do the arithmetic.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np

__all__ = ["CLASSIFICATION_METRICS", "REGRESSION_METRICS", "accuracy", "never_predicted", "score_predictions"]

Numbers = Sequence[float] | np.ndarray


def matthews(labels: Numbers, predictions: Numbers) -> float:
    """Matthews correlation; 0 where all predictions, or all labels, are the same."""
    from sklearn.metrics import matthews_corrcoef

    if np.ptp(labels) == 0 or np.ptp(predictions) == 0:
        return 0.0  # scikit-learn says the same, with a warning where there is one class only
    return float(matthews_corrcoef(labels, predictions))


def accuracy(labels: Numbers, predictions: Numbers) -> float:
    """Share of predictions that are right."""
    return float(np.mean(np.asarray(labels) == np.asarray(predictions)))


def f1(labels: Numbers, predictions: Numbers) -> float:
    """F1 of class 1; 0 where it is neither there nor predicted."""
    from sklearn.metrics import f1_score

    return float(f1_score(labels, predictions, pos_label=1, average="binary", zero_division=0.0))


def macro_f1(labels: Numbers, predictions: Numbers) -> float:
    """Mean of the F1 of all classes that occur in labels or predictions."""
    from sklearn.metrics import f1_score

    return float(f1_score(labels, predictions, average="macro", zero_division=0.0))


def pearson(labels: Numbers, predictions: Numbers) -> float:
    """Pearson's r; 0 where one side is constant, or there are fewer than two pairs."""
    from scipy.stats import pearsonr

    return _correlation(pearsonr, labels, predictions)


def spearman(labels: Numbers, predictions: Numbers) -> float:
    """Spearman's rank correlation, ties at their mean rank; 0 as in `pearson`."""
    from scipy.stats import spearmanr

    return _correlation(spearmanr, labels, predictions)


CLASSIFICATION_METRICS: dict[str, Callable[[Numbers, Numbers], float]] = {
    "matthews": matthews,
    "accuracy": accuracy,
    "f1": f1,
    "macro_f1": macro_f1,
}
REGRESSION_METRICS: dict[str, Callable[[Numbers, Numbers], float]] = {
    "pearson": pearson,
    "spearman": spearman,
}


def score_predictions(
    metrics: Sequence[str], labels: Sequence[float], predictions: Sequence[float]
) -> dict[str, float]:
    """Score predictions by several metrics.

    Args:
        metrics: Names in `CLASSIFICATION_METRICS` or `REGRESSION_METRICS`.
        labels: Class numbers, or scores.
        predictions: As many.

    Returns:
        For each metric its value, -1 to 1; `mean` too where there are several, by which GLUE ranks systems.

    Raises:
        ValueError: Other numbers on the two sides, none, or an unknown metric.
    """
    if len(labels) != len(predictions) or not len(labels):
        raise ValueError(
            f"predictions: expected {len(labels)}, one a label and not none, got {len(predictions)}."
        )
    known = CLASSIFICATION_METRICS | REGRESSION_METRICS
    if unknown := [name for name in metrics if name not in known]:
        raise ValueError(f"metric: expected one of {', '.join(known)}, got {unknown[0]!r}.")
    scores = {name: known[name](labels, predictions) for name in metrics}
    return scores | {"mean": sum(scores.values()) / len(scores)} if len(scores) > 1 else scores


def never_predicted(labels: Sequence[str], predictions: Sequence[str]) -> dict[str, int]:
    """Label that rows have and no prediction is → how many rows have it."""
    return {label: n for label, n in sorted(Counter(labels).items()) if label not in set(predictions)}


def _correlation(measure: Callable[..., tuple[float, float]], labels: Numbers, predictions: Numbers) -> float:
    first, second = np.asarray(labels, float), np.asarray(predictions, float)
    if len(first) < 2 or np.ptp(first) == 0 or np.ptp(second) == 0:
        return 0.0
    value = float(measure(first, second)[0])
    return 0.0 if math.isnan(value) else value
