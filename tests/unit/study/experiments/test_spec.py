"""Specifications: the grid they describe, and all their mistakes at once."""

from __future__ import annotations

import math
import shlex
from contextlib import nullcontext
from copy import deepcopy
from itertools import pairwise
from pathlib import Path

import pytest

from syntaxformer.base.config import apply_overrides
from syntaxformer.base.errors import ConfigError
from syntaxformer.encoders.finetune_config import load_finetune
from syntaxformer.study.experiments.cell import check_experiment, resolve
from syntaxformer.study.experiments.spec import ReportConfig, Space, load_spec

EXPERIMENTS = Path(__file__).resolve().parents[4] / "experiments"
SPECS = sorted(EXPERIMENTS.rglob("*.yaml"))


def test_the_grid(spec):
    cells = spec.cells()
    assert len(cells) == 2 * 2 * 3
    assert cells[1].labels == {"system": "base", "fraction": "10 %", "seed": "2"}
    settings = {"data.dir": "corpus", "infusion.kind": "none", "data.fraction": 0.1, "seed": 2}
    assert cells[1].settings == settings
    assert cells[1].name.startswith("base_10--_2_")
    assert cells[1].command() == (
        "syntaxformer train tiny data.dir=corpus infusion.kind=none data.fraction=0.1 seed=2 output=OUTPUT"
    )


def test_a_folder_name_fits_a_file_system(content, load):
    content["axes"]["system"] = {"ä" * 300: content["axes"]["system"]["base"]}
    content["report"] = {}
    names = [cell.name for cell in load(content).cells()]
    assert len(set(names)) == len(names)
    assert max(len(name.encode()) for name in names) <= 255
    assert names[0].startswith("ää")
    (cell,) = load({**content, "axes": {}}).cells()
    assert cell.name == cell.key[:8]


def test_a_key_is_what_decides_the_result(content, load, spec):
    content |= {"title": "another", "report": {}}
    content["axes"]["fraction"] = {"a tenth": {"data.fraction": 0.1}, "all": {"data.fraction": 1.0}}
    keys = [cell.key for cell in spec.cells()]
    assert [cell.key for cell in load(content).cells()] == keys
    content["settings"]["model.dropout"] = 0.2
    assert not {cell.key for cell in load(content).cells()} & {*keys}


def test_combinations_that_make_no_sense(content, load):
    content["exclude"] = [{"system": "sit", "fraction": "100 %"}]
    labels = [(cell.labels["system"], cell.labels["fraction"]) for cell in load(content).cells()]
    assert len(labels) == 9
    assert ("sit", "100 %") not in labels


def test_the_command_of_a_fine_tuning(finetune, load):
    finetune["settings"]["model"] = "a b"
    finetune["axes"] = {"system": {"masks": {"infuse": "masks", "infusion.masks.without": ["parent"]}}}
    (cell,) = load(finetune).cells()
    assert cell.command() == (
        "syntaxformer finetune --task cola --model 'a b' --infuse masks --set data.dir=x "
        "--set 'infusion.masks.without=[\"parent\"]' -o OUTPUT"
    )


def test_a_command_reads_back_what_the_settings_are(content, load):
    """Strings that YAML would take for a number, a truth value, nothing or a mapping are quoted."""
    texts = ["2020", "yes", "null", "1.5", "a: b", "[x", "~/données", "plain text", "", "2001-02-30", "😀 ok"]
    content |= {"axes": {"data.dir": texts}, "report": {}}
    cells = load(content).cells()
    for cell, text in zip(cells, texts, strict=True):
        words = shlex.split(cell.command())[3:]
        assert apply_overrides({}, words)["data"]["dir"] == text
        assert resolve(cell).data.dir == Path(text)
    assert "data.dir=2020" not in cells[0].command()
    assert "'data.dir=plain text'" in cells[7].command()


OF_OLDER_VERSIONS = {
    "bai2021_ablation": pytest.raises(ConfigError, match=r"control: expected none.*'permuted\(en\)'"),
    "pretrained_multi30k": pytest.raises(ConfigError, match=r"tune\.seeds: expected 3 or more"),
    "pretrained_news": pytest.raises(ConfigError, match=r"tune\.seeds: expected 3 or more"),
    "trial_sst": pytest.raises(ConfigError, match=r"control: expected none.*'other_sentence\(en\)'"),
}
"""Finished runs had these settings. Their report is written all the same: see experiments/pages.py."""


@pytest.mark.parametrize("path", SPECS, ids=lambda path: path.stem)
def test_every_bundled_experiment_is_valid(path):
    """Each cell is a run that would start: its recipe takes its settings."""
    spec = load_spec(path)
    assert spec.name == "_".join(path.relative_to(EXPERIMENTS).with_suffix("").parts)
    spec.test, spec.tests = None, {}  # its files are not part of the repository
    with OF_OLDER_VERSIONS.get(path.stem, nullcontext()):
        check_experiment(spec, {})


BASE, SIT = {"system": "base"}, {"system": "sit"}
WIDTHS = {"space": {"infusion.width": {"values": [8]}}}
STEPS = {"training.max_steps": [1]}
TEST = {"src": "src", "ref": "ref"}
SIZES = {"system": {"base": {}, "sit": {"infusion.kind": "add"}}, "size": {"5 %": {}}, "seed": [1, 2]}


def _planned(cell, against, seeds=3, **more):
    return {"report": {"primary": {"cell": cell, "against": against, "seeds": seeds, "sd": 1, **more}}}


@pytest.mark.parametrize(
    ("change", "keys"),
    [
        ({"recipe": None, "report": {"baseline": {"sistem": "base"}, "controls": [{"system": "sot"}], "x": "kilobytes"}, "exclude": [{"system": "sat"}]},
         ["recipe: ", "report.baseline: unknown axis 'sistem'. Nearest: system", "exclude.0: system has no level 'sat'. Nearest: sit",
          "report.controls.0: system has no level 'sot'", "report.x: unknown axis 'kilobytes'"]),
        ({"verb": "finetune"}, ["recipe, test: "]),
        ({"test_split": "dev"}, ["test_split: expected none for train, got 'dev'"]),
        ({"axes": {"data.fraction": [0.5], "seed": [1, 1, 2]}, "report": {}}, ["axes.seed: "]),
        ({"axes": {f"training.x{n}": list(range(100)) for n in range(8)}, "report": {}}, ["axes: expected at most 100,000 runs, got 10,000,000,000,000,000"]),
        ({"axes": {"seed": [1, 2, 3], "training.x0": list(range(11))}, "report": {}, "tune": {"space": {f"training.y{n}": list(range(10)) for n in range(4)}}},
         ["tune.space: expected at most 100,000 runs, got 110,000"]),
        ({"report": {}, "search": {"trials": 10**12, "sampler": "grid", "space": {f"training.y{n}": {"values": list(range(100))} for n in range(4)}}},
         ["search.trials: ", "search.space: "]),
        ({"search": {"space": {"infusion.width": {"low": 8, "high": 64}}, "sampler": "grid"}}, ["search: grid: expected values for infusion.width"]),
        ({"search": {"space": {"infusion.width": {"low": 9, "high": 8}}}}, ["search.space.infusion.width: expected low up to high"]),
        ({"search": {"space": {"infusion.width": {"low": 0, "high": 8, "log": True}}}}, ["search.space.infusion.width: expected low above 0"]),
        ({"search": {"space": {"infusion.width": {"low": 8}}}}, ["search.space.infusion.width: expected values, or low and high"]),
        ({"search": {"space": {"infusion.width": {"values": []}}}}, ["search.space.infusion.width.values: expected at least one value, got none"]),
        ({"tune": {"space": {"training.max_steps": []}}}, ["tune.space.training.max_steps: expected at least one value, got none"]),
        ({"axes": {"seed": []}, "report": {}}, ["expected at least one run, got none"]),
        ({"exclude": [{"system": "base"}, {"system": "sit"}]}, ["expected at least one run, got none"]),
        (_planned(SIT | {"fraction": "10 %"}, BASE, metric="blue"), ["report.primary.metric: unknown metric 'blue'"]),
        ({"search": {"space": {"infusion.width": {"values": [1], "high": 3}}}}, ["search.space.infusion.width: expected values, or low and high"]),
        ({"search": WIDTHS, "report": {"controls": [{}, BASE, SIT, SIT], "baseline": BASE}},
         [f"report.controls.{n}: expected levels of other rows" for n in (0, 1, 3)] + ["report.controls: expected none for a search"]),
        ({"search": WIDTHS, "report": {"effects": ["system"]}}, ["report.effects: expected none for a search"]),
        ({"report": {"baseline": {"seed": "1"}, "controls": [{"system": "sit", "seed": "3"}], "paper": [{"cell": {"seed": "2"}, "value": 1}]}},
         ["report.baseline: expected no seed, got 1", "report.controls.0: expected no seed, got 3", "report.paper.0.cell: expected no seed, got 2"]),
        ({"report": {"metrics": ["dev_los"]}}, ["report.metrics: unknown metric 'dev_los'. Nearest: dev_loss"]),
        ({"axes": {"size": {"small": {"model.d_model": 32}, "large": {}}}, "report": {"x": "size"}},
         ["report.x: expected a number for each level of size, got none for small, large"]),
        ({"test": TEST, "search": WIDTHS | {"metric": "dev_lss"}, "report": {"metrics": ["bleu"], "x": "seed"}},
         ["search.metric: unknown metric 'dev_lss'", "report.x: expected an axis other than seed"]),
        ({"search": WIDTHS, "tune": {"space": STEPS}, "report": {}}, ["tune: expected none beside a search"]),
        ({"tune": {"space": STEPS, "metric": "blue"}}, ["tune.metric: unknown metric 'blue'"]),
        ({"tune": {"space": STEPS, "metric": "bleu"}, "test": TEST}, ["tune.metric: expected a metric on dev"]),
        ({"tune": {"space": {"data.fraction": [0.5]}}}, ["tune.space: expected keys that no axis sets, got data.fraction"]),
        ({"tune": {"space": STEPS, "settings": {"seed": 2}}}, ["tune.settings: expected a seed that no other run has, got 2"]),
        ({"tune": {"space": STEPS, "settings": {"seed": 9, "data.fraction": 1}}}, ["tune.settings: expected keys that no axis but seed sets, got data.fraction"]),
        ({"axes": {"system": SIZES["system"]}, "settings": {"seed": 99}, "tune": {"space": STEPS}, "report": {}}, ["tune.settings: expected a seed that no other run has, got 99"]),
        ({"tune": {"space": {"training.learning_rate": [1e-3, 0.001]}}}, ["tune.space.training.learning_rate: "]),
        ({"tune": {"space": STEPS, "seeds": [3, 98]}}, ["tune.seeds: expected a seed that no other run has, got 3"]),
        ({"tune": {"space": STEPS, "seeds": [98, 98]}}, ["tune.seeds: expected different seeds"]),
        ({"tune": {"space": STEPS, "seeds": [98], "settings": {"seed": 9}}}, ["tune.settings: expected none beside"]),
        ({"tests": {"dev": {**TEST, "metrics": ["bleu"]}}}, ["tests.dev: expected a name"]),
        ({"tests": {"x": {"table": "a", "metrics": ["accuracy"]}}}, ["tests.x: expected src and ref"]),
        ({"tests": {"x": {"src": "a", "metrics": ["bleu"]}}}, ["tests.x: expected src and ref, or contrast, or table, got none"]),
        ({"tests": {"x": {**TEST, "metrics": ["accuracy"]}}}, ["tests.x: metrics: expected exact_match"]),
        ({"tests": {"x": {"contrast": "a", "metrics": ["own.py:f"]}}}, ["tests.x: metrics: expected contrastive_accuracy with contrast"]),
        ({"tests": {"x": {**TEST, "metrics": ["a.py:f", "b.py:f"]}}}, ["tests.x: metrics: expected different names"]),
        (_planned(SIT | {"fraction": "10 %"}, BASE, 5), ["report.primary.seeds: expected the 3 of the axis seed, got 5"]),
        (_planned({"system": "no", "fraction": "10 %"}, BASE), ["report.primary.cell: system has no level 'no'"]),
        (_planned(SIT | {"fraction": "10 %"}, SIT | {"fraction": "10 %"}), ["report.primary.against: expected another cell"]),
        (_planned(SIT, BASE, 2) | {"axes": SIZES}, ["report.primary.cell: expected a level of each axis, got none of size"]),
    ],
)  # fmt: skip
def test_mistakes_are_named_all_at_once(content, problems, change, keys):
    refused = problems({**content, **deepcopy(change)})
    for key in keys:
        assert sum(problem.startswith(key) for problem in refused) == 1, refused
    assert len(refused) == len(keys)


def test_runs_that_are_the_same(content, load):
    content["axes"]["system"]["sit"] = {"infusion.kind": "none"}
    with pytest.raises(ConfigError, match="expected runs that differ in their settings, got base_10--_1_"):
        load(content)


def test_metrics_are_those_of_the_verb_and_the_split(finetune, load, problems):
    finetune["report"] = {"metrics": ["score", "mean", "spearman", "f1"]}
    assert load(finetune).report.metrics[0] == "score"
    finetune["report"]["metrics"] = ["test_score"]
    (problem,) = problems(finetune)
    assert problem.startswith("report.metrics: unknown metric 'test_score'")
    spec = load(finetune | {"test_split": "test"})
    assert {cell.test["split"] for cell in spec.cells()} == {"test"}


def test_a_number_without_a_point_is_a_number():
    """YAML reads it as text, which would be another key than 0.001, and have no place in a figure."""
    assert Space(values=["1e-3", "3E-05", 0.1, "1e", "e5"]).values == [0.001, 3e-5, 0.1, "1e", "e5"]


def test_where_a_level_stands():
    levels = {"0.0001": 1e-4, "2e-05": 2e-5, "-1": -1, "5 %": 5, "rate 5e-5": 5e-5, "1-5": 1, "12 cells": 12}
    levels |= {"1,450 captions": 1450, "29,000 pairs": 29000, "1.5 GB": 1.5, "5%": 5}
    assert {level: ReportConfig().x_number(level) for level in levels} == levels
    for unclear in ("2k", "4.5M", "depth -3", "1,45,0", "none"):
        assert math.isnan(ReportConfig().x_number(unclear)), unclear


@pytest.mark.parametrize("verb", ["finetune", "train"])
def test_infusions_are_axes(content, finetune, load, verb):
    """Of both verbs: null is off, {} has the defaults, and the command of a run repeats it."""
    content = finetune
    if verb == "train":
        content |= {"verb": "train", "recipe": "tiny", "settings": {"data.dir": "corpus"}}
    masks = [None, {}, {"mode": "additive", "without": ["parent", "pair"]}]
    content["axes"] = {"masks": masks, "lisa": [None, {}], "seed": [1, 2]}
    content["report"] = {"baseline": {"masks": "none", "lisa": "none"}}
    spec = load(content)
    cells = {(cell.labels["masks"], cell.labels["lisa"]): cell for cell in spec.cells()}
    names = ["none", "default", "mode additive, without parent pair"]
    assert list(cells) == [(masks, lisa) for masks in names for lisa in ("none", "default")]
    assert spec.effects == ["masks", "lisa"]
    for (masks, lisa), cell in cells.items():
        infusions = [resolve(cell).infusion]
        if verb == "finetune":
            words = shlex.split(cell.command())
            settings = [word for before, word in pairwise(words) if before == "--set"]
            task = {"task": "cola", "model": "m", "output": "o"}
            infusions.append(load_finetune(task, "none", settings).infusion)
        for infusion in infusions:
            assert (infusion.masks is None, infusion.lisa is None) == (masks == "none", lisa == "none")
            if infusion.masks is not None:
                mode, without = infusion.masks.mode, infusion.masks.without
                additive = ("additive", ("parent", "pair"))
                assert (mode, without) == (additive if "additive" in masks else ("multiplicative", ()))
    check_experiment(spec, {})


def test_what_would_override_an_axis_of_infusions_is_refused(finetune, problems):
    finetune["axes"] = {"masks": [None, {}, True], "seed": [1, 2]}
    finetune["axes"]["control"] = {"tree": {}, "chain": {"infusion.masks.nodes": "leaves"}}
    finetune["settings"] |= {"infuse": "lisa", "masks.mode": "additive", "infusion.lisa.weight": 0.5}
    finetune["report"] = {"effects": ["mask", "seed", "control"]}
    assert [problem.partition(": ")[0] for problem in problems(finetune)] == [
        "axes.masks", "infuse", "infusion.masks.nodes", "masks.mode", "report.effects", "report.effects"
    ]  # fmt: skip


def test_overrides_enter_the_keys_as_if_they_were_written_in_the_file(finetune, load, problems):
    finetune["axes"] = {"masks": [None, {}], "seed": [1, 2]}
    overrides = ["model=runs/other", "data.dir=../else where", "data.rows=53", "annotation.processes=null"]
    cells = load(finetune, overrides).cells()
    values = {"model": "runs/other", "data.dir": "../else where", "data.rows": 53}
    values["annotation.processes"] = None
    written = load(finetune | {"settings": finetune["settings"] | values}).cells()
    assert [cell.key for cell in cells] == [cell.key for cell in written]
    assert cells[0].command() == written[0].command()
    for override, problem in {
        "seed=3": "--set seed: expected a key that nothing replaces, got one of the axis seed.",
        "infusion.masks={}": "infusion.masks: expected no such setting beside the axis masks",
        "model": "'model': expected key.sub=value.",
    }.items():
        assert problem in problems(finetune, [override])[0]
    assert problems(finetune | {"settings": "a"}, ["seed=3"])[0].startswith("settings: expected a valid dict")
