"""What `finetune`, `predict` and `sf.pipeline` say of data and predictions that a score does not tell of."""

from __future__ import annotations

import csv
import json
from collections import Counter

import pytest

import syntaxformer as sf
from syntaxformer.encoders.finetune_config import load_finetune
from syntaxformer.encoders.task_data import read_any_split, read_finetune_data
from syntaxformer.encoders.tasks import TASKS
from syntaxformer.study.experiments.cell import run_cell, write_cell
from syntaxformer.study.experiments.spec import Cell

QUICK = ("--set", "training.precision=fp32", "--set", "training.batch_size=4", "--set", "training.max_length=32",
         "--learning-rate", "0.01", "--epochs", "1")  # fmt: skip


@pytest.fixture
def finetuned(run, checkpoint, tmp_path):
    """Fine-tune a tiny encoder on a table; the command's result, and the folder."""

    def call(train, *more, name="run"):
        done = run("finetune", "--task", "classify", "--train", train, "--model", checkpoint, "-o", tmp_path / name,
                   *QUICK, *more)  # fmt: skip
        assert done.code == 0, done.err
        return done, tmp_path / name

    return call


@pytest.fixture
def held_out(tmp_path):
    """How many rows of each class a table's own tenth has; the same when it is asked again."""

    def call(rows):
        path = tmp_path / "mine.tsv"
        path.write_text("".join(f"{text}\t{label}\n" for text, label in rows))
        options = {"task": "classify", "model": "x", "output": tmp_path / "out", "data": {"train": str(path)}}
        one, two = (read_finetune_data(load_finetune(options)) for _ in range(2))
        assert one.dev.examples == two.dev.examples
        assert {example.texts for example in one.dev.examples}.isdisjoint(
            example.texts for example in one.train.examples
        )
        return Counter((one.task.labels or ())[int(example.label or 0)] for example in one.dev.examples)

    return call


def test_a_tenth_of_each_class_is_held_out(held_out, messages):
    rows = [(f"text {number}", "rare" if number % 20 == 7 else "usual") for number in range(200)]
    assert held_out(rows) == {"usual": 19, "rare": 1}
    assert held_out([*rows, *((f"more {number}", "third") for number in range(14))]) == {
        "usual": 19, "rare": 1, "third": 1,
    }  # fmt: skip
    assert "expected every class" not in messages.text


@pytest.mark.parametrize(
    "lone", [[("lonely text", "rare")], [("one text", "rare")] * 3], ids=["one row", "one text"]
)
def test_a_class_that_cannot_be_in_both_parts_is_named(held_out, messages, tmp_path, lone):
    rows = [(f"text {number}", "ab"[number % 2]) for number in range(60)]
    assert set(held_out([*rows, *lone])) == {"a", "b"}
    assert (
        f"{tmp_path / 'mine.tsv'}: expected every class among the 6 development rows, got none of rare, which "
        "scores ignore. Give --dev with all classes, or more rows: one row or one text cannot be in both parts."
    ) in messages.messages


def test_dev_rows_that_are_trained_on_are_counted(messages, tmp_path):
    """As when a file of held-out rows is given beside the table that they come from."""
    rows = [f"text {number}\t{'ab'[number % 2]}\n" for number in range(24)]
    paths = {name: str(tmp_path / f"{name}.tsv") for name in ("train", "dev")}
    for shared, n in ((rows[5:8], 3), ([], 0)):
        (tmp_path / "train.tsv").write_text("".join(rows))
        (tmp_path / "dev.tsv").write_text("".join([*shared, "other\ta\n", "another\tb\n"]))
        read_finetune_data(
            load_finetune({"task": "classify", "model": "x", "output": tmp_path / "o", "data": paths})
        )
        told = [one for one in messages.messages if "texts of the training rows" in one]
        assert (
            told
            == [
                f"{paths['dev']}: 3 of its 5 rows have texts of the training rows, which raises scores on dev. "
                "Leave them out of one of the two."
            ][:n]
        )
        messages.clear()


MIXED = "".join(
    f"the {noun} sleeps .\t{label}\n"
    for label in ("usual",) * 9 + ("rare",)
    for noun in ("cat", "dog", "child")
)
"""Texts say nothing of their label: whoever learns predicts the usual one."""


def test_a_dev_table_without_a_class(finetuned, tmp_path):
    (tmp_path / "train.tsv").write_text(MIXED)
    (tmp_path / "dev.tsv").write_text("the cat sleeps .\tusual\nthe dog sleeps .\tusual\n")
    done, _ = finetuned(tmp_path / "train.tsv", "--dev", tmp_path / "dev.tsv")
    assert "accuracy 1.0000" in done.out
    assert "expected every class among the 2 development rows, got none of rare" in done.err
    assert "never predicted" not in done.out + done.err  # dev has no such row


def test_a_class_that_is_never_predicted(run, finetuned, tmp_path):
    table = tmp_path / "mine.tsv"
    table.write_text(MIXED)
    done, folder = finetuned(table, "--dev", table)
    assert done.out.splitlines()[-2:] == ["never predicted: rare (3 rows)", str(folder)]
    assert (
        f"{folder}: never predicted: rare (3 rows). Train longer or with another learning rate, or give more such rows."
    ) in done.err.splitlines()
    assert json.loads((folder / "run.json").read_text())["never_predicted"] == {"rare": 3}
    predicted = run("--quiet", "predict", folder, table)
    assert predicted.err.splitlines() == [
        f"warning: {folder}: never predicted: rare (3 rows)",
        f"warning: {folder} gives all 30 rows the same answer, 'usual'",
        f"warning: {folder} was trained on 30 of these 30 rows, so its scores say little about new ones",
    ]
    assert "never" not in predicted.out
    (tmp_path / "texts.tsv").write_text("text\nthe cat sleeps .\n")
    assert run("--quiet", "predict", folder, tmp_path / "texts.tsv").err == ""  # nobody knows better


def test_a_run_of_an_experiment_stores_what_it_never_predicts(checkpoint, tmp_path):
    (tmp_path / "mine.tsv").write_text(MIXED)
    settings = {
        "task": "classify", "model": str(checkpoint), "data.train": str(tmp_path / "mine.tsv"),
        "data.dev": str(tmp_path / "mine.tsv"), "training.epochs": 1, "training.learning_rate": 0.01,
        "training.batch_size": 4, "training.precision": "fp32", "training.max_length": 32,
    }  # fmt: skip
    write_cell(Cell("finetune", None, {"seed": "1"}, settings, None), tmp_path / "cell", "scores")
    result = run_cell(tmp_path / "cell")
    assert result["never_predicted"] == {"rare": 3}
    assert "never_predicted" not in result["metrics"]


def test_a_text_that_is_cut(finetuned, tmp_path):
    (tmp_path / "mine.tsv").write_text(MIXED)
    _, folder = finetuned(tmp_path / "mine.tsv")
    classify = sf.pipeline(folder, device="cpu")
    message = (
        r"^1 of 2 texts were cut to 32 pieces: the rest was not read\. Split them, or fine-tune with a larger "
        r"training\.max_length\.$"
    )
    with pytest.warns(UserWarning, match=message):
        assert len(classify(["the cat " * 1500, "the dog sleeps ."])) == 2
    assert classify("the dog sleeps .")[0]["label"] in ("rare", "usual")  # and nothing is said


def written(path, rows, **how):
    """As pandas' `to_csv(sep="\\t")` writes a table."""
    with path.open("w", newline="") as file:
        csv.writer(file, delimiter="\t", lineterminator="\n", **how).writerows(rows)
    return path


HEAD = ("text", "label")
SAID = ('he said "the cat" twice', "a")
CSV = "quotes are read as in CSV, and removed: {}. Otherwise set data.quotes=text."
TEXT = "quotes are read as part of the text: {}. Otherwise set data.quotes=csv."
DOUBLED = "they enclose cells, and quotes inside cells are doubled"
NOTHING = "nothing tells for sure: they enclose cells, but none is doubled"


@pytest.fixture
def texts_of(tmp_path, messages):
    """The texts of a training table, and what was said of its quotes."""

    def read(path, **data):
        messages.clear()
        options = {"task": "classify", "model": "x", "output": tmp_path / "out"}
        given = {"train": str(path), "dev": str(path), **data}
        found = read_finetune_data(load_finetune({**options, "data": given}))
        said = [one.removeprefix(f"{path}: ") for one in messages.messages if "quotes are read" in one]
        return [one.texts[0] for one in found.train.examples], said

    return read


@pytest.mark.parametrize(
    ("rows", "how", "said"),
    [
        ([HEAD, SAID, ("plain", "b")], {}, DOUBLED),
        ([SAID, ("plain", "b")], {}, DOUBLED),
        ([HEAD, ('"all of it"', "a"), ("plain", "b")], {}, DOUBLED),
        ([HEAD, ("a tab\tinside", "a"), ("plain", "b")], {}, "only so have all rows as many cells"),
        ([HEAD, ("two\nlines", "a"), ("plain", "b")], {}, "only so have all rows as many cells"),
        ([HEAD, ("plain", "a"), ("more", "b")], {"quoting": csv.QUOTE_ALL}, "they enclose cells, also in line 1"),
    ],
)  # fmt: skip
def test_a_tsv_that_is_quoted_as_csv(texts_of, tmp_path, rows, how, said):
    texts, lines = texts_of(written(tmp_path / "mine.tsv", rows, **how))
    assert texts == [" ".join(text.split()) for text, _ in rows if text != "text"]
    assert lines == [CSV.format(said)] * 2  # training and development


@pytest.mark.parametrize(
    ("content", "texts", "said"),
    [
        ('"Fine," he said.\ta\nplain\tb\n', ['"Fine," he said.', "plain"], "some do not enclose a cell"),
        ('"open\ta\n"so ""and"" so"\tb\n', ['"open', '"so ""and"" so"'], "some do not enclose a cell"),
        ('"one line\ta\nanother."\tb\n', ['"one line', 'another."'], "some do not enclose a cell"),
        ('"a quotation"\ta\nplain\tb\n', ['"a quotation"', "plain"], NOTHING),
        ('a 5" pipe\ta\nplain ""\tb\n', ['a 5" pipe', 'plain ""'], None),
    ],
)
def test_a_tsv_whose_quotes_are_text(texts_of, tmp_path, content, texts, said, messages):
    (tmp_path / "mine.tsv").write_text(content)
    assert texts_of(tmp_path / "mine.tsv") == (texts, [TEXT.format(said)] * 2 if said else [])
    warned = [
        one for one in messages.records if one.levelname == "WARNING" and "quotes are" in one.getMessage()
    ]
    assert bool(warned) == (said == NOTHING)


def test_the_reading_of_quotes_can_be_set(texts_of, tmp_path):
    (tmp_path / "mine.tsv").write_text('"a quotation"\ta\nplain\tb\n')
    assert texts_of(tmp_path / "mine.tsv", quotes="csv") == (["a quotation", "plain"], [])
    path = written(tmp_path / "mine.tsv", [SAID, ("plain", "b")])
    assert texts_of(path, quotes="text") == (['"he said ""the cat"" twice"', "plain"], [])


def test_quotes_of_official_files_are_text(tmp_path):
    rows = ['gj04\t1\t\t"He ""said"" so."\n', "gj04\t0\t*\tHim said.\n"]
    (tmp_path / "train.tsv").write_text("".join(rows))
    assert read_any_split(TASKS["cola"], tmp_path, "train").examples[0].texts == ('"He ""said"" so."',)


def test_predict_reads_a_quoted_tsv_as_it_reads_the_csv(run, finetuned, tmp_path):
    rows = [(f'the "cat" likes the {noun} .', label) for label in "ab" * 6 for noun in ("dog", "house")]
    train = written(tmp_path / "train.tsv", [HEAD, *rows])
    done, folder = finetuned(train)
    assert f"{train}: {CSV.format(DOUBLED)}" in done.err
    with (tmp_path / "texts.csv").open("w", newline="") as file:
        csv.writer(file).writerows([HEAD[:1], *((text,) for text, _ in rows)])
    as_tsv = written(tmp_path / "texts.tsv", [HEAD[:1], *((text,) for text, _ in rows)])
    found = [run("--quiet", "predict", folder, path) for path in (tmp_path / "texts.csv", as_tsv)]
    assert found[0].code == 0, found[0].err
    assert found[0].out == found[1].out
    assert run("predict", folder, as_tsv).err == f"{as_tsv}: {CSV.format(DOUBLED)}\n"
