from __future__ import annotations

import pytest

from syntaxformer.demo.generated import digit_pairs


def test_target_is_the_source_reversed():
    pairs = digit_pairs(200, seed=7)
    assert len({pair.source for pair in pairs}) == 200
    for source, target in pairs:
        assert target.split() == source.split()[::-1]
        assert 3 <= len(source.split()) <= 8


def test_the_seed_decides():
    assert digit_pairs(20, seed=2) == digit_pairs(20, seed=2)
    assert digit_pairs(20, seed=2) != digit_pairs(20, seed=3)


def test_all_strings_of_one_digit_can_be_had():
    assert {pair.source for pair in digit_pairs(10, min_digits=1, max_digits=1)} == set("0123456789")


def test_lengths_must_be_in_order():
    with pytest.raises(ValueError, match=r"^min_digits: expected 1 <= min_digits <= 2, got 3\.$"):
        digit_pairs(1, min_digits=3, max_digits=2)


def test_no_more_pairs_than_strings():
    with pytest.raises(
        ValueError, match=r"^n_pairs: expected 0 to 10 distinct strings, got 11\. Allow more digits\.$"
    ):
        digit_pairs(11, min_digits=1, max_digits=1)
