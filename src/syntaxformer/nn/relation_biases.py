"""A learned bias for each head and syntactic relation, added to the logits of plain attention.

It is a cheap alternative to syntax attention on the same matrices. It is not in the papers, but a fair
comparison needs it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float, UInt8
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from syntaxformer.nn.kernels.on_cpu import takes_cpu_path, takes_cuda_path
from syntaxformer.nn.relation_index import RelationIndex, mask_of


def relation_bias(
    relations: UInt8[Tensor, "batch trees keys keys"],
    weight: Float[Tensor, "trees ids heads"],
    dtype: torch.dtype | None = None,
) -> Float[Tensor, "batch heads keys keys"]:
    """Σ_trees b[tree, R_ij, head]: one look-up.

    Relation ids are below the number of ids of `weight`, b. `dtype` is the result's, None for that of b.

    Source: ours; after the relative position bias of Raffel et al. (2020).
    """
    return _Gather.apply(relations, weight, dtype or weight.dtype)


def relation_bias_graph(
    relations: UInt8[Tensor, "batch trees keys keys"], weight: Float[Tensor, "trees ids heads"]
) -> Float[Tensor, "batch heads keys keys"]:
    """The same as `relation_bias`; arguments as there."""
    biases = [table[ids.to(torch.int64)] for table, ids in zip(weight, relations.unbind(1), strict=True)]
    return sum(biases[1:], biases[0]).permute(0, 3, 1, 2)


class _Gather(torch.autograd.Function):
    """An embedding bag whose backward pass first sums by relation within each row, and then over the rows."""

    @staticmethod
    def forward(ctx: Any, relations: Tensor, weight: Tensor, dtype: torch.dtype) -> Tensor:
        n_trees, n_ids, n_heads = weight.shape
        ctx.save_for_backward(relations)
        ctx.n_ids, ctx.dtype = n_ids, weight.dtype
        if takes_cuda_path(weight):
            from syntaxformer.nn.kernels.on_cuda import biases_of  # needs triton

            return biases_of(relations, weight, dtype)
        first = torch.arange(0, n_trees * n_ids, n_ids, dtype=torch.int32, device=relations.device)
        slots = (relations + first[:, None, None]).flatten(2).transpose(1, 2).flatten(0, 1)
        biases = F.embedding_bag(slots, weight.view(-1, n_heads), mode="sum")
        batch, _, n_keys, _ = relations.shape
        return biases.view(batch, n_keys, n_keys, n_heads).permute(0, 3, 1, 2).contiguous().to(dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[None, Tensor, None]:
        (relations,) = ctx.saved_tensors
        if takes_cuda_path(grad):
            from syntaxformer.nn.kernels.on_cuda import sums_of  # needs triton

            return None, sums_of(relations, grad, ctx.n_ids).to(ctx.dtype), None
        if not takes_cpu_path(grad.device):
            return None, _sums_without_atomics(relations, grad, ctx.n_ids).to(ctx.dtype), None
        per_row = grad.new_zeros(
            *grad.shape[:3], ctx.n_ids, dtype=torch.promote_types(grad.dtype, torch.float32)
        )
        grad = grad.to(per_row.dtype)
        d_weight = [
            torch.scatter_add(per_row, 3, ids[:, None].to(torch.int64).expand_as(grad), grad).sum((0, 2)).T
            for ids in relations.unbind(1)
        ]
        return None, torch.stack(d_weight).to(ctx.dtype), None


def _sums_without_atomics(relations: Tensor, grad: Tensor, n_ids: int) -> Tensor:
    """Σ of a bias's gradients for each tree and relation, in the same order each time, on any device."""
    index = RelationIndex.of(relations, max_distance=(n_ids - 2) // 3)
    exact = grad.to(torch.promote_types(grad.dtype, torch.float32)).permute(0, 2, 3, 1)
    sums = index.rows(0, len(index.present)).sum_by_relation(exact.flatten(0, 1).contiguous())
    of_trees = sums[:, :-1].unflatten(1, (relations.shape[1], -1))
    of_ids = of_trees.gather(2, index.places[..., None].expand(-1, -1, -1, grad.shape[1]))
    return (of_ids * index.present[..., None]).sum(0)


BiasStart = Literal["zero", "distance", "governor"]


def starting_biases(start: BiasStart, max_distance: int, sigma: float = 1.0) -> Float[Tensor, " ids"]:
    """-d²/2σ² of each relation, which multiplies the weight of a key by a Gaussian; "zero": 0.

    For "distance", d is the number of edges between two words; for "governor", that between the governor of
    the query's word and the key's word: d + 1 to a descendant at distance d, and d - 1 to any other word. Two
    words without a relation, as a word and itself, have d = 0, or 1. Two segments have bias 0.

    Source: "distance" after Peng et al. (2021), "Deps-SAN", "governor" after Bugliarello & Okazaki (2020),
    "Enhancing machine translation with dependency-aware self-attention"; differs: they multiply logits by the
    density and learn nothing, and in the latter d is counted in positions.
    """
    ids = torch.arange(3 * max_distance + 2)
    distance = torch.where(ids > 0, (ids - 1) % max_distance + 1, 0)
    if start == "governor":
        distance = (distance + torch.where((ids == 0) | (ids <= max_distance), 1, -1)).abs()
    biases = -distance.square() / (2 * sigma**2)
    return biases * (ids <= 3 * max_distance) * (start != "zero") + 0.0


class RelationBias(nn.Module):
    """`relation_bias` with its parameters, which start at zero, so that at first nothing changes.

    Of the 3D + 2 relation ids, 0 ("none") has a bias like any other. `start` and `sigma`, as in
    `starting_biases`, let near words begin with more weight.
    """

    def __init__(
        self,
        n_heads: int,
        n_trees: int = 2,
        max_distance: int = 15,
        start: BiasStart = "zero",
        sigma: float = 1.0,
    ) -> None:
        super().__init__()
        self.start = start, max_distance, sigma
        self.weight = nn.Parameter(torch.empty(n_trees, 3 * max_distance + 2, n_heads))
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Initialise again, as documented."""
        self.weight.copy_(starting_biases(*self.start)[:, None].expand_as(self.weight))

    def weight_of(self, active: Sequence[bool] | None) -> Float[Tensor, "trees ids heads"]:
        """b, with 0 for relations that take no part; "none" always takes part.

        `active` says which relations 1 to 3D + 1 of each tree take part; further entries are ignored. None
        stands for all.
        """
        if active is None:
            return self.weight
        n_trees, n_ids, _ = self.weight.shape
        of_trees = mask_of(active[: n_trees * (n_ids - 1)], self.weight.device).view(n_trees, n_ids - 1)
        return self.weight * F.pad(of_trees, (1, 0), value=True)[..., None]

    def forward(
        self,
        relations: UInt8[Tensor, "batch trees keys keys"],
        active: Sequence[bool] | None = None,
        dtype: torch.dtype | None = None,
    ) -> Float[Tensor, "batch heads keys keys"]:
        """The bias of the scaled logits, of type `dtype`; `active` as in `weight_of`.

        Raises:
            ValueError: There are more or fewer trees than biases.
        """
        if relations.shape[1] != len(self.weight):
            raise ValueError(f"relations: expected {len(self.weight)} trees, got {relations.shape[1]}.")
        if torch.compiler.is_compiling():
            return relation_bias_graph(relations, self.weight_of(active))
        return relation_bias(relations, self.weight_of(active), dtype)
