"""Relations against brute force on random trees, and the laws that they obey."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from syntaxformer.syntax import batch_dependency_relations, constituency_relations, dependency_relations
from syntaxformer.syntax.head_rules import head_child
from syntaxformer.trees import Tree


def relation(up: int, down: int, max_distance: int) -> int:
    """DESIGN's table: 0; parent d; D + d child; 2D + d sibling."""
    kind = 0 if up == 0 else 1 if down == 0 else 2
    return kind * max_distance + up + down if 0 < up + down <= max_distance else 0


def brute_force_dependency(governors: list[int], max_distance: int) -> list[list[int]]:
    def ancestors(word: int) -> list[int]:
        return [word, *(ancestors(governors[word]) if governors[word] != -1 else [])]

    paths = [ancestors(word) for word in range(len(governors))]
    relations = [[0] * len(governors) for _ in governors]
    for i, of_i in enumerate(paths):
        for j, of_j in enumerate(paths):
            lowest = next((word for word in of_i if word in of_j), None)
            if lowest is not None:
                relations[i][j] = relation(of_i.index(lowest), of_j.index(lowest), max_distance)
    return relations


def random_governors(rng: np.random.Generator, n_words: int) -> list[int]:
    """Any forest: words in random order, each under an earlier one or a root; rarely projective."""
    order, governors = rng.permutation(n_words).tolist(), [-1] * n_words
    reach = int(rng.integers(1, n_words + 1))
    for number in range(1, n_words):
        if rng.random() < 0.95:
            governors[order[number]] = order[int(rng.integers(max(0, number - reach), number))]
    return governors


@pytest.mark.slow
def test_ten_thousand_random_trees():
    rng = np.random.default_rng(7)
    rows = [random_governors(rng, int(rng.integers(1, 14))) for _ in range(10_000)]
    for max_distance in (3, 15):
        padded = np.array([row + [-1] * (13 - len(row)) for row in rows])
        relations = batch_dependency_relations(padded, [len(row) for row in rows], max_distance)
        for row, matrix in zip(rows, relations, strict=True):
            expected = brute_force_dependency(row, max_distance)
            assert matrix[: len(row), : len(row)].tolist() == expected
            assert matrix.sum() == sum(map(sum, expected))


governor_lists = st.integers(1, 40).flatmap(
    lambda n_words: st.builds(
        lambda seed: random_governors(np.random.default_rng(seed), n_words), st.integers(0, 2**32)
    )
)


def check_laws(relations: np.ndarray, max_distance: int) -> None:
    parent = (relations >= 1) & (relations <= max_distance)
    child = (relations > max_distance) & (relations <= 2 * max_distance)
    sibling = (relations > 2 * max_distance) & (relations <= 3 * max_distance)
    # A partition, by construction of one id a pair; and every id is one of those kinds.
    assert np.array_equal((relations == 0) | parent | child | sibling, np.ones_like(parent))
    # parent, d is child, d transposed; sibling is symmetric; no word is related to itself.
    assert np.array_equal(np.where(parent, relations, 0), np.where(child, relations - max_distance, 0).T)
    assert np.array_equal(np.where(sibling, relations, 0), np.where(sibling, relations, 0).T)
    assert not np.diag(relations).any()


@settings(max_examples=200, deadline=None)
@given(governors=governor_lists, max_distance=st.integers(1, 84))
def test_laws_of_dependency_relations(governors, max_distance):
    relations = dependency_relations(governors, max_distance).astype(int)
    check_laws(relations, max_distance)
    # The words nearest to a word are its governor and its children.
    for word, governor in enumerate(governors):
        assert (relations[:, word] == 1).sum() == (governor != -1)
        assert governor == -1 or relations[governor, word] == 1


@settings(max_examples=100, deadline=None)
@given(governors=governor_lists)
def test_distance_is_a_metric(governors):
    n_words = len(governors)
    relations = dependency_relations(governors, 84).astype(int)
    distance = np.where(relations > 0, (relations - 1) % 84 + 1, 10_000)
    np.fill_diagonal(distance, 0)
    assert np.array_equal(distance, distance.T)
    for middle in range(n_words):
        assert (distance <= distance[:, middle, None] + distance[None, middle]).all()


LABELS = ("S", "NP", "VP", "PP", "SBAR", "ADJP", "X", "")
TAGS = ("NN", "VBD", "DT", "IN", "JJ", ",", "CC", "NOUN")


def random_tree(rng: np.random.Generator, n_words: int, first: int = 0) -> Tree | str:
    if n_words == 1:
        word = f"w{first}"
        return Tree(str(rng.choice(TAGS)), (word,)) if rng.random() < 0.7 else word
    cuts = rng.choice(np.arange(1, n_words), size=min(n_words - 1, int(rng.integers(1, 4))), replace=False)
    bounds = [0, *sorted(cuts.tolist()), n_words]
    parts = [random_tree(rng, end - start, first + start) for start, end in pairwise(bounds)]
    tree = Tree(str(rng.choice(LABELS)), tuple(parts))
    return Tree(str(rng.choice(LABELS)), (tree,)) if rng.random() < 0.2 else tree


def brute_force_constituency(tree: Tree, max_distance: int, nodes: str) -> list[list[int]]:
    """Every word's path of phrases up to the top, and the head word of every phrase, by recursion."""
    paths: list[list[Tree]] = []

    def walk(node: Tree | str, above: list[Tree]) -> int:
        """Returns the head word."""
        if isinstance(node, str):
            paths.append(above)
            return len(paths) - 1
        heads = [walk(child, [node, *above]) for child in node.children]
        labels = ["" if isinstance(child, str) else child.label for child in node.children]
        owner[id(node)] = heads[head_child(node.label, labels)]
        return owner[id(node)]

    owner: dict[int, int] = {}
    walk(tree, [])
    relations = [[0] * len(paths) for _ in paths]
    for i, of_i in enumerate(paths):
        for j, of_j in enumerate(paths):
            if i != j:
                up, down = next(
                    (up + 1, [id(node) for node in of_j].index(id(phrase)) + 1)
                    for up, phrase in enumerate(of_i)
                    if any(phrase is node for node in of_j)
                )
                head = owner[id(of_i[up - 1])] if nodes == "headed" else -1
                relations[i][j] = relation(0 if head == i else up, 0 if head == j else down, max_distance)
    return relations


@settings(max_examples=300, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    n_words=st.integers(2, 23),
    max_distance=st.integers(1, 17),
    nodes=st.sampled_from(["headed", "leaves"]),
)
def test_constituency(seed, n_words, max_distance, nodes):
    tree = random_tree(np.random.default_rng(seed), n_words)
    assert isinstance(tree, Tree)
    relations = constituency_relations(tree, max_distance, nodes)
    assert relations.tolist() == brute_force_constituency(tree, max_distance, nodes)
    check_laws(relations.astype(int), max_distance)
    if nodes == "leaves":
        assert not ((relations > 0) & (relations <= 2 * max_distance)).any()
