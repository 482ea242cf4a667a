"""LISA: the head, its supervision and injected governors."""

from __future__ import annotations

import math

import torch

from syntaxformer.nn import (
    BiaffineHead,
    attend,
    governor_hits,
    governor_loss,
    inject_governors,
    syntax_attention,
)

BATCH, PIECES, D_QUERY, D_KEY, D_VALUE = 2, 7, 11, 5, 3

# [CLS] the cat ##s sleep [SEP] [PAD]: the <- cats <- sleep; and [CLS] go [SEP] and padding.
FIRST_PIECES = torch.tensor([[0, 1, 1, 0, 1, 0, 0], [0, 1, 0, 0, 0, 0, 0]]).bool()
TARGETS = torch.tensor([[-100, 2, 4, 2, 4, -100, -100], [-100, 1, -100, -100, -100, -100, -100]])


def _head_inputs() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    return tuple(torch.randn(BATCH, PIECES, d, requires_grad=True) for d in (D_QUERY, D_KEY, D_VALUE))


def test_head_is_its_formula() -> None:
    query, key, value = _head_inputs()
    head = BiaffineHead(D_QUERY, D_KEY)
    output, logits = head.attend(query, key, value)
    torch.testing.assert_close(logits, torch.einsum("bid,de,bje->bij", query, head.weight, key))
    torch.testing.assert_close(output, logits.softmax(-1) @ value)


def test_a_square_head_starts_as_the_head_it_replaces() -> None:
    query, key, value = (torch.randn(BATCH, 3, PIECES, D_KEY) for _ in range(3))
    head = BiaffineHead(D_KEY)
    output, _ = head.attend(query[:, 1], key[:, 1], value[:, 1])
    torch.testing.assert_close(output, attend(query, key, value)[:, 1])
    substituted = head.substitute(query, 1, D_KEY**-0.5)
    torch.testing.assert_close(substituted, query)


def test_substituted_queries_make_any_attention_biaffine() -> None:
    query, key, value = (torch.randn(BATCH, 3, PIECES, D_KEY) for _ in range(3))
    head = BiaffineHead(D_KEY)
    torch.nn.init.normal_(head.weight)
    key_mask = torch.arange(PIECES) < torch.tensor([PIECES, 5])[:, None]
    substituted = head.substitute(query, 2, D_KEY**-0.5)
    output = attend(substituted, key, value, key_mask[:, None, None])
    expected, _ = head.attend(query[:, 2], key[:, 2], value[:, 2], key_mask)
    torch.testing.assert_close(output[:, 2], expected)
    torch.testing.assert_close(output[:, :2], attend(query, key, value, key_mask[:, None, None])[:, :2])
    relations = torch.zeros(BATCH, 1, PIECES, PIECES, dtype=torch.uint8)
    closed, _ = syntax_attention(
        substituted, key, value, relations, torch.zeros(3, D_KEY), key_mask, gate=torch.tensor(0.0)
    )
    torch.testing.assert_close(closed, output)


def test_padded_keys_have_no_influence_and_a_row_of_padding_is_zero() -> None:
    query, key, value = _head_inputs()
    head = BiaffineHead(D_QUERY, D_KEY)
    key_mask = torch.tensor([[True] * 4 + [False] * 3, [False] * PIECES])
    output, logits = head.attend(query, key, value, key_mask)
    short, short_logits = head.attend(query[:1, :4], key[:1, :4], value[:1, :4])
    torch.testing.assert_close(output[:1, :4], short)
    torch.testing.assert_close(logits[:1, :4, :4], short_logits)
    assert output[1].abs().max() == 0
    output.square().sum().backward()
    assert all(torch.isfinite(tensor.grad).all() for tensor in (query, key, value, head.weight))
    assert key.grad[0, 4:].abs().max() == 0


def test_injected_governors_are_one_hot_attention() -> None:
    query, key, value = _head_inputs()
    head = BiaffineHead(D_QUERY, D_KEY)
    free, _ = head.attend(query, key, value)
    output, _ = head.attend(query, key, value, governors=TARGETS)
    assert torch.equal(output[0, 1], value[0, 2])
    assert torch.equal(output[0, 4], value[0, 4])
    assert torch.equal(output[1, 0], free[1, 0])
    heads, values = torch.randn(BATCH, 3, PIECES, 2), torch.randn(BATCH, 3, PIECES, 2)
    injected = inject_governors(heads, values, TARGETS, 1)
    assert torch.equal(injected[0, 1, 3], values[0, 1, 2])
    assert torch.equal(injected[:, [0, 2]], heads[:, [0, 2]])


def test_loss_by_hand() -> None:
    """Uniform over 5 valid keys: log 5. Nothing supervised: 0, with gradients."""
    logits = torch.zeros(BATCH, PIECES, PIECES)
    logits[..., 5:] = -torch.inf
    logits = logits.requires_grad_()
    torch.testing.assert_close(governor_loss(logits, TARGETS), torch.tensor(math.log(5)))
    nothing = governor_loss(logits, torch.full((BATCH, PIECES), -100))
    nothing.backward()
    assert nothing == 0
    assert torch.isfinite(logits.grad).all()


def test_hits_by_hand() -> None:
    """Pieces 1 to 4 of the first, 1 of the second; wrong: the later piece ##s and the root go."""
    chosen = torch.tensor([[0, 2, 4, 3, 4, 0, 0], [0, 0, 0, 0, 0, 0, 0]])
    assert governor_hits(chosen, TARGETS) == (3, 5)
    assert governor_hits(chosen, TARGETS, FIRST_PIECES) == (3, 4)
