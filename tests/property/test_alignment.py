"""Alignment over random Unicode text and every kind of tokenizer, each trained here on a few sentences."""

from __future__ import annotations

import re
from functools import cache
from itertools import pairwise
from unicodedata import combining

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers

from syntaxformer.syntax import (
    NO_WORD,
    SUBWORD_POSITIONS,
    batch_word_of_piece,
    encoding_offsets,
    subword_codes,
    word_of_piece,
)


def word_of_piece_reference(pieces, words) -> list[int]:
    """The rule in literal loops: the word that a piece covers most, of equal ones the first in the text."""
    owners = []
    for piece in pieces:
        most = max((overlap(piece, word) for word in words), default=0)
        best = [index for index, word in enumerate(words) if overlap(piece, word) == most > 0]
        owners.append(min(best, key=lambda index: words[index][0], default=NO_WORD))
    return owners


TRAINING_TEXT = [
    "A man in a blue shirt is standing on a ladder, and the dog of the man sleeps.",
    "Der Mann im blauen Hemd geht zum Haus; sie sagt: „Das stimmt nicht!“",
    "I don't think the U.S. won't, it's 3.14 or 1,000 o'clock. New-York's naïve café",
    "日本語です。 Привет, мир! שלום עולם 😀😀",
] * 3


BYTES = ["<unk>", *(f"<0x{number:02X}>" for number in range(256))]
BYTE_LEVEL, METASPACE = pre_tokenizers.ByteLevel(add_prefix_space=False), pre_tokenizers.Metaspace()
SPACED_BPE = pre_tokenizers.Sequence([METASPACE, pre_tokenizers.Punctuation("isolated")])
OVER_SPACES = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
NAMES = (
    "bpe",
    "bpe_over_spaces",  # as Llama's: no pre-tokenizer, so that a piece may hold several words
    "byte_level_bpe",
    "byte_level_trimmed",  # as RoBERTa's: the offsets leave out the leading space
    "unigram",
    "unigram_nfkc",
    "word_piece",
)


@cache
def tokenizer_named(name: str) -> Tokenizer:
    """A tokenizer of a kind, trained on a few sentences."""
    if name.startswith("bpe"):
        tokenizer = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True))
        trainer = trainers.BpeTrainer(vocab_size=500, special_tokens=BYTES, show_progress=False)
        if name == "bpe":
            tokenizer.pre_tokenizer = SPACED_BPE
        else:
            tokenizer.normalizer = OVER_SPACES
    elif name.startswith("byte"):
        tokenizer, alphabet = Tokenizer(models.BPE()), pre_tokenizers.ByteLevel.alphabet()
        tokenizer.pre_tokenizer = BYTE_LEVEL
        trainer = trainers.BpeTrainer(vocab_size=400, initial_alphabet=alphabet, show_progress=False)
    elif name.startswith("unigram"):
        tokenizer, special = Tokenizer(models.Unigram()), {"unk_token": "<unk>", "special_tokens": ["<unk>"]}
        tokenizer.pre_tokenizer = METASPACE
        trainer = trainers.UnigramTrainer(vocab_size=150, show_progress=False, **special)
    else:
        tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
        tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
        tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        trainer = trainers.WordPieceTrainer(vocab_size=200, special_tokens=["[UNK]"], show_progress=False)
    tokenizer.train_from_iterator(TRAINING_TEXT, trainer)
    if name == "byte_level_trimmed":
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
        tokenizer.post_processor = processors.ByteLevel(trim_offsets=True)
    if name == "unigram_nfkc":
        tokenizer.normalizer = normalizers.NFKC()
    return tokenizer


ODD = (
    "zumDon't.,'\"-—„“ \t\n\u00a0\u3000\u200b\u200d\u00ad\u0301\u0308\ufeff\x00\x7féßİıﬁ½ℌ"
    "日本語です가각Åשלעםمر👨‍👩‍👧🏽🇩🇪😀\U000e0041▁Ġ#@￨|<>"
)
LINES = st.one_of(
    st.text(alphabet=ODD, max_size=40),
    st.text(max_size=30),
    st.lists(st.sampled_from([word for line in TRAINING_TEXT for word in line.split()]), max_size=9).map(
        " ".join
    ),
)


@st.composite
def lines_and_words(draw) -> tuple[str, list[tuple[int, int]]]:
    """A line and words of it: the whitespace words, some cut further, some doubled (as in zum = zu dem)."""
    text = draw(LINES)
    words = []
    for start, end in (match.span() for match in re.finditer(r"\S+", text)):
        cuts = draw(st.sets(st.integers(start, end), max_size=2)) if draw(st.booleans()) else set()
        bounds = sorted({start, end, *cuts})
        for cut in pairwise(bounds):
            words += [cut] * (2 if draw(st.integers(0, 9)) == 0 else 1)
    return text, words


def overlap(first: tuple[int, int], second: tuple[int, int]) -> int:
    return max(0, min(first[1], second[1]) - max(first[0], second[0]))


def is_kept(tokenizer: Tokenizer, word: str) -> bool:
    """Whether the tokenizer has anything to show for a word: its normaliser leaves a visible character."""
    if tokenizer.normalizer is not None:
        word = tokenizer.normalizer.normalize_str(word)
    return bool(word.strip())


each_tokenizer = pytest.mark.parametrize("name", NAMES)


@pytest.mark.slow
@each_tokenizer
@settings(max_examples=150, deadline=None)
@given(sample=lines_and_words())
def test_words_and_pieces(name, sample):
    text, words = sample
    tokenizer = tokenizer_named(name)
    pieces = tokenizer.encode(text).offsets
    owners = word_of_piece(pieces, words).tolist()
    assert owners == word_of_piece_reference(pieces, words)

    # Pieces cover each word that the tokenizer kept; if it owns none, all that cover it went to others.
    for index, (start, end) in enumerate(words):
        covering = [position for position, piece in enumerate(pieces) if overlap(piece, (start, end))]
        is_composed = combining(text[start]) > 0  # a normaliser may join an accent to the character before it
        assert covering or is_composed or not is_kept(tokenizer, text[start:end])
        if index not in owners:
            assert all(owners[position] not in (NO_WORD, index) for position in covering)


@each_tokenizer
@settings(max_examples=100, deadline=None)
@given(sample=lines_and_words())
def test_subword_positions_are_consistent(name, sample):
    text, words = sample
    owners = word_of_piece(tokenizer_named(name).encode(text).offsets, words).tolist()
    codes = subword_codes(owners, [0, len(owners)]).tolist()
    positions = [None if code == -1 else SUBWORD_POSITIONS[code] for code in codes]
    assert [position is None for position in positions] == [owner == NO_WORD for owner in owners]
    for index in set(owners) - {NO_WORD}:
        of_word = [position for position, owner in enumerate(owners) if owner == index]
        letters = "".join(str(positions[position]) for position in of_word)
        assert letters == ("O" if len(letters) == 1 else "B" + "M" * (len(letters) - 2) + "E")


@each_tokenizer
@settings(max_examples=60, deadline=None)
@given(samples=st.lists(lines_and_words(), max_size=5))
def test_a_batch_equals_its_lines(name, samples):
    encodings = tokenizer_named(name).encode_batch([text for text, _ in samples])
    offsets, splits = encoding_offsets(encodings)
    words = [pair for _, row in samples for pair in row]
    word_splits = np.cumsum([0, *(len(row) for _, row in samples)])
    owners = batch_word_of_piece(offsets, splits, words, word_splits).tolist()
    alone = [
        word_of_piece_reference(encoding.offsets, row)
        for encoding, (_, row) in zip(encodings, samples, strict=True)
    ]
    assert owners == [word for row in alone for word in row]


spans = st.tuples(st.integers(0, 30), st.integers(0, 12)).map(lambda span: (span[0], span[0] + span[1]))


@pytest.mark.slow
@settings(max_examples=500, deadline=None)
@given(pieces=st.lists(spans, max_size=20), words=st.lists(spans, max_size=20))
def test_any_spans_at_all(pieces, words):
    """Neither pieces nor words in order, overlapping and empty at will."""
    assert word_of_piece(pieces, words).tolist() == word_of_piece_reference(pieces, words)
