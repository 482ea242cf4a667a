"""Where each pair of pieces belongs: relation matrices turned into indices for sums and look-ups by relation.

Made once for a batch and shared by all layers that attend to it. No mask is made: two integers a pair and a
tree.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int, UInt8
from torch import Tensor

__all__ = ["RelationIndex", "RowIndex"]

_LARGEST_INT32 = 2**31 - 1


@dataclass(frozen=True)
class RowIndex:
    """The part of a `RelationIndex` that belongs to some consecutive rows, a row being a query of a sentence.

    Args:
        order: Pairs sorted by row, tree and relation.
        starts: Where each (row, slot) begins in `order`.
        slots: (row, slot) of each pair, in each tree.
        empty: True where no key stands in a slot.
    """

    order: Int[Tensor, " sorted_pairs"]
    starts: Int[Tensor, " row_slots"]
    slots: Int[Tensor, "pairs trees"]
    empty: Bool[Tensor, "rows slots"]

    def sum_by_relation(self, pairs: Float[Tensor, "rows keys width"]) -> Float[Tensor, "rows slots width"]:
        """Σ over the keys of each row that stand in each slot."""
        width = pairs.shape[-1]
        sums = F.embedding_bag(self.order, pairs.view(-1, width), self.starts, mode="sum")
        return sums.view(*self.empty.shape, width)

    def look_up(self, table: Float[Tensor, "rows slots width"]) -> Float[Tensor, "rows keys width"]:
        """For each pair the entry of its relation, summed over the trees."""
        n_rows, _, width = table.shape
        return F.embedding_bag(self.slots, table.view(-1, width), mode="sum").view(n_rows, -1, width)


@dataclass(frozen=True)
class RelationIndex:
    """Indices of a batch; a slot is a relation id of a tree: slot = tree · (3D + 2) + id.

    Args:
        order: As in `RowIndex`, over the rows of the whole batch, sentence by sentence.
        starts: As there.
        slots: As there.
        empty: As there.
        key_mask: True for valid keys.
        max_distance: D.
        n_trees: Number of trees.
        padded: Whether any key is not valid.
        cut: Parts made so far.
    """

    order: Int[Tensor, "rows sorted_keys"]
    starts: Int[Tensor, "rows slots"]
    slots: Int[Tensor, "rows keys trees"]
    empty: Bool[Tensor, "rows slots"]
    key_mask: Bool[Tensor, "batch keys"]
    max_distance: int
    n_trees: int
    padded: bool
    cut: dict[tuple[int, int], RowIndex] = field(default_factory=dict, repr=False)

    @classmethod
    def of(
        cls,
        relations: UInt8[Tensor, "batch trees keys keys"],
        key_mask: Bool[Tensor, "batch keys"] | None = None,
        max_distance: int = 15,
    ) -> RelationIndex:
        """Index the relations of a batch.

        Args:
            relations: Ids 0 to 3D + 1.
            key_mask: True for valid keys; padded ones are taken out of every relation. None for all.
            max_distance: D.

        Raises:
            ValueError: A relation id above 3D + 1.
        """
        batch, n_trees, n_keys, _ = relations.shape
        n_ids = 3 * max_distance + 2
        if relations.numel() and (largest := int(relations.max())) >= n_ids:
            raise ValueError(
                f"relations: expected ids 0 to {n_ids - 1} (3 * max_distance + 1), got {largest}. "
                "Use the max_distance with which the relations were made."
            )
        if key_mask is None:
            key_mask = relations.new_ones(batch, n_keys, dtype=torch.bool)
        relations = relations * key_mask[:, None, None, :]
        n_rows, n_slots = batch * n_keys, n_trees * n_ids
        dtype = torch.int32 if n_rows * max(n_slots, n_trees * n_keys) <= _LARGEST_INT32 else torch.int64
        by_row = relations.transpose(1, 2).reshape(n_rows, n_trees, n_keys)
        first_slot = torch.arange(0, n_slots, n_ids, dtype=dtype, device=relations.device)[:, None]
        row = torch.arange(n_rows, dtype=dtype, device=relations.device)[:, None]
        slot_in_row = by_row + first_slot
        counts = torch.zeros(n_rows, n_slots, dtype=dtype, device=relations.device)
        flat = slot_in_row.flatten(1).to(torch.int64)
        counts.scatter_add_(1, flat, counts.new_ones(()).expand_as(flat))
        starts = counts.cumsum(1, dtype=dtype) - counts + row * (n_trees * n_keys)
        return cls(
            order=_argsort(by_row).flatten(1).to(dtype) + row * n_keys,
            starts=starts,
            slots=(slot_in_row + row[:, None] * n_slots).transpose(1, 2).contiguous(),
            empty=counts == 0,
            key_mask=key_mask,
            max_distance=max_distance,
            n_trees=n_trees,
            padded=not bool(key_mask.all()),
        )

    @property
    def n_ids(self) -> int:
        """Relation ids of a tree, `none` included: 3D + 2."""
        return 3 * self.max_distance + 2

    @property
    def n_networks(self) -> int:
        """Sub-networks: ids 1 to 3D + 1 of each tree."""
        return self.n_trees * (self.n_ids - 1)

    def rows(self, first: int, last: int) -> RowIndex:
        """Indices of rows `first` to `last` - 1, counted from `first`."""
        if (first, last) not in self.cut:
            self.cut[first, last] = self._cut(first, last)
        return self.cut[first, last]

    def _cut(self, first: int, last: int) -> RowIndex:
        n_keys, n_slots = self.slots.shape[1], self.empty.shape[1]
        order, starts = self.order[first:last].flatten(), self.starts[first:last].flatten()
        slots = self.slots[first:last].flatten(0, 1)
        if first:
            order, slots = order - first * n_keys, slots - first * n_slots
            starts = starts - first * n_keys * self.n_trees
        return RowIndex(order, starts, slots, self.empty[first:last])

    def of_networks(self, slots: Float[Tensor, "*axes slots"]) -> Float[Tensor, "*axes networks"]:
        """Leave out relation 0 of each tree, which is no sub-network."""
        return slots.unflatten(-1, (self.n_trees, self.n_ids))[..., 1:].flatten(-2)

    def of_slots(
        self, networks: Bool[Tensor, " networks"] | Float[Tensor, "*axes networks"]
    ) -> Bool[Tensor, " slots"] | Float[Tensor, "*axes slots"]:
        """Put relation 0 of each tree back, as zeros."""
        return F.pad(networks.unflatten(-1, (self.n_trees, self.n_ids - 1)), (1, 0)).flatten(-2)


def _argsort(ids: UInt8[Tensor, "rows trees keys"]) -> Int[Tensor, "rows trees keys"]:
    """Stable argsort; NumPy's radix sort of bytes takes a tenth of the time of PyTorch's on a CPU."""
    if ids.device.type == "cpu":
        return torch.from_numpy(np.argsort(ids.numpy(), axis=-1, kind="stable"))
    return ids.argsort(dim=-1, stable=True)
