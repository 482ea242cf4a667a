"""Word vectors from GloVe's or word2vec's text files, plain or .gz: a word and its numbers on each line."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from syntaxformer.base.errors import DataError
from syntaxformer.base.files import read_lines

__all__ = ["read_word_vectors"]

_log = logging.getLogger("syntaxformer.data")


def read_word_vectors(path: str | Path, words: Iterable[str]) -> dict[str, NDArray[np.float32]]:
    """Read the vectors of some words; the first of several counts, and word2vec's header is skipped.

    Raises:
        DataError: The file cannot be read or holds no vectors, a line has another number of values than the
            first, or one of a wanted word is no finite number; names file and line.
    """
    if Path(path).suffix == ".zip":
        raise DataError("word vectors: expected a text file, got an archive. Unpack it.", path)
    wanted, found = set(words), dict[str, NDArray[np.float32]]()
    width = n_duplicates = 0
    for number, line in enumerate(read_lines(path), 1):
        line = line.rstrip(" ")
        if not line or (number == 1 and re.fullmatch(r"\d+ \d+", line)):
            continue
        is_first, width = not width, width or max(1, line.count(" "))
        word, *numbers = line.rsplit(" ", width)  # a few of GloVe's words hold spaces (". . .")
        n_duplicates += word in found
        is_read = is_first or (word in wanted and word not in found)
        vector = _vector(numbers) if is_read else None
        one_too_many = " " in word and _vector([word.rpartition(" ")[2]]) is not None
        if len(numbers) != width or one_too_many or (is_read and vector is None):
            what = f"a word and {width} finite numbers, as many as in the first line"
            raise DataError(f"word vectors: expected {what}, got {line[:60]!r}.", path, number)
        if vector is not None and word in wanted:
            found[word] = vector
    if not width:
        raise DataError("word vectors: expected a word and its numbers on each line, got no line.", path)
    if n_duplicates:
        _log.info("%s: %d lines repeat a word; the first one counts", path, n_duplicates)
    return found


def _vector(parts: list[str]) -> NDArray[np.float32] | None:
    """The numbers; None where one is none, or not finite."""
    try:
        with np.errstate(over="ignore"):
            vector = np.array(parts, dtype=np.float64).astype(np.float32)
    except ValueError:
        return None
    return vector if np.isfinite(vector).all() else None
