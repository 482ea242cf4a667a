"""Searches: every value once, the best found, nothing remembered but the store."""

from __future__ import annotations

import json
import math
import statistics
import sys

import pytest

from syntaxformer.base.errors import BackendMissingError, ConfigError
from syntaxformer.study.experiments.report import write_report
from syntaxformer.study.experiments.runner import run_experiment
from syntaxformer.study.experiments.spec import load_spec
from syntaxformer.study.experiments.store import RunStore, best_trial, next_trial, planned_cells

# A run whose loss is smallest at width 20.
SCRIPT = (
    "import json, pathlib, sys; p = pathlib.Path(sys.argv[1]); c = json.loads((p / 'cell.json').read_text())['settings']; "
    "loss = abs(c['infusion.width'] - 20) / 10 + c.get('training.learning_rate', 0.0); "
    "(p / 'result.json').write_text(json.dumps({'metrics': {'dev_loss': loss}, 'command': 'x'}))"
)


@pytest.fixture(autouse=True)
def _no_devices(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")


def _command(folder):
    return [sys.executable, "-S", "-c", SCRIPT, str(folder)]


@pytest.fixture
def search(content, write_spec):
    def make(**settings):
        content["axes"], content["report"] = {"system": {"sit": {"infusion.kind": "sum_then_concat"}}}, {}
        content["search"] = {"space": {"infusion.width": {"values": [8, 16, 20, 32, 64]}}, **settings}
        return load_spec(write_spec(content))

    return make


def test_a_grid_takes_each_value_once(search, store, tmp_path):
    spec = search(sampler="grid", trials=9)
    assert spec.cells() == []
    assert run_experiment(spec, store, command=_command) == {"done": 5}
    runs = list(store.runs().values())
    assert [one.cell.settings["infusion.width"] for one in runs] == [8, 16, 20, 32, 64]
    assert best_trial(spec.search, runs).cell.settings["infusion.width"] == 20
    text = write_report(spec, store, tmp_path / "report").read_text()
    assert "| 002 (best) | 20 | 0 | done |" in text
    assert (tmp_path / "report" / "trials_system-sit_infusion.width.png").exists()


@pytest.mark.parametrize(("sampler", "n_started"), [("grid", 3), ("random", 1)])
def test_only_a_grid_has_trials_side_by_side(search, store, sampler, n_started):
    """Its values do not depend on what others found; a sampler's do."""
    if sampler == "random":
        pytest.importorskip("optuna", reason="Optuna searches; it is an extra")
    spec, found = search(sampler=sampler, trials=3), []
    with store.lock():
        while (cell := next_trial(spec, spec.search, store.runs())) is not None:
            store.add([cell])
            assert next_trial(spec, spec.search, store.runs()).key == cell.key  # while it waits
            store.start(cell.key)
            found.append(cell.settings["infusion.width"])
    assert len(found) == n_started
    assert sampler == "random" or found == [8, 16, 20]


def test_optuna_goes_on_from_the_store(search, store):
    pytest.importorskip("optuna", reason="Optuna searches; it is an extra")
    space = {
        "infusion.width": {"values": [8, 16, 20, 32, 64]},
        "training.learning_rate": {"low": 1e-5, "high": 1e-2, "log": True},
    }
    spec = search(space=space, trials=4)
    run_experiment(spec, store, command=_command)
    first = [one.cell.settings for one in store.runs().values()]
    spec = search(space=space, trials=7)
    assert run_experiment(spec, store, command=_command) == {"done": 7}
    again = [one.cell.settings for one in store.runs().values()]
    assert again[:4] == first
    assert len({json.dumps(one, sort_keys=True) for one in again}) == 7
    assert all(1e-5 <= one["training.learning_rate"] <= 1e-2 for one in again)


def test_proposals_follow_what_earlier_trials_found(search, store, tmp_path):
    pytest.importorskip("optuna", reason="Optuna searches; it is an extra")
    spec = search(space={"training.learning_rate": {"low": 1e-5, "high": 1e-2, "log": True}}, trials=9)
    found = {}
    for sign in (1, -1):
        own = RunStore(tmp_path / str(sign))
        for _ in range(9):
            cell = next_trial(spec, spec.search, own.runs())
            own.add([cell])
            loss = sign * math.log(cell.settings["training.learning_rate"])
            own.finish(cell.key, 1.0, {"metrics": {"dev_loss": loss}})
        found[sign] = [one.cell.settings["training.learning_rate"] for one in own.runs().values()]
    assert found[1][:3] == found[-1][:3]
    assert statistics.median(found[1][3:]) < statistics.median(found[-1][3:])


def test_whole_bounds_give_whole_numbers(search, store):
    """A width of 17.3 columns is refused by every recipe."""
    pytest.importorskip("optuna", reason="Optuna searches; it is an extra")
    spec = search(space={"infusion.width": {"low": 8, "high": 64}}, trials=4)
    run_experiment(spec, store, command=_command)
    found = [one.cell.settings["infusion.width"] for one in store.runs().values()]
    assert len(found) == 4
    assert all(isinstance(width, int) and 8 <= width <= 64 for width in found)


def test_a_grid_has_no_bounds(search):
    with pytest.raises(ConfigError, match=r"grid: expected values for infusion\.width, got low and high\.$"):
        search(space={"infusion.width": {"low": 8, "high": 64}}, sampler="grid")


def test_a_small_space_is_left_when_it_is_seen(search, store):
    pytest.importorskip("optuna", reason="Optuna searches; it is an extra")
    spec = search(sampler="random", trials=30)
    assert run_experiment(spec, store, command=_command) == {"done": 5}


def test_an_edited_search_does_not_take_old_trials_for_its_own(search, content, store, tmp_path):
    assert run_experiment(search(sampler="grid", trials=2), store, command=_command) == {"done": 2}
    content["settings"]["training.max_steps"] = 7
    spec = search(sampler="grid", trials=2)
    assert [one.settings.get("training.max_steps") for one in planned_cells(spec, store.runs(), {})] == [7, 7]
    text = write_report(spec, store, tmp_path / "edited").read_text()
    assert "Experiment `small` has 0 runs." in text
    assert "| 000 " not in text
    assert run_experiment(spec, store, command=_command) == {"done": 2}
    assert len(store.runs()) == 4


def test_a_space_may_get_and_lose_keys_and_values(search, store, tmp_path):
    pytest.importorskip("optuna", reason="Optuna searches; it is an extra")
    width = {"values": [8, 16, 20]}
    run_experiment(search(sampler="grid", trials=3), store, command=_command)
    wider = search(space={"infusion.width": width, "seed": {"low": 1, "high": 9}}, trials=2)
    assert run_experiment(wider, store, command=_command) == {"done": 2}
    assert len(store.runs()) == 5
    narrower = search(space={"infusion.width": {"values": [16, 20]}}, sampler="tpe", trials=9)
    assert run_experiment(narrower, store, command=_command) == {"done": 2}
    text = write_report(narrower, store, tmp_path / "report").read_text()
    assert "| 002 (best) | 20 | 0 | done |" in text
    assert "| 000 |" not in text
    bounds = search(space={"infusion.width": {"low": 10, "high": 18}}, trials=1)
    assert run_experiment(bounds, store, command=_command) == {"done": 1}
    assert len(store.runs()) == 5


def _grid(content, write_spec, path):
    """The widths 8 and 16 of the search as a grid; the search's own file stays."""
    searched = path.read_text()
    axes = {
        "system": {"sit": {"infusion.kind": "sum_then_concat"}},
        "width": {"8": {"infusion.width": 8}, "16": {"infusion.width": 16}},
    }
    grid = load_spec(
        write_spec({key: value for key, value in content.items() if key != "search"} | {"axes": axes})
    )
    path.write_text(searched)
    return grid


def test_a_grid_takes_the_runs_of_a_search_and_leaves_them_to_it(
    search, content, write_spec, store, tmp_path
):
    spec = search(sampler="grid", trials=2)
    run_experiment(spec, store, command=_command)
    before = write_report(spec, store, tmp_path / "before").read_text()
    grid = _grid(content, write_spec, tmp_path / "spec.yaml")
    assert run_experiment(grid, store, command=_command) == {"done": 2}
    assert [one.attempts for one in store.runs().values()] == [1, 1]
    assert write_report(spec, store, tmp_path / "after").read_text() == before


def test_a_search_takes_the_runs_of_a_grid(search, content, write_spec, store, tmp_path):
    """None is started again, and new trials have numbers that none of these has."""
    spec = search(sampler="grid", trials=3)
    grid = _grid(content, write_spec, tmp_path / "spec.yaml")
    run_experiment(grid, store, command=_command)
    assert run_experiment(spec, store, command=_command) == {"done": 3}
    assert [one.attempts for one in store.runs().values()] == [1, 1, 1]
    text = write_report(spec, store, tmp_path / "report").read_text()
    assert [row.split(" | ")[:2] for row in text.splitlines() if row.startswith("| 00")] == [
        ["| 000", "8"],
        ["| 001", "16"],
        ["| 002 (best)", "20"],
    ]
    store.release(["done"], [next(iter(store.runs()))])
    assert next_trial(spec, spec.search, store.runs()).name.startswith("sit_8_")  # its folder has its state


def test_a_level_of_a_search_may_be_renamed(search, content, store):
    run_experiment(search(sampler="grid", trials=5), store, command=_command)
    path = store.folder.parent / "spec.yaml"
    path.write_text(path.read_text().replace("    sit:", "    sum then concat:"))
    spec = load_spec(path)
    cells = planned_cells(spec, store.runs(), {"system": {"sum then concat"}})
    assert [one.settings["infusion.width"] for one in cells] == [8, 16, 20, 32, 64]
    assert next_trial(spec, spec.search, store.runs()) is None


def test_studies_that_are_the_same(search, content, write_spec):
    search()
    content["axes"]["system"]["again"] = {"infusion.kind": "sum_then_concat"}
    with pytest.raises(ConfigError, match="expected runs that differ in their settings, got sit_"):
        load_spec(write_spec(content))


def test_some_studies_wait(search, content, store):
    spec = search(sampler="grid", trials=5)
    assert next_trial(spec, spec.search, {}, only={"system": {"none"}}) is None
    with pytest.raises(ConfigError, match=r"^only: system has no level 'none'\. Known: sit\.$"):
        run_experiment(spec, store, only={"system": {"none"}}, command=_command)


def test_the_plan_counts_trials_that_are_still_to_be_proposed(search, store):
    from typer.testing import CliRunner

    from syntaxformer.cli.main import app

    spec = search(sampler="grid", trials=9)
    assert len(planned_cells(spec, {}, {})) == 5
    cell = next_trial(spec, spec.search, {})
    store.add([cell])
    store.start(cell.key)
    store.finish(cell.key, 60.0, {"metrics": {"dev_loss": 1.0}, "command": "x"})
    assert [one.labels["trial"] for one in planned_cells(spec, store.runs(), {})] == [
        f"00{n}" for n in range(5)
    ]
    path = store.folder.parent / "spec.yaml"
    shown = CliRunner().invoke(
        app, ["experiment", "run", str(path), "--dry-run", "--store", str(store.folder)]
    )
    assert shown.output.splitlines()[0].split()[:3] == ["done", "60", "s"]
    assert shown.output.splitlines()[-1] == "5 runs; to do: about 0.1 hours with 1 at a time"


def test_without_optuna(search, monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    spec = search()
    with pytest.raises(BackendMissingError) as error:
        next_trial(spec, spec.search, {})
    assert str(error.value) == (
        'optuna, which searches settings, is not installed. Run: pip install "syntaxformer[search]"'
    )


@pytest.mark.parametrize(
    ("given", "best"),
    [
        ({}, "low"),
        ({"metric": "bleu"}, "high"),
        ({"metric": "bleu", "direction": "minimize"}, "low"),
        ({"metric": "ter"}, "low"),
    ],
)
def test_a_score_is_maximized_unless_told_otherwise(search, content, store, given, best):
    content["test"] = {"src": "src", "ref": "ref"}
    spec = search(sampler="grid", trials=2, **given)
    values = {8: ("low", 1.0), 16: ("high", 2.0)}
    for width, (_, value) in values.items():
        cell = spec.cell({"system": "sit", "trial": f"{width:03d}"}, {"infusion.width": width})
        store.add([cell])
        store.finish(cell.key, 1.0, {"metrics": dict.fromkeys(("dev_loss", "bleu", "ter"), value)})
    found = best_trial(spec.search, list(store.runs().values()))
    assert values[found.cell.settings["infusion.width"]][0] == best


def test_the_largest_seed_is_one_for_each_trial(search, store):
    pytest.importorskip("optuna", reason="Optuna searches; it is an extra")
    with pytest.raises(ConfigError, match=r"search\.seed: expected less than or equal to 4294967295"):
        search(seed=2**32)
    spec = search(seed=2**32 - 1, trials=2, sampler="random")
    assert run_experiment(spec, store, command=_command) == {"done": 2}


@pytest.mark.parametrize("worst", [math.nan, math.inf])
def test_a_trial_that_diverged_is_failed_and_never_the_best(search, store, tmp_path, worst):
    pytest.importorskip("optuna", reason="Optuna searches; it is an extra")
    space = {"infusion.width": {"values": [8, 16, 20]}, "seed": {"low": 1, "high": 9}}
    spec = search(space=space, trials=4)
    for trial, (width, loss) in enumerate([(8, worst), (16, 2.0), (20, 3.0)]):
        cell = spec.cell({"system": "sit", "trial": f"{trial:03d}"}, {"infusion.width": width, "seed": 1})
        store.add([cell])
        store.finish(cell.key, 1.0, {"metrics": {"dev_loss": loss}, "command": "x"})
    assert best_trial(spec.search, list(store.runs().values())).cell.settings["infusion.width"] == 16
    assert next_trial(spec, spec.search, store.runs()) is not None
    assert "| 001 (best) | 16 | 1 | 2 | done |" in write_report(spec, store, tmp_path / "report").read_text()
