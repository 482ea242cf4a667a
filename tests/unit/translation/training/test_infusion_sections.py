"""Recipes with infusion kinds, lisa, masks and biases: what they resolve to and what they refuse."""

from __future__ import annotations

from types import SimpleNamespace
from unittest.mock import MagicMock

import numpy as np
import pytest
import torch

from syntaxformer.base.errors import ConfigError
from syntaxformer.runs.trainer import TallyBook
from syntaxformer.translation.recipe import load_recipe
from syntaxformer.translation.training import describe


def _problems(*overrides: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load_recipe("tiny", overrides)
    return [problem.partition(".yaml: ")[2] or problem for problem in caught.value.problems]


@pytest.mark.parametrize(
    ("settings", "in_training", "outside"),
    [
        (["lisa.supervised=false"], False, False),
        (["lisa={}"], True, False),
        (["lisa.inject=gold"], True, True),
        (["lisa={supervised: false, inject: gold}"], True, True),
    ],
)
def test_when_governors_are_needed(settings, in_training, outside):
    recipe = load_recipe("tiny", settings)
    assert recipe.syntax_inputs(training=True).governors == in_training
    assert recipe.syntax_inputs(training=False).governors == outside


def test_a_bias_is_of_the_trees_of_masks():
    bias = load_recipe(
        "tiny", ["masks={max_distance: 7, without: [sibling]}", "relation_bias={}"]
    ).infusion.relation_bias
    assert (bias.max_distance, bias.without) == (7, ("sibling",))


def test_the_header_says_what_is_trained():
    model = SimpleNamespace(parameters=lambda: [torch.zeros(7)], config=SimpleNamespace(vocab_size=11))
    pairs = MagicMock(tgt=SimpleNamespace(lengths=np.array([3, 2])), __len__=lambda _: 2)
    data = SimpleNamespace(train=pairs)
    recipe = load_recipe(
        "tiny",
        [
            *("infusion.kind=none", "masks={mode: additive, trees: [dependency]}", "lisa={layers: [0]}"),
            *("predict_target_pos.annotator=de", "training.precision=fp32"),
        ],
    )
    parts = "masks (trees dependency, mode additive), lisa (layers 0), predict_target_pos (annotator de)"
    counts = "0.00M parameters, 11 pieces; 2 pairs, 5 target pieces; fp32"
    width = recipe.model.d_model
    assert describe(recipe, model, data) == f"none: {width} (word) = {width}; {parts}; {counts}"
    plain = load_recipe("tiny", ["infusion.kind=none", "training.precision=fp32"])
    assert describe(plain, model, data) == f"none: {width} (word) = {width}; {counts}"


def test_shorthands_stand_for_parts_of_the_infusion():
    short = [
        "infusion.kind=concat",
        "infusion.widths={pos: 12, case: 3, subword: 5}",
        "masks={}",
        "lisa.weight=0.3",
    ]
    full = ["infusion.embedding.kind=concat", "infusion.embedding.widths={pos: 12, case: 3, subword: 5}",
            "infusion.masks={}", "infusion.lisa.weight=0.3"]  # fmt: skip
    assert load_recipe("tiny", short) == load_recipe("tiny", full)
    assert load_recipe("tiny", ["infusion.masks={}", "masks=null"]).infusion.masks is None


@pytest.mark.parametrize(
    ("settings", "keys"),
    [
        (["infusion.factors=[pos]"], ["infusion.factors"]),
        (["infusion.kind=add", "infusion.place=prefix", "infusion.tag_layers=2"], ["infusion.place", "infusion.tag_layers"]),
        (["infusion.kind=prepend", "infusion.factors=[pos, subword]"], ["infusion.factors"]),
        (["lisa={layers: [2], attn_head: 4, keys: model}", "masks={layers: [0, -1]}"], ["masks.layers", "lisa.layers", "lisa.attn_head", "lisa.keys"]),
        (["masks.max_distance=7", "relation_bias.max_distance=5"], ["infusion: relation_bias.max_distance"]),
        (["lisa={layers: []}", "masks={layers: []}", "relation_bias={layers: []}"], ["masks.layers", "relation_bias.layers", "lisa.layers"]),
        (["relation_bias={without: [parent, child, sibling]}"], ["relation_bias.without"]),
        (["infusion.seed=3"], ["infusion.seed"]),
        (["lisa.wieght=2"], ["infusion.lisa.wieght: unknown key. Nearest: weight."]),
    ],
)  # fmt: skip
def test_what_is_refused(settings, keys):
    problems = _problems(*settings)
    assert len(problems) == len(keys)
    assert all(problem.startswith(key) for problem, key in zip(problems, keys, strict=True)), problems


def test_an_unknown_key_hides_no_arithmetic():
    problems = _problems("infusion.kind=sum_then_concat", "infusion.width=200", "infusion.wdith=3", "modle=1")
    assert [problem.partition(":")[0] for problem in problems] == [
        "infusion.wdith",
        "modle",
        "infusion widths",
    ]


def test_tallies_are_sums_over_batches():
    book = TallyBook()
    for tallies in ({"a": (1, 4)}, None, {"a": (5, 8), "b": (0, 0)}):
        book.add(tallies)
    assert book.take() == {"a": 0.5, "b": 0.0}
    assert book.take() == {}
