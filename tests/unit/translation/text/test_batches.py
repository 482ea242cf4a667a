"""Batches: rows by a budget of target pieces, and their padded tensors."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from syntaxformer.translation.batches import EncodedPairs, TokenBudgetBatches, TranslationCollator
from syntaxformer.translation.source import EncodedText, source_batch

N_ROWS, BUDGET = 397, 101


def _lengths(seed: int = 3) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    return random.integers(1, 41, N_ROWS), random.integers(1, 43, N_ROWS)


def _epoch(batches: TokenBudgetBatches, epoch: int) -> list[list[int]]:
    batches.set_epoch(epoch)
    return list(batches)


def test_each_epoch_has_every_row_once_in_batches_that_fit_the_budget():
    src, tgt = _lengths()
    batches = TokenBudgetBatches(src, tgt, BUDGET, seed=7)
    for epoch in range(3):
        rows = _epoch(batches, epoch)
        assert sorted(row for batch in rows for row in batch) == list(range(N_ROWS))
        assert all(batch and len(batch) * tgt[batch].max() <= BUDGET for batch in rows)


@pytest.mark.parametrize(
    ("src", "tgt", "budget", "batches"),
    [
        # 2+2 fill 4 of 7; a third row makes 3 × 3 = 9. 3+3 fill 6; a third makes 3 × 7. The last stands alone.
        ([1, 1, 1, 1, 1], [2, 2, 3, 3, 7], 7, [[0, 1], [2, 3], [4]]),
        # Equal target lengths are ordered by source length, so that both sides are padded little.
        ([9, 1, 8, 2, 7, 3], [5] * 6, 15, [[1, 3, 5], [4, 2, 0]]),
    ],
)
def test_batches_are_as_full_as_the_next_row_allows(src, tgt, budget, batches):
    assert list(TokenBudgetBatches(np.array(src), np.array(tgt), budget, shuffle=False)) == batches


def test_order_comes_from_seed_and_epoch_alone():
    first = TokenBudgetBatches(*_lengths(), BUDGET, seed=7)
    second = TokenBudgetBatches(*_lengths(), BUDGET, seed=7)
    _epoch(second, 11)  # what was drawn before does not matter
    assert _epoch(first, 2) == _epoch(second, 2)
    assert _epoch(first, 2) != _epoch(first, 3)
    assert _epoch(first, 2) != _epoch(TokenBudgetBatches(*_lengths(), BUDGET, seed=8), 2)


def test_processes_share_the_batches_of_each_update():
    settings = *_lengths(), BUDGET, 7, True, 6
    alone = TokenBudgetBatches(*settings)
    team = [TokenBudgetBatches(*settings, rank=rank, world=3) for rank in range(3)]
    whole, shares = _epoch(alone, 4), [_epoch(process, 4) for process in team]
    assert [len(share) for share in shares] == [len(process) for process in team] == [len(whole) // 3] * 3
    for update in range(len(whole) // 6):
        together = [batch for share in shares for batch in share[2 * update : 2 * update + 2]]
        assert sorted(together) == sorted(whole[6 * update : 6 * update + 6])


def test_last_update_is_filled_with_the_first_batches_of_the_epoch():
    plain = TokenBudgetBatches(*_lengths(), BUDGET, seed=7)
    grouped = TokenBudgetBatches(*_lengths(), BUDGET, seed=7, per_update=len(plain) - 1)
    assert _epoch(grouped, 0) == (2 * _epoch(plain, 0))[: 2 * (len(plain) - 1)]


def _text(rows: list[list[int]], n_factors: int = 0) -> EncodedText:
    pieces = np.array([piece for row in rows for piece in row], np.int32)
    splits = np.cumsum([0, *map(len, rows)])
    return EncodedText(pieces, splits, pieces[:, None] * 100 + np.arange(n_factors, dtype=np.int32))


def test_rows_are_padded_on_the_right():
    src = _text([[5, 6, 2], [7, 2], [8, 9, 10, 11, 2]], 2)
    pairs = EncodedPairs(src, _text([[20, 2], [21, 22, 23, 2], [2]]))
    batch = TranslationCollator(pairs, pad_id=0)([1, 0])
    assert batch["input_ids"].tolist() == [[7, 2, 0], [5, 6, 2]]
    assert batch["attention_mask"].tolist() == [[1, 1, 0], [1, 1, 1]]
    assert batch["labels"].tolist() == [[21, 22, 23, 2], [20, 2, -100, -100]]
    assert batch["factor_ids"].tolist() == [
        [[700, 701], [200, 201], [0, 0]],
        [[500, 501], [600, 601], [200, 201]],
    ]
    assert {tensor.dtype for tensor in batch.values()} == {torch.int64}
    # No mask where nothing is padded, and no factors where there are none.
    assert set(source_batch(_text([[5, 2], [6, 2]]), [0, 1], 0)) == {"input_ids"}


def test_what_does_not_fit_is_refused():
    with pytest.raises(ValueError, match=r"^max_batch_tokens: expected at least the longest target, 13"):
        TokenBudgetBatches(np.array([2]), np.array([13]), 11)
    with pytest.raises(ValueError, match=r"^pairs: expected as many sources as targets, got 1 and 2\."):
        EncodedPairs(_text([[5, 2]]), _text([[7, 2], [8, 2]]))
