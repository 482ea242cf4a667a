"""The collapsed syntax attention as a graph of plain operations, for compilers and for export.

It makes no index of the batch, and every size but those of the model may vary. Without a compiler it is
slower than `syntax_kernel`. The formulas are in `nn.kernels.syntax_kernel`.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float, UInt8
from torch import Tensor

from syntaxformer.nn.kernels.on_cpu import drop, without_autocast
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
    dropout: float = 0.0,
    return_weights: bool = True,
    active: Sequence[bool] | None = None,
    gate: Float[Tensor, " heads"] | Float[Tensor, ""] | None = None,
    summation: Summation = "scaled",
) -> tuple[Float[Tensor, "batch heads keys d_head"], Float[Tensor, "batch keys networks"] | None]:
    """The same as `syntax_attention`; arguments as there, but for an index of the relations.

    Raises:
        ValueError: The mode, rule or summation is unknown, the dropout probability is outside [0, 1), or no
            sub-network takes part.
    """
    n_networks = relations.shape[1] * (3 * max_distance + 1) + include_full
    check_arguments(mode, on_empty_row, summation, dropout, active, n_networks)
    if key_mask is None:
        key_mask = torch.ones_like(relations[:, 0, 0], dtype=torch.bool)
    value_dtype, exact = value.dtype, torch.promote_types(value.dtype, torch.float32)
    n_ids, multiplicative = 3 * max_distance + 2, mode == "multiplicative"
    with without_autocast(query.device):
        logits = query.to(exact) @ key.to(exact).transpose(-1, -2)
        logits = logits * (query.shape[-1] ** -0.5 if scaling is None else scaling)
        logits = logits if position_bias is None else logits + position_bias
        y = torch.zeros_like(value[..., 0], dtype=exact)
        if topical_query is not None:
            y = (value.to(exact) * topical_query.to(exact)[:, None]).sum(-1) * key_mask[:, None]
        ids = list((relations * key_mask[:, None, None]).to(torch.int64).unbind(1))  # none to invalid keys
        valid = key_mask[:, None, None].to(exact)
        exp, zero = _exponentials(logits, key_mask, multiplicative)
        weights, n_valid, y = (exp - zero) * valid, valid.sum(-1, keepdim=True), y[:, :, None]
        inverse_full = exp.sum(-1, keepdim=True).clamp(min=SMALLEST).reciprocal()
        mean_full = (exp * y).sum(-1, keepdim=True) * inverse_full
        # Of each tree: 1 / den [b, h, q, ids], and [b, q, ids] logits and relations that attend to all keys.
        inverses, topical, absent = [], [], []
        for of_tree in ids:
            inverse = (_sum(weights, of_tree, n_ids) + n_valid * zero).clamp(min=SMALLEST).reciprocal()
            mean = (_sum(weights * y, of_tree, n_ids) + zero * y.sum(-1, keepdim=True)) * inverse
            if not multiplicative:
                empty = _sum(valid.expand_as(of_tree[:, None]), of_tree, n_ids) == 0
                inverse = inverse.masked_fill(empty, 0.0)
                mean = torch.where(empty, mean_full if on_empty_row == "full" else 0.0, mean)
                absent += [empty[:, 0]] * (on_empty_row == "full")
            inverses.append(inverse)
            topical.append(mean.sum(1))
        alpha = _shares([*topical, mean_full.sum(1)], n_ids, active, include_full)
        alpha = alpha * key_mask.any(-1)[:, None, None]
        if topical_query is None:
            n_active = n_networks if active is None else sum(map(bool, active))
            alpha = alpha * (n_active * summed_weight(summation, n_active))
        *of_trees, of_full = alpha.split([n_ids] * relations.shape[1] + [1], -1)
        full = of_full[:, None]
        for tree_alpha, empty in zip(of_trees, absent, strict=False):  # they have none of their own
            full = full + (tree_alpha * empty).sum(-1, keepdim=True)[:, None]
        betas = [
            tree_alpha[:, None] * inverse for tree_alpha, inverse in zip(of_trees, inverses, strict=True)
        ]
        if gate is not None:
            gate = gate.to(exact).expand(exp.shape[1])[:, None, None]
            betas, full = [beta * gate for beta in betas], 1 + gate * (full - 1)
        shares, total = torch.zeros_like(inverse_full), torch.zeros_like(inverse_full)
        for beta, of_tree in zip(betas, ids, strict=True):
            shares = shares + beta.gather(3, of_tree[:, None].expand(-1, beta.shape[1], -1, -1))
            total = total + beta.sum(-1, keepdim=True)
        attention = ((exp - zero) * shares + zero * total) * valid + exp * (full * inverse_full)
        output = drop(attention, dropout).to(value_dtype) @ value
    if not return_weights:
        return output, None
    of_networks = [tree_alpha[..., 1:] for tree_alpha in of_trees] + [of_full] * include_full
    return output, torch.cat(of_networks, -1).to(value_dtype)


def _exponentials(logits: Tensor, key_mask: Tensor, multiplicative: bool) -> tuple[Tensor, Tensor]:
    """e^(s - c) `[b, h, q, k]`, 0 on invalid keys, and z `[b, h, q, 1]`."""
    logits = logits.masked_fill(~key_mask[:, None, None], -torch.inf)
    top = logits.amax(-1, keepdim=True)
    lowest = -HEADROOM if multiplicative else 0.0
    shift = (top - top.clamp(min=lowest).clamp(max=HEADROOM)).masked_fill(top == -torch.inf, 0.0)
    zero = (-shift).exp().clamp(min=SMALLEST).clamp(max=1.0) if multiplicative else torch.zeros_like(shift)
    return (logits - shift).exp(), zero


def _sum(pairs: Tensor, ids: Tensor, n_ids: int) -> Tensor:
    """Σ over the keys of each relation: `[b, h, q, k]` → `[b, h, q, ids]`."""
    index = ids[:, None].expand(-1, pairs.shape[1], -1, -1)
    sums = torch.zeros_like(pairs[..., :1]).expand(-1, -1, -1, n_ids)
    return sums.scatter_add(3, index, pairs)


def _shares(logits: list[Tensor], n_ids: int, active: Sequence[bool] | None, include_full: bool) -> Tensor:
    """α `[b, q, trees · ids + 1]`, 0 for relation 0 and those that take no part; full attention is last."""
    n_trees = len(logits) - 1
    rest = list([True] * (n_trees * (n_ids - 1) + include_full) if active is None else active)
    flags: list[bool] = []
    for _ in range(n_trees):
        flags, rest = [*flags, False, *rest[: n_ids - 1]], rest[n_ids - 1 :]
    of_all = torch.cat(logits, -1)
    taken = torch.tensor([*flags, *(rest or [False])], dtype=torch.bool, device=of_all.device)
    return of_all.masked_fill(~taken, -torch.inf).softmax(-1)
