"""Trees of sentences, pairs and cut texts; batches over words, segments and pieces, derived by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from syntaxformer.base.errors import AlignmentError, TreeError
from syntaxformer.syntax import (
    WordColumns,
    WordTrees,
    constituency_relations,
    dependency_relations,
    pair_words_of_pieces,
    piece_relations,
    word_relations,
)
from syntaxformer.syntax.piece_relations import cut_trees, phrases_of, phrases_of_lines
from syntaxformer.syntax.relations import phrase_columns
from syntaxformer.trees import Sentence

DOGS = ([1, -1], "(S (NN Dogs) (VB bark))")
THE_CAT = ([1, 2, -1], "(S (NP (DT the) (NN cat)) (VB ran))")


def example(governors: list[int], tree: str) -> WordTrees:
    return WordTrees.of_sentence(len(governors), governors, phrase_columns(tree))


def test_single_sentences_of_different_length():
    relations = word_relations([example(*DOGS), example(*THE_CAT)])
    assert relations.shape == (2, 2, 5, 5)
    for row, (governors, tree) in enumerate((DOGS, THE_CAT)):
        n_words = len(governors)
        assert np.array_equal(relations[row, 0, :n_words, :n_words], dependency_relations(governors))
        assert np.array_equal(relations[row, 1, :n_words, :n_words], constituency_relations(tree))
        assert not relations[row, :, n_words:3].any()
        assert not relations[row, :, :, n_words:3].any()
    # The slot over all roots: dependency depth plus one; edges from the word to one above the top phrase.
    assert relations[:, 0, 3].tolist() == [[2, 1, 0, 0, 0], [3, 2, 1, 0, 0]]
    assert relations[:, 1, 3].tolist() == [[3, 3, 0, 0, 0], [4, 4, 3, 0, 0]]
    assert relations[:, 0, :, 3].tolist() == [[17, 16, 0, 0, 0], [18, 17, 16, 0, 0]]
    assert not relations[:, :, 4].any()
    assert not relations[:, :, :, 4].any()


def test_pairs():
    dogs = _with(example(*DOGS), near=[[0, 1], [2, 0]])
    the_cat = _with(example(*THE_CAT), near=[[0, 1, 2], [3, 0, 4], [5, 6, 0]])
    pair = WordTrees.of_pair(dogs, the_cat)
    assert pair.segments.tolist() == [0, 0, 1, 1, 1]
    assert pair.governors is not None
    assert pair.governors.tolist() == [1, -1, 3, 4, -1]
    assert pair.own["near"].tolist() == [
        [0, 1, 0, 0, 0], [2, 0, 0, 0, 0], [0, 0, 0, 1, 2], [0, 0, 3, 0, 4], [0, 0, 5, 6, 0],
    ]  # fmt: skip
    relations = word_relations([pair, WordTrees.of_pair(example(*DOGS), _empty())])
    for kind, of_dogs, of_the_cat in (
        (0, dependency_relations(DOGS[0]), dependency_relations(THE_CAT[0])),
        (1, constituency_relations(DOGS[1]), constituency_relations(THE_CAT[1])),
    ):
        expected = np.full((5, 5), 46)
        expected[:2, :2], expected[2:, 2:] = of_dogs, of_the_cat
        assert np.array_equal(relations[0, kind, :5, :5], expected)
        expected_alone = np.zeros((5, 5), int)
        expected_alone[:2, :2] = of_dogs
        assert np.array_equal(relations[1, kind, :5, :5], expected_alone)
    # [CLS] stands over the roots of both segments.
    assert relations[0, 0, 5].tolist() == [2, 1, 3, 2, 1, 0, 0]


def _empty() -> WordTrees:
    nothing = phrase_columns("(X x)")
    empty = type(nothing)(nothing.word_depths[:0], nothing.gap_depths[:0], nothing.gap_heads[:0])
    return WordTrees.of_sentence(0, [], empty)


def test_far_words_have_no_relation_to_the_root_slot():
    chain = WordTrees.of_sentence(5, [-1, 0, 1, 2, 3])
    relations = word_relations([chain], 3, trees=["dependency"])
    assert relations[0, 0, 5].tolist() == [1, 2, 3, 0, 0, 0, 0]
    assert relations[0, 0, :, 5].tolist() == [4, 5, 6, 0, 0, 0, 0]


def test_trees_in_the_order_asked_for():
    both = word_relations([example(*THE_CAT)], trees=["constituency", "dependency"])
    assert np.array_equal(both[:, ::-1], word_relations([example(*THE_CAT)]))
    leaves = word_relations([example(*THE_CAT)], trees=["constituency"], nodes="leaves")
    assert np.array_equal(leaves[0, 0, :3, :3], constituency_relations(THE_CAT[1], nodes="leaves"))


def test_no_examples():
    assert word_relations([]).shape == (0, 2, 2, 2)


def test_pieces():
    # [CLS] Do ##gs bark [PAD] | [CLS] the cat ran [SEP]
    relations = word_relations([example(*DOGS), example(*THE_CAT)], trees=["dependency"])
    words = [[-1, 0, 0, 1, -1], [-1, 0, 1, 2, -1]]
    of_pieces = piece_relations(relations, words, [0, 0])
    assert of_pieces.dtype == np.uint8
    assert of_pieces[0, 0].tolist() == [
        [0, 2, 2, 1, 0],
        [17, 0, 0, 16, 0],
        [17, 0, 0, 16, 0],
        [16, 1, 1, 0, 0],
        [0, 0, 0, 0, 0],
    ]
    assert of_pieces[1, 0, 0].tolist() == [0, 3, 2, 1, 0]
    assert np.array_equal(of_pieces[1, 0, 1:4, 1:4], dependency_relations(THE_CAT[0]))
    for bare in (
        piece_relations(relations, words),
        piece_relations(relations, words, [0, 0], "none"),
        piece_relations(relations, words, [-1, -1]),
    ):
        assert not bare[:, :, 0].any()
        assert np.array_equal(bare[:, :, 1:, 1:], of_pieces[:, :, 1:, 1:])


def test_a_special_at_the_end():
    relations = word_relations([example(*DOGS)], trees=["dependency"])
    assert piece_relations(relations, [[0, 1, -1]], [2])[0, 0, 2].tolist() == [2, 1, 0]


def test_words_of_pairs():
    # Pairs (2 words, 3 words) and (1, 1); pieces [CLS] 0 1 [SEP] | 0 1 2 [SEP], [CLS] 0 [SEP] | 0
    words, splits = pair_words_of_pieces(
        [-1, 0, 1, -1, 0, 1, 2, -1, -1, 0, -1, 0], [0, 4, 8, 11, 12], [0, 2, 5, 6, 7]
    )
    assert words.tolist() == [-1, 0, 1, -1, 2, 3, 4, -1, -1, 0, -1, 1]
    assert splits.tolist() == [0, 8, 12]


def test_refusals():
    plain = WordTrees.of_sentence(2, [1, -1])
    relations = word_relations([plain], trees=["dependency"])
    cases = [
        (ValueError, "trees", lambda: word_relations([plain], trees=[])),
        (ValueError, "trees: .* got syntax", lambda: word_relations([plain], trees=["syntax"])),  # type: ignore[list-item]
        (TreeError, "phrases", lambda: word_relations([plain])),
        (TreeError, "governors: expected 3 words, got 2", lambda: WordTrees.of_sentence(3, [1, -1])),
        (TreeError, "governors", lambda: WordTrees.of_pair(plain, WordTrees.of_sentence(1))),
        (TreeError, "near", lambda: WordTrees.of_pair(_with(plain, near=[[0, 1], [1, 0]]), plain)),
        (TreeError, "near", lambda: WordTrees.of_pair(plain, _with(plain, near=[[0, 1], [1, 0]]))),
        (ValueError, "specials: .*'all'", lambda: piece_relations(relations, [[0]], [0], "all")),  # type: ignore[arg-type]
        (AlignmentError, "words_of_pieces: .*got \\[2, 1\\]", lambda: piece_relations(relations, [[0], [0]])),
        (AlignmentError, "words_of_pieces: expected -1 to 1, .*got 0 to 2", lambda: piece_relations(relations, [[0, 2]])),
        (AlignmentError, "row_splits: .*got 1 ", lambda: pair_words_of_pieces([0], [0, 1], [0, 1])),
    ]  # fmt: skip
    for kind, where, call in cases:
        with pytest.raises(kind, match=f"^{where}"):
            call()


DOG_BARKS = "(S (NP (DT the) (NN dog)) (VP (VBZ barks)))"


def _with(trees, **own):
    return replace(trees, own={name: np.array(ids) for name, ids in own.items()})


@pytest.mark.parametrize(
    "bracketed",
    [
        "(X (A a) " * 300 + "(A a)" + ")" * 300,  # deeper than a byte counts
        *(
            "(X (A a) (B" + " (A a)" * n_words + "))" for n_words in (127, 128, 129)
        ),  # whose last word is head
    ],
)
def test_phrases_are_stored_whole(bracketed):
    """Numbers at and beyond those of a signed byte and of a byte."""
    sentence = Sentence.from_words(["a"] * bracketed.count("a"), constituency=bracketed)
    expected = phrase_columns(bracketed)
    assert max(array.max() for array in expected.arrays) >= 127
    for _ in range(2):  # made, then remembered
        for array, expected_array in zip(phrases_of(sentence).arrays, expected.arrays, strict=True):
            assert array.tolist() == expected_array.tolist()


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
    expected = phrase_columns(bracketed) if by_labels else by_parse
    assert phrases_of(sentence).gap_heads.tolist() == expected.gap_heads.tolist()
    assert by_parse.gap_heads.tolist() == [0, 0, 0]
    if by_labels:
        assert expected.gap_heads.tolist()[:2] == [0, 1]


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
