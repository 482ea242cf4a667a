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
    assert is_projective((-1, 0, -1))
    assert not is_projective((-1, -1, 0)), "a root inside another tree"
    assert not is_projective((-1, 0, 0, 1)), "0 -> 2 and 1 -> 3 cross"
    check_governors(GOVERNORS, WORDS)


def test_no_words():
    assert children_of(()) == depths_of(()) == ()
    assert is_projective(())
    check_governors(())


def test_a_cycle_is_refused_with_its_words():
    with pytest.raises(TreeError, match=r"^governors: .*got a cycle 'a' → 'b' → 'c' → 'a'\."):
        check_governors((1, 2, 0, -1), ("a", "b", "c", "d"))


@pytest.mark.parametrize("chain", [tuple(range(-1, 29_999)), (*range(1, 30_000), -1)])
def test_a_chain_of_many_words_needs_neither_recursion_nor_the_square_of_their_number(chain):
    assert max(depths_of(chain)) == 29_999
    assert is_projective(chain)


def test_joined_sentences_keep_their_roots():
    assert join_governors([(-1, 0), (1, -1), (), (-1,)]) == (-1, 0, 3, -1, -1)
