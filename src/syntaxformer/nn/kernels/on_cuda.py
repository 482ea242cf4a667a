# pyright: reportIndexIssue=false, reportGeneralTypeIssues=false, reportOperatorIssue=false
"""The collapsed syntax attention on CUDA: two Triton kernels do everything between the products of matrices.

The first takes a query of a sentence with all its heads, since topical attention sums over them, and makes
tables of coefficients by relation. A sum by relation is a product `[heads, keys] · [keys, relations]` with a
matrix of zeros and ones, made from the relation ids in registers, which the tensor cores compute exactly:
they take weights cut into parts of eight bits. The second looks the coefficients up for each pair of pieces.
Nothing but a block of logits and weights is in memory, and the backward pass is left one number a row: it
computes all sums again. The formulas are those of `syntax_kernel.Block`. Sums have a fixed order. Two small
kernels stand for a dozen operations around these, since a training step in bf16 waits for its launches.
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

SUM_KEYS, SUM_WARPS, SUM_STAGES, SUM_REGISTERS = 32, 4, 2, 128
"""Of the kernel that sums: keys at a time, warps of a program, stages of its loads, registers of a thread."""
PAIR_KEYS, PAIR_WARPS, GROUP = 128, 1, 16
"""Of the kernel for pairs: keys of a program, its warps, and its queries."""
STATE_KEYS = 64
"""Of the kernels for states `[batch, heads, keys, d_head]`: keys at a time."""
_BLOCK = 1 << 25
"""Heads · queries · keys of a block, of which two fp32 arrays and two of the inputs' type are in memory."""

_variants: dict[tuple[Any, ...], Any] = {}


def _launch(kernel: Any, grid: tuple[int, ...], arguments: Sequence[Any], **constants: Any) -> None:
    """Launch a kernel where its first argument is; constants are its own, then the compiler's options.

    Triton's own launch binds and examines every argument to find the compiled variant, which took the host
    some 150 microseconds. Here the variant is found by what Triton specialises on.
    """
    with torch.cuda.device_of(arguments[0]):
        key = kernel.__name__, arguments[0].get_device(), *map(_kind, arguments), *constants.values()
        if (variant := _variants.get(key)) is not None:
            of_kernel = [constants[name] for name in kernel.arg_names[len(arguments) :]]
            variant[(*grid, 1, 1)[:3]](*arguments, *of_kernel)
        elif (variant := kernel[grid](*arguments, **constants)) is not None:  # as it is in the interpreter
            _variants[key] = variant


def _kind(argument: Any) -> Any:
    """What Triton specialises on: types, alignment, and numbers that are 1, multiples of 16, or long."""
    if isinstance(argument, Tensor):
        return argument.dtype, argument.data_ptr() % 16 == 0
    if isinstance(argument, float):
        return None
    return argument == 1, argument % 16 == 0, argument >= 2**31


@triton.jit
def _one_hot(
    relations, tree_stride, key, is_key, N_TREES: tl.constexpr, N_IDS: tl.constexpr, IDS: tl.constexpr
):
    """`[ids, keys]`, True for the relation of a key in each tree; the ids of a tree follow the last's.

    Each id loads the relations of all keys, which gives a thread several keys side by side.
    """
    id = tl.arange(0, IDS)[:, None]
    inside = (id < N_TREES * N_IDS) & is_key
    relation = tl.load(relations + (id // N_IDS) * tree_stride + key, inside, 255)
    return (relation.to(tl.int32) == id % N_IDS) & inside


@triton.jit
def _add_sums(sums, pairs, one_hot, PARTS: tl.constexpr):
    """Σ over the keys of each relation, `[heads, keys]` → `[heads, ids]`, added to the sums so far."""
    for _ in tl.static_range(PARTS):
        term = pairs.to(tl.bfloat16)
        sums = tl.dot(term.to(one_hot.dtype), tl.trans(one_hot), sums)
        pairs -= term.to(tl.float32)
    return sums


@triton.jit
def _scores(logits, bias, inside, sees, scaling, HAS_BIAS: tl.constexpr):
    """Scaled logits with the position bias, -inf for keys that are not seen.

    All keys are loaded, since a mask out of memory would load them one by one.
    """
    score = tl.load(logits, inside, 0.0) * scaling
    if HAS_BIAS:
        score += tl.load(bias, inside, 0.0).to(tl.float32)
    return tl.where(sees, score, float("-inf"))


@triton.jit
def _zero(shift, MULTIPLICATIVE: tl.constexpr, SMALLEST: tl.constexpr):
    """e^-c, the exponential of a masked key's logit."""
    return tl.minimum(tl.maximum(tl.exp(-shift), SMALLEST), 1.0) if MULTIPLICATIVE else shift * 0


@triton.jit
def _kept_scale(seed, head, query, quarter, dropout, SHAPE: tl.constexpr):
    """0 for attention weights that are dropped, 1 / (1 - p) for others: the same numbers each time."""
    origin = quarter * 0 + head * 0
    first, second, third, fourth = tl.philox(seed, origin + quarter, origin + query, origin + head, origin, 7)
    bits = tl.join(tl.join(first, second), tl.join(third, fourth)).reshape(SHAPE)
    return tl.where(bits >= tl.cast(dropout * 4294967296.0, tl.uint32), 1 / (1 - dropout), 0.0)


@triton.jit(do_not_specialize=["first_sentence", "first_query"])
def _sum_rows(
    logits, bias, y, valid, relations, networks, gate, seeds, d_weights, shifts,  # inputs
    tables, rows,  # outputs
    n_heads, n_queries, n_keys, first_sentence, first_query, scaling, full_bias, network_scale, dropout,
    relation_stride, tree_stride, query_stride, bias_stride, bias_head_stride, gate_stride,
    MULTIPLICATIVE: tl.constexpr, FULL_ON_EMPTY: tl.constexpr, HAS_BIAS: tl.constexpr,
    HAS_DROPOUT: tl.constexpr, BACKWARD: tl.constexpr, HEADROOM: tl.constexpr, SMALLEST: tl.constexpr,
    N_TREES: tl.constexpr, N_IDS: tl.constexpr, HEADS: tl.constexpr, IDS: tl.constexpr, KEYS: tl.constexpr,
    PARTS: tl.constexpr, PRODUCT: tl.constexpr,
):  # fmt: skip
    """The coefficients of a query, from sums over its keys.

    Pairs are `[batch, heads, queries, keys]`, y is `[batch, heads, keys]`, the bias of the networks `[ids]`,
    -inf for those that take no part. Written are β, and backward the gradients of numerators and
    denominators, to `tables`, each `[batch, heads, queries, ids]`; and c, the coefficients of 1 and of full
    attention, and backward the gradients of the latter's numerator, of all y and of the gate, to `rows`, each
    `[batch, heads, queries]`.
    """
    query, sentence = tl.program_id(0), tl.program_id(1).to(tl.int64)
    head, column = tl.arange(0, HEADS)[:, None], tl.arange(0, IDS)[None, :]
    is_head = head < n_heads
    of_head = tl.load(gate + head * gate_stride, is_head, 0.0)
    network_bias = tl.load(networks + column)
    pair = sentence * n_heads * n_queries * n_keys + (head * n_queries + query) * n_keys
    bias += sentence * bias_stride + head * bias_head_stride + query * n_keys
    y += sentence * n_heads * n_keys + head * n_keys
    valid += sentence * n_keys
    relations += sentence * relation_stride + query * query_stride
    seed = tl.load(seeds) if HAS_DROPOUT else 0

    row, n_rows = (sentence * n_heads + head) * n_queries + query, tl.num_programs(1) * n_heads * n_queries
    if BACKWARD:
        shift = tl.load(shifts + row, is_head, 0.0)
    else:
        top = tl.full([HEADS, KEYS], float("-inf"), tl.float32)
        for start in range(0, n_keys, KEYS):
            key = start + tl.arange(0, KEYS)[None, :]
            inside = is_head & (key < n_keys)
            sees = inside & (tl.load(valid + key, key < n_keys, 0) != 0)
            score = _scores(logits + pair + key, bias + key, inside, sees, scaling, HAS_BIAS)
            top = tl.maximum(top, score)
        top = tl.max(top, 1, keep_dims=True)
        lowest = -HEADROOM if MULTIPLICATIVE else 0.0
        shift = tl.where(top == float("-inf"), 0.0, top - tl.minimum(tl.maximum(top, lowest), HEADROOM))
    zero = _zero(shift, MULTIPLICATIVE, SMALLEST)

    den, numerator = tl.zeros([HEADS, IDS], tl.float32), tl.zeros([HEADS, IDS], tl.float32)
    ratio, n_keys_of = tl.zeros([HEADS, IDS], tl.float32), tl.zeros([HEADS, IDS], tl.float32)
    nothing, valids = tl.zeros([HEADS, KEYS], tl.float32), tl.zeros([1, KEYS], tl.int32)
    exps, exp_ys, ys, exp_ratios, d_sums = nothing, nothing, nothing, nothing, nothing
    for start in range(0, n_keys, KEYS):
        key = start + tl.arange(0, KEYS)[None, :]
        is_valid = tl.load(valid + key, key < n_keys, 0) != 0
        inside, sees = is_head & (key < n_keys), is_head & is_valid
        exp = tl.exp(_scores(logits + pair + key, bias + key, inside, sees, scaling, HAS_BIAS) - shift)
        weight = tl.where(sees, exp - zero, 0.0)
        of_key = tl.where(sees, tl.load(y + key, inside, 0.0), 0.0)
        one_hot = _one_hot(relations, tree_stride, key, key < n_keys, N_TREES, N_IDS, IDS).to(PRODUCT)
        den = _add_sums(den, weight, one_hot, PARTS)
        numerator = _add_sums(numerator, weight * of_key, one_hot, PARTS)
        exps, exp_ys, ys = exps + exp, exp_ys + exp * of_key, ys + of_key
        valids += is_valid.to(tl.int32)
        if not MULTIPLICATIVE:
            n_keys_of = _add_sums(n_keys_of, tl.where(sees, 1.0, 0.0), one_hot, 1)
        if BACKWARD:
            d_weight = tl.where(sees, tl.load(d_weights + pair + key, inside, 0.0), 0.0)
            if HAS_DROPOUT:
                at = (first_sentence + tl.program_id(1)) * n_heads + head
                quarter = start // 4 + tl.arange(0, KEYS // 4)[None, :]
                d_weight *= _kept_scale(seed, at, first_query + query, quarter, dropout, [HEADS, KEYS])
            ratio = _add_sums(ratio, weight * d_weight, one_hot, PARTS)
            exp_ratios, d_sums = exp_ratios + exp * d_weight, d_sums + d_weight

    n_valid = tl.sum(valids, 1, keep_dims=True)
    inverse = 1 / tl.maximum(den + n_valid * zero, SMALLEST)
    is_empty = (tl.max(n_keys_of, 0, keep_dims=True) == 0) & (network_bias > float("-inf"))
    if not MULTIPLICATIVE:
        inverse = tl.where(is_empty, 0.0, inverse)
    mean = (numerator + zero * tl.sum(ys, 1, keep_dims=True)) * inverse
    inverse_full = 1 / tl.maximum(tl.sum(exps, 1, keep_dims=True), SMALLEST)
    mean_full = tl.sum(exp_ys, 1, keep_dims=True) * inverse_full
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

    tables += row * IDS + column
    rows += row
    table_size = n_rows.to(tl.int64) * IDS
    tl.store(tables, beta, is_head)
    tl.store(rows, shift, is_head)
    tl.store(rows + n_rows, zero * tl.sum(beta, 1, keep_dims=True), is_head)
    tl.store(rows + 2 * n_rows, full, is_head)
    if BACKWARD:
        ratio = (ratio + zero * tl.sum(d_sums, 1, keep_dims=True)) * inverse
        full_ratio = tl.sum(exp_ratios, 1, keep_dims=True) * inverse_full
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
        d_full_den = -(d_full_numerator * mean_full + full * full_ratio)
        d_den = -(d_numerator * mean + beta * ratio)
        d_den += tl.where(column < N_IDS, d_full_den, 0.0)  # each key has one relation in the first tree
        tl.store(tables + table_size, d_numerator, is_head)
        tl.store(tables + 2 * table_size, d_den, is_head)
        tl.store(rows + 3 * n_rows, d_full_numerator, is_head)
        tl.store(rows + 4 * n_rows, zero * tl.sum(d_numerator, 1, keep_dims=True), is_head)
        of_gate = tl.sum(alpha * ratio, 1, keep_dims=True) + (of_full - 1) * full_ratio
        tl.store(rows + 5 * n_rows, of_gate, is_head)


@triton.jit(do_not_specialize=["first_sentence", "first_query"])
def _weigh_pairs(
    logits, bias, y, valid, relations, tables, rows, seeds, d_weights,  # inputs
    weights, d_logits, d_y,  # outputs
    n_heads, n_queries, n_keys, first_sentence, first_query, scaling, dropout,
    relation_stride, tree_stride, query_stride, bias_stride, bias_head_stride,
    MULTIPLICATIVE: tl.constexpr, HAS_BIAS: tl.constexpr, HAS_DROPOUT: tl.constexpr, BACKWARD: tl.constexpr,
    SMALLEST: tl.constexpr, N_TREES: tl.constexpr, N_IDS: tl.constexpr, IDS: tl.constexpr,
    KEYS: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    """Weights of some queries and keys of a head, from what `_sum_rows` wrote, and gradients of logits and y.

    The gradient of y is `[batch, heads, groups, keys]`, summed over a group of queries.
    """
    n_blocks, n_groups = tl.cdiv(n_keys, KEYS), tl.cdiv(n_queries, GROUP)
    start, group = tl.program_id(0) % n_blocks * KEYS, tl.program_id(0) // n_blocks  # only this axis is long
    sentence_head, n_rows = group // n_groups, tl.num_programs(0) // (n_blocks * n_groups) * n_queries
    sentence, head = (sentence_head // n_heads).to(tl.int64), sentence_head % n_heads
    of_head, table_size = sentence_head.to(tl.int64), n_rows.to(tl.int64) * IDS
    key = start + tl.arange(0, KEYS)
    inside = key < n_keys
    sees = tl.load(valid + sentence * n_keys + key, inside, 0) != 0
    of_key = tl.load(y + of_head * n_keys + key, inside, 0.0)
    bias += sentence * bias_stride + head * bias_head_stride
    relations += sentence * relation_stride
    seed = tl.load(seeds) if HAS_DROPOUT else 0
    d_of_key = tl.zeros([KEYS], tl.float32)
    first = group % n_groups * GROUP
    for query in range(first, min(first + GROUP, n_queries)):
        row = of_head * n_queries + query
        pair, coefficients = row * n_keys + key, rows + row
        shift = tl.load(coefficients)
        score = _scores(logits + pair, bias + query * n_keys + key, inside, sees, scaling, HAS_BIAS)
        exp = tl.exp(score - shift)
        weight = tl.where(sees, exp - _zero(shift, MULTIPLICATIVE, SMALLEST), 0.0)
        share, by_numerator, d_exp = weight * 0, weight * 0, weight * 0
        for tree in tl.static_range(N_TREES):
            relation = tl.load(relations + tree * tree_stride + query * query_stride + key, inside, 0)
            entry = tables + row * IDS + (relation.to(tl.int32) + tree * N_IDS)
            share += tl.load(entry)
            if BACKWARD:
                by_numerator += tl.load(entry + table_size)
                d_exp += tl.load(entry + 2 * table_size)
        kept_scale = 1.0
        if HAS_DROPOUT:
            at, quarter = first_sentence * n_heads + sentence_head, start // 4 + tl.arange(0, KEYS // 4)
            kept_scale = _kept_scale(seed, at, first_query + query, quarter, dropout, [KEYS])
        constant, full = tl.load(coefficients + n_rows), tl.load(coefficients + 2 * n_rows)
        attention = tl.where(sees, weight * share + constant + exp * full, 0.0) * kept_scale
        tl.store(weights + pair, attention.to(weights.dtype.element_ty), inside)
        if BACKWARD:
            d_weight = tl.load(d_weights + pair, inside, 0.0) * kept_scale
            d_full_numerator = tl.load(coefficients + 3 * n_rows)
            d_exp += (by_numerator + d_full_numerator) * of_key + (share + full) * d_weight
            d_logit = tl.where(sees, d_exp * exp, 0.0)
            tl.store(d_logits + pair, d_logit.to(d_logits.dtype.element_ty), inside)
            d_of_key += by_numerator * weight + tl.load(coefficients + 4 * n_rows) + d_full_numerator * exp
    if BACKWARD:
        tl.store(d_y + group.to(tl.int64) * n_keys + key, tl.where(sees, d_of_key, 0.0), inside)


@triton.jit
def _gather_states(
    query, key, value, topical_query, gathered, y, n_heads, n_keys, d_head, size,
    query_stride, query_head, query_key, key_stride, key_head, key_key, value_stride, value_head, value_key,
    KEYS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Some keys of a head: Q, K and V, whose strides are given, one after the other, and y = V u."""
    sentence_head = tl.program_id(0)
    sentence, head = (sentence_head // n_heads).to(tl.int64), sentence_head % n_heads
    row = tl.program_id(1) * KEYS + tl.arange(0, KEYS)[:, None]
    column = tl.arange(0, WIDTH)[None, :]
    inside = (row < n_keys) & (column < d_head)
    gathered += (sentence_head.to(tl.int64) * n_keys + row) * d_head + column
    query += sentence * query_stride + head * query_head + row * query_key + column
    key += sentence * key_stride + head * key_head + row * key_key + column
    value += sentence * value_stride + head * value_head + row * value_key + column
    tl.store(gathered, tl.load(query, inside), inside)
    tl.store(gathered + size, tl.load(key, inside), inside)
    of_value = tl.load(value, inside, 0.0)
    tl.store(gathered + size + size, of_value, inside)
    topical = tl.load(topical_query + head * d_head + column, column < d_head, 0.0).to(tl.float32)
    of_key = tl.sum(of_value.to(tl.float32) * topical, 1, keep_dims=True)
    tl.store(y + sentence_head.to(tl.int64) * n_keys + row, of_key, row < n_keys)


@triton.jit
def _add_topical(
    d_value, value, topical_query, d_y, d_topical, n_heads, n_keys, d_head,
    KEYS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Through y = V u: adds to the gradient of V; that of u is `[batch, heads, d_head]`."""
    sentence_head, column = tl.program_id(0), tl.arange(0, WIDTH)[None, :]
    start = sentence_head.to(tl.int64) * n_keys
    topical = tl.load(topical_query + sentence_head % n_heads * d_head + column, column < d_head, 0.0)
    total = tl.zeros([KEYS, WIDTH], tl.float32)
    for first in range(0, n_keys, KEYS):
        row = first + tl.arange(0, KEYS)[:, None]
        inside, place = (row < n_keys) & (column < d_head), (start + row) * d_head + column
        of_key = tl.load(d_y + start + row, row < n_keys, 0.0)
        total += of_key * tl.load(value + place, inside, 0.0).to(tl.float32)
        gradient = tl.load(d_value + place, inside, 0.0).to(tl.float32) + of_key * topical.to(tl.float32)
        tl.store(d_value + place, gradient.to(d_value.dtype.element_ty), inside)
    to = d_topical + sentence_head * d_head + column
    tl.store(to, tl.sum(total, 0, keep_dims=True), column < d_head)


class FusedSyntaxAttention(torch.autograd.Function):
    """`syntax_kernel.SyntaxKernel` without α: the same tensors and options, and the heads' outputs."""

    @staticmethod
    def forward(ctx: Any, *tensors_and_options: Any) -> Tensor:
        """Attend."""
        *states, topical_query, bias, gate, options = tensors_and_options
        seed = None
        if options.dropout:  # drawn on the device, so that nothing waits
            seed = torch.randint(2**62, (1,), device=states[0].device)
        with without_autocast(states[0].device):
            ctx.types = [tensor if tensor is None else tensor.dtype for tensor in tensors_and_options[:-1]]
            tensors = *_gathered(states, topical_query.contiguous()), topical_query.contiguous(), bias, gate
            ctx.options, ctx.seed = options, seed
            output, rows = _Rows(tensors, options, seed).forward()
            ctx.save_for_backward(*tensors, *rows)
            return output

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of all tensors."""
        saved = ctx.saved_tensors
        with without_autocast(grad.device):
            batch = _Rows(saved[:7], ctx.options, ctx.seed)
            gradients = batch.backward(grad, saved[7:], ctx.needs_input_grad[4])
        return *(
            gradient.to(dtype) if needed else None
            for dtype, gradient, needed in zip(ctx.types, gradients, ctx.needs_input_grad, strict=False)
        ), None


def _tile(n_keys: int, d_head: int) -> dict[str, int]:
    """Keys and columns of states that a program takes at a time."""
    keys = min(STATE_KEYS, max(16, triton.next_power_of_2(n_keys)))
    return {"KEYS": keys, "WIDTH": triton.next_power_of_2(d_head)}


def _gathered(states: Sequence[Tensor], topical_query: Tensor) -> tuple[Tensor, ...]:
    """Query, key and value in the type of the value, contiguous in memory, and y `[batch, heads, keys]`."""
    value = states[2]
    batch, n_heads, n_keys, d_head = value.shape
    states = [tensor.to(value.dtype) for tensor in states]
    states = [tensor if tensor.stride(3) == 1 else tensor.contiguous() for tensor in states]
    gathered = value.new_empty(3, batch, n_heads, n_keys, d_head)
    y = value.new_empty(batch, n_heads, n_keys, dtype=torch.float32)
    tile = _tile(n_keys, d_head)
    strides = [stride for tensor in states for stride in tensor.stride()[:3]]
    sizes = n_heads, n_keys, d_head, value.numel()
    _launch(
        _gather_states, (batch * n_heads, triton.cdiv(n_keys, tile["KEYS"])),
        (*states, topical_query, gathered, y, *sizes, *strides),
        **tile,
    )  # fmt: skip
    return *gathered.unbind(0), y


class _Rows:
    """The tensors of a batch, in the types in which they are computed, and the launches of the kernels."""

    def __init__(self, tensors: Sequence[Any], options: KernelOptions, seed: Tensor | None) -> None:
        self.query, self.key, self.value, self.y, self.topical_query, self.bias, gate = tensors
        self.options, self.seed = options, seed
        self.gate = self.y.new_ones(1).expand(self.value.shape[1]) if gate is None else gate.float()
        self.places = list(places(*self.value.shape[:3], _BLOCK))

    def forward(self) -> tuple[Tensor, list[Tensor]]:
        """`[batch, heads, keys, d_head]`, stored with heads after keys, and the numbers of all rows."""
        batch, n_heads, n_keys, d_head = self.value.shape
        output, rows = self.value.new_empty(batch, n_keys, n_heads, d_head).transpose(1, 2), []
        for block in self.places:
            logits = exact_product(self.query[block.heads], self.key[block.batch].mT, torch.float32)
            weights, block_rows = self._pairs(block, logits)
            output[block.heads] = weights @ self.value[block.batch]
            rows.append(block_rows[0])
        return output, rows

    def backward(self, grad: Tensor, rows: Sequence[Tensor], needs_bias: bool) -> tuple[Tensor | None, ...]:
        """Gradients in the order of the operation's arguments, with what `forward` returned of each row."""
        grad = grad.to(self.value.dtype).contiguous()
        batch, n_heads, n_keys, d_head = self.value.shape
        d_query, d_key, d_value = (torch.empty_like(tensor) for tensor in (self.query, self.key, self.value))
        d_y, d_gates = torch.empty_like(self.y), []
        d_bias = torch.zeros_like(self.bias, dtype=torch.float32) if needs_bias else None
        for block, shifts in zip(self.places, rows, strict=True):
            logits = exact_product(self.query[block.heads], self.key[block.batch].mT, torch.float32)
            d_weights = exact_product(grad[block.heads], self.value[block.batch].mT, torch.float32)
            d_logits = torch.empty_like(logits, dtype=torch.float32 if needs_bias else self.value.dtype)
            d_y_part = logits.new_empty(*logits.shape[:2], triton.cdiv(logits.shape[2], GROUP), n_keys)
            weights, block_rows = self._pairs(block, logits, d_weights, shifts, d_logits, d_y_part)
            d_gates.append(block_rows[5].sum((0, 2)))
            if d_bias is not None:
                here = block.of_bias(d_bias)
                d_bias[here] += d_logits.sum_to_size(d_bias[here].shape)
                d_logits = d_logits.to(self.value.dtype)
            of_keys, scaling = d_y_part.sum(2), self.options.scaling
            others = int(block.queries.start > 0)  # whether queries of the sentence came before
            d_y[block.batch] = d_y[block.batch] + of_keys if others else of_keys
            _add_product(d_query[block.heads], d_logits, self.key[block.batch], 0, scaling)
            _add_product(d_key[block.batch], d_logits.mT, self.query[block.heads], others, scaling)
            _add_product(d_value[block.batch], weights.mT, grad[block.heads], others, 1.0)
        d_topical = d_y.new_empty(batch, n_heads, d_head)
        tensors = d_value, self.value, self.topical_query, d_y, d_topical
        tile = _tile(n_keys, d_head)
        _launch(
            _add_topical, (batch * n_heads,), (*tensors, n_heads, n_keys, d_head),
            **tile,
        )  # fmt: skip
        return d_query, d_key, d_value, d_topical.sum(0), d_bias, sum(d_gates[1:], d_gates[0])

    def _pairs(self, block: Any, logits: Tensor, *gradients: Tensor) -> tuple[Tensor, Tensor]:
        """Weights of a block and the numbers of its rows, and backward its gradients.

        `gradients` are those of the weights, c of the rows, and those of the logits and y, which are written.
        """
        options, (batch, n_heads, n_queries, n_keys) = self.options, logits.shape
        index, bias = options.index, logits
        if self.bias is not None:
            bias = self.bias[block.of_bias(self.bias)].contiguous()
        relations = index.relations[block.batch, :, block.queries]
        n_trees, n_ids = relations.shape[1], 3 * index.max_distance + 2
        networks = _network_bias(options.active, n_trees, n_ids, logits.device)
        weights = torch.empty_like(logits, dtype=self.value.dtype)
        tables = logits.new_empty(3 if gradients else 1, batch, n_heads, n_queries, len(networks))
        rows = logits.new_empty(6 if gradients else 3, batch, n_heads, n_queries)
        d_weights, shifts, d_logits, d_y = gradients or [logits] * 4
        seed = self.seed if options.dropout else logits
        pairs = logits, bias, self.y[block.batch], index.key_mask[block.batch].view(torch.uint8), relations
        sizes = n_heads, n_queries, n_keys, block.batch.start, block.queries.start, options.scaling
        strides = *relations.stride()[:3], bias.stride(0) if len(bias) > 1 else 0, bias.stride(1)
        shared = {"N_TREES": n_trees, "N_IDS": n_ids, "IDS": len(networks)}
        kinds = {
            "HAS_BIAS": self.bias is not None, "HAS_DROPOUT": options.dropout > 0, "BACKWARD": bool(gradients)
        }  # fmt: skip
        size = max(16, triton.next_power_of_2(n_keys))
        of_rows = options.full_bias, options.network_scale, options.dropout, *strides, self.gate.stride(0)
        _launch(
            _sum_rows, (n_queries, batch),
            (*pairs, networks, self.gate, seed, d_weights, shifts, tables, rows, *sizes, *of_rows),
            MULTIPLICATIVE=options.multiplicative, FULL_ON_EMPTY=options.full_on_empty, **kinds,
            HEADROOM=HEADROOM, SMALLEST=SMALLEST, **shared, HEADS=max(16, triton.next_power_of_2(n_heads)),
            KEYS=min(SUM_KEYS, size),
            PARTS=3 if self.value.dtype == torch.float32 else 2,  # one is too few where sums cancel
            PRODUCT=tl.bfloat16 if logits.is_cuda else tl.float32,  # the interpreter multiplies no bf16
            num_warps=SUM_WARPS, num_stages=SUM_STAGES, maxnreg=SUM_REGISTERS,
        )  # fmt: skip
        keys = min(PAIR_KEYS, size)
        _launch(
            _weigh_pairs, (triton.cdiv(n_keys, keys) * triton.cdiv(n_queries, GROUP) * batch * n_heads,),
            (*pairs, tables, rows, seed, d_weights, weights, d_logits, d_y, *sizes, options.dropout,
             *strides),
            MULTIPLICATIVE=options.multiplicative, **kinds, SMALLEST=SMALLEST, **shared,
            KEYS=keys, GROUP=GROUP, num_warps=PAIR_WARPS,
        )  # fmt: skip
        return weights, rows


def _add_product(total: Tensor, left: Tensor, right: Tensor, beta: int, alpha: float) -> None:
    """Make it beta · total + alpha · left · right; a part of the queries is of one sentence."""
    total = total.view(-1, *total.shape[2:])
    total.baddbmm_(left.flatten(0, 1), right.flatten(0, 1), beta=beta, alpha=alpha)


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
            key = start + tl.arange(0, KEYS)[None, :]
            inside = (head < n_heads) & (key < n_keys)
            grad = tl.load(grads + (head * n_queries + query) * n_keys + key, inside, 0.0).to(tl.float32)
            row = relations + query * n_keys
            one_hot = _one_hot(row, tree_stride, key, key < n_keys, N_TREES, N_IDS, IDS).to(PRODUCT)
            total = _add_sums(total, grad, one_hot, PARTS)
    sums += (sentence * tl.num_programs(0) + tl.program_id(0)) * n_heads * IDS
    tl.store(sums + head * IDS + column, total, head < n_heads)


def biases_of(relations: Tensor, table: Tensor, dtype: torch.dtype) -> Tensor:
    """Σ_trees table[tree, R_ij, head], `[batch, heads, keys, keys]`, from a table `[trees, ids, heads]`."""
    (n_trees, n_ids, n_heads), (batch, _, n_keys, _) = table.shape, relations.shape
    biases = table.new_empty(batch, n_heads, n_keys, n_keys, dtype=dtype)
    relations = relations.contiguous()
    _launch(
        _gather_biases, (n_keys, batch),
        (biases, table.contiguous(), relations, n_heads, n_keys, n_keys, *relations.stride()[:2]),
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
    _launch(
        _sum_biases, (n_groups, batch),
        (sums, grad.contiguous(), relations, n_heads, n_keys, n_keys, *relations.stride()[:2]),
        N_TREES=n_trees, N_IDS=n_ids, HEADS=max(16, triton.next_power_of_2(n_heads)), IDS=ids,
        KEYS=min(64, max(16, triton.next_power_of_2(n_keys))),
        PARTS={torch.bfloat16: 1, torch.float16: 2}.get(grad.dtype, 3),
        PRODUCT=tl.bfloat16 if grad.is_cuda else tl.float32, GROUP=16,
    )  # fmt: skip
    return sums.sum(0)[:, : n_trees * n_ids].view(n_heads, n_trees, n_ids).permute(1, 2, 0)
