"""The longest translation of each sentence, so that a result does not depend on who shares its batch."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import LogitsProcessor

__all__ = ["LengthLimit", "longest_translations"]


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
