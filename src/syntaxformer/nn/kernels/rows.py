"""Pieces of a batch as rows of a matrix, in one of few numbers.

oneDNN, which multiplies 16-bit matrices on a processor, makes a kernel for every number of rows that it
meets: 3 to 6 ms and 3.5 MB each. Batches of a token budget have hundreds of numbers of pieces, and a fifth of
a training step went there. With rows of zeros added, eight numbers are left between a power of two and the
next.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from syntaxformer.nn.kernels.choice import rows_dtype

__all__ = ["from_rows", "padded_count", "pointwise", "to_rows"]

_STEPS = 8
"""Numbers of rows from a power of two to the next: on average 4 % of the rows are added."""


def pointwise(
    layer: Callable[[Tensor], Tensor], states: Float[Tensor, "batch pieces *features"]
) -> Float[Tensor, "batch pieces out"]:
    """layer(states), for what treats each piece on its own; several axes of features become one."""
    return from_rows(layer(to_rows(states)), *states.shape[:2])


def padded_count(n_rows: int) -> int:
    """The next number of rows of which there are few."""
    step = max(1, (1 << (n_rows.bit_length() - 1)) // _STEPS) if n_rows else 1
    return -(-n_rows // step) * step


def to_rows(states: Float[Tensor, "batch pieces *features"]) -> Tensor:
    """What a sequence of position-wise layers is to be given instead of states; `from_rows` undoes it.

    Args:
        states: In any memory layout; more than one axis of features becomes one.

    Returns:
        `[rows, features]`, in the type of autocast, where 16-bit matrices are multiplied on a processor; else
        `[batch, pieces, features]` as they are.
    """
    dtype = rows_dtype(states)
    return states.flatten(2) if dtype is None else _ToRows.apply(states, dtype)


def from_rows(rows: Tensor, batch: int, pieces: int) -> Float[Tensor, "batch pieces features"]:
    """States again, after what `to_rows` gave went through position-wise layers."""
    return rows if rows.dim() == 3 else _FromRows.apply(rows, batch, pieces)


def _padded(states: Tensor, n_rows: int, dtype: torch.dtype) -> Tensor:
    """Rows of zeros after the pieces of states."""
    n_pieces = states.shape[0] * states.shape[1]
    rows = states.new_empty(n_rows, states.shape[2:].numel(), dtype=dtype)
    rows[:n_pieces].view(states.shape).copy_(states)
    rows[n_pieces:].zero_()
    return rows


class _ToRows(torch.autograd.Function):
    """One copy: of layout, type and padding together."""

    @staticmethod
    def forward(ctx: Any, states: Tensor, dtype: torch.dtype) -> Tensor:
        """Pad."""
        ctx.shape, ctx.dtype = states.shape, states.dtype
        return _padded(states, padded_count(states.shape[0] * states.shape[1]), dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        """Forget the padding."""
        n_pieces = ctx.shape[0] * ctx.shape[1]
        return grad[:n_pieces].view(ctx.shape).to(ctx.dtype), None


class _FromRows(torch.autograd.Function):
    """The rows that are pieces, without a copy."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, batch: int, pieces: int) -> Tensor:
        """Forget the padding."""
        ctx.n_rows, ctx.dtype = len(rows), rows.dtype
        return rows[: batch * pieces].view(batch, pieces, rows.shape[-1])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        """No gradient reaches the padding."""
        return _padded(grad, ctx.n_rows, ctx.dtype), None, None
