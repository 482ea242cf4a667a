"""Head rules against the Penn Treebank sample's own dependencies; relations over whole treebanks."""

from __future__ import annotations

import gzip

import numpy as np
import pytest

from syntaxformer.syntax import constituency_relations
from syntaxformer.trees import leaves_of, read_ptb, remove_traces, strip_functions

pytestmark = pytest.mark.slow


def read_dependencies(path) -> list[list[int]]:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        blocks = file.read().strip().split("\n\n")
    rows = [[line for line in block.split("\n") if not line.startswith("# ")] for block in blocks]
    return [[int(line.rsplit("\t", 1)[1]) - 1 for line in row] for row in rows]


def governors_of(relations: np.ndarray, max_distance: int) -> list[int]:
    """The nearest ancestor of each word, -1 for none."""
    parents = np.where((relations > 0) & (relations <= max_distance), relations, 255)
    nearest = parents.argmin(axis=0)
    return np.where(parents.min(axis=0) < 255, nearest, -1).tolist()


def test_heads_of_the_penn_treebank_sample(data_root):
    folder = data_root / "ptb_sample"
    agreed = n_words = 0
    trees = read_ptb(folder / "trees.mrg.gz")
    for tree, expected in zip(trees, read_dependencies(folder / "dependency_treebank.tsv.gz"), strict=True):
        plain = strip_functions(remove_traces(tree))
        found = governors_of(constituency_relations(plain, 84), 84)
        assert len(found) == len(expected) == len(leaves_of(plain))
        # Their conversion attaches punctuation in its own way.
        for word, one, other in zip(leaves_of(plain), found, expected, strict=True):
            if any(character.isalnum() for character in word):
                agreed += one == other
                n_words += 1
    # What is left is convention: they take the last conjunct, the last noun in apposition, the verb over "to".
    # 86.7 % was measured.
    assert agreed / n_words > 0.86
