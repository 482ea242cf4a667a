"""Topical attention: parameters that weigh sub-networks for a task, and the maps around `syntax_attention`.

The weighing itself is inside `syntax_attention`; here are its query u and the map W_V that comes after W_O.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

__all__ = ["SyntaxGate", "TopicalAttention", "linear_map"]


def linear_map(module: nn.Module, like: Tensor, **options: Any) -> tuple[Tensor, Tensor | None]:
    """Weight `[rows, columns]` and bias of a linear map as it is applied to such states now.

    A plain one that lies where the states are is read. Any other is asked, with the options, for what it
    makes of the unit vectors: so LoRA counts, and so do weights that are fetched only when a module runs.
    """
    plain: Any = module
    if getattr(type(module), "host", type(module)) is nn.Linear and plain.weight.device == like.device:
        return plain.weight, plain.bias
    units = torch.eye(int(module.in_features), dtype=like.dtype, device=like.device)
    of_units, bias = module(torch.cat([units, units[:1] * 0]), **options).split([len(units), 1])
    return (of_units - bias).T, bias[0]


class TopicalAttention(nn.Module):
    """H^O = softmax(q_task (H W_K)ᵀ / √d) H W_V over the outputs H of all sub-networks, for each piece.

    W_V starts as the identity (the paper does not say), so that a pretrained checkpoint is not thrown away;
    W_K and q_task start normal with the deviation 0.02 of BERT, which makes all weights nearly equal. 2 d² +
    d parameters: 1.18 million for d = 768 (the paper: 1.0 million), if all layers share them.

    Args:
        d_model: d.
        n_heads: Attention heads.
        init_std: Standard deviation of W_K and q_task at the start.

    Source: Bai et al. (2021), "Syntax-BERT", eq. 2.
    """

    def __init__(self, d_model: int, n_heads: int, init_std: float = 0.02) -> None:
        super().__init__()
        self.n_heads, self.init_std = n_heads, init_std
        self.task_query = nn.Parameter(torch.empty(d_model))
        self.key = nn.Parameter(torch.empty(d_model, d_model))
        self.value = nn.Parameter(torch.empty(d_model, d_model))
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Start anew, as documented."""
        d_model = len(self.task_query)
        self.task_query.copy_(torch.randn(d_model) * self.init_std)
        self.key.copy_(torch.randn(d_model, d_model) * self.init_std)
        self.value.copy_(torch.eye(d_model))

    def forward(self) -> tuple[Float[Tensor, " d_model"], Float[Tensor, "d_model d_model"]]:
        """W_K q_task and W_V: all that is made of the parameters, which only a forward pass may read."""
        return self.key @ self.task_query, self.value

    def head_queries(self, output_weight: Float[Tensor, "d_model d_heads"]) -> Float[Tensor, "heads d_head"]:
        """Query u = W_O W_K q_task / √d, cut into heads: what `syntax_attention` takes.

        A sub-network's topical logit is q_task · (concat_h(A_h) W_O W_K) / √d = Σ_h u_h · A_h. Biases are
        the same for all sub-networks and drop out of the softmax.

        Args:
            output_weight: Weight of the attention's output layer, as `nn.Linear` stores it: W_Oᵀ.
        """
        direction, _ = self()
        query = output_weight.T.to(direction.dtype) @ direction * len(direction) ** -0.5
        return query.view(self.n_heads, -1)

    def map(
        self, states: Float[Tensor, "*axes d_model"], gate: Float[Tensor, ""] | None = None
    ) -> Float[Tensor, "*axes d_model"]:
        """H W_V, or H ((1 - g) I + g W_V) behind a gate g, after the output layer."""
        value = self._behind(gate)
        return (states.to(value.dtype) @ value).to(states.dtype)

    def project(
        self,
        heads: Float[Tensor, "*axes d_heads"],
        weight: Float[Tensor, "d_model d_heads"],
        bias: Float[Tensor, " d_model"] | None,
        gate: Float[Tensor, ""] | Float[Tensor, " heads"] | None = None,
    ) -> Float[Tensor, "*axes d_model"]:
        """The output layer, then W_V: what `map` after it gives, in the cheaper way.

        Folding takes one product of d³, W_V on the states one of pieces · d². In training, and where a graph
        is recorded for all sizes, it is always folded.

        Args:
            heads: Outputs of all heads, side by side.
            weight: W_Oᵀ, as `nn.Linear` stores it.
            bias: Of the output layer.
            gate: As for `output_layer`.
        """
        is_recorded = torch.is_grad_enabled() or torch.compiler.is_compiling() or torch.jit.is_tracing()
        # The size last: to ask for it would bind a graph to it.
        if is_recorded or (gate is not None and gate.ndim) or heads.shape[:-1].numel() >= len(weight):
            return F.linear(heads, *self.output_layer(weight, bias, gate))
        return self.map(F.linear(heads, weight, bias), gate)

    def output_layer(
        self,
        weight: Float[Tensor, "d_model d_heads"],
        bias: Float[Tensor, " d_model"] | None,
        gate: Float[Tensor, ""] | Float[Tensor, " heads"] | None = None,
    ) -> tuple[Float[Tensor, "d_model d_heads"], Float[Tensor, " d_model"] | None]:
        """Weight and bias of the output layer with W_V folded in.

        Args:
            weight: W_Oᵀ, as `nn.Linear` stores it.
            bias: Of the output layer.
            gate: g of all heads, or of each: a closed one leaves the layer as it is. The bias follows their
                mean.
        """
        value = self._behind(None if gate is None else gate.mean())
        exact = weight.to(value.dtype)
        mapped_bias = None if bias is None else (bias.to(value.dtype) @ value).to(bias.dtype)
        if gate is None or gate.ndim == 0:
            return (value.T @ exact).to(weight.dtype), mapped_bias
        columns = gate.repeat_interleave(weight.shape[1] // self.n_heads)
        folded = exact + columns * (self._behind(None).T @ exact - exact)
        return folded.to(weight.dtype), mapped_bias

    def _behind(self, gate: Float[Tensor, ""] | None) -> Float[Tensor, "d_model d_model"]:
        """(1 - g) I + g W_V: exactly I for g = 0; W_V without a gate."""
        _, value = self()
        return value if gate is None else gate * value + torch.diag((1 - gate).expand(len(value)))


class SyntaxGate(nn.Module):
    """g = tanh(w), closed at the start: the model is the pretrained one and learns how much syntax to let in.

    With it the attention is full + g (syntax - full) and W_V becomes (1 - g) I + g W_V, so that g = 0 is the
    plain layer whatever the other parameters are, and g = 1 is the layer of the paper.

    Args:
        n_heads: A gate for each head; None for one of the layer.

    Source: ours; not in the paper.
    """

    def __init__(self, n_heads: int | None = None) -> None:
        super().__init__()
        self.is_one = n_heads is None
        # Of one axis also for a single gate: FSDP cannot shard scalars.
        self.weight = nn.Parameter(torch.zeros(n_heads or 1))

    def reset_parameters(self) -> None:
        """Start anew, closed."""
        nn.init.zeros_(self.weight)

    def forward(self) -> Float[Tensor, ""] | Float[Tensor, " heads"]:
        """The gate, -1 to 1."""
        return self.weight.tanh().squeeze(0) if self.is_one else self.weight.tanh()
