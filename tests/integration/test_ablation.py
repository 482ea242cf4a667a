"""`evaluate --shuffle` and `--blank` on a trained translator."""

from __future__ import annotations

import json

import pytest

from syntaxformer.study.ablation import Ablation, ablate_translator
from syntaxformer.translation.translator import Translator


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
