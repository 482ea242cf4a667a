"""Factors of words and of pieces, by hand."""

from __future__ import annotations

import re

import pytest

from syntaxformer.base.errors import ConfigError, TreeError
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
from syntaxformer.syntax.factors import word_depths, word_factor
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
    ) - {"deprel", "lemma", "feats", "term"}


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
    messages = [
        "'case' 2 times",
        "user column 'case'",
        "Did you mean 'pos'",
        "'depth': .* tagger",
        "'predicate': .* tagger",
    ]
    assert len(error.value.problems) == len(messages)
    assert all(map(re.search, messages, error.value.problems))


def values(name: str, *sentences: Sentence) -> list[str | None]:
    return word_factor(name, WordColumns.from_sentences(sentences)).decode()


def tree(*governors: int) -> Sentence:
    return Sentence.from_words([f"w{n}" for n in range(len(governors))], governors=governors)


@pytest.mark.parametrize(
    ("word", "capital"),
    [
        ("Dog", "1"), ("dog", "0"), ("DOG", "1"), ("iPhone", "0"), ("3D", "0"),
        ('"Dog', "0"), ("Émile", "1"),
        ("E\u0301mile", "1"), ("Привет", "1"), ("привет", "0"), ("ǅep", "1"),
        ("日本", "0"), ("😀", "0"), ("ß", "0"),
        ("𝐀", "1"), ("𐐀", "1"), ("𐐨", "0"),
    ],
)  # fmt: skip
def test_case(word, capital):
    assert values("case", Sentence.from_words(["x", word])) == ["0", capital]


def test_case_is_read_in_the_line_not_in_the_word():
    # "Am" = "an dem": the word form is lower-cased, the line is not. A word without characters has no case.
    am = Sentence("Am Haus", ("an", "dem", "Haus", "#"), ((0, 2), (0, 2), (3, 7), (7, 7)))
    assert values("case", am) == ["1", "1", "1", "0"]


def test_case_after_an_empty_line_and_a_lone_surrogate():
    assert values(
        "case", Sentence.from_words(["\ud800"]), Sentence.from_words([]), Sentence.from_words(["A"])
    ) == ["0", "1"]


def test_predicate():
    # "Peter is tired and sleeps": the root "tired" is an ADJ, "sleeps" a VERB, "is" an AUX.
    sentence = Sentence.from_words(
        ["Peter", "is", "tired", "and", "sleeps"],
        upos=("PROPN", "AUX", "ADJ", "CCONJ", "VERB"),
        governors=(2, 2, -1, 4, 2),
    )
    assert values("predicate", sentence) == ["0", "0", "1", "0", "1"]


def test_depth():
    # w0 <- w1 <- w3(root) -> w2; and a second root.
    lines = tree(1, 3, 3, -1, -1), tree(), tree(-1, 0)
    assert values("depth", *lines) == ["2", "1", "1", "0", "0", "0", "1"]
    chain = values("depth", tree(-1, *range(40)))
    assert chain == [*map(str, range(15)), *["15+"] * 26]


@pytest.mark.parametrize(
    ("governors", "cycle"),
    [((0,), "0 0"), ((1, 0), "0 1 0"), ((-1, 2, 1), "1 2 1"), ((-1, 2, 3, 1, 1), "1 2 3 1")],
)
def test_cycles(governors, cycle):
    columns = WordColumns.from_sentences([tree(-1, 0), tree(*governors)], first_line=4)
    words = " → ".join(f"'w{number}'" for number in cycle.split())
    with pytest.raises(TreeError, match=rf"^line 5: governors: .* {words}\.$"):
        word_depths(columns)
