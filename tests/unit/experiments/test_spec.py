"""Specifications: the grid they describe, and all their mistakes at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from syntaxformer.errors import ConfigError
from syntaxformer.experiments import load_spec

SPECS = sorted((Path(__file__).resolve().parents[3] / "experiments").glob("*.yaml"))


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


def test_all_mistakes_at_once(content, write_spec):
    content["recipe"] = None
    content["report"]["baseline"] = {"sistem": "base"}
    content["report"]["x"] = "kilobytes"
    content["exclude"] = [{"system": "sat"}]
    with pytest.raises(ConfigError) as error:
        load_spec(path := write_spec(content))
    assert error.value.problems == [
        f"{path}: recipe: expected a recipe for the verb train, got none.",
        f"{path}: report.baseline: unknown axis 'sistem'. Nearest: system.",
        f"{path}: exclude: system has no level 'sat'. Nearest: sit.",
        f"{path}: report.x: unknown axis 'kilobytes'. Known: fraction, seed, system.",
    ]


def test_a_fine_tuning_has_no_recipe(content, write_spec):
    content["verb"] = "finetune"
    with pytest.raises(
        ConfigError, match=r"recipe, test: expected none for finetune; give task, model and data\.dir"
    ):
        load_spec(write_spec(content))


def test_runs_that_are_the_same(content, write_spec):
    content["axes"]["system"]["sit"] = {"infusion.kind": "none"}
    with pytest.raises(ConfigError, match="expected runs that differ in their settings, got base_10--_1_"):
        load_spec(write_spec(content))


def test_a_space_has_values_or_bounds(content, write_spec):
    content["search"] = {"space": {"infusion.width": {"low": 8}}}
    with pytest.raises(
        ConfigError, match=r"search\.space\.infusion\.width: expected values, or low and high\."
    ):
        load_spec(write_spec(content))


@pytest.mark.parametrize("path", SPECS, ids=lambda path: path.stem)
def test_every_bundled_experiment_is_valid(path):
    """Each cell is a run that would start: its recipe takes its settings."""
    spec = load_spec(path)
    assert spec.name == path.stem
    for labels in spec.combinations():
        extra = (
            {name: (space.values or [space.low])[0] for name, space in spec.search.space.items()}
            if spec.search
            else {}
        )
        _check(spec.cell(labels, extra))


def _check(cell):
    import json

    if cell.verb == "train":
        from syntaxformer.training.recipe import load_recipe

        load_recipe(
            cell.recipe, [*(f"{key}={json.dumps(value)}" for key, value in cell.settings.items()), "output=x"]
        )
    else:
        from syntaxformer.training.finetune_config import load_finetune

        settings = dict(cell.settings)
        infuse = settings.pop("infuse", "none")
        load_finetune(
            {}, infuse, [*(f"{key}={json.dumps(value)}" for key, value in settings.items()), "output=x"]
        )
