"""The collapsed syntax attention as one operation of autograd.

It works block by block, so that no tensor of size [heads, keys, keys] outlives its block (which fits into a
CPU's cache), and its backward pass computes the attention weights again. The formulas are in `Block`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from syntaxformer.nn.kernels.on_cpu import keep_mask, without_autocast
from syntaxformer.nn.relation_index import RelationIndex, RowIndex, mask_of

HEADROOM = 40.0
"""Largest exponent of a row, up or down; logits within it are not shifted, which is most exact."""

SMALLEST = 1e-30
"""e^-69, used as the denominator if there is no key; the numerator is then zero."""


@dataclass(frozen=True)
class KernelOptions:
    """The arguments that are not part of the graph.

    Args:
        multiplicative: Masked keys get logit 0; otherwise they are removed.
        full_on_empty: If keys are removed, the slot without any keys attends to all keys.
        uses_full: Whether attention to all keys is needed, as a sub-network, in place of an empty one, or by
            a gate; if not, everything that belongs to it is zero.
        active: Whether each sub-network of the trees takes part; None for all.
        full_bias: 0 if attention to all keys is a sub-network that takes part, otherwise -inf.
        network_scale: The sum of α.
    """

    index: RelationIndex
    scaling: float
    multiplicative: bool
    full_on_empty: bool
    uses_full: bool
    active: tuple[bool, ...] | None
    full_bias: float
    network_scale: float
    dropout: float

    @cached_property
    def bias(self) -> Tensor:
        """`[batch, keys, slots]`, from `RelationIndex.slot_bias`."""
        if self.active is None:
            return self.index.bias_of_all
        return self.index.slot_bias(mask_of(self.active, self.index.key_mask.device))


@dataclass
class Sums:
    """Kept for backward: 1/den, mean `[b, q, r, h]`, those of all keys `[b, q, 1, h]`, α `[b, q, r + 1]`."""

    inverse: Tensor
    mean: Tensor
    inverse_full: Tensor
    mean_full: Tensor
    alpha: Tensor


@dataclass
class Gradients:
    """Gradients of query, key, value `[b, h, ., d]`, y `[b, k, h]`, logits `[b, h, q, k]` and gate `[h]`."""

    query: Tensor
    key: Tensor
    value: Tensor
    y: Tensor
    logits: Tensor
    gate: Tensor | None


@dataclass(frozen=True)
class Block:
    """Whole sentences, or some queries of one.

    Args:
        query: `[b, h, q, d]`.
        key: `[b, h, k, d]`.
        value: `[b, h, k, d]`.
        y: `[b, 1, k, h]`, 0 on invalid keys.
        bias: `[b or 1, h, q, k]`.
        valid: `[b, k]`, 1 or 0.
        slot_bias: `[b, q, r]`.
        gate: `[h]`, None for an open gate.
        keep: `[b, h, q, k]`, 1 for attention weights that are not dropped.
        padded: Whether any key is invalid.
    """

    options: KernelOptions
    rows: RowIndex
    query: Tensor
    key: Tensor
    value: Tensor
    y: Tensor
    bias: Tensor | None
    valid: Tensor
    slot_bias: Tensor
    gate: Tensor | None
    keep: Tensor | None
    padded: bool

    def forward(self) -> tuple[Tensor, Sums]:
        """Output `[b, h, q, d]` and what the backward pass needs."""
        exp, zero = self._exponentials()
        pairs = exp.new_empty(*self._row_shape, exp.shape[3], 2 * exp.shape[1])
        weights, weighted = pairs.chunk(2, -1)
        torch.sub(exp.permute(0, 2, 3, 1), zero, out=weights)
        if self.padded:
            weights.mul_(self.valid[:, None, :, None])
        torch.mul(weights, self.y, out=weighted)
        sums = self._sums(pairs, exp, zero)
        beta, full = self._coefficients(sums)
        constant = zero * beta.sum(2, keepdim=True)
        attention = self._attention(weights, self._look_up(beta), constant, exp, full)
        return (attention.to(self.value.dtype) @ self.value).mul_(self._kept_scale), sums

    def backward(self, grad: Tensor, grad_alpha: Tensor, sums: Sums) -> Gradients:
        """Gradients of all inputs, from those of the output and of α."""
        grad = grad * self._kept_scale
        exp, zero = self._exponentials()
        weights = _heads_last(exp - zero.permute(0, 3, 1, 2))
        if self.padded:
            weights.mul_(self.valid[:, None, :, None])
        d_attention = self._drop((grad @ self.value.transpose(-1, -2)).to(exp.dtype))
        full_ratio = sums.inverse_full
        if self.options.uses_full:
            full_ratio = full_ratio * _per_row((exp * d_attention).sum(-1))
        row_sum = _per_row(d_attention.sum(-1))
        d_attention = _heads_last(d_attention)
        ratio = self._sum(weights * d_attention).add_(zero * row_sum).mul_(sums.inverse)

        d_logits, d_full = self._topical_gradient(ratio, full_ratio, grad_alpha, sums)
        beta, full = self._coefficients(sums)
        d_numerator, d_full_numerator = d_logits * sums.inverse, d_full * sums.inverse_full
        d_den = (d_numerator * sums.mean).addcmul_(beta, ratio).neg_()
        d_full_den = -(d_full_numerator * sums.mean_full + full * full_ratio)
        d_zero_y = zero * d_numerator.sum(2, keepdim=True)
        constant = zero * beta.sum(2, keepdim=True)

        shares, by_numerator = self._look_up(beta), self._look_up(d_numerator)
        if self.options.uses_full:  # each key is in one slot of the first tree
            d_den[:, :, : self.options.index.n_tree_slots] += d_full_den
        d_exp = self._look_up(d_den).addcmul_(by_numerator, self.y).addcmul_(shares, d_attention)
        d_y = by_numerator.mul_(weights).sum(1) + d_zero_y.sum(1)
        if self.options.uses_full:
            d_exp.addcmul_(d_full_numerator, self.y).addcmul_(full, d_attention)
            d_y += (d_full_numerator.permute(0, 3, 2, 1) @ exp).permute(0, 3, 2, 1).squeeze(2)
        d_logits = _heads_first(d_exp).mul_(exp)
        attention = self._attention(weights, shares, constant, exp, full)
        d_scores = d_logits.to(self.key.dtype)
        return Gradients(
            query=(d_scores @ self.key).mul_(self.options.scaling),
            key=d_scores.transpose(-1, -2) @ self._scaled_query,
            value=attention.to(grad.dtype).transpose(-1, -2) @ grad,
            y=d_y * self.valid[..., None],
            logits=d_logits,
            gate=self._gate_gradient(ratio, full_ratio, sums),
        )

    def _exponentials(self) -> tuple[Tensor, Tensor]:
        """e^(s - c) `[b, h, q, k]`, 0 on invalid keys, and z `[b, q, 1, h]`."""
        exp = exact_product(self._scaled_query, self.key.transpose(-1, -2), self.y.dtype)
        if self.bias is not None:
            exp += self.bias
        if self.padded:
            exp += torch.zeros_like(self.valid).masked_fill_(self.valid == 0, -torch.inf)[:, None, None]
        top = exp.amax(-1, keepdim=True)
        lowest = -HEADROOM if self.options.multiplicative else 0.0
        shift = (top - top.clamp(lowest, HEADROOM)).masked_fill(top == -torch.inf, 0)
        zero = torch.zeros_like(shift)
        if self.options.multiplicative:  # e^-40 is negligible beside 1, so z may stay 1 in lower rows
            zero = shift.neg().exp_().clamp_(SMALLEST, 1)
        return exp.sub_(shift).exp_(), zero.permute(0, 2, 3, 1)

    def _sums(self, pairs: Tensor, exp: Tensor, zero: Tensor) -> Sums:
        """Denominators, topical logits and α."""
        den, numerator = self._sum(pairs).chunk(2, -1)
        n_valid = self.valid.sum(-1)[:, None, None, None]
        inverse = (den + n_valid * zero).clamp_(min=SMALLEST).reciprocal_()
        mean = (numerator + zero * self.y.sum(2, keepdim=True)).mul_(inverse)
        inverse_full = mean_full = exp.new_zeros(*self._row_shape, 1, exp.shape[1])
        if self.options.uses_full:
            inverse_full = _per_row(exp.sum(-1).clamp_(min=SMALLEST).reciprocal_())
            mean_full = (exp @ self.y.permute(0, 3, 2, 1)).permute(0, 2, 3, 1) * inverse_full
        logits, logit_full = mean.sum(-1), mean_full.sum(-1)
        if self.options.full_on_empty:
            logits[..., -1:] = logit_full
        logits, logit_full = logits.add_(self.slot_bias), logit_full + self.options.full_bias
        alpha = torch.cat([logits, logit_full], -1).softmax(-1)
        alpha.mul_(self.options.network_scale * (n_valid[..., 0] > 0))
        return Sums(inverse, mean, inverse_full, mean_full, alpha)

    def _coefficients(self, sums: Sums) -> tuple[Tensor, Tensor]:
        """Gated β `[b, q, r, h]`, and the coefficient of attention to all keys `[b, q, 1, h]`."""
        beta, full = sums.alpha[..., :-1, None] * sums.inverse, self._alpha_full(sums)[..., None]
        if self.gate is None:
            return beta, full * sums.inverse_full
        return beta.mul_(self.gate), (1 + self.gate * (full - 1)) * sums.inverse_full

    def _alpha_full(self, sums: Sums) -> Tensor:
        """α of attention to all keys, `[b, q, 1]`."""
        full = sums.alpha[..., -1:]
        return full + sums.alpha[..., -2:-1] if self.options.full_on_empty else full

    def _topical_gradient(
        self, ratio: Tensor, full_ratio: Tensor, grad_alpha: Tensor, sums: Sums
    ) -> tuple[Tensor, Tensor]:
        """Gradients of the topical logits `[b, q, r, 1]`, and of that of full attention `[b, q, 1, 1]`."""
        gate = ratio.new_ones(ratio.shape[-1]) if self.gate is None else self.gate
        d_alpha, d_full = ratio @ gate, full_ratio @ gate
        if self.options.full_on_empty:
            d_alpha[..., -1:] = d_full
        d_alpha = torch.cat([d_alpha, d_full], -1).add_(grad_alpha)
        inner = (sums.alpha * d_alpha).sum(-1, keepdim=True) / self.options.network_scale
        d_logits = sums.alpha * (d_alpha - inner)
        d_networks, d_full = d_logits[..., :-1], d_logits[..., -1:]
        if self.options.full_on_empty:
            d_full = d_full + d_networks[..., -1:]
            d_networks = F.pad(d_networks[..., :-1], (0, 1))
        return d_networks[..., None], d_full[..., None]

    def _gate_gradient(self, ratio: Tensor, full_ratio: Tensor, sums: Sums) -> Tensor | None:
        if self.gate is None:
            return None
        syntax = (sums.alpha[..., None, :-1] @ ratio).sum((0, 1, 2))
        return syntax + ((self._alpha_full(sums)[..., None] - 1) * full_ratio).sum((0, 1, 2))

    def _attention(
        self, weights: Tensor, shares: Tensor, constant: Tensor, exp: Tensor, full: Tensor
    ) -> Tensor:
        """P with heads first, after dropout; the constant `[b, q, 1, h]` is added to each key of a row."""
        pairs = _heads_first(torch.addcmul(constant, weights, shares))
        if self.options.uses_full:
            pairs.addcmul_(exp, full.permute(0, 3, 1, 2))
        return self._drop(pairs)

    def _drop(self, pairs: Tensor) -> Tensor:
        """Set invalid keys and dropped weights of [b, h, q, k] to 0 in place; the others are not scaled."""
        if self.padded:
            pairs.mul_(self.valid[:, None, None])
        return pairs if self.keep is None else pairs.mul_(self.keep)

    def _sum(self, pairs: Tensor) -> Tensor:
        """[b, q, k, width] → [b, q, r, width]."""
        return self.rows.sum_by_relation(pairs.flatten(0, 1)).unflatten(0, pairs.shape[:2])

    def _look_up(self, table: Tensor) -> Tensor:
        """[b, q, r, h] → [b, q, k, h]."""
        return self.rows.look_up(table.flatten(0, 1)).unflatten(0, table.shape[:2])

    @property
    def _scaled_query(self) -> Tensor:
        return self.query * self.options.scaling

    @property
    def _kept_scale(self) -> float:
        """The scale that dropout gives to kept weights, applied to their products instead."""
        return 1 / (1 - self.options.dropout)

    @property
    def _row_shape(self) -> tuple[int, int]:
        return len(self.query), self.query.shape[2]


def _per_row(sums: Tensor) -> Tensor:
    """[b, h, q] → [b, q, 1, h]."""
    return sums.transpose(1, 2).unsqueeze(2)


def _heads_last(pairs: Tensor) -> Tensor:
    return pairs.permute(0, 2, 3, 1).contiguous()


def _heads_first(pairs: Tensor) -> Tensor:
    return pairs.permute(0, 3, 1, 2).contiguous()


_CPU_BLOCK, _BLOCK = 1 << 18, 1 << 24
"""Heads · queries · keys of a block on a CPU and elsewhere; it holds up to eleven fp32 arrays of this size.

1 MB each stays in a processor's cache, and 64 MB each keep another device busy.
"""


class SyntaxKernel(torch.autograd.Function):
    """`syntax_attention` after its arguments have been checked.

    It takes query, key, value `[batch, heads, keys, d_head]`, topical query `[heads, d_head]`, position bias
    `[1 or batch, heads, keys, keys]` or None, gate `[heads]` or None, and options. It returns the heads'
    outputs and α `[batch, keys, slots + 1]`.
    """

    @staticmethod
    def forward(ctx: Any, *tensors_and_options: Any) -> tuple[Tensor, Tensor]:
        """Attend."""
        *tensors, options = tensors_and_options
        query = tensors[0]
        keep = None
        if options.dropout:
            keep = keep_mask((*query.shape[:3], query.shape[2]), options.dropout, query.device).view(
                torch.uint8
            )
        with without_autocast(query.device):
            batch = _Batch.of(tensors, options, keep)
            output, sums = batch.forward()
        ctx.options, ctx.keep = options, keep
        ctx.save_for_backward(*tensors, *(getattr(sums, field.name) for field in fields(sums)))
        return output.to(tensors[2].dtype), sums.alpha

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_output: Tensor, grad_alpha: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of all tensors."""
        saved = ctx.saved_tensors  # read once, since gradient checkpointing gives them only once
        tensors, sums = saved[:6], Sums(*saved[6:])
        with without_autocast(grad_output.device):
            batch = _Batch.of(tensors, ctx.options, ctx.keep)
            gradients = batch.backward(grad_output, grad_alpha, sums)
        return *(
            gradient.to(tensor.dtype) if needed else None
            for tensor, gradient, needed in zip(tensors, gradients, ctx.needs_input_grad, strict=False)
        ), None


@dataclass(frozen=True)
class _Batch:
    """All tensors, in the types in which they are computed."""

    query: Tensor
    key: Tensor
    value: Tensor
    y: Tensor
    topical_query: Tensor
    bias: Tensor | None
    gate: Tensor | None
    keep: Tensor | None
    valid: Tensor
    options: KernelOptions

    @classmethod
    def of(cls, tensors: Sequence[Tensor | None], options: KernelOptions, keep: Tensor | None) -> _Batch:
        """Convert the tensors: sums are float32 (or float64), products have the type of the states."""
        query, key, value, topical_query, bias, gate = tensors
        exact = torch.float64 if value.dtype == torch.float64 else torch.float32
        topical_query, valid = topical_query.to(exact), options.index.key_mask.to(exact)
        y = (value.to(exact) @ topical_query[..., None]).squeeze(-1).transpose(1, 2) * valid[..., None]
        query, key, value = query.to(value.dtype), key.to(value.dtype).contiguous(), value.contiguous()
        gate = None if gate is None else gate.to(exact)
        return cls(query, key, value, y, topical_query, bias, gate, keep, valid, options)

    def forward(self) -> tuple[Tensor, Sums]:
        """Output `[batch, heads, keys, d_head]`, stored with heads after keys, and the sums of all rows."""
        batch, n_heads, n_keys, d_head = self.value.shape
        n_slots = self.options.bias.shape[2]
        output = self.value.new_empty(batch, n_keys, n_heads, d_head).transpose(1, 2)
        per_slot, per_row = (batch, n_keys, n_slots, n_heads), (batch, n_keys, 1, n_heads)
        shapes = (per_slot, per_slot, per_row, per_row, (batch, n_keys, n_slots + 1))
        sums = Sums(*(self.y.new_empty(shape) for shape in shapes))
        for region, block in self._blocks():
            of_block, block_sums = block.forward()
            output[region.heads] = of_block
            for field in fields(sums):
                getattr(sums, field.name)[region.rows] = getattr(block_sums, field.name)
        return output, sums

    def backward(self, grad: Tensor, grad_alpha: Tensor, sums: Sums) -> tuple[Tensor | None, ...]:
        """Gradients in the order of the operation's arguments."""
        grad = grad.to(self.value.dtype)
        d_query, d_key, d_value = (torch.zeros_like(tensor) for tensor in (self.query, self.key, self.value))
        d_y, d_gate = torch.zeros_like(self.y), None if self.gate is None else torch.zeros_like(self.gate)
        d_bias = None if self.bias is None else torch.zeros_like(self.bias, dtype=self.y.dtype)
        for region, block in self._blocks():
            of_block = block.backward(
                grad[region.heads],
                grad_alpha[region.rows],
                Sums(*(getattr(sums, field.name)[region.rows] for field in fields(sums))),
            )
            d_query[region.heads] = of_block.query
            d_key[region.batch] += of_block.key
            d_value[region.batch] += of_block.value
            d_y[region.batch] += of_block.y
            if d_gate is not None and of_block.gate is not None:
                d_gate += of_block.gate
            if d_bias is not None:
                here = region.of_bias(d_bias)
                d_bias[here] += of_block.logits.sum_to_size(d_bias[here].shape)
        d_y = d_y.transpose(1, 2)
        d_topical = (d_y.unsqueeze(2).to(self.value.dtype) @ self.value).sum(0).squeeze(1)
        d_value.addcmul_(d_y.unsqueeze(-1), self.topical_query[:, None])
        return d_query, d_key, d_value, d_topical, d_bias, d_gate

    def _blocks(self) -> Iterator[tuple[Place, Block]]:
        batch, n_heads, n_keys, _ = self.value.shape
        index = self.options.index
        size = _CPU_BLOCK if self.value.device.type == "cpu" else _BLOCK
        for region in places(batch, n_heads, n_keys, size):
            first = region.batch.start * n_keys + region.queries.start
            last = (region.batch.stop - 1) * n_keys + region.queries.stop
            yield (
                region,
                Block(
                    options=self.options,
                    rows=index.rows(first, last),
                    query=self.query[region.heads],
                    key=self.key[region.batch],
                    value=self.value[region.batch],
                    y=self.y[region.batch, None],
                    bias=None if self.bias is None else self.bias[region.of_bias(self.bias)],
                    valid=self.valid[region.batch],
                    slot_bias=self.options.bias[region.rows],
                    gate=self.gate,
                    keep=None if self.keep is None else self.keep[region.heads],
                    padded=index.padded,
                ),
            )


def exact_product(left: Tensor, right: Tensor, dtype: torch.dtype) -> Tensor:
    """The product, rounded to `dtype` only: bf16 would round a logit near 40 by up to 0.125."""
    if left.device.type == "cuda" and left.dtype.itemsize == 2:  # the only device with such a product
        product = torch.bmm(left.flatten(0, 1), right.flatten(0, 1), out_dtype=torch.float32)
        return product.unflatten(0, left.shape[:2]).to(dtype)
    return left.to(dtype) @ right.to(dtype)


@dataclass(frozen=True)
class Place:
    """Sentences and queries of a block."""

    batch: slice
    queries: slice

    @property
    def heads(self) -> tuple[slice, slice, slice]:
        """Index of a tensor with heads before queries."""
        return self.batch, slice(None), self.queries

    @property
    def rows(self) -> tuple[slice, slice]:
        """Index of a tensor with heads last."""
        return self.batch, self.queries

    def of_bias(self, bias: Tensor) -> tuple[slice, slice, slice]:
        """Index of a position bias, which all sentences may share."""
        return slice(None) if len(bias) == 1 else self.batch, *self.heads[1:]


def places(batch: int, n_heads: int, n_keys: int, size: int) -> Iterator[Place]:
    """Several sentences at a time if a block has room for them, or else some queries of one."""
    n_sentences = size // (n_heads * n_keys * n_keys)
    n_queries = n_keys if n_sentences else max(1, size // (n_heads * n_keys))
    n_sentences = max(1, n_sentences)
    for first in range(0, batch, n_sentences):
        for start in range(0, n_keys, n_queries):
            yield Place(
                slice(first, min(batch, first + n_sentences)), slice(start, min(n_keys, start + n_queries))
            )
