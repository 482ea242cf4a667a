"""A real translator behind the service: what it was cut, what it shows."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest

from syntaxformer.annotate import load_annotator
from syntaxformer.base.errors import ConfigError, DataError
from syntaxformer.serve.engines import TranslatorEngine, load_engine
from syntaxformer.serve.schemas import TranslateSettings
from syntaxformer.translation.decoding import DecodingConfig, Hypothesis
from syntaxformer.translation.source import EncodedText
from syntaxformer.trees import Sentence, write_conllu


class CountingTranslator:
    """Encodes a word as a piece; lines of more than five are cut."""

    info = SimpleNamespace(
        backend="ctranslate2", annotator=None, languages=("en", "de"), decoding=DecodingConfig(beam_size=4), usual_sentences=2
    )  # fmt: skip
    annotator = None
    encoder = SimpleNamespace(
        factors=(), unseen=SimpleNamespace(counts={}), factor_values=lambda rows: {}, piece_names=lambda pieces: [str(piece) for piece in pieces]
    )  # fmt: skip

    def cut(self, lines, split):
        self.split = split
        return [line.split("/") if split == "always" else [line] for line in lines]

    def to(self, language):
        return self

    def encode(self, lines, prefixes=None, **_):
        self.prefixes = prefixes
        lengths = [min(5, len(line.split())) for line in lines]
        splits = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
        is_cut = np.array([len(line.split()) > 5 for line in lines])
        pieces = np.arange(splits[-1], dtype=np.int32)
        return EncodedText(pieces, splits, np.zeros((len(pieces), 0), np.int32), is_cut=is_cut)

    def search(self, lines, source, settings, n_best, scored, spaces, **bounds):
        self.settings, self.bounds = settings, bounds
        if any(spaces):
            return [[Hypothesis("joined", -1.0)] for _ in spaces]
        return [[Hypothesis(f"{line}|{n}", -float(n)) for n in range(n_best)] for line in lines]


def test_texts_that_were_cut_are_marked():
    engine = TranslatorEngine("one", CountingTranslator())
    translations = engine.work(TranslateSettings(), ["a b", "a b c d e f g", "x\ny"])
    assert [translation.truncated for translation in translations] == [False, True, False]
    assert [translation.text for translation in translations] == ["a b|0", "a b c d e f g|0", "x y|0"]


def test_texts_are_translated_sentence_by_sentence():
    engine = TranslatorEngine("one", translator := CountingTranslator())
    always = TranslateSettings(split_sentences="always", show=["tags"])
    several, single = engine.work(always, ["a b/ /c d e f g h", "i"])
    assert (several.text, several.n_sentences, several.truncated) == ("joined", 2, True)
    assert several.source.pieces == [str(piece) for piece in range(7)]
    assert (single.n_sentences, single.source.pieces) == (None, ["7"])
    for settings, split in ({}, "auto"), ({"prefix": "x"}, "never"), ({"split_sentences": "never"}, "never"):
        engine.work(TranslateSettings(**settings), ["a"])
        assert translator.split == split
    for settings in ({"prefix": "x"}, {"show": ["alignment"]}):
        with pytest.raises(ConfigError, match="split_sentences: expected never with a prefix, alignments"):
            engine.work(TranslateSettings(split_sentences="auto", **settings), ["a"])
    translator.info.usual_sentences = None
    engine.work(TranslateSettings(), ["a"])
    assert translator.split == "never"  # as an older folder always did
    translator.info.usual_sentences = 2


def test_settings_reach_the_search_and_tags_are_shown():
    engine = TranslatorEngine("one", translator := CountingTranslator())
    assert engine.description.shows == ["tags"]
    decoding = {"beam_size": 7, "length_penalty": 0.5, "max_length_factor": 4.0}
    bounds = {"min_length": 3, "coverage_penalty": 0.5}
    settings = TranslateSettings(prefix="Ein", n_best=2, show=["tags"], **decoding, **bounds)
    translation, _ = engine.work(settings, ["a b c", "d"])
    assert translator.prefixes == ["Ein", "Ein"]
    assert translator.settings.model_dump().items() >= decoding.items()
    assert translator.bounds.items() >= bounds.items()
    assert [hypothesis.text for hypothesis in translation.hypotheses] == ["a b c|0", "a b c|1"]
    assert translation.source.pieces == ["0", "1", "2"]


@pytest.mark.parametrize("name", ["masked", "tagged-pairs", "bare"])
def test_classified_texts_that_were_cut_are_marked(tiny_engines, name):
    long, short = "a dog . " * 13 + "a", "a dog ."  # 40 pieces, and two or three specials of 41
    texts = [short, long, short]
    if name == "tagged-pairs":
        texts = [(short, text) for text in texts]
    assert [answer.truncated for answer in tiny_engines[name].classify(texts)] == [False, True, False]
    assert [answer.truncated for answer in tiny_engines[name].classify(texts[:1])] == [False]


def test_lines_end_where_those_of_files_do(tiny_engines, monkeypatch):
    engine, seen = tiny_engines["base"], []
    monkeypatch.setattr(engine, "translate", lambda settings, lines, is_over: seen.extend(lines))
    engine.work(TranslateSettings(), ["x\ny", "x\r\ny\n", "x\x85y\u2028z"])
    assert seen == ["x y", "x y", "x\x85y\u2028z"]


def test_what_is_shown_belongs_to_the_translation_that_is_returned(tiny_engines, monkeypatch):
    """Its settings may be others than the model's own; it is not searched for a second time."""
    engine = tiny_engines["base"]
    monkeypatch.setattr(engine.translator, "search", lambda *_, **bounds: [[Hypothesis("two dogs run")]])
    monkeypatch.setattr(engine.translator, "translate", None)
    (translation,) = engine.work(TranslateSettings(show=frozenset({"alignment", "attention"})), ["the cat"])
    assert "".join(translation.attention.target) == "▁two▁dogs▁run</s>"
    assert len(translation.alignment) == len(translation.attention.target)


def _loading(monkeypatch, translator, classifier=None):
    """Let folders hold these; the annotator that is asked for is theirs."""
    calls = []

    def load(model, folder, annotator, device, *options):
        calls.append((annotator, device))
        if annotator is not None:
            model.annotator = load_annotator(annotator)
        return model

    monkeypatch.setattr("syntaxformer.translation.translator.Translator.load", partial(load, translator))
    monkeypatch.setattr("syntaxformer.encoders.classifier.Classifier.from_folder", partial(load, classifier))
    return calls


def test_factors_of_ones_own_are_refused_when_the_model_is_loaded(monkeypatch, tmp_path):
    encoder = SimpleNamespace(factors=("pos", "tone"))
    _loading(monkeypatch, SimpleNamespace(encoder=encoder, annotator=None))
    message = f"^{tmp_path}: expected a model that reads text alone, got one with factors of your own, tone, "
    with pytest.raises(ConfigError, match=message):
        load_engine("one", tmp_path)


@pytest.mark.parametrize("task", ["translation", "classification"])
@pytest.mark.parametrize("file", ["{split}.conllu", "train.conllu"])
def test_an_annotator_of_given_lines_is_refused_when_the_model_is_loaded(
    tiny_engines, monkeypatch, tmp_path, task, file
):
    write_conllu(tmp_path / "train.conllu", [Sentence.from_words(["A", "dog"], upos=("DET", "NOUN"))])
    parsed = load_annotator(f"conllu:{tmp_path}/{file}")
    translator, classifier = tiny_engines["sit"].translator, tiny_engines["masked"].classifier
    for model in (translator, classifier):
        monkeypatch.setattr(model, "annotator", parsed)
    calls = _loading(monkeypatch, translator, classifier)
    if task == "classification":
        (tmp_path / "classifier.json").touch()
    message = f"^{tmp_path}: expected an annotator of any text, got one that fails on 'a': .* --annotator"
    with pytest.raises(ConfigError, match=message):
        load_engine("one", tmp_path)
    engine = load_engine("one", tmp_path, "cpu", "en")
    assert (engine.description.task, engine.description.annotator) == (task, "en")
    assert calls == [(None, None), ("en", "cpu")]


@pytest.fixture(scope="module")
def warm(tiny_engines):
    """The translator after its paces were measured."""
    engine = tiny_engines["base"]
    engine.warm_up(2, 0.5)
    assert all(pace > 0 for pace in engine.paces)
    yield engine
    del engine.paces


def test_a_slow_model_is_measured_once(tiny_engines, monkeypatch):
    engine, calls = tiny_engines["base"], []
    monkeypatch.setattr(engine, "paces", engine.paces)
    monkeypatch.setattr(engine, "try_out", lambda n_texts: calls.append(n_texts) or 1.0)
    engine.warm_up(2, 0.5)
    monkeypatch.setattr("syntaxformer.serve.engines.LONG_S", 1e-9)
    engine.warm_up(2, 0.5)
    assert calls == [1, 1, 2, 2, 1, 2]


@pytest.fixture
def paced(warm, monkeypatch):
    """A translator of which a unit of work takes 10 ms alone, and 1 ms in a full batch."""
    monkeypatch.setattr(warm, "paces", (0.01, 0.001))
    return warm


def test_costs_are_of_pieces_and_beams(paced):
    """A piece costs 1 + 2n / 100 ms: it looks at n pieces of the text and as many of the translation."""
    n_pieces = [len(paced.translator.encode([text]).pieces) for text in ("a dog", "a dog " * 20)]
    costs = [0.005 * n * (1 + 2 * n / 100) for n in n_pieces]
    assert paced.costs(TranslateSettings(beam_size=5), ["a dog", "a dog " * 20]) == pytest.approx(costs)


def test_a_translation_that_would_keep_others_waiting_is_refused_and_a_usual_one_never(paced, monkeypatch):
    assert paced.limits(2, 1, 64) == (pytest.approx(0.01 * 2 * 128 * (1 + 192 / 100)), None)
    info = paced.translator.info.model_copy(update={"backend": "ctranslate2"})
    monkeypatch.setattr(paced.translator, "info", info)  # whose search cannot be stopped
    seconds, most = paced.limits(1, 30, 100)  # n (1 + (n + 100) / 100) units of 30 ms in 1.5 s: 50
    assert seconds == 1.5
    assert most * (2 + most / 100) >= 50 > (most - 2) * (2 + (most - 2) / 100)
    assert paced.limits(2, 1, 64)[1] == 129  # with the model's own beams
    source, decoding = paced.translator.encode(["a dog"]), DecodingConfig(beam_size=5)
    with pytest.raises(TimeoutError, match=r"at most 2 pieces with 5 beams"):
        paced.translator.search(["a dog"], source, decoding, max_pieces=2)


def test_a_search_ends_between_two_steps_when_nobody_waits(paced):
    looks = iter((False, False, True))
    with pytest.raises(TimeoutError, match="in time"):
        paced.work(TranslateSettings(), ["a dog and a cat"], lambda: next(looks))
    assert not [*looks]


def test_a_text_of_which_little_would_be_read_is_not_parsed(tiny_engines, monkeypatch):
    engine = tiny_engines["masked"]
    monkeypatch.setattr(engine, "paces", engine.paces)
    engine.warm_up(2, 0.5)
    assert len(engine.costs(None, ["a " * 408])) == 1  # it reads 41 pieces, of which two are no text
    with pytest.raises(DataError, match=r"^texts\.1: expected at most 410 pieces, got 411\."):
        engine.costs(None, ["a", "a " * 409])
