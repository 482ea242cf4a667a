"""How often answers to auxiliary tasks were right, summed over batches: accuracies for logs and reports.

Also the results on the development set that a report holds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from syntaxformer.training.checkpoints import step_of
from syntaxformer.training.recipe import TrainingConfig

if TYPE_CHECKING:
    from transformers import TrainerState

__all__ = ["TallyBook", "accuracies_at", "dev_metrics"]


class TallyBook:
    """Sums of right answers and of all answers, by the name of the accuracy."""

    def __init__(self) -> None:
        self._sums: dict[str, tuple[int, int]] = {}

    def add(self, tallies: Mapping[str, tuple[int, int]] | None) -> None:
        """Count those of one batch."""
        for name, (right, total) in (tallies or {}).items():
            old_right, old_total = self._sums.get(name, (0, 0))
            self._sums[name] = (old_right + right, old_total + total)

    def take(self, prefix: str = "") -> dict[str, float]:
        """Accuracies since the last call, which start again from nothing."""
        rates = {f"{prefix}{name}": right / max(total, 1) for name, (right, total) in self._sums.items()}
        self._sums.clear()
        return rates


def accuracies_at(step: int | None, history: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """Accuracies on the development set at one evaluation, as `dev_…`.

    Args:
        step: Of the evaluation.
        history: Logs of the trainer.
    """
    return {
        name.replace("eval_", "dev_", 1): value
        for log in history
        for name, value in log.items()
        if log.get("step") == step and name.startswith("eval_") and name.endswith("_accuracy")
    }


def dev_metrics(config: TrainingConfig, state: TrainerState, chosen: Sequence[Path]) -> dict[str, Any]:
    """Results on the development set after `best_step`: of the checkpoint that was chosen.

    Where the model is the mean of several, they are those of the best single one, not of the mean.
    """
    step = state.best_global_step
    if step is not None and config.average == 1:
        step = step_of(chosen[0])
    found = {key: value for log in state.log_history if log["step"] == step for key, value in log.items()}
    return {
        "dev_loss": found.get("eval_loss"),
        **({"dev_bleu": found.get("eval_bleu")} if config.best_by == "bleu" else {}),
        "best_step": step,
        "last_step": state.global_step,
        **accuracies_at(step, state.log_history),
    }
