"""Words of one text that change places: which place each piece takes its values from.

Arrays only, one text at a time, so that what comes out depends on no other text of a batch.
"""

from __future__ import annotations

import zlib

import numpy as np
from numpy.typing import NDArray

__all__ = ["drawn_for", "piece_roles", "word_roles"]


def drawn_for(seed: int, text: int, name: str) -> np.random.Generator:
    """What is drawn for one factor or tree of one text: the same in whatever batch the text stands.

    Args:
        seed: Of the whole ablation.
        text: Number that stands for the text, a checksum.
        name: Of the factor or the tree: each is shuffled apart.
    """
    return np.random.default_rng([seed, text, zlib.crc32(name.encode())])


def word_roles(
    words: NDArray[np.int64], segments: NDArray[np.int64], drawn: np.random.Generator
) -> NDArray[np.int64]:
    """Let words change places within their segment.

    Args:
        words: Word of each piece, -1 for none, `[pieces]`; no word of one segment has the number of one of
            the other.
        segments: 0 or 1, `[pieces]`.
        drawn: Source of the shuffling.

    Returns:
        `[pieces]`: for all pieces of a word the first piece of the word whose role it plays; pieces of no
        word play their own.
    """
    roles = np.arange(len(words))
    of_words = words >= 0
    present, first = np.unique(words[of_words], return_index=True)
    first = np.flatnonzero(of_words)[first]
    played = first.copy()
    for segment in np.unique(segments[first]):
        own = segments[first] == segment
        played[own] = drawn.permutation(first[own])
    roles[of_words] = played[np.searchsorted(present, words[of_words])]
    return roles


def piece_roles(
    words: NDArray[np.int64], segments: NDArray[np.int64], drawn: np.random.Generator
) -> NDArray[np.int64]:
    """Let pieces of words change places within their segment; arguments and result as of `word_roles`."""
    roles = np.arange(len(words))
    for segment in np.unique(segments):
        own = np.flatnonzero((words >= 0) & (segments == segment))
        roles[own] = drawn.permutation(own)
    return roles
