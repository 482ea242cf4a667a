"""Multi-head attention: scaled dot products, self-attention and cross-attention with key/value caches.

Masks are boolean, True = may attend, and are broadcast to `[batch, heads, query, key]`. A query that may
attend to nothing gets zeros, both in the fast path and in the reference.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from syntaxformer.nn.kernels.on_cpu import drop, fuses_attention, keep_type, pointwise


def attend(
    query: Float[Tensor, "batch heads query d_head"],
    key: Float[Tensor, "batch heads key d_head"],
    value: Float[Tensor, "batch heads key d_head"],
    mask: Bool[Tensor, "#batch #heads #query key"] | None = None,
    causal: bool = False,
    dropout: float = 0.0,
    bias: Float[Tensor, "#batch #heads query key"] | None = None,
    scaling: float | None = None,
) -> Float[Tensor, "batch heads query d_head"]:
    """softmax(QKᵀ/√d_head + bias) V by the fastest kernel.

    `mask` is True where a query may see a key. `causal` lets query i see only keys 0..i, and excludes a mask.
    `bias` is added to the scaled logits; `scaling` is the factor of QKᵀ, None for 1/√d_head.

    Source: Vaswani et al. (2017), eq. 1; Sundararaman et al. (2019), eq. 2 with ρ = d_head.
    """
    if fuses_attention(query, bias) and not (causal and bias is not None):
        allowed, sees_any = mask, None
        if bias is not None:
            allowed, sees_any = (bias, None) if mask is None else _masked(bias, mask)
            allowed = allowed.to(query.dtype)
        heads = F.scaled_dot_product_attention(
            query, key, value, allowed, dropout, is_causal=causal, scale=scaling
        )
        return heads if sees_any is None else heads * sees_any
    with keep_type(query):
        return attend_with_weights(query, key, value, mask, causal, dropout, bias, scaling)[0]


def attend_with_weights(
    query: Float[Tensor, "batch heads query d_head"],
    key: Float[Tensor, "batch heads key d_head"],
    value: Float[Tensor, "batch heads key d_head"],
    mask: Bool[Tensor, "#batch #heads #query key"] | None = None,
    causal: bool = False,
    dropout: float = 0.0,
    bias: Float[Tensor, "#batch #heads query key"] | None = None,
    scaling: float | None = None,
) -> tuple[Float[Tensor, "batch heads query d_head"], Float[Tensor, "batch heads query key"]]:
    """The plain twin of `attend`: the formula step by step, which also returns the attention weights."""
    logits = query @ key.transpose(-1, -2)
    logits = logits / math.sqrt(query.shape[-1]) if scaling is None else logits * scaling
    logits = logits if bias is None else logits + bias.to(logits.dtype)
    if causal:
        mask = torch.ones(logits.shape[-2:], dtype=torch.bool, device=logits.device).tril()
    weights = logits.softmax(-1) if mask is None else masked_softmax(logits, mask)
    return drop(weights, dropout) @ value, weights


def masked_softmax(logits: Float[Tensor, "*axes key"], mask: Bool[Tensor, "*#axes key"]) -> Tensor:
    """Softmax over the keys that a row may see; a row that sees none is 0, with finite gradients."""
    masked, sees_any = _masked(logits, mask)
    return masked.softmax(-1) * sees_any


def _masked(logits: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """-inf where a row may not see a key, and which rows see any.

    A row that sees none keeps its logits, because softmax over nothing but -inf has NaN gradients.
    """
    sees_any = mask.any(-1, keepdim=True)
    return logits.masked_fill(~mask & sees_any, -torch.inf), sees_any


class FusedLinear(nn.Linear):
    """Several linear maps of the same states as one product; their rows follow each other."""

    def __init__(self, d_model: int, n_parts: int) -> None:
        super().__init__(d_model, n_parts * d_model)
        self.n_parts = n_parts


class _MultiHead(nn.Module):
    """What both attentions share: splitting into heads, the output projection, the choice of kernel."""

    def __init__(self, d_model: int, n_heads: int, dropout: float) -> None:
        super().__init__()
        if d_model % n_heads:
            raise ValueError(f"n_heads: expected a divisor of d_model = {d_model}, got {n_heads}.")
        self.n_heads = n_heads
        self.dropout = dropout
        self.output = nn.Linear(d_model, d_model)

    def _project(self, states: Tensor, linear: nn.Module, n_parts: int) -> tuple[Tensor, ...]:
        """[batch, pieces, d_model] → parts × [batch, heads, pieces, d_head]."""
        projected = pointwise(linear, states)
        return projected.unflatten(-1, (n_parts, self.n_heads, -1)).permute(2, 0, 3, 1, 4).unbind(0)

    def _combine(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, causal: bool, weights: bool
    ) -> tuple[Tensor, Tensor | None]:
        dropout = self.dropout if self.training else 0.0
        if weights:
            heads, attention = attend_with_weights(query, key, value, mask, causal, dropout)
        else:
            heads, attention = attend(query, key, value, mask, causal, dropout), None
        return pointwise(self.output, heads.transpose(1, 2)), attention


class SelfAttention(_MultiHead):
    """Pieces attend to pieces of the same sentence.

    Raises:
        ValueError: `n_heads` does not divide `d_model`.
    """

    def __init__(self, d_model: int, n_heads: int, dropout: float = 0.0) -> None:
        super().__init__(d_model, n_heads, dropout)
        self.query_key_value = FusedLinear(d_model, 3)

    def forward(
        self,
        states: Float[Tensor, "batch pieces d_model"],
        mask: Bool[Tensor, "#batch #heads #query key"] | None = None,
        causal: bool = False,
        cache: Any = None,
        layer: int = 0,
        return_weights: bool = False,
        syntax: Callable[..., Any] | None = None,
    ) -> tuple[Float[Tensor, "batch pieces d_model"], Float[Tensor, "batch heads query key"] | None]:
        """Attend; return the new states, and the attention weights if asked for.

        A `cache` (`transformers.DynamicCache`) holds keys and values of earlier pieces. `syntax` replaces
        attention and output layer: from query, key, value, output layer, mask and dropout it computes the
        states, and the attention weights if it was asked for them.
        """
        query, key, value = self._project(states, self.query_key_value, 3)
        if syntax is not None:
            dropout = self.dropout if self.training else 0.0
            return syntax(query, key, value, self.output, mask, dropout)
        if cache is not None:
            key, value = cache.update(key, value, layer)
            if causal and key.shape[2] > query.shape[2]:
                mask, causal = None if query.shape[2] == 1 else _causal_mask_after(query, key), False
        return self._combine(query, key, value, mask, causal, return_weights)


class CrossAttention(_MultiHead):
    """Target pieces attend to encoder states; arguments as in `SelfAttention`."""

    def __init__(self, d_model: int, n_heads: int, dropout: float = 0.0) -> None:
        super().__init__(d_model, n_heads, dropout)
        self.query = nn.Linear(d_model, d_model)
        self.key_value = FusedLinear(d_model, 2)

    def forward(
        self,
        states: Float[Tensor, "batch tgt d_model"],
        memory: Float[Tensor, "batch src d_model"],
        mask: Bool[Tensor, "#batch #heads #tgt src"] | None = None,
        cache: Any = None,
        layer: int = 0,
        return_weights: bool = False,
    ) -> tuple[Float[Tensor, "batch tgt d_model"], Float[Tensor, "batch heads tgt src"] | None]:
        """Attend to `memory`; a `cache` (`transformers.EncoderDecoderCache`) projects it only once."""
        (query,) = self._project(states, self.query, 1)
        if cache is not None and cache.is_updated.get(layer):
            layer_cache = cache.cross_attention_cache.layers[layer]
            key, value = layer_cache.keys, layer_cache.values
        else:
            key, value = self._project(memory, self.key_value, 2)
            if cache is not None:
                key, value = cache.cross_attention_cache.update(key, value, layer)
                cache.is_updated[layer] = True
        return self._combine(query, key, value, mask, False, return_weights)


def _causal_mask_after(query: Tensor, key: Tensor) -> Bool[Tensor, "1 1 query key"]:
    """Causal mask where the queries are the last of the keys."""
    n_query, n_key = query.shape[2], key.shape[2]
    return torch.ones(1, 1, n_query, n_key, dtype=torch.bool, device=query.device).tril(n_key - n_query)
