"""What a report says of the development set."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

from syntaxformer.training.recipe import load_recipe
from syntaxformer.training.tallies import dev_metrics

HISTORY = [
    {"step": 5, "eval_loss": 3.0, "eval_bleu": 11.0, "eval_governor_accuracy": 0.5},
    {"step": 5, "loss": 9.0},
    {"step": 10, "eval_loss": 2.0, "eval_bleu": 7.0, "eval_governor_accuracy": 0.75},
]


def _metrics(best_by: str, best_step: int, average: int = 1, chosen: tuple[int, ...] = (5,)) -> dict:
    config = load_recipe("tiny", [f"training.best_by={best_by}", f"training.average={average}"]).training
    state = SimpleNamespace(best_global_step=best_step, global_step=10, log_history=HISTORY)
    return dev_metrics(config, state, [Path(f"checkpoint-{step}") for step in chosen])


def test_scores_on_dev_are_those_of_the_chosen_checkpoint():
    common = {"last_step": 10, "best_step": 5, "dev_governor_accuracy": 0.5}
    assert _metrics("bleu", 5) == {**common, "dev_loss": 3.0, "dev_bleu": 11.0}
    assert _metrics("loss", 10) == {**common, "dev_loss": 3.0}  # the best one is lost


def test_scores_on_dev_beside_a_mean_are_those_of_the_best_single_checkpoint():
    found = _metrics("bleu", 5, average=2, chosen=(10, 15))
    assert (found["best_step"], found["dev_loss"], found["dev_bleu"]) == (5, 3.0, 11.0)
