from __future__ import annotations

import numpy as np
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from syntaxformer.syntax import batch_word_of_piece, encoding_offsets, segment_offsets


@pytest.fixture(scope="module")
def letters() -> Tokenizer:
    """Every letter is a piece; [CLS] a [SEP] b [SEP]."""
    vocabulary = {"[PAD]": 0, "[CLS]": 1, "[SEP]": 2, "[UNK]": 3, "a": 4, "b": 5, "c": 6}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[], unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B [SEP]", special_tokens=[("[CLS]", 1), ("[SEP]", 2)]
    )
    return tokenizer


@pytest.fixture(scope="module")
def fast(letters) -> PreTrainedTokenizerFast:
    return PreTrainedTokenizerFast(
        tokenizer_object=letters, pad_token="[PAD]", cls_token="[CLS]", sep_token="[SEP]", unk_token="[UNK]"
    )


EXPECTED = [(0, 0), (0, 1), (1, 2), (3, 4), (0, 0), (0, 0), (0, 0), (0, 0), (0, 1), (0, 0)]
SPLITS = [0, 5, 7, 10]
LINES = ["ab c", "", "a"]


@pytest.mark.parametrize("kind", ["tokenizers", "transformers"])
def test_encodings(letters, fast, kind):
    offsets, splits = encoding_offsets(letters.encode_batch(LINES) if kind == "tokenizers" else fast(LINES))
    assert (offsets.dtype, splits.dtype) == (np.int32, np.int64)
    assert [tuple(pair) for pair in offsets.tolist()] == EXPECTED
    assert splits.tolist() == SPLITS
    offsets, splits = encoding_offsets([])
    assert (offsets.shape, splits.tolist()) == ((0, 2), [0])


@pytest.mark.parametrize("side", ["right", "left"])
def test_segments_of_pairs_with_padding(fast, side):
    fast.padding_side = side
    batch = fast(["ab", "c"], ["c a", "abc"], padding="max_length", max_length=9)
    offsets, splits = segment_offsets(batch)
    assert len(offsets) == 18
    # Words of "ab", "c a", "c", "abc".
    words = [(0, 2), (0, 1), (2, 3), (0, 1), (0, 3)]
    found = batch_word_of_piece(offsets, splits, words, [0, 1, 3, 4, 5]).reshape(2, 9).tolist()
    pads = [[-1, -1], [-1, -1]]
    pieces = [[-1, 0, 0, -1, 0, 1, -1], [-1, 0, -1, 0, 0, 0, -1]]
    both = zip(pieces, pads, strict=True)
    assert found == ([p + pad for p, pad in both] if side == "right" else [pad + p for p, pad in both])


def test_segments_of_single_sentences_have_an_empty_second(letters):
    _, splits = segment_offsets(letters.encode_batch(["ab", "c"]))
    assert splits.tolist() == [0, 4, 4, 7, 7]
