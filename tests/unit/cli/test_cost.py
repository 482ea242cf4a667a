"""`syntaxformer cost` on tiny networks, of which only the config is read."""

from __future__ import annotations

import json

import pytest
import transformers as hf
from typer.testing import CliRunner

from syntaxformer.base.errors import ConfigError
from syntaxformer.cli import cost as verb
from syntaxformer.cli.main import app
from table_annotator import TableAnnotator

SMALL = {
    "hidden_size": 22, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 29, "vocab_size": 31,
    "max_position_embeddings": 23,
}  # fmt: skip
RECIPE = """
output: out
data: {dir: nowhere, src: en, tgt: de}
subwords: {vocab_size: 301, joint: false, target_vocab_size: 303}
infusion: {kind: concat_pos, width: 3}
model: {d_model: 22, d_ff: 29, n_heads: 2, encoder_layers: 2, decoder_layers: 1}
"""


class Parser(TableAnnotator):
    provides = TableAnnotator.provides | {"constituency"}

    def __init__(self, name):
        self.name = name


@pytest.fixture
def bert(tmp_path, monkeypatch):
    monkeypatch.setattr("syntaxformer.runs.processes._fast_precision", lambda: "fp32")
    monkeypatch.setattr("syntaxformer.annotate.load_annotator", Parser)
    hf.BertConfig(**SMALL).save_pretrained(tmp_path / "bert")
    return tmp_path / "bert"


def _run(*arguments):
    return CliRunner().invoke(app, ["cost", *map(str, arguments)], catch_exceptions=False)


def test_a_checkpoint(bert):
    done = _run(
        bert, "--infuse", "masks,lisa", "--pieces", 5, "--pieces", 7, "--rounds", 1, "--annotator", "table"
    )
    head, *lines = done.stdout.splitlines()
    assert head.startswith(f"{bert} (bert); cpu, ")
    assert "topical attention" in lines[1]
    rows = [line for line in lines if " × " in line][1:]
    assert [row.split()[:3] for row in rows] == [["102", "×", "5"]] * 3 + [["73", "×", "7"]] * 3
    plain, infused, times = map(float, rows[2].split()[-3:])  # peak memory does not vary
    assert times == pytest.approx(infused / plain, rel=0.05)  # of printed, rounded figures
    assert infused > plain > 0
    assert any(line.startswith("annotation by table: ") for line in lines)
    assert [line.split()[-1] for line in lines if line.startswith("N  ")] == ["7"]
    assert any("O(M D N²)" in line for line in lines)


def test_as_json_of_a_recipe_with_a_setting(bert, tmp_path):
    (tmp_path / "small.yaml").write_text(RECIPE)
    done = _run(tmp_path / "small.yaml", "infusion.width=5", "--pieces", "5", "--rounds", 1, "--json")
    report = json.loads(done.stdout)
    of_tags, fewer_columns = (18 + 2) * 5, 301 * 5
    assert report["parameters"]["source words and factors"] == of_tags - fewer_columns
    assert report["annotation"]["annotator"] == "en"
    assert report["attention_s"] == {}
    assert report["lengths"]["5"]["lines"] == 102
    assert report["lengths"]["5"]["step_s"].keys() == {"plain", "infused"}


def test_an_infused_folder_says_itself_what_it_has(bert, tmp_path):
    import syntaxformer as sf

    model = sf.infuse(hf.BertForSequenceClassification(hf.BertConfig(**SMALL)), "lisa")
    model.save_pretrained(tmp_path / "infused")
    done = _run(tmp_path / "infused", "--rounds", 1, "--annotator", "table")
    assert "LISA" in done.stdout
    assert [line.split()[:3] for line in done.stdout.splitlines() if " × " in line][1:] == [
        ["22", "×", "23"]
    ] * 3
    with pytest.raises(
        ConfigError, match=r"^--infuse: expected none, as the model says what is infused, got one"
    ):
        _run(tmp_path / "infused", "--infuse", "masks")


def test_what_is_refused(bert, tmp_path):
    (tmp_path / "plain.yaml").write_text(RECIPE.replace("infusion: {kind: concat_pos, width: 3}", ""))
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
        ([bert, "data.dir=x"], "model: expected a recipe before settings, got "),
        ([tmp_path / "gpt", "--infuse", "masks"], "model: expected an encoder, got the decoder-only GPT2"),
        (
            [tmp_path / "no" / "such", "--infuse", "masks"],
            "model: expected a folder, a name on the Hub or a recipe",
        ),
        (
            [tmp_path / "plain.yaml"],
            "--infuse: expected what to put into the plain model, got none: .*plain.yaml",
        ),
    ):
        with pytest.raises(ConfigError, match=message):
            _run(*arguments)


def test_each_row_of_the_table_is_measured():
    assert set(verb._ROWS) == {"step_s", "use_s", "peak_mib"}
