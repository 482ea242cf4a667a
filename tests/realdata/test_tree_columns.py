"""The tree columns of every corpus at hand that has one: read, fitted to their text, and read again."""

import gzip
import json

import pytest

from syntaxformer.trees import (
    leaves_of,
    parse_tree,
    read_ptb,
    sentence_from_tree,
    spans_of,
    strip_root,
    tree_of_column,
)

pytestmark = pytest.mark.slow


def rows(path):
    with gzip.open(path, "rt", encoding="utf-8") as file:
        yield from map(json.loads, file)


@pytest.mark.parametrize(("split", "n_pairs"), [("train", 4500), ("trial", 500), ("test", 4927)])
def test_sick(data_root, split, n_pairs):
    n_read = 0
    for row in rows(data_root / "sick" / f"{split}.jsonl.gz"):
        n_read += 1
        for side in ("sentence1", "sentence2"):
            sentence = sentence_from_tree(tree_of_column(row[f"{side}_binary_parse"]))
            assert leaves_of(parse_tree(sentence.constituency)) == sentence.words
            assert sentence.words == leaves_of(parse_tree(row[f"{side}_binary_parse"], labels=False))
    assert n_read == n_pairs


def test_snli(data_root):
    pairs = list(rows(data_root / "snli" / "dev_subset_parsed.jsonl.gz"))
    assert len(pairs) == 2566
    for pair in pairs:
        for side in ("sentence1", "sentence2"):
            sentence = sentence_from_tree(tree_of_column(pair[f"{side}_parse"]), pair[side])
            assert sentence.xpos is not None
            assert tree_of_column(sentence.constituency) == strip_root(tree_of_column(pair[f"{side}_parse"]))


@pytest.mark.parametrize(("split", "n_trees"), [("train", 8544), ("dev", 1101), ("test", 2210)])
def test_sst_has_a_sentiment_at_every_phrase(data_root, split, n_trees):
    path = data_root / "sst" / f"{split}.txt.gz"
    trees = list(read_ptb(path))
    assert len(trees) == n_trees
    with gzip.open(path, "rt", encoding="utf-8") as file:
        for tree, line in zip(trees, file, strict=True):
            assert tree_of_column(line) == tree
            assert {span.label for span in spans_of(tree)} <= set("01234")
