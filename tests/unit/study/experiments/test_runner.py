"""Runs in processes of their own, here small scripts: done, failed, killed, interrupted, resumed."""

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
from typer.testing import CliRunner

from syntaxformer.base.errors import ConfigError, DataError
from syntaxformer.cli.main import app
from syntaxformer.runs.run_folder import Stopwatch, counted_seconds
from syntaxformer.study.experiments.cell import recipe_settings, resolve
from syntaxformer.study.experiments.report import write_report
from syntaxformer.study.experiments.runner import MOST_KILLS, LocalExecutor, estimate_seconds, run_experiment
from syntaxformer.study.experiments.spec import Contrast, load_spec
from syntaxformer.study.experiments.store import DONE, FAILED, KILLED, RUNNING, WAITING, RunStore, own_runs
from syntaxformer.translation.recipe import load_recipe

RESULT = "import json, pathlib, sys; p = pathlib.Path(sys.argv[1]); f = p / 'runs'; n = len(f.read_text()) if f.exists() else 0; f.write_text('x' * (n + 1)); "
DONE_AT_ONCE = RESULT + "(p / 'result.json').write_text(json.dumps({'metrics': {'bleu': 1.5}}))"
KILLED_ONCE = (
    RESULT + "import os; n or os.kill(os.getpid(), 9); (p / 'result.json').write_text('{\"metrics\": {}}')"
)
ALWAYS_KILLED = RESULT + "import os; os.kill(os.getpid(), 9)"
REFUSED = (
    RESULT
    + "print('error: data: expected a file, found none.', file=sys.stderr); print('later', file=sys.stderr); sys.exit(2)"
)


@pytest.fixture(autouse=True)
def _no_devices(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")


def _command(script):
    return lambda folder: [sys.executable, "-S", "-c", script, str(folder)]


def _n_runs(store: RunStore) -> list[int]:
    return [len(file.read_text()) for file in sorted(store.folder.glob("cells/*/runs"))]


def _small(spec, n):
    spec.axes["seed"] = list(range(1, n + 1))
    spec.axes["fraction"] = {"10 %": {"data.fraction": 0.1}}
    return spec


def test_only_what_is_missing_runs(spec, store):
    spec = _small(spec, 1)
    assert run_experiment(spec, store, 2, command=_command(DONE_AT_ONCE)) == {DONE: 2}
    assert _n_runs(store) == [1, 1]
    _small(spec, 2)
    base, sit = {"system": "base"}, {"system": "sit"}
    spec.report.primary = Contrast(cell=sit, against=base, seeds=2, sd=1)
    assert run_experiment(spec, store, 1, command=_command(DONE_AT_ONCE)) == {DONE: 4}
    assert _n_runs(store) == [1, 1, 1, 1]
    runs = list(store.runs().values())
    assert runs[0].result == {"metrics": {"bleu": 1.5}, "primary": {spec.name: None}}
    planned = {"cell": sit, "against": base, "seeds": 2, "sd": 1}
    assert runs[-1].result["primary"] == {spec.name: planned}
    assert [one.attempts for one in runs] == [1, 1, 1, 1]
    assert all(one.seconds > 0 for one in runs)


def test_a_recipe_that_was_edited_is_refused(spec, store, tmp_path):
    """What is done and what is missing would come from two recipes."""
    recipe = load_recipe("tiny", []).model_dump(mode="json")
    recipe["model"]["dropout"] = 0.1
    spec = _small(spec, 1)
    spec.recipe = str(tmp_path / "mine.yaml")
    Path(spec.recipe).write_text(yaml.safe_dump(recipe))
    assert run_experiment(spec, store, only={"system": {"base"}}, command=_command(DONE_AT_ONCE))[DONE] == 1
    (cell,) = (one.cell for one in store.runs().values() if one.state == DONE)
    stored = recipe_settings(load_recipe(spec.recipe, cell.overrides()))
    store.finish(cell.key, 1.0, {"metrics": {"bleu": 1.5}, "recipe": stored})

    recipe["training"]["log_every"] = 7  # decides nothing
    Path(spec.recipe).write_text(f"# a comment\n{yaml.safe_dump(recipe)}")
    assert run_experiment(spec, store, only={"system": {"base"}}, command=_command(REFUSED))[DONE] == 1

    recipe["model"]["dropout"] = 0.2
    Path(spec.recipe).write_text(yaml.safe_dump(recipe))
    with pytest.raises(
        ConfigError, match=r"expected model\.dropout=0\.1, as in the finished run .*, got 0\.2\."
    ):
        run_experiment(spec, store, command=_command(DONE_AT_ONCE))
    assert [one.state for one in store.runs().values()].count(DONE) == 1


def test_a_recipe_edited_while_the_runner_works_ends_it(spec, store, tmp_path):
    """The first run ends with the recipe it began with; the second is not started with another."""
    recipe = load_recipe("tiny", []).model_dump(mode="json")
    recipe["model"]["dropout"] = 0.1
    spec = _small(spec, 1)
    spec.recipe = str(file := tmp_path / "mine.yaml")
    file.write_text(yaml.safe_dump(recipe))
    stored = {one.settings["infusion.kind"]: recipe_settings(resolve(one)) for one in spec.cells()}
    recipe["model"]["dropout"] = 0.2

    def command(folder):
        file.write_text(yaml.safe_dump(recipe))
        kind = json.loads((folder / "cell.json").read_text())["settings"]["infusion.kind"]
        result = {"metrics": {"bleu": 1.5}, "recipe": stored[kind]}
        return _command(RESULT + f"(p / 'result.json').write_text({json.dumps(result)!r})")(folder)

    with pytest.raises(
        ConfigError, match=r"expected model\.dropout=0\.1, as in the finished run .*, got 0\.2\."
    ):
        run_experiment(spec, store, command=command)
    assert [one.state for one in store.runs().values()] == [DONE, WAITING]
    assert _n_runs(store) == [1]


def test_a_failed_run_keeps_its_error_until_it_is_asked_for_again(spec, store):
    spec = _small(spec, 1)
    assert run_experiment(spec, store, 2, command=_command(REFUSED)) == {FAILED: 2}
    assert {one.error for one in store.runs().values()} == {"data: expected a file, found none."}
    assert run_experiment(spec, store, command=_command(DONE_AT_ONCE)) == {FAILED: 2}
    assert run_experiment(spec, store, retry_failed=True, command=_command(DONE_AT_ONCE)) == {DONE: 2}
    assert [one.attempts for one in store.runs().values()] == [2, 2]
    assert {one.error for one in store.runs().values()} == {None}


def test_a_killed_run_is_run_again(spec, store):
    spec = _small(spec, 1)
    assert run_experiment(spec, store, command=_command(KILLED_ONCE)) == {DONE: 2}
    assert _n_runs(store) == [2, 2]


def test_a_run_that_is_always_killed_is_left_for_the_next_runner(spec, store):
    spec = _small(spec, 1)
    assert run_experiment(spec, store, 2, command=_command(ALWAYS_KILLED)) == {KILLED: 2}
    assert {one.error for one in store.runs().values()} == {"killed by SIGKILL"}
    assert [one.attempts for one in store.runs().values()] == [MOST_KILLS, MOST_KILLS]
    assert run_experiment(spec, store, command=_command(DONE_AT_ONCE)) == {DONE: 2}


def test_each_run_is_killed_so_often_and_not_more(spec, store):
    spec = _small(spec, 2)
    assert run_experiment(spec, store, command=_command(ALWAYS_KILLED)) == {KILLED: 4}
    assert _n_runs(store) == [MOST_KILLS] * 4
    assert [one.attempts for one in store.runs().values()] == [MOST_KILLS] * 4


RUNNER = """
import sys
from syntaxformer.study.experiments.runner import run_experiment
from syntaxformer.study.experiments.spec import load_spec
from syntaxformer.study.experiments.store import RunStore
command = lambda folder: [sys.executable, "-c", sys.argv[3], str(folder)]
run_experiment(load_spec(sys.argv[1]), RunStore(sys.argv[2]), command=command)
"""
SLOW = (
    RESULT
    + "from filelock import FileLock; import time; from syntaxformer.runs.run_folder import Stopwatch\n"
    "with FileLock(p / 'lock'):\n"
    "    if not (p / 'result.json').exists():\n"
    "        with Stopwatch(p):\n"
    "            (p / 'began').touch(); time.sleep(2)\n"
    "        (p / 'result.json').write_text('{\"metrics\": {}}')\n"
)


def test_what_a_killed_runner_left_running_is_taken_up(content, write_spec, store):
    """The runner dies, its process goes on; the next runner takes the result, and the time that it took."""
    content["axes"] = {"system": {"base": {"infusion.kind": "none"}}}
    content["report"] = {}
    path = write_spec(content)
    runner = subprocess.Popen([sys.executable, "-c", RUNNER, str(path), str(store.folder), SLOW])
    _wait_for(lambda: list(store.folder.glob("cells/*/began")))
    (run,) = store.runs().values()
    assert (run.state, run.attempts) == (RUNNING, 1)
    os.kill(runner.pid, signal.SIGKILL)
    runner.wait()
    (run,) = store.runs().values()
    assert (run.state, run.error, run.attempts) == (KILLED, "its runner was killed", 1)
    _wait_for(lambda: list(store.folder.glob("cells/*/result.json")))
    assert run_experiment(load_spec(path), store, command=_command(DONE_AT_ONCE.replace("1.5", "2.5"))) == {
        DONE: 1
    }
    (run,) = store.runs().values()
    assert run.attempts == 2
    assert run.seconds >= 2


def _wait_for(what):
    end = time.monotonic() + 60
    while not what():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_the_time_of_all_attempts(spec, store):
    """Two that were watched, and what the run counted where nobody watched."""
    spec = _small(spec, 1)
    store.add(spec.cells())
    first, second = (one.cell for one in store.runs().values())
    store.stop(first.key, KILLED, 100.0, "killed")
    folder = store.cell_folder(second)
    folder.mkdir(parents=True)
    (folder / "seconds.json").write_text('{"seconds": 12.0}')
    assert run_experiment(spec, store, command=_command(DONE_AT_ONCE)) == {DONE: 2}
    watched, counted = (one.seconds for one in store.runs().values())
    assert 100 < watched < 160
    assert counted == 12.0


def test_a_stopwatch_goes_on_and_survives_a_kill(tmp_path):
    assert counted_seconds(tmp_path) == 0
    (tmp_path / "seconds.json").write_text('{"seconds": 7.0}')
    with Stopwatch(tmp_path, every_s=0.05) as watch:
        time.sleep(0.3)
        assert 7 < counted_seconds(tmp_path) <= watch.seconds  # written while it runs
    assert 7.3 <= counted_seconds(tmp_path) < 60
    (tmp_path / "seconds.json").write_text("no JSON")
    assert counted_seconds(tmp_path) == 0


def test_the_time_is_not_worth_an_error(tmp_path, caplog):
    (tmp_path / "file").touch()
    with Stopwatch(tmp_path / "file"):
        pass
    assert "the time of this run was not stored" in caplog.text


def test_the_error_is_that_of_the_last_attempt(spec, store):
    spec = _small(spec, 1)
    run_experiment(spec, store, command=_command(REFUSED))
    silent = RESULT + "print('Traceback', file=sys.stderr); sys.exit(3)"
    run_experiment(spec, store, retry_failed=True, command=_command(silent))
    assert {one.error for one in store.runs().values()} == {"Traceback"}
    run_experiment(spec, store, retry_failed=True, command=_command(RESULT + "sys.exit(3)"))
    assert {one.error for one in store.runs().values()} == {"exit code 3"}


def test_only_what_is_named_is_retried(spec, store):
    spec = _small(spec, 2)
    run_experiment(spec, store, command=_command(REFUSED))
    found = run_experiment(
        spec, store, retry_failed=True, only={"seed": {"2"}}, command=_command(DONE_AT_ONCE)
    )
    assert found == {DONE: 2}
    errors = {one.cell.labels["seed"]: one.error for one in store.runs().values()}
    assert errors == {"1": "data: expected a file, found none.", "2": None}


def test_the_command_takes_several_levels_of_an_axis(write_spec, content, tmp_path):
    command = ["experiment", "run", str(write_spec(content)), "--dry-run", "--store", str(tmp_path / "none")]
    wanted = ["--only", "seed=1", "--only", "seed=3", "--only", "system=base"]
    lines = CliRunner().invoke(app, [*command, *wanted]).output.splitlines()
    assert len(lines) == 5
    assert [line.split("system ")[1] for line in lines[:-1]] == [
        f"base, fraction {share} %, seed {seed}" for share in (10, 100) for seed in (1, 3)
    ]


def test_a_runner_after_another_in_one_process(spec, store):
    """Each leaves the store to the next, also while its error, and so its frames, are still held."""
    spec = _small(spec, 1)
    with pytest.raises(OSError, match="no such program") as held:
        run_experiment(spec, store, command=_missing_program)
    assert run_experiment(spec, store, command=_command(DONE_AT_ONCE)) == {DONE: 2}
    assert run_experiment(spec, store, command=_command(DONE_AT_ONCE)) == {DONE: 2}
    assert held.value is not None


def _missing_program(folder):
    raise OSError("no such program")


def test_only_some_of_the_grid(spec, store):
    spec = _small(spec, 2)
    found = run_experiment(spec, store, command=_command(DONE_AT_ONCE), only={"seed": {"2"}})
    assert found == {DONE: 2}
    assert Counter(one.state for one in store.runs().values()) == {DONE: 2, WAITING: 2}
    assert {one.cell.labels["seed"] for one in store.runs().values() if one.state == DONE} == {"2"}
    assert run_experiment(spec, store, command=_command(REFUSED), only={"seed": {"1", "2"}})[DONE] == 2
    with pytest.raises(ConfigError) as error:
        run_experiment(spec, store, only={"seed": {"3"}, "sede": {"1"}})
    assert error.value.problems == [
        "only: seed has no level '3'. Known: 1, 2.",
        "only: unknown axis 'sede'. Nearest: seed.",
    ]


def test_one_runner_a_store(spec, store):
    store.folder.mkdir()
    with (
        FileLock(store.folder / "runner.lock"),
        pytest.raises(ConfigError, match="expected no other runner on this store, got one"),
    ):
        run_experiment(spec, store, command=_command(DONE_AT_ONCE))


def test_threads_are_shared_out(spec, store, monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,7")
    # Each waits for the other: the two are at work at once.
    said = RESULT + (
        "import os, time; (p / 'here').touch()\n"
        "while len(list(p.parent.glob('*/here'))) < 2: time.sleep(0.05)\n"
        "e = os.environ; (p / 'result.json').write_text(json.dumps("
        "{'metrics': {}, 'device': e['CUDA_VISIBLE_DEVICES'], 'threads': e['OMP_NUM_THREADS']}))"
    )
    run_experiment(_small(spec, 1), store, 2, command=_command(said))
    results = [one.result for one in store.runs().values()]
    assert sorted(one["device"] for one in results) == ["5", "7"]
    assert {one["threads"] for one in results} == {str(max(1, (os.cpu_count() or 1) // 2))}


def test_no_more_jobs_than_devices(spec, store, monkeypatch, caplog):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")  # none, as CUDA has it
    assert LocalExecutor(3).n_jobs == 3
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5")
    said = RESULT + (
        "import os, time; (p / 'here').touch(); time.sleep(0.3)\n"
        "n = len(list(p.parent.glob('*/here'))); (p / 'here').unlink()\n"
        "(p / 'result.json').write_text(json.dumps({'metrics': {}, 'at_work': n}))"
    )
    run_experiment(_small(spec, 1), store, 2, command=_command(said))
    assert [one.result["at_work"] for one in store.runs().values()] == [1, 1]
    assert "jobs: 1, one for each GPU, and not 2" in caplog.text


def test_labels_may_change_states_stay(spec, store):
    store.add(spec.cells())
    key = spec.cells()[0].key
    store.finish(key, 7.0, {"metrics": {"bleu": 3.0}})
    spec.axes["fraction"] = {"a tenth": {"data.fraction": 0.1}, "100 %": {"data.fraction": 1.0}}
    store.add(spec.cells())
    run = own_runs(spec, store.runs())[key]
    assert (run.state, run.cell.labels["fraction"], len(store.runs())) == (DONE, "a tenth", 12)
    assert "10--" in run.cell.name  # the folder keeps its name


def test_cost_from_like_runs(spec, store):
    cells = spec.cells()
    assert estimate_seconds(spec, cells[0], {}) is None
    spec.seconds = 11.0
    assert estimate_seconds(spec, cells[0], {}) == 11.0
    store.add(cells)
    store.finish(cells[0].key, 40.0, {"metrics": {}})
    store.finish(cells[1].key, 60.0, {"metrics": {}})
    assert estimate_seconds(spec, cells[2], store.runs()) == 50.0  # the same but for the seed
    assert estimate_seconds(spec, cells[-1], store.runs()) == 50.0  # like work
    cells[-1].settings["training.max_steps"] = 3 * resolve(cells[-1]).training.max_steps
    assert estimate_seconds(spec, cells[-1], store.runs()) == 150.0


def test_a_store_that_is_none(tmp_path):
    (tmp_path / "store.sqlite").write_text("no database " * 100)
    with pytest.raises(
        DataError, match=r"store\.sqlite: expected a store of runs, got: file is not a database\.$"
    ):
        RunStore(tmp_path).runs()


def test_a_new_store_has_no_runs(store):
    assert store.runs() == {}
    assert not Path(store.path).exists()


def test_states_wait_again(spec, store):
    store.add(spec.cells()[:2])
    first, second = store.runs()
    store.stop(first, FAILED, 1.0, "x")
    store.stop(second, KILLED, 1.0, "y")
    store.release([KILLED])
    assert [one.state for one in store.runs().values()] == [FAILED, WAITING]


SCORED = RESULT + (
    "s = json.loads((p / 'cell.json').read_text())['settings']; r = s['training.learning_rate']; "
    "(p / 'result.json').write_text(json.dumps({'command': 'c', 'metrics': {'bleu': 1.0, 'dev_bleu': 9 - abs(r - s['best'])}}))"
)


@pytest.fixture
def tuned_spec(content, write_spec):
    content["axes"] = {
        "system": {"base": {"data.fraction": 0.5}, "sit": {"data.fraction": 1.0}},
        "seed": [1, 2, 3],
    }
    content["report"] = {"baseline": {"system": "base"}}
    content["settings"]["training.best_by"] = "both"
    content["tune"] = {
        "space": {"training.learning_rate": [0.001, 0.002, 0.004]},
        "metric": "dev_bleu",
        "settings": {"seed": 9},
    }
    return load_spec(write_spec(content))


def test_what_is_tuned_may_have_a_value_in_settings(content, write_spec):
    """The chosen one replaces it."""
    content["axes"] = {"system": {"base": {}, "sit": {"infusion.kind": "add"}}}
    content["settings"] |= {"training.learning_rate": 0.1}
    content["tune"] = {"space": {"training.learning_rate": [0.001, 0.002]}}
    assert load_spec(write_spec({**content, "report": {}})).tuning().settings["seed"] == 99


# base does best at 0.001, sit at 0.004
CHOOSING = SCORED.replace("s['best']", "(0.001 if s['data.fraction'] < 1 else 0.004)")


def test_each_system_gets_the_settings_that_were_best_on_dev(tuned_spec, store, tmp_path):
    """Six runs with the spare seed come first; then the three seeds of both systems, each at its own rate."""
    assert run_experiment(tuned_spec, store, command=_command(CHOOSING)) == Counter(done=12)
    runs = [run.cell.settings for run in store.runs().values()]
    assert [one["seed"] for one in runs] == [9] * 6 + [1, 2, 3] * 2
    assert [one["training.learning_rate"] for one in runs[6:]] == [0.001] * 3 + [0.004] * 3
    assert _n_runs(store) == [1] * 12
    assert run_experiment(tuned_spec, store, command=_command(CHOOSING)) == Counter(done=12)
    assert _n_runs(store) == [1] * 12
    text = write_report(tuned_spec, store, tmp_path / "report").read_text()
    assert "| base | 0.001: 9 (chosen); 0.002: 8.999; 0.004: 8.997 |" in text
    assert "| sit | 0.001: 8.997; 0.002: 8.998; 0.004: 9 (chosen) |" in text
    assert "12 runs: 12 done" in text


def test_the_grid_waits_until_settings_are_chosen(tuned_spec, store):
    """One system alone is tuned and run; of the other nothing is stored, since its rate is not known."""
    counts = run_experiment(
        tuned_spec, store, command=_command(CHOOSING), only={"system": {"sit"}, "seed": {"2"}}
    )
    assert counts == Counter(done=4)
    ran = [run.cell for run in store.runs().values() if run.state == DONE]
    assert [(one.labels["system"], one.settings["seed"]) for one in ran] == [("sit", 9)] * 3 + [("sit", 2)]
    killed = run_experiment(tuned_spec, store, command=_command(REFUSED))
    assert killed["failed"] == 5  # three rates of base, two seeds of sit, and no seed of base
    assert not [
        one for one in own_runs(tuned_spec, store.runs()).values() if one.cell.labels["system"] == "base"
    ]


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (
            {"search": {"space": {"training.max_steps": {"values": [1]}}}},
            "tune: expected none beside a search",
        ),
        (
            {"tune": {"space": {"training.max_steps": [1]}, "metric": "blue"}},
            "tune.metric: unknown metric 'blue'",
        ),
        (
            {
                "tune": {"space": {"training.max_steps": [1]}, "metric": "bleu"},
                "test": {"src": "a", "ref": "b"},
            },
            r"tune.metric: expected a metric on dev, as settings are chosen there, got bleu\.",
        ),
        (
            {"tune": {"space": {"data.fraction": [0.5]}}},
            r"tune.space: expected keys that no axis sets, got data\.fraction\.",
        ),
        (
            {"tune": {"space": {"training.max_steps": [1]}, "settings": {"seed": 2}}},
            r"tune.settings: expected a seed that no other run has, got 2\.",
        ),
        (
            {"tune": {"space": {"training.max_steps": [1]}, "settings": {"seed": 9, "data.fraction": 1}}},
            r"tune.settings: expected keys that no axis but seed sets, got data\.fraction\.",
        ),
        (
            {
                "axes": {"system": {"base": {}, "sit": {"infusion.kind": "add"}}},
                "settings": {"seed": 99},
                "tune": {"space": {"training.max_steps": [1]}},
                "report": {},
            },
            r"tune.settings: expected a seed that no other run has, got 99\.",
        ),
        (
            {"axes": {"data.fraction": [0.5], "seed": [1, 1, 2]}, "report": {}},
            r"axes.seed: expected different values, got 1, 1, 2\.",
        ),
        (
            {
                "report": {
                    "primary": {"cell": {"system": "sit"}, "against": {"system": "base"}, "seeds": 5, "sd": 1}
                }
            },
            r"report.primary.seeds: expected the 3 of the axis seed, got 5\.",
        ),
        (
            {
                "report": {
                    "primary": {"cell": {"system": "no"}, "against": {"system": "base"}, "seeds": 3, "sd": 1}
                }
            },
            "report.primary.cell: system has no level 'no'",
        ),
        (
            {
                "report": {
                    "primary": {"cell": {"system": "sit"}, "against": {"system": "sit"}, "seeds": 3, "sd": 1}
                }
            },
            "report.primary.against: expected another cell, got system sit twice",
        ),
        (
            {
                "axes": {
                    "system": {"base": {}, "sit": {"infusion.kind": "add"}},
                    "size": {"5 %": {}},
                    "seed": [1, 2],
                },
                "report": {
                    "primary": {"cell": {"system": "sit"}, "against": {"system": "base"}, "seeds": 2, "sd": 1}
                },
            },
            r"report.primary.cell: expected a level of each axis, got none of size\.",
        ),
        (
            {"tune": {"space": {"training.learning_rate": [1e-3, 0.001]}}},
            r"tune.space.training.learning_rate: .*expected different values, got \[0\.001, 0\.001\]\.",
        ),
    ],
)
def test_what_cannot_be_chosen_or_planned(content, write_spec, tuned_spec, change, problem):
    with pytest.raises(ConfigError, match=problem):
        load_spec(write_spec({**content, **change}))
