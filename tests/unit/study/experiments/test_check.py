"""What is refused before a run starts, and what a dry run says."""

from __future__ import annotations

import re
import shutil
import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from syntaxformer.base.errors import ConfigError
from syntaxformer.cli.main import app
from syntaxformer.encoders.task_data import read_finetune_data
from syntaxformer.study.experiments.cell import (
    check_experiment,
    checkpoint_sha256,
    differing_settings,
    recipe_settings,
    resolve,
)
from syntaxformer.study.experiments.runner import LocalExecutor, estimate_seconds, run_experiment
from syntaxformer.study.experiments.spec import load_spec
from syntaxformer.study.experiments.store import FAILED, RunStore, own_runs, planned_cells

ROOT = Path(__file__).resolve().parents[4]
RECIPES = ROOT / "recipes"


def _never(folder):
    raise AssertionError("no run may start")


def _problems(spec, store=None):
    with pytest.raises(ConfigError) as error:
        check_experiment(spec, store.runs() if store else {})
    return error.value.problems


def test_wrong_settings_are_found_before_a_run_starts(content, load, store, dry_run):
    content["settings"]["infusion.knd"] = "add"
    content["axes"]["system"]["sit"] = {"infusion.kind": "sum_then_concat", "infusion.width": 500}
    content["axes"]["fraction"]["100 %"] = {"data.fraction": 7}
    spec = load(content)
    with pytest.raises(ConfigError) as error:
        run_experiment(spec, store, executor=LocalExecutor(1, _never))
    first, *others = error.value.problems
    assert "infusion.knd: unknown key" in first  # of every run: said once, without one's name
    assert not first.startswith("system")
    assert any(re.match("system base, fraction 100 %, seed 1: .*data.fraction: ", other) for other in others)
    assert any(problem.startswith("system sit, fraction 10 %, seed 1: ") for problem in others)
    assert isinstance(dry_run().exception, ConfigError)


@pytest.mark.parametrize(
    ("change", "settings", "keys"),
    [
        ({"recipe": "missing.yaml"}, {}, ["missing.yaml: expected a readable file"]),
        ({"axes": {}}, {"infuse": "masks"}, ["infuse: unknown key"]),
        ({"axes": {}, "search": {"space": {"infusion.widht": {"low": 8, "high": 16}}}}, {}, ["infusion.widht: unknown key"]),
        ({"tune": {"space": {"training.learning_rate": [1e-4]}, "metric": "dev_bleu"}, "axes": {}}, {}, ["tune.metric: expected dev_loss"]),
    ],
)  # fmt: skip
def test_what_a_recipe_does_not_take(content, load, change, settings, keys):
    content |= {"report": {}, **change}
    content["settings"] |= settings
    for problem, key in zip(_problems(load(content)), keys, strict=True):
        assert key in problem


EPOCHS = {"space": {"training.epochs": {"values": [1, 2]}}}


@pytest.mark.parametrize(
    ("change", "settings", "keys"),
    [
        ({}, {"training.epoch": 3}, ["finetune: training.epoch: unknown key"]),
        ({"axes": {"system": {"plain": {"infuse": "none"}, "masks": {"infuse": "mask"}}}}, {}, ["system masks: infuse: "]),
        ({}, {"task": "colla"}, ["task: expected a known task, got 'colla'. Nearest: cola"]),
        ({"search": EPOCHS | {"metric": "pearson"}}, {}, ["search.metric: expected a metric of cola, score, matthews, got pearson"]),
        ({"search": EPOCHS | {"metric": "score"}, "report": {"metrics": ["accuracy", "matthews"]}}, {}, ["report.metrics: expected a metric of cola"]),
        ({"search": EPOCHS | {"metric": "pearson"}}, {"task": "stsb"}, []),
        ({"search": EPOCHS | {"metric": "pearson"}}, {"task": "regress"}, []),
        ({"tune": {"space": {"training.learning_rate": [1e-4]}, "metric": "pearson"}}, {}, ["tune.metric: expected a metric of cola"]),
        ({"test_split": "test"}, {"data.dir": "here"}, ["test_split: expected one with labels, got 'test' of cola"]),
        ({"test_split": "test"}, {"data.dir": "here", "task": "classify"}, ["test_split: expected a task with official files"]),
        ({"test_split": "dev"}, {"data.dir": "here", "task": "sst2_trees"}, []),
    ],
)  # fmt: skip
def test_what_a_fine_tuning_does_not_take(finetune, load, tmp_path, monkeypatch, change, settings, keys):
    monkeypatch.chdir(tmp_path)
    Path("here").mkdir()
    Path("here/test.tsv").write_text("index\tsentence\n0\tHe sleeps .\n")  # official CoLA's has no labels
    Path("here/dev.txt").write_text("(3 (2 He) (2 sleeps))\n")
    finetune |= {"axes": {}, **change}
    finetune["settings"] |= settings
    spec = load(finetune)
    if not keys:
        check_experiment(spec, {})
        return
    for problem, key in zip(_problems(spec), keys, strict=True):
        assert problem.startswith(key)


def test_test_files_are_read_before_a_run_starts(content, load, store, tmp_path, dry_run):
    src, ref = tmp_path / "src", tmp_path / "ref"
    content["test"] = {"src": str(src), "ref": str(ref)}
    spec = load(content)
    keys = [problem.partition(" expected")[0] for problem in _problems(spec)]
    assert keys == [f"test.src: {src}:", f"test.ref: {ref}:"]
    src.write_text("one\ntwo\n")
    ref.write_text("eins\n")
    refusal = r"^test\.ref: expected as many lines .* got 1 in .*ref and 2 in src"
    with pytest.raises(ConfigError, match=refusal):
        run_experiment(spec, store, executor=LocalExecutor(1, _never))
    assert "test.ref: " in str(dry_run().exception)
    ref.write_text("eins\nzwei\n")
    check_experiment(spec, {})


def test_a_text_that_the_trained_model_could_not_read(content, load, tmp_path):
    lines = {"src": "one\ntwo\n", "ref": "eins\nzwei\n", "topic": "a\nb\n", "short": "a\n"}
    for name, text in lines.items():
        (tmp_path / name).write_text(text)
    content |= {"axes": {}, "report": {}, "test": {name: str(tmp_path / name) for name in ("src", "ref")}}
    content["settings"] |= {
        "annotation.annotator": "conllu:{split}.conllu",
        "data.factor_files": {"topic": "{split}.topic"},
        "infusion.kind": "sum_then_concat",
        "infusion.factors": ["pos", "topic"],
    }
    keys = [problem.partition(":")[0] for problem in _problems(load(content))]
    assert keys == ["test.factors", "test.annotator"]
    content["test"] |= {"factors": {"topic": str(tmp_path / "short")}, "annotator": "conllu:test.conllu"}
    (problem,) = _problems(load(content))
    assert problem.startswith("test.factors.topic: expected as many lines")
    content["test"]["factors"]["topic"] = str(tmp_path / "topic")
    spec = load(content)
    check_experiment(spec, {})
    assert spec.cells()[0].test["factors.topic"] == str(tmp_path / "topic")
    content["test"]["annotator"] = "de"
    (problem,) = _problems(load(content))
    assert problem.startswith("test.annotator: expected an annotator for en")
    content["settings"]["infusion.kind"] = "none"  # reads neither
    del content["settings"]["infusion.factors"], content["test"]["factors"], content["test"]["annotator"]
    check_experiment(load(content), {})


def test_a_text_in_one_of_several_target_languages_has_no_score(content, load, tmp_path):
    (tmp_path / "text").write_text("one\n")
    text = str(tmp_path / "text")
    content |= {"axes": {}, "report": {}, "test": {"src": text, "ref": text}}
    french = {"name": "more", "tag": "<2fr>", "tgt": "fr"}
    content["settings"]["data.train"] = [{"name": "train", "tag": "<2de>"}, french]
    (problem,) = _problems(load(content))
    assert problem.startswith("test: expected a recipe of one target language, got one of de, fr. Score it")


def test_a_dry_run_counts_failed_runs_as_run_does(content, load, store, dry_run):
    content |= {"report": {}, "seconds": 7200, "axes": {"seed": [1, 2]}}
    spec = load(content)
    first, second = spec.cells()
    store.add([first, second])
    store.stop(first.key, FAILED, 1.0, "x")
    lines = dry_run().output.splitlines()
    assert lines[0].split() == ["failed", "skipped", "seed", "1"]
    assert lines[-1].startswith("2 runs; to do: about 2.0 hours with 1 at a time; 1 failed, skipped")
    line = dry_run("--retry-failed").output.splitlines()[-1]
    assert line == "2 runs; to do: about 4.0 hours with 1 at a time"
    store.stop(second.key, FAILED, 1.0, "x")
    assert run_experiment(spec, store, executor=LocalExecutor(1, _never)) == {FAILED: 2}


def test_the_first_seeds_may_be_done_alone(content, load, dry_run):
    content |= {"report": {}, "axes": {"seed": [7, 5, 6], "size": {"a": {}, "b": {"data.fraction": 0.5}}}}
    load(content)
    lines = dry_run("--seeds", "2", "--only", "size=a").output.splitlines()
    assert [line.split("  ")[-1] for line in lines[:-1]] == ["seed 7, size a", "seed 5, size a"]
    for more in (["4"], ["1", "--only", "seed=7"]):
        assert str(dry_run("--seeds", *more).exception).startswith("--seeds: expected at most 3")


def test_a_run_and_a_report_take_settings(finetune, load, store, tmp_path, dry_run):
    """And both mean the same runs."""
    settings = ["--set", "model=mine", "--set", "data.dir=there"]
    spec = load(finetune, settings[1::2])
    store.add(spec.cells())
    for cell in spec.cells():
        store.finish(cell.key, 7.0, {"metrics": {"score": 0.5}, "command": cell.command()})
    assert dry_run(*settings).output.endswith("6 runs; to do: nothing\n")
    assert "waiting" in dry_run().output
    arguments = ["experiment", "report", str(tmp_path / "spec.yaml"), "--store", str(store.folder), *settings]
    text = Path(CliRunner().invoke(app, arguments).output.strip()).read_text()
    assert "has 6 runs: 6 done." in text
    assert "syntaxformer finetune --task cola --model mine --infuse masks --set data.dir=there" in text


@pytest.fixture
def edited(content, load, store, tmp_path):
    """What is refused of an experiment of one run: settings that it finished with, and its recipe of now."""
    recipe = yaml.safe_load((RECIPES / "tiny.yaml").read_text())
    content |= {"recipe": str(tmp_path / "mine.yaml"), "axes": {"seed": [1]}, "report": {}}
    spec = load(content)
    store.add(spec.cells())
    (cell,) = spec.cells()

    def write(now):
        Path(content["recipe"]).write_text(yaml.safe_dump({**recipe, **now}))
        return recipe_settings(resolve(cell))

    def refused(finished, now=None):
        """`finished` changes the settings of the recipe as it is, or is a recipe of its own."""
        before = write({}) | finished if now is None or "." in str([*finished]) else write(finished)
        write(now or {})
        store.finish(cell.key, 1.0, {"metrics": {}, "recipe": before})
        return _problems(spec, store)[0]

    return refused, write, spec, cell, recipe


def test_edits_of_the_recipe_of_finished_runs(edited, store):
    refused, write, spec, cell, recipe = edited
    lisa, files = {"lisa": {"supervised": False}}, {"mood": "mood", "case": "kase"}
    data = {"data": {**recipe["data"], "factor_files": files}}
    assert "expected model.dropout=0.7, as in the finished run 1_" in refused({"model.dropout": 0.7})
    assert "expected lisa=None, as in the finished run" in refused({}, lisa)
    assert "expected lisa={" in (problem := refused(lisa, {}))
    assert ", got None. Set it back" in problem
    assert "expected data.factor_files={}" in refused({}, data)
    fewer = {"data.factor_files": {"mood": "mood"}}
    assert "expected data.factor_files={'mood': 'mood'}" in refused(fewer, data)
    finished = write(data)
    del finished["data.factor_files"]  # as it was once stored
    finished |= {f"data.factor_files.{name}": file for name, file in files.items()}
    store.finish(cell.key, 1.0, {"metrics": {}, "recipe": finished})
    check_experiment(spec, store.runs())


def test_a_number_of_pieces_that_nobody_reads_is_no_edit(edited, store):
    """A translator that training starts from keeps its pieces; without one, the number counts."""
    refused, _, spec, cell, _ = edited
    assert "expected subwords.vocab_size=301" in refused({"subwords.vocab_size": 301})
    recipe = yaml.safe_load((RECIPES / "finetune_translator.yaml").read_text())
    recipe["model"]["init_from"] = str(ROOT / "experiments/marian_tatoeba_en_de")
    recipe["data"]["dir"] = "corpus"
    Path(spec.recipe).write_text(yaml.safe_dump(recipe))
    finished = recipe_settings(resolve(cell)) | {"subwords.vocab_size": 301}
    store.finish(cell.key, 1.0, {"metrics": {}, "recipe": finished})
    check_experiment(spec, store.runs())


def test_settings_of_another_version_are_no_edit():
    newer = {"a.b": 1, "new": None, "a.new": 3, "lisa.layers": 4}
    assert differing_settings({"a.b": 1, "old": 2}, newer) == {}
    differing = differing_settings({"a": None, "c.d": 1}, {"a.b": 1, "c.d": 2})
    assert differing == {"a": (None, {"b": 1}), "c.d": (1, 2)}


def test_runs_of_an_earlier_form_hold_nobody_up(content, load, store):
    """Their recipe may be gone."""
    store.add(load(content | {"recipe": "gone.yaml"}).cells())
    for key in store.runs():
        store.finish(key, 40.0, {"metrics": {}, "recipe": {"model.dropout": 0.7}})
    spec = load(content)
    check_experiment(spec, store.runs())
    assert own_runs(spec, store.runs()) == {}
    store.finish(next(iter(store.runs())), 40.0, {"metrics": {}})  # nor its cost
    content |= {"seconds": 11, "axes": {"seed": [1]}, "report": {}}
    spec = load(content)
    for key in store.runs():
        store.finish(key, 40.0, {"metrics": {}})
    assert estimate_seconds(spec, spec.cells()[0], store.runs()) == 11


def _estimates(spec, store, seconds):
    """Costs of the runs; some are done, and took so many seconds."""
    cells = spec.cells()
    store.add(cells)
    for cell, took in zip(cells, seconds, strict=False):
        if took:
            store.finish(cell.key, took, {"metrics": {}})
    return [estimate_seconds(spec, cell, store.runs()) for cell in cells]


def test_cost_is_that_of_the_same_but_for_the_seed_or_of_like_work(content, load, store):
    spec = load(content)
    assert _estimates(spec, store, []) == [None] * 12
    spec.seconds = 11.0
    assert _estimates(spec, store, []) == [11] * 12
    assert _estimates(spec, store, [40, 60]) == [50] * 12
    cell = spec.cells()[-1]
    cell.settings["training.max_steps"] = 3 * resolve(cell).training.max_steps
    assert estimate_seconds(spec, cell, store.runs()) == 150.0


def test_cost_follows_settings_and_not_labels(content, load, store):
    kinds = {"a": {"infusion.kind": "add"}, "b": {"training.max_steps": 400}}
    content |= {"axes": {"system": kinds, "seed": [1, 2]}, "report": {}}
    assert _estimates(load(content), store, [10, 0, 70]) == [10, 10, 70, 70]
    content["axes"]["system"] = {"new": kinds["a"], "b": kinds["b"]}
    assert _estimates(load(content), store, []) == [10, 10, 70, 70]


def test_cost_counts_what_the_recipe_of_a_run_was(content, load, store):
    """The first level sets its updates, the second has those of the recipe."""
    content["axes"] = {"fraction": {"10 %": {"data.fraction": 0.1, "training.max_steps": 300}, "100 %": {}}}
    content["report"] = {}
    spec = load(content)
    few, many = spec.cells()
    updates = resolve(many).training.max_steps
    assert _estimates(spec, store, [60.0])[1] == pytest.approx(60 * updates / 300)
    store.finish(few.key, 60.0, {"metrics": {}, "recipe": {"model.dropout": 0.1}})  # of an older version
    assert estimate_seconds(spec, many, store.runs()) is None
    recipe = recipe_settings(resolve(few)) | {"training.max_steps": 100}
    store.finish(few.key, 60.0, {"metrics": {}, "recipe": recipe})
    assert estimate_seconds(spec, many, store.runs()) == pytest.approx(60 * updates / 100)


def test_cost_of_a_fine_tuning(finetune, load, store):
    """Epochs, share of the data and number of learning rates."""
    more = {"training.epochs": 6, "training.learning_rate": "auto", "data.fraction": 0.5}
    finetune["axes"] = {"system": {"plain": {}, "more": more}}
    costs = _estimates(load(finetune), store, [60.0])
    assert costs == pytest.approx([60, 60 * 2 * 4 * 0.5])  # 6 of 3 epochs, four rates


def test_trials_that_have_no_rate_yet_are_estimated_once_others_are_done(tmp_path):
    """Of an experiment whose seeds and whose tuning name the checkpoint."""
    spec = load_spec(ROOT / "experiments" / "trial_sst.yaml")
    shutil.copy(ROOT / "experiments" / "stores" / "sst" / "store.sqlite", tmp_path)
    with sqlite3.connect(tmp_path / "store.sqlite") as connection:
        connection.execute("DELETE FROM runs WHERE name NOT LIKE 'plain%'")
    connection.close()
    runs = RunStore(tmp_path).runs()
    cells = planned_cells(spec, runs, {})
    cells = [cell for cell in cells if "control" not in str(cell.settings)]  # an older version's
    rateless = [cell for cell in cells if "training.learning_rate" not in cell.settings]
    assert rateless
    assert all(estimate_seconds(spec, cell, runs) > 0 for cell in rateless)


def test_the_content_of_a_checkpoint_is_known_behind_its_path(tmp_path):
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "model.safetensors").write_text(name)
    (link := tmp_path / "encoder").symlink_to("first")
    first = checkpoint_sha256(str(link))
    link.unlink()
    link.symlink_to("second")
    assert first != checkpoint_sha256(str(link)) == checkpoint_sha256(str(tmp_path / "second"))
    assert checkpoint_sha256("google-bert/bert-base-uncased") is None


def test_experiments_look_for_corpora_where_the_variable_says(content, load, tmp_path, monkeypatch, dry_run):
    """The key of a run must not change with the variable: a finished run stays finished."""
    content["settings"]["data.dir"] = "../shared/data/multi30k"
    content["test"] = {side: f"../shared/data/multi30k/none.{side}" for side in ("src", "ref")}
    (cell, *_) = load(content).cells()
    key = cell.key
    monkeypatch.setenv("SYNTAXFORMER_DATA", str(tmp_path))
    assert cell.key == key
    assert resolve(cell).data.dir == tmp_path / "multi30k"
    assert str(dry_run().exception).count(f"{tmp_path}/multi30k/none.") == 2
    monkeypatch.delenv("SYNTAXFORMER_DATA")
    assert resolve(cell).data.dir == Path("../shared/data/multi30k")


def test_a_fine_tuning_looks_for_its_data_where_the_variable_says(finetune, load, tmp_path, monkeypatch):
    """Folder, files and test split, for official tasks and own tables; neither key nor stored recipe change."""
    finetune["test_split"] = "test"
    finetune["settings"] |= {"task": "sst2_trees", "data.dir": "../shared/data/sst", "data.rows": 2}
    spec = load(finetune)
    cell = spec.cells()[0]
    key, recipe = cell.key, recipe_settings(resolve(cell))
    (folder := tmp_path / "sst").mkdir()
    for name in ("train", "dev", "test", "more"):
        lines = "(3 (2 He) (2 sleeps))\n(1 (2 It) (2 sleeps))\n(4 (2 A) (2 film))\n"
        (folder / f"{name}.txt").write_text(lines)
    monkeypatch.setenv("SYNTAXFORMER_DATA", str(tmp_path))
    check_experiment(spec, {})
    assert (cell.key, recipe_settings(resolve(cell))) == (key, recipe)
    data = read_finetune_data(resolve(cell))
    assert [len(data.train), len(data.dev)] == [2, 3]
    cell.settings["data.train"] = "../shared/data/sst/more.txt"
    assert read_finetune_data(resolve(cell)).train.source == str(folder / "more.txt")
    (folder / "own.csv").write_text("text,label\nHe sleeps,a\nIt sleeps,b\nA film,a\n")
    files = {f"data.{name}": "../shared/data/sst/own.csv" for name in ("train", "dev")}
    table = replace(cell, settings={"task": "classify", "model": "m", **files})
    assert len(read_finetune_data(resolve(table)).dev) == 3
