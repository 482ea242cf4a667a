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


def test_a_recipe_that_only_predicts_target_tags(bert, tmp_path):
    tagged = RECIPE.replace("infusion: {kind: concat_pos, width: 3}", "predict_target_pos: {annotator: de}")
    (tmp_path / "tagged.yaml").write_text(tagged)
    report = json.loads(_run(tmp_path / "tagged.yaml", "--pieces", 5, "--rounds", 1, "--json").stdout)
    n_tags = 18 + 2
    assert report["parameters"]["target tags and parses"] == n_tags * 22 + n_tags
    assert report["parameters"]["added in all"] == n_tags * 22 + n_tags
    assert report["annotation"] is None  # its source is not annotated


def test_a_model_folder_whose_only_syntax_is_the_parses_that_it_writes(bert, tmp_path):
    config = SyntaxTransformerConfig(
        vocab_size=31, d_model=22, n_heads=2, d_ff=29, encoder_layers=1, decoder_layers=1,
        parse_task={"labels": list("vwxyz"), "weight": 1.0},
    )  # fmt: skip
    config.save_pretrained(tmp_path / "parses")
    report = json.loads(_run(tmp_path / "parses", "--pieces", 5, "--rounds", 1, "--json").stdout)
    assert report["parameters"]["target tags and parses"] == 5 * 22


@pytest.mark.parametrize(("factors", "wanted"), [("case", None), ("subword", None), ("depth", {"governors"})])
def test_annotation_is_timed_if_a_factor_reads_it(bert, tmp_path, monkeypatch, factors, wanted):
    of = f"sum_then_concat, width: 3, factors: [{factors}]"
    (tmp_path / "one.yaml").write_text(RECIPE.replace("concat_pos, width: 3", of))
    needs = []
    monkeypatch.setattr(
        "syntaxformer.annotate.prepare",
        lambda name, needs_=needs, **given: needs_.append(given["needs"]) or Parser(name),
    )
    report = json.loads(_run(tmp_path / "one.yaml", "--pieces", 5, "--rounds", 1, "--json").stdout)
    assert (report["annotation"] is None) == (wanted is None)
    assert needs == ([] if wanted is None else [wanted])


def test_a_recipe_whose_sizes_come_from_data_is_refused(bert, tmp_path):
    recipe, unsized = tmp_path / "of_data.yaml", RECIPE.replace("vocab_size: 301, ", "")
    several = RECIPE.replace(
        "concat_pos, width: 3", "sum_then_concat, width: 3, factors: [pos, lemma, deprel]"
    )
    recipe.write_text(several + "parse_task: {}\n")
    with pytest.raises(ConfigError) as refused:
        _run(recipe)
    assert str(refused.value) == (
        f"{recipe}: expected sizes that need no data, got none for factor lemma, factor deprel, parse_task. "
        "Train first and give the model's folder."
    )
    recipe.write_text(unsized)
    with pytest.raises(ConfigError) as refused:
        _run(recipe)
    assert str(refused.value) == (
        f"{recipe}: expected sizes that need no data, got none for subwords.vocab_size. Set "
        "subwords.vocab_size=N, or train first and give the model's folder."
    )
    assert _run(recipe, "subwords.vocab_size=302", "--pieces", 3, "--rounds", 1).exit_code == 0


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


def test_the_card_that_is_named_is_described(bert, monkeypatch):
    monkeypatch.setattr("syntaxformer.runs.loading.pick_device", torch.device)
    monkeypatch.setattr(hf.PreTrainedModel, "to", lambda model, place: model)  # this machine may have no card
    monkeypatch.setattr("torch.cuda.get_device_name", lambda place=None: f"card {place and place.index}")
    done = _run(bert, "--infuse", "pos_add", "--pieces", 3, "--rounds", 1, "--device", "cuda:1:bf16")
    assert "; cuda:1, card 1, bf16, " in done.stdout.splitlines()[0]


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
        (["such", "--infuse", "masks"], "model: expected a folder, a name on the Hub or a recipe"),
        (
            [tmp_path / "plain.yaml"],
            "--infuse: expected what to put into the plain model, got none: .*plain.yaml",
        ),
    ):
        with pytest.raises(ConfigError, match=message):
            _run(*arguments)


def test_each_row_of_the_table_is_measured():
    assert set(verb._ROWS) == {"step_s", "use_s", "peak_mib"}
