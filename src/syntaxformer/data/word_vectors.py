"""Word vectors from GloVe text files: one line a word, its numbers behind it, spaces between.

Also files with word2vec's header line; plain, .gz, or .zip with one file. Only the words asked for are kept,
so that two million vectors take the memory of the few thousand that a task needs. Nothing is unpickled.
"""

from __future__ import annotations

import gzip
import io
import logging
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

import numpy as np
from numpy.typing import NDArray

from syntaxformer.errors import DataError
from syntaxformer.textfile import open_bytes

__all__ = ["WordVectors", "read_word_vectors"]

MAX_LINE_BYTES = 2**20
"""Longest line: about 60,000 numbers. A file without line ends is no text and is not read into memory."""

_log = logging.getLogger("syntaxformer.data")


@dataclass(frozen=True, slots=True)
class WordVectors:
    """Vectors of some words.

    Args:
        index: Row of each word.
        matrix: float32 `[words, width]`.
        n_duplicates: Lines with a word that had come before; the first one counts.
    """

    index: dict[str, int]
    matrix: NDArray[np.float32]
    n_duplicates: int

    def __len__(self) -> int:
        return len(self.index)

    def __contains__(self, word: object) -> bool:
        return word in self.index

    def __getitem__(self, word: str) -> NDArray[np.float32]:
        return self.matrix[self.index[word]]

    @property
    def width(self) -> int:
        """Numbers of a vector."""
        return self.matrix.shape[1]


def read_word_vectors(path: str | Path, words: Iterable[str]) -> WordVectors:
    """Read the vectors of some words.

    Args:
        path: GloVe text file, plain, `.gz` or `.zip`; a first line of two whole numbers, as
            word2vec writes it, is skipped.
        words: Words wanted, spelled as they would be in the file.

    Raises:
        DataError: The file cannot be read or holds no vectors, a line has another number of values than the
            first, or one of a wanted word is no finite number; names file and line.
    """
    path = Path(path)
    wanted = {word.encode("utf-8", "surrogatepass"): word for word in words}
    index: dict[str, int] = {}
    rows: list[NDArray[np.float32]] = []
    width = n_duplicates = 0
    for number, line in _lines(path):
        if number == 1 and _is_header(line):
            continue
        width = width or _width(line, path, number)
        key = _word(line, width, path, number)
        word = wanted.get(key)
        if word is None:
            continue
        if word in index:
            n_duplicates += 1
            continue
        index[word] = len(rows)
        rows.append(_numbers(line[len(key) :], width, word, path, number))
    if not width:
        raise DataError("word vectors: expected a word and its numbers on each line, got no line.", path)
    if n_duplicates:
        _log.info("%s: %d lines repeat a word; the first one counts", path, n_duplicates)
    matrix = np.stack(rows) if rows else np.zeros((0, width), np.float32)
    return WordVectors(index, matrix, n_duplicates)


def _is_header(line: bytes) -> bool:
    parts = line.split()
    return len(parts) == 2 and all(part.isdigit() for part in parts)


def _width(line: bytes, path: Path, number: int) -> int:
    width = len(line.split(b" ")) - 1
    if width < 1 or not _is_number(line.split(b" ")[-1]):
        raise DataError(
            f"word vectors: expected a word and its numbers, got {_shown(line)}. Give the text format.",
            path,
            number,
        )
    return width


def _word(line: bytes, width: int, path: Path, number: int) -> bytes:
    """The word of a line. A few of GloVe's words hold spaces (". . ."), so numbers count from the right."""
    n_spaces = line.count(b" ")
    if n_spaces == width:
        return line[: line.index(b" ")]
    word, *numbers = line.rsplit(b" ", width)
    if n_spaces < width or _is_number(word.rsplit(b" ", 1)[-1]):
        n_values = sum(map(_is_number, line.split(b" ")[1:]))
        raise DataError(
            f"word vectors: expected {width} numbers as in the first line, got {n_values}: {_shown(line)}.",
            path,
            number,
        )
    del numbers
    return word


def _numbers(text: bytes, width: int, word: str, path: Path, number: int) -> NDArray[np.float32]:
    try:
        with np.errstate(over="ignore"):
            vector = np.array(text.split(), dtype=np.float64).astype(np.float32)
    except ValueError:
        vector = np.zeros(0, np.float32)
    if vector.shape != (width,) or not np.isfinite(vector).all():
        raise DataError(
            f"word vectors: expected {width} finite numbers behind {word[:40]!r}, got {_shown(text)}.",
            path,
            number,
        )
    return vector


def _is_number(text: bytes) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _shown(line: bytes) -> str:
    return repr(line[:60].decode("utf-8", "replace"))


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Lines that are not empty, without line ends and without a space before them, numbered from 1."""
    number = 0
    with _opened(path) as file:
        while line := file.readline(MAX_LINE_BYTES):
            number += 1
            if len(line) == MAX_LINE_BYTES and not line.endswith(b"\n"):
                raise DataError(
                    f"word vectors: expected lines of at most {MAX_LINE_BYTES:,} bytes, got a longer one. "
                    "Give the text format.",
                    path,
                    number,
                )
            if line := line.rstrip(b"\r\n "):
                yield number, line


@contextmanager
def _opened(path: Path) -> Iterator[IO[bytes]]:
    try:
        if path.suffix == ".zip":
            open_bytes(path).close()
            with zipfile.ZipFile(path) as archive, archive.open(_only_member(archive, path)) as file:
                # Buffered: the archive's own reader is slow where lines have a limit.
                yield cast("IO[bytes]", io.BufferedReader(file, 2**20))  # type: ignore[type-var]
        else:
            with open_bytes(path) as file:
                yield cast("IO[bytes]", file)
    except (
        EOFError,
        zlib.error,
        gzip.BadGzipFile,
        zipfile.BadZipFile,
        NotImplementedError,
        OSError,
    ) as error:
        raise DataError(f"expected a whole file, got: {error}. Copy or pack it again.", path) from error
    except RuntimeError as error:  # zipfile's for a password
        raise DataError(f"expected an archive that can be unpacked, got: {error}.", path) from error


def _only_member(archive: zipfile.ZipFile, path: Path) -> zipfile.ZipInfo:
    members = [member for member in archive.infolist() if not member.is_dir()]
    if len(members) != 1:
        names = ", ".join(member.filename[:40] for member in members[:5]) or "none"
        raise DataError(
            f"word vectors: expected one file in the archive, got {len(members)}: {names}. "
            "Unpack the right one.",
            path,
        )
    return members[0]
