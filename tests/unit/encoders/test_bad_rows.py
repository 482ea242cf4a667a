"""Rows that cannot be used: all are found in one pass, before torch; and labels that training never saw."""

from __future__ import annotations

import csv
import json
import resource
import subprocess
import sys

import pytest

from syntaxformer.base.errors import BadRowsError, DataError
from syntaxformer.base.files import read_json
from syntaxformer.encoders.examples import TextExample, TextSet
from syntaxformer.encoders.finetuning import finetune
from syntaxformer.encoders.own_tables import read_own_table
from syntaxformer.encoders.tables import BadRows, TableColumns
from syntaxformer.encoders.task_data import report_labels
from syntaxformer.encoders.task_types import OneLabel, SeveralLabels, WordTags
from syntaxformer.encoders.tasks import OWN_TASKS


def read(path, task, limit=0, name="train", labels=(), **how):
    task_type = OWN_TASKS[task].model_copy(update={"labels": labels}).task_type
    bad = BadRows(path, limit)
    texts, _, _ = read_own_table(path, task_type, TableColumns(), name, bad=bad, **how)
    return texts, bad


def objects(*rows) -> str:
    return "".join(f"{json.dumps(row)}\n" if isinstance(row, dict) else f"{row}\n" for row in rows)


CONTEXT = "A cat sees a dog ."
FILES = [
    ("classify", "a.tsv", "x y\ta\nshort\nz\tb\n\tb\nmore\t\nlast\ta\n", [2, 4, 5]),
    ("classify", "a.csv", 'text,label\nx,a\n"y"z,b\nz,b\n,a\n', [3, 5]),
    ("classify", "a.jsonl", objects({"text": "x", "label": "a"}, "{", {"text": "y", "label": ["b"]}, "[]", {"text": "z", "label": "b"}), [2, 3, 4]),
    ("regress", "a.tsv", "x\t1\ny\tmuch\nz\tinf\nw\t2\n", [2, 3]),
    ("multilabel", "a.jsonl", objects({"text": "x", "labels": ["a"]}, {"text": "y", "labels": "a"}, {"text": "", "labels": []}, {"text": "z", "labels": [""]}), [2, 3, 4]),
    ("vector", "a.jsonl", objects({"text": "x", "scores": [1, 2]}, {"text": "y", "scores": [1]}, {"text": "z", "scores": "1"}), [2, 3]),
    ("ner", "a.conll", "a\tO\nb\n\nc\tB-X\nd\tO\n\ne\t \nf\n", [2, 8]),
    ("ner", "a.jsonl", objects({"tokens": ["a"], "tags": ["O"]}, {"tokens": ["a"], "tags": []}, {"tokens": ["a"], "tags": [1]}), [2, 3]),
    ("squad", "a.jsonl", objects(
        {"question": "who?", "context": CONTEXT, "answers": {"text": ["A cat"], "answer_start": [0]}},
        {"question": "who?", "context": CONTEXT, "answers": {"text": ["a dog"], "answer_start": [1]}},
        {"question": "who?", "answers": {"text": [], "answer_start": []}}), [2, 3]),
]  # fmt: skip


@pytest.mark.parametrize(("task", "name", "content", "lines"), FILES)
def test_all_bad_rows_are_found_in_one_pass(table, task, name, content, lines):
    path = table(content, name)
    with pytest.raises(BadRowsError) as caught:
        read(path, task)
    *shown, count = caught.value.problems
    assert [problem.split(": ")[0] for problem in shown] == [f"{path}:{line}" for line in lines]
    assert f"got {len(lines)} that cannot" in count
    assert caught.value.line == lines[0]
    with pytest.raises(BadRowsError):
        read(path, task, limit=len(lines) - 1)
    texts, bad = read(path, task, limit=len(lines))
    assert len(bad.rows) == len(lines) == texts.left_out["row that cannot be used"]
    assert len(texts) >= 1
    assert not {example.line for example in texts.examples} & {*lines}


def test_the_first_twenty_bad_rows_are_shown(table):
    rows = [f"text {n}\t{'ab'[n % 2]}\n" if n % 3 else "broken\n" for n in range(1, 100)]
    with pytest.raises(BadRowsError) as caught:
        read(table("".join(rows)), "classify")
    *shown, count = caught.value.problems
    assert len(shown) == 20
    assert shown[-1].startswith(f"{caught.value.path}:60: row: expected 2 cells, got 1")
    assert "got 33 that cannot, of which 20 are shown" in count
    assert "--skip-bad-rows 33" in count
    # One bad row has an error of one line.
    with pytest.raises(DataError) as caught:
        read(table("a\tpos\nb\n"), "classify")
    assert "\n" not in str(caught.value)
    assert len(caught.value.problems) == 1


def test_a_table_is_checked_before_torch_is_imported(table):
    path = table("text\tlabel\nfine\ta\nfine\tb\n")
    code = (
        "import sys; from syntaxformer.cli.main import app\n"
        f"arguments = {['finetune', '--task', 'classify', '--train', str(path), '--model', 'x', '-o', 'o']}\n"
        "try: app([*arguments, '--label-column', 'mood'], standalone_mode=False)\n"
        "except Exception as error: print(error)\n"
        "print('torch' in sys.modules, 'transformers' in sys.modules)"
    )
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    told, imported, _ = done.stdout.split("\n")
    assert told.startswith(f"{path}: --label-column: expected a column 'mood'")
    assert imported == "False False"
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 1.5


@pytest.mark.slow
def test_bad_rows_are_left_out_and_written(config_of, table, messages):
    rows = [f"the {'cat' if n % 2 else 'dog'} sleeps {n} .\t{'ab'[n % 2]}\n" for n in range(40)]
    path = table("".join([*rows, "=broken\n", "\ta\n"]))
    options = {"task": "classify", "data": {"train": str(path), "skip_bad_rows": 2}}
    folder = finetune(config_of("training.epochs=1", **options))
    with (folder / "bad_rows.csv").open(newline="") as stored:
        head, *bad = csv.reader(stored)
    assert head == ["file", "line", "reason", "row"]
    assert [(row[0], row[1], json.loads(row[3])) for row in bad] == [
        (str(path), "41", {"cells": ["=broken"]}),
        (str(path), "42", {"1": "", "2": "a"}),
    ]
    assert "bad_rows.csv: left out 2 rows that cannot be used" in messages.text
    assert read_json(folder / "run.json")["left_out"]["train"] == {"row that cannot be used": 2}
    assert "bad_rows.csv" not in read_json(folder / "manifest.json")["files"]


# Labels that training never saw.


def test_unknown_classes_count_as_missed(table, messages):
    path = table("one\ta\ntwo\tb\nthree\tnew\nfour\tnewer\nfive\tnew\n")
    texts, _ = read(path, "classify", name="dev", labels=("a", "b"))
    gold = [example.label for example in texts.examples]
    assert gold == [0, 1, 2, 3, 2]
    warning = f"{path}: labels that training did not have count as missed: 'new' (2), 'newer' (1)"
    assert messages.messages.count(warning) == 1
    task_type, answers = OneLabel(("a", "b")), [0, 1, 1, 0, 1]
    scores = task_type.score(("accuracy", "macro_f1"), gold, answers)
    # a: precision 1/2, recall 1; b: 1/3, 1; new and newer: 0.
    assert (scores["accuracy"], scores["macro_f1"]) == pytest.approx((2 / 5, (2 / 3 + 1 / 2 + 0 + 0) / 4))
    assert [*task_type.class_table(gold, answers)] == ["a", "b"]
    assert task_type.never_predicted(gold, [0] * 5) == {"b": 1}
    assert task_type.show(3) == "(not learned)"
    with pytest.raises(DataError, match=r":3: label: expected one of a, b, got 'new'"):
        read(path, "classify", labels=("a", "b"))


def test_unknown_labels_and_tags_count_as_missed(table, messages):
    path = table(objects({"text": "x", "labels": ["a", "new"]}, {"text": "y", "labels": ["b"]}), "m.jsonl")
    texts, _ = read(path, "multilabel", name="dev", labels=("a", "b"))
    gold = [example.label for example in texts.examples]
    assert gold == [("a", "new"), ("b",)]
    scores = SeveralLabels(("a", "b")).score((), gold, [("a",), ("b",)])
    assert scores["micro_f1"] == pytest.approx(2 * 2 / (3 + 2))
    assert scores["macro_f1"] == pytest.approx((1 + 1 + 0) / 3)
    tags = table("Ann\tB-PER\nin\tO\nRome\tB-LOC\n", "t.conll")
    texts, _ = read(tags, "ner", name="dev", labels=("B-PER", "O"))
    assert texts.examples[0].label == ("B-PER", "O", "B-LOC")
    scores = WordTags(("B-PER", "O")).score((), [texts.examples[0].label], [("B-PER", "O", "O")])
    assert scores == pytest.approx({"f1": 2 / 3, "accuracy": 2 / 3, "precision": 1.0, "recall": 1 / 2})
    assert [messages.text.count(f"count as missed: {label} (1)") for label in ("'new'", "'B-LOC'")] == [1, 1]


# What is wrong with rows that can be used.


def labelled(name, *rows):
    examples = [TextExample((text,), label, line=n) for n, (text, label) in enumerate(rows, 1)]
    return TextSet(name, name, examples)


def test_what_a_report_of_labels_says():
    rows = [("x", 0), ("y", 1), ("x", 1), ("z", 1), ("z", 1), *((f"w {n}", 0) for n in range(5))]
    dev = labelled("dev", ("q", 0), ("y", 0))
    faults, warnings = report_labels(OneLabel(("a", "b")), labelled("train", *rows), [dev])
    assert faults == {
        "duplicates of an earlier row": [2, 4],
        "with the text of a row that has another label": [0, 2],
        "also in dev": [1],
        "of class a": [0, 5, 6, 7, 8, 9],
        "of class b": [1, 2, 3, 4],
    }
    contrary, known, few = warnings
    assert "got several in 2 rows, as in line 1 (a), line 3 (b)" in contrary
    assert known.startswith("dev: 1 of its 2 rows have texts of the training rows")
    assert "fewer of b (4)" in few
    scores = report_labels(OWN_TASKS["regress"].task_type, labelled("train", ("x", 1.0), ("x", 2.0)))
    assert not scores[1]  # several people may give a text several scores


def test_data_report_of_tables(run, table):
    train = table("text\tlabel\nx\ta\ny\tb\nx\tb\nbroken\n")
    dev = table("text\tlabel\ny\tb\nw\tnew\n", "dev.tsv")
    lines = run("data", "report", train, dev, "--task", "classify").out.split("\n")
    assert lines[0] == f"{train}: 3 rows"
    assert f"        1  33.33%  also in {dev}   lines 3" in lines
    assert any(line.startswith(f"{train}:5: row: expected 2 cells, got 1") for line in lines)
    content = json.loads(run("data", "report", train, dev, "--task", "classify", "--json").out)
    assert content["faults"]["duplicates of an earlier row"] == {"rows": 1, "share": 1 / 3, "lines": [4]}
    for key, *options in ("--task", "--task", "cola"), ("columns", "--label-column", "x"), ("--all", "--task", "ner", "--all"):  # fmt: skip
        result = run("data", "report", train, *options)
        assert result.code == 2
        assert key in result.err
