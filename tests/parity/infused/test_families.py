"""The plug-in in every family: with its gate closed it is the plain model, with its gate open syntax arrives."""

from __future__ import annotations

import logging

import pytest
import torch
from torch.testing import assert_close

import syntaxformer as sf
from tiny_hosts import EXHAUSTIVE

EVERYTHING = "masks,relation_bias,lisa,pos_add"


def _chosen(names, *in_full):
    """Pairs with every kind of padding; in `make test` those of some names, and the others padded to the right."""
    pairs = [(name, padded) for name in names for padded in (False, True, "left")]
    return [(name, padded) for name, padded in pairs if EXHAUSTIVE or padded is True or name in in_full]


def _of_pieces(scores, batch):
    """States of padding are nobody's business."""
    return scores[batch.mask] if scores.shape[:2] == batch.mask.shape else scores


@pytest.mark.parametrize(
    ("names", "padded"), _chosen(["masks", "relation_bias", "lisa", EVERYTHING], "relation_bias", EVERYTHING)
)
def test_closed_the_model_is_the_plain_one(tiny, model_name, padded, names):
    _is_plain_at_first(tiny, model_name, padded, names)


@pytest.mark.parametrize(("names", "padded"), _chosen(["pos_add", "pos_concat"], "pos_add"))
def test_with_tags_of_nothing_the_model_is_the_plain_one(tiny, any_model, padded, names):
    """Positions are those of the pieces, wherever the padding is."""
    _is_plain_at_first(tiny, any_model, padded, names)


def _is_plain_at_first(tiny, name, padded, names):
    model, batch = tiny.model(name), tiny.batch(name, padded)
    with torch.no_grad():
        plain = tiny.scores(model(**batch.inputs))
    sf.infuse(model, names)
    found = tiny.run(model, batch)
    limit = 5e-6 if "t5" in name else 1e-6  # T5 does not scale its logits
    limit *= float(plain.abs().max().clamp(min=1))
    assert_close(_of_pieces(found, batch), _of_pieces(plain, batch), atol=limit, rtol=0)


def test_names_of_the_backbone_stay_and_all_that_is_new_is_one_module(tiny, any_model):
    model = tiny.model(any_model)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    sf.infuse(model, tiny.all_of(any_model))
    after = model.state_dict()
    new = [name for name in after if name not in before]
    assert [name for name in after if name in before] == list(before)
    assert new
    assert all(name.startswith("infusion.") for name in new)
    assert all(torch.equal(after[name], value) for name, value in before.items())


@pytest.mark.parametrize("preset", ["preserving", "paper"])
def test_relations_reach_the_output(tiny, model_name, preset):
    model, batch = tiny.infused(model_name, preset=preset, masks={})
    found = tiny.run(model, batch)
    assert bool(found.isfinite().all())
    others = tiny.run(model, batch, syntax=batch.syntax["syntax"].flip(0))
    assert float((_of_pieces(others - found, batch)).abs().max()) > 1e-5


def test_every_layer_has_its_masks(tiny, family):
    model, batch = tiny.infused(family, masks={}, opens=False)
    closed = tiny.run(model, batch)
    assert model.infusion.masked_layers
    for gate in model.infusion.gates.values():
        with torch.no_grad():
            gate.weight.fill_(0.7)
            opened = tiny.run(model, batch)
            gate.weight.zero_()
        assert float(_of_pieces(opened - closed, batch).abs().max()) > 1e-5


def test_a_padded_key_has_no_influence(tiny, any_family):
    model, batch = tiny.infused(any_family, tiny.all_of(any_family))
    expected = tiny.run(model, batch)
    padding = ~batch.mask
    other_pieces = batch.inputs["input_ids"].masked_fill(padding, 5)
    changes = {"factor_ids": batch.syntax["factor_ids"].masked_fill(padding[..., None], 2)}
    if "syntax" in batch.syntax:
        relations = changes["syntax"] = batch.syntax["syntax"].clone()
        relations[padding[:, None, None, :].expand_as(relations)] = 3
    found = tiny.run(model, batch, input_ids=other_pieces, **changes)
    assert_close(_of_pieces(found, batch), _of_pieces(expected, batch), atol=1e-5, rtol=1e-5)


def test_a_plain_class_of_transformers_reads_the_backbone_and_names_us(tiny, any_model, tmp_path, caplog):
    """Whoever names the class of the plain model gets that, and two warnings: whose model it is, what is unused."""
    model = tiny.model(any_model)
    backbone = {name: value.clone() for name, value in model.state_dict().items()}
    plain_class = type(model)
    sf.infuse(model, tiny.all_of(any_model))
    model.save_pretrained(tmp_path)
    logger = logging.getLogger("transformers")
    logger.addHandler(caplog.handler)
    try:
        plain = plain_class.from_pretrained(tmp_path)
    finally:
        logger.removeHandler(caplog.handler)
    assert "You are using a model of type `syntaxformer_infused`" in caplog.text
    assert "infusion." in caplog.text
    assert not hasattr(plain, "infusion")
    assert plain.config._attn_implementation != "syntax"
    assert all(torch.equal(value, backbone[name]) for name, value in plain.state_dict().items())


def test_a_step_of_training_moves_gates_then_topical_attention(tiny, model_name):
    """Behind a closed gate topical attention has no gradient; the gate opens first."""
    model, batch = tiny.model(model_name).train(), tiny.batch(model_name)
    sf.infuse(model, sf.InfusionConfig(masks={}))
    parameters = [parameter for _, parameter in sf.infusion_parameters(model)]
    before = [parameter.detach().clone() for parameter in parameters]
    optimizer = torch.optim.SGD(parameters, lr=1.0)
    for _ in range(2):
        tiny.scores(model(**batch.inputs, **batch.syntax)).square().sum().backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        optimizer.zero_grad()
    for (name, now), then in zip(sf.infusion_parameters(model), before, strict=True):
        assert not torch.equal(now, then), name
