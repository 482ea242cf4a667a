"""Every treebank file at hand is read, and what was read is written and read again."""

import gzip
import json

import pytest

from syntaxformer.trees import (
    format_conllu,
    format_tree,
    leaves_of,
    parse_conllu,
    parse_tree,
    read_conllu,
    read_ptb,
    sentence_from_tree,
)

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


@pytest.mark.parametrize(("split", "n_trees"), [("train", 8544), ("dev", 1101), ("test", 2210)])
def test_sentiment_treebank(data_root, split, n_trees):
    trees = list(read_ptb(data_root / "sst" / f"{split}.txt.gz"))
    assert len(trees) == n_trees
    assert {len(tree.children) for tree in trees} <= {1, 2}


def test_snli_parses_fit_their_sentences(data_root):
    with gzip.open(data_root / "snli" / "dev_subset_parsed.jsonl.gz", "rt", encoding="utf-8") as file:
        for pair in map(json.loads, file):
            for side in ("sentence1", "sentence2"):
                tree = parse_tree(pair[f"{side}_parse"])
                sentence = sentence_from_tree(tree, pair[side])
                assert len(sentence) == len(leaves_of(tree))
                assert sentence.text == pair[side]


def test_sick_binary_parses(data_root):
    with gzip.open(data_root / "sick" / "trial.jsonl.gz", "rt", encoding="utf-8") as file:
        for pair in map(json.loads, file):
            words = leaves_of(parse_tree(pair["sentence1_binary_parse"], labels=False))
            assert words[0] in pair["sentence1"]
