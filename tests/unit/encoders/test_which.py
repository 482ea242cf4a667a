"""From a raw table of unequal classes to which model is better on it: `finetune`, `predict`, `evaluate`, `compare`."""

from __future__ import annotations

import csv
import json
from collections import Counter
from statistics import mean, stdev
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from sklearn.metrics import f1_score, precision_recall_fscore_support
from sklearn.utils.class_weight import compute_class_weight
from transformers import Trainer

from syntaxformer.base.errors import ConfigError
from syntaxformer.base.statistics import mcnemar_p
from syntaxformer.encoders import finetuning
from syntaxformer.encoders.finetuning import FinetuneTrainer
from syntaxformer.encoders.task_types import OneLabel, Score, WrittenLabel

CLASSES = {"usual": 128, "odd": 24, "rare": 8}
QUICK = [f"--set=training.{setting}" for setting in ("precision=fp32", "batch_size=16", "max_length=32")]
COLUMNS = ["id", "review", "mood", "remark"]


def finetune(run, train, model, output, *options):
    return run("finetune", "--task", "classify", "--train", train, "--model", model, "-o", output, *QUICK, *options)  # fmt: skip


NAMED = ("--text-column", "review", "--label-column", "mood")


def rows_of(seed=5):
    """Texts with quotes, commas and line breaks; a word tells the class of most."""
    rng, told = np.random.default_rng(seed), {"usual": "likes", "odd": "not", "rare": "big"}
    rows = []
    for number, label in enumerate(rng.permutation(np.repeat([*CLASSES], [*CLASSES.values()]))):
        letters = " ".join(rng.choice([*"bcdfgh"], 4))
        text = f'the "{rng.choice(["cat", "dog"])}", {letters},\n{told[label] if number % 9 else "sees"} .'
        rows.append([str(number), text, str(label), 'he said: "so", twice\nor more' if number % 2 else ""])
    return rows


@pytest.fixture(scope="module")
def trained(run, checkpoint, tmp_path_factory):
    """The table, and three models: one that learns, one that learns less, and one that learns nothing."""
    folder = tmp_path_factory.mktemp("which")
    with (folder / "mine.csv").open("w", newline="") as file:
        csv.writer(file).writerows([COLUMNS, *rows_of()])
    said = {}
    for name, rate, epochs in (("good", "0.01", 5), ("less", "0.01", 3), ("none", "1e-9", 1)):
        options = (*NAMED, "--learning-rate", rate, "--epochs", epochs)
        done = finetune(run, folder / "mine.csv", checkpoint, folder / name, *options)
        assert done.code == 0, done.err
        said[name] = done
    return folder, said


def read_csv(path):
    with path.open(newline="") as file:
        return list(csv.reader(file))


def answers(run, folder, table, output):
    assert run("predict", folder, table, "-o", output).code == 0
    return [line.split("\t")[0] for line in output.read_text().splitlines()[1:]]


@pytest.mark.slow
def test_held_out_rows_stand_beside_the_model_as_in_the_users_file(trained):
    folder, said = trained
    head, *held = read_csv(folder / "good" / "held_out.csv")
    assert head == COLUMNS
    assert Counter(row[2] for row in held) == {"usual": 13, "odd": 2, "rare": 1}  # a tenth of each class
    assert [row for row in rows_of() if row in held] == held
    assert len({(folder / name / "held_out.csv").read_bytes() for name in ("good", "less", "none")}) == 1
    assert "labels, sorted (numbers by value): odd (24), rare (8), usual (128)" in said["good"].err
    manifest = json.loads((folder / "good" / "manifest.json").read_text())["files"]
    assert manifest.keys().isdisjoint({"trained_on.txt", "held_out.csv"})  # they may be removed
    texts = {row[1] for row in rows_of()} - {row[1] for row in held}
    assert len((folder / "good" / "trained_on.txt").read_text().split()) == len(texts)


def test_training_ends_with_a_table_of_the_classes(run, trained):
    folder, said = trained
    report = json.loads((folder / "good" / "run.json").read_text())
    lines = said["good"].out.splitlines()
    assert lines[3].split() == ["class", "precision", "recall", "F1", "rows"]
    gold, found = ([*map(int, report["dev_predictions"][side].split())] for side in ("gold", "found"))
    expected = precision_recall_fscore_support(gold, found, labels=[0, 1, 2], zero_division=0.0)
    for place, (label, line) in enumerate(zip(("odd", "rare", "usual"), lines[4:7], strict=True)):
        values = [float(part[place]) for part in expected[:3]]
        assert line.split() == [label, *(f"{value:.4f}" for value in values), str(expected[3][place])]
        assert [*report["classes"][label].values()] == pytest.approx([*values, expected[3][place]])
    predicted = run("--quiet", "predict", folder / "good", folder / "good" / "held_out.csv")
    assert predicted.out.splitlines() == lines[:7]  # as training said
    assert "trained on" not in predicted.err


def test_which_is_better_on_my_rows(run, trained, tmp_path):
    folder, _ = trained
    table = folder / "mine.csv"
    rows, good, less = (rows_of(), *(folder / name for name in ("good", "less")))
    told = [answers(run, one, table, tmp_path / "out.tsv") for one in (good, less)]
    right = [np.array([answer == row[2] for answer, row in zip(side, rows, strict=True)]) for side in told]
    alone = int((right[0] & ~right[1]).sum()), int((right[1] & ~right[0]).sum())
    done = run("--quiet", "predict", good, table, "--baseline", less)
    assert done.code == 0, done.err
    exact, mid = mcnemar_p(*alone)
    shown = "< 0.001" if mid < 0.0005 else f"= {mid:.3f}"
    line = next(line for line in done.out.splitlines() if line.startswith("accuracy +"))
    assert line.startswith(f"accuracy {right[0].mean() - right[1].mean():+.4f} against {less}, 95 % +")
    rows_alone = f"right alone on {alone[0]} rows, the other on {alone[1]})"
    assert line.endswith(f"p {shown} (McNemar's mid-p; exact {exact:.3f}; {rows_alone}")
    found = json.loads(run("evaluate", good, table, "--baseline", less, "--json").out)
    first, second = found["systems"].values()
    assert found["n_rows"] == 160
    assert found["accuracy"] == pytest.approx(right[0].mean())
    numbers = [[sorted(CLASSES).index(one) for one in side] for side in (*told, [row[2] for row in rows])]
    assert second["scores"]["macro_f1"] == pytest.approx(f1_score(numbers[2], numbers[1], average="macro"))
    test = second["against"]["macro_f1"]
    assert test["test"] == "paired permutation"
    assert test["difference"] == pytest.approx(first["scores"]["macro_f1"] - second["scores"]["macro_f1"])
    assert test["low"] < test["difference"] < test["high"]
    assert 0 < test["p_value"] <= 1
    # Both say that they were trained on most of these rows.
    assert first["n_trained_on"] == second["n_trained_on"] == 144
    warned = f"warning: {good} was trained on 144 of these 160 rows, so its scores say little about new ones"
    assert warned in done.err.splitlines()


def test_a_model_that_predicts_one_class_gets_no_p(run, trained):
    folder, _ = trained
    good, none, held = folder / "good", folder / "none", folder / "good" / "held_out.csv"
    assert len(set(answers(run, none, held, folder / "out.tsv"))) == 1
    done = run("--quiet", "evaluate", good, held, "--baseline", none)
    assert done.code == 0, done.err
    tests = [line for line in done.out.splitlines() if f"against {none}" in line]
    assert len(tests) == 3  # accuracy, macro F1, mean
    assert all(line.endswith(", no p: one of them gives all rows the same answer") for line in tests)
    assert f"warning: {none} gives all 16 rows the same answer, " in done.err


@pytest.mark.slow
def test_compare_shows_the_rows_on_which_classifiers_differ(run, trained, tmp_path):
    folder, _ = trained
    models = [folder / name for name in ("none", "less", "good")]
    done = run("--quiet", "compare", *models, "--data", folder / "mine.csv", "--examples", 100)
    assert done.code == 0, done.err
    told = [answers(run, model, folder / "mine.csv", tmp_path / "out.tsv") for model in models]
    differing = [(row, side) for row, *side in zip(rows_of(), *told, strict=True) if len(set(side)) > 1]
    differing.sort(key=lambda item: item[1][0] == item[0][2])  # rows that the baseline gets wrong come first
    lines = done.out.partition("## Where they differ")[2].splitlines()[4:]
    shown = [line.strip("| ").split(" | ") for line in lines]
    assert shown[0] == ["line", "label", "none", "less", "good", "text"]
    assert [row[1:5] for row in shown[2:] if len(row) > 1] == [[row[2], *side] for row, side in differing]
    assert f"The answers differ on {len(differing)} rows; {len(differing)} of them follow." in done.out
    for system, name in enumerate(("less", "good"), 1):
        right = [(side[system] == row[2], side[0] == row[2]) for row, side in differing]
        counts = right.count((True, False)), right.count((False, True))
        assert f" {name} is right and none wrong on {counts[0]}, the reverse on {counts[1]}." in done.out
    assert "| good | accuracy |" in done.out
    assert "one of them gives all rows the same answer" in done.out
    page = tmp_path / "cases.html"
    assert run("compare", *models, "--data", folder / "mine.csv", "-o", page).code == 0
    assert "<h1>none, less and good, row by row</h1>" in page.read_text()


NOUNS, LABELS = ("cat", "dog", "child"), ("usual",) * 9 + ("rare",)
MIXED = "".join(f"the {noun} sleeps .\t{label}\n" for label in LABELS for noun in NOUNS)
"""Texts say nothing of their label: whoever learns predicts the usual one."""


@pytest.mark.slow
def test_a_class_that_is_never_predicted(run, checkpoint, tmp_path):
    table, folder = tmp_path / "mine.tsv", tmp_path / "run"
    table.write_text(MIXED)
    done = finetune(run, table, checkpoint, folder, "--dev", table, "--epochs", 1)
    assert done.out.splitlines()[-2:] == ["never predicted: rare (3 rows)", str(folder)]
    assert f"{folder}: never predicted: rare (3 rows). Train longer" in done.err
    assert json.loads((folder / "run.json").read_text())["never_predicted"] == {"rare": 3}
    assert run("--quiet", "predict", folder, table).err.splitlines() == [
        f"warning: {folder}: never predicted: rare (3 rows)",
        f"warning: {folder} gives all 30 rows the same answer, 'usual'",
        f"warning: {folder} was trained on 30 of these 30 rows, so its scores say little about new ones",
    ]
    (tmp_path / "texts.tsv").write_text("text\nthe cat sleeps .\n")
    assert run("--quiet", "predict", folder, tmp_path / "texts.tsv").err == ""  # nobody knows better
    # A model of other labels is not set beside it.
    table_of_others = tmp_path / "other.tsv"
    table_of_others.write_text("".join(f"the {label} cat\t{label}\n" for label in "ab" * 12))
    options = ("--dev", table_of_others, "--epochs", 1)
    assert finetune(run, table_of_others, checkpoint, tmp_path / "other", *options).code == 0
    done = run("predict", folder, table, "--baseline", tmp_path / "other")
    assert done.code == 2
    assert "--baseline: expected one with the model's labels (rare, usual)" in done.err


def test_all_seeds_are_checked_before_the_first_is_trained(run, checkpoint, trained, tmp_path):
    folder, _ = trained
    (tmp_path / "runs" / "seed5").mkdir(parents=True)
    (tmp_path / "runs" / "seed5" / "recipe.yaml").touch()
    done = finetune(run, folder / "mine.csv", checkpoint, tmp_path / "runs", *NAMED, "--seeds", "2,5")
    assert done.code == 2
    assert "seed5, which holds another run" in done.err
    assert not (tmp_path / "runs" / "seed2").exists()


@pytest.mark.slow
def test_unequal_classes_over_seeds(run, checkpoint, trained, tmp_path):
    """Weights, the metric that chooses the epoch, patience and seeds, from one command."""
    folder, _ = trained
    settings = [f"--set=training.{key}" for key in ("class_weights=balanced", "best_by=matthews", "patience=1")]  # fmt: skip
    options = (*NAMED, "--learning-rate", "1e-9", "--epochs", 9, "--seeds", "2,5", *settings)
    done = finetune(run, folder / "mine.csv", checkpoint, tmp_path / "runs", *options)
    assert done.code == 0, done.err
    found = json.loads((tmp_path / "runs" / "seeds.json").read_text())
    assert list(found["seeds"]) == ["2", "5"]
    scores = [one["dev"]["macro_f1"] for one in found["seeds"].values()]
    assert found["mean"]["macro_f1"] == pytest.approx(mean(scores))
    assert found["sd"]["macro_f1"] == pytest.approx(stdev(scores))
    lines = [line.split() for line in done.out.splitlines()]
    assert lines[0] == ["seed", "accuracy", "macro_f1", "matthews", "mean", "model"]
    assert [line[0] for line in lines[1:]] == ["2", "5", "mean", "sd"]
    assert lines[1][-1] == str(tmp_path / "runs" / "seed2")
    report = json.loads((tmp_path / "runs" / "seed5" / "run.json").read_text())
    epochs = report["trials"][0]["epochs"]
    assert [epoch["score"] for epoch in epochs] == [epoch["matthews"] for epoch in epochs]
    assert len(epochs) == 2  # nothing is learned at this rate, so the second epoch is no better
    assert "stopping early: no better score in 1 evaluations" in done.err
    train = [row[2] for row in rows_of() if row not in read_csv(folder / "good" / "held_out.csv")]
    expected = compute_class_weight("balanced", classes=np.array(sorted(CLASSES)), y=np.array(train))
    assert [*report["class_weights"].values()] == pytest.approx(expected.tolist())
    held = tmp_path / "runs" / "seed2" / "held_out.csv"
    first, other = (tmp_path / "runs" / f"seed{seed}" for seed in (5, 2))
    again = json.loads(run("predict", first, held, "--baseline", other, "--json").out)
    assert again["matthews"] == pytest.approx(found["seeds"]["5"]["dev"]["matthews"], abs=1e-6)


def test_weights_multiply_the_loss_of_rows(monkeypatch):
    labels, weights = torch.tensor([0, 2, 2, 1]), torch.tensor([0.5, 3.0, 0.25])
    logits = torch.randn(4, 3, generator=torch.Generator().manual_seed(1))

    def plain(*_):
        loss = torch.nn.functional.cross_entropy(logits, labels)
        return loss + 7.0, SimpleNamespace(logits=logits)  # 7: what else a model adds

    monkeypatch.setattr(Trainer, "compute_loss", plain)
    trainer = object.__new__(FinetuneTrainer)
    trainer.task_type, trainer.class_weights = OneLabel(("a", "b", "c")), weights
    found = trainer.compute_loss(None, {"labels": labels})
    each = [weights[label] * -logits[row].log_softmax(-1)[label] for row, label in enumerate(labels.tolist())]
    assert float(found) == pytest.approx(float(sum(each)) / 4 + 7.0, rel=1e-6)


def test_who_may_have_weights_and_which_metric_chooses():
    assert OneLabel(("a", "b", "c")).balanced_weights([0, 0, 0, 1]) == pytest.approx([4 / 6, 4 / 2, 1.0])
    for kind, told in (Score(), "'score'. Leave it out."), (WrittenLabel.over(("a", "b")), "Set head=classifier."):  # fmt: skip
        with pytest.raises(ConfigError, match=f"training.class_weights: expected a network .*{told}$"):
            kind.balanced_weights([0, 1])


def test_one_seed_has_no_deviation(run, monkeypatch, tmp_path):
    """It is null in JSON, which has no NaN."""
    (tmp_path / "run.json").write_text('{"dev": {"accuracy": 0.5}}')
    monkeypatch.setattr(finetuning, "finetune", lambda *_: tmp_path)
    (tmp_path / "x.tsv").write_text("".join(f"text {n}\t{'ab'[n % 2]}\n" for n in range(20)))
    done = finetune(run, tmp_path / "x.tsv", "x", tmp_path / "runs", "--seeds", 2)
    assert done.code == 0, done.err
    found = json.loads((tmp_path / "runs" / "seeds.json").read_text(), parse_constant=pytest.fail)
    assert (found["mean"], found["sd"]) == ({"accuracy": 0.5}, {"accuracy": None})
    assert [line.split() for line in done.out.splitlines()[-2:]] == [["mean", "0.5000"], ["sd"]]
