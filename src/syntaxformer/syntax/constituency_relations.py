"""Constituency trees to relation matrices, for one sentence or a padded batch; no loop over pairs of words.

Works on the columns of `phrases`: the lowest phrase over two words is the highest one over the gaps between
them, a running minimum.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from syntaxformer.syntax.phrase_columns import NO_PHRASE, phrase_columns
from syntaxformer.syntax.relation_ids import MAX_DISTANCE, RelationArray, relations_of_steps
from syntaxformer.trees import Tree

__all__ = ["Nodes", "batch_constituency_relations", "constituency_relations"]

Nodes = Literal["headed", "leaves"]
"""What a word is in the tree: the owner of the phrases that it heads, or only a leaf."""


def constituency_relations(
    tree: Tree | str,
    max_distance: int = MAX_DISTANCE,
    nodes: Nodes = "headed",
    *,
    governors: Sequence[int] | None = None,
    labels: bool = True,
) -> RelationArray:
    """Relation of every pair of words in a constituency tree.

    With P the lowest phrase over i and j: where i is P's head word, i is the ancestor of j, at as many edges
    as lead from j up to P; where neither heads P they are siblings, at as many edges as lead from i over P
    to j. With `nodes="leaves"` all pairs are siblings.

    Args:
        tree: A tree or its brackets.
        max_distance: D, the largest distance that has a relation.
        nodes: "headed" or "leaves".
        governors: Dependency governors that decide the heads, as in `phrase_columns`.
        labels: As in `parse_tree`, for brackets.

    Returns:
        Relation ids as in `ids`, `[words, words]`; row i sees column j.

    Raises:
        TreeError: No tree, or governors that do not fit it.
        ValueError: `nodes` or `max_distance` is not one of those.

    Source: Bai et al. (2021), section 3.2; differs: there words have no phrases, so that no word is an
    ancestor.
    """
    columns = phrase_columns(tree, governors, labels=labels)
    rows = (columns.word_depths[None], columns.gap_depths[None], columns.gap_heads[None])
    return batch_constituency_relations(*rows, [len(columns)], max_distance, nodes)[0]


def batch_constituency_relations(
    word_depths: ArrayLike,
    gap_depths: ArrayLike,
    gap_heads: ArrayLike,
    n_words: ArrayLike,
    max_distance: int = MAX_DISTANCE,
    nodes: Nodes = "headed",
) -> RelationArray:
    """Relations of many sentences at once.

    Args:
        word_depths: As in `PhraseColumns`, `[rows, words]`, padded with anything.
        gap_depths: `[rows, words]`.
        gap_heads: `[rows, words]`.
        n_words: Words of each row, `[rows]`.
        max_distance: D.
        nodes: "headed" or "leaves".

    Returns:
        `[rows, words, words]`; 0 wherever a word is padding.

    Raises:
        ValueError: `nodes` or `max_distance` is not one of those.
    """
    if nodes not in get_args(Nodes):
        raise ValueError(f"nodes: expected one of {', '.join(get_args(Nodes))}, got {nodes!r}.")
    depths, gaps, heads = (np.asarray(column, np.int64) for column in (word_depths, gap_depths, gap_heads))
    words = np.arange(depths.shape[1], dtype=np.int64)
    is_word = words < np.asarray(n_words, np.int64)[:, None]
    depths = np.where(is_word, depths, 0)
    # Nothing joins padding to the words before it.
    gaps, heads = np.where(is_word, gaps, NO_PHRASE), np.where(is_word, heads, 0)
    common, owner = _lowest_phrases(gaps, heads, int(depths.max(initial=0)))
    depths, words = depths.astype(common.dtype), words.astype(common.dtype)
    steps_up, steps_down = depths[:, :, None] - common, depths[:, None, :] - common
    if nodes == "headed":
        steps_up *= owner != words[:, None]
        steps_down *= owner != words
    return relations_of_steps(steps_up, steps_down, common != NO_PHRASE, max_distance)


def _lowest_phrases(
    gap_depths: NDArray[np.integer[Any]], gap_heads: NDArray[np.integer[Any]], deepest: int
) -> tuple[NDArray[np.signedinteger[Any]], NDArray[np.signedinteger[Any]]]:
    """Depth (`NO_PHRASE` for none) and head of the lowest phrase over two words, `[rows, words, words]`."""
    n_rows, n_words = gap_depths.shape
    # Depth and head in one number, so that one minimum finds both: equal depths between two words are one
    # phrase.
    bits = max(n_words - 1, 1).bit_length()
    largest = (deepest + 2) << bits
    number = np.min_scalar_type(-largest)
    keys = ((gap_depths.astype(np.int64) << bits) | gap_heads).astype(number)
    # [later word, rows, earlier word]: the running minimum then goes over whole planes.
    planes = np.full((n_words, n_rows, n_words), largest - 1, number)
    words = np.arange(n_words, dtype=np.int64)
    earlier = words[:, None] > words
    np.copyto(planes, keys.T[:, :, None], where=earlier[:, None, :])
    for later in range(1, n_words):
        np.minimum(planes[later], planes[later - 1], out=planes[later])
    half = planes.transpose(1, 2, 0)
    both = np.minimum(half, half.transpose(0, 2, 1))
    both[:, range(n_words), range(n_words)] = NO_PHRASE
    return both >> bits, both & number.type((1 << bits) - 1)
