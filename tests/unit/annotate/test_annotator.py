"""What all annotators share, and sentences of a parser put together to lines, by hand-made parses."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from syntaxformer.annotate.annotator import ParsedSentence, SpacedWords, join_parsed
from syntaxformer.annotate.backends.corenlp import upos_of_penn
from syntaxformer.annotate.backends.stanza import copy_tree
from syntaxformer.base.errors import DataError
from syntaxformer.trees import Sentence, format_tree, parse_tree
from syntaxformer.trees.constituency import tree_over_words


def test_a_string_is_no_list_of_lines():
    message = r"^lines: expected a list of strings, got the string 'the cat'\. Put it into a list\.$"
    with pytest.raises(TypeError, match=message):
        SpacedWords().annotate("the cat")
    assert [sentence.text for sentence in SpacedWords().annotate(["the cat", ""])] == ["the cat", ""]


def test_columns_of_a_parser_may_be_arrays():
    """Most parsers give governors as an array, which has no truth value and no hash."""
    sentence = Sentence(
        "a cat", ["a", "cat"], np.array([[0, 1], [2, 5]]), governors=np.array([1, -1]), upos=["DET", "NOUN"]
    )
    assert sentence == Sentence(
        "a cat", ("a", "cat"), ((0, 1), (2, 5)), governors=(1, -1), upos=("DET", "NOUN")
    )
    assert {type(governor) for governor in sentence.governors} == {int}
    assert hash(sentence) == hash(Sentence(**vars(sentence)))


EVERYTHING = frozenset({"upos", "xpos", "lemmas", "governors", "deprels", "constituency"})


def parsed(words, start, governors, tree=None, **tags):
    spans = []
    for word in words:
        spans.append((start, start + len(word)))
        start += len(word) + 1
    return ParsedSentence(words, spans, {"upos": ["X"] * len(words), **tags}, governors, tree)


def test_two_sentences_of_a_line_have_two_roots_and_one_tree():
    first = parsed(["it", "rains"], 0, [1, -1], parse_tree("(ROOT (S (NP it) (VP rains)))"))
    second = parsed(
        ["go", "on"], 9, [-1, 0], parse_tree("(ROOT (S (VP (VB go) (RP on))))"), lemmas=["go", None]
    )
    sentence = join_parsed("it rains go on", [first, second], EVERYTHING)
    assert sentence.words == ("it", "rains", "go", "on")
    assert sentence.governors == (1, -1, -1, 2)
    assert sentence.roots == (1, 2)
    assert sentence.deprels == ("dep", "root", "root", "dep")
    assert sentence.lemmas == ("_", "_", "go", "_")
    assert sentence.offsets[2] == (9, 11)
    assert sentence.constituency == "(S (S (NP it) (VP rains)) (S (VP (VB go) (RP on))))"


def test_a_sentence_without_a_tree_among_others_gets_a_flat_one():
    first = parsed(["a", "b"], 0, [-1, 0], None, xpos=["DT", None])
    second = parsed(["c"], 4, [-1], parse_tree("(NP (NN c))"))
    assert (
        join_parsed("a b c", [first, second], EVERYTHING).constituency == "(S (S (DT a) (X b)) (NP (NN c)))"
    )


def test_leaves_become_the_words_even_with_white_space_in_them():
    tree = parse_tree("(S (NP (-LRB- -LRB-) (NN x)) (VP y))")
    assert (
        format_tree(tree_over_words(tree, ["(", "hoc sinh", "]"]))
        == "(S (NP (-LRB- -LRB-) (NN hoc\u00a0sinh)) (VP -RSB-))"
    )
    with pytest.raises(DataError, match=r"^parser: .*got one over 3\."):
        tree_over_words(tree, ["a"])


def test_trees_of_other_libraries_are_copied_however_deep():
    leaf = node = SimpleNamespace(label="word", children=[])
    for _ in range(5000):
        node = SimpleNamespace(label="P", children=[node])
    assert format_tree(copy_tree(node)).count("(P") == 5000
    assert copy_tree(leaf).children == ("word",)


def test_penn_tags_become_universal_ones_by_tag_and_relation():
    words = ["That", "can", "n't", "be", "to", "me", "what", "it", "is", "$", "zz"]
    tags = ["DT", "MD", "RB", "VB", "TO", "PRP", "WP", "PRP", "VBZ", "$", None]
    deprels = ["nsubj", "aux", "advmod", "cop", "case", "obl", "ccomp", "nsubj", "aux:pass", "dep", "dep"]
    expected = ["PRON", "AUX", "PART", "AUX", "ADP", "PRON", "PRON", "PRON", "AUX", "SYM", "X"]
    assert upos_of_penn(words, tags, deprels) == expected
    assert upos_of_penn(["That"], ["DT"], [None]) == ["DET"]
