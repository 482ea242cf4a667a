"""Rows of different lengths: what is taken, joined and padded is what lists give."""

import numpy as np
import pytest

from syntaxformer.syntax.ragged import Ragged, splits_of

LISTS = [[3, 1], [], [4, 1, 5], [9]]


def test_rows_come_back_as_they_were():
    ragged = Ragged.of(LISTS)
    assert [ragged[row].tolist() for row in range(len(ragged))] == LISTS
    assert ragged.lengths.tolist() == [2, 0, 3, 1]
    assert ragged.row_of_item.tolist() == [0, 0, 2, 2, 2, 3]
    assert splits_of([]).tolist() == Ragged.of([]).splits.tolist() == [0]


@pytest.mark.parametrize("rows", [[2, 0, 2], [1], [], [3, 1]])
def test_some_rows(rows):
    ragged, expected = Ragged.of(LISTS), [LISTS[row] for row in rows]
    chosen = ragged.take(rows)
    assert [chosen[row].tolist() for row in range(len(chosen))] == expected
    longest = max(map(len, expected), default=0)
    padded = [row + [-1] * (longest - len(row)) for row in expected]
    assert ragged.padded(-1, rows).tolist() == chosen.padded(-1).tolist() == padded


def test_wider_rows():
    assert Ragged.of(LISTS).padded(0, width=5).shape == (4, 5)


def test_items_may_be_vectors():
    vectors = Ragged(np.arange(12).reshape(6, 2), Ragged.of(LISTS).splits)
    assert vectors.padded(7, [3, 0]).tolist() == [[[10, 11], [7, 7]], [[0, 1], [2, 3]]]
