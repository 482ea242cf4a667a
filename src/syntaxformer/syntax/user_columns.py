"""Files with a factor of the user's own: one line a sentence, one value a word, separated by spaces.

Reads and checks; the values become ids in `vocabulary`. The values stand beside the text, never inside it, so
no character of the text can be mistaken for a separator.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest
from pathlib import Path

import numpy as np

from syntaxformer.base.errors import AlignmentError
from syntaxformer.base.textfile import read_lines
from syntaxformer.syntax.columns import CodedColumn
from syntaxformer.trees.locate import given_words

__all__ = ["read_user_column", "read_user_values"]


def read_user_column(
    path: str | Path,
    sentences: Iterable[Sequence[str]],
    text_name: str | Path = "the text",
    rows: Sequence[int] | None = None,
) -> CodedColumn:
    """Read a factor file and hold that it fits the words, line by line.

    The words are those of the annotated (or already tokenised) sentence, not the text split at white space:
    "don't" takes two values where the annotator reads "do n't". An empty line is right for a sentence without
    words.

    Args:
        path: The factor file, UTF-8, plain or `.gz`; spaces or tabs between the values.
        sentences: The words of every line: `Sentence` objects, an annotated corpus, or lists of words.
        text_name: The text file, for messages.
        rows: The lines of the file that the sentences are, 0-based and ascending, where they are only some.

    Returns:
        The values of all words, flat.

    Raises:
        AlignmentError: Another number of lines than there are sentences, or of values than a line has words.
        DataError: The file cannot be read or is no UTF-8.
    """
    numbers: dict[str, int] = {}
    codes: list[int] = []
    lines, words_of_lines = _numbered(path, rows), iter(sentences)
    for place, (numbered, words) in enumerate(zip_longest(lines, words_of_lines)):
        if numbered is None or words is None:
            n_lines = place if numbered is None else place + 1 + sum(1 for _ in lines)
            n_sentences = place if words is None else place + 1 + sum(1 for _ in words_of_lines)
            raise AlignmentError(
                f"factor file: expected {n_sentences} lines, one for each line of {text_name}, "
                f"got {n_lines}.",
                path,
            )
        number, line = numbered
        values = given_words(line)
        if len(values) != len(words):
            raise AlignmentError(_misfit(values, list(words)), path, number)
        codes += [numbers.setdefault(value, len(numbers)) for value in values]
    return CodedColumn(np.array(codes, np.int32), tuple(numbers))


def read_user_values(path: str | Path) -> Iterator[list[str]]:
    """The values of each line of a factor file; whether they fit the words is not known here.

    Raises:
        DataError: The file cannot be read or is no UTF-8.
    """
    return map(given_words, read_lines(path))


def _numbered(path: str | Path, rows: Sequence[int] | None) -> Iterator[tuple[int, str]]:
    """The lines wanted, with their 1-based numbers."""
    lines = enumerate(read_lines(path), start=1)
    if rows is None:
        return lines
    wanted = set(rows)
    return ((number, line) for number, line in lines if number - 1 in wanted)


def _misfit(values: Sequence[str], words: Sequence[str]) -> str:
    """What is wrong with a line, down to the first word or value without a partner."""
    found = f"factor file: expected {len(words)} values, one a word, got {len(values)}."
    first = min(len(values), len(words))
    last_pair = f", after {values[first - 1]!r} for {words[first - 1]!r}" if first else ""
    if len(values) < len(words):
        return f"{found} Word {first + 1}, {words[first]!r}, is the first without a value{last_pair}."
    return f"{found} Value {first + 1}, {values[first]!r}, is the first without a word{last_pair}."
