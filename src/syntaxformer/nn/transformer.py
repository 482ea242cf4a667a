"""One encoder layer and one decoder layer of the Transformer, with layer normalisation before or after."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from syntaxformer.nn.attention import CrossAttention, SelfAttention
from syntaxformer.nn.kernels.on_cpu import Dropout, pointwise

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"relu": F.relu, "gelu": F.gelu, "silu": F.silu}


class Residual(nn.Module):
    """A sublayer inside its residual connection.

    `pre`: x + dropout(f(norm(x))); `post`: norm(x + dropout(f(x))), as Vaswani et al. (2017).
    """

    def __init__(self, d_model: int, dropout: float, norm: Literal["pre", "post"] = "pre") -> None:
        super().__init__()
        self.norm = nn.LayerNorm(d_model)
        self.dropout = Dropout(dropout)
        self.pre = norm == "pre"

    def enter(self, states: Tensor) -> Tensor:
        """The input of the sublayer."""
        return self.norm(states) if self.pre else states

    def leave(self, states: Tensor, update: Tensor) -> Tensor:
        """The states after the sublayer returned `update`."""
        states = states + self.dropout(update)
        return states if self.pre else self.norm(states)


class FeedForward(nn.Module):
    """Position-wise network: W₂ dropout(activation(W₁ x + b₁)) + b₂, with one of `ACTIVATIONS`."""

    def __init__(self, d_model: int, d_ff: int, dropout: float = 0.0, activation: str = "relu") -> None:
        super().__init__()
        self.inner = nn.Linear(d_model, d_ff)
        self.outer = nn.Linear(d_ff, d_model)
        self.dropout = Dropout(dropout)
        self.activation = ACTIVATIONS[activation]

    def forward(self, states: Float[Tensor, "batch pieces d_model"]) -> Float[Tensor, "batch pieces d_model"]:
        """Apply to each piece on its own."""
        return pointwise(lambda x: self.outer(self.dropout(self.activation(self.inner(x)))), states)


class _Layer(nn.Module):
    """The modules of both kinds of layer, in the order in which states pass through them."""

    reads_memory = False

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        d_ff: int,
        dropout: float = 0.0,
        attention_dropout: float = 0.0,
        activation_dropout: float = 0.0,
        norm: Literal["pre", "post"] = "pre",
        activation: str = "relu",
    ) -> None:
        super().__init__()
        self.self_attention = SelfAttention(d_model, n_heads, attention_dropout)
        self.around_self_attention = Residual(d_model, dropout, norm)
        if self.reads_memory:
            self.cross_attention = CrossAttention(d_model, n_heads, attention_dropout)
            self.around_cross_attention = Residual(d_model, dropout, norm)
        self.feed_forward = FeedForward(d_model, d_ff, activation_dropout, activation)
        self.around_feed_forward = Residual(d_model, dropout, norm)

    def _feed_forward(self, states: Tensor) -> Tensor:
        around = self.around_feed_forward
        return around.leave(states, self.feed_forward(around.enter(states)))


class EncoderLayer(_Layer):
    """Self-attention and a position-wise network, each in a residual connection."""

    def forward(
        self,
        states: Float[Tensor, "batch pieces d_model"],
        mask: Bool[Tensor, "#batch #heads #query key"] | None = None,
        return_weights: bool = False,
        syntax: Callable[..., Any] | None = None,
    ) -> tuple[Float[Tensor, "batch pieces d_model"], Float[Tensor, "batch heads query key"] | None]:
        """Return the new states and, if asked for, the attention weights; `syntax` as in `SelfAttention`."""
        around = self.around_self_attention
        update, weights = self.self_attention(
            around.enter(states), mask, return_weights=return_weights, syntax=syntax
        )
        return self._feed_forward(around.leave(states, update)), weights


class DecoderLayer(_Layer):
    """Causal self-attention, cross-attention and a position-wise network, each in a residual connection."""

    reads_memory = True

    def forward(
        self,
        states: Float[Tensor, "batch tgt d_model"],
        memory: Float[Tensor, "batch src d_model"],
        memory_mask: Bool[Tensor, "#batch #heads #tgt src"] | None = None,
        cache: Any = None,
        layer: int = 0,
        return_weights: bool = False,
    ) -> tuple[Float[Tensor, "batch tgt d_model"], Tensor | None, Tensor | None]:
        """Return the new states and, if asked for, the weights of self-attention and of cross-attention.

        Targets are padded on the right, so the causal mask alone keeps padding out of every real position.
        """
        own_cache = None if cache is None else cache.self_attention_cache
        around = self.around_self_attention
        update, self_weights = self.self_attention(
            around.enter(states), None, True, own_cache, layer, return_weights
        )
        states = around.leave(states, update)
        around = self.around_cross_attention
        update, weights = self.cross_attention(
            around.enter(states), memory, memory_mask, cache, layer, return_weights
        )
        return self._feed_forward(around.leave(states, update)), self_weights, weights


def sinusoids(
    n_positions: int, d_model: int, device: torch.device | None = None
) -> Float[Tensor, "positions d_model"]:
    """Sines in the first half of the columns, cosines in the second, wavelengths from 2π to 10000·2π.

    Raises:
        ValueError: `d_model` is odd.

    Source: Vaswani et al. (2017), section 3.5. Differs: sines and cosines stand in two halves instead of
        alternating, as in tensor2tensor and CTranslate2; training does not notice the order of columns.
    """
    if d_model % 2:
        raise ValueError(f"d_model: expected an even number for sinusoidal positions, got {d_model}.")
    half = d_model // 2
    rates = torch.exp(torch.arange(half, device=device) * -(math.log(10_000) / max(half - 1, 1)))
    angles = torch.arange(n_positions, device=device).unsqueeze(1) * rates
    return torch.cat([angles.sin(), angles.cos()], dim=1)


class SinusoidalPositions(nn.Module):
    """Adds positions to embeddings.

    The table is a cache and not a buffer, so that checkpoints do not store it and models made on the meta
    device have it, too.
    """

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.d_model = d_model
        self._table: Tensor = torch.empty(0)

    def forward(
        self, embeddings: Float[Tensor, "batch pieces d_model"], first: int = 0
    ) -> Float[Tensor, "batch pieces d_model"]:
        """Return embeddings + positions; `first` is the position of the first piece (cached decoding)."""
        stop = first + embeddings.shape[1]
        if torch.compiler.is_compiling():  # a graph would be made anew for each table
            table = sinusoids(stop, self.d_model, embeddings.device)
            return embeddings + table[first:].to(embeddings.dtype)
        if len(self._table) < stop or self._table.device != embeddings.device:
            self._table = sinusoids(max(stop, 256), self.d_model).to(embeddings.device)
        return embeddings + self._table[first:stop].to(embeddings.dtype)
