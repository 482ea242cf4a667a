"""What all annotators share."""

from __future__ import annotations

import numpy as np
import pytest

from syntaxformer.annotate.annotator import Annotator, blank_sentence
from syntaxformer.trees import Sentence


class Blank(Annotator):
    """Finds no words."""

    name = "blank"

    def stream(self, lines, *, n_processes=1):
        return (blank_sentence(line, frozenset()) for line in lines)


def test_a_string_is_no_list_of_lines():
    message = r"^lines: expected a list of strings, got the string 'the cat'\. Put it into a list\.$"
    with pytest.raises(TypeError, match=message):
        Blank().annotate("the cat")
    assert [sentence.text for sentence in Blank().annotate(["the cat", ""])] == ["the cat", ""]


def test_columns_of_a_parser_may_be_arrays():
    """Most parsers give governors as an array, which has no truth value and no hash."""
    sentence = Sentence(
        "a cat", ["a", "cat"], np.array([[0, 1], [2, 5]]), governors=np.array([1, -1]), upos=["DET", "NOUN"]
    )
    assert sentence == Sentence(
        "a cat", ("a", "cat"), ((0, 1), (2, 5)), governors=(1, -1), upos=("DET", "NOUN")
    )
    assert {type(governor) for governor in sentence.governors} == {int}
    assert hash(sentence) == hash(Sentence(**vars(sentence)))
