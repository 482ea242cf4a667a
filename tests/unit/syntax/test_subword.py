from __future__ import annotations

import numpy as np
import pytest

from syntaxformer.base.errors import AlignmentError
from syntaxformer.syntax import SUBWORD_POSITIONS, subword_codes


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


def test_wrong_rows():
    with pytest.raises(
        AlignmentError, match=r"^piece_row_splits: expected ascending positions from 0 to 1, got \[0, 2\]\.$"
    ):
        subword_codes([0], [0, 2])
