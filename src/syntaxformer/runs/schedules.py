"""Learning-rate schedules, as factors of the configured rate."""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["SCHEDULES", "constant", "inverse_sqrt", "linear", "noam"]


def noam(step: int, warmup_steps: int, d_model: int) -> float:
    """d_model^-0.5 · min(step^-0.5, step · warmup^-1.5).

    Source: Vaswani et al. (2017), eq. 3; used by Sundararaman et al. (2019).
    """
    step = max(step, 1)
    rise = step * warmup_steps**-1.5 if warmup_steps else step**-0.5
    return d_model**-0.5 * min(step**-0.5, rise)


def inverse_sqrt(step: int, warmup_steps: int, d_model: int) -> float:
    """Linear to 1 over the warm-up, then √(warmup / step); `d_model` plays no part."""
    warmup_steps = max(warmup_steps, 1)
    return step / warmup_steps if step < warmup_steps else (warmup_steps / step) ** 0.5


def constant(step: int, warmup_steps: int, d_model: int) -> float:
    """Linear to 1 over the warm-up, then 1; `d_model` plays no part."""
    return min(1.0, step / warmup_steps) if warmup_steps else 1.0


def linear(n_updates: int, warmup_frac: float) -> Callable[[int], float]:
    """Share of the rate after each number of updates: up from 0 to 1 over the warm-up, then down to 0.

    Args:
        n_updates: Updates of the whole run.
        warmup_frac: Share of them that is warm-up.

    Source: Devlin et al. (2019), appendix A.2.
    """
    n_warm = int(n_updates * warmup_frac)

    def rate(done: int) -> float:
        if done < n_warm:
            return done / n_warm
        return max(0.0, (n_updates - done) / max(1, n_updates - n_warm))

    return rate


SCHEDULES: dict[str, Callable[[int, int, int], float]] = {
    "noam": noam,
    "inverse_sqrt": inverse_sqrt,
    "constant": constant,
}
