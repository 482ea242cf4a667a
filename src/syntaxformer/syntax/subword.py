"""Where a piece stands in its word: B(eginning), M(iddle), E(nd), or O, the whole word.

Needs only the words of the pieces (`pieces`), no text.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from syntaxformer.syntax.pieces import NO_WORD, row_of_item

__all__ = ["SUBWORD_POSITIONS", "subword_codes"]

SUBWORD_POSITIONS = ("B", "M", "E", "O")
"""Positions in the order of their codes."""

_BEGINNING, _MIDDLE, _END, _WHOLE = range(4)


def subword_codes(words_of_pieces: ArrayLike, piece_row_splits: ArrayLike) -> NDArray[np.int8]:
    """Position of every piece of many sentences.

    A word of one piece has O, of two B E, of more B M* E. The pieces of a word are those that belong to it,
    in their order, next to each other or not.

    Args:
        words_of_pieces: `[pieces]`, word index within the sentence or `NO_WORD`.
        piece_row_splits: `[rows + 1]`.

    Returns:
        `[pieces]`, index into `SUBWORD_POSITIONS`, or -1 for a piece without word.

    Raises:
        AlignmentError: Row splits that do not cut the pieces into rows.

    Source: Sundararaman et al. (2019), section 3.1.
    """
    words = np.asarray(words_of_pieces, np.int64)
    rows = row_of_item(piece_row_splits, len(words), "piece_row_splits")
    pieces = np.flatnonzero(words != NO_WORD)
    codes = np.full(len(words), -1, np.int8)
    if not len(pieces):
        return codes
    # A number for every (row, word): rows are `stride` apart.
    stride = int(words.max()) + 1
    key = rows[pieces] * stride + words[pieces]
    first, last = _first_and_last(key, len(pieces))
    position = np.where(first, np.where(last, _WHOLE, _BEGINNING), np.where(last, _END, _MIDDLE))
    codes[pieces] = position
    return codes


def _first_and_last(key: NDArray[np.int64], n_pieces: int) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Whether each piece is the first, and the last, of those with its key."""
    order: NDArray[np.int64] | None = None
    if np.any(key[1:] < key[:-1]):
        order = np.argsort(key, kind="stable")
        key = key[order]
    changes = key[1:] != key[:-1]
    first, last = np.ones(n_pieces, bool), np.ones(n_pieces, bool)
    first[1:], last[:-1] = changes, changes
    if order is not None:
        first[order], last[order] = first.copy(), last.copy()
    return first, last
