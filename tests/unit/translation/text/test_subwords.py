"""Subwords: what they learn, keep and write, and how BPE-dropout cuts them."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from syntaxformer.base.errors import ConfigError
from syntaxformer.translation.source import encode_pieces
from syntaxformer.translation.subwords import BOS, EOS, PAD, UNK, BpeDropout, SubwordConfig, train_subwords

LINES = [
    "the cat sat on the mat.",
    "die Katze saß auf der Matte.",
    "the dogs don't sit, they run!",
    "日 x",
] * 3


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerFast:
    return train_subwords(LINES, SubwordConfig(vocab_size=353))


def _round_trip(tokenizer: PreTrainedTokenizerFast, text: str) -> str:
    (encoding,) = encode_pieces(tokenizer, [text])
    return tokenizer.decode(encoding.ids, skip_special_tokens=True)


def test_ids_of_the_special_pieces(tokenizer):
    names = [PAD, BOS, EOS, UNK, "<0x00>", "<0xFF>"]
    assert tokenizer.convert_tokens_to_ids(names) == [0, 1, 2, 3, 4, 259]
    specials = tokenizer.pad_token_id, tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.unk_token_id
    assert specials == (0, 1, 2, 3)


def test_punctuation_stands_alone(tokenizer):
    (encoding,) = encode_pieces(tokenizer, ["the mat."])
    assert encoding.tokens[-2:] == [".", EOS]


TEXTS = (
    "the cat", "a  b   c", "don't , stop !", "日本語 text", "👩‍👩‍👧 and 🎉", "naïve ﬁ x\u0301", "tab\there",
    "<0x41> is no byte", "x\u00a0y\u200bz\u2028w",
)  # fmt: skip


@pytest.mark.parametrize("text", TEXTS)
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
    tokenizer(text)  # as a Hugging Face one, which switches how it reads specials; ours switches it back
    (encoding,) = encode_pieces(tokenizer, [text])
    assert [piece for piece in encoding.ids if piece < 4] == [2]
    assert _round_trip(tokenizer, text) == text


def test_learning_is_deterministic(tokenizer):
    again = train_subwords(LINES, SubwordConfig(vocab_size=353))
    assert again.get_vocab() == tokenizer.get_vocab()


MERGES = [("a", "b"), ("b", "c"), ("a", "bc"), ("ab", "c")]
NO_LIMIT = 10**6


def _tokenizer(model) -> PreTrainedTokenizerFast:
    backend = Tokenizer(model)
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="?")


@pytest.fixture
def abc() -> PreTrainedTokenizerFast:
    pieces = ["?", "a", "b", "c", "ab", "bc", "abc"]
    ids = {piece: number for number, piece in enumerate(pieces)}
    return _tokenizer(models.BPE(ids, MERGES, unk_token="?"))


@pytest.mark.parametrize(
    ("draws", "pieces"),
    [
        ([1, 1], ["abc"]),  # a+b, ab+c
        ([0, 1, 1], ["abc"]),  # a+b is left out, so b+c and a+bc
        ([1, 0], ["ab", "c"]),  # ab+c is left out, and nothing else is possible
        ([0, 0], ["a", "b", "c"]),  # neither a+b nor b+c
        ([0, 1, 0], ["a", "bc"]),  # b+c stays, a+bc is left out
    ],
)
def test_cuts_by_hand(abc, draws, pieces):
    cut, next_draws = BpeDropout(0.5, 1, NO_LIMIT), iter(draws)
    cut._draw = lambda: next(next_draws)
    (line,) = cut(abc, ["abc"])
    assert abc.convert_ids_to_tokens(line.ids) == pieces
    assert line.offsets == list(pairwise([0, *np.cumsum([*map(len, pieces)])]))
    assert next(next_draws, None) is None


def _by_the_book(word: str, prob: float, draw) -> tuple[str, ...]:
    """Algorithm 1 of Provilkov et al. (2020), word for word."""
    pieces = list(word)
    while True:
        possible = [(MERGES.index(pair), at) for at, pair in enumerate(pairwise(pieces)) if pair in MERGES]
        left = [merge for merge in possible if draw() >= prob]
        if not left:
            return tuple(pieces)
        at = min(left)[1]
        pieces[at : at + 2] = ["".join(pieces[at : at + 2])]


def test_cuts_are_as_frequent_as_those_of_the_papers_algorithm(abc):
    n, draw, cut = 4000, Random(3).random, BpeDropout(0.3, 1, NO_LIMIT)
    expected = Counter(_by_the_book("abcab", 0.3, draw) for _ in range(n))
    ours = Counter(tuple(abc.convert_ids_to_tokens(line.ids)) for line in cut(abc, ["abcab"] * n))
    assert ours.keys() == expected.keys()
    assert len(ours) == 8
    for pieces, count in expected.items():
        assert abs(ours[pieces] - count) < 5 * (2 * max(count, 5)) ** 0.5, pieces


def test_the_text_stays_and_the_seed_decides_the_cuts(tokenizer):
    cuts = {}
    for seed in ((1, 0), (1, 1), (1, 0)):
        ids = [cut.ids for cut in BpeDropout(0.5, seed, NO_LIMIT)(tokenizer, LINES)]
        assert ids == cuts.setdefault(seed, ids)
        assert tokenizer.batch_decode(ids, skip_special_tokens=True) == LINES
    assert cuts[1, 0] != cuts[1, 1]


def test_a_line_that_would_become_too_long_is_cut_as_ever(tokenizer):
    plain = encode_pieces(tokenizer, LINES)
    longest = max(len(line.ids) for line in plain)
    cuts = BpeDropout(0.9, 1, longest)(tokenizer, LINES)
    assert max(len(cut.ids) for cut in cuts) == longest
    assert sum(cut.ids == line.ids for cut, line in zip(cuts, plain, strict=True)) >= 3


def test_pieces_that_are_not_made_by_merges_are_refused():
    unigram = _tokenizer(models.Unigram([("?", 0.0), ("a", -1.0)], 0))
    message = r"^subwords\.dropout: expected pieces of byte-pair encoding, .* got Unigram\. Set subwords\.dropout=0\.$"
    with pytest.raises(ConfigError, match=message):
        BpeDropout(0.1, 1, NO_LIMIT)(unigram, [])
