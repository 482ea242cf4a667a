"""UUAS, Spearman and root accuracy on examples that fit on paper."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import spearmanr

from syntaxformer.study.treebank import (
    attachment_score,
    root_accuracy,
    spanning_edges,
    spearman_by_length,
    spearman_score,
)

# "She reads old books ." : reads governs She, books and "."; books governs old.
GOLD = np.array(
    [
        # She reads old books .
        [0, 1, 3, 2, 2],
        [1, 0, 2, 1, 1],
        [3, 2, 0, 1, 3],
        [2, 1, 1, 0, 2],
        [2, 1, 3, 2, 0],
    ]
)
WORDS = np.array([True, True, True, True, False])
CHAIN = np.abs(np.arange(5)[:, None] - np.arange(5)[None, :])


def test_the_tree_comes_out_of_its_own_distances():
    assert spanning_edges(GOLD) == {(0, 1), (1, 3), (1, 4), (2, 3)}
    assert spanning_edges(np.zeros((1, 1))) == spanning_edges(np.zeros((0, 0))) == set()


def test_distances_of_zero_are_edges():
    assert len(spanning_edges(np.zeros((3, 3)))) == 2


def test_punctuation_is_left_out_of_both_sides():
    # Without ".", gold edges are She-reads, reads-books, old-books; a chain has She-reads, reads-old, old-books.
    assert attachment_score([CHAIN], [GOLD], [WORDS]) == pytest.approx(2 / 3)
    # With it: the chain's books-. is wrong, reads-. is missing.
    assert attachment_score([CHAIN], [GOLD], [np.ones(5, bool)]) == pytest.approx(2 / 4)
    assert attachment_score([GOLD * 7.5], [GOLD], [WORDS]) == 1.0
    near = (GOLD + CHAIN * 1e-3).astype(np.float32)  # no ties: the tree is that of GOLD at any scale
    assert attachment_score([near * np.float32(1e-7)], [GOLD], [WORDS]) == 1.0


def test_edges_of_all_sentences_count_alike():
    two = np.array([[0, 1], [1, 0]])
    score = attachment_score([CHAIN, two], [GOLD, two], [WORDS, np.ones(2, bool)])
    assert score == pytest.approx((2 + 1) / (3 + 1))
    assert np.isnan(attachment_score([two], [two], [np.array([True, False])]))


def test_the_root_is_the_word_of_least_depth():
    depths = np.array([1, 0, 2, 1, 1])
    masks = [WORDS, WORDS]
    assert root_accuracy([np.array([0.9, 0.2, 3, 1, 0.1])], [depths], masks[:1]) == 1.0
    found = [np.array([0.9, 0.2, 3, 1, 0.1]), np.array([0.1, 0.2, 3, 1, 9.0])]
    assert root_accuracy(found, [depths, depths], masks) == 0.5
    assert root_accuracy([np.zeros(2)], [np.zeros(2)], [np.zeros(2, bool)]) == 0.0
    assert np.isnan(root_accuracy([], [], []))


def test_a_root_that_is_not_scored_is_not_found():
    """Such as a bracket; the scored word of least depth is another."""
    depths, mask = np.array([0, 1, 2]), np.array([False, True, True])
    assert root_accuracy([np.array([0.1, 0.5, 2.0])], [depths], [mask]) == 0.0


def test_spearman_is_scipys_row_by_row():
    drawn = np.random.default_rng(3)
    gold = [GOLD, GOLD[:3, :3], GOLD.T]
    found = [drawn.random(one.shape) for one in gold]
    by_length = spearman_by_length(found, gold)
    assert sorted(by_length) == [3, 5]
    for length in by_length:
        rows = [
            spearmanr(guess, row).statistic
            for one, other in zip(found, gold, strict=True)
            if len(other) == length
            for guess, row in zip(one, other, strict=True)
        ]
        assert by_length[length] == pytest.approx(np.mean(rows))


def test_lengths_count_alike_and_short_sentences_do_not():
    assert spearman_score({3: 0.0, 5: 0.2, 50: 0.4, 51: 1.0}) == pytest.approx(0.3)
    assert np.isnan(spearman_score({4: 1.0}))


def test_depths_are_one_row_and_rows_without_spread_say_nothing():
    depths = np.array([1, 0, 2, 1, 1])
    assert spearman_by_length([depths * 2.0], [depths]) == {5: pytest.approx(1.0)}
    assert spearman_by_length([np.ones(5)], [depths]) == {}
    assert spearman_by_length([np.ones(5), depths * 2.0], [depths, depths]) == {5: pytest.approx(1.0)}
