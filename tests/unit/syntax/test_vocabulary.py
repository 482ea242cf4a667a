from __future__ import annotations

import warnings

import numpy as np
import pytest

from syntaxformer.base.errors import ConfigError
from syntaxformer.syntax import CodedColumn, FactorVocabulary, UnseenFactorValueWarning, UnseenValues

POS = FactorVocabulary("pos", ("NOUN", "VERB", "X"))


def test_ids():
    assert POS.entries == ("<none>", "<unk>", "NOUN", "VERB", "X")
    assert len(POS) == 5
    ids = POS.encode(["VERB", "FOO", "NOUN", "<none>", "<unk>"])
    assert ids.dtype == np.uint8
    assert ids.tolist() == [3, 1, 2, 0, 1]
    assert POS.decode(ids) == ["VERB", "<unk>", "NOUN", "<none>", "<unk>"]
    assert POS.encode([]).tolist() == []
    unseen = UnseenValues()
    column = CodedColumn(np.array([1, -1, 0], np.int8), ("X", "VERB", "never used"))
    assert POS.encode_column(column, unseen).tolist() == [3, 0, 4]
    assert unseen.message() is None


@pytest.mark.parametrize(
    ("n_values", "dtype"),
    [(1, np.uint8), (254, np.uint8), (255, np.int16), (32766, np.int16), (32767, np.int32)],
)
def test_smallest_type(n_values, dtype):
    vocabulary = FactorVocabulary("wide", tuple(map(str, range(n_values))))
    assert vocabulary.dtype == dtype
    assert vocabulary.encode([str(n_values - 1)]).tolist() == [n_values + 1]


def test_from_counts():
    counts = {"b": 2, "c": 5, "a": 2, "rare": 1, "<unk>": 9, "<none>": 9}
    assert FactorVocabulary.from_counts("tag", counts, min_count=2).values == ("c", "a", "b")


def test_no_frequent_value():
    with pytest.raises(ConfigError, match=r"^factor tag: .*got none of 2"):
        FactorVocabulary.from_counts("tag", {"a": 1, "b": 2}, min_count=3)


def test_wrong_values():
    with pytest.raises(ConfigError) as error:
        FactorVocabulary("tag", ("a", "a", "<unk>"))
    assert error.value.problems == [
        "factor tag: expected distinct values, got 'a' 2 times.",
        "factor tag: expected values other than <none> and <unk>, got '<unk>'.",
    ]


def test_one_warning_for_all_unseen_values():
    unseen = UnseenValues()
    POS.encode(["FOO", "VERB", "BAR"], unseen)
    POS.encode(["FOO"], unseen)
    FactorVocabulary("deprel", ("obj",)).encode(["x"], unseen)
    with pytest.warns(UnseenFactorValueWarning) as caught:
        unseen.warn()
    assert [str(warning.message) for warning in caught] == [
        "factor pos: 3 values rare or unseen in training read as <unk>: 'FOO' 2x, 'BAR' 1x; "
        "factor deprel: 1 value rare or unseen in training read as <unk>: 'x' 1x"
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        unseen.warn()


def test_long_lists_are_cut_and_say_so():
    unseen = UnseenValues()
    POS.encode([f"T{number:02}" for number in range(12)], unseen)
    message = unseen.message()
    assert message is not None
    assert message.startswith("factor pos: 12 values rare or unseen in training read as <unk>: 'T00' 1x, ")
    assert message.endswith("'T09' 1x and 2 more")
