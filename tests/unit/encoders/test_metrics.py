"""Official metrics against numbers worked by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from sklearn.metrics import matthews_corrcoef

from syntaxformer.encoders.metrics import score_predictions

# 3 true positives, 2 true negatives, 1 false positive, 2 false negatives
LABELS = [1, 1, 1, 1, 1, 0, 0, 0]
FOUND = [1, 1, 1, 0, 0, 0, 0, 1]


def test_matthews_accuracy_and_f1_by_hand():
    scores = score_predictions(["matthews", "accuracy", "f1"], LABELS, FOUND)
    assert scores["matthews"] == pytest.approx((3 * 2 - 1 * 2) / math.sqrt(4 * 5 * 3 * 4))
    assert scores["accuracy"] == 5 / 8
    assert scores["f1"] == pytest.approx(2 * 3 / (2 * 3 + 1 + 2))
    assert scores["mean"] == pytest.approx((scores["matthews"] + scores["accuracy"] + scores["f1"]) / 3)


def test_macro_f1_by_hand():
    # class 0: 1 of 1 found, 1 wrong: F1 2/3; class 1: none right: 0; class 2: 1 right, 0 wrong, 0 missed: 1
    scores = score_predictions(["macro_f1"], [0, 1, 2], [0, 0, 2])
    assert scores == {"macro_f1": pytest.approx((2 / 3 + 0 + 1) / 3)}


def test_pearson_and_spearman_by_hand():
    # deviations: (-1, 0, 1) and (-2, -1, 3): r = 5 / sqrt(2 · 14); ranks equal
    scores = score_predictions(["pearson", "spearman"], [1.0, 2.0, 3.0], [1.0, 2.0, 6.0])
    assert scores["pearson"] == pytest.approx(5 / math.sqrt(28))
    assert scores["spearman"] == pytest.approx(1.0)
    # a tie shares the mean rank: ranks (1.5, 1.5, 3) and (1, 2, 3): r = 1.5 / sqrt(1.5 · 2)
    tied = score_predictions(["spearman"], [1.0, 1.0, 3.0], [1.0, 2.0, 3.0])
    assert tied == {"spearman": pytest.approx(1.5 / math.sqrt(3))}


def test_matthews_of_several_classes_is_that_of_scikit_learn():
    rng = np.random.default_rng(2)
    for n_classes in (2, 3, 5):
        labels, found = rng.integers(0, n_classes, (2, 97))
        found[:41] = labels[:41]
        assert score_predictions(["matthews"], labels, found)["matthews"] == pytest.approx(
            matthews_corrcoef(labels, found)
        )


@pytest.mark.parametrize("metric", ["matthews", "pearson", "spearman", "f1"])
def test_nothing_learned_is_zero_and_not_nan(metric):
    assert score_predictions([metric], [0, 1, 1], [0, 0, 0]) == {metric: 0.0}
    assert score_predictions([metric], [0], [0]) == {metric: 0.0}


def test_misuse():
    with pytest.raises(ValueError, match="predictions:"):
        score_predictions(["accuracy"], [1, 0], [1])
    with pytest.raises(ValueError, match="metric:"):
        score_predictions(["accurcy"], [1], [1])
