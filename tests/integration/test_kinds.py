"""Infusion kinds, lisa and masks from the command line on a toy corpus: folders, resuming, governors, bad input."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from syntaxformer.nn import INFUSION_KINDS
from syntaxformer.translation.translator import Translator
from toy_grammar import toy_pairs, write_pairs

SMALL = (
    "subwords.vocab_size=400", "model.d_model=24", "model.d_ff=31", "model.n_heads=2", "training.max_steps=4",
    "training.eval_every=2", "training.precision=fp32", "training.tensorboard=false", "decoding.beam_size=2",
)  # fmt: skip
SYSTEMS = {
    "onehot_concat": ("masks={preset: paper, trees: [dependency]}",),
    "learned_concat": ("infusion.factors=[pos, predicate]", "lisa={supervised: false}"),
    "prepend": ("infusion.place=prefix", "lisa={}", "masks={}", "relation_bias={}"),
    "pos_encoder": ("infusion.tag_layers=2", "lisa={inject: gold}"),
}
LINES = ["The man saw the red house .", "", "She sleeps .", "We plant a rose ."]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("toy")
    pairs = toy_pairs(260)
    write_pairs(folder, {"train": pairs[:220], "valid": pairs[220:]})
    return folder


@pytest.fixture
def train(cli, corpus):
    def run(output: Path, *settings: str, flags: tuple[str, ...] = ()):
        where = (f"data.dir={corpus}", f"data.cache={corpus / 'cache'}", f"output={output}")
        return cli("--quiet", "train", "tiny", *where, *SMALL, *settings, *flags)

    return run


@pytest.mark.slow
@pytest.mark.parametrize("kind", SYSTEMS)
def test_trained_resumed_and_translated(train, cli, tmp_path, kind):
    """An interrupted run is the unbroken one; a translation does not depend on its batch."""
    settings = (f"infusion.kind={kind}", *SYSTEMS[kind])
    for folder, steps, flags in (("whole", 4, ()), ("parts", 2, ()), ("parts", 4, ("--resume",))):
        train(tmp_path / folder, *settings, f"training.max_steps={steps}", flags=flags).silent()
    weights = (load_file(tmp_path / folder / "model.safetensors") for folder in ("parts", "whole"))
    torch.testing.assert_close(*weights, atol=1e-5, rtol=0)
    translator = Translator.load(tmp_path / "whole")
    together = [best[0] for best in translator.translate(LINES, scored=True, batch_size=4)]
    alone = [best[0] for best in translator.translate(LINES, scored=True, batch_size=1)]
    assert [one.text for one in together] == [one.text for one in alone]
    assert [one.score for one in together] == pytest.approx([one.score for one in alone], abs=1e-4)
    assert together[1].text == ""
    has_governors = "lisa={}" in settings or "lisa={inject: gold}" in settings
    assert (
        "dev_governor_accuracy" in json.loads((tmp_path / "whole" / "run.json").read_text())
    ) == has_governors


def _told(text):
    """What a command said, but for loops: a model that is hardly trained has them."""
    return [line for line in text.splitlines() if "repeat themselves" not in line]


@pytest.mark.slow
def test_governors_are_injected_on_demand(train, cli, tmp_path):
    assert train(tmp_path / "model", "lisa={}").code == 0
    assert Translator.load(tmp_path / "model").annotator is None
    scores = {}
    for inject in (False, True):
        translator = Translator.load(tmp_path / "model", inject_governors=inject)
        scores[inject] = [best[0].score for best in translator.translate(LINES, scored=True)]
        assert (translator.annotator is not None) == inject
    assert scores[True][0] != pytest.approx(scores[False][0], abs=1e-7)
    done = cli("translate", tmp_path / "model", "--inject", stdin=b"She sleeps .\n")
    assert (done.code, _told(done.err)) == (0, [])


def test_an_annotator_beside_none_of_training_is_no_change(train, cli, tmp_path):
    assert train(tmp_path / "model", "lisa.supervised=false", "training.max_steps=2").code == 0
    done = cli("translate", tmp_path / "model", "--inject", "--annotator", "en", stdin=b"She sleeps .\n")
    assert (done.code, _told(done.err)) == (0, [])


def test_injection_needs_a_head(train, cli, tmp_path):
    assert train(tmp_path / "model", "training.max_steps=2").code == 0
    done = cli("translate", tmp_path / "model", "--inject", stdin=b"She sleeps .\n").refused()
    assert done.err == "error: inject governors: expected a model with a LISA head, got one without it.\n"


@pytest.mark.slow
def test_a_limit_without_room_for_tags(train, corpus, tmp_path):
    done = train(tmp_path / "model", "infusion.kind=prepend", "data.max_pieces=16").refused()
    (line,) = done.err.splitlines()
    assert line.startswith(
        "error: data.max_pieces: expected room for the tags of infusion.kind=prepend, got 16, "
    )
    assert " pairs too long. Raise it, to " in line
    assert not (tmp_path / "model").exists()


def test_an_annotator_without_tags_or_trees(train, corpus, tmp_path):
    bare = corpus / "bare"
    for split in ("train", "valid"):
        lines = (corpus / f"{split}.en").read_text().splitlines()
        trees = (
            "\n".join(f"{n}\t{word}" + "\t_" * 8 for n, word in enumerate(line.split(), 1)) for line in lines
        )
        path = bare.with_name(f"bare.{split}.conllu")
        path.write_text("".join(f"{tree}\n\n" for tree in trees))
    annotator = f"annotation.annotator=conllu:{corpus}/bare.{{split}}.conllu"
    done = train(tmp_path / "tags", "infusion.kind=prepend", annotator)
    assert (done.code, len(done.err.splitlines())) == (2, 1), done.err
    assert "factor 'pos': expected upos, got none from" in done.err
    done = train(tmp_path / "trees", "masks={}", annotator)
    assert (done.code, len(done.err.splitlines())) == (2, 1), done.err
    assert (
        "masks, relation_bias, lisa, parse_task: expected governors and constituency from the annotator, got none"
        in done.err
    )


@pytest.mark.timeout(1200)
@pytest.mark.skipif(
    "SYNTAXFORMER_EXHAUSTIVE" not in os.environ, reason="three minutes; set SYNTAXFORMER_EXHAUSTIVE=1"
)
def test_a_supervised_head_finds_the_gold_governors(cli, tmp_path):
    pairs = toy_pairs(8000)
    write_pairs(tmp_path / "toy", {"train": pairs[300:], "valid": pairs[:300]})
    settings = (
        f"data.dir={tmp_path / 'toy'}", f"output={tmp_path / 'model'}", "lisa={}", "training.max_steps=600",
        f"annotation.annotator=conllu:{tmp_path / 'toy'}/{{split}}.en.conllu", "training.tensorboard=false",
    )  # fmt: skip
    cli("--quiet", "train", "tiny", *settings).silent()
    assert json.loads((tmp_path / "model" / "run.json").read_text())["dev_governor_accuracy"] > 0.85


SETTINGS = (
    "data.dev=dev", "subwords.vocab_size=301", "model.d_model=64", "model.d_ff=127", "model.dropout=0.0",
    "training.max_steps=480", "training.max_batch_tokens=521", "training.learning_rate=0.003",
    "training.warmup_steps=100", "training.eval_every=240", "training.precision=fp32", "decoding.beam_size=2",
    "training.tensorboard=false", "lisa={}", "masks.max_distance=5",
)  # fmt: skip


@pytest.mark.skipif("SYNTAXFORMER_EXHAUSTIVE" not in os.environ, reason="half a minute each: make test-long")
@pytest.mark.parametrize("kind", list(INFUSION_KINDS))
def test_reversal_is_learned_with_syntax_inside(digits, cli, tmp_path, kind):
    folder = tmp_path / kind
    where = (f"data.dir={digits.corpus}", f"output={folder}", f"infusion.kind={kind}")
    cli("--quiet", "train", "tiny", *where, *SETTINGS).silent()
    done = cli("translate", folder, digits.corpus / "test.en")
    assert done.err == ""
    found, expected = done.out.splitlines(), Path(digits.corpus / "test.de").read_text().splitlines()
    assert len(found) == len(expected)
    assert sum(map(str.__eq__, found, expected)) / len(expected) > 0.95
    # Chance is some 0.2; more than 0.7 is not in these trees, a tagger's idea of digits.
    assert json.loads((folder / "run.json").read_text())["dev_governor_accuracy"] > 0.3
    figure = tmp_path / "attention.png"
    done = cli("attend", folder, "3 1 7", "-o", figure)
    assert (done.code, done.out.splitlines()[0]) == (0, f"{folder}: 7 1 3")
