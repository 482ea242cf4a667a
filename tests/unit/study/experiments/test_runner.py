"""Runs that are done, failed, killed, interrupted, resumed: calls here, and small scripts as processes of their own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
import yaml
from filelock import FileLock

from syntaxformer.base.errors import ConfigError, DataError
from syntaxformer.runs.run_folder import Stopwatch, counted_seconds
from syntaxformer.study.experiments import runner
from syntaxformer.study.experiments.cell import recipe_settings, resolve
from syntaxformer.study.experiments.runner import MOST_KILLS, LocalExecutor, run_experiment
from syntaxformer.study.experiments.spec import Contrast
from syntaxformer.study.experiments.store import DONE, FAILED, KILLED, RUNNING, WAITING, RunStore, own_runs
from syntaxformer.translation.recipe import load_recipe

SCRIPT = "import json, os, pathlib, sys, time; p = pathlib.Path(sys.argv[1])\n"
SUCCESS = {"metrics": {"bleu": 1.5}}


@pytest.fixture(autouse=True)
def _quick(monkeypatch, no_devices):
    monkeypatch.setattr(runner, "POLL_S", 0.02)


@pytest.fixture
def run(store, in_process):
    """Do an experiment here; what a run does is its result, its exit code, or a function of its folder."""

    def call(spec, outcome=SUCCESS, **options):
        executor = in_process(outcome if callable(outcome) else lambda folder: outcome)
        counts = run_experiment(spec, store, executor=executor, **options)
        return counts, [folder.name for folder in executor.folders]

    return call


def _command(script):
    return lambda folder: [sys.executable, "-S", "-c", SCRIPT + script, str(folder)]


def _log(folder, text):
    with (folder / "log.txt").open("a") as log:
        log.write(text)


def _refuse(folder):
    _log(folder, "error: data: expected a file, found none.\nlater\n")
    return 2


def _small(spec, n):
    spec.axes["seed"] = list(range(1, n + 1))
    spec.axes["fraction"] = {"10 %": {"data.fraction": 0.1}}
    return spec


def test_only_what_is_missing_runs(spec, store, run):
    assert run(_small(spec, 1))[0] == {DONE: 2}
    _small(spec, 2)
    base, sit = {"system": "base"}, {"system": "sit"}
    spec.report.primary = Contrast(cell=sit, against=base, seeds=2, sd=1)
    counts, folders = run(spec)
    assert (counts, len(folders)) == ({DONE: 4}, 2)
    runs = list(store.runs().values())
    assert runs[0].result == SUCCESS | {"primary": {spec.name: None}}
    assert runs[-1].result["primary"] == {spec.name: {"cell": sit, "against": base, "seeds": 2, "sd": 1}}
    assert [run.attempts for run in runs] == [1, 1, 1, 1]
    assert all(run.seconds > 0 for run in runs)


@pytest.fixture
def recipe(spec, tmp_path):
    """A recipe whose dropout is 0.1 until it is written with another; the experiment has two runs of it."""
    recipe, file = load_recipe("tiny", []).model_dump(mode="json"), tmp_path / "mine.yaml"
    _small(spec, 1).recipe = str(file)

    def write(dropout, **training):
        recipe["model"]["dropout"] = dropout
        recipe["training"] |= training
        file.write_text(f"# a comment\n{yaml.safe_dump(recipe)}")

    write(0.1)
    return write


REFUSAL = r"expected model\.dropout=0\.1, as in the finished run .*, got 0\.2\."


def test_a_recipe_that_was_edited_is_refused(spec, store, recipe, run):
    """What is done and what is missing would come from two recipes."""
    result = SUCCESS | {"recipe": recipe_settings(resolve(spec.cells()[0]))}
    only = {"system": {"base"}}
    assert run(spec, result, only=only)[0] == {DONE: 1}
    recipe(0.1, log_every=7)  # decides nothing
    assert run(spec, _refuse, only=only)[0] == {DONE: 1}
    recipe(0.2)
    with pytest.raises(ConfigError, match=REFUSAL):
        run(spec)
    assert [run.state for run in store.runs().values()] == [DONE, WAITING]


def test_a_recipe_edited_while_the_runner_works_ends_it(spec, store, recipe, run):
    """The first run ends with the recipe it began with; the second is not started with another."""
    stored = {cell.key: recipe_settings(resolve(cell)) for cell in spec.cells()}

    def edit(folder):
        recipe(0.2)
        return SUCCESS | {"recipe": stored[spec.cells()[0].key]}

    with pytest.raises(ConfigError, match=REFUSAL):
        run(spec, edit)
    assert [run.state for run in store.runs().values()] == [DONE, WAITING]


def test_a_failed_run_keeps_its_error_until_it_is_asked_for_again(spec, store, run):
    spec = _small(spec, 2)
    assert run(spec, _refuse)[0] == {FAILED: 4}
    assert run(spec) == ({FAILED: 4}, [])
    assert run(spec, only={"seed": {"2"}}, retry_failed=True)[0] == {DONE: 2}
    errors = {run.cell.labels["seed"]: (run.error, run.attempts) for run in store.runs().values()}
    assert errors == {"1": ("data: expected a file, found none.", 1), "2": (None, 2)}


@pytest.mark.parametrize(("last", "error"), [("Traceback\n", "Traceback"), ("", "exit code 3")])
def test_the_error_is_that_of_the_last_attempt(spec, store, run, last, error):
    run(_small(spec, 1), _refuse)

    def silent(folder):
        _log(folder, last)
        return 3

    run(spec, silent, retry_failed=True)
    assert {run.error for run in store.runs().values()} == {error}


def test_a_killed_run_is_tried_again_but_not_for_ever(spec, store, run):
    attempts = Counter()

    def killed_once(folder):
        attempts[folder] += 1
        return SUCCESS if attempts[folder] > 1 else -signal.SIGKILL

    assert run(_small(spec, 1), killed_once)[0] == {DONE: 2}
    counts, folders = run(_small(spec, 2), -signal.SIGKILL)
    assert (counts, len(folders)) == ({DONE: 2, KILLED: 2}, 2 * MOST_KILLS)
    killed = [run for run in store.runs().values() if run.state == KILLED]
    assert {(run.error, run.attempts) for run in killed} == {("killed by SIGKILL", MOST_KILLS)}
    assert run(spec)[0] == {DONE: 4}


def test_a_run_in_a_process_of_its_own(spec, store, run):
    """Killed, failed and done, as its exit says; a missing program is an error of the runner, which can go on."""
    spec = _small(spec, 1)
    script = (
        "kind = json.loads((p / 'cell.json').read_text())['settings']['infusion.kind']\n"
        "if kind == 'none': os.kill(os.getpid(), 9)\n"
        "sys.exit('error: no corpus')"
    )
    assert run_experiment(spec, store, executor=LocalExecutor(2, _command(script))) == {KILLED: 1, FAILED: 1}
    assert [run.error for run in store.runs().values()] == ["killed by SIGKILL", "no corpus"]

    def missing(folder):
        raise OSError("no such program")

    with pytest.raises(OSError, match="no such program") as held:
        run_experiment(spec, store, retry_failed=True, executor=LocalExecutor(1, missing))
    done = "(p / 'result.json').write_text('{\"metrics\": {}}')"
    executor = LocalExecutor(1, _command(done))
    assert run_experiment(spec, store, retry_failed=True, executor=executor) == {DONE: 2}
    assert held.value is not None  # and its frames with it


LEFT = """
from filelock import FileLock
from syntaxformer.runs.run_folder import Stopwatch
with FileLock(p / 'lock'):
    if not (p / 'result.json').exists():
        with Stopwatch(p):
            (p / 'began').touch(); time.sleep(1)
        (p / 'result.json').write_text('{"metrics": {}}')
"""
RUNNER = """
import sys
from syntaxformer.study.experiments.runner import LocalExecutor, run_experiment
from syntaxformer.study.experiments.spec import load_spec
from syntaxformer.study.experiments.store import RunStore
command = lambda folder: [sys.executable, "-c", sys.argv[3], str(folder)]
run_experiment(load_spec(sys.argv[1]), RunStore(sys.argv[2]), executor=LocalExecutor(1, command))
"""


@pytest.mark.slow
def test_what_a_killed_runner_left_running_is_taken_up(content, load, store, tmp_path):
    """The runner dies, its process goes on; the next runner takes the result, and the time that it took."""
    content |= {"axes": {"system": {"base": {"infusion.kind": "none"}}}, "report": {}}
    spec, path = load(content), tmp_path / "spec.yaml"
    process = subprocess.Popen([sys.executable, "-c", RUNNER, str(path), str(store.folder), SCRIPT + LEFT])
    _wait_for(lambda: list(store.folder.glob("cells/*/began")))
    (run,) = store.runs().values()
    assert (run.state, run.attempts) == (RUNNING, 1)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    (run,) = store.runs().values()
    assert (run.state, run.error, run.attempts) == (KILLED, "its runner was killed", 1)
    _wait_for(lambda: list(store.folder.glob("cells/*/result.json")))
    assert run_experiment(spec, store, executor=LocalExecutor(1, _command("pass"))) == {DONE: 1}
    (run,) = store.runs().values()
    assert run.attempts == 2
    assert run.seconds >= 1


def _wait_for(what):
    end = time.monotonic() + 60
    while not what():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_a_store_that_cannot_be_written_is_an_error_of_data(spec, store, run):
    store.folder.write_text("a file")
    with pytest.raises(DataError, match=r"/store: expected a folder for a store of runs, got: .*File exists"):
        run(spec)


def test_an_interrupted_runner_ends_its_processes(spec, store, run):
    def interrupt(folder):
        raise KeyboardInterrupt

    spec = _small(spec, 1)
    with pytest.raises(KeyboardInterrupt):
        run(spec, interrupt)
    assert [run.state for run in store.runs().values()] == [KILLED, WAITING]
    assert run(spec)[0] == {DONE: 2}


def test_the_time_of_all_attempts(spec, store, run):
    """Of one that was watched twice, and what the run counted where nobody watched."""
    store.add(_small(spec, 1).cells())
    first, second = (run.cell for run in store.runs().values())
    store.stop(first.key, KILLED, 100.0, "killed")
    folder = store.cell_folder(second)
    folder.mkdir(parents=True)
    (folder / "seconds.json").write_text('{"seconds": 12.0}')
    assert run(spec)[0] == {DONE: 2}
    watched, counted = (run.seconds for run in store.runs().values())
    assert 100 < watched < 160
    assert counted == 12.0


def test_a_stopwatch_goes_on_and_survives_a_kill(tmp_path, caplog):
    assert counted_seconds(tmp_path) == 0
    (tmp_path / "seconds.json").write_text('{"seconds": 7.0}')
    with Stopwatch(tmp_path, every_s=0.05) as watch:
        time.sleep(0.3)
        assert 7 < counted_seconds(tmp_path) <= watch.seconds  # written while it runs
    assert 7.3 <= counted_seconds(tmp_path) < 60
    (tmp_path / "seconds.json").write_text("no JSON")
    assert counted_seconds(tmp_path) == 0
    (tmp_path / "file").touch()
    with Stopwatch(tmp_path / "file"):  # which is not worth an error
        pass
    assert "the time of this run was not stored" in caplog.text


def test_only_some_of_the_grid(spec, store, run):
    spec = _small(spec, 2)
    assert run(spec, only={"seed": {"2"}})[0] == {DONE: 2}
    assert {run.cell.labels["seed"] for run in store.runs().values() if run.state == DONE} == {"2"}
    assert run(spec, _refuse, only={"seed": {"1", "2"}})[0] == {DONE: 2, FAILED: 2}
    with pytest.raises(ConfigError) as error:
        run(spec, only={"seed": {"3"}, "sede": {"1"}})
    problems = [problem.partition(".")[0] for problem in error.value.problems]
    assert problems == ["only: seed has no level '3'", "only: unknown axis 'sede'"]


def test_the_command_takes_several_levels_of_an_axis(load, content, dry_run):
    load(content)
    lines = dry_run("--only", "seed=1", "--only", "seed=3", "--only", "system=base").output.splitlines()
    runs = [f"base, fraction {share} %, seed {seed}" for share in (10, 100) for seed in (1, 3)]
    assert [line.split("system ")[1] for line in lines[:-1]] == runs


def test_one_runner_a_store(spec, store, run):
    store.folder.mkdir()
    with FileLock(store.folder / "runner.lock"), pytest.raises(ConfigError, match="no other runner"):
        run(spec)


@pytest.mark.parametrize(
    ("devices", "n_jobs", "visible"), [("5,7", 2, ["5", "7"]), ("5", 1, ["5", "5"]), ("-1", 2, ["-1", "-1"])]
)
def test_devices_and_threads_are_shared_out(spec, store, monkeypatch, caplog, devices, n_jobs, visible):
    """Each process waits until as many as may are at work at once."""
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", devices)
    assert LocalExecutor(2).n_jobs == n_jobs
    script = (
        f"(p / 'here').touch()\nwhile len(list(p.parent.glob('*/here'))) < {n_jobs}: time.sleep(0.02)\n"
        "e = os.environ; r = {'device': e['CUDA_VISIBLE_DEVICES'], 'threads': e['OMP_NUM_THREADS']}\n"
        "(p / 'result.json').write_text(json.dumps({'metrics': {}, **r}))"
    )
    run_experiment(_small(spec, 1), store, executor=LocalExecutor(2, _command(script)))
    results = [run.result for run in store.runs().values()]
    assert sorted(result["device"] for result in results) == visible
    assert {result["threads"] for result in results} == {str(max(1, (os.cpu_count() or 1) // n_jobs))}
    assert ("jobs: 1, one for each GPU, and not 2" in caplog.text) == (n_jobs == 1)


def test_labels_may_change_states_stay(spec, store):
    store.add(spec.cells())
    key = spec.cells()[0].key
    store.finish(key, 7.0, SUCCESS)
    spec.axes["fraction"] = {"a tenth": {"data.fraction": 0.1}, "100 %": {"data.fraction": 1.0}}
    store.add(spec.cells())
    run = own_runs(spec, store.runs())[key]
    assert (run.state, run.cell.labels["fraction"], len(store.runs())) == (DONE, "a tenth", 12)
    assert "10--" in run.cell.name  # the folder keeps its name


def test_a_store_that_is_none_or_new(tmp_path, store):
    assert store.runs() == {}
    assert not Path(store.path).exists()
    (tmp_path / "store.sqlite").write_text("no database " * 100)
    with pytest.raises(
        DataError, match=r"store\.sqlite: expected a store of runs, got: file is not a database"
    ):
        RunStore(tmp_path).runs()


@pytest.fixture
def tuned_spec(content, load):
    systems = {"base": {"data.fraction": 0.5}, "sit": {"data.fraction": 1.0}}
    content |= {"axes": {"system": systems, "seed": [1, 2, 3]}, "report": {"baseline": {"system": "base"}}}
    content["settings"]["training.best_by"] = "both"
    content["tune"] = {"space": {"training.learning_rate": [0.001, 0.002, 0.004]}, "metric": "dev_bleu"}
    content["tune"]["settings"] = {"seed": 9}
    return load(content)


def _choose(folder):
    """base does best at 0.001, sit at 0.004."""
    settings = json.loads((folder / "cell.json").read_text())["settings"]
    best = 0.001 if settings["data.fraction"] < 1 else 0.004
    score = 9 - abs(settings["training.learning_rate"] - best)
    return {"command": "c", "metrics": {"bleu": 1.0, "dev_bleu": score}}


def test_each_system_gets_the_settings_that_were_best_on_dev(tuned_spec, store, run, report):
    """Six runs with the spare seed come first; then the three seeds of both systems, each at its own rate."""
    assert run(tuned_spec, _choose)[0] == {DONE: 12}
    runs = [run.cell.settings for run in store.runs().values()]
    assert [settings["seed"] for settings in runs] == [9] * 6 + [1, 2, 3] * 2
    assert [settings["training.learning_rate"] for settings in runs[6:]] == [0.001] * 3 + [0.004] * 3
    assert run(tuned_spec, _choose) == ({DONE: 12}, [])
    text = report(tuned_spec, store)
    assert "| base | 0.001: 9 (chosen); 0.002: 8.999; 0.004: 8.997 |" in text
    assert "| sit | 0.001: 8.997; 0.002: 8.998; 0.004: 9 (chosen) |" in text
    assert "12 runs: 12 done" in text


def test_the_grid_waits_until_settings_are_chosen(tuned_spec, store, run):
    """One system alone is tuned and run; of the other nothing is stored, since its rate is not known."""
    assert run(tuned_spec, _choose, only={"system": {"sit"}, "seed": {"2"}})[0] == {DONE: 4}
    done = [run.cell for run in store.runs().values() if run.state == DONE]
    runs = [(cell.labels["system"], cell.settings["seed"]) for cell in done]
    assert runs == [("sit", 9)] * 3 + [("sit", 2)]
    counts, _ = run(tuned_spec, _refuse)
    assert counts[FAILED] == 5  # three rates of base, two seeds of sit, and no seed of base
    systems = [run.cell.labels["system"] for run in own_runs(tuned_spec, store.runs()).values()]
    assert "base" not in systems


def test_what_is_tuned_may_have_a_value_in_settings(content, load):
    """The chosen one replaces it."""
    content |= {"axes": {"system": {"base": {}, "sit": {"infusion.kind": "add"}}}, "report": {}}
    content["settings"] |= {"training.learning_rate": 0.1}
    content["tune"] = {"space": {"training.learning_rate": [0.001, 0.002]}}
    assert load(content).tuning().settings["seed"] == 99
