"""Syntax inside one attention: what each part does by hand, and that all of them go together."""

from __future__ import annotations

import pytest
import torch

from syntaxformer.nn import (
    MaskRules,
    RelationIndex,
    SelfAttention,
    SyntaxContext,
    SyntaxHeads,
    TopicalAttention,
    attend_with_weights,
    syntax_attention_reference,
)

BATCH, N, D, HEADS, DISTANCE = 3, 7, 22, 2, 5


def _attention(**parts: object) -> SelfAttention:
    torch.manual_seed(11)
    return SelfAttention(D, HEADS, syntax=SyntaxHeads(D, HEADS, **parts)).eval()


def _states() -> torch.Tensor:
    torch.manual_seed(2)
    return torch.randn(BATCH, N, D)


def _relations(n_trees: int = 2) -> torch.Tensor:
    torch.manual_seed(5)
    return torch.randint(0, 3 * DISTANCE + 2, (BATCH, n_trees, N, N), dtype=torch.uint8)


def _plain(attention: SelfAttention, states: torch.Tensor) -> torch.Tensor:
    twin = SelfAttention(D, HEADS).eval()
    twin.load_state_dict({k: v for k, v in attention.state_dict().items() if not k.startswith("syntax.")})
    return twin(states)[0]


def test_a_new_biaffine_head_is_the_scaled_product_it_replaces():
    attention, states = _attention(lisa_head=1), _states()
    found, _ = attention(states, context=SyntaxContext())
    torch.testing.assert_close(found, _plain(attention, states), atol=1e-6, rtol=1e-5)


def test_logits_of_the_biaffine_head_by_hand():
    attention, states = _attention(lisa_head=1), _states()
    with torch.no_grad():
        attention.syntax.lisa.weight.normal_()
    query, key, _ = attention._project(states, attention.query_key_value, 3)
    mask = torch.ones(BATCH, 1, 1, N, dtype=torch.bool)
    mask[1, ..., 4:] = False
    context = SyntaxContext(wants_logits=True)
    _, weights = attention(states, mask, return_weights=True, context=context)
    (logits,) = context.logits
    expected = query[:, 1] @ attention.syntax.lisa.weight @ key[:, 1].transpose(-1, -2)
    torch.testing.assert_close(logits[0], expected[0])
    assert logits[1, :, 4:].eq(-torch.inf).all()
    torch.testing.assert_close(weights[:, 1], logits.softmax(-1), atol=1e-5, rtol=1e-4)


def test_injected_governors_are_all_that_the_head_sees():
    attention, states = _attention(lisa_head=0), _states()
    governors = torch.tensor([[3, 0, -100, 3, 1, 5, 5]]).repeat(BATCH, 1)
    found, _ = attention(states, context=SyntaxContext(injected=governors))
    query, key, value = attention._project(states, attention.query_key_value, 3)
    heads, _ = attend_with_weights(query, key, value)
    for piece, governor in enumerate(governors[0].tolist()):
        if governor >= 0:
            heads[:, 0, piece] = value[:, 0, governor]
    torch.testing.assert_close(found, attention.output(heads.transpose(1, 2).flatten(2)))


def test_a_closed_gate_is_plain_attention():
    attention, states = _attention(masks=MaskRules()), _states()
    context = SyntaxContext(
        index=RelationIndex.of(_relations(), None, DISTANCE), topical=TopicalAttention(D, HEADS)
    )
    found, weights = attention(states, context=context)
    assert weights is None
    torch.testing.assert_close(found, _plain(attention, states), atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("mode", ["multiplicative", "additive"])
def test_the_papers_form_is_the_literal_loop(mode):
    attention, states, relations = _attention(masks=MaskRules(mode=mode, gate=None)), _states(), _relations()
    topical = TopicalAttention(D, HEADS, init_std=1.0)
    context = SyntaxContext(index=RelationIndex.of(relations, None, DISTANCE), topical=topical)
    found, _ = attention(states, context=context)
    query, key, value = attention._project(states, attention.query_key_value, 3)
    heads, _ = syntax_attention_reference(
        query, key, value, relations, topical.head_queries(attention.output.weight), mode=mode,
        max_distance=DISTANCE,
    )  # fmt: skip
    expected = topical.map(attention.output(heads.transpose(1, 2).flatten(2)))
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)


def test_a_bias_by_relation_is_added_to_the_logits():
    attention, states, relations = _attention(bias_shape=(1, DISTANCE)), _states(), _relations(1)
    context = SyntaxContext(relations=relations)
    found, _ = attention(states, context=context)
    torch.testing.assert_close(found, _plain(attention, states), atol=1e-6, rtol=1e-5)
    with torch.no_grad():
        attention.syntax.bias.weight.normal_()
    _, weights = attention(states, context=context, return_weights=True)
    query, key, _ = attention._project(states, attention.query_key_value, 3)
    bias = attention.syntax.bias.weight[0][relations[:, 0].long()].permute(0, 3, 1, 2)
    logits = query @ key.transpose(-1, -2) / (D // HEADS) ** 0.5 + bias
    torch.testing.assert_close(weights, logits.softmax(-1), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("parts", [{"masks": MaskRules()}, {"bias_shape": (2, DISTANCE)}])
def test_missing_relations_are_named(parts):
    with pytest.raises(ValueError, match=r": expected the relations of the batch, got none\.$"):
        _attention(**parts)(_states(), context=SyntaxContext())


def test_a_head_that_is_not_there():
    with pytest.raises(ValueError, match=r"^lisa head: expected 0 to 1, got 2\.$"):
        SyntaxHeads(D, HEADS, lisa_head=2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_all_parts_together_have_gradients(dtype):
    attention = _attention(lisa_head=1, masks=MaskRules(gate="head"), bias_shape=(2, DISTANCE)).train()
    topical, relations = TopicalAttention(D, HEADS), _relations()
    with torch.no_grad():
        attention.syntax.gate.weight.fill_(0.5)
    key_mask = torch.ones(BATCH, N, dtype=torch.bool)
    key_mask[0, 5:] = False
    context = SyntaxContext(
        relations, RelationIndex.of(relations, key_mask, DISTANCE), topical, wants_logits=True
    )
    with torch.autocast("cpu", torch.bfloat16, enabled=dtype == torch.bfloat16):
        found, _ = attention(_states(), key_mask[:, None, None], context=context)
    (found.float().square().sum() + context.logits[0][1:].square().sum()).backward()
    for name, parameter in [*attention.named_parameters(), *topical.named_parameters()]:
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        assert parameter.grad.any() or name.endswith("bias"), name
