import pytest

from bracket_score import bracket_score, bracket_spans
from syntaxformer.base.errors import TreeError
from syntaxformer.trees import parse_tree

GOLD = parse_tree("(S (NP (DT the) (NN dog)) (VP (VBZ sees) (NP (DT a) (NN cat))) (. .))")
FLAT = parse_tree("(S (NP (DT the) (NN dog)) (VBZ sees) (NP (DT a) (NN cat) (. .)))")


def test_distinct_spans_of_two_words_or_more():
    assert bracket_spans(GOLD) == {(0, 6), (0, 2), (2, 5), (3, 5)}
    assert bracket_spans(parse_tree("(ROOT (S (NP (NP (DT the) (NN dog)))))")) == {(0, 2)}
    assert bracket_spans(GOLD, punctuation=False) == {(0, 5), (0, 2), (2, 5), (3, 5)}


def test_score():
    score = bracket_score([(FLAT, GOLD), (GOLD, GOLD)])
    assert score == (2 + 4, 3 + 4, 4 + 4)
    assert (score.precision, score.recall, score.f1) == (6 / 7, 6 / 8, 12 / 15)
    assert bracket_score([(FLAT, GOLD)], punctuation=False) == (3, 3, 4)
    assert bracket_score([]).f1 == 0


def test_other_words_are_refused():
    with pytest.raises(TreeError) as caught:
        bracket_score([(parse_tree("(S (NN a))"), parse_tree("(S (NN b))"))])
    assert str(caught.value) == "tree: expected the words 'b', got 'a'."
