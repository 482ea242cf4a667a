"""Hugging Face data sets in memory and on disk, with the columns that they have on the Hub."""

from __future__ import annotations

import pytest
from datasets import ClassLabel, Dataset, DatasetDict, Features, Value

from syntaxformer.base.errors import ConfigError, DataError
from syntaxformer.encoders.task_data import open_dataset, read_any_split, read_dataset_split
from syntaxformer.encoders.tasks import TASKS

NLI = ["entailment", "neutral", "contradiction"]


def snli(labels):
    features = Features(
        {"premise": Value("string"), "hypothesis": Value("string"), "label": ClassLabel(names=NLI)}
    )
    n = len(labels)
    return Dataset.from_dict(
        {"premise": ["A man ."] * n, "hypothesis": ["A dog ."] * n, "label": labels}, features
    )


def test_class_numbers_get_their_names_and_minus_one_is_none():
    found = read_dataset_split(TASKS["snli"], DatasetDict(train=snli([2, -1, 0])), "train")
    assert [one.label for one in found.examples] == [2, 0]
    assert found.left_out == {"no gold label": 1}
    assert found.examples[0].texts == ("A man .", "A dog .")


def test_names_in_another_order_are_not_confused():
    features = Features(
        {
            "sentence1": Value("string"),
            "sentence2": Value("string"),
            "label": ClassLabel(names=["not_entailment", "entailment"]),
        }
    )
    data = Dataset.from_dict({"sentence1": ["A"], "sentence2": ["B"], "label": [1]}, features)
    assert read_dataset_split(TASKS["rte"], data, "train").examples[0].label == 0


def test_human_names_of_numbered_classes():
    features = Features(
        {
            "sentence": Value("string"),
            "label": ClassLabel(names=["unacceptable", "acceptable"]),
            "idx": Value("int32"),
        }
    )
    columns = {"sentence": ["Fine ."], "label": [1], "idx": [3]}
    data = DatasetDict(
        validation=Dataset.from_dict(columns, features),
        test=Dataset.from_dict({**columns, "label": [-1]}, features),
    )
    (one,) = read_dataset_split(TASKS["cola"], data, "dev").examples
    assert (one.label, one.index) == (1, "3")
    assert read_dataset_split(TASKS["cola"], data, "test").examples[0].label is None


def test_scores_and_matched_splits():
    data = Dataset.from_dict({"sentence1": ["A"], "sentence2": ["B"], "label": [3.25], "idx": [0]})
    assert read_dataset_split(TASKS["stsb"], data, "train").examples[0].label == 3.25
    matched = DatasetDict(validation_matched=snli([0]), validation_mismatched=snli([1]))
    assert read_dataset_split(TASKS["mnli"], matched, "dev").examples[0].label == 0
    assert read_dataset_split(TASKS["mnli"], matched, "dev_mismatched").examples[0].label == 1


def test_a_folder_of_save_to_disk(tmp_path):
    DatasetDict(train=snli([0, 1])).save_to_disk(tmp_path / "snli")
    assert len(read_any_split(TASKS["snli"], tmp_path / "snli", "train")) == 2


def test_what_cannot_be_read(tmp_path):
    with pytest.raises(ConfigError, match="split:"):
        read_dataset_split(TASKS["snli"], DatasetDict(train=snli([0])), "dev", "mine")
    wrong = Dataset.from_dict({"premise": ["A"], "hypothesis": ["B"], "label": [3]})
    with pytest.raises(DataError, match="mine, train:1: label:"):
        read_dataset_split(TASKS["snli"], wrong, "train", "mine")
    with pytest.raises(DataError, match=r"text: expected a column 'sentence1' or 'premise', got 'text'\.$"):
        read_dataset_split(TASKS["snli"], Dataset.from_dict({"text": ["A"]}), "train", "mine")
    with pytest.raises(ConfigError, match=r"^data:"):
        open_dataset(tmp_path / "nothing")


def test_the_hub_is_asked_by_name(monkeypatch):
    asked = []
    monkeypatch.setattr("datasets.load_dataset", lambda *names: asked.append(names) or {"train": snli([0])})
    assert len(read_any_split(TASKS["snli"], "hub:nyu-mll/glue:mnli", "train")) == 1
    assert asked == [("nyu-mll/glue", "mnli")]

    def unreachable(*names):
        raise ConnectionError("no network")

    monkeypatch.setattr("datasets.load_dataset", unreachable)
    with pytest.raises(ConfigError, match="data:"):
        open_dataset("hub:snli")
