"""Relations of words carried to the subword pieces of a padded batch.

Every piece has the relations of its word; what the relations are is decided in `words`.
"""

from __future__ import annotations

from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from syntaxformer.base.errors import AlignmentError
from syntaxformer.syntax.relations import RelationArray

__all__ = ["Specials", "pair_words_of_pieces", "piece_relations"]

Specials = Literal["root", "none"]
"""Whether the first special piece stands over all roots, or has no relation."""


def piece_relations(
    relations: RelationArray,
    words_of_pieces: ArrayLike,
    first_special: ArrayLike | None = None,
    specials: Specials = "root",
) -> RelationArray:
    """Relations between pieces.

    Two pieces of one word have relation 0, as has any piece without word: specials and padding.

    Args:
        relations: From `word_relations`, `[rows, trees, words + 2, words + 2]`.
        words_of_pieces: `[rows, pieces]`, word of each piece within its row, -1 for none.
        first_special: Position of the piece that stands over all roots, `[rows]`, -1 for none; [CLS]
            as a rule.
        specials: "root" gives that piece its relations, "none" leaves them at 0.

    Returns:
        `[rows, trees, pieces, pieces]`.

    Raises:
        AlignmentError: A piece of a word that is not there, or another number of rows.
        ValueError: `specials` is not one of those.
    """
    if specials not in get_args(Specials):
        raise ValueError(f"specials: expected one of {', '.join(get_args(Specials))}, got {specials!r}.")
    words = np.array(words_of_pieces, np.int64)
    n_rows, n_trees, n_slots, _ = relations.shape
    if words.ndim != 2 or len(words) != n_rows:
        raise AlignmentError(f"words_of_pieces: expected shape [{n_rows}, pieces], got {list(words.shape)}.")
    if words.size and not -1 <= words.min() <= words.max() < n_slots - 2:
        raise AlignmentError(
            f"words_of_pieces: expected -1 to {n_slots - 3}, a word of the batch, "
            f"got {words.min()} to {words.max()}."
        )
    if first_special is not None and specials == "root":
        places = np.asarray(first_special, np.int64)
        rows = np.flatnonzero(places >= 0)
        words[rows, places[rows]] = n_slots - 2
    carried = np.empty((n_rows, n_trees, words.shape[1], words.shape[1]), np.uint8)
    for row in range(n_rows):
        # -1 wraps to the last slot, which has no relation.
        rows_taken = relations[row].take(words[row], axis=1, mode="wrap")
        rows_taken.take(words[row], axis=2, mode="wrap", out=carried[row])
    return carried


def pair_words_of_pieces(
    words_of_pieces: ArrayLike, piece_row_splits: ArrayLike, word_row_splits: ArrayLike
) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Number the words of a pair's second segment on from those of the first.

    Args:
        words_of_pieces: Flat, aligned with two rows a pair (see `segment_offsets`).
        piece_row_splits: `[2 * pairs + 1]`.
        word_row_splits: `[2 * pairs + 1]`.

    Returns:
        `(words_of_pieces [pieces], piece_row_splits [pairs + 1])`, one row a pair.

    Raises:
        AlignmentError: The rows are not pairs.
    """
    words = np.array(words_of_pieces, np.int32)
    pieces, splits = np.asarray(piece_row_splits, np.int64), np.asarray(word_row_splits, np.int64)
    if len(pieces) != len(splits) or len(pieces) % 2 == 0:
        raise AlignmentError(
            f"row_splits: expected two rows a pair, got {len(pieces) - 1} of pieces "
            f"and {len(splits) - 1} of words."
        )
    shift: NDArray[np.integer[Any]] = np.diff(splits)
    shift[1::2] = shift[::2]
    shift[::2] = 0
    of_piece = np.repeat(shift, np.diff(pieces))
    words[words >= 0] += of_piece[words >= 0].astype(np.int32)
    return words, pieces[::2]
