"""How evaluations on the development set compare."""

from __future__ import annotations

import pytest

from syntaxformer.runs.trainer import best_step, n_without_gain, scores_at

HISTORY = [
    {"step": 5, "eval_loss": 3.0, "eval_bleu": 7.0, "eval_governor_accuracy": 0.5, "eval_runtime": 1.0},
    {"step": 5, "loss": 9.0},
    {"step": 10, "eval_loss": 2.0, "eval_bleu": 7.0, "eval_governor_accuracy": 0.75},
    {"step": 15, "eval_loss": 2.5, "eval_bleu": 6.0},
]


@pytest.mark.parametrize(("best_by", "best"), [("loss", 10), ("bleu", 5), ("both", 10)])
def test_the_best_evaluation(best_by, best):
    """Of equal BLEU the first is the best by BLEU, the one of lower loss by both."""
    assert best_step(HISTORY, best_by) == best


def test_the_scores_of_an_evaluation():
    assert scores_at(5, HISTORY) == {"loss": 3.0, "bleu": 7.0, "governor_accuracy": 0.5}


@pytest.mark.parametrize(
    ("best_by", "losses", "bleus", "since"),
    [
        ("loss", [3.0, 2.0, 2.5, 2.0], [1.0, 2.0, 3.0, 4.0], 2),
        ("bleu", [3.0, 2.0, 2.5, 2.0], [1.0, 2.0, 3.0, 4.0], 0),
        ("both", [3.0, 2.0, 2.5, 2.0], [1.0, 2.0, 3.0, 4.0], 0),
        ("both", [3.0, 2.0, 1.9, 1.9], [4.0, 3.0, 2.0, 4.0], 1),
        ("both", [3.0, 3.5, 3.5, 4.0], [4.0, 3.0, 3.5, 4.0], 3),
    ],
)
def test_evaluations_since_anything_got_better(best_by, losses, bleus, since):
    history = [
        {"step": step, "eval_loss": loss, "eval_bleu": bleu}
        for step, (loss, bleu) in enumerate(zip(losses, bleus, strict=True))
    ]
    assert n_without_gain(history, best_by) == since
