"""Dependency trees to relation matrices, for one sentence or a padded batch; no loop over pairs of words.

Two words share exactly the ancestors above their lowest common one, so counting shared ancestors tells how
far up and down the way between them goes. Any forest will do, projective or not.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from syntaxformer.base.errors import TreeError
from syntaxformer.syntax.relation_ids import MAX_DISTANCE, RelationArray, relations_of_steps
from syntaxformer.trees import ROOT, check_governors

__all__ = [
    "NO_PATH",
    "batch_dependency_distances",
    "batch_dependency_relations",
    "dependency_depths",
    "dependency_relations",
]

NO_PATH = -1
"""Distance of two words that no tree links, and of padding."""


def dependency_relations(governors: Sequence[int], max_distance: int = MAX_DISTANCE) -> RelationArray:
    """Relation of every pair of words in a dependency tree.

    Args:
        governors: 0-based governor of each word, -1 for a root, `[words]`; several roots allowed.
        max_distance: D, the largest distance that has a relation.

    Returns:
        Relation ids as in `ids`, `[words, words]`; row i sees column j.

    Raises:
        TreeError: A governor is out of range, or there is a cycle.
        ValueError: `max_distance` is not between 1 and 84.

    Source: Bai et al. (2021), section 3.2.
    """
    row = np.asarray(governors, np.int64).reshape(1, -1)
    return batch_dependency_relations(row, [row.shape[1]], max_distance)[0]


def batch_dependency_relations(
    governors: ArrayLike,
    n_words: ArrayLike,
    max_distance: int = MAX_DISTANCE,
    *,
    first_line: int | None = None,
) -> RelationArray:
    """Relations of many sentences at once.

    Args:
        governors: `[rows, words]`, padded with anything.
        n_words: Words of each row, `[rows]`.
        max_distance: D.
        first_line: 1-based line of the first row, for messages.

    Returns:
        `[rows, words, words]`; 0 wherever a word is padding.

    Raises:
        TreeError: A governor is out of range, or there is a cycle; names the words and, if given, the line.
        ValueError: `max_distance` is not between 1 and 84.
    """
    parents, sizes = _parents_and_sizes(governors, n_words, first_line)
    shared = _shared_ancestors(parents, sizes)
    return relations_of_steps(
        sizes[:, :, None] - shared, sizes[:, None, :] - shared, shared > 0, max_distance
    )


def batch_dependency_distances(
    governors: ArrayLike, n_words: ArrayLike, *, first_line: int | None = None
) -> NDArray[np.int32]:
    """Edges on the path between every two words, whatever their relation: what a structural probe is to find.

    Returns:
        `[rows, words, words]`; 0 on the diagonal, `NO_PATH` between trees and wherever a word is padding.

    Args and raises as `batch_dependency_relations`.
    """
    parents, sizes = _parents_and_sizes(governors, n_words, first_line)
    shared = _shared_ancestors(parents, sizes).astype(np.int32)
    depths = sizes.astype(np.int32)
    return np.where(shared > 0, depths[:, :, None] + depths[:, None, :] - 2 * shared, NO_PATH)


def dependency_depths(
    governors: ArrayLike, n_words: ArrayLike, *, first_line: int | None = None
) -> NDArray[np.integer[Any]]:
    """Edges between each word and the root, plus one: 1 for a root, 0 for padding, `[rows, words]`.

    Args and raises as `batch_dependency_relations`.
    """
    return _parents_and_sizes(governors, n_words, first_line)[1]


def _parents_and_sizes(
    governors: ArrayLike, n_words: ArrayLike, first_line: int | None
) -> tuple[NDArray[np.int64], NDArray[np.integer[Any]]]:
    """Checked parents (a root is its own) and number of ancestors, each word counted as one of its own."""
    given, lengths = np.asarray(governors, np.int64), np.asarray(n_words, np.int64)
    words = np.arange(given.shape[1], dtype=np.int64)
    is_word = words < lengths[:, None]
    is_root = (given == ROOT) | ~is_word
    outside = is_word & ((given < ROOT) | (given >= lengths[:, None]))
    parents = np.where(is_root | outside, words, given)
    # Pointer jumping in one flat list: after k rounds an ancestor 2^k up, or the root.
    flat = (parents + (np.arange(len(given), dtype=np.int64) * given.shape[1])[:, None]).ravel()
    is_top, sizes = is_root.ravel(), (~is_root).ravel().astype(np.int64)
    for _ in range(given.shape[1].bit_length()):
        if is_top[flat].all():
            break
        sizes += sizes[flat]
        flat = flat[flat]
    wrong = outside.any(axis=1) | ~is_top[flat].reshape(given.shape).all(axis=1)
    if wrong.any():
        row = int(wrong.argmax())
        _refuse(given[row, : lengths[row]].tolist(), None if first_line is None else first_line + row)
    counted = np.where(is_word, sizes.reshape(given.shape) + 1, 0)
    return parents, counted.astype(np.min_scalar_type(int(counted.max(initial=0))))


def _refuse(governors: list[int], line: int | None) -> None:
    try:
        check_governors(governors)
    except TreeError as error:
        raise TreeError(str(error), line=line) from error


def _shared_ancestors(
    parents: NDArray[np.int64], sizes: NDArray[np.integer[Any]]
) -> NDArray[np.integer[Any]]:
    """Number of ancestors that two words have in common, themselves included, `[rows, words, words]`.

    Compares the paths from the root down, one level at a time: as many rounds as the deepest tree has levels.
    """
    n_rows, n_words = parents.shape
    index_type = np.min_scalar_type(n_words + 1)
    words = np.arange(n_words, dtype=np.int64)
    flat_parents = (parents + (np.arange(n_rows, dtype=np.int64) * n_words)[:, None]).ravel()
    own = np.arange(n_rows * n_words, dtype=np.int64)
    flat_sizes, local = sizes.ravel(), np.tile(words, n_rows).astype(index_type)
    shared = np.zeros((n_rows, n_words, n_words), sizes.dtype)
    same = np.empty(shared.shape, np.bool_)
    ancestor = own
    for level in range(int(sizes.max(initial=0)), 0, -1):
        # Ancestor at this level; a word that is not so deep yet stands for itself.
        ancestor = np.where(flat_sizes > level, flat_parents[ancestor], own)
        reaches = flat_sizes >= level
        # Words above this level have no ancestor here: two numbers that no word has, so that they never
        # agree.
        of_query = np.where(reaches, local[ancestor], index_type.type(n_words)).reshape(n_rows, n_words)
        of_key = np.where(reaches, local[ancestor], index_type.type(n_words + 1)).reshape(n_rows, n_words)
        np.equal(of_query[:, :, None], of_key[:, None, :], out=same)
        shared += same
    return shared
