"""Searches: every value once, the best found, nothing remembered but the store."""

from __future__ import annotations

import json
import math
import statistics
import sys

import pytest

from syntaxformer.base.errors import BackendMissingError, ConfigError
from syntaxformer.study.experiments.runner import run_experiment
from syntaxformer.study.experiments.store import RunStore, best_trial, next_trial, planned_cells

WIDTH = "infusion.width"
RATE = "training.learning_rate"


@pytest.fixture
def optuna():
    return pytest.importorskip("optuna", reason="Optuna searches; it is an extra")


@pytest.fixture
def search(content, load):
    def make(**settings):
        content["axes"], content["report"] = {"system": {"sit": {"infusion.kind": "sum_then_concat"}}}, {}
        content["search"] = {"space": {WIDTH: {"values": [8, 16, 20, 32, 64]}}, **settings}
        return load(content)

    return make


@pytest.fixture
def run(store, in_process):
    """Do the trials of an experiment here: the loss is smallest at width 20."""

    def work(folder):
        settings = json.loads((folder / "cell.json").read_text())["settings"]
        loss = abs(settings[WIDTH] - 20) / 10 + settings.get(RATE, 0)
        return {"metrics": {"dev_loss": loss}, "command": "x"}

    return lambda spec: run_experiment(spec, store, executor=in_process(work))


def _values(store, key=WIDTH):
    return [run.cell.settings[key] for run in store.runs().values()]


def test_a_grid_takes_each_value_once(search, store, run, report, curves):
    spec = search(sampler="grid", trials=9)
    assert spec.cells() == []
    assert run(spec) == {"done": 5}
    assert _values(store) == [8, 16, 20, 32, 64]
    assert best_trial(spec.search, list(store.runs().values())).cell.settings[WIDTH] == 20
    assert "| 002 (best) | 20 | 0 | done |" in report(spec, store)
    assert curves["trials_system-sit_infusion.width.png"]["trials"].x == [8, 16, 20, 32, 64]


@pytest.mark.parametrize(("sampler", "n_started"), [("grid", 3), ("random", 1)])
def test_only_a_grid_has_trials_side_by_side(optuna, search, store, sampler, n_started):
    """Its values do not depend on what others found; a sampler's do."""
    spec = search(sampler=sampler, trials=3)
    with store.lock():
        while (cell := next_trial(spec, store.runs())) is not None:
            store.add([cell])
            assert next_trial(spec, store.runs()).key == cell.key  # while it waits
            store.start(cell.key)
    assert len(_values(store)) == n_started
    assert sampler == "random" or _values(store) == [8, 16, 20]


def test_optuna_goes_on_from_the_store(optuna, search, store, run):
    space = {WIDTH: {"low": 8, "high": 64}, RATE: {"low": 1e-5, "high": 1e-2, "log": True}}
    run(search(space=space, trials=4))
    first = [trial.cell.settings for trial in store.runs().values()]
    assert run(search(space=space, trials=7)) == {"done": 7}
    again = [trial.cell.settings for trial in store.runs().values()]
    assert again[:4] == first
    assert len({json.dumps(settings, sort_keys=True) for settings in again}) == 7
    assert all(1e-5 <= rate <= 1e-2 for rate in _values(store, RATE))
    assert all(isinstance(width, int) and 8 <= width <= 64 for width in _values(store))  # as its bounds


def test_proposals_follow_what_earlier_trials_found(optuna, search, tmp_path):
    spec, rates = search(space={RATE: {"low": 1e-5, "high": 1e-2, "log": True}}, trials=9), {}
    for sign in (1, -1):
        store = RunStore(tmp_path / str(sign))
        for _ in range(9):
            store.add([cell := next_trial(spec, store.runs())])
            store.finish(cell.key, 1.0, {"metrics": {"dev_loss": sign * math.log(cell.settings[RATE])}})
        rates[sign] = _values(store, RATE)
    assert rates[1][:3] == rates[-1][:3]
    assert statistics.median(rates[1][3:]) < statistics.median(rates[-1][3:])


def test_a_small_space_is_left_when_it_is_seen(optuna, search, run):
    assert run(search(sampler="random", trials=30)) == {"done": 5}


def test_an_edited_search_does_not_take_old_trials_for_its_own(search, content, store, run, report):
    assert run(search(sampler="grid", trials=2)) == {"done": 2}
    content["settings"]["training.max_steps"] = 7
    spec = search(sampler="grid", trials=2)
    planned = planned_cells(spec, store.runs(), {})
    assert [cell.settings.get("training.max_steps") for cell in planned] == [7, 7]
    text = report(spec, store)
    assert "Experiment `small` has 0 runs." in text
    assert "| 000 " not in text
    assert run(spec) == {"done": 2}
    assert len(store.runs()) == 4


def test_a_space_may_get_and_lose_keys_and_values(optuna, search, store, run, report):
    """Trials are numbered in the order in which the present search counts them."""
    run(search(sampler="grid", trials=3))
    wider = search(space={WIDTH: {"values": [8, 16, 20]}, "seed": {"low": 1, "high": 9}}, trials=2)
    assert run(wider) == {"done": 2}
    assert len(store.runs()) == 5
    narrower = search(space={WIDTH: {"values": [16, 20]}}, sampler="tpe", trials=9)
    assert run(narrower) == {"done": 2}
    text = report(narrower, store)
    assert "| 000 | 16 |" in text
    assert "| 001 (best) | 20 | 0 | done |" in text
    assert run(search(space={WIDTH: {"low": 10, "high": 18}}, trials=1)) == {"done": 1}
    assert len(store.runs()) == 5


def test_a_grid_and_a_search_share_runs(search, content, load, store, run, report):
    """Neither starts one that the other has made."""
    spec = search(sampler="grid", trials=3)
    axes = content["axes"] | {"width": {"8": {WIDTH: 8}, "16": {WIDTH: 16}}}
    grid = load(content | {"search": None, "axes": axes})
    run(grid)
    assert run(spec) == {"done": 3}
    assert [trial.attempts for trial in store.runs().values()] == [1, 1, 1]
    text = report(spec, store)
    rows = [row.split(" | ")[:2] for row in text.splitlines() if row.startswith("| 00")]
    assert rows == [["| 000", "8"], ["| 001", "16"], ["| 002 (best)", "20"]]
    assert run(grid) == {"done": 2}
    assert report(spec, store) == text
    store.release(["done"], [next(iter(store.runs()))])
    assert next_trial(spec, store.runs()).name.startswith("sit_8_")  # its folder has its state


def test_a_level_of_a_search_may_be_renamed(search, content, load, store, run):
    run(search(sampler="grid", trials=5))
    content["axes"]["system"] = {"sum then concat": content["axes"]["system"]["sit"]}
    spec = load(content)
    cells = planned_cells(spec, store.runs(), {"system": {"sum then concat"}})
    assert [cell.settings[WIDTH] for cell in cells] == [8, 16, 20, 32, 64]
    assert next_trial(spec, store.runs()) is None
    assert next_trial(spec, {}, only={"system": {"none"}}) is None


def test_the_plan_counts_trials_that_are_still_to_be_proposed(search, store, dry_run):
    spec = search(sampler="grid", trials=9)
    store.add([cell := next_trial(spec, {})])
    store.start(cell.key)
    store.finish(cell.key, 60.0, {"metrics": {"dev_loss": 1.0}, "command": "x"})
    labels = [cell.labels["trial"] for cell in planned_cells(spec, store.runs(), {})]
    assert labels == [f"00{n}" for n in range(5)]
    lines = dry_run().output.splitlines()
    assert lines[0].split()[:3] == ["done", "60", "s"]
    assert lines[-1] == "5 runs; to do: about 0.1 hours with 1 at a time"


def test_without_optuna(search, monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    spec = search()
    with pytest.raises(BackendMissingError, match=r"syntaxformer\[search\]"):
        next_trial(spec, {})


@pytest.mark.parametrize(
    ("settings", "best"),
    [
        ({}, 8),
        ({"metric": "bleu"}, 16),
        ({"metric": "bleu", "direction": "minimize"}, 8),
        ({"metric": "ter"}, 8),
    ],
)
def test_a_score_is_maximized_unless_told_otherwise(search, content, store, settings, best):
    content["test"] = {"src": "src", "ref": "ref"}
    spec = search(sampler="grid", trials=2, **settings)
    for width, score in {8: 1.0, 16: 2.0}.items():
        store.add([cell := spec.cell({"system": "sit"}, {WIDTH: width})])
        store.finish(cell.key, 1.0, {"metrics": dict.fromkeys(("dev_loss", "bleu", "ter"), score)})
    assert best_trial(spec.search, list(store.runs().values())).cell.settings[WIDTH] == best


def test_the_largest_seed_is_one_for_each_trial(optuna, search, run):
    with pytest.raises(ConfigError, match=r"search\.seed: expected less than or equal to 4294967295"):
        search(seed=2**32)
    assert run(search(seed=2**32 - 1, trials=2, sampler="random")) == {"done": 2}


@pytest.mark.parametrize("worst", [math.nan, math.inf])
def test_a_trial_that_diverged_is_failed_and_never_the_best(optuna, search, store, report, worst):
    spec = search(space={WIDTH: {"values": [8, 16, 20]}, "seed": {"low": 1, "high": 9}}, trials=4)
    for width, loss in [(8, worst), (16, 2.0), (20, 3.0)]:
        store.add([cell := spec.cell({"system": "sit"}, {WIDTH: width, "seed": 1})])
        store.finish(cell.key, 1.0, {"metrics": {"dev_loss": loss}, "command": "x"})
    assert best_trial(spec.search, list(store.runs().values())).cell.settings[WIDTH] == 16
    assert next_trial(spec, store.runs()) is not None
    assert "| 001 (best) | 16 | 1 | 2 | done |" in report(spec, store)
