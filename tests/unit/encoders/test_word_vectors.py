"""GloVe files written by hand, right and wrong."""

import gzip
import logging

import numpy as np
import pytest
from scratch_encoder import read_word_vectors

from syntaxformer.base.errors import DataError

TEXT = ", 0.5 -1 2e-1\nThe 1 2 3\n. . . 4 5 6\nthe 7 8 9\r\nname@a.com b 1 1 1\ndog 1.5 0 -0.25\nthe 0 0 0\n\ncafé 3 2 1\n"


@pytest.fixture
def write(tmp_path):
    def call(content, name="glove.txt"):
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return call


def test_only_the_words_wanted_are_kept(write):
    vectors = read_word_vectors(write(TEXT), ["dog", "the", "cat", "café", ". . ."])
    assert vectors.keys() == {"dog", "the", "café", ". . ."}
    assert {vector.dtype for vector in vectors.values()} == {np.dtype(np.float32)}
    np.testing.assert_array_equal(vectors["dog"], [1.5, 0, -0.25])
    np.testing.assert_array_equal(vectors["café"], [3, 2, 1])
    np.testing.assert_array_equal(vectors[". . ."], [4, 5, 6])


def test_the_first_of_duplicates_counts_and_they_are_reported(write, caplog):
    with caplog.at_level(logging.INFO):
        vectors = read_word_vectors(write(TEXT), ["the"])
    np.testing.assert_array_equal(vectors["the"], [7, 8, 9])
    assert "glove.txt: 1 lines repeat a word; the first vector of a word counts" in caplog.text


def test_a_header_of_word2vec_is_skipped(write):
    vectors = read_word_vectors(write("2 3\ndog 1 2 3\n2 4 5 6"), ["2", "dog"])
    np.testing.assert_array_equal(vectors["2"], [4, 5, 6])
    assert len(vectors) == 2


@pytest.mark.parametrize(
    ("content", "line"),
    [
        ("a 1 2 3\ndog 1 2\n", 2), ("a 1 2 3\nother 1 2\n", 2), ("a 1 2 3\ndog 1 2 3 4\n", 2), ("a 1 2 3\ndog 1 x 3\n", 2),
        ("dog nan 2 3\n", 1), ("dog 1e999 2 3\n", 1), ("dog 1e39 2 3\n", 1), ("just some text\n", 1), ("word\n", 1),
    ],
)  # fmt: skip
def test_wrong_files_are_refused_with_their_line(write, content, line):
    with pytest.raises(DataError, match=f"glove.txt:{line}: word vectors:"):
        read_word_vectors(write(content), ["dog"])


@pytest.mark.parametrize("content", ["\n\n", "2 3\n"])
def test_files_without_vectors_are_refused(write, content):
    with pytest.raises(DataError, match="word vectors:"):
        read_word_vectors(write(content), ["dog"])


def test_files_that_cannot_be_read(write, tmp_path):
    with pytest.raises(DataError, match=r"none\.txt:"):
        read_word_vectors(tmp_path / "none.txt", [])
    with pytest.raises(DataError, match=r"a\.zip: word vectors:"):
        read_word_vectors(write("dog 1 2", "a.zip"), [])
    cut = gzip.compress(TEXT.encode() * 200)[:-20]
    with pytest.raises(DataError, match=r"b\.gz: expected a whole file, got: .* Copy or pack it again\."):
        read_word_vectors(write(cut, "b.gz"), [])
