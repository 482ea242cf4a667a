import pytest

from syntaxformer.base.errors import TreeError
from syntaxformer.trees import check_governors, children_of, depths_of, projective_governors
from syntaxformer.trees.dependency import join_governors

# "John slipped in front of anyone": slipped is the root, front the governor of "in" and "of anyone".
WORDS = ("John", "slipped", "in", "front", "of", "anyone")
GOVERNORS = (1, -1, 3, 1, 5, 3)


def is_projective(governors):
    return projective_governors(governors) == governors


def test_children_depths_and_projectivity_of_a_small_tree():
    assert children_of(GOVERNORS) == ((), (0, 3), (), (2, 5), (), (4,))
    assert depths_of(GOVERNORS) == (1, 0, 2, 1, 3, 2)
    assert is_projective(GOVERNORS)
    check_governors(GOVERNORS, WORDS)


def test_crossing_arcs_are_not_projective():
    # 0 -> 2 and 1 -> 3 cross.
    assert not is_projective((-1, 0, 0, 1))


def test_a_root_inside_another_tree_is_not_projective():
    assert not is_projective((-1, -1, 0))
    assert is_projective((-1, 0, -1))


def test_no_words():
    assert children_of(()) == depths_of(()) == ()
    assert is_projective(())
    check_governors(())


def test_a_cycle_is_refused_with_its_words():
    with pytest.raises(TreeError) as caught:
        check_governors((1, 2, 0, -1), ("a", "b", "c", "d"))
    assert str(caught.value) == "governors: expected a tree, got a cycle 'a' → 'b' → 'c' → 'a'."


def test_depths_in_a_cycle_are_refused():
    with pytest.raises(TreeError, match="got a cycle word 1 → word 1"):
        depths_of((-1, 1))


def test_a_governor_out_of_range_is_refused():
    with pytest.raises(TreeError) as caught:
        check_governors((-1, 7), ("a", "b"))
    assert str(caught.value) == "governor of 'b': expected -1 to 1, got 7."


def test_a_chain_of_many_words_needs_no_recursion():
    chain = tuple(range(-1, 4999))
    assert depths_of(chain)[-1] == 4999
    assert is_projective(chain)


def test_joined_sentences_keep_their_roots():
    assert join_governors([(-1, 0), (1, -1), (), (-1,)]) == (-1, 0, 3, -1, -1)
