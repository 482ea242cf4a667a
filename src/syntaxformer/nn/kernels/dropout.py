"""Dropout with 15 random bits for each element on a CPU, where PyTorch's own draws a whole number."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int16
from torch import Tensor, nn

from syntaxformer.nn.kernels.choice import draws_bits

__all__ = ["Dropout", "drop", "keep_mask"]

_LEVELS = 1 << 15
_SIGN_BIT = torch.iinfo(torch.int16).min


def drop(states: Float[Tensor, "*axes"], prob: float) -> Float[Tensor, "*axes"]:
    """Set each element to zero with probability `prob` and scale the others so that the mean stays.

    On a CPU the probability is rounded to 1/32768, and the scale is that of the rounded one, to the digits of
    the states' type; it takes an eighth of the time of `torch.nn.functional.dropout`, which is used on other
    devices.

    Raises:
        ValueError: The probability is 1 or more, or negative.

    Source: Srivastava et al. (2014).
    """
    if not 0.0 <= prob < 1.0:
        raise ValueError(f"prob: expected at least 0 and less than 1, got {prob}.")
    if prob == 0.0:
        return states
    if not draws_bits(states.device):
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
    if not draws_bits(device):
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
    """Uniform over all int16 values, from a generator that PyTorch's own seeds: twice as fast as itself."""
    seed = int(torch.randint(torch.iinfo(torch.int64).max, (), device="cpu"))
    words = np.random.SFC64(seed).random_raw((shape.numel() + 3) // 4)
    return torch.from_numpy(words.view(np.int16))[: shape.numel()].view(shape)


class Dropout(nn.Dropout):
    """`drop` in training mode, nothing in evaluation mode.

    Args:
        p: Probability of dropping an element, at least 0 and below 1.
    """

    def forward(self, input: Float[Tensor, "*axes"]) -> Float[Tensor, "*axes"]:
        """Drop elements."""
        return drop(input, self.p) if self.training else input

    @classmethod
    def take_over(cls, model: nn.Module) -> None:
        """Make PyTorch's dropout modules in a model such as these; nothing else of it changes."""
        for module in model.modules():
            if type(module) is nn.Dropout and module.p < 1:
                module.__class__ = cls
