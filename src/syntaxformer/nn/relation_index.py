"""Relation matrices turned into indices, by which pairs of pieces are summed and looked up by relation.

An index is made once for a batch and shared by all layers. It needs no masks, only two integers for each pair
and tree.

A row (a query of a sentence) has a slot for each relation that some key has to it, in each tree: slot 0 of a
tree is relation 0, and the others follow in order of their ids. All relations that no key has share one slot
after those of all trees. A row of a real sentence needs about 30 slots instead of 92.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int, UInt8
from torch import Tensor

from syntaxformer.nn.kernels.on_cpu import takes_cpu_path

_LARGEST_INT32 = 2**31 - 1


@cache
def _mask(networks: tuple[bool, ...], device: torch.device) -> Bool[Tensor, " networks"]:
    return torch.tensor(networks, dtype=torch.bool, device=device)


def mask_of(networks: Sequence[bool], device: torch.device) -> Bool[Tensor, " networks"]:
    """A mask on a device, copied there once for all batches."""
    make: Any = _mask.__wrapped__ if torch.compiler.is_compiling() else _mask
    return make(tuple(map(bool, networks)), device)


@dataclass(frozen=True)
class RowIndex:
    """The part of a `RelationIndex` that belongs to some consecutive rows."""

    order: Int[Tensor, " sorted_pairs"]  # pairs sorted by row, tree and relation
    starts: Int[Tensor, " row_slots"]  # where each slot of each row begins in `order`
    slots: Int[Tensor, "pairs trees"]  # slot of each pair in each tree, numbered through all rows
    n_slots: int

    def sum_by_relation(self, pairs: Float[Tensor, "rows keys width"]) -> Float[Tensor, "rows slots width"]:
        """Σ over the keys in each slot of each row."""
        width = pairs.shape[-1]
        sums = F.embedding_bag(self.order, pairs.view(-1, width), self.starts, mode="sum")
        return sums.view(-1, self.n_slots, width)

    def look_up(self, table: Float[Tensor, "rows slots width"]) -> Float[Tensor, "rows keys width"]:
        """The entry of each pair's relation, summed over the trees."""
        n_rows, _, width = table.shape
        return F.embedding_bag(self.slots, table.view(-1, width), mode="sum").view(n_rows, -1, width)


@dataclass(frozen=True)
class _Slots:
    """Indices of all rows; `order`, `starts` and `slots` as in `RowIndex`."""

    order: Int[Tensor, "rows sorted_keys"]
    starts: Int[Tensor, "rows slots"]
    slots: Int[Tensor, "rows keys trees"]
    places: Int[Tensor, "rows trees ids"]  # slot of each relation in its tree, if the row has the relation
    present: Bool[Tensor, "rows trees ids"]  # whether the row has the relation


@dataclass(frozen=True)
class RelationIndex:
    """Indices of a batch, sentence by sentence, row by row, made when they are first asked for."""

    relations: UInt8[Tensor, "batch trees keys keys"]
    key_mask: Bool[Tensor, "batch keys"]
    padded: bool  # whether any key is invalid
    max_distance: int
    cut: dict[tuple[int, int], RowIndex] = field(default_factory=dict, repr=False)

    @classmethod
    def of(
        cls,
        relations: UInt8[Tensor, "batch trees keys keys"],
        key_mask: Bool[Tensor, "batch keys"] | None = None,
        max_distance: int = 15,
    ) -> RelationIndex:
        """Index the relations of a batch.

        Ids are 0 to 3D + 1. Keys that are invalid in `key_mask` are removed from every relation. Off the CPU
        nothing is read from the device: every row has all slots, a mask counts as padding, and an id above
        3D + 1 is the device's own error, later.

        Raises:
            ValueError: A relation id is above 3D + 1; on another device the device's own error, later.
        """
        check_ids(relations, 3 * max_distance + 2)
        padded = key_mask is not None
        if key_mask is None:
            key_mask = relations.new_ones(len(relations), relations.shape[2], dtype=torch.bool)
        elif takes_cpu_path(relations.device):
            padded = not bool(key_mask.all())
        return cls(relations.contiguous(), key_mask, padded, max_distance)

    @cached_property
    def _all(self) -> _Slots:
        n_trees, n_keys, n_ids = *self.relations.shape[1:3], 3 * self.max_distance + 2
        ids = (self.relations * self.key_mask[:, None, None, :]).transpose(1, 2).reshape(-1, n_trees, n_keys)
        present, places = _places(ids.to(torch.int64), n_ids)
        is_read = takes_cpu_path(ids.device) and places.numel()
        n_tree_slots = int(places.max()) + 1 if is_read else n_ids
        return _Slots(**_slots(ids, places, n_tree_slots), places=places, present=present)

    @property
    def places(self) -> Int[Tensor, "rows trees ids"]:
        """Slot of each relation among those of its tree, if the row has the relation."""
        return self._all.places

    @property
    def present(self) -> Bool[Tensor, "rows trees ids"]:
        """Whether the row has the relation."""
        return self._all.present

    @property
    def n_networks(self) -> int:
        """Number of sub-networks, ids 1 to 3D + 1 of each tree."""
        return self.relations.shape[1] * (3 * self.max_distance + 1)

    @property
    def n_tree_slots(self) -> int:
        """Number of slots of each tree."""
        return (self._all.starts.shape[1] - 1) // self.present.shape[1]

    def rows(self, first: int, last: int) -> RowIndex:
        """Indices of rows `first` to `last` - 1, counted from `first`."""
        if (first, last) not in self.cut:
            of_all = self._all
            n_keys, n_slots = of_all.slots.shape[1], of_all.starts.shape[1]
            self.cut[first, last] = RowIndex(
                order=of_all.order[first:last].flatten() - first * n_keys,
                starts=of_all.starts[first:last].flatten() - first * of_all.order.shape[1],
                slots=of_all.slots[first:last].flatten(0, 1) - first * n_slots,
                n_slots=n_slots,
            )
        return self.cut[first, last]

    @cached_property
    def bias_of_all(self) -> Float[Tensor, "batch keys slots"]:
        """`slot_bias` if all sub-networks take part, computed once for all layers."""
        return self.slot_bias(self.present.new_ones(self.n_networks))

    def slot_bias(self, active: Bool[Tensor, " networks"]) -> Float[Tensor, "batch keys slots"]:
        """The bias that makes a softmax over slots one over the sub-networks that take part.

        It is 0 for the slot of a sub-network that takes part, -inf for others, and log m for the slot that m
        of them share.
        """
        n_rows, n_trees, n_ids = self.present.shape
        takes_part = F.pad(active.view(n_trees, n_ids - 1), (1, 0))
        here = (self.present & takes_part).float()
        of_trees = here.new_zeros(n_rows, n_trees, self.n_tree_slots)
        of_trees.scatter_add_(2, self.places, here)
        shared = (~self.present & takes_part).sum((1, 2)).float()
        return torch.cat([of_trees.flatten(1), shared[:, None]], 1).log().view(*self.key_mask.shape, -1)

    def of_networks(
        self, shares: Float[Tensor, "batch keys slots"], active: Bool[Tensor, " networks"] | None = None
    ) -> Float[Tensor, "batch keys networks"]:
        """Turn the slots' shares of a softmax with `slot_bias` into those of the sub-networks."""
        n_rows, n_trees, n_ids = self.present.shape
        shares = shares.flatten(0, 1)
        active = self.present.new_ones(self.n_networks) if active is None else active
        of_trees = shares[:, :-1].view(n_rows, n_trees, -1).gather(2, self.places)
        takes_part = F.pad(active.view(n_trees, n_ids - 1), (1, 0))
        n_sharing = (~self.present & takes_part).sum((1, 2)).clamp(min=1)
        each = (shares[:, -1] / n_sharing)[:, None, None]
        of_ids = torch.where(self.present, of_trees, each) * takes_part
        return of_ids[..., 1:].reshape(*self.key_mask.shape, -1)


def _places(
    ids: Int[Tensor, "rows trees keys"], n_ids: int
) -> tuple[Bool[Tensor, "rows trees ids"], Int[Tensor, "rows trees ids"]]:
    """Which relations each row has, always including 0, and their slots (0 for relations that it lacks)."""
    present = torch.zeros(*ids.shape[:2], n_ids, dtype=torch.bool, device=ids.device)
    present.scatter_(2, ids, torch.ones((), dtype=torch.bool, device=ids.device).expand_as(ids))
    present[..., 0] = True
    return present, (present.cumsum(2) - 1) * present


def check_ids(relations: Tensor, n_ids: int) -> None:
    """Refuse relations of a larger distance with a `ValueError`; arguments are ids and their number."""
    if not relations.numel():
        return
    largest, expected = relations.max(), f"expected ids 0 to {n_ids - 1} (3 * max_distance + 1)"
    remedy = "Use the max_distance with which the relations were made."
    if not takes_cpu_path(relations.device):
        torch._assert_async(largest < n_ids, f"relations: {expected}. {remedy}")
    elif int(largest) >= n_ids:
        raise ValueError(f"relations: {expected}, got {int(largest)}. {remedy}")


def _slots(
    ids: UInt8[Tensor, "rows trees keys"], places: Int[Tensor, "rows trees ids"], n_tree_slots: int
) -> dict[str, Tensor]:
    """`order`, `starts` and `slots` of `_Slots`."""
    n_rows, n_trees, n_keys = ids.shape
    n_slots, device = n_trees * n_tree_slots + 1, ids.device
    dtype = torch.int32 if n_rows * max(n_slots, n_trees * n_keys) <= _LARGEST_INT32 else torch.int64
    row = torch.arange(n_rows, dtype=dtype, device=device)[:, None]
    first_slot = torch.arange(0, n_trees * n_tree_slots, n_tree_slots, dtype=dtype, device=device)[:, None]
    in_row = places.to(dtype).gather(2, ids.to(torch.int64)) + first_slot
    counts = torch.zeros(n_rows, n_slots, dtype=dtype, device=device)
    flat = in_row.flatten(1).to(torch.int64)
    counts.scatter_add_(1, flat, counts.new_ones(()).expand_as(flat))
    if takes_cpu_path(device):
        order = torch.from_numpy(np.argsort(ids.numpy(), axis=-1, kind="stable"))
    else:
        order = ids.argsort(dim=-1, stable=True)
    return {
        "order": order.flatten(1).to(dtype) + row * n_keys,
        "starts": counts.cumsum(1, dtype=dtype) - counts + row * (n_trees * n_keys),
        "slots": (in_row + row[:, None] * n_slots).transpose(1, 2).contiguous(),
    }
