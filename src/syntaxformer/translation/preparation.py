"""What happens to a line before subwords: entities, Moses tokenisation, lower case; and how it is undone.

The annotator sees the raw line, subwords the prepared one. A prepared line knows which characters of the raw
line its own stand for, so words of the one and pieces of the other still meet by offsets. No vocabulary here.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from syntaxformer.base.errors import BackendMissingError
from syntaxformer.trees.locate import given_words, spans_of_given_words

__all__ = ["PreparedLines", "TextPreparation", "lower_case", "unescape"]

ENTITIES = {
    "&#124;": "|",
    "&lt;": "<",
    "&gt;": ">",
    "&apos;": "'",
    "&quot;": '"',
    "&#91;": "[",
    "&#93;": "]",
    "&amp;": "&",
}
"""Moses writes these characters so; the ampersand comes last, as it is part of the others."""


_ENTITY = re.compile("|".join(ENTITIES))


@dataclass(frozen=True)
class PreparedLines:
    """Lines as subwords see them.

    Args:
        texts: Prepared lines.
        starts: For each line, the raw character at which each prepared character starts; None: the same one.
        ends: The same of where it ends, exclusive. An inserted space stands for no character.
    """

    texts: list[str]
    starts: list[NDArray[np.int32]] | None = field(default=None, repr=False)
    ends: list[NDArray[np.int32]] | None = field(default=None, repr=False)

    def to_raw(self, offsets: NDArray[np.int32], splits: NDArray[np.int64]) -> NDArray[np.int32]:
        """Offsets in prepared lines as offsets in raw lines.

        Args:
            offsets: `[pieces, 2]`, character start and end of each piece in its prepared line.
            splits: `[lines + 1]`, where each line's pieces begin.
        """
        if self.starts is None or self.ends is None:
            return offsets
        raw = np.zeros_like(offsets)
        for line, (first, stop) in enumerate(pairwise(splits.tolist())):
            own = offsets[first:stop]
            filled = own[:, 1] > own[:, 0]
            raw[first:stop][filled, 0] = self.starts[line][own[filled, 0]]
            raw[first:stop][filled, 1] = self.ends[line][own[filled, 1] - 1]
        return raw


@dataclass(frozen=True)
class TextPreparation:
    """How one language's lines are prepared; the same in training and in translation.

    Args:
        language: Language code, for Moses' abbreviations.
        tokenized: Words are what stands between spaces; the spaces are made single.
        unescape: "&apos;" and its like are read as the characters that they stand for.
        moses: Subwords see the line as Moses' tokenizer splits it.
        lowercase: Subwords see the line in lower case; the annotator does not.
    """

    language: str = "en"
    tokenized: bool = False
    unescape: bool = False
    moses: bool = False
    lowercase: bool = False

    def clean(self, line: str) -> str:
        """The raw line, as the annotator sees it."""
        line = unescape(line) if self.unescape else line
        return " ".join(given_words(line)) if self.tokenized else line.replace("\t", " ")

    def clean_offsets(self, line: str, offsets: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
        """Where words of a raw line stand in the clean one.

        Args:
            line: As it was before `clean`.
            offsets: Character start and end of each word in it.
        """
        widths = np.ones(len(line), np.int64)
        if self.unescape:
            for entity in _ENTITY.finditer(line):
                widths[entity.start() + 1 : entity.end()] = 0
        places = np.concatenate([[0], np.cumsum(widths)])
        if self.tokenized:
            places = _single_spaces(unescape(line) if self.unescape else line)[places]
        return [(int(places[start]), int(places[end])) for start, end in offsets]

    def prepare(self, lines: Sequence[str]) -> PreparedLines:
        """Clean lines as subwords see them.

        Raises:
            BackendMissingError: `moses` without the package sacremoses.
        """
        if not self.moses:
            return PreparedLines([lower_case(line) for line in lines] if self.lowercase else list(lines))
        tokenizer = _moses(self.language)
        split = [tokenizer.tokenize(line, escape=False, return_str=True) for line in lines]
        places = [_places(line, text) for line, text in zip(lines, split, strict=True)]
        texts = [lower_case(text) for text in split] if self.lowercase else split
        return PreparedLines(texts, [start for start, _ in places], [end for _, end in places])

    def restore(self, line: str) -> str:
        """A line of output as a reader wants it: what Moses split is joined; case does not come back."""
        return detokenize(line, self.language) if self.moses else line


def unescape(line: str) -> str:
    """Replace Moses' entities by the characters that they stand for."""
    if "&" not in line:
        return line
    for entity, character in ENTITIES.items():
        line = line.replace(entity, character)
    return line


def lower_case(line: str) -> str:
    """Lower case that keeps every character in its place: "İ" alone would become two."""
    lowered = line.lower()
    return lowered if len(lowered) == len(line) else "".join(one.lower()[:1] for one in line)


def detokenize(line: str, language: str) -> str:
    """Join what Moses' tokenizer split.

    Raises:
        BackendMissingError: The package sacremoses is not installed.
    """
    return _moses(language, "MosesDetokenizer").detokenize(line.split(), unescape=False)


@lru_cache(maxsize=16)
def _moses(language: str, kind: str = "MosesTokenizer") -> Any:
    try:
        import sacremoses
    except ImportError as error:
        raise BackendMissingError(
            "sacremoses, Moses' tokenizer for data.moses and data.detokenize,",
            "python -m pip install sacremoses",
        ) from error
    return getattr(sacremoses, kind)(lang=language)


def _single_spaces(line: str) -> NDArray[np.int64]:
    """Place of each character, and of the end, where words are joined by single spaces."""
    stays, spans = np.zeros(len(line), np.int64), spans_of_given_words(line)
    for start, end in spans:
        stays[start:end] = 1
    for _, end in spans[:-1]:
        stays[end] = 1  # the space after the word
    return np.concatenate([[0], np.cumsum(stays)])


def _places(raw: str, text: str) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Raw start and end of each character of a tokenised line: the same characters with spaces between."""
    starts, ends = np.zeros(len(text), np.int32), np.zeros(len(text), np.int32)
    place = 0
    for index, character in enumerate(text):
        found = raw.find(character, place) if character != " " else -1
        if found >= 0:
            starts[index], ends[index] = found, found + 1
            place = found + 1
        else:
            starts[index] = ends[index] = place
    return starts, ends
