"""Settings of a fine-tuning run: what refines an infusion must not switch one on."""

from __future__ import annotations

import math
from typing import get_args, get_origin

import pytest
from pydantic import BaseModel

from syntaxformer.base.config import apply_overrides, validate
from syntaxformer.base.errors import ConfigError
from syntaxformer.encoders.finetune_config import FinetuneConfig, FinetuneTraining, load_finetune
from syntaxformer.infusion.config import InfusionConfig
from syntaxformer.serve.config import ServiceConfig
from syntaxformer.study.experiments.spec import Spec
from syntaxformer.translation.decoding import Search
from syntaxformer.translation.recipe import Recipe

OPTIONS = {"task": "cola", "model": "encoder", "output": "out", "data": {"dir": "data"}}


@pytest.mark.parametrize(
    ("infuse", "setting", "problem"),
    [
        ("none", "infusion.masks.mode=additive", "infusion.masks: expected settings of"),
        ("none", "infusion.embedding.kind=add", "infusion.embedding: expected settings of"),
        ("masks", "infusion.lisa.weight=0.3", "infusion.lisa: expected settings of"),
        ("none", "training.learning_rate=.nan", "training.learning_rate: .*got nan"),
        ("none", "training.learning_rate=.inf", "training.learning_rate: .*got inf"),
        ("none", "training.learning_rates=[-1.0, 2e-5]", "training.learning_rates: .*got -1.0, 2e-05"),
        (
            "none",
            "training.learning_rates=[2e-5, 0.00002]",
            "training.learning_rates: .*once, got 2e-05, 2e-05",
        ),
    ],
)
def test_settings_that_are_refused(infuse, setting, problem):
    """Of what is not infused, and rates that nothing can be trained at."""
    with pytest.raises(ConfigError, match=problem):
        load_finetune(OPTIONS, infuse, [setting])


def test_settings_refine_what_is_infused():
    assert load_finetune(OPTIONS, "masks", ["infusion.masks.mode=additive"]).infusion.masks.mode == "additive"
    assert load_finetune(OPTIONS, "none", ["infusion.preset=paper"]).infusion.is_plain
    section = {"preset": "paper", "masks": {"max_distance": 4}}
    infusion = load_finetune(OPTIONS | {"infusion": section}, "masks,pos_add").infusion
    assert (infusion.preset, infusion.masks.max_distance) == ("paper", 4)
    assert infusion.embedding.kind == "add"
    assert load_finetune(OPTIONS, "", ["infusion.lisa.weight=0.3"]).infusion.lisa.weight == 0.3


def test_the_preset_fills_in_what_the_appendix_prints():
    options = OPTIONS | {"task": "snli", "preset": "paper"}
    config = load_finetune(options, "masks", ["training.weight_decay=0.02"])
    training = config.training
    assert (training.learning_rate, training.decay, training.warmup_frac) == (5e-4, 0.9, 0.0)
    assert (config.head_width, config.infusion.preset_of_masks) == (2000, "paper")
    assert training.weight_decay == 0.02
    settings = ["head_width=7", "infusion.preset=preserving"]
    of_trees = load_finetune(options | {"task": "sst1"}, "masks", settings)
    assert (of_trees.training.learning_rate, of_trees.training.decay) == (1e-4, None)
    assert (of_trees.head_width, of_trees.infusion.preset) == (7, "preserving")
    sections = {"infusion": InfusionConfig(masks={}), "training": FinetuneTraining(epochs=2)}
    in_python = FinetuneConfig(**{**options, **sections})
    assert in_python.infusion.preset == "paper"
    assert (in_python.training.decay, in_python.training.epochs) == (0.9, 2)
    with pytest.raises(ConfigError, match=r"preset: expected task sst1, .*, mnli, got cola\."):
        load_finetune(OPTIONS | {"preset": "paper"})


def _numbers(model, prefix=""):
    """Keys of all numbers of a section and of the sections in it."""
    for name, field in model.model_fields.items():
        if get_origin(field.annotation) is list:
            continue
        kinds = [field.annotation, *get_args(field.annotation)]
        for section in [one for one in kinds if isinstance(one, type) and issubclass(one, BaseModel)]:
            yield from _numbers(section, f"{prefix}{name}.")
        if float in kinds or int in kinds:
            yield f"{prefix}{name}"


@pytest.mark.parametrize("model", [Recipe, FinetuneConfig, Spec, ServiceConfig, Search])
@pytest.mark.parametrize("value", [math.inf, math.nan])
def test_no_number_of_any_verb_is_nan_or_infinite(model, value):
    keys = [*_numbers(model)]
    assert keys
    for key in keys:
        with pytest.raises(ConfigError) as caught:
            validate(model, apply_overrides({}, [f"{key}={'.inf' if value > 0 else '.nan'}"]), "run")
        assert [problem for problem in caught.value.problems if f"run: {key}" in problem], key
