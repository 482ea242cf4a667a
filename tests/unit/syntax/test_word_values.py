from __future__ import annotations

import numpy as np
import pytest

from syntaxformer.base.errors import TreeError
from syntaxformer.syntax import WordColumns
from syntaxformer.syntax.factors import word_depths, word_factor
from syntaxformer.trees import Sentence


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
    assert values("depth", tree(1, 3, 3, -1, -1), tree(), tree(-1)) == ["2", "1", "1", "0", "0", "0"]
    chain = values("depth", tree(-1, *range(40)))
    assert chain == [*map(str, range(15)), *["15+"] * 26]


def test_depths_of_random_forests_equal_a_walk():
    rng = np.random.default_rng(3)
    forests = []
    for n_words in (1, 2, 3, 7, 31, 64, 65, 257):
        order = rng.permutation(n_words)
        governors = [-1] * n_words
        for place in range(1, n_words):
            if rng.random() < 0.9:
                governors[order[place]] = int(order[max(0, place - rng.integers(1, 4))])
        forests.append(governors)
    expected = []
    for governors in forests:
        for word in range(len(governors)):
            depth = 0
            while governors[word] != -1:
                word, depth = governors[word], depth + 1
            expected.append(depth)
    assert (
        word_depths(WordColumns.from_sentences([tree(*governors) for governors in forests])).tolist()
        == expected
    )


@pytest.mark.parametrize(
    ("governors", "cycle"),
    [((0,), "0 0"), ((1, 0), "0 1 0"), ((-1, 2, 1), "1 2 1"), ((-1, 2, 3, 1, 1), "1 2 3 1")],
)
def test_cycles(governors, cycle):
    columns = WordColumns.from_sentences([tree(-1, 0), tree(*governors)], first_line=4)
    words = " → ".join(f"'w{number}'" for number in cycle.split())
    with pytest.raises(TreeError, match=rf"^line 5: governors: .* {words}\.$"):
        word_depths(columns)
