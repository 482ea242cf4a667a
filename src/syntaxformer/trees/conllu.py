"""Reading and writing CoNLL-U, the format of Universal Dependencies.

Words are the syntactic words; the words of a multiword token ("zum" = "zu dem") share its characters. Empty
nodes and enhanced dependencies are left out. Only here do 1-based HEADs become 0-based governors.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, groupby
from pathlib import Path
from typing import Any

from syntaxformer.base.errors import TreeError
from syntaxformer.base.files import atomic_text, read_lines
from syntaxformer.trees.dependency import check_governors
from syntaxformer.trees.locate import locate_words
from syntaxformer.trees.sentence import COLUMNS, Sentence

_N_COLUMNS, _MAX_DIGITS = 10, 9
_ID, _FORM, _MISC = 0, 1, 9
_INDICES = {name: column.conllu for name, column in COLUMNS.items() if column.conllu is not None}
_HEAD = _INDICES["governors"]
TEXT_KEY = "# text ="
CONSTITUENCY_KEY = "# constituency ="
# Our own key, written only if the words do not simply follow each other in the text.
RANGE_KEY = "TextRange="
NO_SPACE = "SpaceAfter=No"


@dataclass(slots=True)
class _Block:
    """The lines of one sentence; a token is a stretch of text with one word or, if multiword, several."""

    line: int
    text: str | None = None
    constituency: str | None = None
    rows: list[list[str]] = field(default_factory=list[list[str]])
    tokens: list[list[str]] = field(default_factory=list[list[str]])
    token_of_word: list[int] = field(default_factory=list[int])
    multiword_end: int = 0


def read_conllu(path: str | Path) -> Iterator[Sentence]:
    """Yield the sentences of a CoNLL-U file, plain or packed.

    Raises:
        DataError: The file cannot be read or is not UTF-8.
        TreeError: A line is not CoNLL-U, a HEAD is out of range, there is a cycle, or `# text` does not hold
            the words; the message names file and line.
    """
    return parse_conllu(read_lines(path), path)


def parse_conllu(lines: Iterable[str], path: str | Path | None = None) -> Iterator[Sentence]:
    """Yield the sentences of CoNLL-U lines; `path` names their source in errors.

    A block with a `# text` comment and no words is a sentence without words, like that of an empty line.

    Raises:
        TreeError: As in `read_conllu`.
    """
    block: _Block | None = None
    for number, line in enumerate(chain(lines, [""]), 1):
        if line:
            block = block or _Block(number)
            _read_line(block, line, path, number)
        # Comments without text, as some files end with, are no sentence.
        elif block and (block.rows or block.text is not None):
            yield _sentence(block, path)
        block = block if line else None


def _read_line(block: _Block, line: str, path: str | Path | None, number: int) -> None:
    if line.startswith("#") and not block.rows:
        if line.startswith(TEXT_KEY):
            block.text = line.removeprefix(TEXT_KEY).removeprefix(" ")
        elif line.startswith(CONSTITUENCY_KEY):
            block.constituency = line.removeprefix(CONSTITUENCY_KEY).removeprefix(" ")
        return
    row = line.split("\t")
    if len(row) != _N_COLUMNS:
        raise TreeError(
            f"CoNLL-U: expected {_N_COLUMNS} columns separated by tabs, got {len(row)}.", path, number
        )
    if "" in row:
        raise TreeError(
            f"CoNLL-U: expected '_' for no value, got an empty column {row.index('') + 1}.", path, number
        )
    word_id = row[_ID]
    if _number(word_id) == len(block.rows) + 1:
        block.rows.append(row)
        if len(block.rows) > block.multiword_end:
            block.tokens.append(row)
        block.token_of_word.append(len(block.tokens) - 1)
        return
    first, last = map(_number, word_id.partition("-")[::2])
    if last >= first == len(block.rows) + 1 > block.multiword_end:
        block.tokens.append(row)
        block.multiword_end = last
    elif not re.fullmatch(r"\d+\.\d+", word_id):  # an empty node
        raise TreeError(
            f"CoNLL-U: expected word {len(block.rows) + 1}, got ID {word_id[:40]!r}.", path, number
        )


def _number(text: str) -> int:
    """The number that some digits stand for; -1 for other text and for numbers that are impossibly large."""
    return int(text) if text.isdecimal() and len(text) <= _MAX_DIGITS else -1


def _sentence(block: _Block, path: str | Path | None) -> Sentence:
    if len(block.rows) < block.multiword_end:
        raise TreeError(f"CoNLL-U: expected word {block.multiword_end}, got the end.", path, block.line)
    words = tuple(row[_FORM] for row in block.rows)
    text = block.text
    if text is None:
        spaced = (row[_FORM] + " " * (NO_SPACE not in row[_MISC].split("|")) for row in block.tokens)
        text = "".join(spaced).removesuffix(" ")
    cells = ((name, tuple(row[index] for row in block.rows)) for name, index in _INDICES.items())
    columns: dict[str, Any] = {name: values for name, values in cells if values.count("_") < len(values)}
    try:
        if "governors" in columns:
            columns["governors"] = _governors(block)
            check_governors(columns["governors"], words)
        return Sentence(text, words, _offsets(block, text), **columns, constituency=block.constituency)
    except TreeError as error:
        raise TreeError(str(error), path, block.line) from error


def _governors(block: _Block) -> tuple[int, ...]:
    """Turn 1-based HEADs, 0 = root, into 0-based governors, -1 = root."""
    n_words = len(block.rows)
    for row in block.rows:
        if not 0 <= _number(row[_HEAD]) <= n_words:
            raise TreeError(f"HEAD of {row[_FORM]!r}: expected 0 to {n_words}, got {row[_HEAD][:40]!r}.")
    return tuple(int(row[_HEAD]) - 1 for row in block.rows)


def _offsets(block: _Block, text: str) -> tuple[tuple[int, int], ...]:
    ranges = [_written_range(row) for row in block.rows]
    if all(ranges):  # also if there are no words, since the text may be anything then
        return tuple(offset for offset in ranges if offset)
    by_token = locate_words(text, [row[_FORM] for row in block.tokens])
    return tuple(by_token[token] for token in block.token_of_word)


def _written_range(row: list[str]) -> tuple[int, int] | None:
    value = next((attribute for attribute in row[_MISC].split("|") if attribute.startswith(RANGE_KEY)), None)
    if value is None:
        return None
    start, _, end = value.removeprefix(RANGE_KEY).partition(":")
    if _number(start) < 0 or _number(end) < 0:
        raise TreeError(f"MISC of {row[_FORM]!r}: expected {RANGE_KEY}START:END, got {value[:40]!r}.")
    return int(start), int(end)


def write_conllu(path: str | Path, sentences: Iterable[Sentence]) -> None:
    """Write sentences to a file, whole or not at all.

    Raises:
        DataError: The file cannot be written.
        TreeError: As in `format_conllu`.
    """
    with atomic_text(path) as file:
        file.writelines(format_conllu(sentence) for sentence in sentences)


def format_conllu(sentence: Sentence) -> str:
    """Return the CoNLL-U block of a sentence, with the empty line that ends it.

    Raises:
        TreeError: The text or a word holds a line end, or a word holds a tab or is empty.
    """
    tree = sentence.constituency
    for what, line in (("text", sentence.text), ("constituency", tree or "")):
        if "\n" in line or "\0" in line or line.endswith("\r"):
            raise TreeError(f"{what}: expected one line without NUL, got {line[:60]!r}.")
    for what in ("words", *(name for name in _INDICES if name != "governors")):
        for value in getattr(sentence, what) or ():
            if not value or any(character in value for character in "\t\n\0"):
                raise TreeError(
                    f"{what}: expected non-empty values without tab, line end or NUL, got {value!r}."
                )
    lines = [f"{TEXT_KEY} {sentence.text}"]
    if tree is not None:
        lines.append(f"{CONSTITUENCY_KEY} {tree}")
    tokens = tokens_of(sentence)
    ranges = _ranges_to_write(sentence, tokens)
    for token in tokens:
        if len(token) > 1 and not ranges:
            row = [f"{token[0] + 1}-{token[-1] + 1}", surface_of(sentence, token), *"_" * 7]
            lines.append("\t".join([*row, _misc(sentence, token)]))
        for word in token:
            misc = ranges[word] if ranges else (_misc(sentence, token) if len(token) == 1 else "_")
            lines.append(_row(sentence, word, misc))
    return "\n".join(lines) + "\n\n"


def tokens_of(sentence: Sentence) -> list[list[int]]:
    """Group words that share their characters: the words of one multiword token."""
    words = range(len(sentence.words))
    return [list(group) for _, group in groupby(words, key=lambda word: sentence.offsets[word])]


def surface_of(sentence: Sentence, token: Sequence[int]) -> str:
    """The characters of a token: its word, or the text that its several words share."""
    start, end = sentence.offsets[token[0]]
    return sentence.words[token[0]] if len(token) == 1 else sentence.text[start:end]


def _ranges_to_write(sentence: Sentence, tokens: Sequence[Sequence[int]]) -> list[str]:
    """Return a MISC entry for each word if a reader could not find the offsets by itself, else nothing."""
    surfaces = [surface_of(sentence, token) for token in tokens]
    try:
        offsets = locate_words(sentence.text, surfaces)
    except TreeError:
        offsets = None
    writable = all(surface.strip() and "\t" not in surface for surface in surfaces)
    if writable and offsets == tuple(sentence.offsets[token[0]] for token in tokens):
        return []
    return [f"{RANGE_KEY}{start}:{end}" for start, end in sentence.offsets]


def _misc(sentence: Sentence, token: Sequence[int]) -> str:
    following = token[-1] + 1
    touches = (
        following < len(sentence.words) and sentence.offsets[following][0] == sentence.offsets[token[0]][1]
    )
    return NO_SPACE if touches else "_"


def _row(sentence: Sentence, word: int, misc: str) -> str:
    row = [str(word + 1), sentence.words[word], *"_" * 7, misc]
    for name, index in _INDICES.items():
        if (column := getattr(sentence, name)) is not None:
            row[index] = str(column[word] + 1) if index == _HEAD else column[word]
    return "\t".join(row)
