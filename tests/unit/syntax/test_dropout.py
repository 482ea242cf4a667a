"""Dropout of tags and edges: what is drawn, what becomes of it, and that a resumed run draws the same."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from syntaxformer.syntax import WordTrees, word_relations
from syntaxformer.syntax.inputs import EDGE, TAG, EpochDraws, SyntaxDropout, dropout_problems
from syntaxformer.syntax.relations import phrase_columns

FACTORS = ("pos", "case", "subword", "tag")


def _dropout(prob=0.5, epoch=0, seed=3):
    return SyntaxDropout.of(prob, seed, SimpleNamespace(epoch=epoch), FACTORS)


class _These:
    """Draws below every probability for the named words, and above it for the others."""

    def __init__(self, *words):
        self.words = words

    def uniform(self, what, ids, words):
        return np.where(np.isin(words, self.words) & (np.asarray(ids) >= 0), 0.0, 0.999)


def _drawing(*words):
    return SyntaxDropout(0.5, _These(*words), np.array([True, False, False, True]))


def test_draws_are_uniform_and_depend_on_seed_epoch_kind_example_and_word():
    draws = EpochDraws(3, SimpleNamespace(epoch=1))
    rows, words = np.arange(211)[:, None], np.arange(23)
    found = draws.uniform(TAG, rows, words)
    assert found.shape == (211, 23)
    assert len(np.unique(found)) == found.size
    assert found.min() >= 0
    assert found.max() < 1
    assert np.histogram(found, 5, (0, 1))[0] == pytest.approx([found.size / 5] * 5, rel=0.1)
    assert np.corrcoef(found[:-1].ravel(), found[1:].ravel())[0, 1] == pytest.approx(0, abs=0.05)
    np.testing.assert_array_equal(draws.uniform(TAG, 7, words), found[7])  # whatever else is in the batch
    others = [
        draws.uniform(EDGE, rows, words),
        EpochDraws(4, SimpleNamespace(epoch=1)).uniform(TAG, rows, words),
        EpochDraws(3, SimpleNamespace(epoch=2)).uniform(TAG, rows, words),
    ]
    assert all(abs(np.corrcoef(found.ravel(), one.ravel())[0, 1]) < 0.05 for one in others)


def test_tags_of_a_drawn_word_become_none_on_all_its_pieces_and_its_case_stays():
    ids = np.array([[5, 1, 2, 4], [5, 1, 3, 4], [6, 1, 1, 7], [0, 0, 0, 0]])
    found = _drawing(0).tags(ids[None], np.array([[9]]), np.array([[0, 0, 1, -1]]))
    assert found[0].tolist() == [[0, 1, 2, 0], [0, 1, 3, 0], [6, 1, 1, 7], [0, 0, 0, 0]]
    assert (
        _drawing(-1).tags(ids[None], np.array([[9]]), np.array([[0, 0, 1, -1]])).tolist()
        == ids[None].tolist()
    )


def test_a_drawn_word_becomes_a_root_and_the_phrases_part_before_it():
    """the <- dog <- barks -> at -> cats, cut above "at"."""
    tree = WordTrees.of_sentence(
        5,
        [1, 2, -1, 2, 3],
        phrase_columns("(S (NP (D the) (N dog)) (VP (V barks) (PP (P at) (N cats))))", [1, 2, -1, 2, 3]),
    )
    (found,) = _drawing(3).cut([tree], [0])
    assert found.governors.tolist() == [1, 2, -1, -1, 3]
    parts = word_relations([found], 7)
    alone = WordTrees.of_sentence(5, [1, 2, -1, -1, 3])
    np.testing.assert_array_equal(parts[0, 0], word_relations([alone], 7, trees=("dependency",))[0, 0])
    assert not parts[0, 1, :3, 3:5].any()  # in the constituency tree, nothing before it is related to it
    assert parts[0, 1, 3, 4]
    assert parts[0, 1, 0, 1]
    assert tree.governors.tolist() == [1, 2, -1, 2, 3]


def test_none_of_the_probability_and_nothing_without_one():
    trees = [WordTrees.of_sentence(97, [-1, *range(96)])] * 61
    assert _dropout(0.0) is None
    found = _dropout(0.25).cut(trees, range(61))
    share = np.mean([(one.governors[1:] == -1).mean() for one in found])
    assert share == pytest.approx(0.25, abs=0.03)
    again, later = _dropout(0.25).cut(trees, range(61)), _dropout(0.25, epoch=1).cut(trees, range(61))
    assert all((one.governors == other.governors).all() for one, other in zip(found, again, strict=True))
    assert not all((one.governors == other.governors).all() for one, other in zip(found, later, strict=True))


def test_a_dropout_of_nothing_is_refused():
    assert dropout_problems(0.0, ("case",), False) == []
    assert dropout_problems(0.1, ("case", "tag"), False) == []
    assert dropout_problems(0.1, (), True) == []
    assert dropout_problems(0.1, ("case", "subword"), False) == [
        "training.syntax_dropout: expected 0 without tags or relations to leave out, got 0.1."
    ]
