"""What pieces should point at, by hand. Whole batches are tested with the collators of both products."""

from __future__ import annotations

import numpy as np
import pytest

from syntaxformer.syntax import TreeOptions, dependency_relations, first_pieces, governor_targets
from syntaxformer.syntax.inputs import NO_GOVERNOR
from syntaxformer.syntax.piece_relations import with_all_siblings

# [CLS] the cat ##s sleep [SEP] [PAD]: the <- cats <- sleep; and [CLS] go [SEP] and padding.
WORDS_OF_PIECES = np.array([[-1, 0, 1, 1, 2, -1, -1], [-1, 0, -1, -1, -1, -1, -1]])
GOVERNORS = np.array([[1, 2, -1], [-1, -1, -1]])
TARGETS = [[-100, 2, 4, 2, 4, -100, -100], [-100, 1, -100, -100, -100, -100, -100]]


def test_targets_by_hand() -> None:
    assert NO_GOVERNOR == -100
    assert governor_targets(GOVERNORS, WORDS_OF_PIECES).tolist() == TARGETS
    assert first_pieces(WORDS_OF_PIECES).astype(int).tolist() == [
        [0, 1, 1, 0, 1, 0, 0],
        [0, 1, 0, 0, 0, 0, 0],
    ]


def test_a_governor_that_was_cut_off_is_no_target() -> None:
    cut = WORDS_OF_PIECES[:1, :4]  # "sleep" is gone
    assert governor_targets(GOVERNORS[:1], cut).tolist() == [[-100, 2, -100, 2]]


def test_targets_of_nothing() -> None:
    nothing = np.full((2, 7), -1)
    assert (governor_targets(np.zeros((2, 0), np.int64), nothing) == NO_GOVERNOR).all()
    assert not first_pieces(nothing).any()
    assert not first_pieces(np.zeros((2, 0), np.int64)).size


@pytest.mark.parametrize(
    ("governors", "words", "text"),
    [
        ([[3]], [[0]], r"governors: expected -1 to 0, a word of the batch, got 3 to 3\."),
        ([[-2]], [[0]], r"governors: expected -1 to 0, a word of the batch, got -2 to -2\."),
        ([[-1]], [[0, 1]], r"words_of_pieces: expected -1 to 0, a word of the batch, got 0 to 1\."),
    ],
)
def test_refuses_words_that_are_not_there(governors: list, words: list, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        governor_targets(np.array(governors), np.array(words))


def test_siblings_as_printed_by_hand():
    """0 <- 1 -> 2 -> 3, D = 3. Siblings are all pairs that a tree links, at their distance (Bai et al. 2021)."""
    governors, reach = [1, -1, 1, 2], 3
    edges = np.array([[0, 1, 2, 3], [1, 0, 1, 2], [2, 1, 0, 1], [3, 2, 1, 0]])
    apart = dependency_relations(governors, reach)
    others, siblings = with_all_siblings(np.stack([apart])[None], reach)[0]
    assert siblings.tolist() == np.where(edges > 0, 2 * reach + edges, 0).tolist()
    assert others.tolist() == np.where(apart > 2 * reach, 0, apart).tolist()
    options = TreeOptions(trees=("dependency",), max_distance=reach, siblings="all")
    assert options.planes == ("dependency", "dependency")
    on = options.active_networks(())
    assert on == [True] * 6 + [False] * 3 + [True] + [False] * 6 + [True] * 3 + [False]
    assert sum(on) == sum(TreeOptions(trees=("dependency",), max_distance=reach).active_networks(()))
    assert not any(options.active_networks(("parent", "child", "pair"))[:10])
