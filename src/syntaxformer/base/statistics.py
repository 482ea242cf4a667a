"""Whether a difference is more than chance: a paired t-test over seeds, tests and intervals over rows.

The paired bootstrap over sentences of a translation is `translation.compare_translations`. SciPy's tests are
imported where they are used, because that takes longer than the scores of a few lines.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

RELATIVE_ROUNDING = 1e-9
"""Scores that differ by less than this share of the largest count as equal."""

FEWEST_ROWS = 10
"""Fewer rows get no interval: resampling a few makes them look more certain than they are."""

MOST_DRAWN = 1 << 22
"""Sentences of resampled test sets that are held in memory at once: 64 MiB of indices and values."""


class _Measured:
    def as_dict(self) -> dict[str, Any]:
        """The fields for JSON, with None for NaN."""
        return {name: None if value != value else value for name, value in vars(self).items()}


@dataclass(frozen=True)
class Spread(_Measured):
    """Mean of some runs, their sample standard deviation (NaN for one run), and their number."""

    mean: float
    sd: float
    n: int


@dataclass(frozen=True)
class Interval(_Measured):
    """A mean and its confidence interval."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class Comparison(_Measured):
    """The comparison of a system with a baseline on the same lines.

    Args:
        difference: Score of the system minus score of the baseline.
        p_value: Probability of so large a difference if the two were equally good, NaN if there is none; the
            bootstrap of translations counts it in one direction only, as sacreBLEU does.
        no_p: Why there is none: all lines are the same, for example because there is only one, neither
            system reaches BLEU 1, or one gives all rows the same answer.
        low: Lower end of the 95 % interval of the difference over resampled lines; NaN if there is none.
        high: Its upper end.
        test: The test that gives the p-value.
    """

    difference: float
    p_value: float
    no_p: str | None = None
    low: float = math.nan
    high: float = math.nan
    test: str = "one-sided paired bootstrap"


def difference_in_words(comparison: Mapping[str, Any], baseline: str, digits: int = 2) -> str:
    """The fields of a `Comparison` in words."""
    low, high, p_value = comparison["low"], comparison["high"], comparison["p_value"]
    interval = "" if low is None else f", 95 % {low:+.{digits}f} to {high:+.{digits}f}"
    shown = f"no p: {comparison['no_p']}"
    if p_value is not None:
        shown = f"p {'< 0.001' if p_value < 0.0005 else f'= {p_value:.3f}'} ({comparison['test']})"
    return f"{comparison['difference']:+.{digits}f} against {baseline}{interval}, {shown}"


def spread(values: Sequence[float]) -> Spread:
    """Mean and sample standard deviation (n − 1)."""
    n = len(values)
    mean = math.fsum(values) / n if n else math.nan
    sd = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (n - 1)) if n > 1 else math.nan
    return Spread(mean, sd, n)


def paired_t_test(baseline: Sequence[float], system: Sequence[float]) -> float:
    """Two-sided p-value of the paired t-test between runs with the same seeds.

    Returns:
        NaN for fewer than two seeds, and if all differences are equal, as may happen on small test sets:
        their spread is then zero, and t would call any difference certain. 1 if all scores are equal.

    Raises:
        ValueError: The two sides have different numbers of scores.

    Source: Student (1908); computed by SciPy.
    """
    if len(baseline) != len(system):
        raise ValueError(f"scores: expected {len(baseline)}, one for each seed, got {len(system)}.")
    if len(baseline) < 2:
        return math.nan
    differences = [other - base for base, other in zip(baseline, system, strict=True)]
    rounding = RELATIVE_ROUNDING * max(map(abs, [*baseline, *system]))
    if max(differences) - min(differences) <= rounding:
        return 1.0 if max(map(abs, differences)) <= rounding else math.nan
    from scipy.stats import ttest_rel

    return float(ttest_rel(system, baseline).pvalue)


def sign_test_p(differences: Sequence[float], direction: str = "either") -> float:
    """Exact p of the paired permutation test: the share of all 2ⁿ signs that give a mean as extreme.

    Args:
        differences: Of n pairs, as runs with the same seeds; memory grows with 2ⁿ.
        direction: What counts as extreme: a "greater" mean, a "less" one, or "either".

    Returns:
        NaN without differences.

    Source: Fisher (1935), "The Design of Experiments", section 21.
    """
    if not len(differences):
        return math.nan
    sums = np.zeros(1)
    for difference in differences:
        sums = np.concatenate([sums + difference, sums - difference])
    observed, rounding = sums[0], RELATIVE_ROUNDING * float(np.abs(differences).sum())
    if direction == "either":
        sums, observed = abs(sums), abs(observed)
    elif direction == "less":
        sums, observed = -sums, -observed
    return float((sums >= observed - rounding).mean())


def holm(p_values: Sequence[float]) -> list[float]:
    """p-values corrected for the number of tests, so that the chance of any false finding stays below 5 %.

    NaN stays, and counts as a test.

    Source: Holm (1979).
    """
    corrected, largest = [math.nan] * len(p_values), 0.0
    order = sorted((p, index) for index, p in enumerate(p_values) if not math.isnan(p))
    for rank, (p, index) in enumerate(order):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p))
        corrected[index] = largest
    return corrected


def seed_interval(runs: Spread) -> tuple[float, float]:
    """95 % interval of a mean over seeds by Student's t: mean ± t(n − 1) · sd / √n; NaN for one seed.

    Source: Student (1908).
    """
    from scipy.stats import t as student_t

    half = float(student_t.ppf(0.975, runs.n - 1)) * runs.sd / math.sqrt(runs.n)
    return runs.mean - half, runs.mean + half


def wilson_interval(n_right: int, n: int) -> Interval:
    """Share of n answers that are right, in per cent, with its 95 % interval.

    Source: Wilson (1927); computed by SciPy.
    """
    from scipy.stats import binomtest

    ends = binomtest(n_right, n).proportion_ci(method="wilson")
    return Interval(100 * n_right / n, 100 * float(ends.low), 100 * float(ends.high))


def detectable_effect(n: int, sd: float) -> float:
    """Smallest mean difference for which a two-sided paired t-test over n ≥ 2 seeds gives p < 0.05 in 80 %.

    `sd` is the standard deviation of the differences over seeds.

    Source: Cohen (1988), with SciPy's noncentral t distribution.
    """
    from scipy.optimize import brentq
    from scipy.stats import nct
    from scipy.stats import t as student_t

    limit = float(student_t.ppf(0.975, n - 1))

    def above(shift: float) -> float:
        return float(nct.sf(limit, n - 1, shift)) - 0.8  # the other tail has next to none of it

    highest = 1.0
    while above(highest) < 0:
        highest *= 1.5
    return float(brentq(above, 0.0, highest)) * sd / math.sqrt(n)


def mcnemar_p(n_first: int, n_second: int) -> tuple[float, float]:
    """p-values, exact and mid-p, of McNemar's test: on so many rows only one of two systems is right.

    Source: Fagerland, Lydersen and Laake (2013); mid-p, which is less conservative, by their eq. 6.
    """
    from scipy.stats import binom, binomtest

    if not (n := n_first + n_second):
        return 1.0, 1.0
    exact, point = float(binomtest(n_first, n).pvalue), float(binom.pmf(n_first, n, 0.5))
    return exact, exact - point / (1 + (n_first == n_second))


def compare_rows(
    score: Callable[[Any, Any], Mapping[str, float]],
    gold: Sequence[float],
    baseline: Sequence[float],
    system: Sequence[float],
    n_samples: int = 1000,
) -> dict[str, Comparison]:
    """Compare two systems on the same rows: "accuracy" by McNemar's mid-p, other scores by permutation.

    p is the share of permutations, which exchange the answers to random rows, that differ as much; the
    observed one counts. The 95 % interval is that of resampled rows; below `FEWEST_ROWS` it is NaN. A side
    that gives all rows the same answer has learned nothing, so that there is no p.

    `score` gives scores by name for labels and answers. There are `n_samples` permutations, and as many
    resampled sets of rows.

    Source: McNemar (1947); Noreen (1989), "Computer-Intensive Methods for Testing Hypotheses"; Yeh (2000).
    """
    labels, sides, n_rows = np.asarray(gold), np.array([baseline, system]), len(gold)
    names, rng = list(score(labels, sides[0])), np.random.default_rng(12345)

    def gain(labels: Any, before: Any, after: Any) -> np.ndarray:
        first, second = score(labels, before), score(labels, after)
        return np.array([second[name] - first[name] for name in names])

    measured = gain(labels, *sides)
    drawn = (rng.integers(0, n_rows, n_rows) for _ in range(n_samples))
    gains = np.array([gain(labels[rows], *sides[:, rows]) for rows in drawn])
    ends = np.percentile(gains, [2.5, 97.5], axis=0)
    if n_rows < FEWEST_ROWS:
        ends[:] = np.nan
    swaps = (rng.integers(0, 2, n_rows) for _ in range(n_samples))
    gains = np.array([gain(labels, *np.where(swap, sides[::-1], sides)) for swap in swaps])
    p_values = (1 + (abs(gains) >= abs(measured) - RELATIVE_ROUNDING).sum(0)) / (1 + n_samples)
    constant = min(len(np.unique(side)) for side in sides) == 1
    no_p = "one of them gives all rows the same answer" if constant else None
    comparisons = {}
    numbers = zip(measured.tolist(), p_values.tolist(), *ends.tolist(), strict=True)
    for name, (difference, p, low, high) in zip(names, numbers, strict=True):
        test = "paired permutation"
        if name == "accuracy":
            of_baseline, of_system = (side == labels for side in sides)
            n_system = int((of_system > of_baseline).sum())
            n_baseline = int((of_baseline > of_system).sum())
            exact, p = mcnemar_p(n_system, n_baseline)
            counts = f"right alone on {n_system} rows, the other on {n_baseline}"
            test = f"McNemar's mid-p; exact {exact:.3f}; {counts}"
        comparisons[name] = Comparison(difference, math.nan if constant else p, no_p, low, high, test)
    return comparisons


def bootstrap_rows(
    score: Callable[[np.ndarray, np.ndarray], float],
    gold: Sequence[float],
    pairs: Sequence[Sequence[Sequence[float]]],
    n_samples: int = 1000,
    weights: Sequence[float] = (-1.0, 1.0),
) -> tuple[list[float], Interval]:
    """Gains of predictions over others: a p-value over rows for each seed, and their mean's 95 % interval.

    Each sample draws rows with replacement, the same for all seeds. p is the share of samples that are as far
    from their mean as the gain is from 0; the interval also draws the seeds.

    `pairs` are, for each seed, the predictions of the baseline and of the system, or of more systems. A gain
    is the sum of their scores with `weights`, by default that of the system less that of the baseline.

    Source: Koehn (2004); the draw of seeds: Davison and Hinkley (1997), section 3.8. Differs from sacreBLEU,
    whose p centres the sizes of differences and is nearly one-sided: this p is two-sided.
    """
    labels, (n_rows, n_seeds) = np.asarray(gold), (len(gold), len(pairs))
    sides = [list(zip(weights, map(np.asarray, pair), strict=True)) for pair in pairs]
    rng = np.random.default_rng(12345)

    def gains(rows: Any) -> list[float]:
        return [
            sum(weight * score(labels[rows], predictions[rows]) for weight, predictions in pair)
            for pair in sides
        ]

    sample_gains = np.array([gains(rng.integers(0, n_rows, n_rows)) for _ in range(n_samples)])
    measured = np.array(gains(slice(None)))
    p_values = (1 + (abs(sample_gains - sample_gains.mean(0)) >= abs(measured)).sum(0)) / (1 + n_samples)
    means = np.take_along_axis(sample_gains, rng.integers(0, n_seeds, sample_gains.shape), 1).mean(1)
    return p_values.tolist(), Interval(float(measured.mean()), *np.percentile(means, [2.5, 97.5]).tolist())


def bootstrap_interval(values: Sequence[float] | NDArray[np.float64]) -> Interval:
    """Mean of one value per sentence, with the 95 % percentile interval over 2,000 resampled test sets.

    NaN is left out. The ends are NaN below `FEWEST_ROWS`, and the mean is NaN without any value.
    """
    numbers = np.asarray(values, float)
    numbers = numbers[~np.isnan(numbers)]
    if len(numbers) < FEWEST_ROWS:
        return Interval(float(numbers.mean()) if len(numbers) else math.nan, math.nan, math.nan)
    rng = np.random.default_rng(12345)
    rows = max(1, MOST_DRAWN // len(numbers))  # samples drawn at once; it changes no number
    sizes = [min(rows, 2000 - start) for start in range(0, 2000, rows)]
    means = [numbers[rng.integers(0, len(numbers), (size, len(numbers)))].mean(1) for size in sizes]
    return Interval(float(numbers.mean()), *np.percentile(np.concatenate(means), [2.5, 97.5]).tolist())
