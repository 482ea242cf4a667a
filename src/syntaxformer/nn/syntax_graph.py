"""The collapsed syntax attention as a graph of plain operations, for export.

It makes no index of the batch, and every size but those of the model may vary. It is slower in PyTorch than
`syntax_kernel` and has no dropout. The formulas are in `nn.kernels.syntax_kernel`.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float, UInt8
from torch import Tensor

from syntaxformer.nn.kernels.syntax_kernel import HEADROOM, SMALLEST
from syntaxformer.nn.syntax import MaskMode, OnEmptyRow, Summation, check_arguments, summed_weight


def syntax_attention_graph(
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
    active: Sequence[bool] | None = None,
    gate: Float[Tensor, " heads"] | Float[Tensor, ""] | None = None,
    summation: Summation = "scaled",
) -> Float[Tensor, "batch heads keys d_head"]:
    """`syntax_attention` without dropout and without α; arguments as there.

    Raises:
        ValueError: The mode, rule or summation is unknown.
    """
    check_arguments(mode, on_empty_row, summation, 0.0)
    n_heads, n_ids = query.shape[1], 3 * max_distance + 2
    if key_mask is None:
        key_mask = torch.ones_like(relations[:, 0, 0], dtype=torch.bool)
    valid = key_mask.to(query.dtype)
    ids = (relations * key_mask[:, None, None, :]).to(torch.int64)
    exp, zero = _exponentials(query, key, scaling, position_bias, key_mask, mode == "multiplicative")
    weights = (exp - zero) * valid[:, None, None]
    if topical_query is None:
        y = torch.zeros_like(value[..., 0])
    else:
        y = (value * topical_query[:, None]).sum(-1) * valid[:, None]

    n_valid = valid.sum(-1)[:, None, None, None]
    inverse_full = exp.sum(-1, keepdim=True).clamp(min=SMALLEST).reciprocal()
    mean_full = (exp * y[:, :, None]).sum(-1, keepdim=True) * inverse_full
    inverses, logits, absent = [], [], []
    for of_tree in ids.unbind(1):
        den = _sum(weights, of_tree, n_ids)
        numerator = _sum(weights * y[:, :, None], of_tree, n_ids)
        inverse = (den + n_valid * zero).clamp(min=SMALLEST).reciprocal()
        mean = (numerator + zero * y.sum(-1)[..., None, None]) * inverse
        if mode == "additive":
            ones = valid[:, None, None].expand_as(of_tree[:, None])
            empty = _sum(ones, of_tree, n_ids) == 0
            inverse = inverse.masked_fill(empty, 0.0)
            mean = torch.where(empty, mean_full if on_empty_row == "full" else 0.0, mean)
            absent.append(empty[:, 0])
        inverses.append(inverse)
        logits.append(mean.sum(1))

    alpha = _shares([*logits, mean_full.sum(1)], n_ids, active, include_full)
    n_networks = len(ids[0]) * (n_ids - 1) + include_full
    n_active = n_networks if active is None else sum(map(bool, active))
    alpha = alpha * (n_valid[:, 0] > 0)
    if topical_query is None:
        alpha = alpha * (n_active * summed_weight(summation, n_active))
    *of_trees, of_full = alpha.split([n_ids] * len(logits) + [1], -1)
    if absent and on_empty_row == "full":
        of_full = of_full + sum(
            (one * empty).sum(-1, keepdim=True) for one, empty in zip(of_trees, absent, strict=True)
        )
    of_full = of_full[:, None]
    betas = [one[:, None] * inverse for one, inverse in zip(of_trees, inverses, strict=True)]
    if gate is not None:
        gate = gate.expand(n_heads)[:, None, None]
        betas, of_full = [beta * gate for beta in betas], 1 + gate * (of_full - 1)
    shares, total = torch.zeros_like(inverse_full), torch.zeros_like(inverse_full)
    for beta, of_tree in zip(betas, ids.unbind(1), strict=True):
        shares = shares + beta.gather(3, of_tree[:, None].expand(-1, n_heads, -1, -1))
        total = total + beta.sum(-1, keepdim=True)
    attention = (weights * shares + zero * total) * valid[:, None, None] + exp * (of_full * inverse_full)
    return attention @ value


def relation_bias_graph(
    relations: UInt8[Tensor, "batch trees keys keys"], weight: Float[Tensor, "trees ids heads"]
) -> Float[Tensor, "batch heads keys keys"]:
    """The same as `relation_bias`; arguments as there."""
    biases = [table[ids.to(torch.int64)] for table, ids in zip(weight, relations.unbind(1), strict=True)]
    return sum(biases[1:], biases[0]).permute(0, 3, 1, 2)


def _exponentials(
    query: Tensor,
    key: Tensor,
    scaling: float | None,
    bias: Tensor | None,
    key_mask: Tensor,
    multiplicative: bool,
) -> tuple[Tensor, Tensor]:
    """e^(s - c) `[b, h, q, k]`, 0 on invalid keys, and z `[b, h, q, 1]`."""
    logits = query @ key.transpose(-1, -2) * (query.shape[-1] ** -0.5 if scaling is None else scaling)
    logits = logits if bias is None else logits + bias
    logits = logits.masked_fill(~key_mask[:, None, None], -torch.inf)
    top = logits.amax(-1, keepdim=True)
    lowest = -HEADROOM if multiplicative else 0.0
    shift = (top - top.clamp(min=lowest).clamp(max=HEADROOM)).masked_fill(top == -torch.inf, 0.0)
    zero = (-shift).exp().clamp(min=SMALLEST).clamp(max=1.0) if multiplicative else torch.zeros_like(shift)
    return (logits - shift).exp(), zero


def _sum(pairs: Tensor, ids: Tensor, n_ids: int) -> Tensor:
    """Σ over the keys of each relation: `[b, h, q, k]` → `[b, h, q, ids]`."""
    index = ids[:, None].expand(-1, pairs.shape[1], -1, -1)
    sums = torch.zeros_like(pairs[..., :1]).repeat(1, 1, 1, n_ids)
    return sums.scatter_add(3, index, pairs)


def _shares(logits: list[Tensor], n_ids: int, active: Sequence[bool] | None, include_full: bool) -> Tensor:
    """α `[b, q, trees · ids + 1]`, 0 for relation 0 and those that take no part; full attention is last."""
    n_trees = len(logits) - 1
    rest = list(active or [True] * (n_trees * (n_ids - 1) + include_full))
    kept: list[bool] = []
    for _ in range(n_trees):
        kept, rest = [*kept, False, *rest[: n_ids - 1]], rest[n_ids - 1 :]
    of_all = torch.cat(logits, -1)
    taken = torch.tensor([*kept, *(rest or [False])], dtype=torch.bool, device=of_all.device)
    return of_all.masked_fill(~taken, -torch.inf).softmax(-1)
