"""Which word a subword piece belongs to, decided by character offsets alone.

It works on plain integer arrays for a whole batch of sentences at once, so any tokenizer that reports offsets
will do (`encoding_offsets` gets them from its result). Tags and vocabularies are in `factors`.

A batch is flat: the offsets of all pieces, one after the other, and `row_splits`, where each sentence begins.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from syntaxformer.base.errors import AlignmentError
from syntaxformer.syntax.ragged import splits_of

NO_WORD = -1
"""Word index of a special piece, and of a piece that covers no character of any word."""

IntArray = NDArray[np.integer[Any]]


def word_of_piece(piece_offsets: ArrayLike, word_offsets: ArrayLike) -> NDArray[np.int32]:
    """Word of every piece of one sentence, by the rule of `batch_word_of_piece`.

    Args:
        piece_offsets: `[pieces, 2]`, character start and end (exclusive) of each piece.
        word_offsets: `[words, 2]`, the same of each word.

    Returns:
        `[pieces]`, 0-based word index or `NO_WORD`.

    Raises:
        AlignmentError: As for `batch_word_of_piece`.
    """
    pieces, words = _pairs(piece_offsets, "piece_offsets"), _pairs(word_offsets, "word_offsets")
    return batch_word_of_piece(pieces, [0, len(pieces)], words, [0, len(words)])


def batch_word_of_piece(
    piece_offsets: ArrayLike,
    piece_row_splits: ArrayLike,
    word_offsets: ArrayLike,
    word_row_splits: ArrayLike,
) -> NDArray[np.int32]:
    """Word of every piece of many sentences.

    A piece *covers* a word if they share at least one character. It *belongs* to the word that covers most of
    its characters, on a tie to the first one; a piece that covers no word (specials, padding, a lone space)
    belongs to none. So a piece has at most one word, but a word may be covered and yet own no piece: "▁zum"
    belongs to the first of "zu" and "dem".

    Words may overlap or share characters. "First" is the order of their starts, then of their indices.

    Args:
        piece_offsets: `[pieces, 2]`, character start and end (exclusive) of each piece in its sentence.
        piece_row_splits: `[rows + 1]`, sentence `row` has the pieces `splits[row]:splits[row + 1]`.
        word_offsets: `[words, 2]`, the same of each word.
        word_row_splits: `[rows + 1]`, the same of the words.

    Returns:
        `[pieces]`, index of the word *within its sentence*, or `NO_WORD`.

    Raises:
        AlignmentError: Offsets are not pairs with 0 <= start <= end, row splits do not cut the items into
            rows, or pieces and words have different numbers of rows.
    """
    pieces, words = _pairs(piece_offsets, "piece_offsets"), _pairs(word_offsets, "word_offsets")
    piece_rows = row_of_item(piece_row_splits, len(pieces), "piece_row_splits")
    word_splits = np.asarray(word_row_splits, np.int64)
    word_rows = row_of_item(word_splits, len(words), "word_row_splits")
    if len(np.asarray(piece_row_splits)) != len(word_splits):
        raise AlignmentError(
            f"piece_row_splits: expected {len(word_splits) - 1} rows, as many as the words have, "
            f"got {len(np.asarray(piece_row_splits)) - 1}."
        )
    if not len(pieces) or not len(words):
        return np.full(len(pieces), NO_WORD, np.int32)
    # Each row gets a character range of its own, so that the batch is like one long sentence.
    stride = int(max(pieces.max(), words.max())) + 1
    flat = _longest_overlap(pieces + (piece_rows * stride)[:, None], words + (word_rows * stride)[:, None])
    local = flat - word_splits[piece_rows]
    local[flat == NO_WORD] = NO_WORD
    return local.astype(np.int32)


def _longest_overlap(pieces: NDArray[np.int64], words: NDArray[np.int64]) -> NDArray[np.int64]:
    """Index of the word that shares most characters with each piece; both are `[n, 2]` in the same range."""
    order = None
    if np.any(words[1:, 0] < words[:-1, 0]):
        order = np.argsort(words[:, 0], kind="stable")
        words = words[order]
    word_starts, word_ends = words[:, 0].copy(), words[:, 1].copy()
    piece_starts, piece_ends = pieces[:, 0].copy(), pieces[:, 1].copy()
    # Ends are not sorted if words overlap, but their running maximum is, and it misses no candidate.
    candidate = np.searchsorted(np.maximum.accumulate(word_ends), piece_starts, side="right")
    stop = np.searchsorted(word_starts, piece_ends, side="left")
    best = np.full(len(pieces), NO_WORD, np.int64)
    best_overlap = np.zeros(len(pieces), np.int64)
    # One round settles nearly all pieces, which touch one word; those that touch more need further rounds.
    active = np.flatnonzero(candidate < stop)
    while len(active):
        word = candidate[active]
        overlap = np.minimum(word_ends[word], piece_ends[active])
        overlap -= np.maximum(word_starts[word], piece_starts[active])
        better = overlap > best_overlap[active]
        best[active[better]] = word[better]
        best_overlap[active[better]] = overlap[better]
        candidate[active] += 1
        active = active[candidate[active] < stop[active]]
    if order is not None:
        has_word = best != NO_WORD
        best[has_word] = order[best[has_word]]
    return best


def row_of_item(row_splits: ArrayLike, n_items: int, what: str = "row_splits") -> NDArray[np.int64]:
    """Row that each of `n_items` items of a flat list belongs to; errors name `what`.

    Returns:
        `[n_items]`.

    Raises:
        AlignmentError: The splits do not ascend from 0 to `n_items`.
    """
    splits = np.asarray(row_splits, np.int64)
    lengths = np.diff(splits)
    if splits.ndim != 1 or not len(splits) or splits[0] != 0 or splits[-1] != n_items or np.any(lengths < 0):
        shown = ", ".join(map(str, splits.ravel()[:4])) + (", …" if splits.size > 4 else "")
        raise AlignmentError(f"{what}: expected ascending positions from 0 to {n_items}, got [{shown}].")
    return np.repeat(np.arange(len(lengths), dtype=np.int64), lengths)


def _pairs(offsets: ArrayLike, what: str) -> NDArray[np.int64]:
    """Offsets as int64 `[n, 2]`, checked."""
    pairs = np.asarray(offsets, np.int64)
    if pairs.size == 0:
        return np.zeros((0, 2), np.int64)
    if pairs.ndim != 2 or pairs.shape[1] != 2:
        raise AlignmentError(f"{what}: expected shape [n, 2] (start, end), got {list(pairs.shape)}.")
    wrong = np.flatnonzero((pairs[:, 0] < 0) | (pairs[:, 1] < pairs[:, 0]))
    if len(wrong):
        got = f"{pairs[wrong[0], 0]}, {pairs[wrong[0], 1]} at position {wrong[0]}"
        raise AlignmentError(f"{what}: expected 0 <= start <= end, got {got}.")
    return pairs


def encoding_offsets(encoded: Any) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Offsets of all pieces of single-segment encodings, or of all words of sentences.

    Args:
        encoded: `tokenizers.Encoding` objects, a `BatchEncoding` of a fast tokenizer, or `Sentence`s.

    Returns:
        `(piece_offsets [pieces, 2], piece_row_splits [rows + 1])`.
    """
    rows = [item.offsets for item in getattr(encoded, "encodings", encoded)]
    return _flat(rows), splits_of(list(map(len, rows)))


def segment_offsets(encoded: Any) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Offsets of sentence pairs that are encoded together, two rows per pair.

    The offsets of a second segment start again at 0, so the segments must be aligned separately: row `2 * i`
    holds the pieces of pair `i` before its second segment, row `2 * i + 1` the others. Align them with the
    words of the sentences in the same order (first, second, first, second, …). The order of pieces stays.

    Args:
        encoded: As in `encoding_offsets`.

    Returns:
        `(piece_offsets [pieces, 2], piece_row_splits [2 * pairs + 1])`.
    """
    encodings = list(getattr(encoded, "encodings", encoded))
    lengths: list[int] = []
    for segments in (encoding.sequence_ids for encoding in encodings):
        n_first = segments.index(1) if 1 in segments else len(segments)
        lengths += [n_first, len(segments) - n_first]
    return _flat([encoding.offsets for encoding in encodings]), splits_of(lengths)


def _flat(rows: Sequence[Sequence[tuple[int, int]]]) -> NDArray[np.int32]:
    """Join all rows into one `[pieces, 2]` array; `fromiter` over single numbers is the fastest way."""
    numbers = chain.from_iterable(chain.from_iterable(rows))
    return np.fromiter(numbers, np.int32, 2 * sum(map(len, rows))).reshape(-1, 2)


SUBWORD_POSITIONS = ("B", "M", "E", "O")
"""Positions of a piece in its word (beginning, middle, end, whole word), in the order of their codes."""

_BEGINNING, _MIDDLE, _END, _WHOLE = range(4)


def subword_codes(words_of_pieces: ArrayLike, piece_row_splits: ArrayLike) -> NDArray[np.int8]:
    """Position in its word of every piece of many sentences.

    A word of one piece has O, of two B E, of more B M* E. The pieces of a word are those that belong to it,
    in order, whether or not they are next to each other.

    Args:
        words_of_pieces: `[pieces]`, word index within the sentence or `NO_WORD`.
        piece_row_splits: `[rows + 1]`.

    Returns:
        `[pieces]`, index into `SUBWORD_POSITIONS`, or -1 for a piece without a word.

    Raises:
        AlignmentError: The row splits do not cut the pieces into rows.

    Source: Sundararaman et al. (2019), section 3.1.
    """
    words = np.asarray(words_of_pieces, np.int64)
    rows = row_of_item(piece_row_splits, len(words), "piece_row_splits")
    pieces = np.flatnonzero(words != NO_WORD)
    codes = np.full(len(words), -1, np.int8)
    if not len(pieces):
        return codes
    # Each pair (row, word) gets a number: rows are `stride` apart.
    stride = int(words.max()) + 1
    key = rows[pieces] * stride + words[pieces]
    order = np.argsort(key, kind="stable")
    changes = np.diff(key[order]) != 0
    first, last = np.append(True, changes), np.append(changes, True)
    position = np.where(first, np.where(last, _WHOLE, _BEGINNING), np.where(last, _END, _MIDDLE))
    codes[pieces[order]] = position
    return codes
