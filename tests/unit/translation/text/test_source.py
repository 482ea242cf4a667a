"""Pieces and their factors, against factors written down by hand."""

from __future__ import annotations

import numpy as np
import pytest

from syntaxformer.base.errors import AlignmentError, ConfigError
from syntaxformer.syntax import FactorVocabulary, UnseenFactorValueWarning, WordColumns, build_vocabularies
from syntaxformer.translation.source import SourceEncoder
from syntaxformer.translation.subwords import SubwordConfig, train_subwords

FACTORS = ("pos", "case", "subword")


@pytest.fixture(scope="module")
def tokenizer():
    return train_subwords(["the cat sat .", "The cat"] * 5, SubwordConfig(vocab_size=301))


def _columns(annotator, lines):
    return WordColumns.from_sentences(annotator.annotate(lines))


def _encoder(tokenizer, annotator, lines, factors=FACTORS):
    return SourceEncoder(tokenizer, build_vocabularies([_columns(annotator, lines)], factors))


def test_factors_of_each_piece_by_hand(tokenizer, annotator):
    lines = ["The cats purrs", "", "cat"]
    encoder = _encoder(tokenizer, annotator, lines)
    encoded = encoder.encode(lines, _columns(annotator, lines))
    pieces = tokenizer.convert_ids_to_tokens(encoded.pieces.tolist())
    values = [
        encoder.vocabularies[name].decode(encoded.factors[:, column]) for column, name in enumerate(FACTORS)
    ]
    no_word = ("<none>", "<none>", "<none>")
    verb = ("VERB", "0")
    assert list(zip(pieces, *values, strict=True)) == [
        ("▁The", "DET", "1", "O"),
        ("▁cat", "NOUN", "0", "B"),
        ("s", "NOUN", "0", "E"),
        ("▁", *no_word),  # the space alone: no letter of any word
        ("<0x70>", *verb, "B"),  # "p" was not in the text that the subwords were learned on
        ("<0x75>", *verb, "M"),
        ("<0x72>", *verb, "M"),
        ("<0x72>", *verb, "M"),
        ("s", *verb, "E"),
        ("</s>", *no_word),
        ("</s>", *no_word),
        ("▁cat", "NOUN", "0", "O"),
        ("</s>", *no_word),
    ]
    assert encoded.lengths.tolist() == [10, 1, 2]
    assert len(encoded) == 3
    assert encoded.factors.dtype == encoded.pieces.dtype == np.int32


def test_unseen_values_are_counted_in_one_warning(tokenizer, annotator):
    encoder = SourceEncoder(tokenizer, {"deprel": FactorVocabulary("deprel", ("root",))})
    lines = ["the cat sat .", "cats purrs"]
    encoded = encoder.encode(lines, _columns(annotator, lines))
    assert 1 in encoded.factors  # <unk>
    message = r"^factor deprel: 4 values rare or unseen in training read as <unk>: 'dep' 4x$"
    with pytest.warns(UnseenFactorValueWarning, match=message):
        encoder.unseen.warn()


def test_words_of_other_lines_are_refused(tokenizer, annotator):
    encoder = _encoder(tokenizer, annotator, ["the cat"])
    with pytest.raises(AlignmentError):
        encoder.encode(["the cat", "sat"], _columns(annotator, ["the cat"]))


def test_an_annotation_that_is_not_there_is_named(tokenizer, annotator):
    from dataclasses import replace

    encoder = _encoder(tokenizer, annotator, ["the cat"])
    bare = replace(_columns(annotator, ["the cat"]), upos=None)
    with pytest.raises(ConfigError, match="factor 'pos': expected upos, got none"):
        encoder.encode(["the cat"], bare)
