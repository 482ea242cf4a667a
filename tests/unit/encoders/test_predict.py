"""`finetune` and `predict` on the command line: scores, tables, files for the GLUE server, errors of one line."""

from __future__ import annotations

import json

import pytest
import torch

from syntaxformer.base.errors import ConfigError, DataError
from syntaxformer.encoders.classifier import Classifier, Predictions
from syntaxformer.encoders.examples import TextExample, TextSet
from syntaxformer.encoders.finetuning import finetune
from syntaxformer.encoders.prediction import submission_rows
from syntaxformer.encoders.tasks import TASKS

QUICK = [f"--set=training.{setting}" for setting in ("precision=fp32", "batch_size=4", "max_length=32", "learning_rate=0.01")]  # fmt: skip


@pytest.fixture(scope="module")
def cola_model(run, checkpoint, cola, tmp_path_factory):
    folder = tmp_path_factory.mktemp("models") / "cola"
    done = run("--quiet", "finetune", "--task", "CoLA", "--data", cola, "--model", checkpoint, "--epochs", 6,
               "--infuse", "pos_add", "--seed", 3, "-o", folder, *QUICK)  # fmt: skip
    assert (done.code, done.err) == (0, ""), done.err
    name, value = done.out.splitlines()[0].split()
    assert name == "matthews"
    assert done.out.splitlines()[-1] == str(folder)
    return folder, float(value)


@pytest.mark.slow
def test_predict_reproduces_the_dev_score(run, cola_model, cola, tmp_path):
    folder, value = cola_model
    done = run("--quiet", "predict", folder, "--task", "cola", "--data", cola, "-o", tmp_path / "out.tsv")
    assert (done.code, done.out.splitlines()[0]) == (0, f"matthews {value:.4f}")
    assert done.err.startswith(f"warning: {folder} was trained on 13 of these 13 rows, ")  # texts come again
    as_json = json.loads(run("predict", folder, "--data", cola, "--json").out)
    stored = json.loads((folder / "run.json").read_text())
    assert as_json["systems"][str(folder)]["scores"] == pytest.approx(stored["dev"], abs=1e-6)
    assert as_json["matthews"] == pytest.approx(stored["dev"]["matthews"], abs=1e-6)
    lines = (tmp_path / "out.tsv").read_text().splitlines()
    assert lines[0] == "prediction\tp(0)\tp(1)"
    assert len(lines) == 14
    label, first, second = lines[1].split("\t")
    assert label == str(int(float(second) > float(first)))


@pytest.mark.slow
def test_a_model_computes_in_bf16_on_request(run, cola_model, cola, tmp_path):
    """The probabilities are those of fp32 to three digits, but not the same; what is no device is refused."""
    tables = []
    for device in ("cpu", "cpu:bf16"):
        plain = ("--quiet", "predict", cola_model[0], "--data", cola, "-o", tmp_path / f"{device}.tsv")
        assert run(*plain, "--device", device).code == 0
        rows = [line.split("\t") for line in (tmp_path / f"{device}.tsv").read_text().splitlines()[1:]]
        tables.append([float(row[1]) for row in rows])
    assert tables[0] == pytest.approx(tables[1], abs=0.02)
    assert tables[0] != tables[1]
    model = Classifier.from_folder(cola_model[0], device="cpu:bf16").model
    assert {parameter.dtype for parameter in model.parameters()} == {torch.bfloat16}
    done = run("--quiet", "predict", cola_model[0], "--data", cola, "--device", "cpu:fp8")
    assert (done.code, done.out) == (2, "")
    assert "device: expected a device of this machine, got cpu:fp8." in done.err


def test_rows_of_which_only_some_have_a_label_are_not_scored_and_that_is_said(run, cola_model, tmp_path):
    rows = tmp_path / "rows.tsv"
    rows.write_text("text\tlabel\nthe cat sleeps .\t1\nthe dog sleeps .\t\n")
    done = run("predict", cola_model[0], rows)
    assert (done.code, len(done.out.splitlines())) == (0, 3)
    assert "warning: 1 of 2 rows have a label; only if all have one, predictions are scored." in done.err
    done = run("predict", cola_model[0], rows, "--blank", "pos")
    assert (done.code, "error: --shuffle, --blank: expected labels" in done.err) == (2, True)


def test_a_file_for_the_glue_server(run, cola_model, cola, tmp_path):
    folder, _ = cola_model
    (tmp_path / "submission").mkdir()
    done = run("--quiet", "predict", folder, "--data", cola, "--split", "test", "-o", tmp_path / "submission")
    assert (done.code, done.out, done.err) == (0, "", "")
    content = (tmp_path / "submission" / "CoLA.tsv").read_bytes()
    assert content == b"index\tprediction\n0\t1\n1\t0\n"


@pytest.mark.slow
def test_lines_of_text(run, cola_model):
    folder, _ = cola_model
    done = run("predict", folder, "-", stdin=b"the cat sleeps .\nthe cat not sleeps .\n")
    assert done.code == 0
    assert [line.split("\t")[0] for line in done.out.splitlines()] == ["prediction", "1", "0"]
    done = run("predict", folder, "-", stdin=b"the cat sleeps .\n\n")
    assert (done.code, done.err.startswith("error: standard input:2: text: ")) == (2, True)
    assert run("predict", folder, "-").err.startswith("error: standard input: expected at least one text")


@pytest.mark.slow
def test_tables_of_the_task(run, cola_model, cola, tmp_path):
    """The official table, with or without a header, is no list of lines; columns are checked."""
    folder, value = cola_model
    assert run("--quiet", "predict", folder, cola / "dev.tsv").out.startswith(f"matthews {value:.4f}\nclass ")
    (tmp_path / "dev.tsv").write_text("sentence\tlabel\nthe cat sees .\t1\nthe dog not runs .\t0\n")
    shown = run("predict", folder, tmp_path / "dev.tsv", "--json").out
    assert shown.startswith(f'{{"model": "{folder}", "matthews": ')
    (tmp_path / "test.tsv").write_text("sentence\tlabel\nthe cat sees .\t-1\nthe dog not runs .\t\n")
    assert len(run("predict", folder, tmp_path / "test.tsv").out.splitlines()) == 3
    (tmp_path / "pairs.csv").write_text("sentence1,sentence2\nthe cat .,the dog .\n")
    told = f"error: {tmp_path / 'pairs.csv'}: expected 1 text columns, as the model was trained on, got 2: 's"
    assert run("predict", folder, tmp_path / "pairs.csv").err.startswith(told)


def test_a_table_with_other_columns_is_no_list_of_texts(run, cola_model, tmp_path):
    folder, _ = cola_model
    other = tmp_path / "other.tsv"
    other.write_text("review\tmood\nthe cat sleeps .\t1\n")
    done = run("predict", folder, other)
    told = f"error: {other}:1: expected one text on a line, or a table with the column 'sentence', got 2"
    assert (done.code, done.out, done.err.startswith(told)) == (2, "", True)
    assert run("predict", folder, "-", stdin=b"\tthe cat sleeps .\t\n").code == 0


@pytest.mark.slow
def test_predictions_are_not_written_over_the_texts(run, cola_model, cola, tmp_path):
    folder, _ = cola_model
    texts = tmp_path / "predictions.tsv"
    texts.write_text("the cat sleeps .\n")
    for output in (texts, tmp_path):
        done = run("predict", folder, texts, "-o", output)
        told = f"error: -o: expected another file than the input, got {texts}.\n"
        assert (done.code, done.err) == (2, told)
    content = (cola / "dev.tsv").read_text()
    assert run("predict", folder, "--data", cola, "-o", cola / "dev.tsv").code == 2
    assert (texts.read_text(), (cola / "dev.tsv").read_text()) == ("the cat sleeps .\n", content)


@pytest.mark.slow
def test_a_two_column_table_with_one_command(run, checkpoint, tmp_path):
    (tmp_path / "mine.tsv").write_text("the dog sleeps .\tneg\nthe cat sleeps .\tpos\n" * 20)
    folder = tmp_path / "mine"
    done = run("--quiet", "finetune", "--task", "classify", "--train", tmp_path / "mine.tsv", "--model", checkpoint,
               "--epochs", 6, "-o", folder, *QUICK)  # fmt: skip
    told = f"warning: {tmp_path / 'mine.tsv'}: both parts have equal texts, which raises scores on dev. Give --dev.\n"
    assert (done.code, done.err) == (0, told)
    assert done.out.splitlines()[:1] == ["accuracy 1.0000"]
    (tmp_path / "texts.txt").write_text("the cat sleeps .\nthe dog sleeps .\n")
    plain = run("predict", folder, tmp_path / "texts.txt").out.splitlines()
    assert plain[0] == "prediction\tp(neg)\tp(pos)"
    assert [line.split("\t")[0] for line in plain[1:]] == ["pos", "neg"]
    (tmp_path / "texts.csv").write_text("the cat sleeps .\nthe dog sleeps .\n")  # a column, as of pandas
    assert run("predict", folder, tmp_path / "texts.csv").out.splitlines() == plain
    with pytest.raises(DataError, match=r"^line 1: text: expected one text, got 2\.$"):
        Classifier.from_folder(folder).predict([("a", "b")])


@pytest.mark.slow
def test_pairs_scores_and_named_columns(run, checkpoint, tmp_path):
    rows = [{"a": "the cat", "b": "the dog .", "y": 0.0}, {"a": "the cat", "b": "the cat .", "y": 4.0}] * 15
    path = tmp_path / "pairs.jsonl"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    folder = tmp_path / "pairs"
    done = run("--quiet", "finetune", "--task", "regress", "--train", path, "--dev", path, "--text-column", "a",
               "--text-pair-column", "b", "--label-column", "y", "--model", checkpoint, "-o", folder, *QUICK)  # fmt: skip
    assert (done.code, done.err.count("rows have texts of the training rows")) == (0, 1)
    scores = json.loads((folder / "run.json").read_text())["dev"]
    again = json.loads(run("predict", folder, path, "--json").out)
    # Not Spearman's: rounding decides which of equal predictions is larger.
    assert again["pearson"] == pytest.approx(scores["pearson"], abs=1e-5)
    assert again["systems"][str(folder)]["scores"].keys() == scores.keys()
    classifier = Classifier.from_folder(folder)
    found = classifier.predict([("the cat", "the dog .")])
    assert isinstance(found.labels[0], float)
    assert found.probabilities is None
    assert len(classifier.predict([])) == 0
    done = run("predict", folder, stdin=b"the cat\tthe dog .\n")
    assert done.out.splitlines()[0] == "prediction"
    assert run("predict", folder, "-", stdin=b"the cat\tthe dog .\n").out == done.out
    done = run("predict", folder, "-", stdin=b"the cat\n")
    assert done.err == "error: standard input:1: expected 2 texts with a tab between them, got 1.\n"
    with pytest.raises(DataError, match=r"^line 2: text: expected one that is not empty, got ''\.$"):
        classifier.predict([("a", "b"), ("a", " ")])


@pytest.mark.slow
def test_errors_are_one_line_and_exit_code_2(run, cola_model, cola, tmp_path, checkpoint):
    folder, _ = cola_model
    new = ("--data", cola, "-o", tmp_path / "x", *QUICK)
    cases = {
        ("predict", folder): "standard input: expected at least one text",
        ("predict", folder, "-", "--data", cola): "input: expected either a file or --data",
        ("predict", tmp_path, tmp_path / "no.txt"): f"{tmp_path / 'manifest.json'}: expected a file",
        ("predict", folder, "-", "--split", "test"): "--split: expected none without --data",
        ("predict", folder, "--task", "rte", "--data", cola): "task: expected one with the model's labels (0, 1)",
        ("predict", folder, "--data", cola, "-o", tmp_path / "out.jsonl"): "-o: expected a name ending in .tsv",
        ("predict", folder, tmp_path / "no.txt"): f"{tmp_path / 'no.txt'}: expected a readable file",
        ("finetune", "--task", "colla", "--model", checkpoint, *new): "task: expected a known task, got 'colla'",
        ("finetune", "--task", "cola", "--model", checkpoint, "--infuse", "mask", *new): "infuse: expected some of masks",
        ("finetune", "--task", "cola", "--model", tmp_path / "no", *new): "model: expected a checkpoint with a tokenizer",
    }  # fmt: skip
    for arguments, message in cases.items():
        done = run(*arguments)
        (line,) = done.err.splitlines()
        assert (done.code, line[: len(message) + 7]) == (2, f"error: {message}"), arguments


SUBMISSIONS = [
    ("cola", "test", ["0", "1"], b"0\t0\n1\t1\n", "CoLA.tsv"),
    ("sst2", "test", ["0", "1"], b"0\t0\n1\t1\n", "SST-2.tsv"),
    ("mrpc", "test", ["0", "1"], b"0\t0\n1\t1\n", "MRPC.tsv"),
    ("stsb", "test", [0.0, 4.98765], b"0\t0.000\n1\t4.988\n", "STS-B.tsv"),
    ("qqp", "test", ["0", "1"], b"0\t0\n1\t1\n", "QQP.tsv"),
    ("mnli", "test", ["neutral", "contradiction"], b"0\tneutral\n1\tcontradiction\n", "MNLI-m.tsv"),
    ("mnli", "test_mismatched", ["neutral", "entailment"], b"0\tneutral\n1\tentailment\n", "MNLI-mm.tsv"),
    ("mnli", "diagnostic", ["neutral", "entailment"], b"0\tneutral\n1\tentailment\n", "AX.tsv"),
    ("qnli", "test", ["entailment", "not_entailment"], b"0\tentailment\n1\tnot_entailment\n", "QNLI.tsv"),
    ("rte", "test", ["entailment", "not_entailment"], b"0\tentailment\n1\tnot_entailment\n", "RTE.tsv"),
    ("wnli", "test", ["0", "1"], b"0\t0\n1\t1\n", "WNLI.tsv"),
]  # fmt: skip


@pytest.mark.parametrize(("task", "split", "labels", "content", "name"), SUBMISSIONS)
def test_submissions_to_the_byte(task, split, labels, content, name):
    texts = TextSet(split, "test.tsv", [TextExample(("x",), index=str(number)) for number in range(2)])
    rows = submission_rows(TASKS[task], split, texts, Predictions(labels, None))
    assert "".join(f"{row}\n" for row in rows).encode() == b"index\tprediction\n" + content
    assert TASKS[task].submission[split] == name


def test_what_the_server_would_refuse():
    texts = TextSet("test", "test.tsv", [TextExample(("x",), index="3", line=2)])
    with pytest.raises(DataError, match=r"test\.tsv:2: index:"):
        list(submission_rows(TASKS["cola"], "test", texts, Predictions(["1"], None)))
    with pytest.raises(ConfigError, match="submission:"):
        list(submission_rows(TASKS["snli"], "test", texts, Predictions(["neutral"], None)))


def test_training_texts_that_are_cut_are_counted(config_of, messages, tmp_path, cola):
    folder = tmp_path / "long"
    folder.mkdir()
    for name in ("train.tsv", "dev.tsv"):
        (folder / name).write_text((cola / name).read_text())
    with (folder / "train.tsv").open("a") as file:
        file.write("x\t1\t\t" + "cat " * 10_000 + "\n")
    done = finetune(config_of("training.epochs=1", data={"dir": folder}))
    assert json.loads((done / "run.json").read_text())["n_truncated"] == {"train": 1, "dev": 0}
    told = f"{folder / 'train.tsv'}: 1 of 41 examples are longer than 32 pieces and are cut to that (longest: 10002)."
    assert told in messages.text
