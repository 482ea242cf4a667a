"""Numbers of the syntactic relations between two words, and the table that gives them.

With D the largest distance, for query i and key j: 0 none; d (1..D) i is an ancestor of j, d edges away; D +
d a descendant; 2D + d neither, linked over their lowest common ancestor; 3D + 1 in the other segment of a
pair.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "MAX_DISTANCE",
    "RELATIONS_VERSION",
    "RelationArray",
    "n_relations",
    "pair_relation",
    "relation_name",
    "relations_of_steps",
]

MAX_DISTANCE = 15
"""Largest distance by default, as in the paper."""

RELATIONS_VERSION = 1
"""Of the definitions of this room, stored with each model: one trained on others would read these wrongly."""

_LARGEST = 84
"""3 * 84 + 1 = 253 is the largest pair relation that fits into a byte."""

RelationArray = NDArray[np.uint8]


def n_relations(max_distance: int = MAX_DISTANCE) -> int:
    """Number of relation ids, `none` and `pair` included: 3D + 2."""
    return pair_relation(max_distance) + 1


def pair_relation(max_distance: int = MAX_DISTANCE) -> int:
    """Relation of two words in different segments: 3D + 1.

    Raises:
        ValueError: The largest distance is not between 1 and 84.
    """
    if not 1 <= max_distance <= _LARGEST:
        raise ValueError(
            f"max_distance: expected 1 to {_LARGEST}, so that an id fits into a byte, got {max_distance}."
        )
    return 3 * max_distance + 1


def relation_name(relation: int, max_distance: int = MAX_DISTANCE) -> str:
    """Name of a relation id: "none", "parent 2", "child 1", "sibling 3", "pair".

    Raises:
        ValueError: No such relation.
    """
    if not 0 <= relation < n_relations(max_distance):
        raise ValueError(f"relation: expected 0 to {n_relations(max_distance) - 1}, got {relation}.")
    if relation in (0, pair_relation(max_distance)):
        return "pair" if relation else "none"
    kind, distance = divmod(relation - 1, max_distance)
    return f"{('parent', 'child', 'sibling')[kind]} {distance + 1}"


def relations_of_steps(
    steps_up: NDArray[np.integer[Any]],
    steps_down: NDArray[np.integer[Any]],
    linked: NDArray[np.bool_],
    max_distance: int,
) -> RelationArray:
    """Relations of pairs of words from the way between them.

    Args:
        steps_up: Edges from i up to the lowest common ancestor of i and j, `[...]`; 0 if i is that ancestor.
        steps_down: Edges from there down to j, `[...]`.
        linked: Whether a tree links i and j at all, `[...]`; the steps do not count where it does not.
        max_distance: D.

    Returns:
        Relation ids, `[...]`.
    """
    side = max_distance + 2
    # All distances above D are alike; int16 holds an index into the table.
    index = np.minimum(steps_up, max_distance + 1).astype(np.int16)
    index *= side
    index += np.minimum(steps_down, max_distance + 1).astype(np.int16)
    # Unlinked pairs go to the corner of the table, where i = j: no relation.
    index *= linked
    return np.take(_table(max_distance), index)


@cache
def _table(max_distance: int) -> RelationArray:
    """Relation of each (steps up, steps down), flat over a square of side D + 2."""
    pair_relation(max_distance)
    up, down = np.indices((max_distance + 2, max_distance + 2))
    distance = up + down
    kind = np.where(up == 0, 0, np.where(down == 0, 1, 2))
    table = np.where((distance > 0) & (distance <= max_distance), kind * max_distance + distance, 0)
    flat = table.astype(np.uint8).ravel()
    flat.flags.writeable = False
    return flat
