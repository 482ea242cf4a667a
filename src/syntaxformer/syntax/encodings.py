"""Character offsets out of a tokenizer's result, as the flat arrays that `pieces` works on.

Duck-typed: `tokenizers.Encoding` objects, a fast Hugging Face tokenizer's `BatchEncoding`, or plain lists of
pairs (`return_offsets_mapping=True`). Imports no tokenizer package and never tokenizes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from syntaxformer.base.errors import AlignmentError

__all__ = ["EncodingLike", "encoding_offsets", "segment_offsets"]

OffsetList = Sequence[tuple[int, int]]


class EncodingLike(Protocol):
    """The part of `tokenizers.Encoding` that is needed here."""

    @property
    def offsets(self) -> list[tuple[int, int]]:
        """Character start and end of each piece; (0, 0) for specials and padding."""
        ...

    @property
    def sequence_ids(self) -> list[int | None]:
        """Segment of each piece; None for specials and padding."""
        ...


def encoding_offsets(encoded: Any) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Offsets of all pieces of single-segment encodings.

    Args:
        encoded: `tokenizers.Encoding` objects, a `BatchEncoding` of a fast tokenizer, or offset lists.

    Returns:
        `(piece_offsets [pieces, 2], piece_row_splits [rows + 1])`.

    Raises:
        AlignmentError: `encoded` carries no offsets.
    """
    rows = [item.offsets if _is_encoding(item) else item for item in _items(encoded)]
    return _flat(rows), _splits(len(row) for row in rows)


def segment_offsets(encoded: Any) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Offsets of sentence pairs encoded together, two rows a pair.

    The offsets of a second segment start again at 0, so the segments must be aligned apart: row `2 * i` holds
    the pieces of pair `i` before its second segment, row `2 * i + 1` the others. Align them with the words of
    the sentences in the same order (first, second, first, second, …). The flat order of the pieces stays.

    Args:
        encoded: `tokenizers.Encoding` objects or a `BatchEncoding`; offset lists alone do not tell segments.

    Returns:
        `(piece_offsets [pieces, 2], piece_row_splits [2 * pairs + 1])`.

    Raises:
        AlignmentError: `encoded` carries no offsets or no segments.
    """
    rows: list[OffsetList] = []
    lengths: list[int] = []
    for item in _items(encoded):
        if not _is_encoding(item):
            raise AlignmentError("segments: expected encodings with sequence_ids, got bare offsets.")
        segments = item.sequence_ids
        first = segments.index(1) if 1 in segments else len(segments)
        rows.append(item.offsets)
        lengths += [first, len(segments) - first]
    return _flat(rows), _splits(lengths)


def _is_encoding(item: Any) -> bool:
    # Asked of the class: on an object, hasattr would build the whole list.
    return hasattr(cast("type[object]", type(item)), "offsets")


def _items(encoded: Any) -> list[Any]:
    """The encodings of any accepted form, one a row."""
    if _is_encoding(encoded):
        raise AlignmentError(
            "encodings: expected a list, one a sentence, got a single one. Put it into a list."
        )
    if hasattr(encoded, "encodings"):
        encoded = encoded.encodings
        if not encoded:
            raise AlignmentError(
                "encodings: expected a fast tokenizer's result, with character offsets, got a slow one's. "
                "Load the tokenizer with use_fast=True."
            )
    return list(encoded)


def _flat(rows: Sequence[OffsetList]) -> NDArray[np.int32]:
    """All rows as one `[pieces, 2]` array; `fromiter` over single numbers is fastest."""
    n_numbers = 2 * sum(map(len, rows))
    numbers = chain.from_iterable(chain.from_iterable(rows))
    try:
        return np.fromiter(cast("Iterable[int]", numbers), np.int32, n_numbers).reshape(-1, 2)
    except (TypeError, ValueError) as error:
        raise AlignmentError(f"offsets: expected a (start, end) pair for each piece, got {error}.") from error


def _splits(lengths: Iterable[int]) -> NDArray[np.int64]:
    return np.concatenate([[0], np.cumsum(np.fromiter(lengths, np.int64))]).astype(np.int64)
