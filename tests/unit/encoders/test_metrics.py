"""Official metrics against numbers worked by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from sklearn.metrics import matthews_corrcoef

from syntaxformer.encoders.metrics import score_predictions

# 3 true positives, 2 true negatives, 1 false positive, 2 false negatives
LABELS, PREDICTED = [1, 1, 1, 1, 1, 0, 0, 0], [1, 1, 1, 0, 0, 0, 0, 1]


@pytest.mark.parametrize(
    ("metric", "labels", "predicted", "expected"),
    [
        ("matthews", LABELS, PREDICTED, (3 * 2 - 1 * 2) / math.sqrt(4 * 5 * 3 * 4)),
        ("accuracy", LABELS, PREDICTED, 5 / 8),
        ("f1", LABELS, PREDICTED, 2 * 3 / (2 * 3 + 1 + 2)),
        # class 0: 1 of 1 found, 1 wrong: F1 2/3; class 1: none right: 0; class 2: 1 right, 0 wrong, 0 missed: 1
        ("macro_f1", [0, 1, 2], [0, 0, 2], (2 / 3 + 0 + 1) / 3),
        # deviations: (-1, 0, 1) and (-2, -1, 3): r = 5 / sqrt(2 · 14); ranks equal
        ("pearson", [1.0, 2.0, 3.0], [1.0, 2.0, 6.0], 5 / math.sqrt(28)),
        ("spearman", [1.0, 2.0, 3.0], [1.0, 2.0, 6.0], 1.0),
        # a tie shares the mean rank: ranks (1.5, 1.5, 3) and (1, 2, 3): r = 1.5 / sqrt(1.5 · 2)
        ("spearman", [1.0, 1.0, 3.0], [1.0, 2.0, 3.0], 1.5 / math.sqrt(3)),
        # nothing learned is zero and not NaN
        *((metric, [0, 1, 1], [0, 0, 0], 0.0) for metric in ("matthews", "pearson", "spearman", "f1")),
        *((metric, [0], [0], 0.0) for metric in ("matthews", "pearson", "spearman", "f1")),
    ],
)
def test_metrics_by_hand(metric, labels, predicted, expected):
    assert score_predictions([metric], labels, predicted) == {metric: pytest.approx(expected)}


def test_several_metrics_have_a_mean():
    scores = score_predictions(["matthews", "accuracy", "f1"], LABELS, PREDICTED)
    assert scores["mean"] == pytest.approx((scores["matthews"] + scores["accuracy"] + scores["f1"]) / 3)


def test_matthews_of_several_classes_is_that_of_scikit_learn():
    rng = np.random.default_rng(2)
    for n_classes in (2, 3, 5):
        labels, predicted = rng.integers(0, n_classes, (2, 97))
        predicted[:41] = labels[:41]
        expected = pytest.approx(matthews_corrcoef(labels, predicted))
        assert score_predictions(["matthews"], labels, predicted) == {"matthews": expected}


def test_misuse():
    with pytest.raises(ValueError, match="predictions:"):
        score_predictions(["accuracy"], [1, 0], [1])
    with pytest.raises(ValueError, match="metric:"):
        score_predictions(["accurcy"], [1], [1])
