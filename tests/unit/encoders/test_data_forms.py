"""Own data of every task in every form: a file, a saved data set, a name on the Hub."""

from __future__ import annotations

import csv
import json

import datasets
import numpy as np
import pytest
from datasets import ClassLabel, Dataset, DatasetDict, List

from syntaxformer.base.errors import ConfigError
from syntaxformer.encoders.classifier import Classifier
from syntaxformer.encoders.prediction import read_split_for, read_texts_for
from syntaxformer.encoders.task_data import DataSettings, LabelledData, read_finetune_data
from syntaxformer.encoders.tasks import OWN_TASKS
from syntaxformer.serve.engines import ClassifierEngine
from syntaxformer.serve.schemas import Classification

from .conftest import info_of

N = 40
SUBJECTS = ("cat", "dog", "child")
FORMS = ("csv", "tsv", "jsonl", "parquet", "folder", "hub")


def rows_of(task: str) -> list[dict]:
    rows = []
    for number in range(N):
        subject, is_odd = SUBJECTS[number % 3], number % 2
        text = f"the {subject} {'not ' * is_odd}sleeps ."
        words = [*text.split(), *["big"] * (number // 6)]
        text = " ".join(words)
        answer = {"text": [f"the {subject}"], "answer_start": [0]}
        rows.append({
            "classify": {"text": text, "label": "ab"[is_odd]},
            "regress": {"text": text, "score": number / 4},
            "similarity": {"sentence1": text, "sentence2": "a dog barks .", "score": number / 8},
            "multilabel": {"text": text, "labels": [["a"], ["a", "b"], []][number % 3]},
            "vector": {"text": text, "scores": [number / 4, 1.0 * is_odd]},
            "ner": {"tokens": words, "tags": ["O", "B-X", *["O"] * (len(words) - 2)]},
            "squad": {"id": f"q{number}", "question": "who sleeps ?", "context": text, "answers": answer},
        }[task])  # fmt: skip
    return rows


CLASSES = {
    "classify": ("label", ClassLabel(names=["a", "b"])),
    "ner": ("tags", List(ClassLabel(names=["B-X", "O"]))),
}


def make(folder, task, form, monkeypatch):
    """The training rows in a form, and what `--train`, or `--data` of a data set, takes."""
    rows, path = rows_of(task), folder / f"{task}.{form}"
    if form == "jsonl":
        path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    elif form in ("csv", "tsv"):
        with path.open("w", newline="") as file:
            writer = csv.writer(file, delimiter="," if form == "csv" else "\t", lineterminator="\n")
            cells = ([json.dumps(c) if isinstance(c, list | dict) else c for c in row.values()] for row in rows)  # fmt: skip
            writer.writerows([list(rows[0]), *cells])
    else:
        data = Dataset.from_list(rows)
        if task in CLASSES:  # numbers with names, as on the Hub
            name, feature = CLASSES[task]
            data = data.cast(datasets.Features({**data.features, name: feature}))
        if form == "parquet":
            data.to_parquet(path)
        elif form == "folder":
            DatasetDict({"train": data, "validation": data.select(range(20))}).save_to_disk(path)
        else:
            monkeypatch.setattr(datasets, "load_dataset", lambda *_: DatasetDict({"train": data}))
            path = "hub:someone/something"
    return str(path)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("task", OWN_TASKS)
def test_every_form_gives_the_same_rows(tmp_path, monkeypatch, task, form):
    rows, source = rows_of(task), make(tmp_path, task, form, monkeypatch)
    data = read_finetune_data(DataSettings(task=task, data=LabelledData(train=source)))
    if form == "folder":
        by_dir = read_finetune_data(DataSettings(task=task, data=LabelledData(dir=source)))
        assert len(by_dir.train) == N
        assert len(by_dir.dev) == 20
        assert by_dir.dev.source == f"{source}, dev"
    examples = sorted([*data.train.examples, *data.dev.examples], key=lambda example: example.line)
    column, expected = {
        "classify": ("text", lambda row: "ab".index(row["label"])),
        "regress": ("text", lambda row: row["score"]),
        "similarity": ("sentence1", lambda row: row["score"]),
        "multilabel": ("text", lambda row: tuple(sorted(row["labels"]))),
        "vector": ("text", lambda row: tuple(row["scores"])),
        "ner": ("tokens", lambda row: tuple(row["tags"])),
        "squad": ("question", lambda row: ((0, row["answers"]["text"][0]),)),
    }[task]
    texts = [" ".join(row[column]) if task == "ner" else row[column] for row in rows]
    assert [example.texts[0] for example in examples] == texts
    assert [example.label for example in examples] == list(map(expected, rows))
    columns = {f"{name}_column": getattr(data.columns, name) for name in ("text", "label")}
    columns |= {"text_pair_column": data.columns.pair, "n_texts": len(data.task.texts)}
    info = info_of(task, data.task.labels, **columns)
    if form in ("folder", "hub"):
        texts_to_predict = read_split_for(info, None, source, "train")[1]
    else:
        texts_to_predict = read_texts_for(info, source)
    assert [(example.texts, example.label) for example in texts_to_predict.examples] == [
        (example.texts, example.label) for example in examples
    ]


PAIRS = [
    ("ner", "tsv"),
    ("squad", "hub"),
    ("multilabel", "folder"),
    *((task, "parquet") for task in OWN_TASKS),
]


@pytest.mark.slow
@pytest.mark.parametrize(("task", "form"), PAIRS)
def test_each_task_is_trained_predicted_served_exported(tmp_path, checkpoint, run, monkeypatch, task, form):
    """Each task of one form, and each way to name the data; the test above reads all of them alike."""
    source, folder = make(tmp_path, task, form, monkeypatch), tmp_path / "run"
    is_set = form in ("folder", "hub")
    quick = [f"--set=training.{setting}" for setting in ("precision=fp32", "epochs=1", "max_length=32")]
    train = ("--task", task, "--data" if is_set else "--train", source, "--model", checkpoint)
    done = run("finetune", *train, *quick, "-o", folder)
    assert done.code == 0, done.err
    done = run("predict", folder, *(("--data", source, "--split", "train") if is_set else (source,)), "--json")  # fmt: skip
    assert done.code == 0, done.err
    assert json.loads(done.out)["n_rows"] == N
    is_pair = task in ("squad", "similarity")
    texts = [("who sleeps ?", "the cat sleeps .")] if is_pair else ["the cat sleeps ."]
    loaded = [Classifier.from_folder(folder)]
    done = run("export", folder, exported := tmp_path / "onnx")
    if task == "similarity":  # whose two texts go through the network one by one
        assert (done.code, "one pass over a text" in done.err) == (2, True)
    else:
        assert done.code == 0, done.err
        loaded.append(Classifier.from_folder(exported))
        first, second = (classifier.predict(texts).labels for classifier in loaded)
        if task in ("regress", "vector"):
            assert np.allclose(first, second, atol=1e-4)
        else:
            assert str(first)[:30] == str(second)[:30]
    for classifier in loaded:
        (served,) = ClassifierEngine("mine", classifier).work(None, texts)
        assert isinstance(served, Classification)


def test_data_sets_that_cannot_be_used(tmp_path, monkeypatch):
    def read(**data):
        return read_finetune_data(DataSettings(task="classify", data=LabelledData(**data)))

    Dataset.from_list(rows_of("classify")).save_to_disk(tmp_path / "one")
    data = read(dir=tmp_path / "one")  # without splits, a tenth is held out
    assert (len(data.train), len(data.dev)) == (36, 4)
    only_test = tmp_path / "only_test"
    DatasetDict({"test": Dataset.from_list(rows_of("classify"))}).save_to_disk(only_test)
    with pytest.raises(ConfigError, match=r"split: expected train in .*only_test, got test\."):
        read(dir=only_test)
    with pytest.raises(ConfigError, match=r"data: expected a data set at hub:x/y"):
        read(train="hub:x/y")
    info = info_of("classify", ("a", "b"))
    with pytest.raises(ConfigError, match=r"^--data: expected a saved data set, as the model's task is 'cl"):
        read_split_for(info, None, str(tmp_path), "dev")
    with pytest.raises(ConfigError, match=r"split: expected dev or validation .*, got test\."):
        read_split_for(info, None, str(only_test), "dev")
