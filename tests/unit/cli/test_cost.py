"""`syntaxformer cost` on tiny networks, of which only the config is read."""

from __future__ import annotations

import json

import pytest
import transformers as hf
from typer.testing import CliRunner

from syntaxformer.base.errors import ConfigError
from syntaxformer.cli.main import app
from syntaxformer.translation.model import SyntaxTransformerConfig

SMALL = {
    "hidden_size": 22, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 29, "vocab_size": 31,
    "max_position_embeddings": 23,
}  # fmt: skip


@pytest.fixture
def bert(tmp_path):
    hf.BertConfig(**SMALL).save_pretrained(tmp_path / "bert")
    return tmp_path / "bert"


def _run(*arguments):
    return CliRunner().invoke(app, ["cost", *map(str, arguments)], catch_exceptions=False)


def test_a_checkpoint(bert):
    assert "topical attention" in _run(bert, "--infuse", "masks,lisa").stdout.splitlines()[1]


def test_an_infused_folder_says_itself_what_it_has(bert, tmp_path):
    import syntaxformer as sf

    model = sf.infuse(hf.BertForSequenceClassification(hf.BertConfig(**SMALL)), "lisa")
    model.save_pretrained(tmp_path / "infused")
    assert "LISA" in _run(tmp_path / "infused").stdout
    with pytest.raises(
        ConfigError, match=r"^--infuse: expected none, as the model says what is infused, got"
    ):
        _run(tmp_path / "infused", "--infuse", "masks")


def test_a_model_folder_whose_only_syntax_is_the_parses_that_it_writes(bert, tmp_path):
    config = SyntaxTransformerConfig(
        vocab_size=31, d_model=22, n_heads=2, d_ff=29, encoder_layers=1, decoder_layers=1,
        parse_task={"labels": list("vwxyz"), "weight": 1.0},
    )  # fmt: skip
    config.save_pretrained(tmp_path / "parses")
    report = json.loads(_run(tmp_path / "parses", "--json").stdout)
    assert report["parameters"]["target tags and parses"] == 5 * 22


def test_what_is_refused(bert, tmp_path):
    sizes = {"n_layer": 1, "n_embd": 8, "n_head": 2, "vocab_size": 11, "bos_token_id": 1, "eos_token_id": 1}
    hf.GPT2Config(**sizes).save_pretrained(tmp_path / "gpt")
    for arguments, message in (
        ([bert], "--infuse: expected what to put into the plain model, got none"),
        ([bert, "--infuse", "maks"], "infuse: expected some of .* got 'maks'. Nearest: masks"),
        ([tmp_path / "gpt", "--infuse", "masks"], "model: expected an encoder, got the decoder-only GPT2"),
        (["such", "--infuse", "masks"], "model: expected a folder or a name on the Hub"),
        (["multi30k.yaml", "--infuse", "masks"], "give the folder that `train` wrote"),
    ):
        with pytest.raises(ConfigError, match=message):
            _run(*arguments)
