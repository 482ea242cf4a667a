"""Attention of a trained model as arrays."""

from __future__ import annotations

import json

import numpy as np
import pytest
import spacy

from syntaxformer.study.attention import cross_attention
from syntaxformer.translation.translator import Translator


def test_weights_are_distributions_over_source_pieces(digits):
    found = cross_attention(Translator.load(digits.sum_then_concat), "3 1 7")
    assert found.src_pieces == ["▁3", "▁1", "▁7", "</s>"]
    assert found.tgt_pieces == ["▁7", "▁1", "▁3", "</s>"]
    assert found.translation == "7 1 3"
    assert found.weights.shape == (2, 4, 4, 4)  # layers, heads, target, source
    np.testing.assert_allclose(found.weights.sum(-1), 1, atol=1e-5)
    np.testing.assert_allclose(found.average(0), found.weights[0].mean(0))
    np.testing.assert_allclose(found.average(1, 3), found.weights[1, 3])
    assert found.factors["subword"] == ["O", "O", "O", "<none>"]
    assert set(found.factors) == {"pos", "case", "subword"}


def test_somewhere_the_mirrored_digit_is_looked_at(digits):
    found = cross_attention(Translator.load(digits.none), "3 1 7 5 9")
    mirrored = [float(found.weights[..., place, 4 - place].max()) for place in range(5)]
    assert min(mirrored) > 0.25


def test_an_empty_line_has_no_attention(digits):
    with pytest.raises(ValueError, match=r"^line: expected text, got an empty line\.$"):
        cross_attention(Translator.load(digits.none), " ")


@pytest.mark.slow
def test_spread_of_lines_without_text_or_trees(cli, digits, tmp_path):
    blank = tmp_path / "blank.en"
    blank.write_text("\n \n")
    done = cli("attend", digits.none, "--spread", blank)
    assert (done.code, done.err) == (2, f"error: {blank}: expected at least one line with text, got none.\n")
    spacy.blank("en").to_disk(tmp_path / "words")
    (tmp_path / "two.en").write_text("3 1 7\n5 2\n")
    annotator = ("--annotator", f"spacy:{tmp_path / 'words'}")
    command = ("attend", digits.none, "--spread", tmp_path / "two.en", *annotator)
    found = json.loads(cli(*command, "--json").out)[str(digits.none)]
    assert found["edges"] == {"mean": None, "low": None, "high": None}
    assert found["words"]["mean"] > 0
    assert found["words"]["low"] is None
    shown = cli(*command).out
    assert "mean distance, edges          –  [–, –]" in shown
