"""A real translator behind the service: what it was cut, what it shows."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np

from syntaxformer.data.source import EncodedText
from syntaxformer.serve.engines import TranslateSettings, TranslatorEngine
from syntaxformer.tasks.translator import Hypothesis
from syntaxformer.training.recipe import DecodingConfig


class CountingTranslator:
    """Encodes a word as a piece; lines of more than five are cut."""

    info = SimpleNamespace(
        backend="ctranslate2", annotator=None, src="en", tgt="de", decoding=DecodingConfig(beam_size=4)
    )
    encoder = SimpleNamespace(
        factors=(), columns=(), vocabularies={}, unseen=SimpleNamespace(counts={}), piece_names=lambda pieces: [str(one) for one in pieces]
    )  # fmt: skip

    def encode(self, lines):
        lengths = [min(5, len(line.split())) for line in lines]
        splits = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
        n_cut = sum(len(line.split()) > 5 for line in lines)
        pieces = np.arange(splits[-1], dtype=np.int32)
        return EncodedText(pieces, splits, np.zeros((len(pieces), 0), np.int32), n_cut=n_cut)

    def search(self, lines, source, settings, n_best, scored):
        self.settings = settings
        return [[Hypothesis(f"{line}|{n}", -float(n)) for n in range(n_best)] for line in lines]


def test_texts_that_were_cut_are_marked():
    engine = TranslatorEngine("one", CountingTranslator())
    found = engine.work(TranslateSettings(), ["a b", "a b c d e f g", "x\ny"])
    assert [one.truncated for one in found] == [False, True, False]
    assert [one.text for one in found] == ["a b|0", "a b c d e f g|0", "x y|0"]


def test_settings_and_what_is_shown():
    translator = CountingTranslator()
    engine = TranslatorEngine("one", translator)
    assert engine.description.shows == ["tags"]
    settings = TranslateSettings(beam_size=7, n_best=2, length_penalty=0.5, show=frozenset({"tags"}))
    (found,) = engine.work(settings, ["a b c"])
    assert (translator.settings.beam_size, translator.settings.length_penalty) == (7, 0.5)
    assert [one.text for one in found.hypotheses] == ["a b c|0", "a b c|1"]
    assert found.source.pieces == ["0", "1", "2"]
