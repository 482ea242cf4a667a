"""Structural probes: linear maps under which distances and norms of word vectors are those of a parse tree.

The maps and their losses only. Where the vectors come from is the business of `tasks.word_states`, training
of `tasks.probing`, scores of `evaluation.tree_scores`.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

__all__ = ["DepthProbe", "DistanceProbe", "depth_loss", "distance_loss"]

INITIAL_BOUND = 0.05
"""Entries of a fresh map are uniform in ± this."""


class _Projection(nn.Module):
    """x ↦ B x, the one parameter of either probe."""

    def __init__(self, d_model: int, rank: int) -> None:
        super().__init__()
        if not 1 <= rank <= d_model:
            raise ValueError(f"rank: expected 1 to the width of the vectors, {d_model}, got {rank}.")
        self.map = nn.Parameter(torch.empty(d_model, rank).uniform_(-INITIAL_BOUND, INITIAL_BOUND))

    def forward(self, vectors: Float[Tensor, "batch words d_model"]) -> Float[Tensor, "batch words rank"]:
        return vectors @ self.map


class DistanceProbe(nn.Module):
    """d(i, j)² = ‖B (h_i − h_j)‖²: the squared distance stands for edges in the tree.

    Args:
        d_model: Width of the word vectors.
        rank: Rows of B, at most `d_model`.

    Raises:
        ValueError: The rank is not between 1 and `d_model`.

    Source: Hewitt & Manning (2019), eq. 1.
    """

    def __init__(self, d_model: int, rank: int) -> None:
        super().__init__()
        self.project = _Projection(d_model, rank)

    def forward(self, vectors: Float[Tensor, "batch words d_model"]) -> Float[Tensor, "batch words words"]:
        """Squared distance of every two words."""
        projected = self.project(vectors)
        # Distances do not see a shift; without it the products below would be large and nearly cancel.
        projected = projected - projected.mean(1, keepdim=True)
        squares = projected.square().sum(-1)
        products = projected @ projected.transpose(1, 2)
        return (squares[:, :, None] + squares[:, None, :] - 2 * products).clamp_min(0)


class DepthProbe(nn.Module):
    """‖B h_i‖²: the squared norm stands for edges to the root.

    Args:
        d_model: Width of the word vectors.
        rank: Rows of B, at most `d_model`.

    Raises:
        ValueError: The rank is not between 1 and `d_model`.

    Source: Hewitt & Manning (2019), section 2.2.
    """

    def __init__(self, d_model: int, rank: int) -> None:
        super().__init__()
        self.project = _Projection(d_model, rank)

    def forward(self, vectors: Float[Tensor, "batch words d_model"]) -> Float[Tensor, "batch words"]:
        """Squared norm of every word."""
        return self.project(vectors).square().sum(-1)


def distance_loss(
    predicted: Float[Tensor, "batch words words"],
    gold: Float[Tensor, "batch words words"],
    is_word: Bool[Tensor, "batch words"],
) -> Float[Tensor, ""]:
    """Mean over sentences of 1/n² Σ_ij |gold_ij − predicted_ij|.

    Source: Hewitt & Manning (2019), section 2.2.
    """
    pairs = is_word[:, :, None] & is_word[:, None, :]
    wrong = (gold - predicted).abs().where(pairs, 0.0)
    return (wrong.sum((1, 2)) / is_word.sum(1).square()).mean()


def depth_loss(
    predicted: Float[Tensor, "batch words"],
    gold: Float[Tensor, "batch words"],
    is_word: Bool[Tensor, "batch words"],
) -> Float[Tensor, ""]:
    """Mean over sentences of 1/n Σ_i |gold_i − predicted_i|.

    Source: Hewitt & Manning (2019), section 2.2.
    """
    wrong = (gold - predicted).abs().where(is_word, 0.0)
    return (wrong.sum(1) / is_word.sum(1)).mean()
