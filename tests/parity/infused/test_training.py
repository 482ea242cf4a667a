"""Infused models in training and generation: as transformers trains and generates plain ones."""

from __future__ import annotations

import pytest
import torch
from torch.testing import assert_close

import syntaxformer as sf
from syntaxformer.syntax.inputs import NO_GOVERNOR

EVERYTHING = "masks,relation_bias,lisa,pos_add"


def test_two_batches_before_their_gradients(tiny):
    """Each checkpointed forward pass finds its own batch again, not the last one."""
    model, batch = tiny.infused("bert", "masks,relation_bias")
    model.train()
    other = {**batch.syntax, "syntax": batch.syntax["syntax"].flip(0)}

    def gradient():
        model.zero_grad()
        both = [model(**batch.inputs, **syntax).logits.square().sum() for syntax in (batch.syntax, other)]
        sum(both).backward()
        return model.infusion.topical["shared"].key.grad.clone()

    expected = gradient()
    model.activation_checkpointing_enable({"use_reentrant": False})
    assert_close(gradient(), expected, atol=1e-5, rtol=1e-4)


def test_the_loss_of_pointing_is_added_in_training(tiny):
    model, batch = tiny.model("bert"), tiny.batch()
    labels = torch.tensor([0, 2, 1, 0, 1])
    plain = model(**batch.inputs, labels=labels).loss.item()
    sf.infuse(model, sf.InfusionConfig(lisa={"weight": 0.3}))
    inputs = {**batch.inputs, **batch.syntax, "labels": labels}
    assert model(**inputs).loss.item() == pytest.approx(plain)
    pointing = model.infusion.seen.governor_loss().item()
    model.train()
    assert model(**inputs).loss.item() == pytest.approx(plain + 0.3 * pointing)
    assert model(**inputs, return_dict=False)[0].item() == pytest.approx(plain + 0.3 * pointing)
    inputs.pop("governors")
    assert model(**inputs).loss.item() == pytest.approx(plain)
    assert model.infusion.seen.governor_loss() is None


def test_a_loss_of_pointing_that_cannot_be_added_is_left_for_the_caller(tiny, caplog):
    """As under label smoothing in transformers' Trainer, which takes the labels out of the batch."""
    model, batch = tiny.infused("bert", lisa={"weight": 0.3}, opens=False)
    inputs, weight = {**batch.inputs, **batch.syntax}, model.infusion.lisa["1"].weight
    model(**inputs)
    with torch.no_grad():
        model.train()(**inputs)
    model(**inputs, labels=torch.tensor([0, 2, 1, 0, 1]))
    assert not model.infusion.seen.governor_loss().requires_grad
    assert not caplog.records
    for return_dict in (True, False):
        model(**inputs, return_dict=return_dict)
        (gradient,) = torch.autograd.grad(model.infusion.seen.governor_loss(), weight)
        assert float(gradient.abs().max()) > 0
    (record,) = caplog.records
    assert record.getMessage().endswith(
        "Add infusion.config.lisa.weight * infusion.seen.governor_loss() to your loss."
    )


def test_the_loss_of_pointing_is_the_cross_entropy(tiny):
    """One piece alone is supervised: its logits over the valid pieces, worked out from the layer's states."""
    model, batch = tiny.infused("bert", "lisa")
    seen = {}
    attention = model.bert.encoder.layer[1].attention.self
    attention.register_forward_pre_hook(lambda module, args: seen.update(states=args[0]))
    governors = torch.full_like(batch.syntax["governors"], NO_GOVERNOR)
    governors[1, 2] = 5
    model(**batch.inputs, governors=governors)
    query, key = (linear(seen["states"][1])[:, :7] for linear in (attention.query, attention.key))
    logits = query[2] @ model.infusion.lisa["1"].weight @ key[:7].T
    assert_close(model.infusion.seen.governor_loss(), -logits.log_softmax(-1)[5])
    assert model.infusion.seen.governor_hits() == {1: (int(logits.argmax() == 5), 1)}


@pytest.mark.parametrize("keys", ["head", "model"])
@pytest.mark.parametrize("kind", ["bert", "t5-encoder", "umt5", "marian"])
def test_what_points_is_what_attends(tiny, kind, keys):
    """Also where positions have a bias, as in T5: the loss is that of the head's own logits."""
    model, batch = tiny.infused(kind, lisa={"attn_head": 1, "keys": keys}, opens=False)
    torch.nn.init.normal_(model.infusion.lisa["1"].weight)
    seen, governors = tiny.recorded(model, batch, attention=True), batch.syntax["governors"]
    logits = seen.logits[1][-1][:, 1].masked_fill(~batch.mask[:, None], -torch.inf)
    assert torch.equal(seen.pointed_at[1][-1], logits.argmax(-1))
    valid = governors >= 0
    loss = torch.nn.functional.cross_entropy(logits[valid], governors[valid])
    assert_close(seen.governor_loss(), loss, atol=1e-5, rtol=1e-5)


def test_what_is_recorded_in_training_is_not_dropped(tiny):
    """Weights of attention add up to one, though the layer drops some."""
    model, batch = tiny.model("bert", attention_probs_dropout_prob=0.5), tiny.batch()
    sf.infuse(model, sf.InfusionConfig.parse("masks,lisa"))
    sums = tiny.recorded(model.train(), batch, attention=True).attention[1][-1].sum(-1)
    assert_close(sums, torch.ones_like(sums), atol=1e-5, rtol=0)


def test_hits_count_words_where_first_pieces_are_given(tiny):
    model, batch = tiny.infused("bert", "lisa", opens=False)
    first = torch.zeros(tiny.size, tiny.pieces, dtype=torch.bool)
    first[:, 1:4] = True
    model(**batch.inputs, **batch.syntax, first_pieces=first)
    seen = model.infusion.seen
    hits = seen.pointed_at[1][-1][:, 1:4] == batch.syntax["governors"][:, 1:4]
    assert seen.governor_hits() == {1: (int(hits.sum()), 15)}


@pytest.mark.parametrize("keys", ["head", "model"])
def test_gold_governors_are_looked_at(tiny, keys):
    model, batch = tiny.infused("bert", lisa={"inject": "gold", "attn_head": 2, "keys": keys}, opens=False)
    attention = tiny.recorded(model, batch, attention=True).attention[1][-1]
    governors = batch.syntax["governors"]
    valid = governors >= 0
    one_hot = torch.nn.functional.one_hot(governors.clamp(min=0), tiny.pieces).float()
    assert torch.equal(attention[:, 2][valid], one_hot[valid])
    assert not torch.equal(attention[:, 1][valid], one_hot[valid])


def test_keys_of_the_whole_model(tiny):
    """LISA of Bai et al. (2021): d_head x d_model for each layer; its logits are those of attention."""
    model, batch = tiny.infused("bert", lisa={"keys": "model", "layers": [0, 1]}, opens=False)
    weight = model.infusion.lisa["1"].weight
    assert weight.shape == (7, 21)
    seen = {}
    module = model.bert.encoder.layer[1].attention.self
    module.register_forward_pre_hook(lambda module, args: seen.update(states=args[0]))
    attention = tiny.recorded(model, batch, attention=True).attention[1][-1]
    query, key = module.query(seen["states"])[..., :7], module.key(seen["states"])
    logits = (query @ weight @ key.transpose(1, 2)).masked_fill(~batch.mask[:, None], -torch.inf)
    assert_close(attention[:, 0][batch.mask], logits.softmax(-1)[batch.mask], atol=1e-6, rtol=1e-5)


def test_autocast_to_bfloat16(tiny, family):
    model, batch = tiny.infused(family, EVERYTHING, opens=False)
    model.train()
    tiny.open(model, 0.2)
    expected = tiny.run(model.eval(), batch)
    with torch.autocast("cpu", torch.bfloat16):
        found = tiny.scores(model(**batch.inputs, **batch.syntax))
    scale = float(expected.abs().max())
    assert (found.float() - expected)[_rows(found, batch)].abs().mean().item() < 0.05 * scale
    found.float().square().sum().backward()
    assert all(bool(p.grad.isfinite().all()) for _, p in sf.infusion_parameters(model) if p.grad is not None)


def _rows(found, batch):
    return batch.mask if found.shape[:2] == batch.mask.shape else torch.ones(len(found), dtype=torch.bool)


def test_a_decoder_that_shares_the_table_gets_no_tags(tiny):
    model, batch = tiny.model("t5-generation"), tiny.batch("t5-generation")
    model.set_input_embeddings(model.get_input_embeddings())
    with torch.no_grad():
        plain = model(**batch.inputs).logits
    sf.infuse(model, sf.InfusionConfig.parse("pos_add"))
    tags, labels = {"factor_ids": batch.syntax["factor_ids"]}, batch.inputs["labels"]
    source = {key: batch.inputs[key] for key in ("input_ids", "attention_mask")}
    with torch.no_grad():
        assert torch.equal(model(**batch.inputs, **tags).logits, plain)
        tiny.open(model)
        encoded, mask = model.encoder(**source, **tags), source["attention_mask"]
        expected = model(labels=labels, attention_mask=mask, encoder_outputs=encoded).logits
        assert_close(model(**batch.inputs, **tags).logits, expected)
