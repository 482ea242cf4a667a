"""Whether a run may use a folder, and what is in it afterwards."""

from __future__ import annotations

import logging
import os
from contextlib import suppress
from unittest.mock import Mock

import pytest
import yaml

from syntaxformer.base.errors import ConfigError, DataError
from syntaxformer.base.files import verify_manifest, write_manifest
from syntaxformer.encoders.finetune_config import load_finetune
from syntaxformer.runs import run_folder
from syntaxformer.runs.run_folder import (
    check_run,
    hold_run,
    is_finished_without_checkpoints,
    move_files,
    open_run,
    running,
    settle_precision,
)
from syntaxformer.translation.recipe import load_recipe


@pytest.fixture
def recipe(tmp_path):
    def make(*settings):
        return load_recipe("tiny", [f"output={tmp_path / 'run'}", "training.precision=auto", *settings])

    return make


def test_a_new_and_an_empty_folder(recipe, tmp_path):
    check_run(recipe())
    assert not (tmp_path / "run").exists()
    (tmp_path / "run").mkdir()
    check_run(recipe())
    open_run(recipe())
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["recipe.yaml"]
    assert load_recipe(tmp_path / "run" / "recipe.yaml") == recipe()
    with pytest.raises(ConfigError, match="which holds another run"):
        open_run(recipe())  # although this one may have been allowed before another process began


def test_files_beside_a_run_are_never_deleted(recipe, tmp_path):
    """A project folder with a recipe.yaml of the user's own, and "output: ."; and one without."""
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "thesis.tex").write_text("x")
    for overwrite in (False, True):
        with pytest.raises(ConfigError, match="output:"):
            check_run(recipe(), overwrite=overwrite)
    (tmp_path / "run" / "thesis.tex").unlink()
    open_run(recipe())
    (tmp_path / "run" / "thesis.tex").write_text("x")
    (tmp_path / "run" / "data").mkdir()
    with pytest.raises(ConfigError, match=r"which holds other files: data, thesis\.tex\. Choose another"):
        check_run(recipe(), overwrite=True)
    check_run(recipe(), resume=True)


def test_overwriting_empties_the_folder_and_leaves_a_link_to_it(recipe, tmp_path):
    (tmp_path / "disk").mkdir()
    (tmp_path / "run").symlink_to(tmp_path / "disk")
    open_run(recipe())
    (tmp_path / "disk" / "model.safetensors").write_text("old")
    (tmp_path / "disk" / "checkpoints" / "checkpoint-5").mkdir(parents=True)
    check_run(recipe("seed=2"), overwrite=True)
    assert (tmp_path / "disk" / "model.safetensors").exists()  # only looked at
    open_run(recipe("seed=2"), overwrite=True)
    assert (tmp_path / "run").is_symlink()
    assert [path.name for path in (tmp_path / "disk").iterdir()] == ["recipe.yaml"]


def test_inputs_in_the_folder_are_not_overwritten(recipe, tmp_path):
    """They would be deleted before they are read."""
    open_run(recipe())
    (tmp_path / "run" / "annotator").mkdir()
    inputs = {"model": ".", "data.dev": "held_out.csv", "annotation.annotator": "annotator"}
    (tmp_path / "run" / "held_out.csv").touch()
    settings = [f"{key}={tmp_path / 'run' / name}" for key, name in inputs.items()]
    config = load_finetune({"task": "classify", "output": tmp_path / "run"}, "", settings)
    with pytest.raises(ConfigError) as caught:
        check_run(config, overwrite=True)
    for problem, (key, name) in zip(caught.value.problems, inputs.items(), strict=True):
        assert problem.startswith(f"{key}: expected a place outside output, {tmp_path / 'run'}, ")
        assert f"got {tmp_path / 'run' / name}." in problem
    parses = f"conllu:{tmp_path / 'run' / 'recipe.yaml'}"
    for setting in (f"annotation.annotator={parses}", f"annotation.annotated=[{tmp_path / 'run'}]"):
        with pytest.raises(ConfigError, match=r"^annotation\.annotat\w+: expected a place outside output"):
            check_run(recipe(setting), overwrite=True)


@pytest.mark.parametrize("key", ["training.accumulate", "training.batch_size"])
def test_a_share_that_processes_cannot_divide_is_refused_before_anything(recipe, tmp_path, monkeypatch, key):
    open_run(recipe())
    monkeypatch.setattr(run_folder, "process_team", lambda: Mock(num_processes=3))
    options = {"task": "classify", "model": "x", "output": tmp_path / "run"}
    of_translator = key == "training.accumulate"
    config = recipe(f"{key}=4") if of_translator else load_finetune(options, overrides=[f"{key}=4"])
    what = "batches" if of_translator else "examples"
    message = rf"^{key}: expected a multiple of 3, .* got 4\. It counts the {what} of all"
    with pytest.raises(ConfigError, match=message), running(config, overwrite=True):
        pytest.fail("begun")


@pytest.mark.parametrize("n_deleted", range(5))
def test_overwriting_that_was_cut_short_can_be_done_again(recipe, tmp_path, monkeypatch, n_deleted):
    """With each number of deletions before the cut, in whichever order the system lists the names."""
    open_run(recipe())
    for name in ("a.safetensors", "z.safetensors"):
        (tmp_path / "run" / f"model{name}").write_text("old")
    (tmp_path / "run" / "checkpoints").mkdir()
    counts = iter(range(9))

    def cut_short(delete):
        def call(path, **options):
            if next(counts) == n_deleted:
                raise KeyboardInterrupt
            delete(path, **options)

        return call

    with monkeypatch.context() as patch:
        patch.setattr(run_folder.Path, "unlink", cut_short(run_folder.Path.unlink))
        patch.setattr(run_folder.shutil, "rmtree", cut_short(run_folder.shutil.rmtree))
        with suppress(KeyboardInterrupt):
            open_run(recipe("seed=2"), overwrite=True)
    open_run(recipe("seed=2"), overwrite=True)
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["recipe.yaml"]


def test_resumption_needs_the_same_settings(recipe):
    widths = ("infusion.kind=concat_pos", "infusion.widths={pos: 3}")
    open_run(recipe("model.dropout=0.3", *widths))
    check_run(
        recipe("model.dropout=0.3", *widths, "training.max_steps=7", "training.sharded=true"), resume=True
    )
    with pytest.raises(ConfigError) as caught:
        check_run(recipe("model.dropout=0.2", "seed=5", *widths), resume=True)
    assert caught.value.problems == [
        "resume: expected model.dropout=0.3 as in the interrupted run, got 0.2.",
        "resume: expected seed=1 as in the interrupted run, got 5.",
    ]


def test_a_run_of_an_earlier_version_resumes(recipe, tmp_path):
    """Settings that did not exist then are as a new run's; those of the infusion stood elsewhere."""
    open_run(recipe())
    stored = tmp_path / "run" / "recipe.yaml"
    content = yaml.safe_load(stored.read_text())
    del content["training"]["weight_decay"], content["annotation"]
    content |= {"masks": None, "infusion": content["infusion"]["embedding"]}
    stored.write_text(yaml.safe_dump(content))
    check_run(recipe(), resume=True)
    with pytest.raises(ConfigError, match=r"expected training\.weight_decay=0\.0 as in the interrupted"):
        check_run(recipe("training.weight_decay=0.5"), resume=True)


def test_resumption_makes_a_run_unfinished_again(recipe, tmp_path):
    open_run(recipe())
    (tmp_path / "run" / "manifest.json").write_text("{}")
    (tmp_path / "run" / "model.safetensors").write_text("kept")
    (tmp_path / "run" / "checkpoints" / "2e-05" / ".checkpoint-5.x.partial").mkdir(parents=True)
    (tmp_path / "run" / "checkpoints" / ".checkpoint-5.x.partial").mkdir()
    (tmp_path / "run" / "checkpoints" / ".data.json.x.partial").write_text("{")
    (tmp_path / "run" / ".recipe.yaml.x.partial").write_text("seed: ")
    open_run(recipe("training.max_steps=7"), resume=True)
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == [
        "checkpoints", "model.safetensors", "recipe.yaml",
    ]  # fmt: skip
    assert [path.name for path in (tmp_path / "run" / "checkpoints").rglob("*")] == ["2e-05"]


def test_a_finished_run_without_checkpoints_stays_as_it_is(recipe, tmp_path, caplog):
    """Who deletes them saves space, and must not lose the model to `--resume`."""
    caplog.set_level("INFO", "syntaxformer")
    run = recipe("training.max_steps=7")
    open_run(run)
    assert not is_finished_without_checkpoints(run)
    (tmp_path / "run" / "model.safetensors").write_text("kept")
    write_manifest(tmp_path / "run")
    assert is_finished_without_checkpoints(run)
    assert f"{tmp_path / 'run'}: already finished" in caplog.messages
    with pytest.raises(ConfigError, match="resume:"):
        is_finished_without_checkpoints(recipe("training.max_steps=9"))
    (tmp_path / "run" / "checkpoints" / "checkpoint-7").mkdir(parents=True)
    assert not is_finished_without_checkpoints(recipe("training.max_steps=9"))


def test_a_cache_in_the_run_is_refused(recipe, tmp_path):
    """What is prepared before the run is opened would stand there as other files."""
    with pytest.raises(ConfigError, match=r"data\.cache:"):
        check_run(recipe(f"data.cache={tmp_path / 'run' / 'cache'}"))
    check_run(recipe(f"data.cache={tmp_path / 'cache'}"))


def test_resuming_where_nothing_was_begun_begins_but_not_among_other_files(recipe, tmp_path, caplog):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / ".lock").touch()  # of a run that was killed before it had opened the folder
    with caplog.at_level(logging.INFO), running(recipe(), resume=True) as run:
        assert not run.resume
        run.open()
    assert (tmp_path / "run" / "recipe.yaml").exists()
    assert [line for line in caplog.messages if "starting from the beginning" in line]
    with running(recipe(), resume=True) as run:
        assert run.resume
    (tmp_path / "run" / "recipe.yaml").rename(tmp_path / "run" / "thesis.tex")
    with pytest.raises(ConfigError, match=r"which holds other files: .*thesis\.tex"):
        check_run(recipe(), resume=True)


def test_a_folder_that_cannot_be_made(recipe, tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(DataError, match=r"file/run: expected to write the folder, got: Not a directory\."):
        open_run(recipe().model_copy(update={"output": tmp_path / "file" / "run"}))


@pytest.fixture
def faster(monkeypatch):
    """What `auto` is."""
    return lambda precision: monkeypatch.setattr(
        run_folder, "pick_precision", lambda setting: precision if setting == "auto" else setting
    )


def test_a_resumed_run_keeps_the_precision_that_auto_was(recipe, faster):
    faster("bf16")
    begun = settle_precision(recipe())
    assert begun.training.precision == "bf16"
    assert recipe().training.precision == "auto"
    open_run(begun)
    faster("fp32")
    assert settle_precision(recipe()).training.precision == "fp32"
    assert settle_precision(recipe(), resume=True) == begun
    open_run(settle_precision(recipe(), resume=True), resume=True)
    with pytest.raises(ConfigError, match=r"expected training.precision='bf16' as in the interrupted run,"):
        check_run(settle_precision(recipe("training.precision=fp32"), resume=True), resume=True)


def test_a_folder_that_another_command_works_in(recipe, tmp_path):
    folder, message = tmp_path / "run", "^output: expected a folder that no other command uses, "
    with hold_run(folder):
        open_run(recipe())
        open_run(recipe(), overwrite=True)
        assert {path.name for path in folder.iterdir()} == {"recipe.yaml", ".lock"}
        for flags in ({"resume": True}, {"overwrite": True}):
            with pytest.raises(ConfigError, match=message):
                check_run(recipe(), **flags)
        with pytest.raises(ConfigError, match=message), hold_run(folder):
            pytest.fail("held twice")
        write_manifest(folder)
    assert {path.name for path in folder.iterdir()} == {"recipe.yaml", "manifest.json"}
    verify_manifest(folder)


@pytest.mark.parametrize("stored", [True, False])
def test_the_lock_of_a_killed_command_holds_nothing(recipe, tmp_path, stored):
    folder = tmp_path / "run"
    if stored:
        open_run(recipe())
    folder.mkdir(exist_ok=True)
    (folder / ".lock").touch()
    check_run(recipe(), overwrite=stored)
    with hold_run(folder):
        open_run(recipe(), overwrite=stored)
    assert [path.name for path in folder.iterdir()] == ["recipe.yaml"]


def test_a_disk_without_locks_holds_nothing(tmp_path, monkeypatch):
    def refuse(self, *arguments, **options):
        raise NotImplementedError("FileSystem does not appear to support flock")

    monkeypatch.setattr(run_folder.FileLock, "acquire", refuse)
    with hold_run(tmp_path / "run"), hold_run(tmp_path / "run"):
        assert list((tmp_path / "run").iterdir()) == []


@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o644), (0o077, 0o600), (0o002, 0o664)])
def test_files_of_a_model_are_as_readable_as_others(tmp_path, umask, mode):
    source, output = tmp_path / "partial", tmp_path / "model"
    source.mkdir()
    output.mkdir()
    (source / "model.safetensors").touch(0o600)
    (source / "config.json").touch(0o644)
    old = os.umask(umask)
    try:
        move_files(source, output)
    finally:
        os.umask(old)
    assert list(source.iterdir()) == []
    modes = {path.name: path.stat().st_mode & 0o777 for path in output.iterdir()}
    assert modes == {"model.safetensors": mode, "config.json": mode}
