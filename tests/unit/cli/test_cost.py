"""`syntaxformer cost` on tiny networks, of which only the config is read."""

from __future__ import annotations

import json

import pytest
import torch
import transformers as hf
from typer.testing import CliRunner

from syntaxformer.base.errors import ConfigError
from syntaxformer.cli import cost as verb
from syntaxformer.cli.main import app
from syntaxformer.translation.model import SyntaxTransformerConfig

SMALL = {
    "hidden_size": 22, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 29, "vocab_size": 31,
    "max_position_embeddings": 23,
}  # fmt: skip


@pytest.fixture
def bert(tmp_path, monkeypatch):
    monkeypatch.setattr("syntaxformer.runs.processes._fast_precision", lambda: "fp32")
    hf.BertConfig(**SMALL).save_pretrained(tmp_path / "bert")
    return tmp_path / "bert"


def _run(*arguments):
    return CliRunner().invoke(app, ["cost", *map(str, arguments)], catch_exceptions=False)


def test_a_checkpoint(bert):
    done = _run(bert, "--infuse", "masks,lisa", "--pieces", 5, "--pieces", 7, "--rounds", 1)
    head, *lines = done.stdout.splitlines()
    assert head.startswith(f"{bert} (bert); cpu, ")
    assert "topical attention" in lines[1]
    rows = [line for line in lines if " × " in line][1:]
    assert [row.split()[:3] for row in rows] == [["102", "×", "5"]] * 3 + [["73", "×", "7"]] * 3
    plain, infused, times = map(float, rows[2].split()[-3:])  # peak memory does not vary
    assert times == pytest.approx(infused / plain, rel=0.05)  # of printed, rounded figures
    assert infused > plain > 0


def test_an_infused_folder_says_itself_what_it_has(bert, tmp_path):
    import syntaxformer as sf

    model = sf.infuse(hf.BertForSequenceClassification(hf.BertConfig(**SMALL)), "lisa")
    model.save_pretrained(tmp_path / "infused")
    done = _run(tmp_path / "infused", "--rounds", 1)
    assert "LISA" in done.stdout
    assert [line.split()[:3] for line in done.stdout.splitlines() if " × " in line][1:] == [
        ["22", "×", "23"]
    ] * 3
    with pytest.raises(
        ConfigError, match=r"^--infuse: expected none, as the model says what is infused, got one"
    ):
        _run(tmp_path / "infused", "--infuse", "masks")


def test_a_model_folder_whose_only_syntax_is_the_parses_that_it_writes(bert, tmp_path):
    config = SyntaxTransformerConfig(
        vocab_size=31, d_model=22, n_heads=2, d_ff=29, encoder_layers=1, decoder_layers=1,
        parse_task={"labels": list("vwxyz"), "weight": 1.0},
    )  # fmt: skip
    config.save_pretrained(tmp_path / "parses")
    report = json.loads(_run(tmp_path / "parses", "--pieces", 5, "--rounds", 1, "--json").stdout)
    assert report["parameters"]["target tags and parses"] == 5 * 22
    assert report["lengths"]["5"]["lines"] == 102
    assert report["lengths"]["5"]["step_s"].keys() == {"plain", "infused"}


@pytest.mark.parametrize(
    ("device", "has_card", "said"),
    [
        ("cpu:bf16", False, "cpu, threads: {n}, bf16"),
        ("cpu", False, "cpu, threads: {n}, fp32"),
        ("cpu", True, "cpu, threads: {n}, fp32"),
    ],
)
def test_the_precision_is_that_of_the_device(bert, monkeypatch, device, has_card, said):
    monkeypatch.setattr("torch.cuda.is_available", lambda: has_card)
    monkeypatch.setattr("syntaxformer.runs.processes._fast_precision", lambda: "bf16" if has_card else "fp32")
    done = _run(bert, "--infuse", "pos_add", "--pieces", 3, "--rounds", 1, "--device", device)
    assert said.format(n=torch.get_num_threads()) in done.stdout.splitlines()[0]


def test_what_is_refused(bert, tmp_path):
    hf.GPT2Config(
        n_layer=1, n_embd=8, n_head=2, vocab_size=11, bos_token_id=1, eos_token_id=1
    ).save_pretrained(tmp_path / "gpt")
    for arguments, message in (
        ([bert], "--infuse: expected what to put into the plain model, got none"),
        ([bert, "--infuse", "maks"], "infuse: expected some of .* got 'maks'. Nearest: masks"),
        (
            [bert, "--infuse", "masks", "--pieces", "24"],
            "--pieces: expected up to 23, the positions of .*, got 24",
        ),
        ([tmp_path / "gpt", "--infuse", "masks"], "model: expected an encoder, got the decoder-only GPT2"),
        (["such", "--infuse", "masks"], "model: expected a folder or a name on the Hub"),
        (["multi30k.yaml", "--infuse", "masks"], "give the folder that `train` wrote"),
    ):
        with pytest.raises(ConfigError, match=message):
            _run(*arguments)


def test_each_row_of_the_table_is_measured():
    assert set(verb._ROWS) == {"step_s", "use_s", "peak_mib"}
