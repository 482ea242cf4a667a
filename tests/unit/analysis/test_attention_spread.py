"""Spread of attention on distributions that can be worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from syntaxformer.analysis.attention_spread import SpreadOfAttention, spread_of_weights
from syntaxformer.trees import Sentence

# a ← b → c → d, and an end piece that belongs to no word; "b" has two pieces.
SENTENCE = Sentence.from_words(list("abcd"), governors=(1, -1, 1, 2))
OWNERS = np.array([0, 1, 1, 2, 3, -1], np.int32)


def _measures(*rows):
    return spread_of_weights(np.array(rows, np.float32), OWNERS, SENTENCE)


def test_one_word_is_no_spread():
    found = _measures([0, 0.3, 0.5, 0, 0, 0.2])
    assert found == {"entropy": 0.0, "words": 0.0, "edges": 0.0, "on_words": pytest.approx(0.8)}


def test_two_words():
    # half on a, half on d: one bit; two draws differ half of the time, 3 words or 3 edges apart
    found = _measures([0.5, 0, 0, 0, 0.5, 0])
    assert found["entropy"] == pytest.approx(1.0)
    assert found["words"] == pytest.approx(1.5)
    assert found["edges"] == pytest.approx(1.5)
    # a and c stand two words apart and two edges; weights ¼ and ¾ meet in 2 · 3/16 of draws
    found = _measures([0.25, 0, 0, 0.75, 0, 0])
    assert found["words"] == pytest.approx(2 * 3 / 16 * 2)
    assert found["entropy"] == pytest.approx(0.25 * 2 + 0.75 * np.log2(4 / 3))


def test_target_pieces_count_alike():
    found = _measures([0.5, 0, 0, 0, 0.5, 0], [1, 0, 0, 0, 0, 0])
    assert found["entropy"] == pytest.approx(0.5)


def test_words_of_different_trees_have_no_distance_in_edges():
    two = Sentence.from_words(["a", "b"], governors=(-1, -1))
    found = spread_of_weights(np.array([[0.5, 0.5]], np.float32), np.array([0, 1], np.int32), two)
    assert (found["words"], found["edges"]) == (0.5, 0.0)
    bare = Sentence.from_words(["a", "b"])
    found = spread_of_weights(np.array([[0.5, 0.5]], np.float32), np.array([0, 1], np.int32), bare)
    assert np.isnan(found["edges"])


def test_nothing_on_words():
    found = _measures([0, 0, 0, 0, 0, 1.0])
    assert found["on_words"] == 0.0
    assert np.isnan(found["entropy"])


def test_differences_are_of_the_same_sentences():
    one = SpreadOfAttention({"entropy": np.array([1.0, 2.0, np.nan])})
    other = SpreadOfAttention({"entropy": np.array([2.0, 3.0, 4.0])})
    found = other.difference(one, "entropy")
    assert (found.mean, found.low, found.high) == (1.0, 1.0, 1.0)
    assert one.interval("entropy").mean == 1.5
