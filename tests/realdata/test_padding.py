"""Padding on Multi30k at the budget of its recipe."""

from __future__ import annotations

import numpy as np
import pytest

from syntaxformer.translation.batches import TokenBudgetBatches
from syntaxformer.translation.corpora import CorpusConfig, read_split
from syntaxformer.translation.prepare import PairEncoding, get_tokenizers
from syntaxformer.translation.source import SourceEncoder
from syntaxformer.translation.subwords import SubwordConfig

pytestmark = pytest.mark.slow


def _padded_share(pairs, batches) -> float:
    """Padded cells of both sides together, counted in a plain loop."""
    cells = pieces = 0
    for rows in batches:
        for lengths in (pairs.src.lengths[rows], pairs.tgt.lengths[rows]):
            cells += len(rows) * int(lengths.max())
            pieces += int(lengths.sum())
    return 1 - pieces / cells


def test_under_five_percent_of_all_cells_are_padding(data_root):
    corpus = CorpusConfig(dir=data_root / "multi30k", dev="val", tabs="space")
    text = read_split(corpus, "train")
    encoder = SourceEncoder(get_tokenizers(text, SubwordConfig(vocab_size=8000), corpus)[0])
    pairs = PairEncoding(text, encoder, None, 128).in_memory()
    assert len(pairs) == len(text) == 29_000
    batches = TokenBudgetBatches(pairs.src.lengths, pairs.tgt.lengths, 2048, seed=1)
    for epoch in (0, 7):
        batches.set_epoch(epoch)
        assert _padded_share(pairs, batches) < 0.05
    widest = max(len(rows) * int(pairs.tgt.lengths[rows].max()) for rows in batches)
    assert widest <= 2048
    assert np.unique(np.concatenate(list(batches))).size == 29_000
