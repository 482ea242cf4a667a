"""GloVe files written by hand, right and wrong."""

import gzip
import logging
import tracemalloc
import zipfile

import numpy as np
import pytest

from syntaxformer.data.word_vectors import read_word_vectors
from syntaxformer.errors import DataError

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
    assert vectors.width == 3
    assert vectors.matrix.dtype == np.float32
    assert len(vectors) == 4
    assert "cat" not in vectors
    np.testing.assert_array_equal(vectors["dog"], [1.5, 0, -0.25])
    np.testing.assert_array_equal(vectors["café"], [3, 2, 1])
    np.testing.assert_array_equal(vectors[". . ."], [4, 5, 6])


def test_the_first_of_duplicates_counts_and_they_are_reported(write, caplog):
    with caplog.at_level(logging.INFO):
        vectors = read_word_vectors(write(TEXT), ["the"])
    np.testing.assert_array_equal(vectors["the"], [7, 8, 9])
    assert vectors.n_duplicates == 1
    assert "glove.txt: 1 lines repeat a word; the first one counts" in caplog.text


def test_a_header_of_word2vec_is_skipped(write):
    vectors = read_word_vectors(write("2 3\ndog 1 2 3\n2 4 5 6"), ["2", "dog"])
    np.testing.assert_array_equal(vectors["2"], [4, 5, 6])
    assert len(vectors) == 2


def test_packed_files(write, tmp_path):
    packed = write(gzip.compress(TEXT.encode()), "glove.txt.gz")
    np.testing.assert_array_equal(read_word_vectors(packed, ["dog"])["dog"], [1.5, 0, -0.25])
    with zipfile.ZipFile(tmp_path / "glove.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("glove.txt", TEXT)
    np.testing.assert_array_equal(read_word_vectors(tmp_path / "glove.zip", ["dog"])["dog"], [1.5, 0, -0.25])


def test_no_word_found_still_has_a_width(write):
    vectors = read_word_vectors(write(TEXT), ["cat"])
    assert vectors.matrix.shape == (0, 3)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a 1 2 3\ndog 1 2\n", ":2: word vectors: expected 3 numbers as in the first line, got 2: 'dog 1 2'."),
        ("a 1 2 3\nother 1 2\n", ":2: word vectors: expected 3 numbers as in the first line, got 2: 'other 1 2'."),
        ("a 1 2 3\ndog 1 2 3 4\n", ":2: word vectors: expected 3 numbers as in the first line, got 4: 'dog 1 2 3 4'."),
        ("a 1 2 3\ndog 1 x 3\n", ":2: word vectors: expected 3 finite numbers behind 'dog', got ' 1 x 3'."),
        ("dog nan 2 3\n", ":1: word vectors: expected 3 finite numbers behind 'dog', got ' nan 2 3'."),
        ("dog 1e999 2 3\n", ":1: word vectors: expected 3 finite numbers behind 'dog', got ' 1e999 2 3'."),
        ("dog 1e39 2 3\n", ":1: word vectors: expected 3 finite numbers behind 'dog', got ' 1e39 2 3'."),
        ("just some text\n", ":1: word vectors: expected a word and its numbers, got 'just some text'. Give the text format."),
        ("word\n", ":1: word vectors: expected a word and its numbers, got 'word'. Give the text format."),
        ("\n\n", ": word vectors: expected a word and its numbers on each line, got no line."),
        ("2 3\n", ": word vectors: expected a word and its numbers on each line, got no line."),
        (b"x" * (2**20 + 1), ":1: word vectors: expected lines of at most 1,048,576 bytes, got a longer one. Give the text format."),
    ],
)  # fmt: skip
def test_wrong_files_are_refused_with_their_line(write, content, message):
    path = write(content)
    with pytest.raises(DataError) as caught:
        read_word_vectors(path, ["dog"])
    assert str(caught.value) == f"{path}{message}"


def test_files_that_cannot_be_read(write, tmp_path):
    with pytest.raises(
        DataError, match=r"none\.txt: expected a readable file, got: No such file or directory\."
    ):
        read_word_vectors(tmp_path / "none.txt", [])
    with pytest.raises(DataError, match=r"none\.zip: expected a readable file"):
        read_word_vectors(tmp_path / "none.zip", [])
    with pytest.raises(DataError, match=r"a\.zip: expected a whole file, got: File is not a zip file\."):
        read_word_vectors(write("dog 1 2", "a.zip"), [])
    cut = gzip.compress(TEXT.encode() * 200)[:-20]
    with pytest.raises(DataError, match=r"b\.gz: expected a whole file, got: .* Copy or pack it again\."):
        read_word_vectors(write(cut, "b.gz"), [])
    with zipfile.ZipFile(tmp_path / "two.zip", "w") as archive:
        archive.writestr("a.txt", TEXT)
        archive.writestr("b.txt", TEXT)
    with pytest.raises(
        DataError, match=r"expected one file in the archive, got 2: a\.txt, b\.txt\. Unpack the right"
    ):
        read_word_vectors(tmp_path / "two.zip", [])


def test_memory_follows_the_words_not_the_file(write):
    line = " " + " ".join(["0.125"] * 100) + "\n"
    path = write("".join(f"w{number}{line}" for number in range(20_000)))
    assert path.stat().st_size > 12e6
    tracemalloc.start()
    vectors = read_word_vectors(path, ["w5", "w19999"])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(vectors) == 2
    assert peak < 1e6
