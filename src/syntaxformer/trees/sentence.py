"""`Sentence`: one line of text with everything that an annotator found; the table of possible annotations.

It is immutable and plain Python. It knows nothing of pieces (see `syntax`) and little of file formats
(see `COLUMNS`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from sys import intern
from typing import Any, Literal, NamedTuple, cast

from syntaxformer.base.errors import TreeError

ROOT = -1
"""Governor of a word that has none."""


class Column(NamedTuple):
    """What kind of annotation a column holds, for code that stores, reads and checks it.

    Args:
        kind: "tag" is one of few strings for each word, "text" any string, "number" the index of a word;
            "tree" is one string for the whole sentence.
        unknown: The value of a word for which a source gives none; None if every word must have one.
        conllu: Its position in a row of CoNLL-U, from 0; None if it is not a column there.
    """

    kind: Literal["tag", "text", "number", "tree"]
    unknown: str | None = None
    conllu: int | None = None


NO_VALUE = "_"
"""The sign for no value. A sentence may lack a column with this sign ("_" is also an underscore's lemma)."""

COLUMNS = {
    "upos": Column("tag", "X", 3),
    "xpos": Column("tag", NO_VALUE, 4),
    "deprels": Column("tag", "dep", 7),
    "governors": Column("number", conllu=6),
    "lemmas": Column("text", NO_VALUE, 2),
    "feats": Column("tag", NO_VALUE, 5),
    "constituency": Column("tree"),
}
"""The only table of annotations besides words; each is a field of `Sentence`."""

PER_WORD = tuple(name for name, column in COLUMNS.items() if column.kind != "tree")
"""The columns with a value for each word."""


class _Constituency:
    """A field whose brackets are written when they are read, if a function that writes them was given."""

    def __get__(self, sentence: Sentence | None, owner: object = None) -> str | None:
        brackets: Any = None if sentence is None else vars(sentence)["constituency"]
        return cast("str", brackets(sentence)) if callable(brackets) else brackets

    def __set__(self, sentence: Sentence, brackets: str | Callable[[Sentence], str] | None) -> None:
        vars(sentence)["constituency"] = brackets


@dataclass(frozen=True)
class Sentence:
    """One input line: its words and, if known, tags, lemmas and trees over the words.

    Args:
        text: The line as it was read.
        words: Words, `[words]`. They need not cover the text, and two words may share characters (German
            "zum" read as "zu dem").
        offsets: Character start and end of each word in `text`, end exclusive.
        upos: Universal part of speech of each word, or None if unknown.
        xpos: Treebank-specific tag of each word.
        lemmas: Lemma of each word.
        feats: Morphology of each word, "Case=Nom|Number=Sing", or "_" if it has none.
        governors: 0-based index of each word's governor, `ROOT` (-1) if it has none. Several roots are
            allowed, since a line may hold several grammatical sentences.
        deprels: Relation of each word to its governor.
        constituency: Bracketed tree over the words, or `phrase_structure.brackets_of_parse`, which writes it
            from the parse when the brackets are read.

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
    feats: tuple[str, ...] | None = None
    governors: tuple[int, ...] | None = None
    deprels: tuple[str, ...] | None = None
    constituency: _Constituency = _Constituency()

    def __post_init__(self) -> None:
        for column in ("words", "offsets", *PER_WORD):
            values: Any = getattr(self, column)
            if type(values) not in (tuple, type(None)):  # a parser's lists or arrays
                listed: Any = values.tolist() if hasattr(values, "tolist") else values
                items: Any = map(tuple, listed) if column == "offsets" else listed
                object.__setattr__(self, column, values := tuple(items))
            if values is not None and len(values) != len(self.words):
                raise TreeError(
                    f"{column}: expected {len(self.words)} values, one per word, got {len(values)}."
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
    def tree_source(self) -> str | Sentence | None:
        """What its constituency tree is read from: brackets, or the sentence itself, to convert its parse."""
        brackets: Any = vars(self)["constituency"]
        return self if callable(brackets) else brackets

    @property
    def roots(self) -> tuple[int, ...]:
        """Indices of the words without a governor; empty if nothing was parsed."""
        return tuple(word for word, governor in enumerate(self.governors or ()) if governor == ROOT)

    def to_dict(self) -> dict[str, Any]:
        """The sentence as text, numbers and lists, for JSON and Arrow: a cell of the column `syntax`.

        Its keys are `text`, `words`, `starts`, `ends` and those of `COLUMNS`, None where nothing is known.
        """
        starts, ends = ([offset[side] for offset in self.offsets] for side in (0, 1))
        columns = {name: getattr(self, name) for name in ("words", *COLUMNS)}
        listed = {
            name: values if values is None or isinstance(values, str) else [*values]
            for name, values in columns.items()
        }
        return {"text": self.text, "starts": starts, "ends": ends, **listed}

    @classmethod
    def from_dict(cls, row: Mapping[str, Any]) -> Sentence:
        """Read what `to_dict` gave; also from arrays. Without `words`, they are their characters in the text.

        Raises:
            TreeError: As the class.
        """
        cells = {name: value.tolist() if hasattr(value, "tolist") else value for name, value in row.items()}
        offsets = tuple(zip(cells["starts"], cells["ends"], strict=True))
        if (words := cells.get("words")) is None:
            words = [cells["text"][start:end] for start, end in offsets]
        columns: dict[str, Any] = {}
        for name in PER_WORD:
            if (values := cells.get(name)) is not None:
                columns[name] = tuple(map(intern, values) if COLUMNS[name].kind == "tag" else values)
        return cls(cells["text"], tuple(words), offsets, **columns, constituency=cells.get("constituency"))

    @classmethod
    def from_words(
        cls, words: Sequence[str], **columns: tuple[str, ...] | tuple[int, ...] | str | None
    ) -> Sentence:
        """Build a sentence from words joined by single spaces; further columns as in the class."""
        starts = accumulate((len(word) + 1 for word in words), initial=0)
        offsets = tuple((start, start + len(word)) for start, word in zip(starts, words, strict=False))
        return cls(" ".join(words), tuple(words), offsets, **columns)  # type: ignore[arg-type]
