"""Planned comparisons: rates that are fair, what seeds can find, exact p-values, and figures by seed."""

from __future__ import annotations

import math

import numpy as np
import pytest

from syntaxformer.base.errors import ConfigError
from syntaxformer.base.statistics import bootstrap_rows, detectable_effect, holm, sign_test_p
from syntaxformer.cli.experiment import _show_plan
from syntaxformer.study.experiments.cell import check_experiment, packed
from syntaxformer.study.experiments.store import choices, tuned

BASE, SIT, ADD = {"system": "base"}, {"system": "sit"}, {"system": "add"}
SEEDS = [1, 2, 3, 4, 5, 6]
SCORES = {
    "base": [10.0, 11.0, 9.0, 10.0, 12.0, 10.5],
    "sit": [30.0, 50.0, 20.0, 9.5, 60.0, 35.0],
    "add": [10.5, 10.0, 9.5, 11.0, 12.5, 10.0],
}
CHOOSING = {
    "base": {0.001: [10, 12, 11], 0.002: [9, 9, 9]},
    "sit": {0.001: [5, 6, 7], 0.002: [20, 8, 14]},
    "add": {0.001: [1, 1, 1], 0.002: [2, 2, 2]},
}
"""dev_bleu of each rate with the seeds 97 to 99: the second is better for sit and add."""


@pytest.fixture
def planned(content):
    """Three systems, six seeds, rates chosen with three others, and two planned comparisons."""
    plan = {"seeds": 6, "metric": "general_own"}
    content |= {
        "axes": {
            "system": {name: {"infusion.kind": kind} for name, kind in zip(SCORES, ("none", "sum_then_concat", "add"), strict=True)},
            "seed": SEEDS,
        },
        "tune": {"space": {"training.learning_rate": [0.001, 0.002]}, "seeds": [97, 98, 99], "metric": "dev_bleu"},
        "settings": {"data.dir": "corpus", "training.best_by": "bleu"},
        "tests": {"general": {"src": "a", "ref": "b", "metrics": ["own.py:own"], "along": True}},
        "report": {
            "metrics": ["general_own"],
            "baseline": BASE,
            "by": {"general_own": "distance"},
            "primary": {"name": "trees", "cell": SIT, "against": BASE, "direction": "greater", **plan},
            "secondary": [{"cell": ADD, "against": BASE, "sd": 2.0, **plan}],
        },
    }  # fmt: skip
    return content


@pytest.fixture
def done(planned, load, store, make_result):
    """All runs: line values whose mean is the score, a table by distance, and two evaluations."""
    spec = load(planned)
    tuning = spec.tuning()
    for labels in tuning.combinations():
        for rate, values in CHOOSING[labels["system"]].items():
            cell = tuning.cell(labels, {"training.learning_rate": rate})
            store.add([cell])
            score = values[int(labels["seed"]) - 97]
            metrics = {"dev_bleu": score, "general_own": 2.0 * score}
            store.finish(cell.key, 1.0, make_result(0.0) | {"metrics": metrics})
    spec = tuned(spec, store.runs())
    plans = {
        "primary": {"small": spec.report.primary.model_dump(exclude_defaults=True)},
        "secondary": {"small": [plan.model_dump(exclude_defaults=True) for plan in spec.report.secondary]},
    }
    plans["secondary"]["small"].insert(0, {"later": "of another version"})
    store.add(spec.cells())
    for cell in spec.cells():
        score = SCORES[cell.labels["system"]][int(cell.labels["seed"]) - 1]
        more = {
            "metrics": {"general_own": score},
            "lines": {"general_own": packed([score - 1, score + 1] * 10)},
            "by_column": {"general_own": {"distance": {"1": [score - 1, 10], "3": [score + 1, 10]}}},
            "along": {"10": {"general_own": 0.0}, "20": {"general_own": score}},
            "recipe": {"training.learning_rate": cell.settings["training.learning_rate"]},
        }
        store.finish(cell.key, 1.0, make_result(0.0, **more, **plans))
    return spec, store


def test_rates_are_chosen_by_the_mean_over_several_seeds(done):
    spec, store = done
    chosen = {name: choice.settings for name, choice in choices(spec, store.runs()).items()}
    rates = {"base": 0.001, "sit": 0.002, "add": 0.002}
    assert chosen == {f"system {name}": {"training.learning_rate": rate} for name, rate in rates.items()}
    assert choices(spec, store.runs())["system sit"].means == {"0.001": 6.0, "0.002": 14.0}
    last = next(run for run in store.runs().values() if run.cell.settings["seed"] == 99)
    store.stop(last.cell.key, "killed", 1.0, "x")  # not before all have ended
    assert choices(spec, store.runs())["system base"].settings is None


def test_planned_comparisons_are_exact_and_corrected(done, report):
    spec, store = done
    text = report(spec, store)
    gains = [np.subtract(SCORES[name], SCORES["base"]) for name in ("sit", "add")]
    p_values = [sign_test_p(gains[0], "greater"), sign_test_p(gains[1], "either")]
    corrected = holm(p_values)
    for name, gain, p, holms in zip(
        ("trees", "system add against system base"), gains, p_values, corrected, strict=True
    ):
        row = next(line for line in text.splitlines() if line.startswith(f"| {name} |"))
        cells = [cell.strip() for cell in row.strip("|").split("|")]
        assert cells[3:5] == ["6", f"{gain.mean():+.2f}"]
        assert cells[6:] == [f"{p:.3f}", f"{holms:.3f}"]
        low, high = map(float, cells[5].split(" to "))
        assert low < gain.mean() < high
    rates = "with the seeds 97, 98, 99: 0.001 for system base; 0.002 for system sit."
    assert f"Learning rates chosen on dev {rates}" in text
    sd = np.std([40 - 20, 16 - 24, 28 - 22], ddof=1)
    assert f"{detectable_effect(6, sd):.2f} general_own is found" in text
    assert f"{detectable_effect(6, 2.0):.2f} general_own is found" in text
    assert text.count("Chosen before the first run") == 2
    assert "other differences than those above were not planned" in text
    lines = [[[v - 1, v + 1] * 10 for v in pair] for pair in zip(SCORES["base"], SCORES["sit"], strict=True)]
    _, interval = bootstrap_rows(lambda _, values: float(np.mean(values)), [0.0] * 20, lines)
    assert f"{interval.low:+.2f} to {interval.high:+.2f}" in text  # lines and seeds together
    spec.report.secondary = spec.report.secondary[:0]  # one direction alone still needs its own p
    assert f"| {p_values[0]:.3f} | {p_values[0]:.3f} |" in report(spec, store)
    spec.report.primary.direction = "less"
    assert "**It was written or changed after runs were made" in report(spec, store)


def test_figures_by_seed_by_column_and_along_training(done, report, curves, tmp_path):
    report(*done)
    assert (tmp_path / "report" / "seeds_general_own.png").stat().st_size > 1000
    by_distance = curves["general_own_by_distance.png"]["sit"]
    mean = np.mean(SCORES["sit"])
    assert (by_distance.x, by_distance.y) == ([1, 3], pytest.approx([mean - 1, mean + 1]))
    half = 2.5706 * np.std(SCORES["sit"], ddof=1) / math.sqrt(6)
    assert by_distance.error[0] == pytest.approx(half, rel=1e-4)
    along = curves["along_general_own.png"]["base"]
    assert (along.x, along.y, along.is_band) == ([10, 20], pytest.approx([0, np.mean(SCORES["base"])]), True)


def test_a_dry_run_says_what_the_seeds_can_find(done, load, planned, store, capsys, monkeypatch):
    monkeypatch.setattr("syntaxformer.study.experiments.cell.check_experiment", lambda *_: None)
    spec, _ = done
    _show_plan(spec, store, 1, {}, False)
    first, second = [line for line in capsys.readouterr().out.splitlines() if line.startswith("planned: ")]
    measured = "deviation 14.00 over the choosing seeds; 6 seeds find"
    assert first.startswith(f"planned: trees, general_own: {measured}")
    assert "deviation 2.00 over the choosing seeds" in second  # measured, not what the plan expects


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"tune": {"space": {"training.learning_rate": [1, 2]}, "metric": "dev_bleu", "seeds": [98, 99]}}, "tune.seeds: expected 3 or more"),
        ({"tune": None, "axes": {"system": {"base": {"training.learning_rate": 1}, "sit": {"infusion.kind": "concat"}, "add": {"infusion.kind": "add"}}, "seed": SEEDS}}, "training.learning_rate: expected one for both sides"),
    ],
)  # fmt: skip
def test_rates_of_a_comparison_are_fair(planned, load, change, key, tmp_path):
    planned |= change
    planned["report"]["primary"]["sd"] = 1.0
    (tmp_path / "own.py").write_text("def own(*_): return 1")
    for name in "ab":
        (tmp_path / name).write_text("x\n")
    planned["tests"]["general"] |= {"src": str(tmp_path / "a"), "ref": str(tmp_path / "b")}
    with pytest.raises(ConfigError) as error:
        check_experiment(load(planned), {})
    assert error.value.problems[0].startswith(key)


def test_a_finished_experiment_is_not_refused_for_its_rates(planned, load, store, make_result, tmp_path):
    planned["axes"]["system"]["base"]["training.learning_rate"] = 1
    planned |= {"tune": None, "tests": {}}
    planned["report"] = {"primary": {"cell": SIT, "against": BASE, "seeds": 6, "sd": 1.0}}
    spec = load(planned)
    with pytest.raises(ConfigError, match="expected one for both sides"):
        check_experiment(spec, {})
    store.add(spec.cells())
    for cell in spec.cells():
        store.finish(cell.key, 1.0, make_result(0.0))
    check_experiment(spec, store.runs())


def test_secondary_comparisons_need_a_primary_one(planned, problems):
    primary = planned["report"].pop("primary")
    (problem,) = problems(planned)
    assert problem.startswith("report.secondary: expected report.primary as well")
    planned["report"] |= {"primary": primary, "secondary": [primary]}
    assert "report.secondary.0: expected another comparison, got trees twice." in problems(planned)
    planned["report"] |= {"secondary": [], "by": {"dev_bleu": "x"}}
    assert problems(planned) == ["report.by: expected a metric of a named test, got dev_bleu."]
    planned["report"]["by"] = {}
    planned["tune"]["metric"] = "general_own"
    assert problems(planned)[0].startswith("tune.metric: expected a metric on dev")
