"""Where the faster kernels are used: the one place that asks for a device or a type.

Each question has the plain operation as its other answer. `plain_operations` answers all of them with no, so
that the textbook path can be run, and compared.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor

__all__ = ["draws_bits", "fuses_attention", "keep_type", "plain_operations", "rows_dtype", "sorts_bytes"]

_plain = False


@contextmanager
def plain_operations() -> Iterator[None]:
    """Within it everything is computed by the plain operations, in this process."""
    global _plain
    before, _plain = _plain, True
    try:
        yield
    finally:
        _plain = before


def fuses_attention(query: Tensor, bias: Tensor | None) -> bool:
    """Whether attention is PyTorch's fused kernel, not the formula.

    With a bias it is the formula. So it is for training in bf16 on a CPU: the fused backward pass takes 6
    times as long there on sentences of 16 pieces, and 2.5 times on 128.
    """
    return not (_plain or bias is not None or _trains_in_bf16_on_cpu(query))


def keep_type(query: Tensor) -> AbstractContextManager[Any]:
    """For the formula in that case: without autocast, which would make its softmax fp32."""
    return torch.autocast("cpu", enabled=False) if _trains_in_bf16_on_cpu(query) else nullcontext()


def _trains_in_bf16_on_cpu(query: Tensor) -> bool:
    return query.device.type == "cpu" and query.dtype == torch.bfloat16 and torch.is_grad_enabled()


def rows_dtype(states: Tensor) -> torch.dtype | None:
    """Type of 16 bits in which a CPU multiplies rows of one of few numbers (`rows`); None: as they are."""
    if _plain or states.device.type != "cpu":
        return None
    autocast = torch.is_autocast_enabled("cpu") and states.is_floating_point()
    dtype = torch.get_autocast_dtype("cpu") if autocast else states.dtype
    return dtype if dtype.itemsize == 2 else None


def draws_bits(device: torch.device) -> bool:
    """Whether dropout draws 15 bits for each element (`dropout`): on a CPU, in an eighth of the time."""
    return not _plain and device.type == "cpu"


def sorts_bytes(device: torch.device) -> bool:
    """Whether NumPy sorts relation ids: on a CPU its radix sort of bytes takes a tenth of the time."""
    return not _plain and device.type == "cpu"
