"""What every annotator can do, whichever library is behind it.

One line in, one `Sentence` out, always and in order: empty lines, several sentences on a line, 5,000 words.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence, Sized
from typing import Protocol, runtime_checkable

from syntaxformer.base.progress import track
from syntaxformer.trees import Sentence

__all__ = [
    "COLUMNS",
    "Annotator",
    "ListsSentences",
    "blank_sentence",
    "check_lines",
    "check_words",
    "encodable",
]

COLUMNS = frozenset({"upos", "xpos", "lemmas", "governors", "deprels", "constituency"})
"""What an annotator may provide: the columns of `Sentence` beside its words."""

_CUTS = frozenset(" \t\n\r\v\f")
_SURROGATE = re.compile("[\ud800-\udfff]")


@runtime_checkable
class Annotator(Protocol):
    """Text in, sentences out."""

    @property
    def name(self) -> str:
        """What `load_annotator` takes: "en", "spacy:de_core_news_sm", "conllu:train.conllu"."""
        ...

    @property
    def version(self) -> str:
        """Changes whenever the same line could be annotated differently."""
        ...

    @property
    def provides(self) -> frozenset[str]:
        """The columns that sentences will have, a part of `COLUMNS`."""
        ...

    def stream(self, lines: Iterable[str], *, n_processes: int = 1) -> Iterator[Sentence]:
        """Yield one sentence for each line, in order, in constant memory."""
        ...

    def annotate(
        self, lines: Iterable[str], *, n_processes: int = 1, progress: bool = False
    ) -> list[Sentence]:
        """Return one sentence for each line, in order."""
        ...

    def annotate_words(self, sentences: Iterable[Sequence[str]]) -> list[Sentence]:
        """Return one sentence for each list of words, with exactly these words, joined by spaces."""
        ...


class ListsSentences:
    """`annotate` for whatever has a name and `stream`: the base class of the annotators."""

    name: str

    def stream(self, lines: Iterable[str], *, n_processes: int = 1) -> Iterator[Sentence]:
        """Yield one sentence for each line, in order."""
        raise NotImplementedError

    def annotate(
        self, lines: Iterable[str], *, n_processes: int = 1, progress: bool = False
    ) -> list[Sentence]:
        """Return one sentence for each line, in order; arguments as in `stream`, `progress` shows a bar.

        Raises:
            TypeError: The lines are one string, which would be read as a list of characters.
        """
        check_lines(lines)
        total = len(lines) if isinstance(lines, Sized) else None
        sentences = self.stream(lines, n_processes=n_processes)
        return list(track(sentences, f"annotating ({self.name})", total, enabled=progress))


def blank_sentence(line: str, provides: frozenset[str]) -> Sentence:
    """Return the sentence of a line without words: its columns are there, and empty."""
    per_word = provides - {"constituency"}
    return Sentence(line, (), (), **dict.fromkeys(per_word, ()))  # type: ignore[arg-type]


def check_lines(lines: object, what: str = "lines") -> None:
    """Hold that lines, by whatever name, are not one string.

    Raises:
        TypeError: They are: it would be read as a list of characters.
    """
    if isinstance(lines, str):
        raise TypeError(
            f"{what}: expected a list of strings, got the string {lines[:40]!r}. Put it into a list."
        )


def check_words(sentences: Iterable[Sequence[str]]) -> list[tuple[str, ...]]:
    """Return words given by a user as tuples, after a look at each.

    Raises:
        ValueError: A word is empty, blank, or holds white space (a no-break space inside a word is allowed).
        TypeError: A sentence is one string, which would be read as a list of characters.
    """
    checked: list[tuple[str, ...]] = []
    for number, words in enumerate(sentences):
        if isinstance(words, str):
            raise TypeError(f"sentence {number}: expected a list of words, got the string {words[:40]!r}.")
        for word in words:
            if not word or word.isspace() or not _CUTS.isdisjoint(word):
                raise ValueError(
                    f"sentence {number}: expected words without white space and not empty, got {word!r}."
                )
        checked.append(tuple(words))
    return checked


def encodable(text: str) -> str:
    """Replace lone surrogates, which no library stores or sends, one character for one."""
    return text if text.isascii() else _SURROGATE.sub("\ufffd", text)
