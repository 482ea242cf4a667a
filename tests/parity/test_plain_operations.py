"""All kernels that are there for speed give what the textbook path gives, in one training step."""

from __future__ import annotations

import pytest
import torch

from syntaxformer.nn.kernels.on_cpu import plain_operations
from syntaxformer.nn.transformer import DecoderLayer, EncoderLayer


def step(dtype: torch.dtype) -> list[torch.Tensor]:
    """Output and gradients of an encoder and a decoder layer, from the same weights."""
    torch.manual_seed(7)
    encoder, decoder = EncoderLayer(12, 3, 17), DecoderLayer(12, 3, 17)
    src, tgt = torch.randn(5, 11, 12), torch.randn(5, 7, 12)
    mask = torch.arange(11) < torch.tensor([11, 3, 7, 1, 5])[:, None]
    with torch.autocast("cpu", dtype, enabled=dtype != torch.float32):
        memory, _ = encoder(src, mask[:, None, None])
        states, _, _ = decoder(tgt, memory, mask[:, None, None])
    states.float().square().mean().backward()
    return [states, *(parameter.grad for parameter in (*encoder.parameters(), *decoder.parameters()))]


@pytest.mark.parametrize(("dtype", "off"), [(torch.float32, 1e-6), (torch.bfloat16, 3e-2)])
def test_kernels_compute_what_the_plain_operations_do(dtype, off):
    fast = step(dtype)
    with plain_operations():
        plain = step(dtype)
    for one, other in zip(fast, plain, strict=True):
        torch.testing.assert_close(one, other, atol=off, rtol=off)


def test_without_kernels_nothing_of_them_runs(monkeypatch):
    def refuse(*_):
        raise AssertionError("a kernel ran")

    monkeypatch.setattr("syntaxformer.nn.kernels.on_cpu._ToRows.apply", refuse)
    monkeypatch.setattr("torch.nn.functional.scaled_dot_product_attention", refuse)
    with plain_operations():
        step(torch.bfloat16)
    with pytest.raises(AssertionError, match="a kernel ran"):
        step(torch.bfloat16)
