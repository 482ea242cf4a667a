from __future__ import annotations

import numpy as np
import pytest

from syntaxformer.base.errors import TreeError
from syntaxformer.syntax import (
    NO_PATH,
    batch_dependency_distances,
    batch_dependency_relations,
    dependency_depths,
    dependency_relations,
    n_relations,
    pair_relation,
    relation_name,
)
from syntaxformer.syntax.relations import relations_of_steps

P, C, S = 0, 15, 30
"""Offsets of parent, child and sibling with D = 15."""


@pytest.mark.parametrize(
    ("governors", "max_distance", "relations"),
    [
        # "The dog chased cats": The <- dog <- chased -> cats
        (
            [1, 2, -1, 2],
            15,
            [
                [0, C + 1, C + 2, S + 3],
                [P + 1, 0, C + 1, S + 2],
                [P + 2, P + 1, 0, P + 1],
                [S + 3, S + 2, C + 1, 0],
            ],
        ),
        # two roots are not linked
        ([-1, 0, -1, 2], 15, [[0, 1, 0, 0], [16, 0, 0, 0], [0, 0, 0, 1], [0, 0, 16, 0]]),
        # a chain 0 -> 1 -> 2 -> 3 with D = 2: parent 1, 2; child 3, 4; nothing beyond
        ([-1, 0, 1, 2], 2, [[0, 1, 2, 0], [3, 0, 1, 2], [4, 3, 0, 1], [0, 4, 3, 0]]),
        ([-1], 15, [[0]]),
        ([], 15, []),
    ],
)
def test_relations_by_hand(governors, max_distance, relations):
    assert dependency_relations(governors, max_distance).tolist() == relations


def test_a_chain_and_a_star_of_more_words_and_levels_than_a_byte_counts():
    for n_words in (253, 254, 255, 256, 300):
        chain = dependency_relations([-1, *range(n_words - 1)])
        apart = np.arange(n_words) - np.arange(n_words)[:, None]
        expected = np.where((apart > 0) & (apart <= 15), apart, 0)
        expected += np.where((apart < 0) & (apart >= -15), 15 - apart, 0)
        assert np.array_equal(chain, expected)
        star = dependency_relations([-1] + [0] * (n_words - 1))
        assert star.dtype == np.uint8
        assert set(star[0, 1:].tolist()) == {1}
        assert set(star[1:, 1:][~np.eye(n_words - 1, dtype=bool)].tolist()) == {32}


def test_rows_do_not_depend_on_each_other_or_on_padding():
    rows = [[1, -1], [], [-1, 0, 1, 1, 0], [-1]]
    for fill in (-1, 0, 77):
        padded = np.array([row + [fill] * (7 - len(row)) for row in rows])
        together = batch_dependency_relations(padded, [len(row) for row in rows], 5)
        for row, relations in zip(rows, together, strict=True):
            expected = np.zeros((7, 7), int)
            expected[: len(row), : len(row)] = dependency_relations(row, 5)
            assert np.array_equal(relations, expected)


def test_depths():
    assert dependency_depths([[1, -1, 0, 9], [-1, 9, 9, 9]], [3, 1]).tolist() == [[2, 1, 3, 0], [1, 0, 0, 0]]


@pytest.mark.parametrize(
    ("governors", "where"),
    [
        ([1, 0, -1], "governors: .* word 0 → word 1 → word 0"),
        ([-1, 1, 1], "governors: .* word 1 → word 1"),
        ([-1, 5, 0], "governor of word 1: expected -1 to 2, got 5"),
        ([-1, -2, 0], "governor of word 1: expected -1 to 2, got -2"),
    ],
)
def test_no_trees(governors, where):
    with pytest.raises(TreeError, match=f"^{where}"):
        dependency_relations(governors)
    with pytest.raises(TreeError, match=f"^{where}"):
        batch_dependency_relations([[-1, 0, 0], governors], [3, 3])


def test_distances_count_edges_whatever_the_relation():
    # 0 ← 1 → 2 → 3, and a tree of its own: 4
    distances = batch_dependency_distances([[1, -1, 1, 2, -1], [-1, 0, 9, 9, 9]], [5, 2])
    assert distances[0].tolist() == [
        [0, 1, 2, 3, NO_PATH],
        [1, 0, 1, 2, NO_PATH],
        [2, 1, 0, 1, NO_PATH],
        [3, 2, 1, 0, NO_PATH],
        [NO_PATH, NO_PATH, NO_PATH, NO_PATH, 0],
    ]
    assert distances[1, :2, :2].tolist() == [[0, 1], [1, 0]]
    assert (distances[1, 2:] == NO_PATH).all()
    assert (distances[1, :, 2:] == NO_PATH).all()
    assert batch_dependency_distances([[*range(-1, 299)]], [300])[0, 0, 299] == 299


def test_names_of_all_ids():
    # D = 3, written out: DESIGN's table.
    assert [relation_name(relation, 3) for relation in range(n_relations(3))] == [
        "none",
        *("parent 1", "parent 2", "parent 3"),
        *("child 1", "child 2", "child 3"),
        *("sibling 1", "sibling 2", "sibling 3"),
        "pair",
    ]
    assert pair_relation() == 46
    assert n_relations(84) == 254


def test_steps():
    up = np.array([0, 0, 2, 1, 0, 4, 3, 9, 1])
    down = np.array([0, 2, 0, 2, 4, 0, 1, 9, 1])
    linked = np.array([True] * 8 + [False])
    assert relations_of_steps(up, down, linked, 3).tolist() == [0, 2, 5, 9, 0, 0, 0, 0, 0]


def test_numbers_that_do_not_fit():
    for max_distance in (0, 85):
        with pytest.raises(ValueError, match=f"^max_distance: expected 1 to 84, .*got {max_distance}"):
            pair_relation(max_distance)
    with pytest.raises(ValueError, match=r"^relation: .*got 11\."):
        relation_name(11, 3)
