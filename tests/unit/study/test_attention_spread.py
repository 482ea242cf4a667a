"""Spread of attention on distributions that can be worked out by hand."""

from __future__ import annotations

import json
from dataclasses import replace
from importlib import import_module
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from syntaxformer.base.errors import ConfigError
from syntaxformer.cli.main import app
from syntaxformer.nn import plan_widths
from syntaxformer.study.attention import (
    SpreadOfAttention,
    attention_spread,
    cross_attention,
    spread_of_weights,
)
from syntaxformer.study.word_states import translator_words
from syntaxformer.translation.model import SyntaxTransformer, SyntaxTransformerConfig
from syntaxformer.translation.source import SourceEncoder
from syntaxformer.translation.subwords import SubwordConfig, train_subwords
from syntaxformer.translation.translator import FolderInfo, Translator
from syntaxformer.trees import Sentence

# a ← b → c → d, and an end piece that belongs to no word; "b" has two pieces.
SENTENCE = Sentence.from_words(list("abcd"), governors=(1, -1, 1, 2))
OWNERS = np.array([0, 1, 1, 2, 3, -1], np.int32)


def _measures(*rows):
    return spread_of_weights(np.array(rows, np.float32), OWNERS, SENTENCE)


def test_one_word_is_no_spread():
    found = _measures([0, 0.3, 0.5, 0, 0, 0.2])
    assert found == {"entropy": 0.0, "words": 0.0, "edges": 0.0, "on_words": pytest.approx(0.8)}


def test_two_words():
    # half on a, half on d: one bit; two draws differ half of the time, 3 words or 3 edges apart
    found = _measures([0.5, 0, 0, 0, 0.5, 0])
    assert found["entropy"] == pytest.approx(1.0)
    assert found["words"] == pytest.approx(1.5)
    assert found["edges"] == pytest.approx(1.5)
    # a and c stand two words apart and two edges; weights ¼ and ¾ meet in 2 · 3/16 of draws
    found = _measures([0.25, 0, 0, 0.75, 0, 0])
    assert found["words"] == pytest.approx(2 * 3 / 16 * 2)
    assert found["entropy"] == pytest.approx(0.25 * 2 + 0.75 * np.log2(4 / 3))


def test_target_pieces_count_alike():
    found = _measures([0.5, 0, 0, 0, 0.5, 0], [1, 0, 0, 0, 0, 0])
    assert found["entropy"] == pytest.approx(0.5)


def test_words_of_different_trees_have_no_distance_in_edges():
    two = Sentence.from_words(["a", "b"], governors=(-1, -1))
    found = spread_of_weights(np.array([[0.5, 0.5]], np.float32), np.array([0, 1], np.int32), two)
    assert (found["words"], found["edges"]) == (0.5, 0.0)
    bare = Sentence.from_words(["a", "b"])
    found = spread_of_weights(np.array([[0.5, 0.5]], np.float32), np.array([0, 1], np.int32), bare)
    assert np.isnan(found["edges"])


def test_the_distance_in_edges_is_that_of_draws_within_a_tree():
    # a and b in one tree, c alone: draws of ½, ¼, ¼ are in one tree in 10 of 16, and an edge apart in 4 of 16
    two = Sentence.from_words(["a", "b", "c"], governors=(-1, 0, -1))
    weights = np.array([[0.5, 0.25, 0.25]], np.float32)
    assert spread_of_weights(weights, np.arange(3, dtype=np.int32), two)["edges"] == pytest.approx(4 / 10)


def test_nothing_on_words():
    found = _measures([0, 0, 0, 0, 0, 1.0])
    assert found["on_words"] == 0.0
    assert np.isnan(found["entropy"])


def test_differences_are_of_the_same_sentences():
    one = SpreadOfAttention({"entropy": np.array([1.0, 2.0, np.nan] * 5)})
    other = SpreadOfAttention({"entropy": np.array([2.0, 3.0, 4.0] * 5)})
    found = other.difference(one, "entropy")
    assert (found.mean, found.low, found.high) == (1.0, 1.0, 1.0)
    assert one.interval("entropy").mean == 1.5


def test_few_sentences_have_a_mean_and_no_interval_and_none_have_nothing():
    few = SpreadOfAttention({"entropy": np.array([1.0, np.nan, 2.0]), "edges": np.full(3, np.nan)})
    found = few.interval("entropy")
    assert (found.mean, np.isnan(found.low), np.isnan(found.high)) == (1.5, True, True)
    assert np.isnan(few.interval("edges").mean)
    assert np.isnan(few.difference(few, "edges").mean)


def _translator(**prepared) -> Translator:
    tokenizer = train_subwords(["he 'said three' words"] * 3, SubwordConfig(vocab_size=307))
    torch.manual_seed(5)
    config = SyntaxTransformerConfig(
        vocab_size=len(tokenizer), d_model=12, d_ff=17, n_heads=2, encoder_layers=1, decoder_layers=1,
        infusion=plan_widths("none", 12, None, width=5).as_dict(), factor_sizes={},
    )  # fmt: skip
    info = FolderInfo(src="en", tgt="de", annotator=None, annotator_version=None, factors=[], **prepared)
    return Translator(SyntaxTransformer(config).eval(), SourceEncoder(tokenizer), info)


def _seen_owners(monkeypatch):
    """Owners and sources of what is measured."""
    seen = []

    def measured(weights, owners, sentence):
        seen.append((weights.shape[1], owners.tolist()))
        return spread_of_weights(weights, owners, sentence)

    module = import_module("syntaxformer.study.attention")
    monkeypatch.setattr(module, "spread_of_weights", measured)
    return seen


def test_entities_are_read_as_the_translator_reads_them(monkeypatch):
    seen = _seen_owners(monkeypatch)
    translator = _translator(unescape=True, tokenized=True)
    raw, clean = "he  said &apos; three &apos; words", "he said ' three ' words"
    escaped = Sentence(raw, tuple(raw.split()), ((0, 2), (4, 8), (9, 15), (16, 21), (22, 28), (29, 34)))
    attention_spread(translator, [escaped, Sentence.from_words(clean.split())], targets=["he"] * 2)
    (n_pieces, owners), other = seen
    assert n_pieces == len(owners)
    assert (n_pieces, owners) == other
    assert sorted(set(owners)) == [-1, 0, 1, 2, 3, 4, 5]


def test_the_command_reads_entities_once(monkeypatch, tmp_path):
    parser = SimpleNamespace(annotate=lambda lines: [Sentence.from_words(line.split()) for line in lines])
    monkeypatch.setattr("syntaxformer.annotate.load_annotator", lambda name: parser)

    def spread(line, **prepared):
        monkeypatch.setattr(Translator, "load", lambda *_, **__: _translator(**prepared))
        (tmp_path / "a.en").write_text(line + "\n")
        done = CliRunner().invoke(app, ["attend", "model", "--spread", str(tmp_path / "a.en"), "--json"])
        return json.loads(done.stdout)["model"]

    written = "he said &quot; three words"
    assert spread("he said &amp;quot; three words", unescape=True) == spread(written)
    assert spread(written, unescape=True) == spread('he said " three words') != spread(written)


def test_a_network_of_fewer_positions(monkeypatch):
    """As of Marian, whose position table ends at 512: its lines are cut there."""
    seen, translator = _seen_owners(monkeypatch), _translator()
    translator.decoder.longest = 128
    attention_spread(translator, [Sentence.from_words(["three"] * 300)], targets=["he"])
    ((n_pieces, owners),) = seen
    assert n_pieces == len(owners) == 128
    assert translator_words(translator).longest == 128


def test_a_line_that_is_cut(monkeypatch):
    seen = _seen_owners(monkeypatch)
    sentence = Sentence.from_words(["three"] * 1500)
    found = attention_spread(_translator(), [sentence], targets=["he"])
    ((n_pieces, owners),) = seen
    assert n_pieces == len(owners) == 1024
    assert owners[-1] == -1
    assert owners[-2] > 0
    assert np.isfinite(found.values["entropy"]).all()


@pytest.mark.parametrize(
    ("prepared", "text", "written"),
    [
        ({"lowercase": True}, "He SAID words", "he said words"),
        ({"moses": True}, "he said 'three' words", "he said ' three ' words"),
    ],
)
def test_targets_are_the_pieces_that_the_decoder_writes(prepared, text, written):
    """Not those of the text that a reader gets: Moses' spaces are gone there, and its case is the reader's."""
    sentence = Sentence.from_words(["he", "said"])
    expected = attention_spread(_translator(), [sentence], targets=[written]).values
    found = attention_spread(_translator(**prepared), [sentence], targets=[text]).values
    np.testing.assert_allclose(found["entropy"], expected["entropy"], atol=1e-6)
    expected = cross_attention(_translator(), "he", translation=written)
    found = cross_attention(_translator(**prepared), "he", translation=text)
    assert found.tgt_pieces == expected.tgt_pieces
    np.testing.assert_allclose(found.weights, expected.weights, atol=1e-6)
    assert found.translation == text


def test_text_that_spells_a_special_piece_is_text():
    translator = _translator()
    own_target = train_subwords(["he 'said three' words"] * 3, SubwordConfig(vocab_size=307))
    translator.encoder = replace(translator.encoder, own_target=own_target)
    found = cross_attention(translator, "he", translation="he </s> said")
    assert [place for place, piece in enumerate(found.tgt_pieces) if piece == "</s>"] == [
        len(found.tgt_pieces) - 1
    ]


def test_factors_of_ones_own_have_no_spread(monkeypatch):
    translator = _translator()
    monkeypatch.setattr(translator.encoder, "vocabularies", {"pos": None, "tone": None})
    with pytest.raises(
        ConfigError,
        match=r"^spread: expected a model without factors of your own, got one that reads tone\. "
        r"Look at single sentences with `syntaxformer attend`, which takes their values with --factor\.$",
    ):
        attention_spread(translator, [SENTENCE])
