import pytest

from syntaxformer.base.errors import TreeError
from syntaxformer.trees import (
    Span,
    leaves_of,
    parse_tree,
    remove_traces,
    sentence_from_tree,
    spans_of,
    strip_functions,
    strip_root,
    tags_of,
    tree_of_column,
)

WSJ = (
    "( (S (NP-SBJ-1 (DT The) (NN plant)) (VP (VBD was) (VP (VBN built) (NP (-NONE- *-1)) (PP=2 (IN by)"
    " (NP-LGS (NNP X))))) (. .)))"
)


def test_words_tags_and_spans():
    tree = parse_tree("(S (NP (NNP John)) (VP (VBD slipped) (PRT|ADVP (RP off))))")
    assert leaves_of(tree) == ("John", "slipped", "off")
    assert tags_of(tree) == ("NNP", "VBD", "RP")
    assert spans_of(tree) == (
        Span("S", 0, 3),
        Span("NP", 0, 1),
        Span("NNP", 0, 1),
        Span("VP", 1, 3),
        Span("VBD", 1, 2),
        Span("PRT|ADVP", 2, 3),
        Span("RP", 2, 3),
    )


def test_traces_functions_and_root_are_removed():
    tree = strip_root(strip_functions(remove_traces(parse_tree(WSJ))))
    assert str(tree) == (
        "(S (NP (DT The) (NN plant)) (VP (VBD was) (VP (VBN built) (PP (IN by) (NP (NNP X))))) (. .))"
    )


def test_roots_of_two_phrases_and_labels_of_sentiments():
    tree = parse_tree("( (A b) (C d))")
    assert strip_root(tree) == tree
    sentence = sentence_from_tree(parse_tree("(3 (2 It) (4 works))"))
    assert (sentence.text, sentence.xpos) == ("It works", None)


def test_function_stripping_keeps_labels_that_begin_with_a_dash():
    assert str(strip_functions(parse_tree("(PRT|ADVP (-NONE- *) (-LRB- -LRB-))"))) == (
        "(PRT (-NONE- *) (-LRB- -LRB-))"
    )


def test_a_tree_of_traces_only_is_refused():
    with pytest.raises(TreeError, match=r"^tree: .*got '\(S \(\-NONE\- \*\)\)'\."):
        remove_traces(parse_tree("(S (-NONE- *))"))


def test_sentence_from_a_tagged_tree():
    sentence = sentence_from_tree(parse_tree(WSJ), "The plant was built by X.")
    assert sentence.words == ("The", "plant", "was", "built", "by", "X", ".")
    assert sentence.xpos == ("DT", "NN", "VBD", "VBN", "IN", "NNP", ".")
    assert sentence.offsets[-2:] == ((23, 24), (24, 25))
    assert "-NONE-" not in sentence.constituency


@pytest.mark.parametrize("outer", ["({})", "(ROOT {})", "(TOP (S1 {}))"])
def test_outer_brackets_are_no_phrases(outer):
    """Else words of a file would stand an edge further from the root than those of a parser."""
    inner = "(S (NN dog) (VB barks))"
    assert sentence_from_tree(parse_tree(outer.format(inner))).constituency == inner


def test_sentence_that_does_not_fit_its_tree_is_refused():
    with pytest.raises(TreeError, match="word 2: expected 'works' at character 3"):
        sentence_from_tree(parse_tree("(3 (2 It) (4 works))"), "It fails")


def test_deep_trees_need_no_recursion():
    tree = parse_tree("(X " * 5000 + "word" + ")" * 5000)
    assert len(spans_of(tree)) == 5000
    assert remove_traces(tree) == strip_functions(tree) == tree
    assert sentence_from_tree(tree).words == ("word",)


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
