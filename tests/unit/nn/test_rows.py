"""Rows in few numbers: what goes through position-wise layers is what would have gone without them."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from syntaxformer.nn.attention import SelfAttention
from syntaxformer.nn.kernels.on_cpu import from_rows, padded_count, to_rows
from syntaxformer.nn.transformer import FeedForward


def test_counts_by_hand() -> None:
    """Up to 15 every number; from 16 on eight numbers for each power of two: 16, 18, 20, … and 1024, 1152, …"""
    assert [padded_count(n) for n in (0, 1, 2, 7, 8, 15)] == [0, 1, 2, 7, 8, 15]
    assert [padded_count(n) for n in (16, 17, 18, 31, 32, 33)] == [16, 18, 18, 32, 32, 36]
    assert [padded_count(n) for n in (1024, 1025, 1900, 2047)] == [1024, 1152, 1920, 2048]
    assert [padded_count(n) for n in (2048, 2049)] == [2048, 2304]


def test_in_fp32_nothing_is_added() -> None:
    states = torch.randn(3, 7, 5)
    assert to_rows(states).shape == (3, 7, 5)
    assert to_rows(states.view(3, 7, 5, 1)).shape == (3, 7, 5)
    assert torch.equal(from_rows(to_rows(states), 3, 7), states)


@pytest.mark.parametrize("batch", [1, 5, 131])
def test_a_layer_gives_what_it_gives_without_rows(batch: int) -> None:
    torch.manual_seed(0)
    layer = FeedForward(11, 23, 0.0)
    states = torch.randn(batch, 7, 11, requires_grad=True)
    plain = nn.Sequential(layer.inner, nn.ReLU(), layer.outer)
    weights = list(layer.parameters())
    with torch.autocast("cpu", torch.bfloat16):
        output, expected = layer(states), plain(states)
    assert output.dtype == expected.dtype == torch.bfloat16
    torch.testing.assert_close(output, expected)
    up = torch.randn_like(output)
    for gradient, other in zip(
        torch.autograd.grad(output, [states, *weights], up),
        torch.autograd.grad(expected, [states, *weights], up),
        strict=True,
    ):
        assert gradient.dtype == other.dtype
        torch.testing.assert_close(gradient, other, atol=2e-2, rtol=2e-2)


@pytest.mark.parametrize("shape", [(0, 7, 11), (5, 0, 11)])
@pytest.mark.parametrize("autocast", [False, True])
def test_an_empty_batch_goes_through(shape: tuple[int, ...], autocast: bool) -> None:
    layers = SelfAttention(11, 1, 0.0), FeedForward(11, 23, 0.0)
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        assert layers[0](torch.zeros(shape))[0].shape == shape
        assert layers[1](torch.zeros(shape)).shape == shape


def test_any_memory_layout_and_the_padding_is_zero() -> None:
    heads = torch.randn(9, 4, 3, 5).bfloat16().transpose(1, 2)
    rows = to_rows(heads)
    assert rows.shape == (padded_count(27), 20)
    assert torch.equal(rows[:27].view(9, 3, 20), heads.flatten(2))
    assert (rows[27:] == 0).all()
    assert torch.equal(from_rows(rows, 9, 3), heads.flatten(2))


def test_padding_gets_no_gradient() -> None:
    weight = torch.ones(4, 4, dtype=torch.bfloat16, requires_grad=True)
    states = torch.ones(11, 3, 4, dtype=torch.bfloat16, requires_grad=True)
    from_rows(to_rows(states) @ weight + 1, 11, 3).sum().backward()
    torch.testing.assert_close(weight.grad, torch.full_like(weight, 33))
    torch.testing.assert_close(states.grad, torch.full_like(states, 4))
