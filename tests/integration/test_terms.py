"""From a list of terms to translations that use another one: every verb that takes terms."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from parallel_files import tiny_recipe
from pretrained_translators import make_translator
from syntaxformer.base.errors import ConfigError
from syntaxformer.translation.recipe import load_recipe
from syntaxformer.translation.training import prepare, train_translator
from syntaxformer.translation.translator import Translator


@pytest.fixture
def terms(tmp_path) -> Path:
    (path := tmp_path / "terms.tsv").write_text("cat\tKatze|Katzen\ndog\tHund\n")
    return path


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [["masks={}", "lisa={inject: gold}", "data.term_style=replace"], ["infusion.kind=sum_then_concat"]],
)
def test_train_translate_and_evaluate(cli, train, corpus, terms, tmp_path, settings):
    done = train(f"data.terms={terms}", "data.term_share=1.0", *settings).ok()
    assert "3 of 3 pairs have a term on both sides, 3 teach it" in done.err
    model, text, new = tmp_path / "run", corpus / "train.en", tmp_path / "new.tsv"
    new.write_text("sleep\truhen\n\ncat\tMieze\n")
    translated = cli("translate", model, text, "--terms", new, "-o", tmp_path / "out.de").ok()
    assert f"{new}:2: 1 rows are empty" in translated.err
    assert len((tmp_path / "out.de").read_text().splitlines()) == 3
    train(f"output={tmp_path / 'plain'}").ok()
    refused = cli("translate", tmp_path / "plain", text, "--terms", new)
    assert (refused.code, "terms: expected a model that has learned" in refused.err) == (2, True)
    both = ("--src", text, "--ref", corpus / "train.de", "--terms", new, "--baseline", tmp_path / "plain")
    counts = json.loads(cli("evaluate", model, *both, "--json").out)["terms"]
    assert {name: (row["given"], row["n_terms"]) for name, row in counts.items()} == {
        str(model): (True, 3),
        str(tmp_path / "plain"): (False, 3),
    }
    assert all(0 <= row["exact"] <= row["by_lemma"] <= 3 for row in counts.values())
    assert "of 3" in cli("evaluate", model, *both).out


@pytest.mark.slow
def test_what_starts_from_a_model(train, terms, tmp_path):
    """A model goes on with terms if it has learned them, and only then."""
    for output, settings in (("with", [f"data.terms={terms}"]), ("plain", [])):
        train(f"output={tmp_path / output}", *settings).ok()
    for start, settings, code in (
        ("with", [f"data.terms={terms}"], 0), ("with", [], 2), ("plain", [f"data.terms={terms}"], 2)
    ):  # fmt: skip
        again = (f"output={tmp_path / 'next'}", f"model.init_from={tmp_path / start}")
        done = train(*again, *settings, flags=("--overwrite",))
        shapes = ("subwords", "model.d_model", "infusion.width")
        assert done.code == code or any(name in done.err for name in shapes), done.err


@pytest.mark.slow
def test_a_pretrained_translator_learns_terms(corpus, terms, tmp_path):
    start = make_translator("marian", tmp_path / "marian")
    settings = [
        f"model.init_from={start}", f"data.dir={corpus}", "data.dev=train", f"data.terms={terms}", "data.term_share=1.0",
        "training.max_steps=2", "training.eval_every=2", "training.precision=fp32", "training.tensorboard=false",
        "data.max_pieces=100", f"output={tmp_path / 'run'}",
    ]  # fmt: skip
    recipe = load_recipe("finetune_translator", settings)
    train_translator(recipe)
    translator = Translator.load(tmp_path / "run")
    (source,) = (translator.encode(["A cat sleeps."], terms={"cat": "Katze"}),)
    assert "target_term" in translator.encoder.factor_values(source.factors)["term"]
    assert len([*translator.translate(["A cat sleeps.", ""], terms={"cat": "Katze"})]) == 2


def test_a_text_on_disk_is_refused(corpus, terms):
    recipe = tiny_recipe(corpus, f"data.terms={terms}", "data.on_disk=true")
    with pytest.raises(ConfigError, match=r"^data\.terms: expected a training text in memory"):
        prepare(recipe)
