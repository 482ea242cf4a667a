"""Trees of sentences, pairs and cut texts: whose numbers, whose heads, and nothing lost in storing them."""

from dataclasses import replace

import numpy as np
import pytest

from syntaxformer.syntax import WordColumns, WordTrees
from syntaxformer.syntax.piece_relations import cut_trees, phrases_of, phrases_of_lines
from syntaxformer.syntax.relations import phrase_columns
from syntaxformer.trees import Sentence

DOG_BARKS = "(S (NP (DT the) (NN dog)) (VP (VBZ barks)))"


def _with(trees, **own):
    return replace(trees, own={name: np.array(ids) for name, ids in own.items()})


def test_words_of_the_second_sentence_follow_those_of_the_first():
    first = _with(WordTrees.of_sentence(2, [1, -1], phrase_columns("(S (A a) (B b))")), near=[[0, 1], [2, 0]])
    second = _with(
        WordTrees.of_sentence(3, [-1, 0, 0], phrase_columns(DOG_BARKS)),
        near=[[0, 1, 2], [3, 0, 4], [5, 6, 0]],
    )
    pair = WordTrees.of_pair(first, second)
    assert pair.governors.tolist() == [1, -1, -1, 2, 2]
    assert pair.segments.tolist() == [0, 0, 1, 1, 1]
    alone = phrase_columns(DOG_BARKS)
    assert pair.phrases.gap_heads[2:].tolist() == (alone.gap_heads + 2).tolist()
    assert pair.phrases.word_depths[2:].tolist() == alone.word_depths.tolist()
    assert pair.own["near"].tolist() == [
        [0, 1, 0, 0, 0], [2, 0, 0, 0, 0], [0, 0, 0, 1, 2], [0, 0, 3, 0, 4], [0, 0, 5, 6, 0],
    ]  # fmt: skip


def test_long_and_deep_trees_are_stored_whole():
    """Numbers beyond those of a byte."""
    bracketed = "(X (A a) " * 300 + "(A a)" + ")" * 300
    sentence = Sentence.from_words(["a"] * 301, constituency=bracketed)
    wanted = phrase_columns(bracketed)
    for _ in range(2):  # made, then remembered
        found = phrases_of(sentence)
        for name in ("word_depths", "gap_depths", "gap_heads"):
            assert getattr(found, name).tolist() == getattr(wanted, name).tolist()
    assert wanted.word_depths.max() > 255


@pytest.mark.parametrize("n_words", [128, 129, 130])
def test_phrases_of_which_a_word_at_a_limit_is_head(n_words):
    """128 is one more than a signed byte holds."""
    bracketed = "(X (A a) (B" + " (A a)" * (n_words - 1) + "))"
    sentence = Sentence.from_words(["a"] * n_words, constituency=bracketed)
    wanted = phrase_columns(bracketed)
    assert wanted.gap_heads.max() == n_words - 1
    assert phrases_of(sentence).gap_heads.tolist() == wanted.gap_heads.tolist()


@pytest.mark.parametrize(
    ("bracketed", "by_labels"),
    [
        (DOG_BARKS, True),
        ("(S (NP (DT the) (SYM dog)) (X (INTJ barks)))", True),  # labels that both inventories have
        ("(S (NP (DET the) (NOUN dog)) (VP (VERB barks)))", False),
        ("(3 (2 (2 the) (2 dog)) (4 barks))", False),  # SST
        ("( ( (X the) (X dog)) (X barks))", False),  # SNLI
        ("( ( (DT the) (NN dog)) (VP (VBZ barks)))", False),  # categories of single words alone
    ],
)
def test_whose_heads_phrases_have(bracketed, by_labels):
    """Head rules of the Penn Treebank say "dog" of the noun phrase, the parse says "the"."""
    sentence = Sentence.from_words(["the", "dog", "barks"], governors=(-1, 0, 1), constituency=bracketed)
    by_parse = phrase_columns(bracketed, [-1, 0, 1])
    wanted = phrase_columns(bracketed) if by_labels else by_parse
    assert phrases_of(sentence).gap_heads.tolist() == wanted.gap_heads.tolist()
    assert by_parse.gap_heads.tolist() == [0, 0, 0]
    if by_labels:
        assert wanted.gap_heads.tolist()[:2] == [0, 1]


def test_lines_of_a_translator_have_heads_of_the_parse():
    sentence = Sentence.from_words(["the", "dog", "barks"], governors=(-1, 0, 1), constituency=DOG_BARKS)
    columns = WordColumns.from_sentences([sentence, sentence])
    heads = phrases_of_lines(columns).gap_heads.tolist()
    assert heads == 2 * phrase_columns(DOG_BARKS, [-1, 0, 1]).gap_heads.tolist()
    assert heads != 2 * phrase_columns(DOG_BARKS).gap_heads.tolist()


def test_a_cut_tree_of_phrases_has_a_node_for_heads_that_were_cut_off():
    whole = WordTrees.of_sentence(3, None, phrase_columns(DOG_BARKS))
    cut = cut_trees(whole, 2, 15)
    assert len(cut) == 3
    assert cut.phrases.gap_heads.tolist()[:2] == [min(head, 2) for head in whole.phrases.gap_heads[:2]]


@pytest.mark.parametrize("max_distance", [1, 2, 15])
def test_ancestors_are_kept_as_far_as_a_relation_reaches(max_distance):
    """a ← b ← c ← d, of which a is kept."""
    cut = cut_trees(WordTrees.of_sentence(4, [1, 2, 3, -1]), 1, max_distance)
    n_above = min(max_distance, 3)
    assert cut.governors.tolist() == [*range(1, 1 + n_above), -1]
