"""Every treebank file at hand is read, and what was read is written and read again."""

import pytest

from syntaxformer.trees import (
    format_conllu,
    format_tree,
    parse_conllu,
    parse_tree,
    read_conllu,
    read_ptb,
    sentence_from_tree,
)

pytestmark = pytest.mark.slow

UD = {
    "de_gsd-ud-dev": 799,
    "de_gsd-ud-test": 977,
    "de_pud-ud-test": 1000,
    "en_ewt-ud-dev": 2001,
    "en_ewt-ud-test": 2077,
    "en_ewt-ud-train": 12544,
}


@pytest.mark.parametrize(("name", "n_sentences"), UD.items())
def test_universal_dependencies(data_root, name, n_sentences):
    sentences = list(read_conllu(data_root / "ud" / f"{name}.conllu.gz"))
    assert len(sentences) == n_sentences
    assert all(len(sentence.roots) == 1 for sentence in sentences)
    written = "".join(map(format_conllu, sentences))
    assert list(parse_conllu(written.split("\n"))) == sentences
    assert "TextRange" not in written


def test_penn_treebank_sample(data_root):
    trees = list(read_ptb(data_root / "ptb_sample" / "trees.mrg.gz"))
    assert len(trees) == 3914
    for tree in trees:
        assert parse_tree(format_tree(tree)) == tree
        assert sentence_from_tree(tree).xpos is not None
