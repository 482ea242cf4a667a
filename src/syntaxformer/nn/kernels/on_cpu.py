"""Operations that are faster on a CPU than PyTorch's plain ones; only this module decides when to use them.

Each has a plain twin. `plain_operations` switches all of them off, so that the textbook path can be run and
compared.

Dropout draws 15 random bits for each element, where PyTorch draws a whole number. The pieces of a batch
become the rows of a matrix, padded so that few numbers of rows occur: oneDNN, which multiplies 16-bit
matrices, builds a kernel for every number of rows that it meets, each in 3 to 6 ms and 3.5 MB. Batches of a
token budget have hundreds of different numbers of pieces, which took a fifth of a training step. With rows of
zeros added, only eight numbers remain between a power of two and the next.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int16
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

_plain = False


def _is_plain() -> bool:
    """A compiler makes kernels of plain operations, and cannot look into ours."""
    return _plain or torch.compiler.is_compiling()


@contextmanager
def plain_operations() -> Iterator[None]:
    """Compute everything inside the `with` block by the plain operations, in this process."""
    global _plain
    before, _plain = _plain, True
    try:
        yield
    finally:
        _plain = before


def fuses_attention(query: Tensor, bias: Tensor | None) -> bool:
    """Whether attention uses PyTorch's fused kernel instead of the formula.

    On a CPU the formula is used for training in bf16, where the fused backward pass takes 6 times as long on
    sentences of 16 pieces and 2.5 times on 128, and with a bias unless an fp32 model predicts.
    """
    if _plain or query.device.type != "cpu" or bias is None:
        return not (_plain or _trains_in_bf16_on_cpu(query))
    return query.dtype == torch.float32 and not torch.is_grad_enabled()


@cache
def _has_triton() -> bool:
    return importlib.util.find_spec("triton") is not None


def takes_cuda_path(states: Tensor) -> bool:
    """Whether operations are computed by the kernels of `on_cuda`, which need triton."""
    is_plain = states.device.type != "cuda" or states.dtype == torch.float64 or _is_plain()
    return not is_plain and _has_triton()


def keep_type(query: Tensor) -> AbstractContextManager[Any]:
    """Switch autocast off for the formula in bf16 on a CPU, since it would make the softmax fp32."""
    return torch.autocast("cpu", enabled=False) if _trains_in_bf16_on_cpu(query) else nullcontext()


def without_autocast(device: torch.device) -> AbstractContextManager[Any]:
    """Switch autocast off where a device has it."""
    has_it = torch.amp.is_autocast_available(device.type)
    return torch.autocast(device.type, enabled=False) if has_it else nullcontext()


def _trains_in_bf16_on_cpu(query: Tensor) -> bool:
    return query.device.type == "cpu" and query.dtype == torch.bfloat16 and torch.is_grad_enabled()


def takes_cpu_path(device: torch.device) -> bool:
    """Whether operations take their own path for a CPU, since the plain one is slow there.

    Dropout draws 15 bits for each element (`drop`), in an eighth of the time. NumPy's radix sort of bytes
    takes a tenth. A tensor's values are read to choose smaller shapes; elsewhere each reading waits.
    """
    return not _is_plain() and device.type == "cpu"


# Dropout by bits.

_LEVELS = 1 << 15
_SIGN_BIT = torch.iinfo(torch.int16).min


def drop(states: Float[Tensor, "*axes"], prob: float) -> Float[Tensor, "*axes"]:
    """Set each element to zero with probability `prob`, and scale the others so that the mean stays the same.

    On a CPU the probability is rounded to 1/32768, and the scale fits the rounded one, in the precision of
    the states' type. It takes an eighth of the time of `torch.nn.functional.dropout`, used on other devices.

    Raises:
        ValueError: The probability is 1 or more, or negative.

    Source: Srivastava et al. (2014).
    """
    if not 0.0 <= prob < 1.0:
        raise ValueError(f"prob: expected at least 0 and less than 1, got {prob}.")
    if prob == 0.0:
        return states
    if not takes_cpu_path(states.device):
        return F.dropout(states, prob)
    n_dropped = _dropped_levels(prob)
    scale = _LEVELS / (_LEVELS - n_dropped)
    minus_kept = _minus_kept(states.shape, n_dropped)
    if states.dtype.itemsize == 2:  # all bits of -1 are set, none of 0: the scale or nothing, in place
        bits = torch.tensor(scale, dtype=states.dtype, device="cpu").view(torch.int16)
        return states * minus_kept.bitwise_and_(bits).view(states.dtype)
    return states * minus_kept.to(states.dtype).mul_(-scale)


def keep_mask(shape: Sequence[int], prob: float, device: torch.device) -> Bool[Tensor, "*shape"]:
    """False with probability `prob`, which is rounded to 1/32768 on a CPU."""
    if not takes_cpu_path(device):
        return torch.rand(shape, device=device) >= prob
    return _minus_kept(shape, _dropped_levels(prob)).to(torch.bool)


def _dropped_levels(prob: float) -> int:
    return min(round(prob * _LEVELS), _LEVELS - 1)


def _minus_kept(shape: Sequence[int], n_dropped: int) -> Int16[Tensor, "*shape"]:
    """0 for `n_dropped` of 32768 elements, at random, -1 for the others.

    With the sign bit set, 16 random bits are a number from -32768 to -1; after `n_dropped` is added, those
    that are still negative are kept, and a shift fills a number with its sign.
    """
    return _random_16_bits(torch.Size(shape)).bitwise_or_(_SIGN_BIT).add_(n_dropped).bitwise_right_shift_(15)


def _random_16_bits(shape: torch.Size) -> Int16[Tensor, "*shape"]:
    """Uniform int16 values from NumPy's generator, seeded by PyTorch's own and twice as fast as that."""
    seed = int(torch.randint(torch.iinfo(torch.int64).max, (), device="cpu"))
    words = np.random.SFC64(seed).random_raw((shape.numel() + 3) // 4)
    return torch.from_numpy(words.view(np.int16))[: shape.numel()].view(shape)


class Dropout(nn.Dropout):
    """`drop` in training mode, nothing in evaluation mode."""

    def forward(self, input: Float[Tensor, "*axes"]) -> Float[Tensor, "*axes"]:
        """Drop elements."""
        return drop(input, self.p) if self.training else input

    @classmethod
    def take_over(cls, model: nn.Module) -> None:
        """Turn PyTorch's dropout modules in a model into this class; nothing else in it changes."""
        for module in model.modules():
            if type(module) is nn.Dropout and module.p < 1:
                module.__class__ = cls


# Few different numbers of rows.

_STEPS = 8
"""Allowed numbers of rows between a power of two and the next; on average this adds 4 % of the rows."""


def pointwise(
    layer: Callable[[Tensor], Tensor], states: Float[Tensor, "batch pieces *features"]
) -> Float[Tensor, "batch pieces out"]:
    """layer(states), for a layer that treats each piece separately; several axes of features become one."""
    return from_rows(layer(to_rows(states)), *states.shape[:2])


def padded_count(n_rows: int) -> int:
    """The next allowed number of rows."""
    step = max(1, (1 << (n_rows.bit_length() - 1)) // _STEPS) if n_rows else 1
    return -(-n_rows // step) * step


def to_rows(states: Float[Tensor, "batch pieces *features"]) -> Tensor:
    """Turn states into the rows that position-wise layers take; `from_rows` undoes it.

    The states may have any memory layout; several axes of features become one.

    Returns:
        `[rows, features]`, in the type of autocast, if 16-bit matrices are multiplied on a CPU; otherwise the
        states themselves, `[batch, pieces, features]`.
    """
    autocast = torch.is_autocast_enabled("cpu") and states.is_floating_point()
    dtype = torch.get_autocast_dtype("cpu") if autocast else states.dtype
    is_padded = takes_cpu_path(states.device) and dtype.itemsize == 2
    return _ToRows.apply(states, dtype) if is_padded else states.flatten(2)


def from_rows(rows: Tensor, batch: int, pieces: int) -> Float[Tensor, "batch pieces features"]:
    """Turn the rows of `to_rows`, after position-wise layers, into states again."""
    return rows if rows.dim() == 3 else rows[: batch * pieces].view(batch, pieces, rows.shape[-1])


def _padded(states: Tensor, n_rows: int, dtype: torch.dtype) -> Tensor:
    """Put rows of zeros after the pieces of states."""
    n_pieces = states.shape[0] * states.shape[1]
    rows = states.new_empty(n_rows, states.shape[2:].numel(), dtype=dtype)
    rows[:n_pieces].view(states.shape).copy_(states)
    rows[n_pieces:].zero_()
    return rows


class _ToRows(torch.autograd.Function):
    """Change layout, type and padding in one copy."""

    @staticmethod
    def forward(ctx: Any, states: Tensor, dtype: torch.dtype) -> Tensor:
        """Add the padding."""
        ctx.shape, ctx.dtype = states.shape, states.dtype
        return _padded(states, padded_count(states.shape[0] * states.shape[1]), dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        """Drop the padding."""
        n_pieces = ctx.shape[0] * ctx.shape[1]
        return grad[:n_pieces].view(ctx.shape).to(ctx.dtype), None
