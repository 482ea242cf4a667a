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


@pytest.fixture
def problems(content, write_spec):
    """What is wrong with the content, without the path that stands before each."""

    def load():
        with pytest.raises(ConfigError) as error:
            load_spec(path := write_spec(content))
        return [one.removeprefix(f"{path}: ") for one in error.value.problems]

    return load


SPECS = sorted((Path(__file__).resolve().parents[4] / "experiments").glob("*.yaml"))


def test_the_grid(spec):
    cells = spec.cells()
    assert len(cells) == 2 * 2 * 3
    assert cells[1].labels == {"system": "base", "fraction": "10 %", "seed": "2"}
    assert cells[1].settings == {
        "data.dir": "corpus",
        "infusion.kind": "none",
        "data.fraction": 0.1,
        "seed": 2,
    }
    assert cells[1].name.startswith("base_10--_2_")
    assert cells[1].command() == (
        "syntaxformer train tiny data.dir=corpus infusion.kind=none data.fraction=0.1 seed=2 output=OUTPUT"
    )


def test_a_grid_is_counted_before_it_is_listed(content, problems):
    content["axes"] = {f"training.x{number}": list(range(100)) for number in range(8)}
    assert [one for one in problems() if one.startswith("axes: ") and "10,000,000,000,000,000" in one]
    content["axes"] = {"seed": [1, 2, 3], "training.x0": list(range(11))}
    content["tune"] = {"space": {f"training.y{number}": list(range(10)) for number in range(4)}}
    assert [one for one in problems() if one.startswith("tune.space: ") and "110,000" in one]
    del content["tune"]
    space = {f"training.y{number}": {"values": list(range(100))} for number in range(4)}
    content["search"] = {"trials": 10**12, "sampler": "grid", "space": space}
    places = [one.partition(":")[0] for one in problems()]
    assert {"search.trials", "search.space"} <= {*places}


def test_a_folder_name_fits_a_file_system(content, write_spec):
    content["axes"]["system"] = {"ä" * 300: content["axes"]["system"]["base"]}
    content["report"], content["exclude"] = {}, []
    names = [cell.name for cell in load_spec(write_spec(content)).cells()]
    assert len(set(names)) == len(names)
    assert max(len(name.encode()) for name in names) <= 255
    assert names[0].startswith("ää")
    content["axes"] = {}
    (cell,) = load_spec(write_spec(content)).cells()
    assert cell.name == cell.key[:8]


def test_a_key_is_what_decides_the_result(content, write_spec, spec):
    content["title"] = "another"
    content["axes"]["fraction"] = {"a tenth": {"data.fraction": 0.1}, "all": {"data.fraction": 1.0}}
    content["report"] = {}
    other = load_spec(write_spec(content))
    assert [one.key for one in other.cells()] == [one.key for one in spec.cells()]
    content["settings"]["model.dropout"] = 0.2
    assert not {one.key for one in load_spec(write_spec(content)).cells()} & {one.key for one in spec.cells()}


def test_combinations_that_make_no_sense(content, write_spec):
    content["exclude"] = [{"system": "sit", "fraction": "100 %"}]
    cells = load_spec(write_spec(content)).cells()
    assert len(cells) == 9
    assert ("sit", "100 %") not in {(one.labels["system"], one.labels["fraction"]) for one in cells}


def test_the_command_of_a_fine_tuning(content, write_spec):
    content |= {
        "verb": "finetune",
        "recipe": None,
        "settings": {"task": "cola", "model": "a b", "data.dir": "x"},
    }
    content["axes"] = {
        "seed": [1],
        "system": {"masks": {"infuse": "masks", "infusion.masks.without": ["parent"]}},
    }
    content["report"] = {}
    (cell,) = load_spec(write_spec(content)).cells()
    assert cell.command() == (
        "syntaxformer finetune --task cola --model 'a b' --infuse masks --set data.dir=x --set seed=1 "
        "--set 'infusion.masks.without=[\"parent\"]' -o OUTPUT"
    )


def test_all_mistakes_at_once(content, problems):
    content["recipe"] = None
    content["report"]["baseline"] = {"sistem": "base"}
    content["report"]["controls"] = [{"system": "sot"}]
    content["report"]["x"] = "kilobytes"
    content["exclude"] = [{"system": "sat"}]
    assert problems() == [
        "recipe: expected a recipe for the verb train, got none.",
        "report.baseline: unknown axis 'sistem'. Nearest: system.",
        "exclude: system has no level 'sat'. Nearest: sit.",
        "report.controls: system has no level 'sot'. Nearest: sit.",
        "report.x: unknown axis 'kilobytes'. Known: fraction, seed, system.",
    ]


def test_a_fine_tuning_has_no_recipe(content, problems):
    content["verb"] = "finetune"
    expected = "recipe, test: expected none for finetune; give task, model and data.dir in settings."
    assert expected in problems()


def test_runs_that_are_the_same(content, write_spec):
    content["axes"]["system"]["sit"] = {"infusion.kind": "none"}
    with pytest.raises(ConfigError, match="expected runs that differ in their settings, got base_10--_1_"):
        load_spec(write_spec(content))


OF_OLDER_VERSIONS = {
    "bai2021_ablation": pytest.raises(ConfigError, match=r"control: expected none.*'permuted\(en\)'"),
    "trial_sst": pytest.raises(ConfigError, match=r"control: expected none.*'other_sentence\(en\)'"),
}
"""Finished runs had these settings. Their report is written all the same: see experiments/pages.py."""


@pytest.mark.parametrize("path", SPECS, ids=lambda path: path.stem)
def test_every_bundled_experiment_is_valid(path):
    """Each cell is a run that would start: its recipe takes its settings."""
    spec = load_spec(path)
    assert spec.name == path.stem
    spec.test = None  # its files are not part of the repository
    with OF_OLDER_VERSIONS.get(path.stem, nullcontext()):
        check_experiment(spec, {})


def test_a_command_reads_back_what_the_settings_are(content, write_spec):
    """Strings that YAML would take for a number, a truth value, nothing or a mapping are quoted."""
    texts = ["2020", "yes", "null", "1.5", "a: b", "[x", "~/données", "plain text", "", "2001-02-30", "😀 ok"]
    content["axes"], content["report"] = {"data.dir": texts}, {}
    for cell, text in zip(load_spec(write_spec(content)).cells(), texts, strict=True):
        words = shlex.split(cell.command())[3:]
        assert apply_overrides({}, words)["data"]["dir"] == text
        assert apply_overrides({}, cell.overrides())["data"]["dir"] == text
    assert "data.dir=2020" not in load_spec(write_spec(content)).cells()[0].command()
    assert "'data.dir=plain text'" in load_spec(write_spec(content)).cells()[7].command()


@pytest.mark.parametrize(
    ("space", "problem"),
    [
        ({"low": 9, "high": 8}, "expected low up to high, got low 9 and high 8."),
        ({"low": 0, "high": 8, "log": True}, "expected low above 0 for log, got 0."),
        ({"low": 8}, "expected values, or low and high."),
        ({"values": []}, "expected values, or low and high."),
        ({"values": [1], "high": 3}, "expected values, or low and high."),
    ],
)
def test_a_space_that_is_none(content, problems, space, problem):
    content["search"] = {"space": {"infusion.width": space}}
    assert problems() == [f"search.space.infusion.width: {problem}"]


def test_controls_that_would_show_nothing(content, problems):
    content["report"]["controls"] = [{}, {"system": "base"}, {"system": "sit"}, {"system": "sit"}]
    content["search"] = {"space": {"infusion.width": {"values": [8]}}, "metric": "dev_loss"}
    del content["axes"]["seed"]
    other = "expected levels of other rows than before, got"
    assert [one for one in problems() if one.startswith("report.controls")] == [
        f"report.controls.0: {other} {{}}.",
        f"report.controls.1: {other} {{'system': 'base'}}.",
        f"report.controls.3: {other} {{'system': 'sit'}}.",
        "report.controls: expected none for a search, whose report compares trials only.",
    ]


def test_what_a_report_could_not_show(content, problems):
    content["axes"]["size"] = {"small": {"model.d_model": 32}, "large": {"model.d_model": 64}}
    content["report"] |= {
        "metrics": ["dev_los", "dev_loss"],
        "x": "size",
        "x_values": {"smal": 1, "large": 2},
    }
    content["report"]["baseline"] = {"seed": "1"}
    content["report"]["controls"] = [{"size": "small", "seed": "3"}]
    content["report"]["paper"] = [
        {"cell": {"seed": "2"}, "value": 1},
        {"cell": {}, "value": 1, "metric": "chrf"},
    ]
    assert problems() == [
        "report.baseline: expected no seed, got 1. Numbers are means over seeds.",
        "report.controls.0: expected no seed, got 3. Numbers are means over seeds.",
        "report.paper.0.cell: expected no seed, got 2. Numbers are means over seeds.",
        "report.metrics: unknown metric 'dev_los'. Nearest: dev_loss.",
        "report.paper: unknown metric 'chrf'. Known: dev_bleu, dev_loss.",
        "report.x_values: size has no level 'smal'. Nearest: small.",
        "report.x: expected a number for each level of size, got none for small. Give report.x_values.",
    ]


def test_metrics_are_those_of_the_verb(content, write_spec, problems):
    content["test"] = {"src": "src", "ref": "ref"}
    content["report"] |= {"metrics": ["bleu"], "x": "seed"}
    content["report"]["paper"] = [{"cell": {}, "value": 1, "metric": "chrf"}]
    content["search"] = {"space": {"infusion.width": {"values": [8]}}, "metric": "dev_lss"}
    assert problems() == [
        "search.metric: unknown metric 'dev_lss'. Nearest: dev_loss.",
        "report.paper: expected a metric of report.metrics, got 'chrf'. Add it there.",
        "report.x: expected an axis other than seed. Numbers are means over seeds.",
    ]
    content |= {"verb": "finetune", "recipe": None, "test": None, "search": None}
    content["report"] = {"metrics": ["score", "mean", "spearman", "f1"]}
    assert load_spec(write_spec(content)).report.metrics[0] == "score"
    content["report"]["metrics"] = ["test_score"]
    assert problems() == ["report.metrics: unknown metric 'test_score'. Nearest: score."]
    spec = load_spec(write_spec(content | {"test_split": "test"}))
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


FINETUNE = {"verb": "finetune", "recipe": None, "settings": {"task": "cola", "model": "m", "data.dir": "x"}}
MASKS = [None, {}, {"mode": "additive", "without": ["parent", "pair"]}]


@pytest.mark.parametrize("verb", ["finetune", "train"])
def test_infusions_are_axes(content, write_spec, verb):
    """Of both verbs: null is off, {} has the defaults, and the command of a run repeats it."""
    content |= deepcopy(FINETUNE) if verb == "finetune" else {}
    content["axes"] = {"masks": MASKS, "lisa": [None, {}], "seed": [1, 2]}
    content["report"] = {"baseline": {"masks": "none", "lisa": "none"}}
    spec = load_spec(write_spec(content))
    cells = {(one.labels["masks"], one.labels["lisa"]): one for one in spec.cells()}
    names = ["none", "default", "mode additive, without parent pair"]
    assert list(cells) == [(masks, lisa) for masks in names for lisa in ("none", "default")]
    assert spec.effects == ["masks", "lisa"]
    for (masks, lisa), cell in cells.items():
        words = shlex.split(cell.command())
        found = [resolve(cell).infusion]
        if verb == "finetune":
            given = [word for before, word in pairwise(words) if before == "--set"]
            found += [load_finetune({"task": "cola", "model": "m", "output": "o"}, "none", given).infusion]
        for one in found:
            assert (one.masks is None, one.lisa is None) == (masks == "none", lisa == "none")
            assert one.masks is None or (one.masks.mode, one.masks.without) == (
                ("additive", ("parent", "pair")) if "additive" in masks else ("multiplicative", ())
            )
    check_experiment(spec, {})


def test_what_would_override_an_axis_of_infusions_is_refused(content, problems):
    content |= deepcopy(FINETUNE)
    content["axes"] = {"masks": [None, {}, True], "seed": [1, 2]}
    content["axes"]["control"] = {"tree": {}, "chain": {"infusion.masks.nodes": "leaves"}}
    content["settings"] |= {"infuse": "lisa", "masks.mode": "additive", "infusion.lisa.weight": 0.5}
    content["report"] = {"effects": ["mask", "seed", "control"]}
    beside = "expected no such setting beside the axis masks, which sets all of infusion.masks, got one. "
    assert problems() == [
        "axes.masks: expected null or settings, as in [null, {}], got True.",
        *(
            f"{key}: {beside}Write it into the levels of the axis."
            for key in ("infuse", "infusion.masks.nodes", "masks.mode")
        ),
        "report.effects: unknown axis 'mask'. Nearest: masks.",
        "report.effects: expected axes of two levels or more other than seed, got seed.",
    ]
    content["axes"], content["settings"] = {"masks": [None, {}]}, FINETUNE["settings"]
    content["search"] = {"space": {"training.epochs": {"values": [1, 2]}}, "metric": "score"}
    content["report"] = {"effects": ["masks"]}
    assert problems() == ["report.effects: expected none for a search, whose report compares trials only."]


def test_given_settings_enter_the_keys_as_if_they_were_written_in_the_file(content, write_spec):
    content |= deepcopy(FINETUNE)
    content["axes"] = {"masks": [None, {}], "seed": [1, 2]}
    content["report"] = {}
    path = write_spec(content)
    given = ["model=runs/other", "data.dir=../else where", "data.rows=53", "annotation.processes=null"]
    spec = load_spec(path, given)
    content["settings"] |= {"model": "runs/other", "data.dir": "../else where", "data.rows": 53}
    content["settings"]["annotation.processes"] = None
    written = load_spec(write_spec(content))
    assert [one.key for one in spec.cells()] == [one.key for one in written.cells()]
    assert spec.cells()[0].command() == written.cells()[0].command()
    for setting, problem in {
        "seed=3": "--set seed: expected a key that nothing replaces, got one of the axis seed.",
        "infusion.masks={}": "infusion.masks: expected no such setting beside the axis masks, which sets all",
        "model": "'model': expected key.sub=value.",
    }.items():
        with pytest.raises(ConfigError) as error:
            load_spec(path, [setting])
        assert problem in str(error.value)
