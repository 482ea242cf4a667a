from __future__ import annotations

import re

import pytest

from syntaxformer.base.errors import ConfigError
from syntaxformer.syntax import (
    FACTORS,
    FactorVocabulary,
    UnseenValues,
    WordColumns,
    batch_word_of_piece,
    build_vocabularies,
    check_factors,
    piece_factors,
)
from syntaxformer.trees import Sentence

# "Don't sleep" and "zum", as an annotator reads them.
DONT = Sentence(
    "Don't sleep",
    ("Do", "n't", "sleep"),
    ((0, 2), (2, 5), (6, 11)),
    upos=("AUX", "PART", "VERB"),
    governors=(2, 2, -1),
    deprels=("aux", "advmod", "root"),
    lemmas=("do", "not", "sleep"),
    feats=("Mood=Ind", "_", "_"),
)
ZUM = Sentence(
    "zum",
    ("zu", "dem"),
    ((0, 3), (0, 3)),
    upos=("ADP", "DET"),
    governors=(-1, 0),
    deprels=("root", "det"),
    lemmas=("zu", "der"),
    feats=("_", "Case=Dat"),
)
COLUMNS = WordColumns.from_sentences([DONT, ZUM], {"tone": [["low", "low", "high"], ["low", "mid"]]})
# Pieces: <s> Don ' t ▁sl eep </s> | zum </s>
PIECES = [(0, 0), (0, 3), (3, 4), (4, 5), (5, 8), (8, 11), (0, 0), (0, 3), (0, 0)]
SPLITS = [0, 7, 9]
OWNERS = batch_word_of_piece(PIECES, SPLITS, COLUMNS.offsets, COLUMNS.row_splits)
EXPECTED = {
    # "Don" has two characters of "Do" and one of "n't".
    "pos": ["<none>", "AUX", "PART", "PART", "VERB", "VERB", "<none>", "ADP", "<none>"],
    "case": ["<none>", "1", "0", "0", "0", "0", "<none>", "0", "<none>"],
    "subword": ["<none>", "O", "B", "E", "B", "E", "<none>", "O", "<none>"],
    "predicate": ["<none>", "0", "0", "0", "1", "1", "<none>", "1", "<none>"],
    "deprel": ["<none>", "aux", "advmod", "advmod", "root", "root", "<none>", "root", "<none>"],
    "depth": ["<none>", "1", "1", "1", "0", "0", "<none>", "0", "<none>"],
    "lemma": ["<none>", "do", "not", "not", "sleep", "sleep", "<none>", "zu", "<none>"],
    "feats": ["<none>", "Mood=Ind", "_", "_", "_", "_", "<none>", "_", "<none>"],
    "tone": ["<none>", "low", "low", "low", "high", "high", "<none>", "low", "<none>"],
}


def test_every_factor():
    vocabularies = build_vocabularies([COLUMNS], list(EXPECTED))
    ids = piece_factors(COLUMNS, OWNERS, SPLITS, vocabularies)
    assert {name: vocabularies[name].decode(ids[:, at]) for at, name in enumerate(EXPECTED)} == EXPECTED


def test_no_pieces_no_words():
    nothing = WordColumns.from_sentences([Sentence.from_words([])])
    vocabularies = build_vocabularies([COLUMNS], list(FACTORS))
    for owners, splits in (([], [0, 0]), ([-1, -1], [0, 2])):
        ids = piece_factors(nothing, owners, splits, vocabularies)
        assert ids.tolist() == [[0] * len(FACTORS)] * len(owners)


def test_vocabularies():
    vocabularies = build_vocabularies([COLUMNS, COLUMNS], ["pos", "deprel", "tone"], min_count=4)
    assert len(vocabularies["pos"]) == 20
    assert vocabularies["deprel"].values == ("root",)
    assert vocabularies["tone"].values == ("low",)


def test_fixed_factors_read_no_data():
    def batches():
        raise AssertionError("read")
        yield COLUMNS

    assert set(build_vocabularies(batches(), ["pos", "case", "subword", "predicate", "depth"])) == set(
        FACTORS
    ) - {"deprel", "lemma", "feats"}


def test_unseen_values_are_counted_once_a_word():
    unseen = UnseenValues()
    vocabularies = {"deprel": FactorVocabulary("deprel", ("root",))}
    ids = piece_factors(COLUMNS, OWNERS, SPLITS, vocabularies, unseen)
    assert ids[:, 0].tolist() == [0, 1, 1, 1, 2, 2, 0, 2, 0]
    assert unseen.message() == (
        "factor deprel: 3 values rare or unseen in training read as <unk>: 'aux' 1x, 'advmod' 1x, 'det' 1x"
    )


def test_all_problems_at_once():
    factors = ["poss", "depth", "predicate", "case", "case", "pos"]
    with pytest.raises(ConfigError) as error:
        check_factors(factors, {"upos"}, ["tone", "case"], annotator="tagger")
    told = [
        "'case' 2 times",
        "user column 'case'",
        "Did you mean 'pos'",
        "'depth': .* tagger",
        "'predicate': .* tagger",
    ]
    assert len(error.value.problems) == len(told)
    assert all(map(re.search, told, error.value.problems))
