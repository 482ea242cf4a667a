import gzip

import pytest

from syntaxformer.base.errors import TreeError
from syntaxformer.trees import Tree, format_tree, parse_tree, parse_trees, read_ptb


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


def test_a_tree_of_5000_levels_and_one_of_5000_words_need_no_recursion():
    deep = "(X " * 5000 + "word" + ")" * 5000
    assert format_tree(parse_tree(deep)) == deep
    assert parse_tree(deep) == parse_tree(deep)
    wide = "(S" + " (NN w)" * 5000 + ")"
    assert len(parse_tree(wide).children) == 5000


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
