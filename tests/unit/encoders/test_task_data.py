"""Official tasks: every loader on tiny files in the official layouts, and data sets with the columns of the Hub."""

from __future__ import annotations

import gzip
import json

import pytest
from datasets import ClassLabel, Dataset, DatasetDict

from syntaxformer.base.errors import ConfigError, DataError
from syntaxformer.encoders.examples import TextSet
from syntaxformer.encoders.official_data import read_any_split, read_dataset_split
from syntaxformer.encoders.tables import open_dataset
from syntaxformer.encoders.tasks import TASKS, find_task

MNLI_HEAD = (
    "index\tpromptID\tpairID\tgenre\tsentence1_binary_parse\tsentence2_binary_parse\tsentence1_parse\tsentence2_parse"
    "\tsentence1\tsentence2"
)
MNLI_ROW = "0\t31193\t31193n\tgovernment\t( Cats sleep )\t( Dogs sleep )\t(ROOT (S (NP (NNS Cats)) (VP (VBP sleep))))\t(ROOT (S (NP (NNS Dogs)) (VP (VBP sleep))))\tCats sleep\tDogs sleep"
SNLI_HEAD = (
    "gold_label\tsentence1_binary_parse\tsentence2_binary_parse\tsentence1_parse\tsentence2_parse\tsentence1\tsentence2"
    "\tcaptionID\tpairID\tlabel1\tlabel2\tlabel3\tlabel4\tlabel5"
)

# task, split, file, content, expected (texts, label, index) of the last row
LAYOUTS = [
    ("cola", "train", "train.tsv", 'gj04\t1\t\tFine .\nbc01\t0\t*\tThe "dog the .\n', (('The "dog the .',), 0, "1")),
    ("cola", "test", "test.tsv", "index\tsentence\n0\tBill left .\n", (("Bill left .",), None, "0")),
    ("sst2", "dev", "dev.tsv", "sentence\tlabel\nit 's good . \t1\n", (("it 's good .",), 1, "0")),
    ("mrpc", "train", "train.tsv", "﻿Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n1\t7\t8\tA .\tB .\n", (("A .", "B ."), 1, "0")),
    ("mrpc", "test", "test.tsv", "index\t#1 ID\t#2 ID\t#1 String\t#2 String\n0\t7\t8\tA .\tB .\n", (("A .", "B ."), None, "0")),
    ("stsb", "train", "train.tsv", "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2\tscore\n3\tg\tf\t2012\t1\tn\tn\tA .\tB .\t3.800\n", (("A .", "B ."), 3.8, "3")),
    ("qqp", "train", "train.tsv", "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n133\t1\t2\tWhy ?\tHow ?\t0\n", (("Why ?", "How ?"), 0, "133")),
    ("qqp", "test", "test.tsv", "id\tquestion1\tquestion2\n0\tWhy ?\tHow ?\n", (("Why ?", "How ?"), None, "0")),
    ("mnli", "train", "train.tsv", f"{MNLI_HEAD}\tlabel1\tgold_label\n{MNLI_ROW}\tneutral\tneutral\n", (("Cats sleep", "Dogs sleep"), 1, "0")),
    ("mnli", "dev", "dev_matched.tsv", f"{MNLI_HEAD}\tlabel1\tlabel2\tgold_label\n{MNLI_ROW}\tneutral\tentailment\tentailment\n", (("Cats sleep", "Dogs sleep"), 0, "0")),
    ("mnli", "dev_mismatched", "dev_mismatched.tsv", f"{MNLI_HEAD}\tlabel1\tgold_label\n{MNLI_ROW}\tx\tcontradiction\n", (("Cats sleep", "Dogs sleep"), 2, "0")),
    ("mnli", "test_mismatched", "test_mismatched.tsv", f"{MNLI_HEAD}\n{MNLI_ROW}\n", (("Cats sleep", "Dogs sleep"), None, "0")),
    ("mnli", "diagnostic", "diagnostic.tsv", "index\tsentence1\tsentence2\n0\tA .\tB .\n", (("A .", "B ."), None, "0")),
    ("qnli", "dev", "dev.tsv", "index\tquestion\tsentence\tlabel\n5\tWho ?\tHe .\tnot_entailment\n", (("Who ?", "He ."), 1, "5")),
    ("rte", "train", "train.tsv", "index\tsentence1\tsentence2\tlabel\n2\tA .\tB .\tentailment\n", (("A .", "B ."), 0, "2")),
    ("wnli", "dev", "dev.tsv", "index\tsentence1\tsentence2\tlabel\n2\tA .\tB .\t1\n", (("A .", "B ."), 1, "2")),
    ("snli", "train", "snli_1.0_train.txt", f"{SNLI_HEAD}\nneutral\t( A man )\t( A dog )\t(NP (DT A) (NN man))\t(NP (DT A) (NN dog))\tA man\tA dog\tc\tp1\tneutral\t\t\t\t\n", (("A man", "A dog"), 1, "p1")),
    ("sick", "train", "SICK_train.txt", "pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment\n4\tA man\tA dog\t1.5\tNEUTRAL\n", (("A man", "A dog"), 1, "4")),
    ("sick_relatedness", "train", "SICK_train.txt", "pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment\n4\tA man\tA dog\t1.5\tNEUTRAL\n", (("A man", "A dog"), 1.5, "4")),
]  # fmt: skip


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(
    ("task", "split", "file", "content", "expected"), LAYOUTS, ids=[f"{row[0]}-{row[1]}" for row in LAYOUTS]
)
def test_official_layouts(table, task, split, file, content, expected, packed):
    path = table(gzip.compress(content.encode()), f"{file}.gz") if packed else table(content, file)
    last = read_any_split(TASKS[task], path.parent, split).examples[-1]
    assert (last.texts, last.label, last.index) == expected


def test_json_lines_with_trees(tmp_path):
    row = {
        "gold_label": "entailment", "sentence1": "Two cats sleep.", "sentence2": "Cats sleep.",
        "sentence1_parse": "(ROOT (S (NP (CD Two) (NNS cats)) (VP (VBP sleep)) (. .)))",
        "sentence2_parse": "(ROOT (S (NP (NNS Cats)) (VP (VBP sleep)) (. .)))",
        "sentence1_binary_parse": "( ( Two cats ) ( sleep . ) )", "sentence2_binary_parse": "( Cats ( sleep . ) )",
    }  # fmt: skip
    undecided = {**row, "gold_label": "-"}
    (tmp_path / "snli_1.0_dev.jsonl").write_text(f"{json.dumps(row)}\n{json.dumps(undecided)}\n")
    found = read_any_split(TASKS["snli"], tmp_path, "dev")
    assert len(found) == 1
    assert found.left_out == {"no gold label": 1}
    assert found.has_trees
    assert found.examples[0].trees == (row["sentence1_parse"], row["sentence2_parse"])


TREES = (
    "(3 (2 It) (4 (3 (2 is) (4 (2 a) (4 (3 lovely) (2 film)))) (2 .)))\n"
    "(2 (1 No) (2 one))\n"
    "(0 (1 (2 it) (1 (2 is) (1 bad))) (2 .))\n"
)


@pytest.fixture
def sst(tmp_path):
    for split in ("train", "dev"):
        (tmp_path / f"{split}.txt").write_text(TREES)
    return tmp_path


def test_phrases_of_four_words_or_more_train_and_sentences_evaluate(sst):
    train = read_any_split(TASKS["sst1"], sst, "train")
    assert [(example.texts[0], example.label) for example in train.examples] == [
        ("It is a lovely film .", 3), ("is a lovely film .", 4), ("is a lovely film", 3), ("No one", 2), ("it is bad .", 0),
    ]  # fmt: skip
    assert train.examples[2].trees == ("(3 (2 is) (4 (2 a) (4 (3 lovely) (2 film))))",)
    dev = read_any_split(TASKS["sst1"], sst, "dev")
    assert [example.texts[0] for example in dev.examples] == [
        "It is a lovely film .",
        "No one",
        "it is bad .",
    ]
    assert len(read_any_split(TASKS["sst1"], sst, "train", phrases=False)) == 3
    # Two classes leave neutral trees out.
    dev = read_any_split(TASKS["sst2_trees"], sst, "dev")
    assert [example.label for example in dev.examples] == [1, 0]
    assert dev.left_out == {"neutral, in a task of two classes": 1}


def test_sentiment_that_is_none(tmp_path):
    (tmp_path / "dev.txt").write_text("(3 (2 It) (4 works))\n(S (2 It) (4 works))\n")
    with pytest.raises(DataError, match=":2: sentiment:"):
        read_any_split(TASKS["sst1"], tmp_path, "dev")
    (tmp_path / "dev.txt").write_text("\n")
    with pytest.raises(DataError, match="expected at least one example, got none"):
        read_any_split(TASKS["sst1"], tmp_path, "dev")


def test_quora_rows_that_are_broken_are_counted(tmp_path):
    head = "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n"
    rows = "1\t1\t2\tWhy ?\tHow ?\t0\n2\t3\t4\tWhy\n5\t1\t2\t\tHow ?\t1\n"
    (tmp_path / "train.tsv").write_text(head + rows)
    found = read_any_split(TASKS["qqp"], tmp_path, "train")
    assert len(found) == 1
    assert found.left_out == {"broken row": 1, "empty text": 1}


ERRORS = [
    ("cola", "gj04\t1\t\tCafé .\n".encode("latin-1"), ":1: expected UTF-8, got byte 0xe9 at byte"),
    ("snli", b"[1]\n", ":1:"),
    ("snli", b"{\n", ":1: expected a JSON object on each line, got: "),
    ("cola", "gj04\t2\t\tFine .\n", ":1: label: expected one of 0, 1, got '2'"),
    ("cola", "gj04\t1\t\tFine .\ngj04\t1\tFine .\n", ":2: row: expected 4 cells, got 3"),
    ("cola", "gj04\t1\t\t \n", ":1: column 'sentence': "),
    ("cola", "", ": expected rows, got an empty file"),
    ("rte", "index\tsentence1\tlabel\n0\tA .\tentailment\n", ": text: expected a column 'sentence2' or 'hypothesis', got "),
    ("rte", "index\tsentence1\tsentence2\tlabel\n", ": expected at least one example, got none"),
    ("stsb", "sentence1\tsentence2\tscore\nA\tB\tnan\n", ":2: score: expected a finite number, got 'nan'"),
    ("stsb", "sentence1\tsentence2\tscore\nA\tB\tgood\n", ":2: score: expected a finite number, got 'good'"),
    ("stsb", "sentence1\tsentence2\tscore\nA\tB\t5.5\n", ":2: score: expected 0 to 5, got 5.5"),
]  # fmt: skip


@pytest.mark.parametrize(("task", "content", "problem"), ERRORS)
def test_files_that_cannot_be_used(table, task, content, problem):
    path = table(content, "snli_1.0_train.jsonl" if task == "snli" else "train.tsv")
    with pytest.raises(DataError, match=f"^{path}{problem}"):
        read_any_split(TASKS[task], path.parent, "train")


def test_names_of_tasks_and_splits(tmp_path):
    names = {"CoLA": "cola", "sst-2": "sst2", "STS-B": "stsb", "mnli-m": "mnli", "sick-r": "sick_relatedness"}
    assert all(find_task(name) is TASKS[task] for name, task in names.items())
    for name, told in {"collie": "a known task", "clasify": "a known task", "classify": "official files"}.items():  # fmt: skip
        with pytest.raises(ConfigError, match=f"^task: .*{told}, got '{name}'"):
            find_task(name)
    for folder, split, key in (
        (".", "train", "data"),
        ("no", "train", "data"),
        (".", "dev_mismatched", "split"),
    ):
        with pytest.raises(ConfigError, match=f"^{key}:"):
            read_any_split(TASKS["rte"], tmp_path / folder, split)


def test_smaller_fractions_are_inside_larger_ones_and_phrases_stay_together(tmp_path):
    (tmp_path / "train.txt").write_text("".join(TREES for _ in range(50)))
    whole = read_any_split(TASKS["sst1"], tmp_path, "train")
    lines = {}
    for share in (0.05, 0.2, 1.0):
        part: TextSet = whole.part(None, share)
        lines[share] = {example.line for example in part.examples}
        assert len(lines[share]) == round(150 * share)
        assert [example for example in whole.examples if example.line in lines[share]] == list(part.examples)
    assert lines[0.05] < lines[0.2] < lines[1.0]


NLI = ["entailment", "neutral", "contradiction"]
RTE, COLA = ["not_entailment", "entailment"], ["unacceptable", "acceptable"]


def data_set(names, label, texts=("sentence1", "sentence2"), **more):
    """Rows with these labels, class numbers of `names` if there are some."""
    columns = {**{name: [f"{name} ."] * len(label) for name in texts}, "label": label, **more}
    data = Dataset.from_dict(columns)
    return data.cast_column("label", ClassLabel(names=names)) if names else data


def snli(labels):
    return data_set(NLI, labels, ("premise", "hypothesis"))


@pytest.mark.parametrize(
    ("task", "data", "split", "labels"),
    [
        ("snli", DatasetDict(train=snli([2, -1, 0])), "train", [2, 0]),
        ("rte", data_set(RTE, [1]), "train", [0]),  # names in another order than the task's
        ("cola", DatasetDict(validation=data_set(COLA, [1], ["sentence"])), "dev", [1]),  # other names: by number
        ("cola", DatasetDict(test=data_set(COLA, [-1], ["sentence"])), "test", [None]),
        ("stsb", data_set(None, [3.25]), "train", [3.25]),
        ("mnli", DatasetDict(validation_matched=snli([0]), validation_mismatched=snli([1])), "dev", [0]),
        ("mnli", DatasetDict(validation_matched=snli([0]), validation_mismatched=snli([1])), "dev_mismatched", [1]),
    ],
    ids=["no label", "order", "names", "test", "score", "matched", "mismatched"],
)  # fmt: skip
def test_labels_of_data_sets(task, data, split, labels):
    found = read_dataset_split(TASKS[task], data, split)
    assert [example.label for example in found.examples] == labels
    assert found.left_out == ({"no gold label": 1} if len(labels) == 2 else {})


def test_texts_and_ids_of_data_sets(tmp_path):
    of_cola = data_set(COLA, [1], ["sentence"], idx=[3])
    (example,) = read_dataset_split(TASKS["cola"], of_cola, "dev").examples
    assert (example.texts, example.index) == (("sentence .",), "3")
    (example,) = read_dataset_split(TASKS["snli"], snli([0]), "train").examples
    assert example.texts == ("premise .", "hypothesis .")
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
