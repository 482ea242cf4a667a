from __future__ import annotations

import numpy as np
import pytest

from syntaxformer.syntax import n_relations, pair_relation, relation_name
from syntaxformer.syntax.relations import relations_of_steps


def test_names_of_all_ids():
    # D = 3, written out: DESIGN's table.
    assert [relation_name(relation, 3) for relation in range(n_relations(3))] == [
        "none",
        *("parent 1", "parent 2", "parent 3"),
        *("child 1", "child 2", "child 3"),
        *("sibling 1", "sibling 2", "sibling 3"),
        "pair",
    ]
    assert pair_relation() == 46
    assert n_relations(84) == 254


def test_steps():
    up = np.array([0, 0, 2, 1, 0, 4, 3, 9, 1])
    down = np.array([0, 2, 0, 2, 4, 0, 1, 9, 1])
    linked = np.array([True] * 8 + [False])
    assert relations_of_steps(up, down, linked, 3).tolist() == [0, 2, 5, 9, 0, 0, 0, 0, 0]


@pytest.mark.parametrize("max_distance", [0, 85])
def test_distance_that_does_not_fit(max_distance):
    with pytest.raises(ValueError) as error:
        pair_relation(max_distance)
    assert str(error.value) == (
        f"max_distance: expected 1 to 84, so that an id fits into a byte, got {max_distance}."
    )


def test_no_such_relation():
    with pytest.raises(ValueError) as error:
        relation_name(11, 3)
    assert str(error.value) == "relation: expected 0 to 10, got 11."
