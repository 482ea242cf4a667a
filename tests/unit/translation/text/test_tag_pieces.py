"""Tags as pieces: where they stand, whose they are, and what is cut where there is no room."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from syntaxformer.translation.source import first_of_words, fitting_pieces, with_tags

# "▁The ▁cat s </s>" | "</s>" | "▁a ▁ </s>": words 0, 1, 1; none; 0 and a piece of no word.
PIECES = np.array([10, 11, 12, 2, 2, 13, 14, 2], np.int32)
SPLITS = np.array([0, 4, 5, 8])
OWNERS = np.array([0, 1, 1, -1, -1, 0, -1, -1], np.int32)
TAGS = np.array([[70], [71], [71], [99], [99], [72], [99], [99]], np.int32)


def _lines(flat, splits):
    return [flat[start:stop].tolist() for start, stop in pairwise(splits)]


def test_each_tag_stands_before_its_word():
    pieces, splits, owners = with_tags(PIECES, SPLITS, OWNERS, TAGS, "interleaved")
    assert _lines(pieces, splits) == [[70, 10, 71, 11, 12, 2], [2], [72, 13, 14, 2]]
    assert _lines(owners, splits) == [[0, 0, 1, 1, 1, -1], [-1], [0, 0, -1, -1]]


def test_all_tags_stand_before_all_words():
    pieces, splits, owners = with_tags(PIECES, SPLITS, OWNERS, TAGS, "prefix")
    assert _lines(pieces, splits) == [[70, 71, 10, 11, 12, 2], [2], [72, 13, 14, 2]]
    assert _lines(owners, splits) == [[0, 1, 0, 1, 1, -1], [-1], [0, 0, -1, -1]]


def test_the_limit_counts_tags():
    is_first = first_of_words(OWNERS, SPLITS)
    assert is_first.tolist() == [True, True, False, False, False, True, False, False]
    assert fitting_pieces(SPLITS, 3).tolist() == [0, 1, 3, 4, 5, 6, 7]
    assert fitting_pieces(SPLITS, 3, is_first, 1).tolist() == [0, 3, 4, 5, 7]
    assert fitting_pieces(SPLITS, 1, is_first, 1).tolist() == [3, 4, 7]


@st.composite
def _texts(draw):
    """Lines whose words have one to three pieces, with pieces of no word between, each line with its end."""
    pieces, owners, splits = [], [], [0]
    for _ in range(draw(st.integers(1, 5))):
        for word in range(draw(st.integers(0, 6))):
            n_pieces = draw(st.integers(0, 3))
            owners += [word] * n_pieces + [-1] * draw(st.integers(0, 1))
        owners.append(-1)
        splits.append(len(owners))
    pieces = list(range(len(owners)))
    return np.array(pieces, np.int32), np.array(splits), np.array(owners, np.int32)


@given(_texts(), st.sampled_from(["interleaved", "prefix"]), st.integers(1, 2), st.integers(1, 12))
def test_without_its_tags_a_line_is_what_it_was_and_no_line_is_too_long(text, place, n_tags, longest):
    pieces, splits, owners = text
    kept = fitting_pieces(splits, longest, first_of_words(owners, splits), n_tags)
    left = np.searchsorted(kept, splits)
    tags = 1000 + 10 * owners[:, None] + np.arange(n_tags)
    found, new_splits, new_owners = with_tags(pieces[kept], left, owners[kept], tags[kept], place)
    assert np.diff(new_splits).max() <= longest
    lines = zip(
        _lines(found, new_splits), _lines(new_owners, new_splits), _lines(pieces[kept], left), strict=True
    )
    for line, words, before in lines:
        assert [piece for piece in line if piece < 1000] == before
        tagged = [(tag, word) for tag, word in zip(line, words, strict=True) if tag >= 1000]
        assert all((tag - 1000) // 10 == word for tag, word in tagged)
        owned = {word for word in words if word >= 0}
        assert len(tagged) == n_tags * len(owned)
        for place_of, (tag, word) in enumerate(zip(line, words, strict=True)):
            if tag >= 1000:
                assert words.index(word) <= place_of
                assert place == "prefix" or words[place_of + 1] == word
