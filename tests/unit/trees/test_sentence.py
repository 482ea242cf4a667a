"""What a sentence refuses, and that it comes back from its dictionary."""

import numpy as np
import pytest

from syntaxformer.base.errors import TreeError
from syntaxformer.trees import Sentence


@pytest.mark.parametrize(
    ("offsets", "columns", "problem"),
    [
        (((0, 2),), {}, "offsets: expected 2 values, one per word, got 1."),
        (((0, 2), (2, 4)), {"upos": ("X",)}, "upos: expected 2 values, one per word, got 1."),
        (((0, 2), (2, 5)), {}, "offset of 'dem': expected 0 <= start <= end <= 4, got 2, 5."),
        (((0, 2), (4, 2)), {}, "offset of 'dem': expected 0 <= start <= end <= 4, got 4, 2."),
        (((-1, 2), (2, 4)), {}, "offset of 'zu': expected 0 <= start <= end <= 4, got -1, 2."),
        (((0, 4), (0, 4)), {"governors": (1, 2)}, "governor of 'dem': expected -1 to 1, got 2."),
        (((0, 4), (0, 4)), {"governors": (-2, 0)}, "governor of 'zu': expected -1 to 1, got -2."),
    ],
)
def test_columns_that_do_not_fit_are_refused(offsets, columns, problem):
    with pytest.raises(TreeError) as caught:
        Sentence("zum ", ("zu", "dem"), offsets, **columns)
    assert str(caught.value) == problem


def test_a_governor_may_be_any_word_or_none_and_an_offset_may_reach_the_end():
    sentence = Sentence("zum ", ("zu", "dem"), ((0, 4), (4, 4)), governors=np.array([1, -1]))
    assert sentence.governors == (1, -1)
    assert sentence.roots == (1,)


def test_words_stand_one_space_apart():
    sentence = Sentence.from_words(["Tom", "", "is", "in"], upos=("PROPN", "X", "AUX", "ADP"))
    assert sentence.text == "Tom  is in"
    assert sentence.offsets == ((0, 3), (4, 4), (5, 7), (8, 10))


def test_it_comes_back_from_its_dictionary_also_without_words():
    sentence = Sentence.from_words(
        ["a", "bc"], upos=("X", "Y"), governors=(1, -1), constituency="(S (X a) (Y bc))"
    )
    row = sentence.to_dict()
    assert Sentence.from_dict(row) == sentence
    arrays = {name: np.array(cell) if isinstance(cell, list) else cell for name, cell in row.items()}
    arrays.pop("words")
    assert Sentence.from_dict(arrays) == sentence
