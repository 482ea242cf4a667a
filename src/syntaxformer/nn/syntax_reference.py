"""Syntax attention as the paper writes it, for tests and for readers: a loop over masks, one attention each.

Its time and memory grow with the number of sub-networks; `syntax_attention` gives the same results.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from jaxtyping import Bool, Float, UInt8
from torch import Tensor

from syntaxformer.nn.attention import masked_softmax
from syntaxformer.nn.kernels.on_cpu import drop
from syntaxformer.nn.syntax import MaskMode, OnEmptyRow, Summation, check_arguments, summed_weight


def syntax_attention_reference(
    query: Float[Tensor, "batch heads keys d_head"],
    key: Float[Tensor, "batch heads keys d_head"],
    value: Float[Tensor, "batch heads keys d_head"],
    relations: UInt8[Tensor, "batch trees keys keys"],
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
    """The literal twin of `syntax_attention`: same arguments, same results, but dropout within each network.

    Raises:
        ValueError: As for `syntax_attention`.

    Source: Bai et al. (2021), "Syntax-BERT", eq. 1 and 2.
    """
    n_networks = relations.shape[1] * (3 * max_distance + 1) + include_full
    check_arguments(mode, on_empty_row, summation, dropout, active, n_networks)
    logits = query @ key.transpose(-1, -2) * (query.shape[-1] ** -0.5 if scaling is None else scaling)
    if position_bias is not None:
        logits = logits + position_bias
    valid = relations.new_ones(len(query), query.shape[2], dtype=torch.bool) if key_mask is None else key_mask
    valid = valid[:, None, None, :]
    full = drop(masked_softmax(logits, valid), dropout) @ value

    outputs = []
    for mask in _masks(relations, max_distance, include_full):
        attention = _masked_attention(logits, mask[:, None], valid, mode, on_empty_row)
        outputs.append(drop(attention, dropout) @ value)
    networks = torch.stack(outputs)

    if topical_query is None:
        topical = networks.new_zeros(len(networks), len(query), query.shape[2])
    else:
        topical = torch.einsum("rbhnd,hd->rbn", networks, topical_query)
    if active is not None:
        topical = topical.masked_fill(~torch.tensor(active)[:, None, None], -torch.inf)
    alpha = topical.softmax(0) * valid.any(-1).squeeze(1)
    if topical_query is None:
        n_active = len(networks) if active is None else sum(active)
        alpha = alpha * n_active * summed_weight(summation, n_active)
    output = torch.einsum("rbn,rbhnd->bhnd", alpha, networks)
    if gate is not None:
        output = full + gate.expand(value.shape[1])[:, None, None] * (output - full)
    return output, alpha.permute(1, 2, 0) if return_weights else None


def _masks(relations: Tensor, max_distance: int, include_full: bool) -> Iterator[Tensor]:
    """Yield for each sub-network `[batch, keys, keys]`, True where M_r is 1."""
    for tree in relations.unbind(1):
        for relation in range(1, 3 * max_distance + 2):
            yield tree == relation
    if include_full:
        yield torch.ones_like(relations[:, 0], dtype=torch.bool)


def _masked_attention(
    logits: Tensor, mask: Tensor, valid: Tensor, mode: MaskMode, on_empty_row: OnEmptyRow
) -> Tensor:
    """Attention weights of one sub-network."""
    if mode == "multiplicative":
        return masked_softmax(logits * mask, valid)
    seen = mask & valid
    if on_empty_row == "full":
        seen = torch.where(seen.any(-1, keepdim=True), seen, valid)
    return masked_softmax(logits, seen)
