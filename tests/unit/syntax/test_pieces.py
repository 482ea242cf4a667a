"""Hand-derived alignments; the comparison over random text is in tests/property."""

from __future__ import annotations

import numpy as np
import pytest

from syntaxformer.base.errors import AlignmentError
from syntaxformer.syntax import SUBWORD_POSITIONS, batch_word_of_piece, subword_codes, word_of_piece
from syntaxformer.syntax.pieces import row_of_item

# name: (piece offsets, word offsets, word of each piece)
EXAMPLES = {
    "one piece a word, a special at each end": (
        [(0, 0), (0, 3), (4, 7), (0, 0)],
        [(0, 3), (4, 7)],
        [-1, 0, 1, -1],
    ),
    # "I don't": words I | do | n't; the pieces "▁don" and "'t" cut elsewhere. "don" is 2 of "do", 1 of "n't".
    "don't": ([(0, 1), (1, 5), (5, 7)], [(0, 1), (2, 4), (4, 7)], [0, 1, 2]),
    # "U.S. now": one word of the annotator, four pieces.
    "U.S.": ([(0, 1), (1, 2), (2, 3), (3, 4), (4, 8)], [(0, 4), (5, 8)], [0, 0, 0, 0, 1]),
    # "zum Haus": zu and dem share the three characters; the one piece takes the first, dem goes without.
    "zum in one piece": ([(0, 3), (3, 8)], [(0, 3), (0, 3), (4, 8)], [0, 2]),
    # … also where the piece falls apart.
    "zum in two pieces": ([(0, 2), (2, 3), (3, 8)], [(0, 3), (0, 3), (4, 8)], [0, 0, 2]),
    # with true sub-spans: zu = (0, 2), dem = (2, 3)
    "zum with own characters": ([(0, 1), (1, 3)], [(0, 2), (2, 3)], [0, 0]),
    # "one of the": a BPE across spaces has "▁of▁the" = (3, 10): 2 characters of "of", 3 of "the".
    "a piece over two words": ([(0, 3), (3, 10)], [(0, 3), (4, 6), (7, 10)], [0, 2]),
    # "a😀b": three or four byte pieces carry the offsets of their character.
    "bytes of one emoji": (
        [(0, 1), (1, 2), (1, 2), (1, 2), (1, 2), (2, 3)],
        [(0, 1), (1, 2), (2, 3)],
        [0, 1, 1, 1, 1, 2],
    ),
    # "e" + U+0301, cut off by a byte tokenizer: the accent's bytes stay with their word.
    "combining accent": ([(0, 1), (1, 2), (1, 2)], [(0, 2)], [0, 0, 0]),
    # A normaliser that composes them reports one piece over both.
    "composed accent": ([(0, 2)], [(0, 2)], [0]),
    # "日本語です" words 日本語 | です; a piece 語で takes one of each: the first.
    "CJK, a tie": ([(0, 2), (2, 4), (4, 5)], [(0, 3), (3, 5)], [0, 0, 1]),
    "lone spaces": ([(0, 1), (1, 2), (2, 3)], [(1, 2)], [-1, 0, -1]),
    "a word inside another": ([(0, 1), (1, 3), (3, 5)], [(0, 5), (1, 3)], [0, 0, 0]),
    "a short word at the start of a longer one": ([(0, 2), (2, 6)], [(0, 2), (0, 6)], [0, 1]),
    "words not in text order": ([(0, 2), (3, 5)], [(3, 5), (0, 2)], [1, 0]),
    "empty words never win": ([(0, 2)], [(0, 0), (0, 2), (2, 2)], [1]),
    "no words": ([(0, 1), (1, 2)], [], [-1, -1]),
    "no pieces": ([], [(0, 1)], []),
    "nothing": ([], [], []),
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples(name):
    pieces, words, expected = EXAMPLES[name]
    assert word_of_piece(pieces, words).tolist() == expected


def test_a_batch_is_its_sentences():
    names = list(EXAMPLES)
    pieces = [EXAMPLES[name][0] for name in names]
    words = [EXAMPLES[name][1] for name in names]
    owners = batch_word_of_piece(
        np.array([pair for row in pieces for pair in row]),
        np.cumsum([0, *map(len, pieces)]),
        np.array([pair for row in words for pair in row]),
        np.cumsum([0, *map(len, words)]),
    )
    assert owners.dtype == np.int32
    assert owners.tolist() == [word for name in names for word in EXAMPLES[name][2]]


def test_a_long_line_of_shared_characters():
    n_words = 5_000
    words = [(2 * i, 2 * i + 1) for i in range(n_words)] + [(2 * n_words, 2 * n_words + 3)] * 2
    pieces = [(max(0, 2 * i - 1), 2 * i + 1) for i in range(n_words)] + [
        (0, 2 * n_words),
        (2 * n_words, 2 * n_words + 3),
    ]
    assert word_of_piece(pieces, words).tolist() == [*range(n_words), 0, n_words]


def test_row_of_item():
    assert row_of_item([0, 2, 2, 5], 5).tolist() == [0, 0, 2, 2, 2]
    assert row_of_item([0], 0).tolist() == []


@pytest.mark.parametrize("splits", [[0, 2], [1, 3], [0, 3, 2, 3], [0, 1, 1, 1, 2], []])
def test_wrong_row_splits(splits):
    with pytest.raises(AlignmentError, match=r"^piece_row_splits: .* from 0 to 3, got "):
        row_of_item(splits, 3, "piece_row_splits")


def test_rows_of_words_and_pieces_differ():
    with pytest.raises(AlignmentError, match=r"^piece_row_splits: .*got 1\."):
        batch_word_of_piece([(0, 1)], [0, 1], [(0, 1)], [0, 1, 1])


def test_wrong_offsets():
    with pytest.raises(AlignmentError, match=r"^piece_offsets: .*got 3, 2 at position 1\."):
        word_of_piece([(0, 1), (3, 2)], [(0, 1)])
    with pytest.raises(AlignmentError, match=r"^word_offsets: .*got \[1, 3\]\."):
        word_of_piece([(0, 1)], [(0, 1, 2)])


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], []),
        ([-1], [None]),
        ([0], ["O"]),
        ([0, 0], ["B", "E"]),
        ([0, 0, 0, 0], ["B", "M", "M", "E"]),
        ([-1, 0, 1, 1, 3, 3, 3, -1], [None, "O", "B", "E", "B", "M", "E", None]),
        # A piece without word between two pieces of one: still one word.
        ([0, -1, 0, 1], ["B", None, "E", "O"]),
        # A normaliser may reorder pieces; what counts is the word.
        ([1, 0, 1], ["B", "O", "E"]),
    ],
)
def test_positions(words, expected):
    codes = subword_codes(words, [0, len(words)]).tolist()
    assert [None if code == -1 else SUBWORD_POSITIONS[code] for code in codes] == expected


def test_rows_do_not_run_together():
    # Word 0 of three rows, [0 0] [] [0] [0 0 0].
    codes = subword_codes([0, 0, 0, 0, 0, 0], [0, 2, 2, 3, 6])
    assert codes.dtype == np.int8
    assert [SUBWORD_POSITIONS[code] for code in codes] == ["B", "E", "O", "B", "M", "E"]
