"""`Sentence`: one line of text with everything that an annotator said about it.

Immutable and plain Python. It knows no file format (see `conllu`, `ptb`) and no subword (see `syntax`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from syntaxformer.base.errors import TreeError

__all__ = ["ROOT", "Sentence"]

ROOT = -1
"""Governor of a word that has none."""

_PER_WORD = ("offsets", "upos", "xpos", "lemmas", "governors", "deprels")


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Sentence:
    """One input line: its words and, where known, tags, lemmas and trees over the words.

    Args:
        text: The line as it was read.
        words: Words, `[words]`. They need not cover the text, and two words may share characters (German
            "zum" read as "zu dem").
        offsets: Character start and end of each word in `text`, end exclusive.
        upos: Universal part of speech of each word, or None if unknown.
        xpos: Treebank-specific tag of each word.
        lemmas: Lemma of each word.
        governors: 0-based index of each word's governor, `ROOT` (-1) where there is none. Several roots are
            allowed: a line may hold several grammatical sentences.
        deprels: Relation of each word to its governor.
        constituency: Bracketed tree over the words.

    Raises:
        TreeError: A column's length differs from the number of words, an offset lies outside the text, or a
            governor is out of range.
    """

    text: str
    words: tuple[str, ...]
    offsets: tuple[tuple[int, int], ...]
    upos: tuple[str, ...] | None = None
    xpos: tuple[str, ...] | None = None
    lemmas: tuple[str, ...] | None = None
    governors: tuple[int, ...] | None = None
    deprels: tuple[str, ...] | None = None
    constituency: str | None = None

    def __post_init__(self) -> None:
        for column in _PER_WORD:
            values = getattr(self, column)
            if values is not None and len(values) != len(self.words):
                raise TreeError(
                    f"{column}: expected {len(self.words)} values, one a word, got {len(values)}."
                )
        for word, (start, end) in zip(self.words, self.offsets, strict=True):
            if not 0 <= start <= end <= len(self.text):
                raise TreeError(
                    f"offset of {word!r}: expected 0 <= start <= end <= {len(self.text)}, got {start}, {end}."
                )
        for word, governor in zip(self.words, self.governors or (), strict=False):
            if not ROOT <= governor < len(self.words):
                raise TreeError(
                    f"governor of {word!r}: expected -1 to {len(self.words) - 1}, got {governor}."
                )

    def __len__(self) -> int:
        return len(self.words)

    def __iter__(self) -> Iterator[str]:
        return iter(self.words)

    @property
    def roots(self) -> tuple[int, ...]:
        """Indices of the words without a governor; empty where nothing was parsed."""
        return tuple(word for word, governor in enumerate(self.governors or ()) if governor == ROOT)

    @classmethod
    def from_words(
        cls, words: Sequence[str], **columns: tuple[str, ...] | tuple[int, ...] | str | None
    ) -> Sentence:
        """Build a sentence from words joined by single spaces; further columns as in the class."""
        offsets: list[tuple[int, int]] = []
        start = 0
        for word in words:
            offsets.append((start, start + len(word)))
            start += len(word) + 1
        return cls(" ".join(words), tuple(words), tuple(offsets), **columns)  # type: ignore[arg-type]
