"""Vectors out of a tiny random BERT, and their principal components."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

from syntaxformer.translation.pretrained_tables import (
    PieceVectors,
    contextual_vectors,
    input_vectors,
    reduce_width,
)

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "the", "cat", "sat", "never"]


@pytest.fixture(scope="module")
def tokenizer():
    backend = Tokenizer(
        models.WordPiece({word: place for place, word in enumerate(WORDS)}, unk_token="[UNK]")
    )
    backend.normalizer = normalizers.Lowercase()
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    backend.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    return PreTrainedTokenizerFast(tokenizer_object=backend, pad_token="[PAD]", unk_token="[UNK]")


@pytest.fixture(scope="module")
def bert():
    torch.manual_seed(7)
    config = BertConfig(
        vocab_size=11, hidden_size=10, num_hidden_layers=1, num_attention_heads=2, intermediate_size=13,
        max_position_embeddings=17,
    )  # fmt: skip
    return BertModel(config).eval()


def test_input_vectors_are_the_rows_of_the_tokenizer(bert):
    vectors = input_vectors(bert, 8)
    np.testing.assert_array_equal(vectors.values, bert.embeddings.word_embeddings.weight[:8].detach().numpy())
    assert vectors.known.all()


def test_another_tokenizer_is_refused(bert):
    with pytest.raises(ValueError, match="expected a row for each of the tokenizer's"):
        input_vectors(bert, 13)


def test_contextual_vectors_are_means_over_places_whatever_the_batch(bert, tokenizer):
    lines = ["the cat sat", "The cat", "cat " * 29]
    vectors = contextual_vectors(bert, tokenizer, lines)
    sums, counts = np.zeros((8, 10)), np.zeros(8)
    for line in lines:
        pieces = tokenizer(line)["input_ids"]
        pieces = pieces if len(pieces) <= 17 else [*pieces[:16], pieces[-1]]
        with torch.inference_mode():
            states = bert(torch.tensor([pieces])).last_hidden_state[0].numpy()
        for piece, state in zip(pieces, states, strict=True):
            sums[piece] += state
            counts[piece] += 1
    assert vectors.known.tolist() == (counts > 0).tolist()
    assert vectors.n_cut == 1
    assert not vectors.known[WORDS.index("never")]
    np.testing.assert_allclose(
        vectors.values[counts > 0], sums[counts > 0] / counts[counts > 0, None], atol=1e-5
    )


def test_components_keep_what_varies():
    random = np.random.default_rng(5)
    flat = random.normal(size=(31, 2)) @ random.normal(size=(2, 7)) + 3
    known = np.arange(31) != 4
    reduced = reduce_width(PieceVectors(flat.astype(np.float32), known), 2)
    assert reduced.values.shape == (31, 2)
    assert reduced.explained_variance == pytest.approx(1.0, abs=1e-6)
    assert not reduced.values[4].any()
    centred = flat[known] - flat[known].mean(0)  # distances are kept, as nothing was lost
    np.testing.assert_allclose(
        reduced.values[known] @ reduced.values[known].T, centred @ centred.T, atol=1e-3
    )
    assert reduce_width(PieceVectors(flat, known), 1).explained_variance < 1
    same = PieceVectors(flat, known)
    assert reduce_width(same, 7) is same


def test_more_components_than_there_are_is_refused():
    vectors = PieceVectors(np.ones((3, 7), np.float32), np.array([True, True, False]))
    with pytest.raises(ValueError, match=r"^expected at most 7 columns, the encoder's own width, got 8\.$"):
        reduce_width(vectors, 8)
    with pytest.raises(ValueError, match=r"^expected at most 2 columns, the number of vectors, got 3\.$"):
        reduce_width(vectors, 3)
