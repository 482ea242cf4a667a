"""Sinusoidal positions. No parameters, no longest sentence: the table grows when a longer one comes."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn

__all__ = ["SinusoidalPositions", "sinusoids"]


def sinusoids(n_positions: int, d_model: int) -> Float[Tensor, "positions d_model"]:
    """Sines in the first half of the columns, cosines in the second, wavelengths from 2π to 10000·2π.

    Args:
        n_positions: Number of rows.
        d_model: Width, even.

    Raises:
        ValueError: `d_model` is odd.

    Source: Vaswani et al. (2017), section 3.5. Differs: sines and cosines stand in two halves, not
        in turn, as in tensor2tensor and CTranslate2; a permutation of columns that training cannot see.
    """
    if d_model % 2:
        raise ValueError(f"d_model: expected an even number for sinusoidal positions, got {d_model}.")
    half = d_model // 2
    rates = torch.exp(torch.arange(half) * -(math.log(10_000) / max(half - 1, 1)))
    angles = torch.arange(n_positions).unsqueeze(1) * rates
    return torch.cat([angles.sin(), angles.cos()], dim=1)


class SinusoidalPositions(nn.Module):
    """Adds positions to embeddings.

    The table is a cache and not a buffer, so a checkpoint does not hold it and a model made on the meta
    device has it too.
    """

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.d_model = d_model
        self._table: Tensor = torch.empty(0)

    def forward(
        self, embeddings: Float[Tensor, "batch pieces d_model"], first: int = 0
    ) -> Float[Tensor, "batch pieces d_model"]:
        """Return embeddings + positions; `first` is the position of the first piece (cached decoding)."""
        stop = first + embeddings.shape[1]
        if len(self._table) < stop or self._table.device != embeddings.device:
            self._table = sinusoids(max(stop, 256), self.d_model).to(embeddings.device)
        return embeddings + self._table[first:stop].to(embeddings.dtype)
