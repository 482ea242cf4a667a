"""`InfusionConfig`: the command line's shorthand, JSON, and what it refuses."""

from __future__ import annotations

import json
import re

import pytest

from syntaxformer.base.errors import ConfigError
from syntaxformer.encoders.finetune_config import load_finetune
from syntaxformer.infusion.config import InfusionConfig, MaskConfig
from syntaxformer.trees import Sentence


@pytest.mark.parametrize(
    ("names", "on"),
    [("none", set()), ("", set()), ("masks", {"masks"}), ("masks, lisa,pos_add", {"masks", "lisa", "embedding"}),
     ("relation_bias,let", {"relation_bias", "embedding"})],
)  # fmt: skip
def test_shorthand(names, on):
    config = InfusionConfig.parse(names)
    assert {
        name for name in ("masks", "relation_bias", "lisa", "embedding") if getattr(config, name) is not None
    } == on
    assert config.is_plain == (not on)
    assert InfusionConfig.parse("pos_concat").factors == ("pos",)
    assert InfusionConfig.parse("pos_let") == InfusionConfig.parse("let")


def test_json_round_trip():
    config = InfusionConfig(
        preset="paper", masks={"without": ["pair"], "layers": [1, 2], "max_distance": 7}, relation_bias={},
        lisa={"inject": "gold"}, embedding={"kind": "concat"}, seed=3,
    )  # fmt: skip
    assert InfusionConfig.from_json(json.loads(json.dumps(config.model_dump(mode="json"))), "x") == config


@pytest.mark.parametrize(
    ("embedding", "message"),
    [
        ({"kind": "sum_then_concat"}, "infusion.embedding.kind: .*'sum_then_concat'"),
        ({}, "infusion.embedding.kind: .*'none'"),
        ({"kind": "add", "factors": ["ner"]}, "factors: .*'ner'"),
        ({"kind": "add", "tag_layers": 2}, "infusion.tag_layers: .*'add', got 2"),
        ({"kind": "let", "word_width": 5}, "infusion.word_width: .*'let', got 5"),
        ({"kind": "add", "factors": ["pos", "deprel"]}, "embedding.values: expected the values of deprel, "),
    ],
)
def test_factors_that_a_pretrained_encoder_cannot_have(embedding, message):
    with pytest.raises(ConfigError, match=f"^{message}"):
        _ = InfusionConfig(embedding=embedding).vocabularies


def test_values_of_factors_are_stored_and_those_of_open_ones_come_from_sentences():
    config = InfusionConfig(embedding={"kind": "concat", "factors": ["case", "deprel"], "min_count": 1})
    sentences = [Sentence.from_words(["a", "b"], governors=(1, -1), deprels=("det", "root"))]
    values = config.fitted(sentences).embedding.values
    assert values == {"case": ("0", "1"), "deprel": ("det", "root")}
    assert config.fitted(sentences).fitted() == config.fitted(sentences)
    assert list(config.fitted(sentences).vocabularies["deprel"].values) == ["det", "root"]


def test_biases_take_the_trees_of_masks():
    config = InfusionConfig(masks=MaskConfig(max_distance=5), relation_bias={"layers": [0]})
    assert config.relation_bias.max_distance == 5
    assert config.relation_bias.layers == (0,)
    assert InfusionConfig(relation_bias={"max_distance": 3}).tree_options.max_distance == 3
    assert InfusionConfig(lisa={}).tree_options is None
    assert MaskConfig(without=("dependency",)).used_trees == ("constituency",)


@pytest.mark.parametrize(
    ("content", "messages"),
    [
        ({"mask": {}}, ["mask: unknown key. Nearest: masks"]),
        ({"masks": {"layer": 1}}, ["masks.layer: unknown key. Nearest: layers"]),
        ({"seed": -1}, ["seed: .* 0, got -1"]),
        ({"seed": 2**32}, ["seed: .* 4294967295, got 4294967296"]),
        ({"masks": {"max_distance": 85}}, ["masks.max_distance: .* 84, got 85"]),
        ({"masks": {"trees": ["dependency", "dependency"]}}, ["masks: trees: .*got dependency, dependency"]),
        ({"masks": {"without": ["parent", "child", "sibling", "pair"]}}, ["masks: without: expected a relation"]),
        ({"masks": {"without": ["dependency", "constituency"]}}, ["masks: without: expected one tree"]),
        ({"masks": {"max_distance": 5}, "relation_bias": {"max_distance": 6}}, ["relation_bias.max_distance: .* 5, got 6"]),
        ({"masks": {}, "relation_bias": {"init": "distance"}}, ["relation_bias.max_distance: .* 15, got 84. .* set that of masks"]),
        ({"mask": {}, "lisa": {"weight": -1}}, ["lisa.weight: .* 0, got -1", "mask: unknown key"]),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused(content, messages):
    with pytest.raises(ConfigError) as caught:
        InfusionConfig(**content)
    for problem, message in zip(caught.value.problems, messages, strict=True):
        assert re.match(f"infusion: {message}", problem)


def test_messages_name_the_file_or_the_shorthand():
    for names in ("mask", "let,pos_add"):
        with pytest.raises(ConfigError, match=r"^infuse:"):
            InfusionConfig.parse(names)
    with pytest.raises(ConfigError, match=r"^d/infusion\.json: mask: unknown key\. Nearest: masks\.$"):
        InfusionConfig.from_json({"mask": {}}, "d/infusion.json")
    with pytest.raises(ConfigError, match=r"^d/infusion\.json: expected keys and values, got list\.$"):
        InfusionConfig.from_json([], "d/infusion.json")


def test_what_presets_set():
    assert InfusionConfig(masks={}).masks.summation == "scaled", "as stored experiments have it"
    assert InfusionConfig(preset="paper", masks={"topical": False}).masks.summation == "sum", "as printed"
    assert InfusionConfig(preset="paper", masks={}).masks.summation == "scaled", "nothing is summed there"
    masks = {"preset": "paper", "topical": False, "summation": "mean"}
    assert InfusionConfig(masks=masks).masks.summation == "mean"
    for sections in ({"preset": "authors_code", "masks": {}}, {"masks": MaskConfig(preset="authors_code")}):
        masks = InfusionConfig(**sections).masks
        values = (masks.mode, masks.topical, masks.summation, masks.on_empty_row)
        assert values == ("additive", False, "scaled", "full")
    again = InfusionConfig(preset="authors_code", masks={"max_distance": 4})
    assert InfusionConfig.from_json(again.model_dump(mode="json"), "x") == again
    with pytest.raises(ConfigError, match=r"masks\.mode:"):
        InfusionConfig(preset="authors_code", masks={"mode": "multiplicative"})


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"masks": {"on_empty_row": "zero"}}, "on_empty_row: .*mode additive, got zero"),
        ({"masks": {"summation": "mean"}}, "summation: .*topical false, got mean"),
        ({"masks": {"topical": False, "per_layer": True}}, "per_layer: .*topical true, got True"),
        ({"preset": "paper", "masks": {"gate": "head"}}, "gate: .*preset preserving, got head"),
        ({"masks": {"trees": ["dependency"], "nodes": "leaves"}}, "nodes: .*constituency tree, got leaves"),
        (
            {"relation_bias": {"trees": ["dependency"], "nodes": "leaves"}},
            "relation_bias.nodes: .*got leaves",
        ),
        (
            {"masks": {"trees": ["constituency"], "without": ["dependency"]}},
            "masks.without: expected some of constituency, parent, child, sibling, pair, got dependency",
        ),
        (
            {"relation_bias": {"trees": ["labelled_edges"], "max_distance": 24, "without": ["child"]}},
            "relation_bias.without: expected some of labelled_edges, pair, got child",
        ),
        ({"relation_bias": {"sigma": 2.0}}, "sigma: .*init distance or governor, got 2.0"),
    ],
)
def test_settings_that_nothing_reads_are_refused(content, message):
    with pytest.raises(ConfigError, match=message):
        InfusionConfig(**content)
    with pytest.raises(ConfigError, match=message):
        load_finetune({"task": "cola", "model": "m", "output": "o", "infusion": content})
    stored = InfusionConfig.from_json(content, "a trained model's folder")
    assert InfusionConfig.from_json(stored.model_dump(mode="json"), "again") == stored


def test_presets_that_destroy_a_checkpoint_say_so():
    for preset in ("paper", "authors_code"):
        warning = InfusionConfig(preset=preset, masks={}).warning
        assert warning is not None
        assert warning.startswith(
            f"infusion.preset {preset}: this is another network than the one that was pre"
        )
        assert InfusionConfig(preset=preset, lisa={}).warning is None
    assert InfusionConfig(masks={}).warning is None


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ({"init": "governor"}, "relation_bias: init: .*dependency, constituency, got governor"),
        ({"init": "distance", "siblings": "all"}, "relation_bias: init: .*siblings: all, got dis"),
        ({"init": "distance", "max_distance": 15}, "relation_bias: max_distance: expected 84 .*got 15"),
        ({"sigma": 0}, r"relation_bias\.sigma: expected greater than 0"),
    ],
)
def test_starts_that_cannot_be(section, message):
    """With a start, far words have a distance too: with less than 84, they would start at the bias of d = 0."""
    bias = InfusionConfig(relation_bias={"init": "distance"}).relation_bias
    assert bias is not None
    assert bias.max_distance == 84
    with pytest.raises(ConfigError, match=message):
        InfusionConfig(relation_bias=section)
