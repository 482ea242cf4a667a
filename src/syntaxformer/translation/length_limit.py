"""The longest translation of each sentence, so that a result does not depend on who shares its batch."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor
from transformers import LogitsProcessor

__all__ = ["DecodingConfig", "LengthLimit", "longest_translations"]


class DecodingConfig(BaseModel):
    """Beam search; the defaults of `translate` for the trained model."""

    model_config = ConfigDict(extra="forbid")

    beam_size: int = Field(default=5, ge=1, le=256, description="hypotheses kept at each step")
    length_penalty: float = Field(
        default=1.0, allow_inf_nan=False, description="log-probability is divided by length to this power"
    )
    max_length_factor: float = Field(
        default=2.0, gt=0, le=100, description="longest output = factor × source pieces + 10"
    )
    batch_size: int = Field(default=32, ge=1, le=65_536, description="sentences decoded together")


def longest_translations(src_lengths: NDArray[np.integer[Any]], factor: float) -> NDArray[np.int64]:
    """Most pieces of each translation, `factor` times the source's + 10, the end piece included."""
    return (src_lengths * factor).astype(np.int64) + 10


class LengthLimit(LogitsProcessor):
    """Ends each sentence at a length of its own, so that a translation does not depend on its batch.

    Args:
        limits: `[batch]`, most pieces of each sentence's translation, the end piece included.
        end_id: Piece id of the end.
        n_beams: Rows for each sentence.
    """

    def __init__(self, limits: Tensor, end_id: int, n_beams: int) -> None:
        self.limits = limits.repeat_interleave(n_beams)
        self.smallest = int(limits.min())
        self.end_id = end_id

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """Leave only the end piece where the limit is reached."""
        n_made = input_ids.shape[1] - 1
        if n_made + 1 < self.smallest:
            return scores
        ending = (self.limits <= n_made + 1).to(scores.device)
        kept = scores[:, self.end_id].clone()
        scores = scores.masked_fill(ending[:, None], -torch.inf)
        scores[:, self.end_id] = kept
        return scores
