"""What is refused before a run starts, and what a dry run says."""

from __future__ import annotations

import re
import shutil
import sqlite3
from copy import deepcopy
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
from syntaxformer.study.experiments.runner import estimate_seconds, run_experiment
from syntaxformer.study.experiments.spec import load_spec
from syntaxformer.study.experiments.store import FAILED, RunStore, own_runs, planned_cells

RECIPES = Path(__file__).resolve().parents[4] / "recipes"
FINETUNE = {
    "verb": "finetune",
    "recipe": None,
    "settings": {"task": "cola", "model": "encoder", "data.dir": "x"},
    "axes": {"system": {"plain": {"infuse": "none"}, "masks": {"infuse": "masks"}}},
    "report": {},
}


def _never(folder):
    raise AssertionError("no run may start")


def _problems(spec, runs=None):
    with pytest.raises(ConfigError) as error:
        check_experiment(spec, runs or {})
    return error.value.problems


def _dry_run(path, store, *more):
    arguments = ["experiment", "run", str(path), "--dry-run", "--store", str(store.folder), *more]
    return CliRunner().invoke(app, arguments)


def test_wrong_settings_are_found_before_a_run_starts(content, write_spec, store):
    content["settings"]["infusion.knd"] = "add"
    content["axes"]["system"]["sit"] = {"infusion.kind": "sum_then_concat", "infusion.width": 500}
    content["axes"]["fraction"]["100 %"] = {"data.fraction": 7}
    spec = load_spec(write_spec(content))
    with pytest.raises(ConfigError) as error:
        run_experiment(spec, store, command=_never)
    problems = [re.sub(r"\S*tiny\S*:", "RECIPE:", one) for one in error.value.problems]
    assert problems[0] == "RECIPE: infusion.knd: unknown key. Nearest: kind."  # of every run: said once
    assert (
        "system base, fraction 100 %, seed 1: RECIPE: data.fraction: expected less than or equal to 1, got 7."
        in problems
    )
    assert any(one.startswith("system sit, fraction 10 %, seed 1: RECIPE: ") for one in problems)
    assert isinstance(_dry_run(store.folder.parent / "spec.yaml", store).exception, ConfigError)


def test_a_recipe_that_is_none(content, write_spec):
    content["recipe"] = "missing.yaml"
    assert _problems(load_spec(write_spec(content))) == [
        "missing.yaml: expected a readable file, got: No such file or directory."
    ]


def test_wrong_settings_of_a_fine_tuning(content, write_spec):
    content |= deepcopy(FINETUNE)
    content["settings"]["training.epoch"] = 3
    content["axes"]["system"]["masks"]["infuse"] = "mask"
    assert _problems(load_spec(write_spec(content))) == [
        "system plain: finetune: training.epoch: unknown key. Nearest: epochs.",
        "system masks: infuse: expected some of masks, relation_bias, lisa, pos_add, pos_concat, pos_let, let or none, "
        "got 'mask'. Nearest: masks.",
    ]  # fmt: skip
    del content["settings"]["training.epoch"]
    content["axes"]["system"]["masks"]["infuse"] = "masks"
    check_experiment(load_spec(write_spec(content)), {})
    content["settings"]["task"] = "colla"
    assert _problems(load_spec(write_spec(content))) == [
        "task: expected a known task, got 'colla'. Nearest: cola."
    ]


def test_the_shorthand_of_fine_tunings_is_no_setting_of_a_recipe(content, write_spec):
    content["settings"]["infuse"] = "masks"
    (problem,) = _problems(load_spec(write_spec(content)))
    assert "infuse: unknown key. Nearest: infusion." in problem


def test_a_search_is_checked_with_one_value_of_each_setting(content, write_spec):
    content |= {"axes": {}, "report": {}}
    content["search"] = {"space": {"infusion.widht": {"low": 8, "high": 16}}}
    (problem,) = _problems(load_spec(write_spec(content)))
    assert problem.endswith("infusion.widht: unknown key. Nearest: width.")


def test_test_files_are_read_before_a_run_starts(content, write_spec, store, tmp_path):
    src, ref = tmp_path / "src", tmp_path / "ref"
    content["test"] = {"src": str(src), "ref": str(ref)}
    path = write_spec(content)
    assert _problems(load_spec(path)) == [
        f"test.src: {src}: expected a readable file, got: No such file or directory.",
        f"test.ref: {ref}: expected a readable file, got: No such file or directory.",
    ]
    src.write_text("one\ntwo\n")
    ref.write_text("eins\n")
    with pytest.raises(
        ConfigError,
        match=r"^test: expected as many lines in src as in ref, at least one, got 2 in .*src and 1 in .*ref\.$",
    ):
        run_experiment(load_spec(path), store, command=_never)
    assert "got 2 in" in str(_dry_run(path, store).exception)
    ref.write_text("eins\nzwei\n")
    check_experiment(load_spec(path), {})


def test_a_search_by_a_metric_that_the_task_has_not(content, write_spec):
    content |= deepcopy(FINETUNE) | {"axes": {}}
    content["search"] = {"space": {"training.epochs": {"values": [1, 2]}}, "metric": "pearson"}
    assert _problems(load_spec(write_spec(content))) == [
        "search.metric: expected a metric of cola, score, matthews, got pearson."
    ]
    content["search"]["metric"], content["report"] = "score", {"metrics": ["accuracy", "matthews"]}
    assert _problems(load_spec(write_spec(content))) == [
        "report.metrics: expected a metric of cola, score, matthews, got accuracy."
    ]
    content["search"]["metric"], content["report"] = "pearson", {}
    content["settings"] |= {"task": "stsb"}
    check_experiment(load_spec(write_spec(content)), {})
    content["settings"] |= {"task": "regress"}
    check_experiment(load_spec(write_spec(content)), {})


def test_settings_chosen_by_a_metric_that_runs_have_not(content, write_spec):
    """Else all runs that choose would be done, none would count, and the grid would wait for ever."""
    content["tune"] = {"space": {"training.learning_rate": [1e-4]}, "metric": "dev_bleu"}
    assert "tune.metric: expected dev_loss with training.best_by loss, got dev_bleu." in _problems(
        load_spec(write_spec(content))
    )
    content |= deepcopy(FINETUNE) | {"axes": {}}
    content["tune"]["metric"] = "pearson"
    assert _problems(load_spec(write_spec(content))) == [
        "tune.metric: expected a metric of cola, score, matthews, got pearson."
    ]


def test_a_text_that_the_trained_model_could_not_read(content, write_spec, tmp_path):
    for name, lines in (
        ("src", "one\ntwo\n"),
        ("ref", "eins\nzwei\n"),
        ("topic", "a\nb\n"),
        ("short", "a\n"),
    ):
        (tmp_path / name).write_text(lines)
    content |= {"axes": {}, "report": {}, "test": {name: str(tmp_path / name) for name in ("src", "ref")}}
    content["settings"] |= {
        "annotation.annotator": "conllu:{split}.conllu",
        "data.factor_files": {"topic": "{split}.topic"},
        "infusion.kind": "sum_then_concat",
        "infusion.factors": ["pos", "topic"],
    }
    assert _problems(load_spec(write_spec(content))) == [
        "test.factors: expected a file for each factor of your own, got none for topic.",
        "test.annotator: expected one for the test text as well as conllu:{split}.conllu, got none.",
    ]
    content["test"] |= {"factors": {"topic": str(tmp_path / "short")}, "annotator": "conllu:test.conllu"}
    (problem,) = _problems(load_spec(write_spec(content)))
    assert problem.startswith(
        "test: expected as many lines in src as in factors.topic, at least one, got 2 in "
    )
    content["test"]["factors"]["topic"] = str(tmp_path / "topic")
    spec = load_spec(write_spec(content))
    check_experiment(spec, {})
    assert spec.cells()[0].test["factors.topic"] == str(tmp_path / "topic")
    content["test"]["annotator"] = "de"
    assert _problems(load_spec(write_spec(content))) == [
        "test.annotator: expected an annotator for en, the language of data.src=en, got de. Set test.annotator=en."
    ]
    content["settings"]["infusion.kind"] = "none"  # reads neither
    del content["settings"]["infusion.factors"], content["test"]["factors"], content["test"]["annotator"]
    check_experiment(load_spec(write_spec(content)), {})


def test_a_dry_run_counts_failed_runs_as_run_does(content, write_spec, store):
    content["axes"] = {"seed": [1, 2]}
    content |= {"report": {}, "seconds": 7200}
    path = write_spec(content)
    first, second = load_spec(path).cells()
    store.add([first, second])
    store.stop(first.key, FAILED, 1.0, "x")
    shown = _dry_run(path, store).output.splitlines()
    assert shown[0].split() == ["failed", "skipped", "seed", "1"]
    assert (
        shown[-1]
        == "2 runs; to do: about 2.0 hours with 1 at a time; 1 failed, skipped without --retry-failed"
    )
    assert _dry_run(path, store, "--retry-failed").output.splitlines()[-1] == (
        "2 runs; to do: about 4.0 hours with 1 at a time"
    )
    store.stop(second.key, FAILED, 1.0, "x")
    assert run_experiment(load_spec(path), store, command=_never) == {FAILED: 2}


def test_a_dry_run_says_that_the_recipe_was_edited(content, write_spec, store):
    spec = load_spec(path := write_spec(content))
    store.add(spec.cells())
    cell = spec.cells()[0]
    recipe = recipe_settings(resolve(cell)) | {"model.dropout": 0.7}
    store.finish(cell.key, 1.0, {"metrics": {}, "recipe": recipe})
    assert "expected model.dropout=0.7, as in the finished run base_10--_1_" in str(
        _dry_run(path, store).exception
    )


def _refusal(spec, store, cell, recipe):
    store.finish(cell.key, 1.0, {"metrics": {}, "recipe": recipe})
    return _problems(spec, store.runs())[0]


@pytest.fixture
def one_run(content, write_spec, store, tmp_path):
    """A recipe and its file, an experiment of one run with it, and that run."""
    recipe = yaml.safe_load((RECIPES / "tiny.yaml").read_text())
    content["recipe"] = str(file := tmp_path / "mine.yaml")
    content["axes"], content["report"] = {"seed": [1]}, {}
    spec = load_spec(write_spec(content))
    store.add(spec.cells())
    (cell,) = spec.cells()
    file.write_text(yaml.safe_dump(recipe))
    return recipe, file, spec, cell


def test_a_section_switched_on_or_off_is_an_edit(one_run, store):
    recipe, file, spec, cell = one_run
    without = recipe_settings(resolve(cell))
    file.write_text(yaml.safe_dump({**recipe, "lisa": {"supervised": False}}))
    with_lisa = recipe_settings(resolve(cell))
    assert "expected lisa=None, as in the finished run" in _refusal(spec, store, cell, without)
    file.write_text(yaml.safe_dump(recipe))
    shown = _refusal(spec, store, cell, with_lisa)
    assert "expected lisa={" in shown
    assert "'supervised': False" in shown
    assert ", got None. Set it back" in shown


def test_keys_of_a_mapping_and_an_empty_one_are_an_edit(one_run, store):
    recipe, file, spec, cell = one_run
    empty = recipe_settings(resolve(cell))
    recipe["data"] = {**recipe["data"], "factor_files": {"mood": "mood", "case": "kase"}}
    file.write_text(yaml.safe_dump(recipe))
    assert "expected data.factor_files={}" in _refusal(spec, store, cell, empty)
    fewer = {**empty, "data.factor_files": {"mood": "mood"}}
    assert "expected data.factor_files={'mood': 'mood'}" in _refusal(spec, store, cell, fewer)
    del fewer["data.factor_files"]
    as_once_stored = {"data.factor_files.mood": "mood", "data.factor_files.case": "kase"}
    store.finish(cell.key, 1.0, {"metrics": {}, "recipe": {**fewer, **as_once_stored}})
    check_experiment(spec, store.runs())


def test_a_number_of_pieces_that_nobody_reads_is_no_edit(one_run, store):
    """A translator that training starts from keeps its pieces; without one, the number counts."""
    recipe, file, spec, cell = one_run
    finished = recipe_settings(resolve(cell)) | {"subwords.vocab_size": 301}
    assert "expected subwords.vocab_size=301, as in the finished run" in _refusal(spec, store, cell, finished)
    start = str(Path(__file__).parents[4] / "experiments/marian_tatoeba_en_de")
    recipe = yaml.safe_load((RECIPES / "finetune_translator.yaml").read_text())
    recipe["model"]["init_from"], recipe["data"]["dir"] = start, "corpus"
    file.write_text(yaml.safe_dump(recipe))
    store.finish(
        cell.key,
        1.0,
        {"metrics": {}, "recipe": recipe_settings(resolve(cell)) | {"subwords.vocab_size": 301}},
    )
    check_experiment(spec, store.runs())


def test_settings_of_another_version_are_no_edit():
    assert (
        differing_settings({"a.b": 1, "old": 2}, {"a.b": 1, "new": None, "a.new": 3, "lisa.layers": 4}) == {}
    )
    assert differing_settings({"a": None, "c.d": 1}, {"a.b": 1, "c.d": 2}) == {
        "a": (None, {"b": 1}),
        "c.d": (1, 2),
    }


def test_a_fine_tuning_with_other_defaults_is_refused(content, write_spec, store):
    content |= deepcopy(FINETUNE)
    spec = load_spec(write_spec(content))
    store.add(spec.cells())
    cell = spec.cells()[0]
    settings = recipe_settings(resolve(cell))
    store.finish(cell.key, 1.0, {"metrics": {}, "recipe": settings})
    check_experiment(spec, store.runs())
    store.finish(cell.key, 1.0, {"metrics": {}, "recipe": settings | {"training.epochs": 30}})
    (problem,) = _problems(spec, store.runs())
    assert re.match(
        r"finetune: expected training\.epochs=30, as in the finished run plain_.*, got 3\. ", problem
    )


def test_runs_of_an_earlier_form_hold_nobody_up(content, write_spec, store):
    """Their recipe may be gone."""
    content["recipe"] = "gone.yaml"
    store.add(load_spec(write_spec(content)).cells())
    for key in store.runs():
        store.finish(key, 40.0, {"metrics": {}, "recipe": {"model.dropout": 0.7}})
    content["recipe"] = "tiny"
    spec = load_spec(write_spec(content))
    check_experiment(spec, store.runs())
    assert (len(store.runs()), len(own_runs(spec, store.runs()))) == (len(spec.cells()), 0)


def test_cost_counts_what_the_recipe_sets(content, write_spec, store):
    """The first level sets its updates, the second has those of the recipe."""
    content["axes"] = {"fraction": {"10 %": {"data.fraction": 0.1, "training.max_steps": 300}, "100 %": {}}}
    content["report"] = {}
    spec = load_spec(write_spec(content))
    few, many = spec.cells()
    store.add([few, many])
    store.finish(few.key, 60.0, {"metrics": {}})
    updates = resolve(many).training.max_steps
    assert estimate_seconds(spec, many, store.runs()) == pytest.approx(60 * updates / 300)
    store.finish(
        few.key, 60.0, {"metrics": {}, "recipe": recipe_settings(resolve(few)) | {"training.max_steps": 100}}
    )
    as_it_ran = pytest.approx(60 * updates / 100)
    assert estimate_seconds(spec, many, store.runs()) == as_it_ran


def test_cost_of_a_fine_tuning(content, write_spec, store):
    content |= deepcopy(FINETUNE)
    more = {"training.epochs": 6, "training.learning_rate": "auto", "data.fraction": 0.5}
    content["axes"] = {"system": {"plain": {}, "more": more}}
    spec = load_spec(write_spec(content))
    plain, more = spec.cells()
    store.add([plain])
    store.finish(plain.key, 60.0, {"metrics": {}})
    assert estimate_seconds(spec, more, store.runs()) == pytest.approx(
        60 * 2 * 4 * 0.5
    )  # 6 of 3 epochs, four rates


def test_cost_without_the_recipe_of_old_runs(content, write_spec, store):
    content["recipe"] = "gone.yaml"
    store.add(load_spec(write_spec(content)).cells())
    for key in store.runs():
        store.finish(key, 40.0, {"metrics": {}})
    content |= {"recipe": "tiny", "seconds": 11}
    content["axes"]["fraction"] = {"30 %": {"data.fraction": 0.3}}
    content["report"] = {}
    spec = load_spec(write_spec(content))
    assert estimate_seconds(spec, spec.cells()[0], store.runs()) == 11


def test_the_content_of_a_checkpoint_is_known_behind_its_path(tmp_path):
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "model.safetensors").write_text(name)
    link = tmp_path / "encoder"
    link.symlink_to("first")
    first = checkpoint_sha256(str(link))
    link.unlink()
    link.symlink_to("second")
    assert first != checkpoint_sha256(str(link)) == checkpoint_sha256(str(tmp_path / "second"))
    assert checkpoint_sha256("google-bert/bert-base-uncased") is None


def test_cost_is_not_that_of_runs_with_other_settings(content, write_spec, store):
    """The labels stay, the settings were edited: three times the updates."""
    content["axes"], content["report"] = {"system": {"a": {"training.max_steps": 400}}, "seed": [1, 2]}, {}
    spec = load_spec(write_spec(content))
    first, second = spec.cells()
    store.add([first])
    store.finish(first.key, 60.0, {"metrics": {}})
    assert estimate_seconds(spec, second, store.runs()) == 60
    content["axes"]["system"]["a"]["training.max_steps"] = 1200
    edited = load_spec(write_spec(content))
    assert estimate_seconds(edited, edited.cells()[1], store.runs()) == pytest.approx(180)


def test_a_renamed_level_costs_what_it_did(content, write_spec, store):
    content["axes"], content["report"] = (
        {"system": {"a": {"infusion.kind": "add"}, "b": {}}, "seed": [1, 2]},
        {},
    )
    spec = load_spec(write_spec(content))
    store.add(spec.cells())
    for cell, seconds in zip(spec.cells(), (10.0, 0.0, 70.0, 0.0), strict=True):
        if seconds:
            store.finish(cell.key, seconds, {"metrics": {}})
    content["axes"]["system"] = {"new": {"infusion.kind": "add"}, "b": {}}
    renamed = load_spec(write_spec(content))
    assert [estimate_seconds(renamed, cell, store.runs()) for cell in renamed.cells()] == [10, 10, 70, 70]


def test_experiments_look_for_corpora_where_the_variable_says(
    content, write_spec, store, tmp_path, monkeypatch
):
    """The key of a run must not change with the variable: a finished run stays finished."""
    content["settings"]["data.dir"] = "../shared/data/multi30k"
    content["test"] = {side: f"../shared/data/multi30k/none.{side}" for side in ("src", "ref")}
    spec = load_spec(write_spec(content))
    (cell, *_) = spec.cells()
    key = cell.key
    monkeypatch.setenv("SYNTAXFORMER_DATA", str(tmp_path))
    assert cell.key == key
    assert resolve(cell).data.dir == tmp_path / "multi30k"
    done = _dry_run(store.folder.parent / "spec.yaml", store)
    assert str(done.exception).count(f"{tmp_path}/multi30k/none.") == 2
    monkeypatch.delenv("SYNTAXFORMER_DATA")
    assert resolve(cell).data.dir == Path("../shared/data/multi30k")


def test_a_fine_tuning_looks_for_its_data_where_the_variable_says(
    content, write_spec, store, tmp_path, monkeypatch
):
    """Folder, files and test split, for official tasks and own tables; neither key nor stored recipe change."""
    content |= deepcopy(FINETUNE) | {"test_split": "test"}
    content["settings"] |= {"task": "sst2_trees", "data.dir": "../shared/data/sst", "data.rows": 2}
    spec = load_spec(write_spec(content))
    cell = spec.cells()[0]
    key, recipe = cell.key, recipe_settings(resolve(cell))
    (folder := tmp_path / "sst").mkdir()
    for name in ("train", "dev", "test", "more"):
        (folder / f"{name}.txt").write_text(
            "(3 (2 He) (2 sleeps))\n(1 (2 It) (2 sleeps))\n(4 (2 A) (2 film))\n"
        )
    monkeypatch.setenv("SYNTAXFORMER_DATA", str(tmp_path))
    check_experiment(spec, {})
    assert (cell.key, recipe_settings(resolve(cell))) == (key, recipe)
    assert [len(read_finetune_data(resolve(cell)).train), len(read_finetune_data(resolve(cell)).dev)] == [
        2,
        3,
    ]
    cell.settings["data.train"] = "../shared/data/sst/more.txt"
    assert read_finetune_data(resolve(cell)).train.source == str(folder / "more.txt")
    (folder / "own.csv").write_text("text,label\nHe sleeps,a\nIt sleeps,b\nA film,a\n")
    own = {f"data.{name}": "../shared/data/sst/own.csv" for name in ("train", "dev")}
    table = replace(cell, settings={"task": "classify", "model": "m", **own})
    assert len(read_finetune_data(resolve(table)).dev) == 3


def test_a_run_and_a_report_take_settings(content, write_spec, store):
    """And both mean the same runs."""
    content |= deepcopy(FINETUNE)
    path, given = write_spec(content), ["--set", "model=mine", "--set", "data.dir=there"]
    spec = load_spec(path, given[1::2])
    store.add(spec.cells())
    for cell in spec.cells():
        store.finish(cell.key, 7.0, {"metrics": {"score": 0.5}, "command": cell.command()})
    assert _dry_run(path, store, *given).output.endswith("2 runs; to do: nothing\n")
    assert "waiting" in _dry_run(path, store).output
    arguments = ["experiment", "report", str(path), "--store", str(store.folder), *given]
    report = Path(CliRunner().invoke(app, arguments).output.strip()).read_text()
    assert "has 2 runs: 2 done." in report
    assert "syntaxformer finetune --task cola --model mine --infuse masks --set data.dir=there" in report


def test_a_test_split_has_labels(content, write_spec, tmp_path):
    """Official CoLA's has none; the treebank's has, and a table of one's own has no splits."""
    for name, lines in {
        "test.tsv": "index\tsentence\n0\tHe sleeps .\n",
        "dev.txt": "(3 (2 He) (2 sleeps))\n",
    }.items():
        (tmp_path / name).write_text(lines)
    content |= deepcopy(FINETUNE) | {"test_split": "test"}
    content["settings"]["data.dir"] = str(tmp_path)
    assert _problems(load_spec(write_spec(content))) == [
        "test_split: expected one with labels, got 'test' of cola."
    ]
    content["settings"]["task"] = "classify"
    assert _problems(load_spec(write_spec(content))) == [
        "test_split: expected a task with official files in data.dir, got classify."
    ]
    content |= {"test_split": "dev"}
    content["settings"]["task"] = "sst2_trees"
    check_experiment(load_spec(write_spec(content)), {})
    content |= {"verb": "train", "recipe": "multi30k"}
    with pytest.raises(ConfigError, match=r"test_split: expected none for train, got 'dev'\. Give test\.src"):
        load_spec(write_spec(content))


def test_trials_that_have_no_rate_yet_are_estimated_once_others_are_done(tmp_path):
    """Of an experiment whose seeds and whose tuning name the checkpoint."""
    experiments = RECIPES.parent / "experiments"
    spec = load_spec(experiments / "trial_sst.yaml")
    shutil.copy(experiments / "stores" / "sst" / "store.sqlite", tmp_path)
    with sqlite3.connect(tmp_path / "store.sqlite") as connection:
        connection.execute("DELETE FROM runs WHERE name NOT LIKE 'plain%'")
    connection.close()
    runs = RunStore(tmp_path).runs()
    cells = planned_cells(spec, runs, {})
    rateless = [cell for cell in cells if "training.learning_rate" not in cell.settings]
    rateless = [cell for cell in rateless if "control" not in str(cell.settings)]  # an older version's
    assert rateless
    assert all(estimate_seconds(spec, cell, runs) > 0 for cell in rateless)
