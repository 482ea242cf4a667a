"""How often answers to auxiliary tasks were right, summed over batches: accuracies for logs and reports.

Also how evaluations compare, by the trainer's log alone: a resumed run judges as one that never stopped.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from operator import le
from typing import Any

__all__ = ["JUDGED_BY", "TallyBook", "best_step", "n_without_gain", "rank", "scores_at"]

JUDGED_BY = {"loss": ("loss",), "bleu": ("bleu",), "both": ("bleu", "loss")}
"""`training.best_by` → by what evaluations are compared; the first decides, of equal ones the next."""


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


def best_step(history: Iterable[Mapping[str, Any]], best_by: str) -> int:
    """The update of the best evaluation in a trainer's log; of equal ones the first."""
    found = {log["step"]: rank(log, best_by, "eval_") for log in history if "eval_loss" in log}
    return max(found, key=lambda step: found[step])


def n_without_gain(history: Iterable[Mapping[str, Any]], best_by: str) -> int:
    """How many evaluations there were since one that was in any score the best until then."""
    since, best = 0, ()
    for values in (rank(log, best_by, "eval_") for log in history if "eval_loss" in log):
        since = since + 1 if best and all(map(le, values, best)) else 0
        best = tuple(map(max, values, best or values))
    return since


def rank(scores: Mapping[str, float], best_by: str, prefix: str = "") -> tuple[float, ...]:
    """What an evaluation is compared by: the larger, the better."""
    return tuple((-1 if name == "loss" else 1) * scores[prefix + name] for name in JUDGED_BY[best_by])


def scores_at(step: int, history: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """Loss, accuracies and BLEU of the evaluation after an update."""
    found = {key: value for log in history if log["step"] == step for key, value in log.items()}
    return {key[5:]: value for key, value in found.items() if key[:5] == "eval_" and key != "eval_runtime"}
