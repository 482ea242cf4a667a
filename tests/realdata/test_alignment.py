"""Alignment over real treebanks: contractions, multiword tokens, every piece of a learned tokenizer."""

from __future__ import annotations

import numpy as np
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from syntaxformer.syntax import (
    FACTORS,
    WordColumns,
    batch_word_of_piece,
    build_vocabularies,
    encoding_offsets,
    piece_factors,
    word_of_piece,
)
from syntaxformer.trees import read_conllu

pytestmark = pytest.mark.slow


def byte_level(lines: list[str]) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=4_000, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    tokenizer.train_from_iterator(lines, trainer)
    return tokenizer


@pytest.mark.parametrize("name", ["en_ewt-ud-dev", "de_gsd-ud-dev"])
def test_treebank(data_root, name):
    sentences = list(read_conllu(data_root / "ud" / f"{name}.conllu.gz"))
    lines = [sentence.text for sentence in sentences]
    encodings = byte_level(lines).encode_batch(lines)
    offsets, splits = encoding_offsets(encodings)
    columns = WordColumns.from_sentences(sentences)
    owners = batch_word_of_piece(offsets, splits, columns.offsets, columns.row_splits)
    expected = [
        word
        for encoding, sentence in zip(encodings, sentences, strict=True)
        for word in word_of_piece(encoding.offsets, sentence.offsets).tolist()
    ]
    assert owners.tolist() == expected

    # Only words that share their piece with another go without: "zum" = "zu dem", "cannot" in one piece.
    rows = np.repeat(np.arange(len(sentences)), np.diff(splits))[owners >= 0]
    owned = columns.row_splits[rows] + owners[owners >= 0]
    left_out = np.setdiff1d(np.arange(columns.n_words), owned)
    assert len(left_out) < 0.04 * columns.n_words
    for word in left_out.tolist():
        row = int(np.searchsorted(columns.row_splits, word, side="right")) - 1
        pieces = offsets[splits[row] : splits[row + 1]]
        start, end = columns.offsets[word]
        covering = (np.minimum(pieces[:, 1], end) > np.maximum(pieces[:, 0], start)).nonzero()[0]
        assert len(covering)
        assert (owners[splits[row] + covering] >= 0).all()

    vocabularies = build_vocabularies([columns], list(FACTORS))
    for ids in piece_factors(columns, owners, splits, vocabularies).T:
        assert np.array_equal(ids == 0, owners == -1)
        assert not (ids == 1).any()
