"""Settings of a fine-tuning run: what refines an infusion must not switch one on."""

from __future__ import annotations

import pytest

from syntaxformer.base.errors import ConfigError
from syntaxformer.encoders.finetune_config import load_finetune

OPTIONS = {"task": "cola", "model": "encoder", "output": "out", "data": {"dir": "data"}}


@pytest.mark.parametrize(
    ("infuse", "setting", "kind"),
    [
        ("none", "infusion.masks.mode=additive", "masks"),
        ("none", "infusion.embedding.kind=add", "embedding"),
        ("masks", "infusion.lisa.weight=0.3", "lisa"),
    ],
)
def test_settings_of_what_is_not_infused_are_refused(infuse, setting, kind):
    with pytest.raises(ConfigError) as caught:
        load_finetune(OPTIONS, infuse, [setting])
    assert str(caught.value) == (
        f"infusion.{kind}: expected settings of {infuse}, got some of {kind}. "
        "Name it in --infuse, or leave them out."
    )


def test_settings_refine_what_is_infused():
    assert load_finetune(OPTIONS, "masks", ["infusion.masks.mode=additive"]).infusion.masks.mode == "additive"
    assert load_finetune(OPTIONS, "none", ["infusion.preset=paper"]).infusion.is_plain
    section = {"preset": "paper", "masks": {"max_distance": 4}}
    infusion = load_finetune(OPTIONS | {"infusion": section}, "masks,pos_add").infusion
    assert (infusion.preset, infusion.masks.max_distance) == ("paper", 4)
    assert infusion.embedding.kind == "add"
    assert load_finetune(OPTIONS, "", ["infusion.lisa.weight=0.3"]).infusion.lisa.weight == 0.3


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("training.learning_rate=.nan", "training.learning_rate: expected a number over 0 or auto, got nan."),
        ("training.learning_rate=.inf", "training.learning_rate: expected a number over 0 or auto, got inf."),
        (
            "training.learning_rates=[-1.0, 2e-5]",
            "training.learning_rates: expected numbers over 0, got -1.0, 2e-05.",
        ),
        (
            "training.learning_rates=[2e-5, 0.00002]",
            "training.learning_rates: expected each rate once, got 2e-05, 2e-05.",
        ),
    ],
)
def test_rates_that_nothing_can_be_trained_at(setting, message):
    with pytest.raises(ConfigError) as caught:
        load_finetune(OPTIONS, "none", [setting])
    assert message in str(caught.value)


def test_a_dropout_of_nothing_is_refused(config_of):
    with pytest.raises(ConfigError, match=r"training\.syntax_dropout: expected 0 without tags or relations"):
        config_of("training.syntax_dropout=0.1")
    assert config_of("training.syntax_dropout=0.1", infuse="pos_add").training.syntax_dropout == 0.1
