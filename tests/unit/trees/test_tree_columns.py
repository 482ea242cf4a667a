import pytest

from syntaxformer.base.errors import TreeError
from syntaxformer.trees import leaves_of, parse_tree, sentence_from_tree, tree_of_column


@pytest.mark.parametrize(
    ("text", "words", "label"),
    [
        ("(ROOT (S (NP (DT A) (NN girl)) (VP (VBZ dances))))", ("A", "girl", "dances"), "ROOT"),
        ("( (S (NP (DT A) (NN girl)) (VP (VBZ dances))))", ("A", "girl", "dances"), ""),
        ("(3 (2 It) (4 works))", ("It", "works"), "3"),
        ("( ( A girl ) dances )", ("A", "girl", "dances"), ""),
        ("( ( -LRB- A ) dances )", ("(", "A", "dances"), ""),
        ("Hello", ("Hello",), ""),
    ],
)
def test_labels_are_recognised(text, words, label):
    tree = tree_of_column(text)
    assert leaves_of(tree) == words
    assert tree.label == label


def test_trees_without_labels_come_back_from_their_sentence():
    sentence = sentence_from_tree(tree_of_column("( ( A girl ) dances )"), "A girl dances")
    assert sentence.constituency == "( ( (X A) (X girl)) (X dances))"
    assert leaves_of(parse_tree(sentence.constituency)) == sentence.words
    assert sentence.xpos is None
    assert sentence.offsets == ((0, 1), (2, 6), (7, 13))


def test_other_words_are_refused():
    with pytest.raises(TreeError, match="word 2: expected 'girl' at character 2"):
        sentence_from_tree(tree_of_column("( ( A girl ) dances )"), "A boy dances")
