"""Padding by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from syntaxformer.translation.batches import EncodedPairs, TranslationCollator
from syntaxformer.translation.source import EncodedText, source_batch


def _text(rows: list[list[int]], n_factors: int = 0) -> EncodedText:
    pieces = np.array([piece for row in rows for piece in row], np.int32)
    splits = np.cumsum([0, *map(len, rows)])
    factors = np.stack([pieces * 100 + column for column in range(n_factors)], 1) if n_factors else None
    return EncodedText(pieces, splits, np.zeros((len(pieces), 0), np.int32) if factors is None else factors)


def test_rows_are_padded_on_the_right():
    pairs = EncodedPairs(
        _text([[5, 6, 2], [7, 2], [8, 9, 10, 11, 2]], 2), _text([[20, 2], [21, 22, 23, 2], [2]])
    )
    batch = TranslationCollator(pairs, pad_id=0)([1, 0])
    assert batch["input_ids"].tolist() == [[7, 2, 0], [5, 6, 2]]
    assert batch["attention_mask"].tolist() == [[1, 1, 0], [1, 1, 1]]
    assert batch["labels"].tolist() == [[21, 22, 23, 2], [20, 2, -100, -100]]
    assert batch["factor_ids"].tolist() == [
        [[700, 701], [200, 201], [0, 0]],
        [[500, 501], [600, 601], [200, 201]],
    ]
    assert {tensor.dtype for tensor in batch.values()} == {torch.int64}


def test_no_mask_where_nothing_is_padded_and_no_factors_where_there_are_none():
    assert set(source_batch(_text([[5, 2], [6, 2]]), [0, 1], 0)) == {"input_ids"}


def test_sides_of_different_length_are_refused():
    with pytest.raises(ValueError, match=r"^pairs: expected as many sources as targets, got 1 and 2\."):
        EncodedPairs(_text([[5, 2]]), _text([[7, 2], [8, 2]]))
