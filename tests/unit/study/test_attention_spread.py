"""Spread of attention on distributions that can be worked out by hand."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from syntaxformer.base.errors import ConfigError
from syntaxformer.cli.main import app
from syntaxformer.nn import plan_widths
from syntaxformer.study import attention
from syntaxformer.study.attention import (
    SpreadOfAttention,
    attention_spread,
    cross_attention,
    spread_of_weights,
)
from syntaxformer.study.word_states import translator_words
from syntaxformer.translation.model import SyntaxTransformer, SyntaxTransformerConfig
from syntaxformer.translation.model_folder import FolderInfo
from syntaxformer.translation.source import SourceEncoder
from syntaxformer.translation.subwords import SubwordConfig, train_subwords
from syntaxformer.translation.translator import Translator
from syntaxformer.trees import Sentence

# a ← b → c → d, and an end piece that belongs to no word; "b" has two pieces.
SENTENCE = Sentence.from_words(list("abcd"), governors=(1, -1, 1, 2))
OWNERS = np.array([0, 1, 1, 2, 3, -1], np.int32)
NAN = float("nan")


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([[0, 0.3, 0.5, 0, 0, 0.2]], {"entropy": 0, "words": 0, "edges": 0, "on_words": 0.8}),  # one word
        # half on a, half on d: one bit; two draws differ half of the time, 3 words or 3 edges apart
        ([[0.5, 0, 0, 0, 0.5, 0]], {"entropy": 1, "words": 1.5, "edges": 1.5}),
        # a and c stand two words apart and two edges; weights ¼ and ¾ meet in 2 · 3/16 of draws
        ([[0.25, 0, 0, 0.75, 0, 0]], {"entropy": 0.5 + 0.75 * np.log2(4 / 3), "words": 2 * 3 / 16 * 2}),
        ([[0.5, 0, 0, 0, 0.5, 0], [1, 0, 0, 0, 0, 0]], {"entropy": 0.5}),  # target pieces count alike
        ([[0, 0, 0, 0, 0, 1]], {"entropy": NAN, "on_words": 0}),
    ],
)
def test_measures_by_hand(rows, expected):
    measures = spread_of_weights(np.array(rows, np.float32), OWNERS, SENTENCE)
    assert {name: measures[name] for name in expected} == pytest.approx(expected, nan_ok=True)


@pytest.mark.parametrize(
    ("governors", "weights", "edges"),
    [
        ((-1, -1), [0.5, 0.5], 0),  # words of different trees have no distance
        (None, [0.5, 0.5], NAN),
        # a and b in one tree, c alone: draws are in one tree in 10 of 16, and an edge apart in 4 of 16
        ((-1, 0, -1), [0.5, 0.25, 0.25], 4 / 10),
    ],
)
def test_the_distance_in_edges_is_that_of_draws_within_a_tree(governors, weights, edges):
    sentence = Sentence.from_words(list("abc")[: len(weights)], governors=governors)
    owners = np.arange(len(weights), dtype=np.int32)
    measures = spread_of_weights(np.array([weights], np.float32), owners, sentence)
    assert measures["edges"] == pytest.approx(edges, nan_ok=True)


def test_means_and_differences_of_the_same_sentences():
    spread = SpreadOfAttention({"entropy": np.array([1.0, 2.0, np.nan] * 5)})
    other = SpreadOfAttention({"entropy": np.array([2.0, 3.0, 4.0] * 5)})
    gain = other.difference(spread, "entropy")
    assert (gain.mean, gain.low, gain.high) == (1.0, 1.0, 1.0)
    assert spread.interval("entropy").mean == 1.5
    few = SpreadOfAttention({"entropy": np.array([1.0, np.nan, 2.0]), "edges": np.full(3, np.nan)})
    mean = few.interval("entropy")
    assert (mean.mean, np.isnan(mean.low), np.isnan(mean.high)) == (1.5, True, True)
    assert np.isnan(few.interval("edges").mean)
    assert np.isnan(few.difference(few, "edges").mean)


@pytest.fixture(scope="module")
def translator():
    tokenizer = train_subwords(["he 'said three' words"] * 3, SubwordConfig(vocab_size=307))
    tokenizer.backend_tokenizer.add_special_tokens(["<2de>", "<2fr>"])
    torch.manual_seed(5)
    config = SyntaxTransformerConfig(
        vocab_size=len(tokenizer), d_model=12, d_ff=17, n_heads=2, encoder_layers=1, decoder_layers=1,
        infusion=plan_widths("none", 12, None, width=5).as_dict(), factor_sizes={},
    )  # fmt: skip
    model = SyntaxTransformer(config).eval()

    def make(**prepared) -> Translator:
        info = FolderInfo(src="en", tgt="de", annotator=None, annotator_version=None, factors=[], **prepared)
        return Translator(model, SourceEncoder(tokenizer), info)

    return make


@pytest.fixture
def owners(monkeypatch):
    """Number of source pieces, and their words, of what is measured."""
    seen = []

    def measure(weights, owners, sentence):
        seen.append((weights.shape[1], owners.tolist()))
        return spread_of_weights(weights, owners, sentence)

    monkeypatch.setattr(attention, "spread_of_weights", measure)
    return seen


def test_entities_are_read_as_the_translator_reads_them(translator, owners):
    raw, clean = "he  said &apos; three &apos; words", "he said ' three ' words"
    escaped = Sentence(raw, tuple(raw.split()), ((0, 2), (4, 8), (9, 15), (16, 21), (22, 28), (29, 34)))
    sentences = [escaped, Sentence.from_words(clean.split())]
    attention_spread(translator(unescape=True, tokenized=True), sentences, targets=["he"] * 2)
    (n_pieces, words), other = owners
    assert (n_pieces, words) == other
    assert n_pieces == len(words)
    assert set(words) == {-1, 0, 1, 2, 3, 4, 5}


def test_the_piece_of_a_target_language_is_of_no_word(translator, owners):
    several = translator(directions={"de": "en", "fr": "en"}).to("fr")
    sentence = Sentence.from_words(["he", "said"])
    attention_spread(several, [sentence], targets=["he"])
    attention_spread(translator(), [sentence], targets=["he"])
    (n_pieces, words), (n_without, words_without) = owners
    assert (n_pieces, words) == (n_without + 1, [-1, *words_without])
    assert n_pieces == len(words)


@pytest.mark.slow
def test_the_command_reads_entities_once(monkeypatch, tmp_path, translator):
    parser = SimpleNamespace(annotate=lambda lines: [Sentence.from_words(line.split()) for line in lines])
    monkeypatch.setattr("syntaxformer.annotate.registry.load_annotator", lambda name: parser)

    def spread(line, **prepared):
        monkeypatch.setattr(Translator, "load", lambda *_, **__: translator(**prepared))
        (tmp_path / "a.en").write_text(line + "\n")
        done = CliRunner().invoke(app, ["attend", "model", "--spread", str(tmp_path / "a.en"), "--json"])
        return json.loads(done.stdout)["model"]

    written = "he said &quot; three words"
    assert spread("he said &amp;quot; three words", unescape=True) == spread(written)
    assert spread(written, unescape=True) == spread('he said " three words') != spread(written)


@pytest.mark.parametrize(("longest", "n_words"), [(128, 300), (1024, 1500)])
def test_a_line_that_is_cut(translator, owners, longest, n_words):
    """As Marian's, whose position table ends at 512."""
    cutting = translator()
    cutting.decoder.longest = longest
    spread = attention_spread(cutting, [Sentence.from_words(["three"] * n_words)], targets=["he"])
    ((n_pieces, words),) = owners
    assert n_pieces == len(words) == longest == translator_words(cutting).longest
    assert words[-1] == -1
    assert words[-2] > 0
    assert np.isfinite(spread.values["entropy"]).all()


@pytest.mark.parametrize(
    ("prepared", "text", "written"),
    [
        ({"lowercase": True}, "He SAID words", "he said words"),
        ({"moses": True}, "he said 'three' words", "he said ' three ' words"),
    ],
)
def test_targets_are_the_pieces_that_the_decoder_writes(translator, prepared, text, written):
    """Not those of the text that a reader gets: Moses' spaces are gone there, and its case is the reader's."""
    sentence = Sentence.from_words(["he", "said"])
    expected = attention_spread(translator(), [sentence], targets=[written]).values
    values = attention_spread(translator(**prepared), [sentence], targets=[text]).values
    np.testing.assert_allclose(values["entropy"], expected["entropy"], atol=1e-6)
    expected = cross_attention(translator(), "he", translation=written)
    weights = cross_attention(translator(**prepared), "he", translation=text)
    assert weights.tgt_pieces == expected.tgt_pieces
    np.testing.assert_allclose(weights.weights, expected.weights, atol=1e-6)
    assert weights.translation == text


def test_text_that_spells_a_special_piece_is_text(translator):
    model = translator()
    own_target = train_subwords(["he 'said three' words"] * 3, SubwordConfig(vocab_size=307))
    model.encoder = replace(model.encoder, own_target=own_target)
    pieces = cross_attention(model, "he", translation="he </s> said").tgt_pieces
    assert [number for number, piece in enumerate(pieces) if piece == "</s>"] == [len(pieces) - 1]


def test_factors_of_ones_own_have_no_spread(translator, monkeypatch):
    model = translator()
    monkeypatch.setattr(model.encoder, "vocabularies", {"pos": None, "tone": None})
    with pytest.raises(ConfigError, match=r"^spread: .*got one that reads tone"):
        attention_spread(model, [SENTENCE])
