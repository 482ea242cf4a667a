"""Writing CoNLL-U: what a `Sentence` holds survives writing and reading unchanged.

Words that share their characters become a multiword token. Features, enhanced dependencies and comments other
than `# text` and `# constituency` are not part of `Sentence` and not written.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from pathlib import Path

from syntaxformer.base.errors import TreeError
from syntaxformer.base.files import atomic_text
from syntaxformer.trees.conllu import CONSTITUENCY_KEY, NO_SPACE, RANGE_KEY, TEXT_KEY
from syntaxformer.trees.locate import locate_words
from syntaxformer.trees.sentence import Sentence

__all__ = ["format_conllu", "write_conllu"]


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
    _check_writable(sentence)
    lines = [f"{TEXT_KEY} {sentence.text}"]
    if sentence.constituency is not None:
        lines.append(f"{CONSTITUENCY_KEY} {sentence.constituency}")
    tokens = _tokens_of(sentence)
    ranges = _ranges_to_write(sentence, tokens)
    for token in tokens:
        if len(token) > 1 and not ranges:
            start, end = sentence.offsets[token[0]]
            surface = sentence.text[start:end]
            lines.append(
                "\t".join([f"{token[0] + 1}-{token[-1] + 1}", surface, *"_" * 7, _misc(sentence, token)])
            )
        for word in token:
            misc = ranges[word] if ranges else (_misc(sentence, token) if len(token) == 1 else "_")
            lines.append(_row(sentence, word, misc))
    return "\n".join(lines) + "\n\n"


def _tokens_of(sentence: Sentence) -> list[list[int]]:
    """Group words that share their characters: the words of one multiword token."""
    words = range(len(sentence.words))
    return [list(group) for _, group in groupby(words, key=lambda word: sentence.offsets[word])]


def _ranges_to_write(sentence: Sentence, tokens: Sequence[Sequence[int]]) -> list[str]:
    """Return a MISC entry for each word where reading could not find the offsets by itself, else nothing."""
    surfaces: list[str] = []
    for token in tokens:
        start, end = sentence.offsets[token[0]]
        surfaces.append(sentence.text[start:end] if len(token) > 1 else sentence.words[token[0]])
    try:
        found = locate_words(sentence.text, surfaces)
    except TreeError:
        found = None
    writable = all(surface.strip() and "\t" not in surface for surface in surfaces)
    if writable and found == tuple(sentence.offsets[token[0]] for token in tokens):
        return []
    return [f"{RANGE_KEY}{start}:{end}" for start, end in sentence.offsets]


def _misc(sentence: Sentence, token: Sequence[int]) -> str:
    following = token[-1] + 1
    touches = (
        following < len(sentence.words) and sentence.offsets[following][0] == sentence.offsets[token[0]][1]
    )
    return NO_SPACE if touches else "_"


def _row(sentence: Sentence, word: int, misc: str) -> str:
    def value(column: Sequence[str] | None) -> str:
        return "_" if column is None else column[word]

    head = "_" if sentence.governors is None else str(sentence.governors[word] + 1)
    tags = [
        value(sentence.lemmas),
        value(sentence.upos),
        value(sentence.xpos),
        "_",
        head,
        value(sentence.deprels),
    ]
    return "\t".join([str(word + 1), sentence.words[word], *tags, "_", misc])


def _check_writable(sentence: Sentence) -> None:
    lines = {"text": [sentence.text], "constituency": [sentence.constituency or ""]}
    for what, values in lines.items():
        if any("\n" in value or "\0" in value or value.endswith("\r") for value in values):
            raise TreeError(f"{what}: expected one line without NUL, got {values[0][:60]!r}.")
    for what in ("words", "lemmas", "upos", "xpos", "deprels"):
        for value in getattr(sentence, what) or ():
            if not value or any(character in value for character in "\t\n\0"):
                raise TreeError(
                    f"{what}: expected values without tab, line end or NUL and not empty, got {value!r}."
                )
