"""Tags as pieces of their own before the words that they belong to: infusion kind `prepend`.

Takes and gives flat arrays. A tag's id lies behind the vocabulary of words, so no word is ever taken for one,
and the target side never sees it. A tag belongs to its word like the word's pieces: it is the first of them.
"""

from __future__ import annotations

from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

__all__ = ["TagPlace", "first_of_words", "fitting_pieces", "with_tags"]

TagPlace = Literal["interleaved", "prefix"]
"""Each tag before its word, or all tags before all words."""

IntArray = NDArray[np.integer[Any]]


def first_of_words(owners: IntArray, splits: IntArray) -> NDArray[np.bool_]:
    """True for the first piece of each word.

    Args:
        owners: `[pieces]`, word of each piece within its line, -1 for none.
        splits: `[lines + 1]`.
    """
    lines = np.repeat(np.arange(len(splits) - 1), np.diff(splits))
    owned = np.flatnonzero(owners >= 0)
    words = lines[owned] * (int(owners.max(initial=0)) + 1) + owners[owned]
    is_first = np.zeros(len(owners), bool)
    is_first[owned[np.unique(words, return_index=True)[1]]] = True
    return is_first


def fitting_pieces(
    splits: IntArray, longest: int, is_first: NDArray[np.bool_] | None = None, n_tags: int = 0
) -> NDArray[np.int64]:
    """Pieces that stay where no line may be longer than `longest`, tags included; each keeps its last piece.

    Args:
        splits: `[lines + 1]`.
        longest: Most pieces of a line.
        is_first: From `first_of_words`; None without tags.
        n_tags: Tags of each word.
    """
    cost = np.ones(int(splits[-1]), np.int64)
    if is_first is not None:
        cost += n_tags * is_first
    ends = np.cumsum(cost)
    of_line = ends - np.repeat(np.concatenate([[0], ends])[splits[:-1]], np.diff(splits))
    stays = of_line < longest
    stays[splits[1:][np.diff(splits) > 0] - 1] = True
    return np.flatnonzero(stays)


def with_tags(
    pieces: IntArray,
    splits: IntArray,
    owners: IntArray,
    tags: NDArray[np.integer[Any]],
    place: TagPlace,
) -> tuple[NDArray[np.int32], NDArray[np.int64], NDArray[np.int32]]:
    """Put tags into lines. A word without a piece of its own has no tag.

    Args:
        pieces: `[pieces]`.
        splits: `[lines + 1]`.
        owners: `[pieces]`, word of each piece within its line, -1 for none.
        tags: `[pieces, tags]`, ids of the tags of each piece's word.
        place: Where they go.

    Returns:
        Pieces, splits and owners with them.

    Raises:
        ValueError: No such place.
    """
    if place not in get_args(TagPlace):
        raise ValueError(f"place of tags: expected one of {', '.join(get_args(TagPlace))}, got {place!r}.")
    is_first, n_tags = first_of_words(owners, splits), tags.shape[1]
    n_before = np.concatenate([[0], np.cumsum(is_first) * n_tags])  # tags of words that begin before a piece
    lengths = np.diff(splits)
    if place == "interleaved":
        shift, first_tag = n_before[1:], np.flatnonzero(is_first) + n_before[:-1][is_first]
    else:
        shift = np.repeat(n_before[splits[1:]], lengths)
        first_tag = (np.repeat(splits[:-1], lengths) + n_before[:-1])[is_first]
    n_all = len(pieces) + int(n_before[-1])
    found, words = np.empty(n_all, np.int32), np.empty(n_all, np.int32)
    moved, placed = np.arange(len(pieces)) + shift, first_tag[:, None] + np.arange(n_tags)
    found[moved], words[moved] = pieces, owners
    found[placed], words[placed] = tags[is_first], owners[is_first][:, None]
    return found, (splits + n_before[splits]).astype(np.int64), words
