from __future__ import annotations

import numpy as np
import pytest

from syntaxformer.base.errors import TreeError
from syntaxformer.syntax import constituency_relations
from syntaxformer.syntax.relations import phrase_columns
from syntaxformer.trees import parse_tree

P, C, S = 0, 15, 30
DOG = "(S (NP (DT The) (NN dog)) (VP (VBD chased) (NP (NNS cats))) (. .))"


def test_john_slipped():
    # John - NNP - NP - S: three edges up to the phrase that "slipped" heads.
    tree = "(S (NP (NNP John)) (VP (VBD slipped)))"
    assert constituency_relations(tree).tolist() == [[0, C + 3], [P + 3, 0]]
    assert constituency_relations(tree, nodes="leaves").tolist() == [[0, S + 6], [S + 6, 0]]


def test_columns():
    columns = phrase_columns(DOG)
    assert columns.word_depths.tolist() == [3, 3, 3, 4, 2]
    # The NP of "dog" below S; then S, whose head is "chased"; then VP; then S.
    assert columns.gap_depths.tolist() == [-1, 1, 0, 1, 0]
    assert columns.gap_heads.tolist() == [0, 1, 2, 2, 2]


def test_headed():
    # dog heads NP, chased heads VP and S, cats its own NP.
    relations = constituency_relations(DOG)
    assert relations.dtype == np.uint8
    assert relations.tolist() == [
        [0, C + 2, C + 3, S + 7, S + 5],
        [P + 2, 0, C + 3, S + 7, S + 5],
        [P + 3, P + 3, 0, P + 3, P + 2],
        [S + 7, S + 7, C + 3, 0, S + 6],
        [S + 5, S + 5, C + 2, S + 6, 0],
    ]


def test_trees_without_labels_take_their_heads_from_governors():
    # Without labels the last word would head all; the dependency tree knows better.
    tree = "( ( the dog ) ( chased cats ) )"
    assert constituency_relations(tree, governors=[1, 2, -1, 2]).tolist() == [
        [0, C + 1, C + 2, S + 4],
        [P + 1, 0, C + 2, S + 4],
        [P + 2, P + 2, 0, P + 1],
        [S + 4, S + 4, C + 1, 0],
    ]
    assert constituency_relations(tree)[3].tolist() == [P + 2, P + 2, P + 1, 0]
    assert phrase_columns("( a b )", [-1, -1]).gap_heads[1] == 0, "of two roots the first"


@pytest.mark.parametrize(
    ("tree", "heads"),
    [
        # punctuation without a tag heads nothing
        ("( ( A girl ) ( dances . ) )", [0, 1, 2, 2]),
        ("( dances ( ! '' ) )", [0, 0, 2]),  # so does a phrase of marks alone
        ("(3 (2 It) (4 (4 works) (2 .)))", [0, 1, 1]),
        ("(X (X so) (X ...))", [0, 0]),
        ("(NN (NN so) (NN ...))", [0, 1]),  # here the tag decides
        # universal tags that stand for several of Penn's
        ("(VP (AUX did) (PART not) (VERB go))", [0, 0, 0]),
        ("(VP (PART To) (VP (VERB go)))", [0, 0]),  # as in (VP (TO to) (VP ...))
        ("(VP (PART zu) (VP (VERB gehen)))", [0, 0]),
        ("(VP (PART nicht) (VP (VERB gehen)))", [0, 1]),
        ("(NP (NOUN apples) (PUNCT ,) (NOUN pears) (CCONJ and) (NOUN plums))", [0, 0, 0, 0, 0]),
    ],
)
def test_heads_of_phrases(tree, heads):
    assert phrase_columns(tree).gap_heads.tolist() == heads


def test_unary_phrases_count_as_edges_and_a_tree_may_be_given():
    tree = parse_tree("(X (A (B a)) b)")
    assert constituency_relations(tree).tolist() == [[0, C + 3], [P + 3, 0]]


def test_one_word_and_very_deep():
    assert constituency_relations("(S (NN word))").tolist() == [[0]]
    deep = "(X " * 3_000 + "a" + ")" * 2_999 + " b)"
    assert constituency_relations(deep).tolist() == [[0, 0], [0, 0]]
    words = 700
    right = "".join(f"(X w{n} " for n in range(words)) + "z" + ")" * words
    relations = constituency_relations(right, 15)
    # z heads everything; word n hangs one edge below the phrase that joins it to z.
    assert relations[words, :words].tolist() == [1] * words
    assert relations[0, 1:14].tolist() == [S + distance for distance in range(3, 16)]


def test_refusals():
    with pytest.raises(TreeError, match=r"^governors: expected 5, one per word of the tree, got 2\.$"):
        constituency_relations(DOG, governors=[-1, 0])
    with pytest.raises(ValueError, match=r"^nodes: expected one of headed, leaves, got 'heads'\.$"):
        constituency_relations(DOG, nodes="heads")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"^max_distance: .*got 0\."):
        constituency_relations(DOG, 0)
