"""Settings of a fine-tuning run: what refines an infusion must not switch one on."""

from __future__ import annotations

import pytest

from syntaxformer.errors import ConfigError
from syntaxformer.training.finetune_config import load_finetune

OPTIONS = {"task": "cola", "model": "encoder", "output": "out", "data": {"dir": "data"}}


@pytest.mark.parametrize(
    ("infuse", "setting", "kind"),
    [
        ("none", "infusion.masks.mode=additive", "masks"),
        ("none", "infusion.pos=add", "pos"),
        ("masks", "infusion.lisa.weight=0.3", "lisa"),
    ],
)
def test_settings_of_what_is_not_infused_are_refused(infuse, setting, kind):
    with pytest.raises(ConfigError) as caught:
        load_finetune(OPTIONS, infuse, [setting])
    assert str(caught.value) == (
        f"infusion.{kind}: expected settings of what is infused, {infuse}, got some of {kind}. "
        "Name it in --infuse, or leave them out."
    )


def test_settings_refine_what_is_infused():
    assert load_finetune(OPTIONS, "masks", ["infusion.masks.mode=additive"]).infusion.masks.mode == "additive"
    assert load_finetune(OPTIONS, "none", ["infusion.preset=paper"]).infusion.is_plain
    assert load_finetune(OPTIONS, "", ["infusion.lisa.weight=0.3"]).infusion.lisa.weight == 0.3
