"""Output projection and smoothed cross-entropy as one operation of autograd.

The logits of a training batch are its largest tensor. Here they are kept once, in the type of the states.
Block by block, each small enough for a processor's cache, they become probabilities in fp32 and then, in the
same memory, the gradient. Smoothing needs no pass over them, because sums over the vocabulary are products
with one vector:

    losses:    -(1 - ε) log p(y) - (ε / V) Σᵥ log p(v),   Σᵥ log p(v) = h · Σᵥ wᵥ - V logsumexp(h Wᵀ)
    gradients: G = softmax(h Wᵀ) - (1 - ε) onehot(y);   dh = G W - (ε / V) Σᵥ wᵥ;   dwᵥ = Gᵀ h - (ε / V) Σ h
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

from syntaxformer.nn.kernels.on_cpu import to_rows, without_autocast

IGNORED_LABEL = -100
"""A label that takes no part in a loss."""

_CPU_BLOCK, _BLOCK = 1 << 21, 1 << 26
"""Logits that become fp32 together: 8 MB fit into a processor's cache, other devices need few blocks."""


def linear_cross_entropy(
    states: Float[Tensor, "*axes d_model"],
    weight: Float[Tensor, "vocab d_model"],
    labels: Int[Tensor, "*axes"],
    label_smoothing: float = 0.0,
) -> Float[Tensor, ""]:
    """Sum of the cross-entropies of labels under softmax(states Wᵀ), without the logits.

    Args:
        states: h.
        weight: W, of the same type as the states; under autocast both take its type.
        labels: y; `IGNORED_LABEL` for pieces without a loss.
        label_smoothing: ε, the share of a target that is spread over the vocabulary.

    Returns:
        The sum in fp32, or in fp64 for states in fp64.

    Raises:
        RuntimeError: A label is outside the vocabulary.

    Source: Szegedy et al. (2016), section 7, for the smoothing.
    """
    if torch.compiler.is_compiling():  # which fuses the plain formula itself, for any number of pieces
        return cross_entropy(F.linear(states, weight), labels, label_smoothing)
    device = states.device.type
    if torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device):
        dtype = torch.get_autocast_dtype(device)
        states, weight = states.to(dtype), weight.to(dtype)
    rows, labels = to_rows(states.flatten(0, -2)[None]).flatten(0, -2), labels.flatten()
    labels = F.pad(labels, (0, len(rows) - len(labels)), value=IGNORED_LABEL)
    with without_autocast(states.device):
        return _LinearCrossEntropy.apply(rows, weight, labels, label_smoothing)


def cross_entropy(
    logits: Float[Tensor, "*axes vocab"], labels: Int[Tensor, "*axes"], label_smoothing: float = 0.0
) -> Float[Tensor, ""]:
    """Sum of the cross-entropies of labels, from logits of any type, in fp32 (or fp64)."""
    flat = logits.flatten(0, -2)
    with without_autocast(logits.device):
        return F.cross_entropy(
            flat.to(_precise(flat)),
            labels.flatten(),
            ignore_index=IGNORED_LABEL,
            reduction="sum",
            label_smoothing=label_smoothing,
        )


def _precise(tensor: Tensor) -> torch.dtype:
    return torch.promote_types(tensor.dtype, torch.float32)


class _LinearCrossEntropy(torch.autograd.Function):
    """The summed loss of states `[pieces, d_model]`, weight `[vocab, d_model]`, labels `[pieces]` and ε."""

    @staticmethod
    def forward(ctx: Any, states: Tensor, weight: Tensor, labels: Tensor, smoothing: float) -> Tensor:
        """Compute the loss; G takes the place of the logits."""
        n_vocab, precise = len(weight), _precise(states)
        counted = labels != IGNORED_LABEL
        targets = torch.where(counted, labels, 0)[:, None]
        weight_sum = weight.sum(0, dtype=precise)
        logits = F.linear(states, weight)
        n_rows = max(1, (_CPU_BLOCK if states.device.type == "cpu" else _BLOCK) // n_vocab)
        losses = []
        for block, target, state in zip(
            logits.split(n_rows), targets.split(n_rows), states.split(n_rows), strict=True
        ):
            exact = block.to(precise, copy=True)
            normalizer = exact.logsumexp(-1, keepdim=True)
            log_prob = exact.gather(1, target) - normalizer
            all_words = (state.to(precise) @ weight_sum)[:, None] - n_vocab * normalizer
            losses.append((smoothing - 1) * log_prob - smoothing / n_vocab * all_words)
            exact.sub_(normalizer).exp_()
            exact.scatter_add_(1, target, torch.full_like(log_prob, smoothing - 1))
            block.copy_(exact)
        ctx.save_for_backward(states, weight, logits, counted, weight_sum)
        ctx.spread = smoothing / n_vocab
        return torch.where(counted, torch.cat(losses)[:, 0], 0.0).sum()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        """The incoming gradient scales G, so it is applied to the smaller factors of the products instead."""
        states, weight, gradient, counted, weight_sum = ctx.saved_tensors
        factor = torch.where(counted, grad, 0.0)[:, None]
        d_states = d_weight = None
        if ctx.needs_input_grad[0]:
            d_states = (gradient @ weight).to(factor.dtype).sub_(weight_sum * ctx.spread).mul_(factor)
            d_states = d_states.to(states.dtype)
        if ctx.needs_input_grad[1]:
            weighted = (states * factor).to(states.dtype)
            d_weight = gradient.T @ weighted
            d_weight -= (weighted.sum(0, dtype=factor.dtype) * ctx.spread).to(d_weight.dtype)
        return d_states, d_weight, None, None
