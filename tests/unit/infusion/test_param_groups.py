"""`param_groups`: each parameter once, its rate by whose it is, its decay as Trainer's."""

from __future__ import annotations

import pytest
import torch
import transformers as hf

import syntaxformer as sf
from tiny_hosts import BERT, host_of


def make(kind):
    config, model, sizes = host_of(kind, BERT)
    return model(config(**sizes))


def names_of(model, group):
    ids = {id(parameter) for parameter in group["params"]}
    return {name for name, parameter in model.named_parameters() if id(parameter) in ids}


@pytest.mark.parametrize("family", ["bert", "t5"])
def test_every_parameter_is_in_one_group(family, tmp_path):
    model = sf.infuse(make(family), "masks,relation_bias,lisa,pos_add")
    groups = sf.param_groups(model, lr=1e-5, infusion_lr=1e-3, weight_decay=0.1)
    assert sum(len(group["params"]) for group in groups) == len(list(model.parameters()))
    new = {name for name, _ in sf.infusion_parameters(model)}
    arguments = hf.TrainingArguments(str(tmp_path), report_to="none", use_cpu=True)
    decaying = set(hf.Trainer(model, arguments).get_decay_parameter_names(model))
    for group in groups:
        names = names_of(model, group)
        is_new = names <= new
        assert is_new or not names & new
        assert group["lr"] == (1e-3 if is_new else 1e-5)
        assert names <= decaying if group["weight_decay"] else is_new or not names & decaying
    bare = set().union(*(names_of(model, group) for group in groups if not group["weight_decay"]))
    assert {name for name in new if ".gates." in name or ".relation_bias." in name} <= bare


def test_what_is_frozen_and_what_is_plain():
    model = sf.infuse(make("bert"), "pos_add")
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name.startswith("infusion."))
    (group,) = sf.param_groups(model, infusion_lr=2e-3)
    assert (group["lr"], group["weight_decay"]) == (2e-3, 0.0)
    (group,) = sf.param_groups(model, lr=0.3)
    assert group["lr"] == 0.3, "new parameters train at the host's rate unless told otherwise"
    assert names_of(model, group) == {name for name, _ in sf.infusion_parameters(model)}
    assert {group["lr"] for group in sf.param_groups(make("bert"), lr=0.3)} == {0.3}


@pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning")
def test_within_peft():
    import peft

    options = {"target_modules": ["query"], "modules_to_save": ["infusion"]}
    model = peft.get_peft_model(sf.infuse(make("bert"), "masks,lisa"), peft.LoraConfig(r=2, **options))
    groups = sf.param_groups(model, infusion_lr=2e-3, weight_decay=0.1)
    grouped = {id(parameter) for group in groups for parameter in group["params"]}
    assert grouped == {id(parameter) for parameter in model.parameters() if parameter.requires_grad}
    assert all("lora" in name for group in groups if group["lr"] == 3e-5 for name in names_of(model, group))
    assert all(
        "infusion" in name for group in groups if group["lr"] == 2e-3 for name in names_of(model, group)
    )
    torch.optim.AdamW(groups)
