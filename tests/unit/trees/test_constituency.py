"""Bracketed trees: reading and writing, words, tags and spans, what is stripped, sentences of trees."""

import gzip

import pytest

from syntaxformer.base.errors import TreeError
from syntaxformer.trees import (
    Tree,
    format_tree,
    leaves_of,
    parse_tree,
    parse_trees,
    read_ptb,
    remove_traces,
    sentence_from_tree,
    spans_of,
    strip_functions,
    strip_root,
    tags_of,
    tree_of_column,
)


def test_reads_a_small_tree():
    tree = parse_tree("(S (NP (NNP John)) (VP (VBD slipped)))")
    assert tree == Tree(
        "S", (Tree("NP", (Tree("NNP", ("John",)),)), Tree("VP", (Tree("VBD", ("slipped",)),)))
    )
    assert tree.children[0].children[0].word == "John"
    assert tree.word is None
    assert hash(tree) == hash(parse_tree(str(tree)))
    assert repr(tree) == "Tree('(S (NP (NNP John)) (VP (VBD slipped)))')"
    assert tree != parse_tree("(S (NP (NNP John)) (VP (VBD sat)))")


@pytest.mark.parametrize(
    "text",
    [
        "(ROOT (S (NN dog)))",
        "( (S (NN dog)))",
        "(3 (2 It) (4 's))",
        "(NP (-LRB- -LRB-) (NN dog) (-RRB- -RRB-))",
        "(NN 2\u00a01/2)",
    ],
)
def test_written_as_read(text):
    assert format_tree(parse_tree(text)) == text


def test_backslashes_before_slashes_and_stars_go_in_words_only():
    assert parse_tree("(-LRB- :-RRB-)") == Tree("-LRB-", (":)",))
    tree = parse_tree(r"(A\/B (CD 11\/16) (SYM \*\*) (NN a\b))")
    assert tree == Tree(r"A\/B", (Tree("CD", ("11/16",)), Tree("SYM", ("**",)), Tree("NN", (r"a\b",))))
    assert format_tree(tree) == r"(A\/B (CD 11/16) (SYM **) (NN a\b))"


@pytest.mark.parametrize("word", [r"\/", r"a\\*", r"\(1\/2)", "1/2", "\\"])
def test_real_backslashes_are_read_as_written(word):
    tree = Tree("X", (word,))
    assert parse_tree(format_tree(tree)) == tree


def test_binary_parses_have_words_only():
    tree = parse_tree("( ( A girl ) dances )", labels=False)
    assert tree == Tree("", (Tree("", ("A", "girl")), "dances"))
    assert parse_tree("Hello", labels=False) == Tree("", ("Hello",))


def test_trees_over_several_lines_and_several_on_a_line(tmp_path):
    path = tmp_path / "wsj.mrg.gz"
    with gzip.open(path, "wt") as file:
        file.write("\n( (S\n   (NP (NN dog) )\n   (VBZ barks) ))\n\n(A b) (C d)\n")
    assert [str(tree) for tree in read_ptb(path)] == ["( (S (NP (NN dog)) (VBZ barks)))", "(A b)", "(C d)"]


@pytest.mark.parametrize(
    ("lines", "where"),
    [
        (["(A b)", "(S (NP", "(NN a)", ""], r"x.mrg:2: tree: expected 2 .* line 4\."),
        (["(A b)", ") (C d)"], r"x.mrg:2: tree: .*'\)'"),
        (["word (A b)"], "x.mrg:1: tree: .*'word'"),
        (["(NP)"], "x.mrg:1: tree: .*'NP'"),
        (["(S ())"], "x.mrg:1: tree: .*''"),
    ],
)
def test_brackets_that_do_not_match_are_refused_with_file_and_line(lines, where):
    with pytest.raises(TreeError, match=f"^{where}"):
        list(parse_trees(lines, path="x.mrg"))


def test_what_cannot_be_read_as_one_tree_or_written_is_refused():
    with pytest.raises(TreeError, match=r"^tree: expected one tree, got 2"):
        parse_tree("(A b) (C d)")
    with pytest.raises(TreeError, match="word of a tree: expected characters without white space, got 'a b'"):
        format_tree(Tree("X", ("a b",)))
    with pytest.raises(TreeError, match=r"^label of a tree: .*got 'X\('"):
        format_tree(Tree("X(", ("a",)))
    with pytest.raises(TreeError, match=r"^tree: .*got '\(S \(\-NONE\- \*\)\)'\."):
        remove_traces(parse_tree("(S (-NONE- *))"))


WSJ = (
    "( (S (NP-SBJ-1 (DT The) (NN plant)) (VP (VBD was) (VP (VBN built) (NP (-NONE- *-1)) (PP=2 (IN by)"
    " (NP-LGS (NNP X))))) (. .)))"
)


def test_words_tags_and_spans():
    tree = parse_tree("(S (NP (NNP John)) (VP (VBD slipped) (PRT|ADVP (RP off))))")
    assert leaves_of(tree) == ("John", "slipped", "off")
    assert tags_of(tree) == ("NNP", "VBD", "RP")
    spans = " ".join(f"{label}:{start}-{end}" for label, start, end in spans_of(tree))
    assert spans == "S:0-3 NP:0-1 NNP:0-1 VP:1-3 VBD:1-2 PRT|ADVP:2-3 RP:2-3"


def test_traces_functions_and_root_are_removed_but_no_label_that_begins_with_a_dash():
    tree = strip_root(strip_functions(remove_traces(parse_tree(WSJ))))
    assert str(tree) == (
        "(S (NP (DT The) (NN plant)) (VP (VBD was) (VP (VBN built) (PP (IN by) (NP (NNP X))))) (. .))"
    )
    dashes = strip_functions(parse_tree("(PRT|ADVP (-NONE- *) (-LRB- -LRB-))"))
    assert str(dashes) == "(PRT (-NONE- *) (-LRB- -LRB-))"


def test_roots_of_two_phrases_and_labels_of_sentiments():
    tree = parse_tree("( (A b) (C d))")
    assert strip_root(tree) == tree
    sentence = sentence_from_tree(parse_tree("(3 (2 It) (4 works))"))
    assert (sentence.text, sentence.xpos) == ("It works", None)


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


def test_deep_and_wide_trees_need_no_recursion():
    text = "(X " * 5000 + "word" + ")" * 5000
    tree = parse_tree(text)
    assert format_tree(tree) == text
    assert len(spans_of(tree)) == 5000
    assert remove_traces(tree) == strip_functions(tree) == tree
    assert sentence_from_tree(tree).words == ("word",)
    assert len(parse_tree("(S" + " (NN w)" * 5000 + ")").children) == 5000


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
    assert (leaves_of(tree), tree.label) == (words, label)


def test_trees_without_labels_come_back_from_their_sentence():
    sentence = sentence_from_tree(tree_of_column("( ( A girl ) dances )"), "A girl dances")
    assert sentence.constituency == "( ( (X A) (X girl)) (X dances))"
    assert leaves_of(parse_tree(sentence.constituency)) == sentence.words
    assert sentence.xpos is None
    assert sentence.offsets == ((0, 1), (2, 6), (7, 13))
    with pytest.raises(TreeError, match="word 2: expected 'girl' at character 2"):
        sentence_from_tree(tree_of_column("( ( A girl ) dances )"), "A boy dances")
