"""From spaCy's `Doc` to the columns of `Sentence`, a whole document at a time.

Tokens of white space are not words: they are dropped, and words governed by one go to its governor.
Knows nothing of loading pipelines or of files.
"""

# pyright: basic
# (spaCy has no complete types.)

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from spacy.attrs import DEP, HEAD, IDX, IS_SPACE, LEMMA, LENGTH, POS, TAG
from spacy.parts_of_speech import NAMES as UPOS_NAMES
from spacy.tokens import Doc

from syntaxformer.trees import ROOT, Sentence

__all__ = ["DocReader", "Part"]

_PLACE = (IDX, LENGTH, IS_SPACE)
_TAGS = {"upos": POS, "xpos": TAG, "lemmas": LEMMA, "deprels": DEP, "governors": HEAD}
_UNKNOWN = {"upos": "X", "deprels": "dep", "xpos": "_", "lemmas": "_"}
"""UD's names for what a pipeline left open."""


class Part(NamedTuple):
    """Columns of one document; `None` where the pipeline does not provide one."""

    starts: list[int]
    ends: list[int]
    tags: dict[str, list[str]]
    governors: list[int] | None


class _Names(dict[int, str]):
    """Names of spaCy's hashes, looked up once each."""

    def __init__(self, strings: Any, unknown: str) -> None:
        super().__init__({0: unknown})
        self.strings = strings

    def __missing__(self, key: int) -> str:
        # A copy of the string: it outlives the memory zone that it was read in.
        name = self[key] = str(self.strings[key])
        return name


class DocReader:
    """Reads documents of one pipeline.

    Args:
        strings: The pipeline's string store.
        provides: Columns to read.
    """

    def __init__(self, strings: Any, provides: frozenset[str]) -> None:
        self.provides = provides
        self._columns = tuple(column for column in _TAGS if column in provides)
        self._attributes = [*_PLACE, *(_TAGS[column] for column in self._columns)]
        self._names: dict[str, dict[int, str]] = {
            column: _Names(strings, unknown) for column, unknown in _UNKNOWN.items() if column != "lemmas"
        }
        self._names["upos"] = {code: name or _UNKNOWN["upos"] for code, name in UPOS_NAMES.items()}
        self._strings = strings

    def read(self, doc: Doc, offset: int = 0) -> Part:
        """Read a document whose text starts at character `offset` of its line."""
        values = doc.to_array(self._attributes).astype(np.int64)
        is_word = values[:, 2] == 0
        starts = values[is_word, 0] + offset
        ends = starts + values[is_word, 1]
        by_name = dict(zip(self._columns, values.T[len(_PLACE) :], strict=True))
        relative = by_name.pop("governors", None)
        governors = None if relative is None else _governors(relative, is_word)
        tags = {column: self._named(column, codes[is_word]) for column, codes in by_name.items()}
        if governors is not None and "deprels" in tags:
            tags["deprels"] = [
                "root" if governor == ROOT else deprel
                for governor, deprel in zip(governors, tags["deprels"], strict=True)
            ]
        return Part(starts.tolist(), ends.tolist(), tags, governors)

    def sentence(self, line: str, parts: list[Part]) -> Sentence:
        """Join the parts of a line, in order, to its sentence."""
        offsets = tuple(pair for part in parts for pair in zip(part.starts, part.ends, strict=True))
        columns: dict[str, Any] = {
            column: tuple(value for part in parts for value in part.tags[column])
            for column in self._columns
            if column != "governors"
        }
        if "governors" in self.provides:
            columns["governors"] = _joined_governors(parts)
        return Sentence(line, tuple([line[start:end] for start, end in offsets]), offsets, **columns)

    def _named(self, column: str, codes: np.ndarray[Any, Any]) -> list[str]:
        if column == "lemmas":  # open class: not kept, so that memory stays constant
            return [self._strings[code] or _UNKNOWN[column] for code in codes.astype(np.uint64).tolist()]
        names = self._names[column]
        keys = codes if column == "upos" else codes.astype(np.uint64)
        return [names[key] for key in keys.tolist()]


def _governors(relative: np.ndarray[Any, Any], is_word: np.ndarray[Any, Any]) -> list[int]:
    """Turn distances to the governor, 0 for roots, into indices among the kept words, -1 for roots."""
    positions = np.arange(len(relative))
    governors = np.where(relative == 0, ROOT, positions + relative)
    if not is_word.all():
        for _ in range(len(governors)):
            at_space = (governors != ROOT) & ~is_word[governors]
            if not at_space.any():
                break
            governors = np.where(at_space, governors[governors], governors)
        new_index = np.cumsum(is_word) - 1
        governors = np.where(governors == ROOT, ROOT, new_index[governors])[is_word]
    return governors.tolist()


def _joined_governors(parts: list[Part]) -> tuple[int, ...]:
    governors: list[int] = []
    for part in parts:
        first = len(governors)
        governors.extend(g if g == ROOT else g + first for g in part.governors or ())
    return tuple(governors)
