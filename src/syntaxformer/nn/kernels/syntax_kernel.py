"""The collapsed syntax attention as one operation of autograd.

It goes block by block, so that nothing of size [heads, keys, keys] outlives its block (a CPU's cache holds
one), and its backward pass makes the attention weights anew. The formulas are in `syntax_block`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from syntaxformer.nn.kernels.dropout import keep_mask
from syntaxformer.nn.kernels.syntax_block import Block, KernelOptions, Sums

__all__ = ["SyntaxKernel"]

_CPU_BLOCK = 1 << 18
"""Heads · queries · keys of a block on a CPU; elsewhere all is one block."""


class SyntaxKernel(torch.autograd.Function):
    """`syntax_attention` after its arguments have been checked.

    Takes query, key, value `[batch, heads, keys, d_head]`, topical query `[heads, d_head]`, position bias
    `[1 or batch, heads, keys, keys]` or None, gate `[heads]` or None, and options. Returns the heads'
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
        with torch.autocast(query.device.type, enabled=False):
            batch = _Batch.of(tensors, options, keep)
            output, sums = batch.forward()
        ctx.options, ctx.keep = options, keep
        ctx.save_for_backward(*tensors, *(getattr(sums, field.name) for field in fields(sums)))
        return output.to(tensors[2].dtype), sums.alpha

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_output: Tensor, grad_alpha: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of all tensors."""
        saved = ctx.saved_tensors  # asked for once: gradient checkpointing gives them only once
        tensors, sums = saved[:6], Sums(*saved[6:])
        with torch.autocast(grad_output.device.type, enabled=False):
            batch = _Batch.of(tensors, ctx.options, ctx.keep)
            gradients = batch.backward(grad_output, grad_alpha, sums)
        return *(
            gradient.to(tensor.dtype) if needed else None
            for tensor, gradient, needed in zip(tensors, gradients, ctx.needs_input_grad, strict=False)
        ), None


@dataclass(frozen=True)
class _Batch:
    """Tensors in the types they are computed in."""

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
        """Sums are in float32 (or float64), and so are matrix products on a CPU."""
        query, key, value, topical_query, bias, gate = tensors
        exact = torch.float64 if value.dtype == torch.float64 else torch.float32
        dtype = _product_dtype(value, exact)
        topical_query, valid = topical_query.to(exact), options.index.key_mask.to(exact)
        y = (value.to(exact) @ topical_query[..., None]).squeeze(-1).transpose(1, 2) * valid[..., None]
        query, key, value = query.to(dtype), key.to(dtype), value.to(dtype)
        gate = None if gate is None else gate.to(exact)
        return cls(query, key, value, y, topical_query, bias, gate, keep, valid, options)

    def forward(self) -> tuple[Tensor, Sums]:
        """Output `[batch, heads, keys, d_head]`, in memory heads after keys, and the sums of all rows."""
        batch, n_heads, n_keys, d_head = self.value.shape
        n_slots = self.options.bias.shape[2]
        output = self.value.new_empty(batch, n_keys, n_heads, d_head).transpose(1, 2)
        per_slot, per_row = (batch, n_keys, n_slots, n_heads), (batch, n_keys, 1, n_heads)
        shapes = (per_slot, per_slot, per_row, per_row, (batch, n_keys, n_slots + 1))
        sums = Sums(*(self.y.new_empty(shape) for shape in shapes))
        for place, block in self._blocks():
            of_block, block_sums = block.forward()
            output[place.heads] = of_block
            for field in fields(sums):
                getattr(sums, field.name)[place.rows] = getattr(block_sums, field.name)
        return output, sums

    def backward(self, grad: Tensor, grad_alpha: Tensor, sums: Sums) -> tuple[Tensor | None, ...]:
        """Gradients in the order of the operation's arguments."""
        grad = grad.to(self.value.dtype)
        d_query, d_key, d_value = (torch.zeros_like(tensor) for tensor in (self.query, self.key, self.value))
        d_y, d_gate = torch.zeros_like(self.y), None if self.gate is None else torch.zeros_like(self.gate)
        d_bias = None if self.bias is None else torch.zeros_like(self.bias, dtype=self.y.dtype)
        for place, block in self._blocks():
            of_block = block.backward(
                grad[place.heads],
                grad_alpha[place.rows],
                Sums(*(getattr(sums, field.name)[place.rows] for field in fields(sums))),
            )
            d_query[place.heads] = of_block.query
            d_key[place.batch] += of_block.key
            d_value[place.batch] += of_block.value
            d_y[place.batch] += of_block.y
            if d_gate is not None and of_block.gate is not None:
                d_gate += of_block.gate
            if d_bias is not None:
                _add(d_bias, place, of_block.logits)
        d_y = d_y.transpose(1, 2)
        d_topical = (d_y.unsqueeze(2).to(self.value.dtype) @ self.value).sum(0).squeeze(1)
        d_value.addcmul_(d_y.unsqueeze(-1), self.topical_query[:, None])
        return d_query, d_key, d_value, d_topical, d_bias, d_gate

    def _blocks(self) -> Iterator[tuple[_Place, Block]]:
        batch, n_heads, n_keys, _ = self.value.shape
        index = self.options.index
        for place in _places(batch, n_heads, n_keys, self.value.device.type):
            bias = None
            if self.bias is not None:
                bias = self.bias[place.batch if len(self.bias) > 1 else slice(None), :, place.queries]
            first = place.batch.start * n_keys + place.queries.start
            last = (place.batch.stop - 1) * n_keys + place.queries.stop
            yield (
                place,
                Block(
                    options=self.options,
                    rows=index.rows(first, last),
                    query=self.query[place.heads],
                    key=self.key[place.batch],
                    value=self.value[place.batch],
                    y=self.y[place.batch, None],
                    bias=bias,
                    valid=self.valid[place.batch],
                    slot_bias=self.options.bias[place.rows],
                    gate=self.gate,
                    keep=None if self.keep is None else self.keep[place.heads],
                    padded=index.padded,
                ),
            )


def _product_dtype(value: Tensor, exact: torch.dtype) -> torch.dtype:
    """What matrix products are computed in: on a CPU bf16 gains nothing."""
    return exact if value.device.type == "cpu" else value.dtype


@dataclass(frozen=True)
class _Place:
    """Sentences and queries of a block."""

    batch: slice
    queries: slice

    @property
    def heads(self) -> tuple[slice, slice, slice]:
        """Where heads stand before queries."""
        return self.batch, slice(None), self.queries

    @property
    def rows(self) -> tuple[slice, slice]:
        """Where heads stand last."""
        return self.batch, self.queries


def _places(batch: int, n_heads: int, n_keys: int, device: str) -> Iterator[_Place]:
    """Several sentences at a time if a block has room for them, or else some queries of one."""
    if device != "cpu":
        yield _Place(slice(0, batch), slice(0, n_keys))
        return
    n_sentences = _CPU_BLOCK // (n_heads * n_keys * n_keys)
    n_queries = n_keys if n_sentences else max(1, _CPU_BLOCK // (n_heads * n_keys))
    n_sentences = max(1, n_sentences)
    for first in range(0, batch, n_sentences):
        for start in range(0, n_keys, n_queries):
            yield _Place(
                slice(first, min(batch, first + n_sentences)), slice(start, min(n_keys, start + n_queries))
            )


def _add(d_bias: Tensor, place: _Place, d_logits: Tensor) -> None:
    """Add the gradient of a block's logits to that of the bias, which all sentences may share."""
    if len(d_bias) == 1:
        d_bias[:, :, place.queries] += d_logits.sum(0, keepdim=True)
    else:
        d_bias[place.heads] += d_logits
