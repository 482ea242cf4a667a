"""Named test sets: metrics by line, shipped and of one's own, on files whose every value is known."""

from __future__ import annotations

import hashlib
import re
from types import SimpleNamespace

import pytest

from syntaxformer.base.errors import ConfigError
from syntaxformer.study.experiments import cell as cells
from syntaxformer.study.experiments.cell import (
    Scored,
    check_experiment,
    own_metric,
    packed,
    problems_of,
    results_of,
    unpacked,
)
from syntaxformer.study.experiments.cell import test_hashes as hashes_of
from syntaxformer.study.experiments.spec import NamedTest
from syntaxformer.translation import scoring

OWN = """
def first_word(source, hypothesis, reference, row):
    return hypothesis.split()[0] == row["main"]

def far(source, hypothesis, reference, row):
    return len(source) + int(row["distance"]) / 2

def broken(source, hypothesis, reference, row):
    return row["nothing"]

def endless(source, hypothesis, reference, row):
    return float("inf")

number = 3
"""


FILES = ("a.src", "a.ref", "a.tsv", "own.py")


@pytest.fixture
def files(tmp_path):
    """Three lines with their properties, and metrics of one's own."""
    (tmp_path / "a.src").write_text("x\nxy\nxyz\n")
    (tmp_path / "a.ref").write_text("do a\ndoes b\ndo c\n")
    (tmp_path / "a.tsv").write_text("main\tdistance\tname\ndo\t1\tp\ndoes\t4\tq\ndo\t1\tr\n")
    (tmp_path / "own.py").write_text(OWN)
    return tmp_path


@pytest.fixture
def translator(monkeypatch):
    """Translates every line as it is told to; the second line is wrong."""
    hypotheses = ["do a", "do b", "do c"]
    scores = SimpleNamespace(bleu=12.5, chrf=40.0)

    def score(translator, sources, references, user_factors):
        return SimpleNamespace(hypotheses=hypotheses, references=references, scores=scores)

    table = {"systems": {"": {"chrF++": 41.0, "TER": 60.0}}}
    monkeypatch.setattr(scoring, "score_translator", score)
    monkeypatch.setattr(scoring, "score_table", lambda *_, **__: table)
    monkeypatch.setattr(scoring, "scoring", lambda info: {})
    encoder = SimpleNamespace(needs_words=False, factors={})
    return SimpleNamespace(encoder=encoder, annotator=None, info=None)


def _named(folder, **more):
    return NamedTest(src=folder / "a.src", ref=folder / "a.ref", columns=folder / "a.tsv", **more)


def test_lines_are_scored_by_shipped_metrics_and_those_of_ones_own(files, translator):
    metrics = ["exact_match", "ter", "own.py:first_word", "bleu", "own.py:far"]
    scored = cells.score_translations(translator, "general", _named(files, metrics=metrics), files)
    assert scored.lines == {"exact_match": [1, 0, 1], "first_word": [1, 0, 1], "far": [1.5, 4, 3.5]}
    means = {"exact_match": 2 / 3, "first_word": 2 / 3, "far": 3, "bleu": 12.5, "ter": 60}
    assert scored.means == pytest.approx(means)
    results = results_of("general", scored)
    assert results["metrics"]["general_exact_match"] == 0.666667
    assert unpacked(results["lines"]["general_far"]) == [1.5, 4, 3.5]
    by_distance = {"distance": {"1": [2.5, 2], "4": [4.0, 1]}}  # no text columns
    assert results["by_column"]["general_far"] == by_distance


def test_the_hashes_of_a_test_are_of_all_files_that_it_reads(files):
    test = _named(files, factors={"topic": files / "own.py"}, metrics=["bleu", "own.py:far", "own.py:broken"])
    sha256 = {name: hashlib.sha256((files / name).read_bytes()).hexdigest() for name in FILES}
    keys = {"src": "a.src", "ref": "a.ref", "columns": "a.tsv", "factors.topic": "own.py", "own.py": "own.py"}
    contrast = NamedTest(
        contrast=files / "a.tsv", factors={"topic": files / "none"}, metrics=["contrastive_accuracy"]
    )
    assert [*hashes_of("c", contrast, files)] == ["c contrast"]
    assert hashes_of("general", test, files) == {f"general {key}": sha256[name] for key, name in keys.items()}


def test_a_contrastive_test_is_one_where_the_right_text_beats_all_others(tmp_path, translator):
    path = tmp_path / "c.tsv"
    path.write_text("source\treference\tcontrastive\tdistance\ns\tr\tw\t2\nt\tr\tw\t3\n")
    log_probs = [[-1.0, -2.0], [-2.0, -1.0]]
    translator.score = lambda *_: [[SimpleNamespace(log_prob=each) for each in pair] for pair in log_probs]
    test = NamedTest(contrast=path, metrics=["contrastive_accuracy"])
    scored = cells.score_translations(translator, "agreement", test, tmp_path)
    assert scored.lines == {"contrastive_accuracy": [1, 0]}


def test_values_of_lines_survive_the_store():
    values = [1.0, 0.0, -2.5, 1e-7, 10.0]
    assert unpacked(packed(values)) == values
    assert len(packed([1.0, 0.0] * 500)) < 60
    assert Scored([{}], {"m": [2.0]}).by_column() == {"m": {}}
    rows = [{"a": "nan", "b": "3"}, {"a": "1", "b": "3"}, {"a": "1", "b": "-2"}]  # a is no number in one row
    by_column = Scored(rows, {"m": [1.0, 0.0, 1.0]}).by_column()
    assert by_column == {"m": {"b": {"-2": [1.0, 1], "3": [0.5, 2]}}}


@pytest.mark.parametrize(
    ("metric", "message"),
    [
        ("own.py:broken", "line 1, got KeyError: 'nothing'"),
        ("own.py:endless", "expected a finite number for line 1, got inf"),
    ],
)
def test_what_fails_in_a_metric_names_the_line(files, translator, metric, message):
    with pytest.raises(ConfigError, match=re.escape(message)):
        cells.score_translations(translator, "general", _named(files, metrics=[metric]), files)


def test_a_metric_that_is_none_is_said_before_anything_runs(files):
    (files / "fails.py").write_text("import os\nos.environ['HOME_OF_NOBODY']\n")
    for metric, message in [
        ("own.py:number", "the function number in .*own.py, got 3, which is none"),
        ("own.py:missing", "got no missing"),
        ("none.py:f", "FileNotFoundError"),
        ("fails.py:f", "got KeyError: 'HOME_OF_NOBODY'"),
    ]:
        with pytest.raises(ConfigError, match=message):
            own_metric(metric, files)
        (problem,) = problems_of("general", _named(files, metrics=[metric]), files)
        assert problem.startswith("tests.general: metrics: ")
    (files / "a.tsv").write_text("main\na\n")
    (problem,) = problems_of("general", _named(files, metrics=["exact_match"]), files)
    assert "expected 3 rows, one for each line of the test, got 1" in problem
    (files / "a.ref").write_text("one\n")
    problem, *_ = problems_of("general", _named(files, metrics=["exact_match"]), files)
    assert problem.startswith("tests.general.ref: expected as many lines as in tests.general.src")
    contrast = NamedTest(contrast=files / "no", metrics=["contrastive_accuracy"])
    assert list(problems_of("general", contrast, files))
    (problem,) = problems_of("general", NamedTest(table=files / "no.tsv", metrics=["accuracy"]), files)
    assert problem.startswith("tests.general.table: expected a file, found none")


def test_rows_of_a_table_are_scored_with_names_of_classes(tmp_path, monkeypatch):
    (tmp_path / "t.tsv").write_text("text\tlabel\tdistance\na b\tyes\t1\nc\tno\t2\nd\tperhaps\t3\n")
    (tmp_path / "own.py").write_text("def f(source, hypothesis, reference, row):\n    return (source, hypothesis, reference, row['distance']) == ('a b', 'yes', 'yes', '1')\n")  # fmt: skip
    examples = [SimpleNamespace(texts=("a b",), label=1), SimpleNamespace(texts=("c",), label=0)]
    examples.append(SimpleNamespace(texts=("d",), label=2))  # a class that training did not have
    texts = type("Texts", (), {"examples": examples, "__len__": lambda _: 3})()
    monkeypatch.setattr("syntaxformer.encoders.prediction.read_texts_for", lambda *_: texts)
    classifier = SimpleNamespace(
        info=SimpleNamespace(label_column="label"),
        predict_set=lambda _: SimpleNamespace(labels=["yes", "yes", "no"]),
        score=lambda *_: {"accuracy": 0.5, "matthews": 0.25},
        task_type=SimpleNamespace(names=["no", "yes"]),
    )
    test = NamedTest(table=tmp_path / "t.tsv", metrics=["accuracy", "matthews", "own.py:f"])
    scored = cells.score_predictions(classifier, test, tmp_path)
    assert scored.lines == {"accuracy": [1, 0, 0], "f": [1, 0, 0]}
    assert scored.totals == {"matthews": 0.25}
    with pytest.raises(ConfigError, match="expected a metric of this task, accuracy, matthews, got pearson"):
        cells.score_predictions(classifier, test.model_copy(update={"metrics": ["pearson"]}), tmp_path)


def test_an_annotator_of_splits_needs_a_file_for_the_test(content, load, files, tmp_path):
    (tmp_path / "train.conllu").write_text("1\tx\t_\tX\t_\t_\t0\troot\t_\t_\n\n")
    content["settings"]["annotation.annotator"] = f"conllu:{tmp_path}/{{split}}.conllu"
    content["settings"]["data.dir"] = str(files)
    content["axes"]["fraction"], content["report"] = {"10 %": {"data.fraction": 0.1}}, {}
    content["tests"] = {"general": {"src": f"{files}/a.src", "ref": f"{files}/a.ref", "metrics": ["bleu"]}}
    spec = load(content)
    with pytest.raises(ConfigError, match="expected the parsed file of the split 'general', found none"):
        check_experiment(spec, {})
    (tmp_path / "general.conllu").write_text((tmp_path / "train.conllu").read_text())
    check_experiment(spec, {})
