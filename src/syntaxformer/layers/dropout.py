"""Dropout that draws 16 random bits for each element on a CPU, where PyTorch's own draws a whole number."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

__all__ = ["Dropout", "drop", "keep_mask"]

_LEVELS = 1 << 16


def drop(states: Float[Tensor, "*axes"], prob: float) -> Float[Tensor, "*axes"]:
    """Set each element to zero with probability `prob` and scale the others so that the mean stays.

    On a CPU the probability is rounded to 1/65536, and the scale is that of the rounded one; it takes less
    than half the time of `torch.nn.functional.dropout`, which is used on other devices.

    Source: Srivastava et al. (2014).
    """
    if prob == 0.0:
        return states
    if states.device.type != "cpu":
        return F.dropout(states, prob)
    n_dropped = round(prob * _LEVELS)
    kept = keep_mask(states.shape, prob, states.device)
    return states * kept.to(states.dtype).mul_(_LEVELS / (_LEVELS - n_dropped))


def keep_mask(shape: Sequence[int], prob: float, device: torch.device) -> Bool[Tensor, "*shape"]:
    """False with probability `prob`, which is rounded to 1/65536 on a CPU."""
    if device.type != "cpu":
        return torch.rand(shape, device=device) >= prob
    return _random_16_bits(torch.Size(shape)) >= round(prob * _LEVELS) - _LEVELS // 2


def _random_16_bits(shape: torch.Size) -> Tensor:
    """Uniform over all int16 values."""
    n_numbers = (shape.numel() + 3) // 4
    # From the smallest int64 without an upper end all 64 bits are random; random_() leaves the sign at 0.
    words = torch.empty(n_numbers, dtype=torch.int64).random_(torch.iinfo(torch.int64).min, None)
    return words.view(torch.int16)[: shape.numel()].view(shape)


class Dropout(nn.Module):
    """`drop` in training mode, nothing in evaluation mode.

    Args:
        prob: Probability of dropping an element, at least 0 and below 1.
    """

    def __init__(self, prob: float) -> None:
        super().__init__()
        self.prob = prob

    def forward(self, states: Float[Tensor, "*axes"]) -> Float[Tensor, "*axes"]:
        """Drop elements."""
        return drop(states, self.prob) if self.training else states

    def extra_repr(self) -> str:
        """For printing."""
        return f"prob={self.prob}"
