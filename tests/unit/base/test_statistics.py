"""t-test and deviation are SciPy's and the statistics module's; the bootstrap interval covers what it should."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from scipy.stats import binomtest, ttest_1samp

from syntaxformer.base import statistics as significance
from syntaxformer.base.statistics import (
    bootstrap_interval,
    bootstrap_rows,
    compare_rows,
    detectable_effect,
    difference_in_words,
    holm,
    mcnemar_p,
    paired_t_test,
    seed_interval,
    sign_test_p,
    spread,
)


def test_the_t_test_by_hand():
    # differences 1 and 3: mean 2, sd √2, t = 2 / (√2 / √2) = 2 with one degree of freedom, p = 1 − 2/π · atan 2
    assert paired_t_test([0.0, 0.0], [1.0, 3.0]) == pytest.approx(1 - 2 / math.pi * math.atan(2))


def test_the_interval_over_seeds_is_scipys():
    values = [0.7, -0.2, 1.9, 0.4, 0.8]
    expected = ttest_1samp(values, 0).confidence_interval(0.95)
    assert seed_interval(spread(values)) == pytest.approx((expected.low, expected.high))
    assert all(map(math.isnan, seed_interval(spread([0.5]))))


def test_differences_without_spread():
    assert math.isnan(paired_t_test([1.0], [2.0]))
    assert paired_t_test([1.0, 2.0], [1.0, 2.0]) == 1.0
    assert math.isnan(paired_t_test([1.0, 2.0], [2.0, 3.0]))
    assert math.isnan(paired_t_test([0.1, 0.2, 0.3], [0.3, 0.4, 0.5]))  # the same but for rounding
    one_more = [correct / 277 for correct in (160, 158, 163)]
    assert math.isnan(paired_t_test(one_more, [score + 1 / 277 for score in one_more]))
    assert paired_t_test([0.1 + 0.2, 0.3], [0.3, 0.3]) == 1.0
    assert paired_t_test([0.0, 0.0], [0.0, 0.0]) == 1.0
    with pytest.raises(ValueError, match=r"^scores: expected 2, one for each seed, got 1\.$"):
        paired_t_test([1.0, 2.0], [1.0])


def test_the_interval_of_a_mean():
    values = np.random.default_rng(5).normal(3.0, 2.0, 400)
    interval = bootstrap_interval(values)
    half = 1.96 * values.std() / math.sqrt(400)
    assert interval.mean == pytest.approx(values.mean())
    assert interval.high - interval.mean == pytest.approx(half, rel=0.15)
    assert interval.mean - interval.low == pytest.approx(half, rel=0.15)
    assert bootstrap_interval([*values, math.nan]) == interval
    assert math.isnan(bootstrap_interval([math.nan]).mean)
    few = bootstrap_interval([1.0, 4.0, math.nan])
    assert few.mean == 2.5
    assert math.isnan(few.low)
    assert math.isnan(few.high)


@pytest.mark.parametrize("n_together", [significance.MOST_DRAWN, 700, 1])
def test_the_interval_of_a_mean_by_a_plain_loop(monkeypatch, n_together):
    """It does not depend on how many sentences are held together."""
    monkeypatch.setattr(significance, "MOST_DRAWN", n_together)
    values = np.random.default_rng(5).normal(3.0, 2.0, 37)
    rng = np.random.default_rng(12345)
    means = [values[rng.integers(0, 37, 37)].mean() for _ in range(2000)]
    interval = bootstrap_interval(values.tolist())
    assert (interval.low, interval.high) == pytest.approx(np.percentile(means, [2.5, 97.5]).tolist())


@pytest.mark.parametrize(("n", "sd"), [(3, 1.0), (5, 0.5), (12, 2.0)])
def test_the_effect_that_so_many_seeds_can_show(n, sd):
    """A simulation of the t-test finds it in 80 of 100 experiments."""
    effect = detectable_effect(n, sd)
    differences = np.random.default_rng(7).normal(effect, sd, (20_000, n))
    assert (ttest_1samp(differences, 0.0, axis=1).pvalue < 0.05).mean() == pytest.approx(0.8, abs=0.01)
    assert detectable_effect(2 * n, sd) < effect


def test_mcnemar_by_hand():
    # 5 rows, of which 1 for the first: 2 · (1 + 5) / 32 exactly, less P(X = 1) = 5 / 32 for mid-p
    assert mcnemar_p(1, 4) == pytest.approx((12 / 32, 7 / 32))
    assert mcnemar_p(4, 1) == pytest.approx(mcnemar_p(1, 4))
    # as many for each: 1, less half of P(X = 2) = 6 / 16
    assert mcnemar_p(2, 2) == pytest.approx((1.0, 1 - 3 / 16))
    assert mcnemar_p(0, 0) == (1.0, 1.0)
    # Fagerland et al. (2013), table 1 and section "Results": 1 and 7 of 21 children, exact 0.0703, mid-p 0.0391
    assert mcnemar_p(1, 7) == pytest.approx((0.0703, 0.0391), abs=5e-5)
    assert mcnemar_p(31, 17)[0] == pytest.approx(binomtest(17, 48).pvalue)


def _scores(labels, predictions):
    right = np.asarray(labels) == np.asarray(predictions)
    return {"accuracy": float(right.mean()), "squared": float(right.mean() ** 2)}


def test_systems_on_the_same_rows():
    # Of twenty rows only three differ, all for the system: 2 of the 8 exchanges give so large a difference.
    gold = [0, 1] * 10
    baseline = [*(1 - label for label in gold[:3]), *gold[3:]]
    comparisons = compare_rows(_scores, gold, baseline, gold, 4000)
    accuracy, squared = comparisons["accuracy"], comparisons["squared"]
    assert accuracy.difference == pytest.approx(3 / 20)
    assert (accuracy.p_value, accuracy.no_p) == (mcnemar_p(3, 0)[1], None)
    assert accuracy.test == "McNemar's mid-p; exact 0.250; right alone on 3 rows, the other on 0"
    assert squared.p_value == pytest.approx(0.25, abs=0.025)
    assert squared.test == "paired permutation"
    # The number of drawn rows that differ is binomial: 95 % of it lie between 0 and 6 of 20.
    assert (accuracy.low, accuracy.high) == pytest.approx((0.0, 0.3), abs=0.051)
    same = compare_rows(_scores, gold, gold, gold, 99)
    assert [comparison.p_value for comparison in same.values()] == [1.0, 1.0]


def test_systems_on_the_same_rows_by_a_plain_loop():
    rng, n_rows = np.random.default_rng(3), significance.FEWEST_ROWS
    gold, baseline, system = rng.integers(0, 2, (3, n_rows)).tolist()
    squared = compare_rows(_scores, gold, baseline, system, 97)["squared"]
    draws, gold, sides = np.random.default_rng(12345), np.array(gold), np.array([baseline, system])

    def gain(rows, swap):
        before, after = np.where(swap, sides[::-1], sides)[:, rows]
        return _scores(gold[rows], after)["squared"] - _scores(gold[rows], before)["squared"]

    no_swap, all_rows = np.zeros(n_rows, int), np.arange(n_rows)
    samples = [gain(draws.integers(0, n_rows, n_rows), no_swap) for _ in range(97)]
    assert (squared.low, squared.high) == pytest.approx(np.percentile(samples, [2.5, 97.5]).tolist())
    least = abs(gain(all_rows, no_swap)) - 1e-9
    far = sum(abs(gain(all_rows, draws.integers(0, 2, n_rows))) >= least for _ in range(97))
    assert squared.p_value == pytest.approx((1 + far) / 98)
    assert 1 < far < 97


def test_a_comparison_in_words():
    fields = {"difference": 0.5, "low": -0.25, "high": 1.25, "p_value": 0.004, "test": "a test", "no_p": None}
    assert (
        difference_in_words(fields, "base") == "+0.50 against base, 95 % -0.25 to +1.25, p = 0.004 (a test)"
    )
    fields |= {"p_value": 0.0004, "low": None}
    assert difference_in_words(fields, "base", 1) == "+0.5 against base, p < 0.001 (a test)"
    fields |= {"p_value": None, "no_p": "why"}
    assert difference_in_words(fields, "base") == "+0.50 against base, no p: why"


def test_no_p_for_one_answer_and_no_interval_for_few_rows():
    gold, constant = [0, 1] * 10, [1] * 20
    for pair in ((constant, gold), (gold, constant)):
        accuracy = compare_rows(_scores, gold, *pair, 99)["accuracy"]
        assert math.isnan(accuracy.p_value)
        assert accuracy.no_p == "one of them gives all rows the same answer"
        assert accuracy.low < accuracy.difference < accuracy.high
    few = compare_rows(_scores, gold[:9], [1, *gold[1:9]], gold[:9], 99)["accuracy"]
    assert few.p_value == mcnemar_p(1, 0)[1]
    assert few.as_dict()["low"] is None


def test_bootstrap_of_rows_by_a_plain_loop():
    """Two seeds, 23 rows: the same draws, one score at a time."""
    rng = np.random.default_rng(7)
    gold = rng.integers(0, 2, 23)
    pairs = [(rng.integers(0, 2, 23), np.where(rng.random(23) < 0.8, gold, 1 - gold)) for _ in range(2)]

    def share(labels, predictions):
        return float(np.mean(labels == predictions))

    p_values, gain = bootstrap_rows(share, gold.tolist(), pairs, n_samples=97)
    draws, samples = np.random.default_rng(12345), []
    for _ in range(97):
        rows = draws.integers(0, 23, 23)
        samples.append([share(gold[rows], new[rows]) - share(gold[rows], old[rows]) for old, new in pairs])
    measured = [share(gold, new) - share(gold, old) for old, new in pairs]
    for seed in range(2):
        mean = sum(sample[seed] for sample in samples) / 97
        far = sum(abs(sample[seed] - mean) >= abs(measured[seed]) for sample in samples)
        assert p_values[seed] == (1 + far) / 98
    seeds = draws.integers(0, 2, (97, 2))
    means = [
        (sample[first] + sample[second]) / 2 for sample, (first, second) in zip(samples, seeds, strict=True)
    ]
    assert (gain.low, gain.high) == pytest.approx(np.percentile(means, [2.5, 97.5]).tolist())
    assert gain.mean == pytest.approx(sum(measured) / 2)
    _, half = bootstrap_rows(share, gold.tolist(), pairs, n_samples=97, weights=(-0.5, 0.5))
    assert (2 * half.low, 2 * half.high) == pytest.approx((gain.low, gain.high))


def test_the_exact_permutation_test_by_all_signs():
    differences = [3.0, 1.0, 0.5, -0.5]
    sums = [
        sum(s * d for s, d in zip(signs, differences, strict=True)) for signs in product((1, -1), repeat=4)
    ]
    for direction, extreme in [
        ("greater", [total >= 4 for total in sums]),
        ("less", [total <= 4 for total in sums]),
        ("either", [abs(total) >= 4 for total in sums]),
    ]:
        assert sign_test_p(differences, direction) == np.mean(extreme)
    assert sign_test_p([1.0] * 20, "greater") == 2**-20
    assert sign_test_p([0.1] * 3, "either") == 0.25  # sums that differ by rounding are equal
    assert math.isnan(sign_test_p([]))


def test_holms_correction_by_hand():
    corrected = holm([0.01, 0.04, math.nan, 0.03, 0.9])
    assert corrected[0] == pytest.approx(0.05)  # 5 tests
    assert corrected[3] == pytest.approx(0.12)  # 4 are left
    assert corrected[1] == pytest.approx(0.12)  # 3 · 0.04 = 0.12, no less than the one before
    assert corrected[4] == 1
    assert math.isnan(corrected[2])
