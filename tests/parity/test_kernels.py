"""What is there for speed gives what the textbook path gives: projection and cross-entropy in one, and a training step."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from syntaxformer.nn.kernels import cross_entropy
from syntaxformer.nn.kernels.cross_entropy import IGNORED_LABEL, linear_cross_entropy
from syntaxformer.nn.kernels.on_cpu import plain_operations
from syntaxformer.nn.transformer import DecoderLayer, EncoderLayer

BATCH, PIECES, D, V = 3, 7, 11, 53


def linear_cross_entropy_reference(
    states: Tensor, weight: Tensor, labels: Tensor, smoothing: float
) -> Tensor:
    return cross_entropy.cross_entropy(states @ weight.T, labels, smoothing)


def _inputs(dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor, Tensor]:
    torch.manual_seed(1)
    states = torch.randn(BATCH, PIECES, D, dtype=dtype, requires_grad=True)
    weight = torch.randn(V, D, dtype=dtype, requires_grad=True)
    labels = torch.randint(0, V, (BATCH, PIECES))
    labels[0, 5:] = labels[2, 3:] = IGNORED_LABEL
    return states, weight, labels


def _loss_and_gradients(function, states: Tensor, weight: Tensor, labels: Tensor, smoothing: float):
    loss = function(states, weight, labels, smoothing)
    return loss, *torch.autograd.grad(1.7 * loss, (states, weight))


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.9])
@pytest.mark.parametrize("rows", [1, 4, BATCH * PIECES, 1000])
def test_equal_to_the_plain_twin(smoothing: float, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cross_entropy, "_CPU_BLOCK", rows * V)
    found = _loss_and_gradients(linear_cross_entropy, *_inputs(), smoothing)
    expected = _loss_and_gradients(linear_cross_entropy_reference, *_inputs(), smoothing)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, atol=2e-5, rtol=1e-5)


def test_gradients_are_those_of_differences() -> None:
    states, weight, labels = _inputs(torch.float64)
    assert torch.autograd.gradcheck(lambda s, w: linear_cross_entropy(s, w, labels, 0.1), (states, weight))


def test_under_autocast_as_exact_as_the_plain_twin() -> None:
    exact = _loss_and_gradients(linear_cross_entropy_reference, *_inputs(), 0.1)
    with torch.autocast("cpu", torch.bfloat16):
        found = _loss_and_gradients(linear_cross_entropy, *_inputs(), 0.1)
        plain = _loss_and_gradients(linear_cross_entropy_reference, *_inputs(), 0.1)
    for one, other, wanted in zip(found, plain, exact, strict=True):
        assert one.dtype == torch.float32
        assert (one - wanted).norm() <= 1.5 * (other - wanted).norm() + 1e-6


def test_extreme_logits_stay_finite() -> None:
    states, weight, labels = _inputs()
    loss, *gradients = _loss_and_gradients(linear_cross_entropy, states * 1e4, weight, labels, 0.1)
    assert torch.isfinite(loss)
    assert all(torch.isfinite(gradient).all() for gradient in gradients)


def test_nothing_but_ignored_labels() -> None:
    states, weight, labels = _inputs()
    loss, *gradients = _loss_and_gradients(
        linear_cross_entropy, states, weight, torch.full_like(labels, IGNORED_LABEL), 0.1
    )
    assert loss == 0
    assert all((gradient == 0).all() for gradient in gradients)


@pytest.mark.parametrize("label", [-1, -7, V])
def test_a_label_outside_the_vocabulary_is_refused(label: int) -> None:
    states, weight, labels = _inputs()
    labels[1, 2] = label
    for function in (linear_cross_entropy, linear_cross_entropy_reference):
        with pytest.raises((RuntimeError, IndexError), match="out of bounds"):
            function(states, weight, labels, 0.1)


def test_only_what_is_trained_has_a_gradient() -> None:
    states, weight, labels = _inputs()
    linear_cross_entropy(states, weight.detach(), labels, 0.1).backward()
    assert states.grad is not None
    states.grad = None
    linear_cross_entropy(states.detach(), weight, labels, 0.1).backward()
    assert weight.grad is not None


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
