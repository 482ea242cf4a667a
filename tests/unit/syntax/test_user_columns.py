from __future__ import annotations

import pytest

from syntaxformer.base.errors import AlignmentError
from syntaxformer.syntax import read_user_column
from syntaxformer.trees import Sentence

WORDS = [["A", "man", "sleeps"], [], ["Dogs", "bark"]]


@pytest.fixture
def factor_file(tmp_path):
    def write(content: str | bytes):
        path = tmp_path / "tone.txt"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


def test_reads_values(factor_file):
    column = read_user_column(factor_file("\ufefflow high  low\r\n\nx\u00a0y\tlow \n"), WORDS)
    assert column.decode() == ["low", "high", "low", "x\u00a0y", "low"]
    assert column.values == ("low", "high", "x\u00a0y")


def test_last_line_may_lack_its_end_and_sentences_are_words(factor_file):
    sentences = (Sentence.from_words(words) for words in WORDS)
    assert read_user_column(factor_file("a b c\n\nd e"), sentences).decode() == list("abcde")


@pytest.mark.parametrize(
    ("content", "line", "problem"),
    [
        ("a b\n\nc d\n", 1, "expected 3 .* got 2. Word 3, 'sleeps', .* after 'b' for 'man'"),
        ("a b c\nd\ne f\n", 2, "expected 0 .* got 1. Value 1, 'd'"),
        ("a b c\n\nd e f\n", 3, "expected 2 .* got 3. Value 3, 'f', .* after 'e' for 'bark'"),
        ("\n\nc d\n", 1, "expected 3 .* got 0. Word 1, 'A'"),
    ],
)
def test_values_and_words_differ(factor_file, content, line, problem):
    path = factor_file(content)
    with pytest.raises(AlignmentError, match=f"^{path}:{line}: factor file: {problem}") as error:
        read_user_column(path, WORDS)
    assert (error.value.path, error.value.line) == (str(path), line)


@pytest.mark.parametrize(("content", "n_lines"), [("a b c\n\n", 2), ("", 0), ("a b c\n\nd e\n\n\nf\n", 6)])
def test_line_counts_differ(factor_file, content, n_lines):
    path = factor_file(content)
    with pytest.raises(AlignmentError, match=rf"^{path}: .*expected 3 lines, .*train\.en, got {n_lines}\.$"):
        read_user_column(path, iter(WORDS), "train.en")


def test_some_lines_of_the_file(factor_file):
    path = factor_file("x\na b c\ny y\n\nd e\nz\n")
    assert read_user_column(path, WORDS, rows=[1, 3, 4]).decode() == list("abcde")
    with pytest.raises(AlignmentError, match=r"tone\.txt:3: .*got 2"):
        read_user_column(path, WORDS, rows=[1, 2, 4])
