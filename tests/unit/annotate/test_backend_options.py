import pytest

from syntaxformer.annotate.backends import positive_int, positive_number, split_options
from syntaxformer.base.errors import ConfigError

TYPES = {"batch": positive_int, "timeout": positive_number, "words": str}


def test_subject_and_options():
    assert split_options("x", "http://h/a+b?c=1+batch=3+words=spacy:de", TYPES) == (
        "http://h/a+b?c=1",
        {"batch": 3, "words": "spacy:de"},
    )
    assert split_options("x", "en", TYPES) == ("en", {})


def test_all_that_is_wrong_is_said():
    with pytest.raises(ConfigError) as caught:
        split_options("x", "+batch=0+batsh=1+timeout=nan+words=a+words=b", TYPES)
    assert caught.value.problems == [
        "annotator x: batch: expected a whole number from 1, got '0'.",
        "annotator x: unknown option 'batsh'. Nearest: batch.",
        "annotator x: timeout: expected a number above 0, got 'nan'.",
        "annotator x: expected each option once, got 'words' twice.",
        "annotator x: expected something between the colon and the options, got none.",
    ]


@pytest.mark.parametrize("text", ["-1", "1.5", "²", "9" * 5000, ""])
def test_odd_numbers_are_refused(text):
    with pytest.raises(ValueError, match="expected a whole number from 1"):
        positive_int(text)
