"""What a library's error looks like in ours."""

from __future__ import annotations

import pytest

from syntaxformer.base.errors import one_line


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (ValueError("a b"), "a b"),
        (ValueError("a\n  b\n"), "a b"),
        (ValueError("one two three"), "one two …"),
        (MemoryError(), "MemoryError"),  # which says nothing
    ],
)
def test_the_message_of_an_error_is_one_line(error, line):
    assert one_line(error, 11) == line
