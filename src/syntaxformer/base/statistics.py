"""Whether a difference is more than chance: over seeds a paired t-test, for means a bootstrap interval.

The paired bootstrap over sentences of a translation is `translation.compare_translations`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import ttest_rel

RELATIVE_ROUNDING = 1e-9
"""Scores that differ by less of the largest are the same."""

MOST_DRAWN = 1 << 22
"""Sentences of resampled test sets that are held together: 64 MiB of places and values."""


@dataclass(frozen=True)
class Spread:
    """Mean of some runs, their sample standard deviation (NaN for one run), and how many they are."""

    mean: float
    sd: float
    n: int


@dataclass(frozen=True)
class Interval:
    """A mean and the interval that holds it with some confidence."""

    mean: float
    low: float
    high: float


def spread(values: Sequence[float]) -> Spread:
    """Mean and sample standard deviation (n − 1)."""
    n = len(values)
    mean = math.fsum(values) / n if n else math.nan
    sd = math.sqrt(math.fsum((one - mean) ** 2 for one in values) / (n - 1)) if n > 1 else math.nan
    return Spread(mean, sd, n)


def paired_t_test(baseline: Sequence[float], system: Sequence[float]) -> float:
    """p-value, two-sided, that runs with the same seeds differ by chance alone.

    Returns:
        NaN for fewer than two seeds, and where all differ by the same, as scores of small test sets may: t
        has no spread to divide by then, and would call any difference sure. 1 where all scores are equal.

    Raises:
        ValueError: Other numbers of scores on the two sides.

    Source: Student (1908); computed by SciPy.
    """
    if len(baseline) != len(system):
        raise ValueError(f"scores: expected {len(baseline)}, one a seed of the baseline, got {len(system)}.")
    if len(baseline) < 2:
        return math.nan
    differences = [other - one for one, other in zip(baseline, system, strict=True)]
    rounding = RELATIVE_ROUNDING * max(map(abs, [*baseline, *system]))
    if max(differences) - min(differences) <= rounding:
        return 1.0 if max(map(abs, differences)) <= rounding else math.nan
    return float(ttest_rel(system, baseline).pvalue)


def bootstrap_interval(
    values: Sequence[float], confidence: float = 0.95, n_samples: int = 2000, seed: int = 12345
) -> Interval:
    """Mean of one value a sentence, with the percentile interval over resampled test sets.

    Args:
        values: One a sentence, at least one; NaN is left out.
        confidence: Share of resampled means inside.
        n_samples: Resampled test sets.
        seed: Of the resampling.

    Raises:
        ValueError: There is no value.
    """
    kept = np.asarray(values, float)
    kept = kept[~np.isnan(kept)]
    if not len(kept):
        raise ValueError("values: expected at least one, got none.")
    rng = np.random.default_rng(seed)
    rows = max(1, MOST_DRAWN // len(kept))  # of samples at once; the same numbers as all at once
    sizes = [min(rows, n_samples - start) for start in range(0, n_samples, rows)]
    means = [kept[rng.integers(0, len(kept), (size, len(kept)))].mean(1) for size in sizes]
    tail = 100 * (1 - confidence) / 2
    low, high = np.percentile(np.concatenate(means), [tail, 100 - tail])
    return Interval(float(kept.mean()), float(low), float(high))
