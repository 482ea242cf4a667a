"""`attend`: which layers and heads of which model there are to draw."""

from __future__ import annotations

import json
from types import SimpleNamespace

import numpy as np
import pytest
from typer.testing import CliRunner

from syntaxformer.base.errors import ConfigError
from syntaxformer.cli.attend import _check_stored_shapes
from syntaxformer.cli.main import app
from syntaxformer.study.attention import CrossAttentionMap

SHAPES = {"large": (3, 5), "flat": (2, 5), "narrow": (3, 2)}
"""Layers and heads of the models."""


@pytest.fixture
def attend(monkeypatch, tmp_path):
    """Draw `large` beside another translator, and give the command's result."""

    def translator(folder, annotator=None, trust_annotator=False):
        loaded.append((folder.name, annotator))
        info = SimpleNamespace(languages=("de", "en") if folder.name == "turned" else ("en", "de"))
        translator = SimpleNamespace(name=folder.name, encoder=SimpleNamespace(factors=()), info=info)
        translator.to = lambda language: translator
        return translator

    def attention(translator, text, factors):
        weights = np.full((*SHAPES[translator.name], 2, 2), 0.5, np.float32)
        return CrossAttentionMap(["a", "b"], ["c", "d"], weights, {}, "c d")

    monkeypatch.setattr("syntaxformer.translation.translator.Translator.load", translator)
    monkeypatch.setattr("syntaxformer.study.attention.cross_attention", attention)

    def call(beside, *more):
        arguments = ["attend", "large", "a b", "--beside", beside, "-o", str(tmp_path / "a.png"), *more]
        return CliRunner().invoke(app, arguments)

    loaded = call.loaded = []
    return call


@pytest.mark.parametrize(
    ("beside", "more", "message"),
    [
        ("flat", "--layer 2", "layer, head: expected below 2 and 5 of flat, got 2 and None."),
        ("narrow", "--head 2", "layer, head: expected below 3 and 2 of narrow, got -1 and 2."),
        ("narrow", "--layer 3", "layer, head: expected below 3 and 2 of narrow, got 3 and None."),
        ("flat", "--annotator de", "--annotator: expected none with a sentence, got de. Give what the model reads as --model-annotator."),
        ("flat", "--json", "--json: expected none with a sentence, got True. Leave it out."),
        ("flat", "--factor ner=ner", "--factor: expected a factor of the model, got ner."),
        ("turned", "", "--beside: expected models of the same direction, got de → en and en → de."),
    ],
)  # fmt: skip
def test_what_does_not_fit_the_model_or_the_sentence(attend, tmp_path, monkeypatch, beside, more, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ner").write_text("O O\n")
    assert str(attend(beside, *more.split()).exception) == message


def test_options_without_effect_are_refused_together(attend):
    assert len(attend("flat", "--annotator", "de", "--json").exception.problems) == 2
    done = CliRunner().invoke(app, ["attend", "large", "--spread", "a.txt", "-o", "a.png"])
    assert str(done.exception) == "-o: expected none with --spread, got a.png. Leave it out."


def test_a_layer_and_a_head_that_both_models_have_and_another_annotator_for_both(attend):
    done = attend("flat", "--layer", "1", "--head", "4", "--model-annotator", "de")
    assert (done.exit_code, done.exception) == (0, None)
    assert attend.loaded == [("flat", "de"), ("large", "de")]


@pytest.mark.parametrize("more", [("a b",), ("--spread", "none.txt")])
@pytest.mark.parametrize(
    "names", [("decoder_layers", "n_heads"), ("num_hidden_layers", "num_attention_heads")]
)
def test_a_layer_or_head_is_refused_before_anything_is_loaded(attend, tmp_path, names, more):
    (tmp_path / "config.json").write_text(json.dumps(dict(zip(names, SHAPES["large"], strict=True))))
    for options, got in ((("--layer", "3"), "3 and None"), (("--head", "5"), "-1 and 5")):
        done = CliRunner().invoke(app, ["attend", str(tmp_path), *more, *options])
        assert str(done.exception) == f"layer, head: expected below 3 and 5, got {got}."
    assert attend.loaded == []


def test_layers_of_a_classifier_are_those_of_its_encoder(tmp_path):
    stored = {"decoder_layers": 1, "decoder_attention_heads": 2, "encoder_layers": 12}
    (tmp_path / "config.json").write_text(json.dumps({**stored, "encoder_attention_heads": 4}))
    (tmp_path / "classifier.json").write_text("{}")
    _check_stored_shapes([tmp_path], 5, 3)
    with pytest.raises(ConfigError, match=r"^layer, head: expected below 12 and 4, got 12 and 3\.$"):
        _check_stored_shapes([tmp_path], 12, 3)
