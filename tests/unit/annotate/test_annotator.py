"""What all annotators share."""

from __future__ import annotations

import pytest

from syntaxformer.annotate.annotator import Annotator, blank_sentence


class Blank(Annotator):
    """Finds no words."""

    name = "blank"

    def stream(self, lines, *, n_processes=1):
        return (blank_sentence(line, frozenset()) for line in lines)


def test_a_string_is_no_list_of_lines():
    message = r"^lines: expected a list of strings, got the string 'the cat'\. Put it into a list\.$"
    with pytest.raises(TypeError, match=message):
        Blank().annotate("the cat")
    assert [one.text for one in Blank().annotate(["the cat", ""])] == ["the cat", ""]
