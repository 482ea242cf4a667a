"""Sentences as Arrow columns: the schema of annotated corpora on disk, and the encoder that fills it.

One row a line. Tags are small integer codes into lists that the header holds; words are stored only where
they are not simply their characters in the text.
"""

# pyright: basic
# (pyarrow has no complete types.)

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from syntaxformer.base.errors import DataError
from syntaxformer.trees import Sentence

__all__ = ["CODED", "FORMAT", "SCHEMA", "AnnotationHeader", "SentenceEncoder"]

FORMAT = 1
"""Version of the layout; files of another are refused."""

CODED: dict[str, pa.DataType] = {"upos": pa.int8(), "xpos": pa.int16(), "deprels": pa.int16()}
"""Columns of tags and the integers that stand for them."""

SCHEMA = pa.schema(
    [
        pa.field("text", pa.string(), nullable=False),
        pa.field("words", pa.list_(pa.string())),
        pa.field("starts", pa.list_(pa.int32()), nullable=False),
        pa.field("ends", pa.list_(pa.int32()), nullable=False),
        *(pa.field(column, pa.list_(code)) for column, code in CODED.items()),
        pa.field("governors", pa.list_(pa.int16())),
        pa.field("lemmas", pa.list_(pa.string())),
        pa.field("constituency", pa.string()),
    ]
)

MAX_WORDS = 32_767
"""Words of a line whose governors fit 16 bits."""

_OPTIONAL = ("upos", "xpos", "deprels", "governors", "lemmas", "constituency")


@dataclass(frozen=True, slots=True)
class AnnotationHeader:
    """What a file says about itself.

    Args:
        annotator: Name of the annotator, "en".
        version: Its version.
        content_hash: SHA-256 of the lines that were annotated.
        n_lines: Rows.
        n_words: Words in all rows.
        columns: Columns that every sentence with words has.
        tags: For "upos", "xpos" and "deprels" the tags that the codes 0, 1, … stand for.
        format: Version of the layout.
    """

    annotator: str
    version: str
    content_hash: str
    n_lines: int
    n_words: int
    columns: tuple[str, ...]
    tags: dict[str, tuple[str, ...]]
    format: int = FORMAT

    def to_json(self) -> str:
        """Return the header as JSON."""
        return json.dumps(asdict(self), ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str | bytes) -> AnnotationHeader:
        """Read a header that `to_json` wrote.

        Raises:
            ValueError: It is none, or of another format.
        """
        try:
            values = json.loads(text)
            values["columns"] = tuple(values["columns"])
            values["tags"] = {column: tuple(tags) for column, tags in values["tags"].items()}
            header = cls(**values)
        except (TypeError, KeyError, AttributeError) as error:
            raise ValueError(f"header: expected that of annotations, got {str(error)!r}.") from error
        if header.format != FORMAT:
            raise ValueError(f"header: expected format {FORMAT}, got {header.format}.")
        return header


class _Codes:
    """Integers for tags in the order in which they are first seen."""

    def __init__(self, column: str) -> None:
        self.column = column
        self.limit = 2 ** (CODED[column].bit_width - 1)
        self.of_tag: dict[str, int] = {}

    def encode(self, tags: Sequence[str]) -> list[int]:
        of_tag = self.of_tag
        codes = [of_tag.setdefault(tag, len(of_tag)) for tag in tags]
        if len(of_tag) > self.limit:
            raise DataError(f"{self.column}: expected at most {self.limit} different values, got more.")
        return codes


class SentenceEncoder:
    """Turns sentences into Arrow batches and learns the tag lists on the way."""

    def __init__(self) -> None:
        self._codes = {column: _Codes(column) for column in CODED}
        self._seen: set[str] = set()
        self._missed: set[str] = set()
        self.n_lines = 0
        self.n_words = 0

    def encode(self, sentences: Sequence[Sentence]) -> pa.RecordBatch:
        """Return a batch with a row for each sentence.

        Raises:
            DataError: A sentence has more words or a column more different tags than the format holds.
        """
        rows = [self._row(sentence) for sentence in sentences]
        try:
            return pa.RecordBatch.from_pylist(rows, schema=SCHEMA)
        except UnicodeEncodeError as error:
            raise DataError(
                f"text: expected characters that UTF-8 can hold, got {error.object[error.start]!r}."
            ) from error

    def recode(self, batch: pa.RecordBatch, tags: Mapping[str, Sequence[str]]) -> pa.RecordBatch:
        """Return rows of another file as `encode` would have given them for the same sentences.

        Args:
            batch: Rows with the schema of this module.
            tags: Column → tags of all rows of that file, in the order in which they were first seen there.

        Raises:
            DataError: A column has more different tags than the format holds.
        """
        n_words = batch.column("starts").value_lengths().to_numpy()
        self.n_lines += batch.num_rows
        self.n_words += int(n_words.sum())
        with_words = batch.filter(pa.array(n_words > 0))
        for column in _OPTIONAL:
            n_missing = with_words.column(column).null_count
            if n_missing:
                self._missed.add(column)
            if n_missing < with_words.num_rows:
                self._seen.add(column)
        recoded = {
            column: _recoded(batch.column(column), codes.encode(tags[column]))
            for column, codes in self._codes.items()
        }
        arrays = [recoded.get(name, batch.column(name)) for name in SCHEMA.names]
        return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)

    def header(self, annotator: str, version: str, content_hash: str) -> AnnotationHeader:
        """Return the header of all that was encoded."""
        return AnnotationHeader(
            annotator=annotator,
            version=version,
            content_hash=content_hash,
            n_lines=self.n_lines,
            n_words=self.n_words,
            columns=tuple(column for column in _OPTIONAL if column in self._seen - self._missed),
            tags={column: tuple(codes.of_tag) for column, codes in self._codes.items()},
        )

    def _row(self, sentence: Sentence) -> dict[str, Any]:
        self.n_lines += 1
        self.n_words += len(sentence)
        if len(sentence) > MAX_WORDS:
            raise DataError(
                f"line {self.n_lines} of the text: expected at most {MAX_WORDS:,} words, got "
                f"{len(sentence):,}. Split the line."
            )
        if sentence.words:
            for column in _OPTIONAL:
                (self._missed if getattr(sentence, column) is None else self._seen).add(column)
        row: dict[str, Any] = {
            column: getattr(sentence, column) for column in _OPTIONAL if column not in CODED
        }
        for column, codes in self._codes.items():
            tags = getattr(sentence, column)
            row[column] = None if tags is None else codes.encode(tags)
        row |= {
            "text": sentence.text,
            "words": None if _are_slices(sentence) else sentence.words,
            "starts": [start for start, _ in sentence.offsets],
            "ends": [end for _, end in sentence.offsets],
        }
        return row


def _recoded(lists: pa.ListArray, new_codes: list[int]) -> pa.ListArray:
    """Lists of codes with code i as `new_codes[i]`."""
    lengths = lists.value_lengths().fill_null(0).to_numpy()
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    old = lists.flatten().to_numpy()
    new = np.array(new_codes, dtype=old.dtype)[old] if len(old) else old
    return pa.ListArray.from_arrays(offsets, new, type=lists.type, mask=lists.is_null())


def _are_slices(sentence: Sentence) -> bool:
    text = sentence.text
    return all(
        text[start:end] == word for word, (start, end) in zip(sentence.words, sentence.offsets, strict=True)
    )
