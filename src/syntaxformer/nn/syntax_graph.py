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
        scaled = query.to(exact) * (query.shape[-1] ** -0.5 if scaling is None else scaling)
        logits = scaled @ key.to(exact).transpose(-1, -2)
        logits = logits if position_bias is None else logits + position_bias
        y = torch.zeros_like(value[..., 0], dtype=exact)
        if topical_query is not None:
            y = (value.to(exact) * topical_query.to(exact)[:, None]).sum(-1) * key_mask[:, None]
        # From here on [b, q, h, k], so that the relations of a query's keys are those of all heads.
        exp, zero = (side.transpose(1, 2) for side in _exponentials(logits, key_mask, multiplicative))
        y, n_valid = y[:, None], key_mask.sum(-1).to(exact)[:, None, None, None]
        # Invalid keys have relation 0, whose share is 0, and an exponential of 0.
        pairs = _Pairs((relations * key_mask[:, None, None]).to(torch.int64), n_ids, exact)
        weights = exp - zero if multiplicative else exp
        inverse_full = exp.sum(-1, keepdim=True).clamp(min=SMALLEST).reciprocal()
        mean_full = (exp * y).sum(-1, keepdim=True) * inverse_full
        # 1 / den [b, q, h, relations], of all trees side by side.
        sums, sums_of_y = pairs.sum(weights), pairs.sum(weights * y)
        if multiplicative:
            sums, sums_of_y = sums + n_valid * zero, sums_of_y + zero * y.sum(-1, keepdim=True)
        inverse = sums.clamp(min=SMALLEST).reciprocal()
        mean, absent = sums_of_y * inverse, None  # [b, q, relations] that have no key and attend to all
        if not multiplicative:
            empty = pairs.sum(key_mask[:, None, None].to(exact).expand(-1, exp.shape[1], -1, -1)) == 0
            inverse = inverse.masked_fill(empty, 0.0)
            mean = torch.where(empty, mean_full if on_empty_row == "full" else 0.0, mean)
            absent = empty[:, :, 0] if on_empty_row == "full" else None
        alpha = _shares(torch.cat([mean.sum(2), mean_full.sum(2)], -1), n_ids, active, include_full)
        alpha = alpha * key_mask.any(-1)[:, None, None]
        if topical_query is None:
            n_active = n_networks if active is None else sum(map(bool, active))
            alpha = alpha * (n_active * summed_weight(summation, n_active))
        of_relations, of_full = alpha.split([mean.shape[-1], 1], -1)
        full = of_full if absent is None else of_full + (of_relations * absent).sum(-1, keepdim=True)
        shares, full = of_relations[:, :, None], full[:, :, None]
        if gate is not None:
            gate = gate.to(exact).reshape(-1, 1)
            shares, full = shares * gate, 1 + gate * (full - 1)
        beta, full = shares * inverse, full * inverse_full
        if multiplicative:
            constant = zero * beta.sum(-1, keepdim=True) * key_mask[:, None, None]
            attention = weights * pairs.gather(beta) + exp * full + constant
        else:
            attention = exp * (pairs.gather(beta) + full)
        output = drop(attention.transpose(1, 2), dropout).to(value_dtype) @ value
    if not return_weights:
        return output, None
    of_networks = [of_tree[..., 1:] for of_tree in of_relations.split(n_ids, -1)] + [of_full] * include_full
    return output, torch.cat(of_networks, -1).to(value_dtype)


class _Pairs:
    """Sums over the keys of each relation, and the value of each key's relation.

    A graph of ONNX multiplies by `[b, q, k, relations]` ones and zeros, since ONNX Runtime scatters slowly.
    Sums of all trees, of type `dtype`, stand side by side. Ids are `[b, trees, q, k]`, below `n_ids`.
    """

    def __init__(self, ids: Tensor, n_ids: int, dtype: torch.dtype) -> None:
        self.ids, self.n_ids = ids, n_ids
        self.one_hot: Tensor | None = None
        if multiplies():
            numbers = torch.arange(n_ids, device=ids.device)
            self.one_hot = (ids.permute(0, 2, 3, 1)[..., None] == numbers).flatten(3).to(dtype)

    def sum(self, pairs: Tensor) -> Tensor:
        """`[b, q, h, k]` → `[b, q, h, trees · relations]`."""
        if self.one_hot is not None:
            return pairs @ self.one_hot
        zeros = torch.zeros_like(pairs[..., :1]).expand(-1, -1, -1, self.n_ids)
        return torch.cat([zeros.scatter_add(3, index, pairs) for index in self._indices(pairs)], -1)

    def gather(self, of_relations: Tensor) -> Tensor:
        """`[b, q, h, trees · relations]` → `[b, q, h, k]`, the sum over the trees."""
        if self.one_hot is not None:
            return of_relations @ self.one_hot.transpose(2, 3)
        of_trees = zip(of_relations.split(self.n_ids, -1), self._indices(of_relations), strict=True)
        first, *others = (of_tree.gather(3, index) for of_tree, index in of_trees)
        return sum(others, first)

    def _indices(self, like: Tensor) -> list[Tensor]:
        return [of_tree[:, :, None].expand(-1, -1, like.shape[2], -1) for of_tree in self.ids.unbind(1)]


def multiplies() -> bool:
    """Whether sums are products by ones and zeros."""
    return torch.compiler.is_exporting()


def _exponentials(logits: Tensor, key_mask: Tensor, multiplicative: bool) -> tuple[Tensor, Tensor]:
    """e^(s - c) `[b, h, q, k]`, 0 on invalid keys, and z `[b, h, q, 1]`."""
    absent = torch.zeros_like(key_mask, dtype=logits.dtype).masked_fill(~key_mask, -torch.inf)
    logits = logits + absent[:, None, None]
    top = logits.amax(-1, keepdim=True)
    lowest = -HEADROOM if multiplicative else 0.0
    shift = (top - top.clamp(min=lowest).clamp(max=HEADROOM)).masked_fill(top == -torch.inf, 0.0)
    zero = (-shift).exp().clamp(min=SMALLEST).clamp(max=1.0) if multiplicative else torch.zeros_like(shift)
    return (logits - shift).exp(), zero


def _shares(logits: Tensor, n_ids: int, active: Sequence[bool] | None, include_full: bool) -> Tensor:
    """α `[b, q, trees · ids + 1]`, 0 for relation 0 and those that take no part; full attention is last."""
    n_trees = logits.shape[-1] // n_ids
    rest = list([True] * (n_trees * (n_ids - 1) + include_full) if active is None else active)
    flags: list[bool] = []
    for _ in range(n_trees):
        flags, rest = [*flags, False, *rest[: n_ids - 1]], rest[n_ids - 1 :]
    taken = torch.tensor([*flags, *(rest or [False])], dtype=torch.bool, device=logits.device)
    return logits.masked_fill(~taken, -torch.inf).softmax(-1)
