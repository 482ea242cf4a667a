"""Attention: the fused path equals the plain formula, masks hold, empty rows are zero, caches change nothing."""

from __future__ import annotations

import pytest
import torch
from transformers.cache_utils import DynamicCache, EncoderDecoderCache

from syntaxformer.nn import attend, attention
from syntaxformer.nn.attention import CrossAttention, SelfAttention, attend_with_weights

B, H, N, D = 2, 3, 5, 7


def _qkv(dtype: torch.dtype = torch.float32, n_query: int = N) -> list[torch.Tensor]:
    torch.manual_seed(3)
    sizes = (n_query, N, N)
    return [torch.randn(B, H, n, D, dtype=dtype, requires_grad=True) for n in sizes]


@pytest.mark.parametrize("masking", ["none", "causal", "padding"])
def test_fused_equals_plain_in_values_and_gradients(masking: str) -> None:
    mask = (
        torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]]).bool()[:, None, None]
        if masking == "padding"
        else None
    )
    results = []
    for function in (attend, lambda *a: attend_with_weights(*a)[0]):
        query, key, value = _qkv()
        out = function(query, key, value, mask, masking == "causal")
        out.square().sum().backward()
        results.append((out, query.grad, key.grad, value.grad))
    for fused, plain in zip(*results, strict=True):
        torch.testing.assert_close(fused, plain, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("learns", [True, False])
@pytest.mark.parametrize("has_mask", [True, False])
def test_a_bias_goes_through_the_fused_kernel(learns: bool, has_mask: bool, monkeypatch) -> None:
    """A processor takes it to predict, other devices always; a row that sees no key is zero in both."""
    calls, fused = [], torch.nn.functional.scaled_dot_product_attention
    monkeypatch.setattr(
        torch.nn.functional,
        "scaled_dot_product_attention",
        lambda *args, **options: (calls.append(1), fused(*args, **options))[1],
    )
    if learns:
        monkeypatch.setattr(attention, "fuses_attention", lambda query, bias: True)
    mask = torch.ones(B, 1, N, N, dtype=torch.bool)
    mask[1, :, 2], mask[0, ..., 3] = False, False
    results = []
    for function in (attend, lambda *arguments: attend_with_weights(*arguments)[0]):
        states = [*_qkv(), torch.randn(1, H, N, N, requires_grad=True)]
        with torch.set_grad_enabled(learns):
            out = function(*states[:3], mask if has_mask else None, False, 0.0, states[3], 0.4)
        if learns:
            out.square().sum().backward()
        results.append([out, *(tensor.grad for tensor in states if learns)])
    assert len(calls) == 1
    assert not has_mask or results[0][0][1, :, 2].abs().max() == 0
    for fast, plain in zip(*results, strict=True):
        torch.testing.assert_close(fast, plain, atol=1e-5, rtol=1e-5)


def test_formula_by_hand() -> None:
    """One query, two keys: weights are e^a / (e^a + e^b) with a = 1/√4, b = 0."""
    query = torch.tensor([[[[1.0, 0, 0, 0]]]])
    key = torch.tensor([[[[1.0, 0, 0, 0], [0, 1.0, 0, 0]]]])
    value = torch.tensor([[[[10.0, 0, 0, 0], [20.0, 0, 0, 0]]]])
    out, weights = attend_with_weights(query, key, value)
    first = torch.tensor(0.5).exp() / (torch.tensor(0.5).exp() + 1)
    torch.testing.assert_close(weights.flatten(), torch.stack([first, 1 - first]))
    torch.testing.assert_close(out[0, 0, 0, 0], 10 * first + 20 * (1 - first))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("train", [True, False])
def test_a_row_without_keys_is_zero_and_has_finite_gradients(dtype: torch.dtype, train: bool) -> None:
    query, key, value = _qkv(dtype)
    mask = torch.ones(B, 1, N, N, dtype=torch.bool)
    mask[1, :, 2] = False
    with torch.set_grad_enabled(train):
        out = attend(query, key, value, mask)
    assert out[1, :, 2].abs().max() == 0
    if train:
        out.float().square().sum().backward()
        assert all(torch.isfinite(tensor.grad).all() for tensor in (query, key, value))


def test_a_padded_key_has_no_influence() -> None:
    torch.manual_seed(1)
    layer = SelfAttention(D * H, H).eval()
    states = torch.randn(B, N, D * H)
    mask = torch.tensor([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]]).bool()[:, None, None]
    before, _ = layer(states, mask)
    states[0, 3:] = 1e3
    after, _ = layer(states, mask)
    torch.testing.assert_close(before[0, :3], after[0, :3])


def test_cached_self_attention_equals_one_pass() -> None:
    torch.manual_seed(1)
    layer = SelfAttention(D * H, H).eval()
    states = torch.randn(B, N, D * H)
    whole, _ = layer(states, causal=True)
    cache = DynamicCache()
    parts = [
        layer(states[:, start:stop], causal=True, cache=cache)[0] for start, stop in ((0, 1), (1, 2), (2, 5))
    ]
    torch.testing.assert_close(torch.cat(parts, 1), whole)


def test_cached_cross_attention_projects_the_memory_once() -> None:
    torch.manual_seed(1)
    layer = CrossAttention(D * H, H).eval()
    states, memory = torch.randn(B, 1, D * H), torch.randn(B, N, D * H)
    cache = EncoderDecoderCache(DynamicCache(), DynamicCache())
    first, _ = layer(states, memory, cache=cache)
    second, _ = layer(states, torch.full_like(memory, torch.nan), cache=cache)
    torch.testing.assert_close(first, second)


def test_heads_must_divide_the_width() -> None:
    with pytest.raises(ValueError, match=r"n_heads: expected a divisor of d_model = 10, got 3\."):
        SelfAttention(10, 3)
