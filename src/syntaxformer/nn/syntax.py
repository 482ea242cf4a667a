"""Syntax attention: one attention for each relation of a syntax tree, all computed exactly in a single pass.

The formulas of the pass are in `nn.kernels.syntax_kernel`; `syntax_reference` has the literal loop over masks
that it replaces.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, get_args

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, UInt8
from torch import Tensor, nn

from syntaxformer.nn.kernels.on_cpu import takes_cuda_path
from syntaxformer.nn.kernels.syntax_kernel import KernelOptions, SyntaxKernel
from syntaxformer.nn.relation_index import RelationIndex, mask_of

MaskMode = Literal["multiplicative", "additive"]
"""Masked keys get logit 0, or are removed."""

OnEmptyRow = Literal["full", "zero"]
"""If masked keys are removed, a row without any key attends to all keys, or gives zeros."""

Summation = Literal["sum", "scaled", "mean"]
"""Without topical attention: Σ_r A_r, Σ_r A_r / √m, or their mean."""


def syntax_attention(
    query: Float[Tensor, "batch heads keys d_head"],
    key: Float[Tensor, "batch heads keys d_head"],
    value: Float[Tensor, "batch heads keys d_head"],
    relations: UInt8[Tensor, "batch trees keys keys"] | RelationIndex,
    topical_query: Float[Tensor, "heads d_head"] | None,
    key_mask: Bool[Tensor, "batch keys"] | None = None,
    scaling: float | None = None,
    mode: MaskMode = "multiplicative",
    on_empty_row: OnEmptyRow = "full",
    max_distance: int = 15,
    include_full: bool = False,
    position_bias: Float[Tensor, "#batch heads keys keys"] | None = None,
    dropout: float = 0.0,
    return_weights: bool = True,
    active: Sequence[bool] | None = None,
    gate: Float[Tensor, " heads"] | Float[Tensor, ""] | None = None,
    summation: Summation = "scaled",
) -> tuple[Float[Tensor, "batch heads keys d_head"], Float[Tensor, "batch keys networks"] | None]:
    """Σ_r α_r A_r, one attention A_r for each relation r of each tree, weighted by topical attention.

    A_r = softmax(QKᵀ ⊙ M_r · scaling) V, where M_r is 1 for pairs of relation r (multiplicative: a masked key
    gets logit 0), and α = softmax_r(Σ_heads u·A_r) for each piece. It takes one pass over the pairs of pieces
    instead of one for each sub-network, and makes no masks. Sub-networks are the relations 1 to 3D + 1 of the
    first tree, those of the next, and, if included, full attention: 92 for two trees and D = 15.

    A padded key is removed in both modes; a sentence of padding alone gives zeros. In multiplicative mode no
    other row is empty: without any key of relation r, A_r is the mean of all values.

    Args:
        query: Q.
        key: K.
        value: V.
        relations: Relation ids 0 to 3D + 1, or an index made from them once for all layers; 0, as between a
            piece and itself, is no sub-network. In multiplicative mode every piece must have 0 to itself: if
            one relation fills a row, no logit is 0, and logits far below 0 lose precision.
        topical_query: u = W_O W_K q_task / √d_model of each head; None for a summation of all sub-networks.
        key_mask: True for valid keys; None for all. An index already holds it.
        scaling: Factor of QKᵀ; None for 1/√d_head.
        mode: "multiplicative" as in the paper, or "additive": masked keys are removed.
        on_empty_row: A_r in additive mode for a row without any key in M_r: attention to all keys, or zeros.
            That sub-network takes part in α like any other.
        max_distance: D. An index already holds it.
        include_full: Add a sub-network whose mask is 1 everywhere.
        position_bias: Added to the scaled logits before they are masked.
        dropout: Probability of dropping an attention weight; 0 outside training.
        return_weights: Whether to return α.
        active: Whether each sub-network takes part; None for all.
        gate: g of each head or of all: the output is full + g (syntax - full), where full is plain attention.
        summation: What replaces α without a topical query.

    Returns:
        The output, and α if asked for (0 in a sentence of padding alone).

    Raises:
        ValueError: A mode, rule or summation is unknown, the dropout probability is outside [0, 1), a
            relation id is above 3D + 1, no sub-network takes part, or a mask is given besides an index.

    Source: Bai et al. (2021), "Syntax-BERT", eq. 1 and 2; differs: attention dropout is applied once, to the
    weights of Σ_r α_r A_r, and a sub-network whose best key is e^-69 below the best of its row fades to zero.
    """
    if not isinstance(relations, RelationIndex):
        relations = RelationIndex.of(relations, key_mask, max_distance)
    elif key_mask is not None:
        raise ValueError("key_mask: expected None beside a RelationIndex, which holds one, got a mask.")
    n_networks = relations.n_networks + include_full
    check_arguments(mode, on_empty_row, summation, dropout, active, n_networks)
    in_trees = None if active is None else tuple(map(bool, active[: relations.n_networks]))
    n_active = n_networks if active is None else sum(map(bool, active))
    full_on_empty = mode == "additive" and on_empty_row == "full"
    options = KernelOptions(
        index=relations,
        scaling=query.shape[-1] ** -0.5 if scaling is None else scaling,
        multiplicative=mode == "multiplicative",
        full_on_empty=full_on_empty,
        uses_full=include_full or full_on_empty or gate is not None,
        active=in_trees,
        full_bias=0.0 if include_full and (active is None or bool(active[-1])) else -torch.inf,
        network_scale=1.0 if topical_query is not None else n_active * summed_weight(summation, n_active),
        dropout=dropout,
    )
    if topical_query is None:
        topical_query = value.new_zeros(value.shape[1], value.shape[3])
    gate = None if gate is None else gate.expand(value.shape[1])
    tensors = (query, key, value, topical_query, position_bias, gate)
    if not return_weights and takes_cuda_path(value):
        from syntaxformer.nn.kernels.on_cuda import FusedSyntaxAttention  # needs triton

        return FusedSyntaxAttention.apply(*tensors, options), None
    output, alpha = SyntaxKernel.apply(*tensors, options)
    if not return_weights:
        return output, None
    mask = None if in_trees is None else mask_of(in_trees, query.device)
    weights = relations.of_networks(alpha[..., :-1], mask)
    if include_full:
        weights = torch.cat([weights, alpha[..., -1:]], -1)
    return output, weights.to(value.dtype)


def check_arguments(
    mode: str,
    on_empty_row: str,
    summation: str,
    dropout: float,
    active: Sequence[bool] | None,
    n_networks: int,
) -> None:
    """Refuse unknown names, a dropout out of range, and too few, too many or no sub-networks.

    Raises:
        ValueError: An argument is invalid.
    """
    choices = (
        ("mode", mode, MaskMode),
        ("on_empty_row", on_empty_row, OnEmptyRow),
        ("summation", summation, Summation),
    )
    for name, value, allowed in choices:
        if value not in get_args(allowed):
            raise ValueError(f"{name}: expected one of {', '.join(get_args(allowed))}, got {value!r}.")
    if not 0 <= dropout < 1:
        raise ValueError(f"dropout: expected at least 0 and below 1, got {dropout}.")
    if active is not None and (len(active) != n_networks or not any(active)):
        raise ValueError(
            f"active: expected one entry for each of {n_networks} sub-networks, at least one of them True, "
            f"got {len(active)} entries, {sum(map(bool, active))} of them True."
        )


def summed_weight(summation: Summation, n_networks: int) -> float:
    """α of each of m sub-networks without topical attention.

    The paper says "a simple summation layer"; its authors' code divides the sum by √m, which is "scaled".

    Source: Bai et al. (2021), section 4.4.
    """
    return {"sum": 1.0, "scaled": n_networks**-0.5, "mean": 1 / n_networks}[summation]


def linear_map(module: nn.Module, like: Tensor, **options: Any) -> tuple[Tensor, Tensor | None]:
    """Weight `[rows, columns]` and bias that a linear map now applies to states such as `like`.

    The weights of a plain map on the states' device are read. Any other map is applied, with the options, to
    the unit vectors: this includes LoRA, and weights that are fetched only when a module runs.
    """
    plain: Any = module
    if getattr(type(module), "host", type(module)) is nn.Linear and plain.weight.device == like.device:
        return plain.weight, plain.bias
    units = torch.eye(int(module.in_features), dtype=like.dtype, device=like.device)
    of_units, bias = module(torch.cat([units, units[:1] * 0]), **options).split([len(units), 1])
    return (of_units - bias).T, bias[0]


def _is_short_on_cuda(states: Tensor) -> bool:
    return states.dtype.itemsize == 2 and takes_cuda_path(states)


class TopicalAttention(nn.Module):
    """H^O = softmax(q_task (H W_K)ᵀ / √d) H W_V over the outputs H of all sub-networks, for each piece.

    W_V starts as the identity (the paper does not say how), so that a pretrained checkpoint keeps its
    knowledge; W_K and q_task start normal with BERT's standard deviation of 0.02, which makes all weights
    nearly equal. It has 2 d² + d parameters: 1.18 million for d = 768 (the paper: 1.0 million), if all layers
    share them.

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
        """Initialise again, as documented."""
        d_model = len(self.task_query)
        self.task_query.copy_(torch.randn(d_model) * self.init_std)
        self.key.copy_(torch.randn(d_model, d_model) * self.init_std)
        self.value.copy_(torch.eye(d_model))

    def forward(self, part: Literal["direction", "value"]) -> Tensor:
        """W_K q_task / √d `[d_model]`, or W_V: all uses of the parameters, which only this may read."""
        return self.value if part == "value" else self.key @ self.task_query * len(self.value) ** -0.5

    def head_queries(
        self, output_weight: Float[Tensor, "d_model d_heads"], direction: Float[Tensor, " d_model"]
    ) -> Float[Tensor, "heads d_head"]:
        """Query u = W_O W_K q_task / √d, cut into heads, for `syntax_attention`.

        A sub-network's topical logit is q_task · (concat_h(A_h) W_O W_K) / √d = Σ_h u_h · A_h. Biases are the
        same for all sub-networks and drop out of the softmax. `output_weight` is that of the attention's
        output layer, as `nn.Linear` stores it: W_Oᵀ. `direction` is W_K q_task / √d.
        """
        return (output_weight.T.to(direction.dtype) @ direction).view(self.n_heads, -1)

    def map(
        self, states: Float[Tensor, "*axes d_model"], gate: Float[Tensor, ""] | None = None
    ) -> Float[Tensor, "*axes d_model"]:
        """H W_V, or H ((1 - g) I + g W_V) behind a gate g, after the output layer."""
        value = self("value")
        if _is_short_on_cuda(states):  # where autocast converts once for all layers
            mapped = states @ (value if torch.is_autocast_enabled("cuda") else value.to(states.dtype))
            return mapped if gate is None else states.lerp(mapped, gate.to(states.dtype))
        exact = states.to(value.dtype)
        mapped = (exact @ value).to(exact.dtype)  # under autocast it has another
        return (mapped if gate is None else exact.lerp(mapped, gate)).to(states.dtype)

    def project(
        self,
        heads: Float[Tensor, "*axes d_heads"],
        weight: Float[Tensor, "d_model d_heads"],
        bias: Float[Tensor, " d_model"] | None,
        gate: Float[Tensor, ""] | Float[Tensor, " heads"] | None = None,
    ) -> Float[Tensor, "*axes d_model"]:
        """Apply the output layer, then W_V as `map` does, in the cheaper of two ways.

        Folding W_V into the layer costs one product of d³, applying it to the states one of pieces · d². It
        is folded in training, and if a graph is recorded for all sizes, but not for 16 bits on CUDA, where
        small operations take longer. `weight` is W_Oᵀ, as `nn.Linear` stores it; `heads` stand side by side.
        """
        folds = gate is not None and gate.ndim > 0
        is_recorded = torch.is_grad_enabled() or torch.compiler.is_compiling() or torch.jit.is_tracing()
        if not folds and not _is_short_on_cuda(heads):  # the size last, since that would bind a graph to it
            folds = is_recorded or heads.shape[:-1].numel() >= len(weight)
        if folds:
            return F.linear(heads, *self.output_layer(weight, bias, gate))
        return self.map(F.linear(heads, weight, bias), gate)

    def output_layer(
        self,
        weight: Float[Tensor, "d_model d_heads"],
        bias: Float[Tensor, " d_model"] | None,
        gate: Float[Tensor, ""] | Float[Tensor, " heads"] | None = None,
    ) -> tuple[Float[Tensor, "d_model d_heads"], Float[Tensor, " d_model"] | None]:
        """Weight and bias of the output layer with W_V folded in.

        `weight` is W_Oᵀ, as `nn.Linear` stores it. `gate` is g of all heads, or of each: a closed gate leaves
        the layer as it is. The bias uses the mean of the gates.
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
        value = self("value")
        return value if gate is None else gate * value + torch.diag((1 - gate).expand(len(value)))


class SyntaxGate(nn.Module):
    """g = tanh(w), closed at the start: the model begins as the pretrained one and learns to open the gate.

    With the gate the attention is full + g (syntax - full) and W_V becomes (1 - g) I + g W_V, so g = 0 is the
    plain layer, whatever the other parameters are, and g = 1 is the layer of the paper.

    `n_heads` gives a gate to each head; None is one of the layer.

    Source: ours; not in the paper.
    """

    def __init__(self, n_heads: int | None = None) -> None:
        super().__init__()
        self.is_one = n_heads is None
        # Even a single gate has one axis, because FSDP cannot shard scalars.
        self.weight = nn.Parameter(torch.zeros(n_heads or 1))

    def reset_parameters(self) -> None:
        """Initialise again as closed."""
        nn.init.zeros_(self.weight)

    def forward(self) -> Float[Tensor, ""] | Float[Tensor, " heads"]:
        """The gate, from -1 to 1."""
        return self.weight.tanh().squeeze(0) if self.is_one else self.weight.tanh()
