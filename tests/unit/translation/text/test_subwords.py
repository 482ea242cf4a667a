"""Subwords: text survives, bytes for what was never seen, special pieces only where we put them."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerFast

from syntaxformer.translation.source import encode_pieces
from syntaxformer.translation.subwords import BOS, EOS, PAD, UNK, SubwordConfig, train_subwords

LINES = ["the cat sat on the mat.", "die Katze saß auf der Matte.", "the dogs don't sit, they run!"] * 3


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerFast:
    return train_subwords(LINES, SubwordConfig(vocab_size=353))


def _round_trip(tokenizer: PreTrainedTokenizerFast, text: str) -> str:
    (encoding,) = encode_pieces(tokenizer, [text])
    return tokenizer.decode(encoding.ids, skip_special_tokens=True)


def test_ids_of_the_special_pieces(tokenizer):
    assert tokenizer.convert_tokens_to_ids([PAD, BOS, EOS, UNK]) == [0, 1, 2, 3]
    assert (tokenizer.pad_token_id, tokenizer.bos_token_id) == (0, 1)
    assert (tokenizer.eos_token_id, tokenizer.unk_token_id) == (2, 3)
    assert tokenizer.convert_tokens_to_ids("<0x00>") == 4
    assert tokenizer.convert_tokens_to_ids("<0xFF>") == 259


def test_punctuation_stands_alone(tokenizer):
    (encoding,) = encode_pieces(tokenizer, ["the mat."])
    assert encoding.tokens[-2:] == [".", EOS]


@pytest.mark.parametrize(
    "text",
    [
        "the cat",
        "a  b   c",
        "don't , stop !",
        "日本語 text",
        "👩‍👩‍👧 and 🎉",
        "naïve ﬁ x\u0301",
        "<0x41> is no byte",
        "tab\there",
        "x\u00a0y\u200bz\u2028w",
    ],
)
def test_round_trip(tokenizer, text):
    assert _round_trip(tokenizer, text) == text


@settings(max_examples=200, deadline=None)
@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="▁"), max_size=31))
def test_round_trip_of_any_text(tokenizer, text):
    assert _round_trip(tokenizer, text).strip(" ") == text.strip(" ")


def test_the_unseen_is_bytes_and_never_unknown(tokenizer):
    (encoding,) = encode_pieces(tokenizer, ["🎉"])
    assert encoding.tokens == ["▁", "<0xF0>", "<0x9F>", "<0x8E>", "<0x89>", EOS]
    # All bytes of a character stand at its place in the text.
    assert encoding.offsets[1:5] == [(0, 1)] * 4


@pytest.mark.parametrize("special", [PAD, BOS, EOS, UNK])
def test_a_special_piece_in_the_text_is_text(tokenizer, special):
    text = f"the {special} cat"
    (encoding,) = encode_pieces(tokenizer, [text])
    assert [piece for piece in encoding.ids if piece < 4] == [2]
    assert _round_trip(tokenizer, text) == text


def test_what_a_special_piece_is_does_not_depend_on_earlier_use(tokenizer):
    """Calling the tokenizer as a Hugging Face one switches how it reads specials; ours switches it back."""
    tokenizer("x </s>")
    assert [piece for piece in encode_pieces(tokenizer, ["x </s>"])[0].ids if piece < 4] == [2]


def test_learning_is_deterministic(tokenizer):
    again = train_subwords(LINES, SubwordConfig(vocab_size=353))
    assert again.get_vocab() == tokenizer.get_vocab()
