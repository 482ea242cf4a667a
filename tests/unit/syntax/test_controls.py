"""Controls: trees drawn uniformly, the chain, trees of other sentences; each by hand or by counting."""

from __future__ import annotations

import json
from collections import Counter
from itertools import product

import numpy as np
import pytest
from scipy.stats import chisquare

from syntaxformer.base.errors import TreeError
from syntaxformer.base.files import MAX_JSON_BYTES
from syntaxformer.syntax import PhraseColumns, TreeOptions, WordTrees, dependency_relations
from syntaxformer.syntax.controls import (
    MOST_WORDS,
    TreePool,
    control_trees,
    random_bracketing,
    random_governors,
    right_branching,
)
from syntaxformer.syntax.relations import phrase_columns
from syntaxformer.trees import check_governors, format_tree


def is_tree(governors):
    try:
        check_governors(list(governors))
    except TreeError:
        return False
    return list(governors).count(-1) == 1


@pytest.mark.parametrize("n_words", [1, 2, 3, 4])
def test_random_trees_are_uniform_over_all_rooted_trees(n_words):
    """All vectors of governors are enumerated; n^(n - 1) of them are trees (Cayley), each as likely."""
    drawn, n_draws = np.random.default_rng(7), 6400
    every = [one for one in product(range(-1, n_words), repeat=n_words) if is_tree(one)]
    assert len(every) == n_words ** (n_words - 1)
    found = Counter(tuple(random_governors(n_words, drawn).tolist()) for _ in range(n_draws))
    assert found.keys() == set(every)
    assert n_words == 1 or chisquare([found[one] for one in every]).pvalue > 0.001


@pytest.mark.parametrize(("n_words", "catalan"), [(1, 1), (2, 1), (3, 2), (4, 5), (5, 14)])
def test_random_bracketings_are_uniform(n_words, catalan):
    drawn = np.random.default_rng(5)
    found = Counter(format_tree(random_bracketing(n_words, drawn)) for _ in range(4200))
    assert len(found) == catalan
    assert catalan == 1 or chisquare(list(found.values())).pvalue > 0.001


def test_a_chain_branches_to_the_right():
    """(a (b (c d))): the phrases over the gaps are 0, 1 and 2 edges below the top, headed by a, b and c."""
    made = right_branching(4)
    by_hand = phrase_columns("(X a (X b (X c d)))", [-1, 0, 1, 2])
    assert [column.tolist() for column in made.arrays] == [column.tolist() for column in by_hand.arrays]
    assert made.word_depths.tolist() == [1, 2, 3, 3]
    chain = control_trees(
        WordTrees.of_sentence(3, [2, 2, -1]), "linear_chain", np.random.default_rng(0)
    ).governors
    assert chain is not None
    assert chain.tolist() == [-1, 0, 1]
    relations = dependency_relations(chain.tolist(), 5)
    assert relations[0].tolist() == [0, 1, 2], "the first word is an ancestor of the others, by their place"


@pytest.mark.parametrize("control", ["random_tree", "linear_chain"])
@pytest.mark.parametrize("n_words", [0, 1, 2, 7])
def test_words_keep_their_tags(control, n_words):
    """A word that is two edges below its lowest phrase, as in SST, is so in the control too."""
    leaves = " ".join(f"(2 w{word})" for word in range(n_words))
    phrases = phrase_columns(f"(3 {leaves})") if n_words else PhraseColumns.join([])
    made = control_trees(WordTrees.of_sentence(n_words, None, phrases), control, np.random.default_rng(3))
    assert made.governors is None
    assert made.phrases is not None
    gaps = [*made.phrases.gap_depths.tolist(), -1]
    lowest = [max(gaps[word], gaps[word + 1]) for word in range(n_words)]
    expected = [2 if n_words > 1 else 3] * n_words  # (3 (2 w0)) is three edges below "no phrase", at -1
    assert (made.phrases.word_depths - np.array(lowest, int)).tolist() == expected


def test_other_sentences_have_the_length_and_another_text():
    pool = TreePool((number, WordTrees.of_sentence(n, [-1] * n)) for number, n in enumerate([2, 3, 3, 5]))
    again = TreePool.from_json(pool.to_json())
    for one in (pool, again):
        drawn = np.random.default_rng(1)
        assert one.other(3, 1, drawn) is one.rows[2][1], "the only other sentence of three words"
        assert one.other(5, 3, drawn) is None
        assert {id(one.other(3, 9, drawn)) for _ in range(40)} == {id(one.rows[1][1]), id(one.rows[2][1])}


def test_a_pool_keeps_few_trees_of_each_length():
    """With all of SST-2's, a model's collator.json was too large to be read."""
    pool = TreePool((checksum % 200, WordTrees.of_sentence(3, [-1] * 3)) for checksum in range(400, 0, -1))
    assert [checksum for checksum, _ in pool.rows] == list(range(50))


def test_a_pool_of_long_texts_can_be_read_from_a_models_folder():
    """With both trees and lines of up to 300 words, it has to keep fewer of each length, but two."""
    lengths = [n for n in range(1, 301) for _ in range(20)]
    phrases = {n: phrase_columns(" ".join(["(X", *["w"] * n]) + ")") for n in range(1, 301)}
    pool = TreePool((row, WordTrees.of_sentence(n, [-1] * n, phrases[n])) for row, n in enumerate(lengths))
    assert sum(len(trees) for _, trees in pool.rows) <= MOST_WORDS
    assert min(Counter(len(trees) for _, trees in pool.rows).values()) >= 2
    stored = pool.to_json()
    assert len(json.dumps(stored)) < MAX_JSON_BYTES
    more = [[f"{number:x}", *rest] for number in range(20) for _, *rest in stored]
    assert len(TreePool.from_json(more).rows) == 6000, "what a folder holds is kept"
    long = [(row, WordTrees.of_sentence(n, [-1] * n)) for n in range(400, 1001) for row in range(2)]
    assert max(len(trees) for _, trees in TreePool(long).rows) < 650, "the longest have no other sentence"


def test_phrases_of_a_pool_are_written_and_read():
    phrases = phrase_columns("(X (X a b) c)", [-1, 0, 0])
    (row,) = TreePool.from_json(TreePool([(4, WordTrees.of_sentence(3, None, phrases))]).to_json()).rows
    assert row[0] == 4
    assert row[1].governors is None
    assert [one.tolist() for one in row[1].phrases.arrays] == [one.tolist() for one in phrases.arrays]


def test_the_older_name_of_permuted():
    assert TreeOptions(random=True) == TreeOptions(control="permuted")
    assert TreeOptions(random=False) == TreeOptions()
    for wrong in ({"random": True, "control": "linear_chain"}, {"random": "yes"}):
        with pytest.raises(ValueError, match="random"):
            TreeOptions(**wrong)
