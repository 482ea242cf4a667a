"""Syntax attention: one attention for each relation of a syntax tree, all of them in a single pass, exactly.

The formulas of the pass are in `syntax_block`, the literal loop over masks that it replaces in
`syntax_reference`.
"""

from __future__ import annotations

from typing import Literal, get_args

import torch
from jaxtyping import Bool, Float, UInt8
from torch import Tensor

from syntaxformer.nn.kernels.syntax_block import KernelOptions
from syntaxformer.nn.kernels.syntax_kernel import SyntaxKernel
from syntaxformer.nn.relation_index import RelationIndex

__all__ = ["MaskMode", "OnEmptyRow", "Summation", "check_arguments", "summed_weight", "syntax_attention"]

MaskMode = Literal["multiplicative", "additive"]
"""Masked keys keep logit 0, or are removed."""

OnEmptyRow = Literal["full", "zero"]
"""Where masked keys are removed, a row without any key attends to all keys, or gives zeros."""

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
    active: Bool[Tensor, " networks"] | None = None,
    gate: Float[Tensor, " heads"] | Float[Tensor, ""] | None = None,
    summation: Summation = "scaled",
) -> tuple[Float[Tensor, "batch heads keys d_head"], Float[Tensor, "batch keys networks"] | None]:
    """Σ_r α_r A_r, one attention A_r for each relation r of each tree, weighted by topical attention.

    A_r = softmax(QKᵀ ⊙ M_r · scaling) V, where M_r is 1 where the relation is r (multiplicative: a masked
    key keeps logit 0), and α = softmax_r(Σ_heads u·A_r) for each piece. It takes one pass over the pairs of
    pieces, not one for each sub-network, and no mask is made. Sub-networks are the relations 1 to 3D + 1 of
    the first tree, those of the next, and, if included, the full one: 92 for two trees and D = 15.

    A padded key is removed in either mode; a sentence of nothing but padding gives zeros. In multiplicative
    mode no other row is empty: without any key of relation r, A_r is the mean of all values.

    Args:
        query: Q.
        key: K.
        value: V.
        relations: Relation ids 0 to 3D + 1, or an index made of them once for all layers; 0, as between a
            piece and itself, is no sub-network. In multiplicative mode every piece must have 0 to itself: a
            row that one relation fills leaves no logit of 0, and loses its precision far below it.
        topical_query: u = W_O W_K q_task / √d_model of each head; None for a summation of all sub-networks.
        key_mask: True for valid keys; None for all. An index already holds it.
        scaling: Factor of QKᵀ; None for 1/√d_head.
        mode: "multiplicative" as in the paper, or "additive": masked keys are removed.
        on_empty_row: In additive mode A_r of a row without any key in M_r: attention to all keys, or zeros.
            That sub-network takes part in α like any other.
        max_distance: D. An index already holds it.
        include_full: A further sub-network whose mask is 1 everywhere.
        position_bias: Added to the scaled logits before they are masked.
        dropout: Probability of dropping an attention weight; 0 outside training.
        return_weights: Whether to return α.
        active: Sub-networks that take part; None for all.
        gate: g of each head or of all: the output is full + g (syntax - full), with full the plain attention.
        summation: What replaces α without a topical query.

    Returns:
        The output, and α if asked for (0 in a sentence of nothing but padding).

    Raises:
        ValueError: An unknown mode, rule or summation; a dropout probability outside [0, 1); relation ids
            above 3D + 1; no sub-network that takes part; a mask besides an index.

    Source: Bai et al. (2021), "Syntax-BERT", eq. 1 and 2; differs: attention dropout falls on Σ_r α_r A_r's
    weights, once, and a sub-network whose best key lies e^-69 below the best of its row fades to zero.
    """
    check_arguments(mode, on_empty_row, summation, dropout)
    if not isinstance(relations, RelationIndex):
        relations = RelationIndex.of(relations, key_mask, max_distance)
    elif key_mask is not None:
        raise ValueError("key_mask: expected None beside a RelationIndex, which holds one, got a mask.")
    n_networks = relations.n_networks + include_full
    if active is not None:
        _check_active(active, n_networks)
    in_trees = None if active is None else active[: relations.n_networks]
    n_active = n_networks if active is None else int(active.sum())
    full_on_empty = mode == "additive" and on_empty_row == "full"
    options = KernelOptions(
        index=relations,
        scaling=query.shape[-1] ** -0.5 if scaling is None else scaling,
        multiplicative=mode == "multiplicative",
        full_on_empty=full_on_empty,
        uses_full=include_full or full_on_empty or gate is not None,
        bias=relations.bias_of_all if in_trees is None else relations.slot_bias(in_trees),
        full_bias=0.0 if include_full and (active is None or bool(active[-1])) else -torch.inf,
        network_scale=1.0 if topical_query is not None else n_active * summed_weight(summation, n_active),
        dropout=dropout,
    )
    if topical_query is None:
        topical_query = value.new_zeros(value.shape[1], value.shape[3])
    gate = None if gate is None else gate.expand(value.shape[1])
    output, alpha = SyntaxKernel.apply(query, key, value, topical_query, position_bias, gate, options)
    if not return_weights:
        return output, None
    weights = relations.of_networks(alpha[..., :-1], in_trees)
    if include_full:
        weights = torch.cat([weights, alpha[..., -1:]], -1)
    return output, weights.to(value.dtype)


def check_arguments(mode: str, on_empty_row: str, summation: str, dropout: float) -> None:
    """Refuse names and numbers that mean nothing.

    Raises:
        ValueError: One of them does.
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


def summed_weight(summation: Summation, n_networks: int) -> float:
    """α of each of m sub-networks without topical attention.

    The paper says "a simple summation layer"; its authors' code divides the sum by √m, which is "scaled".

    Source: Bai et al. (2021), section 4.4.
    """
    return {"sum": 1.0, "scaled": n_networks**-0.5, "mean": 1 / n_networks}[summation]


def _check_active(active: Bool[Tensor, " networks"], n_networks: int) -> None:
    if len(active) != n_networks or not bool(active.any()):
        raise ValueError(
            f"active: expected one entry for each of {n_networks} sub-networks, at least one of them True, "
            f"got {len(active)} entries, {int(active.sum())} of them True."
        )
