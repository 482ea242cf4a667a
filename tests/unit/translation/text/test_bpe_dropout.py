"""BPE-dropout: cuts by hand, their frequencies, and factors that stay with their words."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from random import Random

import numpy as np
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from syntaxformer.base.errors import ConfigError
from syntaxformer.translation.source import encode_pieces
from syntaxformer.translation.subwords import BpeDropout, SubwordConfig, train_subwords

MERGES = [("a", "b"), ("b", "c"), ("a", "bc"), ("ab", "c")]
LINES = [
    "the cat sat on the mat.",
    "die Katze saß auf der Matte.",
    "the dogs don't sit, they run!",
    "日 x",
] * 3
NO_LIMIT = 10**6


def _tokenizer(model) -> PreTrainedTokenizerFast:
    backend = Tokenizer(model)
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="?")


@pytest.fixture
def abc() -> PreTrainedTokenizerFast:
    pieces = ["?", "a", "b", "c", "ab", "bc", "abc"]
    return _tokenizer(models.BPE({one: place for place, one in enumerate(pieces)}, MERGES, unk_token="?"))


@pytest.fixture(scope="module")
def learned() -> PreTrainedTokenizerFast:
    return train_subwords(LINES, SubwordConfig(vocab_size=353))


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
    cut, given = BpeDropout(0.5, 1, NO_LIMIT), iter(draws)
    cut._draw = lambda: next(given)
    (found,) = cut(abc, ["abc"])
    assert abc.convert_ids_to_tokens(found.ids) == pieces
    ends = np.cumsum([len(one) for one in pieces]).tolist()
    assert found.offsets == list(zip([0, *ends[:-1]], ends, strict=True))
    assert next(given, None) is None


def _by_the_book(word: str, prob: float, draw) -> tuple[str, ...]:
    """Algorithm 1 of Provilkov et al. (2020), word for word."""
    pieces = list(word)
    while True:
        found = [(MERGES.index(pair), at) for at, pair in enumerate(pairwise(pieces)) if pair in MERGES]
        left = [one for one in found if draw() >= prob]
        if not left:
            return tuple(pieces)
        at = min(left)[1]
        pieces[at : at + 2] = ["".join(pieces[at : at + 2])]


def test_cuts_are_as_frequent_as_those_of_the_papers_algorithm(abc):
    n, draw, cut = 4000, Random(3).random, BpeDropout(0.3, 1, NO_LIMIT)
    wanted = Counter(_by_the_book("abcab", 0.3, draw) for _ in range(n))
    found = Counter(tuple(abc.convert_ids_to_tokens(one.ids)) for one in cut(abc, ["abcab"] * n))
    assert found.keys() == wanted.keys()
    assert len(found) == 8
    for one, count in wanted.items():
        assert abs(found[one] - count) < 5 * (2 * max(count, 5)) ** 0.5, one


def test_the_text_stays_and_the_seed_decides_the_cuts(learned):
    cuts = {}
    for seed in ((1, 0), (1, 1), (1, 0)):
        found = [one.ids for one in BpeDropout(0.5, seed, NO_LIMIT)(learned, LINES)]
        assert found == cuts.setdefault(seed, found)
        assert learned.batch_decode(found, skip_special_tokens=True) == LINES
    assert cuts[1, 0] != cuts[1, 1]


def test_a_line_that_would_become_too_long_is_cut_as_ever(learned):
    plain = encode_pieces(learned, LINES)
    longest = max(len(one.ids) for one in plain)
    found = BpeDropout(0.9, 1, longest)(learned, LINES)
    assert max(len(one.ids) for one in found) == longest
    assert sum(one.ids == other.ids for one, other in zip(found, plain, strict=True)) >= 3


def test_pieces_that_are_not_made_by_merges_are_refused():
    unigram = _tokenizer(models.Unigram([("?", 0.0), ("a", -1.0)], 0))
    message = r"^subwords\.dropout: expected pieces of byte-pair encoding, .* got Unigram\. Set subwords\.dropout=0\.$"
    with pytest.raises(ConfigError, match=message):
        BpeDropout(0.1, 1, NO_LIMIT)(unigram, [])
