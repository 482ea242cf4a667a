"""What a trained translator looks at, and what it loses without its factors."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path

import numpy as np
import pytest
import spacy

from syntaxformer.study.ablation import Ablation, ablate_translator
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


@pytest.mark.slow
def test_a_translator_with_spoiled_factors(cli, digits):
    test = digits.corpus / "test.en", digits.corpus / "test.de"
    command = ("evaluate", digits.sum_then_concat, "--src", test[0], "--ref", test[1], "--json")
    whole, spoiled = (json.loads(cli(*command, *more).out) for more in ((), ("--blank", "pos,case,subword")))
    assert spoiled["baseline"] == "the model as it is"
    assert spoiled["bleu"] - whole["bleu"] == spoiled["difference"]
    assert spoiled["difference"] < 0
    named = json.loads(cli(*command, "--blank", "pos,case,subword", "--baseline", digits.sum_then_concat).out)
    assert named == spoiled
    both = "--baseline", digits.none, "--baseline", digits.sum_then_concat
    three = json.loads(cli(*command, "--blank", "pos,case,subword", *both).out)
    names = [str(digits.sum_then_concat), str(digits.none), "the model as it is"]
    assert list(three["systems"]) == names
    done = cli(*command, "--shuffle", "depth")
    assert (done.code, done.err) == (
        2, "error: --shuffle: expected what the model reads, got depth. Known: case, pos, subword.\n"
    )  # fmt: skip


@pytest.mark.slow
def test_only_the_wanted_factor_changes(digits):
    translator = Translator.load(digits.sum_then_concat)
    lines = ["3 1 7", "5 5 2 9"]
    intact = translator.encode(lines)
    spoiled = ablate_translator(translator, Ablation(blank=("subword",))).encode(lines)
    place = translator.encoder.factors.index("subword")
    assert (spoiled.factors[:, place] == 0).all()
    others = [column for column in range(3) if column != place]
    assert (spoiled.factors[:, others] == intact.factors[:, others]).all()
    assert (spoiled.pieces == intact.pieces).all()


@pytest.mark.slow
def test_what_masks_do_inside_a_model_is_printed(cli, tmp_path, monkeypatch, capsys):
    data, model = tmp_path / "question", tmp_path / "masks"
    monkeypatch.syspath_prepend(Path(__file__).resolve().parents[2] / "experiments" / "structure")
    generate, inside = map(importlib.import_module, ("generate", "inside"))
    sizes = {"train": 100, "dev": 20, "test": 5, "general": 50, "deep": 5}
    generate.write(data, generate.generate("question", 3, sizes))
    data_keys = (f"data.dir={data}", "data.src=src", "data.tgt=tgt", "data.dev=dev", "data.src_language=en")
    keys = (*data_keys, "data.tgt_language=en", "data.normalize=none", "subwords.vocab_size=320")
    syntax = (
        f"annotation.annotator=conllu:{data}/{{split}}.conllu",
        "infusion.preset=paper",
        "masks.max_distance=3",
    )
    size = (
        "model.d_model=16",
        "model.d_ff=16",
        "model.n_heads=2",
        "training.max_steps=2",
        "training.eval_every=2",
    )
    done = cli("--quiet", "train", "tiny", *keys, *syntax, *size, "decoding.beam_size=1", f"output={model}")
    done.ok()
    monkeypatch.setattr(sys, "argv", ["inside", f"{model}", "--data", f"{data}", "--lines", "5"])
    inside.main()
    title, blank, shuffle, alpha = capsys.readouterr().out.splitlines()[-4:]
    assert title.startswith("masks: right trees ")
    assert blank.count(",") == 6
    assert shuffle.count(",") == 2
    weights = [float(value.split()[-1]) for value in alpha.split(", ")]
    assert len(weights) == 8
    assert sum(weights) == pytest.approx(100, abs=0.5)
