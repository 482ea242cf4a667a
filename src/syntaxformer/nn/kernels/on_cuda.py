# pyright: reportIndexIssue=false
"""The collapsed syntax attention on CUDA: everything between the products of matrices is one Triton kernel.

A program takes a query of a sentence with all its heads, since topical attention sums over them. A sum by
relation is then a product `[heads, keys] · [keys, relations]` with a matrix of zeros and ones, made from the
relation ids in registers, which the tensor cores compute exactly: they take weights cut into parts of eight
bits. Nothing but a block of logits and weights is in memory, and nothing is kept for the backward pass, which
computes all sums again. The formulas are those of `syntax_kernel.Block`. Sums have a fixed order.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
import triton  # pyright: ignore[reportMissingImports]
import triton.language as tl  # pyright: ignore[reportMissingImports]
from torch import Tensor
from torch.autograd.function import once_differentiable

from syntaxformer.nn.kernels.on_cpu import without_autocast
from syntaxformer.nn.kernels.syntax_kernel import HEADROOM, SMALLEST, KernelOptions, exact_product, places

BLOCK_KEYS, GROUP, WARPS, STAGES = 32, 8, 4, 1
"""Keys at a time, queries whose gradients of y a program adds up, warps of a program, stages of its loads."""
LOOK_UP = "gather"
"""How entries are looked up: a "gather" in shared memory, or a "product" with the one-hot matrix."""


@triton.jit
def _one_hot(
    relations, tree_stride, key, is_key, N_TREES: tl.constexpr, N_IDS: tl.constexpr, IDS: tl.constexpr
):
    """`[keys, ids]`, True for the relation of a key in each tree; the ids of a tree follow the last's."""
    column = tl.arange(0, IDS)[None, :]
    relation = tl.load(relations + key, is_key, 0).to(tl.int32)
    for tree in tl.static_range(1, N_TREES):
        other = tl.load(relations + tree * tree_stride + key, is_key, 0).to(tl.int32) + tree * N_IDS
        relation = tl.where(column >= tree * N_IDS, other, relation)
    return (relation == column) & is_key


@triton.jit
def _add_sums(sums, pairs, one_hot, PARTS: tl.constexpr):
    """Σ over the keys of each relation, `[heads, keys]` → `[heads, ids]`, added to the sums so far."""
    for _ in tl.static_range(PARTS):
        part = pairs.to(tl.bfloat16)
        sums = tl.dot(part.to(one_hot.dtype), one_hot, sums)
        pairs -= part.to(tl.float32)
    return sums


@triton.jit
def _look_up(
    table, one_hot, relations, tree_stride, key, is_key,
    N_TREES: tl.constexpr, N_IDS: tl.constexpr, PARTS: tl.constexpr, BY_PRODUCT: tl.constexpr,
):  # fmt: skip
    """The entry of each key's relation, summed over the trees, `[heads, ids]` → `[heads, keys]`."""
    if BY_PRODUCT:
        return _add_sums(
            tl.zeros([table.shape[0], key.shape[1]], tl.float32), table, tl.trans(one_hot), PARTS
        )
    shape: tl.constexpr = [table.shape[0], key.shape[1]]
    relation = tl.load(relations + key, is_key, 0).to(tl.int32)
    entries = tl.gather(table, tl.broadcast_to(relation, shape), 1)
    for tree in tl.static_range(1, N_TREES):
        relation = tl.load(relations + tree * tree_stride + key, is_key, 0).to(tl.int32) + tree * N_IDS
        entries += tl.gather(table, tl.broadcast_to(relation, shape), 1)
    return entries


@triton.jit
def _kept_scale(seed, head, start, n_keys, dropout, HEADS: tl.constexpr, KEYS: tl.constexpr):
    """0 for attention weights that are dropped, 1 / (1 - p) for others: the same numbers each time."""
    quarter = (head * tl.cdiv(n_keys, KEYS) * KEYS + start) // 4 + tl.arange(0, KEYS // 4)[None, :]
    first, second, third, fourth = tl.randint4x(seed, quarter)
    bits = tl.join(tl.join(first, second), tl.join(third, fourth)).reshape(HEADS, KEYS)
    is_kept = tl.uint_to_uniform_float(bits.to(tl.uint32, bitcast=True)) >= dropout
    return tl.where(is_kept, 1 / (1 - dropout), 0.0)


@triton.jit
def _attend_rows(
    logits, bias, y, valid, relations, networks, gate, seeds, d_weights,  # inputs
    weights, d_logits, d_y, d_gate,  # outputs
    n_heads, n_queries, n_keys, first_row, full_bias, network_scale, dropout,
    relation_stride, tree_stride, query_stride, bias_stride, bias_head_stride,
    MULTIPLICATIVE: tl.constexpr, FULL_ON_EMPTY: tl.constexpr, HAS_BIAS: tl.constexpr,
    HAS_DROPOUT: tl.constexpr, BACKWARD: tl.constexpr, HEADROOM: tl.constexpr, SMALLEST: tl.constexpr,
    N_TREES: tl.constexpr, N_IDS: tl.constexpr, HEADS: tl.constexpr, IDS: tl.constexpr, KEYS: tl.constexpr,
    PARTS: tl.constexpr, PRODUCT: tl.constexpr, GROUP: tl.constexpr, BY_PRODUCT: tl.constexpr,
):  # fmt: skip
    """Weights of all keys of some queries and, backward, gradients of logits, y and gate.

    Pairs are `[batch, heads, queries, keys]`, y and its gradient `[batch, heads, keys]` and `[batch, groups,
    heads, keys]`, the bias of the networks `[ids]`, -inf for those that take no part.
    """
    sentence = tl.program_id(1).to(tl.int64)
    head, column = tl.arange(0, HEADS)[:, None], tl.arange(0, IDS)[None, :]
    is_head = head < n_heads
    of_head = tl.load(gate + head, is_head, 0.0)
    network_bias = tl.load(networks + column)
    first = sentence * n_heads * n_queries * n_keys
    logits, d_weights, weights, d_logits = (
        logits + first,
        d_weights + first,
        weights + first,
        d_logits + first,
    )
    y += sentence * n_heads * n_keys
    valid += sentence * n_keys
    bias += sentence * bias_stride
    relations += sentence * relation_stride
    d_y += (sentence * tl.num_programs(0) + tl.program_id(0)) * n_heads * n_keys
    for query in range(tl.program_id(0) * GROUP, min(tl.program_id(0) * GROUP + GROUP, n_queries)):
        row = sentence * n_queries + query
        pair = (head * n_queries + query) * n_keys
        bias_row = bias + head * bias_head_stride + query * n_keys
        relation = relations + query * query_stride
        seed = tl.load(seeds) + first_row + row if HAS_DROPOUT else 0

        top = tl.full([HEADS, 1], float("-inf"), tl.float32)
        for start in range(0, n_keys, KEYS):
            key = start + tl.arange(0, KEYS)[None, :]
            sees = is_head & (tl.load(valid + key, key < n_keys, 0) != 0)
            score = tl.load(logits + pair + key, sees, float("-inf"))
            if HAS_BIAS:
                score += tl.load(bias_row + key, sees, 0.0).to(tl.float32)
            top = tl.maximum(top, tl.max(score, 1, keep_dims=True))
        lowest = -HEADROOM if MULTIPLICATIVE else 0.0
        shift = tl.where(top == float("-inf"), 0.0, top - tl.minimum(tl.maximum(top, lowest), HEADROOM))
        zero = tl.minimum(tl.maximum(tl.exp(-shift), SMALLEST), 1.0) if MULTIPLICATIVE else shift * 0

        den, numerator = tl.zeros([HEADS, IDS], tl.float32), tl.zeros([HEADS, IDS], tl.float32)
        ratio, n_keys_of = tl.zeros([HEADS, IDS], tl.float32), tl.zeros([1, IDS], tl.int32)
        exp_sum, exp_y_sum, y_sum = shift * 0, shift * 0, shift * 0
        full_ratio, row_sum, n_valid = shift * 0, shift * 0, 0
        for start in range(0, n_keys, KEYS):
            key, down = start + tl.arange(0, KEYS)[None, :], start + tl.arange(0, KEYS)[:, None]
            is_valid = tl.load(valid + key, key < n_keys, 0) != 0
            sees = is_head & is_valid
            score = tl.load(logits + pair + key, sees, float("-inf"))
            if HAS_BIAS:
                score += tl.load(bias_row + key, sees, 0.0).to(tl.float32)
            exp = tl.exp(score - shift)
            weight = tl.where(sees, exp - zero, 0.0)
            of_key = tl.load(y + head * n_keys + key, sees, 0.0)
            is_down = tl.load(valid + down, down < n_keys, 0) != 0
            mask = _one_hot(relation, tree_stride, down, is_down, N_TREES, N_IDS, IDS)
            one_hot = mask.to(PRODUCT)
            den = _add_sums(den, weight, one_hot, PARTS)
            numerator = _add_sums(numerator, weight * of_key, one_hot, PARTS)
            exp_sum += tl.sum(exp, 1, keep_dims=True)
            exp_y_sum += tl.sum(exp * of_key, 1, keep_dims=True)
            y_sum += tl.sum(of_key, 1, keep_dims=True)
            n_valid += tl.sum(is_valid.to(tl.int32))
            if not MULTIPLICATIVE:
                n_keys_of += tl.sum(mask.to(tl.int32), 0, keep_dims=True)
            if BACKWARD:
                d_weight = tl.load(d_weights + pair + key, sees, 0.0)
                if HAS_DROPOUT:
                    d_weight *= _kept_scale(seed, head, start, n_keys, dropout, HEADS, KEYS)
                ratio = _add_sums(ratio, weight * d_weight, one_hot, PARTS)
                full_ratio += tl.sum(exp * d_weight, 1, keep_dims=True)
                row_sum += tl.sum(d_weight, 1, keep_dims=True)

        inverse = 1 / tl.maximum(den + n_valid * zero, SMALLEST)
        is_empty = (n_keys_of == 0) & (network_bias > float("-inf"))
        if not MULTIPLICATIVE:
            inverse = tl.where(is_empty, 0.0, inverse)
        mean = (numerator + zero * y_sum) * inverse
        inverse_full = 1 / tl.maximum(exp_sum, SMALLEST)
        mean_full = exp_y_sum * inverse_full
        topical, topical_full = tl.sum(mean, 0, keep_dims=True), tl.sum(mean_full, 0, keep_dims=True)
        if FULL_ON_EMPTY:
            topical = tl.where(is_empty, topical_full, topical)
        topical, topical_full = topical + network_bias, topical_full + full_bias
        highest = tl.maximum(tl.max(topical, 1, keep_dims=True), topical_full)
        alpha, alpha_full = tl.exp(topical - highest), tl.exp(topical_full - highest)
        scale = tl.where(n_valid > 0, network_scale, 0.0) / (tl.sum(alpha, 1, keep_dims=True) + alpha_full)
        alpha, alpha_full = alpha * scale, alpha_full * scale
        of_full = alpha_full
        if FULL_ON_EMPTY:
            of_full += tl.sum(tl.where(is_empty, alpha, 0.0), 1, keep_dims=True)
        beta = alpha * inverse * of_head
        full = ((1 - of_head) + of_head * of_full) * inverse_full
        constant = zero * tl.sum(beta, 1, keep_dims=True)

        if BACKWARD:
            ratio = (ratio + zero * row_sum) * inverse
            full_ratio *= inverse_full
            d_alpha = tl.sum(of_head * ratio, 0, keep_dims=True)
            d_alpha_full = tl.sum(of_head * full_ratio, 0, keep_dims=True)
            if FULL_ON_EMPTY:
                d_alpha = tl.where(is_empty, d_alpha_full, d_alpha)
            inner = tl.sum(alpha * d_alpha, 1, keep_dims=True) + alpha_full * d_alpha_full
            d_topical = alpha * (d_alpha - inner / network_scale)
            d_topical_full = alpha_full * (d_alpha_full - inner / network_scale)
            if FULL_ON_EMPTY:
                d_topical_full += tl.sum(tl.where(is_empty, d_topical, 0.0), 1, keep_dims=True)
            d_numerator, d_full_numerator = d_topical * inverse, d_topical_full * inverse_full
            d_den = -(d_numerator * mean + beta * ratio)
            d_full_den = -(d_full_numerator * mean_full + full * full_ratio)
            d_zero_y = zero * tl.sum(d_numerator, 1, keep_dims=True)
            of_gate = tl.sum(alpha * ratio, 1, keep_dims=True) + (of_full - 1) * full_ratio
            tl.store(d_gate + row * n_heads + head, of_gate, is_head)

        for start in range(0, n_keys, KEYS):
            key = start + tl.arange(0, KEYS)[None, :]
            is_key = key < n_keys
            sees = is_head & (tl.load(valid + key, is_key, 0) != 0)
            score = tl.load(logits + pair + key, sees, float("-inf"))
            if HAS_BIAS:
                score += tl.load(bias_row + key, sees, 0.0).to(tl.float32)
            exp = tl.exp(score - shift)
            weight = tl.where(sees, exp - zero, 0.0)
            one_hot = 0
            if BY_PRODUCT:
                down = start + tl.arange(0, KEYS)[:, None]
                is_down = down < n_keys
                one_hot = _one_hot(relation, tree_stride, down, is_down, N_TREES, N_IDS, IDS).to(PRODUCT)
            share = _look_up(
                beta, one_hot, relation, tree_stride, key, is_key, N_TREES, N_IDS, PARTS, BY_PRODUCT
            )
            attention = tl.where(sees, weight * share + constant + exp * full, 0.0)
            if HAS_DROPOUT:
                kept_scale = _kept_scale(seed, head, start, n_keys, dropout, HEADS, KEYS)
                attention *= kept_scale
            tl.store(weights + pair + key, attention.to(weights.dtype.element_ty), is_head & is_key)
            if BACKWARD:
                of_key = tl.load(y + head * n_keys + key, sees, 0.0)
                d_weight = tl.load(d_weights + pair + key, sees, 0.0)
                if HAS_DROPOUT:
                    d_weight *= kept_scale
                by_numerator = _look_up(
                    d_numerator,
                    one_hot,
                    relation,
                    tree_stride,
                    key,
                    is_key,
                    N_TREES,
                    N_IDS,
                    PARTS,
                    BY_PRODUCT,
                )
                d_exp = _look_up(
                    d_den, one_hot, relation, tree_stride, key, is_key, N_TREES, N_IDS, PARTS, BY_PRODUCT
                )
                d_exp += d_full_den + (by_numerator + d_full_numerator) * of_key + (share + full) * d_weight
                d_score = tl.where(sees, d_exp * exp, 0.0)
                tl.store(d_logits + pair + key, d_score.to(d_logits.dtype.element_ty), is_head & is_key)
                into = d_y + head * n_keys + key
                d_of_key = by_numerator * weight + d_zero_y + d_full_numerator * exp
                before = tl.load(into, sees & (query > tl.program_id(0) * GROUP), 0.0)
                tl.store(into, before + tl.where(sees, d_of_key, 0.0), is_head & is_key)
        if BACKWARD:
            tl.debug_barrier()  # the next query adds to the same gradients of y


class FusedSyntaxAttention(torch.autograd.Function):
    """`syntax_kernel.SyntaxKernel` without α: the same tensors and options, and the heads' outputs."""

    @staticmethod
    def forward(ctx: Any, *tensors_and_options: Any) -> Tensor:
        """Attend."""
        *tensors, options = tensors_and_options
        seed = None
        if options.dropout:  # drawn on the device, so that nothing waits
            seed = torch.randint(2**62, (1,), device=tensors[0].device)
        ctx.options, ctx.seed = options, seed
        ctx.save_for_backward(*tensors)
        with without_autocast(tensors[0].device):
            return _Rows(tensors, options, seed).forward()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of all tensors."""
        tensors = ctx.saved_tensors
        with without_autocast(grad.device):
            gradients = _Rows(tensors, ctx.options, ctx.seed).backward(grad, ctx.needs_input_grad[4])
        return *(
            gradient.to(tensor.dtype) if needed else None
            for tensor, gradient, needed in zip(tensors, gradients, ctx.needs_input_grad, strict=False)
        ), None


class _Rows:
    """The tensors of a batch, in the types in which they are computed, and the launches of the kernel."""

    def __init__(self, tensors: Sequence[Any], options: KernelOptions, seed: Tensor | None) -> None:
        query, key, value, topical_query, self.bias, gate = tensors
        self.options, self.seed = options, seed
        self.query = query.to(value.dtype) * options.scaling
        self.key, self.value = key.to(value.dtype).contiguous(), value.contiguous()
        self.topical_query = topical_query.float()
        self.y = (self.value * self.topical_query[:, None]).sum(-1)
        self.gate = self.y.new_ones(value.shape[1]) if gate is None else gate.float().contiguous()
        self.places = list(places(*value.shape[:3], value.device.type))

    def forward(self) -> Tensor:
        """`[batch, heads, keys, d_head]`, stored with heads after keys."""
        batch, n_heads, n_keys, d_head = self.value.shape
        output = self.value.new_empty(batch, n_keys, n_heads, d_head).transpose(1, 2)
        for place in self.places:
            logits = exact_product(self.query[place.heads], self.key[place.batch].mT, torch.float32)
            weights = torch.empty_like(logits, dtype=self.value.dtype)
            self._launch(place, logits, weights)
            output[place.heads] = weights @ self.value[place.batch]
        return output

    def backward(self, grad: Tensor, needs_bias: bool) -> tuple[Tensor | None, ...]:
        """Gradients in the order of the operation's arguments."""
        grad = grad.to(self.value.dtype)
        d_query, d_key, d_value = (torch.zeros_like(tensor) for tensor in (self.query, self.key, self.value))
        d_y, d_gate = torch.zeros_like(self.y), torch.zeros_like(self.gate)
        d_bias = torch.zeros_like(self.bias, dtype=torch.float32) if needs_bias else None
        for place in self.places:
            logits = exact_product(self.query[place.heads], self.key[place.batch].mT, torch.float32)
            d_weights = exact_product(grad[place.heads], self.value[place.batch].mT, torch.float32)
            batch, n_heads, n_queries, n_keys = logits.shape
            weights = torch.empty_like(logits, dtype=self.value.dtype)
            d_logits = torch.empty_like(logits, dtype=torch.float32 if needs_bias else self.value.dtype)
            d_y_part = logits.new_empty(batch, triton.cdiv(n_queries, GROUP), n_heads, n_keys)
            d_gate_part = logits.new_empty(batch, n_queries, n_heads)
            self._launch(place, logits, weights, d_weights, d_logits, d_y_part, d_gate_part)
            d_y[place.batch] += d_y_part.sum(1)
            d_gate += d_gate_part.sum((0, 1))
            if d_bias is not None:
                here = place.of_bias(d_bias)
                d_bias[here] += d_logits.sum_to_size(d_bias[here].shape)
                d_logits = d_logits.to(self.value.dtype)
            d_query[place.heads] = d_logits @ self.key[place.batch]
            d_key[place.batch] += d_logits.mT @ self.query[place.heads]
            d_value[place.batch] += weights.mT @ grad[place.heads]
        d_topical = (d_y.unsqueeze(2) @ self.value.float()).sum(0).squeeze(1)
        d_value.addcmul_(d_y.unsqueeze(-1), self.topical_query[:, None])
        return d_query.mul_(self.options.scaling), d_key, d_value, d_topical, d_bias, d_gate

    def _launch(self, place: Any, logits: Tensor, weights: Tensor, *gradients: Tensor) -> None:
        """Run the kernel on a block; `gradients` are those of the weights, logits, y and gate."""
        options, (batch, n_heads, n_queries, n_keys) = self.options, logits.shape
        index, bias = options.index, logits
        if self.bias is not None:
            bias = self.bias[place.of_bias(self.bias)].contiguous()
        relations = index.relations[place.batch, :, place.queries]
        n_trees, n_ids = relations.shape[1], 3 * index.max_distance + 2
        networks = _network_bias(options.active, n_trees, n_ids, logits.device)
        d_weights, d_logits, d_y, d_gate = gradients or [logits] * 4
        group = GROUP if gradients else 1
        _attend_rows[triton.cdiv(n_queries, group), batch](
            logits, bias, self.y[place.batch], index.key_mask[place.batch].view(torch.uint8), relations,
            networks, self.gate, self.seed if options.dropout else logits, d_weights, weights, d_logits, d_y,
            d_gate, n_heads, n_queries, n_keys,
            place.batch.start * self.query.shape[2] + place.queries.start, options.full_bias,
            options.network_scale, options.dropout, *relations.stride()[:3],
            bias.stride(0) if len(bias) > 1 else 0, bias.stride(1),
            MULTIPLICATIVE=options.multiplicative, FULL_ON_EMPTY=options.full_on_empty,
            HAS_BIAS=self.bias is not None, HAS_DROPOUT=options.dropout > 0, BACKWARD=bool(gradients),
            HEADROOM=HEADROOM, SMALLEST=SMALLEST, N_TREES=n_trees, N_IDS=n_ids,
            HEADS=max(16, triton.next_power_of_2(n_heads)), IDS=networks.shape[0],
            KEYS=min(BLOCK_KEYS, max(16, triton.next_power_of_2(n_keys))),
            PARTS=3 if self.value.dtype == torch.float32 else 2,
            PRODUCT=tl.bfloat16 if logits.is_cuda else tl.float32,  # the interpreter multiplies no bf16
            GROUP=group, BY_PRODUCT=LOOK_UP == "product", num_warps=WARPS, num_stages=STAGES,
        )  # fmt: skip


@cache
def _network_bias(active: tuple[bool, ...] | None, n_trees: int, n_ids: int, device: torch.device) -> Tensor:
    """`[ids]`, 0 for the sub-networks that take part and -inf for others, tree after tree."""
    of_ids = torch.tensor([True] * n_trees * (n_ids - 1) if active is None else active).view(n_trees, -1)
    of_ids = F.pad(of_ids, (1, 0)).flatten()
    of_ids = F.pad(of_ids, (0, max(16, triton.next_power_of_2(len(of_ids))) - len(of_ids)))
    return torch.zeros(len(of_ids)).masked_fill_(~of_ids, -torch.inf).to(device)


@triton.jit
def _gather_biases(
    biases, table, relations, n_heads, n_queries, n_keys, relation_stride, tree_stride,
    N_TREES: tl.constexpr, N_IDS: tl.constexpr, HEADS: tl.constexpr, KEYS: tl.constexpr,
):  # fmt: skip
    """The biases of a query, of `[batch, heads, queries, keys]`, from a table `[trees, ids, heads]`."""
    sentence, query = tl.program_id(1).to(tl.int64), tl.program_id(0)
    head = tl.arange(0, HEADS)[:, None]
    biases += sentence * n_heads * n_queries * n_keys
    relations += sentence * relation_stride + query * n_keys
    for start in range(0, n_keys, KEYS):
        key = start + tl.arange(0, KEYS)[None, :]
        inside = (head < n_heads) & (key < n_keys)
        bias = tl.zeros([HEADS, KEYS], tl.float32)
        for tree in tl.static_range(N_TREES):
            relation = (
                tl.load(relations + tree * tree_stride + key, key < n_keys, 0).to(tl.int32) + tree * N_IDS
            )
            bias += tl.load(table + relation * n_heads + head, inside, 0.0).to(tl.float32)
        to = biases + (head * n_queries + query) * n_keys + key
        tl.store(to, bias.to(biases.dtype.element_ty), inside)


@triton.jit
def _sum_biases(
    sums, grads, relations, n_heads, n_queries, n_keys, relation_stride, tree_stride,
    N_TREES: tl.constexpr, N_IDS: tl.constexpr, HEADS: tl.constexpr, IDS: tl.constexpr, KEYS: tl.constexpr,
    PARTS: tl.constexpr, PRODUCT: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    """Gradients of a table, `[programs, heads, ids]`, summed over the pairs of some queries."""
    sentence = tl.program_id(1).to(tl.int64)
    head, column = tl.arange(0, HEADS)[:, None], tl.arange(0, IDS)[None, :]
    grads += sentence * n_heads * n_queries * n_keys
    relations += sentence * relation_stride
    total = tl.zeros([HEADS, IDS], tl.float32)
    for query in range(tl.program_id(0) * GROUP, min(tl.program_id(0) * GROUP + GROUP, n_queries)):
        for start in range(0, n_keys, KEYS):
            key, down = start + tl.arange(0, KEYS)[None, :], start + tl.arange(0, KEYS)[:, None]
            inside = (head < n_heads) & (key < n_keys)
            grad = tl.load(grads + (head * n_queries + query) * n_keys + key, inside, 0.0).to(tl.float32)
            row = relations + query * n_keys
            one_hot = _one_hot(row, tree_stride, down, down < n_keys, N_TREES, N_IDS, IDS).to(PRODUCT)
            total = _add_sums(total, grad, one_hot, PARTS)
    sums += (sentence * tl.num_programs(0) + tl.program_id(0)) * n_heads * IDS
    tl.store(sums + head * IDS + column, total, head < n_heads)


def biases_of(relations: Tensor, table: Tensor, dtype: torch.dtype) -> Tensor:
    """Σ_trees table[tree, R_ij, head], `[batch, heads, keys, keys]`, from a table `[trees, ids, heads]`."""
    (n_trees, n_ids, n_heads), (batch, _, n_keys, _) = table.shape, relations.shape
    biases = table.new_empty(batch, n_heads, n_keys, n_keys, dtype=dtype)
    relations = relations.contiguous()
    _gather_biases[n_keys, batch](
        biases, table.contiguous(), relations, n_heads, n_keys, n_keys, *relations.stride()[:2],
        N_TREES=n_trees, N_IDS=n_ids, HEADS=triton.next_power_of_2(n_heads),
        KEYS=min(256, triton.next_power_of_2(n_keys)),
    )  # fmt: skip
    return biases


def sums_of(relations: Tensor, grad: Tensor, n_ids: int) -> Tensor:
    """The gradient of the table of `biases_of` in fp32, summed in the same order each time."""
    batch, n_heads, n_keys, _ = grad.shape
    n_trees, relations, n_groups = relations.shape[1], relations.contiguous(), triton.cdiv(n_keys, 16)
    ids = max(16, triton.next_power_of_2(n_trees * n_ids))
    sums = grad.new_empty(batch * n_groups, n_heads, ids, dtype=torch.float32)
    _sum_biases[n_groups, batch](
        sums, grad.contiguous(), relations, n_heads, n_keys, n_keys, *relations.stride()[:2], N_TREES=n_trees,
        N_IDS=n_ids, HEADS=max(16, triton.next_power_of_2(n_heads)), IDS=ids,
        KEYS=min(64, max(16, triton.next_power_of_2(n_keys))), GROUP=16,
        PARTS={torch.bfloat16: 1, torch.float16: 2}.get(grad.dtype, 3),
        PRODUCT=tl.bfloat16 if grad.is_cuda else tl.float32,
    )  # fmt: skip
    return sums.sum(0)[:, : n_trees * n_ids].view(n_heads, n_trees, n_ids).permute(1, 2, 0)
