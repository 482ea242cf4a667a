"""Spoiled inputs: what is asked for changes, and nothing else."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from syntaxformer.analysis.ablation import Ablation, ablate_batch, ablate_factors
from syntaxformer.errors import ConfigError
from syntaxformer.infusion_config import TreeOptions
from syntaxformer.relations import dependency_relations

NAMES = ("pos", "case")
FACTORS = np.array([[3, 2], [4, 2], [5, 3], [6, 2], [0, 0]], np.int32)


def _drawn():
    return np.random.default_rng(3)


def test_factors_of_words_change_places_and_specials_keep_none():
    found = ablate_factors(FACTORS, NAMES, Ablation(shuffle=("pos",)), _drawn())
    assert found[:4, 0].tolist() != [3, 4, 5, 6]
    assert sorted(found[:4, 0]) == [3, 4, 5, 6]
    assert found[4].tolist() == [0, 0]
    assert found[:, 1].tolist() == FACTORS[:, 1].tolist()
    assert FACTORS[0, 0] == 3  # what was given is left alone


def test_a_blank_factor_has_no_value():
    found = ablate_factors(FACTORS, NAMES, Ablation(blank=("case",)), _drawn())
    assert found[:, 1].tolist() == [0] * 5
    assert found[:, 0].tolist() == FACTORS[:, 0].tolist()


@pytest.fixture
def batch():
    """Two trees of 'She reads old books': dependency twice; a special piece at each end."""
    relations = np.zeros((1, 2, 6, 6), np.uint8)
    relations[:, :, 1:5, 1:5] = dependency_relations([1, -1, 3, 1])
    return {
        "input_ids": torch.arange(6)[None],
        "syntax": torch.from_numpy(relations),
        "governors": torch.tensor([[0, 2, 2, 4, 2, 5]]),
        "first_pieces": torch.tensor([[False, True, True, True, True, False]]),
        "pos_ids": torch.tensor([[0, 5, 6, 7, 8, 0]]),
    }


def _kinds(relations):
    return sorted(relations.flatten().tolist())


def test_a_shuffled_tree_has_the_same_shape_over_other_words(batch):
    found = ablate_batch(batch, TreeOptions(), Ablation(shuffle=("dependency",)), _drawn())
    one, other = found["syntax"][0]
    assert _kinds(one) == _kinds(other)
    assert one.tolist() != other.tolist()
    assert other.tolist() == batch["syntax"][0, 1].tolist()
    assert not one[0].any()
    assert not one[:, 5].any()
    assert found["governors"] is not None
    assert found["governors"].tolist() == batch["governors"].tolist()


def test_blank_trees_and_kinds(batch):
    found = ablate_batch(batch, TreeOptions(), Ablation(blank=("constituency", "parent")), _drawn())
    one, other = found["syntax"][0]
    assert not other.any()
    assert not ((one > 0) & (one <= 15)).any()
    assert one[1, 2] == 15 + 1  # She is the child of reads
    assert one[1, 4] == 30 + 2  # She and books are siblings
    assert one[2, 1] == 0


def test_governors_keep_the_shape_of_the_tree(batch):
    found = ablate_batch(batch, None, Ablation(shuffle=("governors",)), _drawn())["governors"][0]
    words = range(1, 5)
    assert found.tolist() != batch["governors"][0].tolist()
    assert [found[0].item(), found[5].item()] == [0, 5]
    roots = [word for word in words if found[word] == word]
    assert len(roots) == 1
    pointed = sorted(sum(int(found[word] == place) for word in words) for place in words)
    assert pointed == [0, 0, 1, 3]  # old: none, She: none, books: one, reads: She, books and itself
    blank = ablate_batch(batch, None, Ablation(blank=("governors",)), _drawn())["governors"][0]
    assert blank.tolist() == [0, 1, 2, 3, 4, 5]


def test_tags_of_a_classifier(batch):
    found = ablate_batch(batch, None, Ablation(blank=("pos",)), _drawn())
    assert found["pos_ids"].tolist() == [[0] * 6]
    assert found["input_ids"] is batch["input_ids"]


def test_what_a_model_does_not_read():
    ablation = Ablation.parse(["pos, syntax", "parent"], ["kase"])
    assert (ablation.shuffle, ablation.blank) == (("pos", "syntax", "parent"), ("kase",))
    assert not Ablation()
    with pytest.raises(ConfigError) as error:
        ablation.check(("pos", "case"), (), False)
    assert error.value.problems == [
        "--shuffle: expected what the model reads, got syntax. Known: case, pos.",
        "--shuffle: expected what the model reads, got parent. Known: case, pos.",
        "--blank: expected what the model reads, got kase. Nearest: case.",
    ]
    with pytest.raises(ConfigError, match="It reads neither factors nor trees"):
        Ablation(shuffle=("pos",)).check((), (), False)
    Ablation(("syntax", "dependency"), ("pair", "child")).check((), ("dependency",), False)
