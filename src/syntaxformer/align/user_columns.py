"""Files with a factor of the user's own: one line a sentence, one value a word, separated by spaces.

Reads and checks; the values become ids in `vocabulary`. The values stand beside the text, never inside it, so
no character of the text can be mistaken for a separator.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest
from pathlib import Path

import numpy as np

from syntaxformer.align.columns import CodedColumn
from syntaxformer.errors import AlignmentError, DataError

__all__ = ["read_user_column"]


def read_user_column(
    path: str | Path, sentences: Iterable[Sequence[str]], text_name: str | Path = "the text"
) -> CodedColumn:
    """Read a factor file and hold that it fits the words, line by line.

    The words are those of the annotated (or already tokenised) sentence, not the text split at white space:
    "don't" takes two values where the annotator reads "do n't". An empty line is right for a sentence without
    words.

    Args:
        path: The factor file, UTF-8; spaces or tabs between the values.
        sentences: The words of every line: `Sentence` objects, an annotated corpus, or lists of words.
        text_name: The text file, for messages.

    Returns:
        The values of all words, flat.

    Raises:
        AlignmentError: Another number of lines than there are sentences, or of values than a line has words.
        DataError: The file cannot be read or is no UTF-8.
    """
    numbers: dict[str, int] = {}
    codes: list[int] = []
    lines, rows = _lines(path), iter(sentences)
    for number, (line, words) in enumerate(zip_longest(lines, rows), start=1):
        if line is None or words is None:
            n_lines = number - 1 if line is None else number + sum(1 for _ in lines)
            n_rows = number - 1 if words is None else number + sum(1 for _ in rows)
            raise AlignmentError(
                f"factor file: expected {n_rows} lines, one for each line of {text_name}, got {n_lines}.",
                path,
            )
        values = _split(line)
        if len(values) != len(words):
            raise AlignmentError(_misfit(values, list(words)), path, number)
        codes += [numbers.setdefault(value, len(numbers)) for value in values]
    return CodedColumn(np.array(codes, np.int32), tuple(numbers))


def _split(line: str) -> list[str]:
    # Not str.split(): a no-break space may be part of a value.
    return [value for value in line.replace("\t", " ").split(" ") if value]


def _misfit(values: Sequence[str], words: Sequence[str]) -> str:
    """What is wrong with a line, down to the first word or value without a partner."""
    found = f"factor file: expected {len(words)} values, one a word, got {len(values)}."
    first = min(len(values), len(words))
    last_pair = f", after {values[first - 1]!r} for {words[first - 1]!r}" if first else ""
    if len(values) < len(words):
        return f"{found} Word {first + 1}, {words[first]!r}, is the first without a value{last_pair}."
    return f"{found} Value {first + 1}, {values[first]!r}, is the first without a word{last_pair}."


def _lines(path: str | Path) -> Iterator[str]:
    """Lines of a UTF-8 file without their ends, which are a line feed with or without carriage return."""
    number = 0
    try:
        with Path(path).open("rb") as file:
            for number, line in enumerate(file, start=1):
                text = line.decode("utf-8-sig" if number == 1 else "utf-8")
                yield text.rstrip("\r\n")
    except UnicodeDecodeError as error:
        raise DataError(
            f"factor file: expected UTF-8, got {error.object[error.start]:#04x} at byte {error.start + 1} of "
            "this line. Convert the file to UTF-8.",
            path,
            number,
        ) from error
    except OSError as error:
        raise DataError(f"factor file: expected a readable file, got {error.strerror}.", path) from error
