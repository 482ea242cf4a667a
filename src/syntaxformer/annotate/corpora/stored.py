"""Annotated corpora on disk: a Parquet file, one row per line, written whole or not at all.

Its header names the annotator and the text. Tags are text, which Parquet stores as codes; words are stored
only if they differ from their characters in the text. Rows are read group by group, never all at once.
"""

# pyright: basic
# (pyarrow has no complete types.)

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any, overload

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from syntaxformer.annotate.annotator import hashed_line
from syntaxformer.base.errors import DataError
from syntaxformer.base.files import atomic_file
from syntaxformer.trees import Sentence
from syntaxformer.trees.sentence import COLUMNS, PER_WORD

pc: Any = import_module("pyarrow.compute")  # its functions are created on import

FORMAT = 3
"""Version of the layout; files with another version are refused."""

ROWS_PER_GROUP = 4096
"""Lines that are in memory at once."""

_TYPES = {
    **dict.fromkeys(("tag", "text"), pa.list_(pa.string())),
    "number": pa.list_(pa.int16()),
    "tree": pa.string(),
}
_STRINGS = tuple(name for name, column in COLUMNS.items() if column.kind in ("tag", "text"))
_TAGS = tuple(name for name in _STRINGS if COLUMNS[name].kind == "tag")
SCHEMA = pa.schema(
    [
        pa.field("text", pa.string(), nullable=False),
        pa.field("words", pa.list_(pa.string())),
        pa.field("starts", pa.list_(pa.int32()), nullable=False),
        pa.field("ends", pa.list_(pa.int32()), nullable=False),
        *(pa.field(name, _TYPES[column.kind]) for name, column in COLUMNS.items()),
    ]
)
_CODES = pa.list_(pa.dictionary(pa.int32(), pa.string()))
_CODED = pa.schema([field.with_type(_CODES) if field.name in _STRINGS else field for field in SCHEMA])
"""The schema for reading codes, which are turned into strings only if these are needed."""

MAX_WORDS = 32_767
"""Most words of a line, so that governors fit into 16 bits."""

_HEADER_KEY = "syntaxformer"
_REMEDY = "Annotate the text again with `syntaxformer annotate`"


@dataclass(frozen=True, slots=True)
class AnnotationHeader:
    """What a file says about itself: the hash is `hash_lines` of its text; all sentences have the columns."""

    annotator: str
    version: str
    content_hash: str
    n_lines: int
    n_words: int
    columns: tuple[str, ...]
    format: int = FORMAT

    @classmethod
    def from_json(cls, text: str | bytes) -> AnnotationHeader:
        """Read a header.

        Raises:
            ValueError: It is no header, or has another format.
        """
        values = json.loads(text)
        if isinstance(values, dict) and values.get("format", FORMAT) != FORMAT:
            raise ValueError(f"header: expected format {FORMAT}, got {values['format']}.")
        try:
            return cls(**{**values, "columns": tuple(values["columns"])})
        except (TypeError, KeyError, AttributeError) as error:
            raise ValueError(f"header: expected that of annotations, got {str(error)!r}.") from error


@dataclass(frozen=True, slots=True)
class Columns:
    """Some rows of a corpus as flat arrays: the words of all rows, one after the other.

    The words of row i are `row_offsets[i]` to `row_offsets[i + 1]`.

    Args:
        row_offsets: int64 `[rows + 1]`.
        starts: int32 `[words]`, first character of each word in its line.
        ends: int32 `[words]`, character after the last.
        values: `[words]` for each column that was requested and that every sentence has. Governors are int16,
            0-based within the row, -1 for roots; others are int32 codes into `tags`; trees are the brackets
            of each row.
        tags: The strings that the codes 0, 1, … of a column stand for.
    """

    row_offsets: np.ndarray[Any, Any]
    starts: np.ndarray[Any, Any]
    ends: np.ndarray[Any, Any]
    values: dict[str, Any]
    tags: dict[str, tuple[str, ...]]


class AnnotatedCorpus(Sequence[Sentence]):
    """Sentences of an annotated file; made by `read_annotations`."""

    def __init__(self, path: Path, header: AnnotationHeader, file: pq.ParquetFile) -> None:
        self.path, self.header, self._file = path, header, file

    def __len__(self) -> int:
        return self.header.n_lines

    def __reduce__(self) -> tuple[Any, ...]:
        return read_annotations, (self.path,)

    @overload
    def __getitem__(self, index: int) -> Sentence: ...
    @overload
    def __getitem__(self, index: slice) -> list[Sentence]: ...
    def __getitem__(self, index: int | slice) -> Sentence | list[Sentence]:
        if isinstance(index, slice):
            return list(sentences_of(self.take(np.arange(len(self))[index])))
        row = index + len(self) if index < 0 else index
        if not 0 <= row < len(self):
            raise IndexError(f"line: expected 0 to {len(self) - 1}, got {index}.")
        return next(sentences_of(self.table(row, row + 1)))

    def __iter__(self) -> Iterator[Sentence]:
        for table in self.tables():
            yield from sentences_of(table)

    def tables(self) -> Iterator[pa.Table]:
        """Yield all rows once, in order, as Arrow tables.

        Raises:
            DataError: The file is damaged.
        """
        for group in range(self._file.num_row_groups):
            yield self._read(group)

    def table(self, start: int = 0, stop: int | None = None, schema: pa.Schema = SCHEMA) -> pa.Table:
        """Return rows `start` to `stop` (exclusive) as an Arrow table with the columns of a schema.

        Raises:
            DataError: The file is damaged.
        """
        first, last, _ = slice(start, stop).indices(len(self))
        if last <= first:
            return schema.empty_table()
        groups = range(self._group(first), self._group(last - 1) + 1)
        rows = pa.concat_tables([self._read(group, schema) for group in groups])
        return rows.slice(first - int(self._bounds[groups[0]]), last - first)

    def take(self, rows: np.ndarray[Any, Any]) -> pa.Table:
        """Return some rows in the given order; each group that holds any of them is read once.

        Raises:
            DataError: The file is damaged.
        """
        groups = self._group(rows)
        order = np.argsort(groups, kind="stable")
        parts = [SCHEMA.empty_table()]
        for group in np.unique(groups).tolist():
            parts.append(self._read(group).take(rows[groups == group] - self._bounds[group]))
        return pa.concat_tables(parts).take(np.argsort(order))

    def columns(
        self, start: int = 0, stop: int | None = None, names: Collection[str] = (*_TAGS, "governors")
    ) -> Columns:
        """Return rows `start` to `stop` (exclusive) as flat arrays, with those named columns that exist."""
        wanted = [name for name in COLUMNS if name in names and name in self.header.columns]
        table = self.table(
            start, stop, pa.schema([_CODED.field(name) for name in ("starts", "ends", *wanted)])
        )
        lengths = pc.list_value_length(table["starts"]).to_numpy()
        values: dict[str, Any] = {}
        tags: dict[str, tuple[str, ...]] = {}
        for name in table.column_names:
            if name not in PER_WORD and name in COLUMNS:
                values[name] = table[name].to_pylist()
                continue
            flat = pc.list_flatten(table[name])
            if name in _STRINGS:
                coded = flat.unify_dictionaries().combine_chunks()
                tags[name], flat = tuple(coded.dictionary.to_pylist()), coded.indices
            values[name] = flat.to_numpy()
        row_offsets = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
        return Columns(row_offsets, values.pop("starts"), values.pop("ends"), values, tags)

    @cached_property
    def _bounds(self) -> np.ndarray[Any, Any]:
        """The first row of each group, and the end."""
        metadata = self._file.metadata
        return np.cumsum([0, *(metadata.row_group(i).num_rows for i in range(metadata.num_row_groups))])

    def _group(self, row: Any) -> Any:
        return np.searchsorted(self._bounds, row, side="right") - 1

    def _read(self, group: int, schema: pa.Schema = SCHEMA) -> pa.Table:
        about = self._file.metadata.row_group(group)
        n_words = max(about.column(place).num_values for place in range(about.num_columns))
        _check_size(max(about.total_byte_size, _BYTES_OF_A_WORD * n_words), self.path)
        try:
            # Arrow's own threads make it slower: a column of a group is too little work for a thread.
            read = self._file.read_row_group(group, columns=schema.names, use_threads=False)
            _check_size(read.nbytes + sum(map(_n_bytes, read.columns)), self.path)
            return read.select(schema.names).cast(schema)
        except (pa.ArrowException, OSError) as error:
            raise _damaged(error, self.path) from error


def read_annotations(path: str | Path) -> AnnotatedCorpus:
    """Open an annotated corpus.

    Raises:
        DataError: There is no such file, or it is no annotated corpus. Damaged rows are found when they are
            read.
    """
    path = Path(path)
    try:
        metadata = pq.read_metadata(path)
        found = metadata.schema.to_arrow_schema().names
    except (pa.ArrowException, OSError) as error:
        raise _damaged(error, path) from error
    try:
        header = AnnotationHeader.from_json((metadata.metadata or {}).get(_HEADER_KEY.encode(), b"null"))
    except ValueError as error:
        raise DataError(
            f"expected an annotated corpus, got another file. {error} {_REMEDY}.", path
        ) from error
    if header.n_lines != metadata.num_rows or set(found) != set(SCHEMA.names):
        raise DataError(
            f"expected {header.n_lines} rows with columns {', '.join(SCHEMA.names)}, got "
            f"{metadata.num_rows} rows with {', '.join(found)}. {_REMEDY}.",
            path,
        )
    coded = ["text", "constituency", *(f"{name}.list.element" for name in ("words", *_STRINGS))]
    try:
        file = pq.ParquetFile(path, metadata=metadata, page_checksum_verification=True, read_dictionary=coded)
    except (pa.ArrowException, OSError, KeyError) as error:  # KeyError: a column has another type
        raise _damaged(error, path) from error
    return AnnotatedCorpus(path, header, file)


_MOST_BYTES, _BYTES_OF_A_WORD = 2**28, 16
"""Of a group in memory: a long string, or a number, that is stored once may stand in every row."""


def _n_bytes(column: pa.ChunkedArray) -> int:
    """Bytes of the strings that the codes of a column stand for."""
    flat = [pc.list_flatten(one) if pa.types.is_list(one.type) else one for one in column.chunks]
    codes = [one for one in flat if pa.types.is_dictionary(one.type)]
    return sum(pc.sum(pc.binary_length(one.dictionary).take(one.indices)).as_py() or 0 for one in codes)


def _check_size(n_bytes: int, path: Path) -> None:
    if n_bytes > _MOST_BYTES:
        raise DataError(f"expected at most {_MOST_BYTES} bytes in a group of lines, got {n_bytes}.", path)


def _damaged(error: Exception, path: Path) -> DataError:
    return DataError(f"expected an annotated corpus, got: {error}. {_REMEDY}.", path)


def sentences_of(table: pa.Table) -> Iterator[Sentence]:
    """Yield the sentences of some rows, one after the other."""
    for batch in table.to_batches(max_chunksize=1000):
        yield from map(Sentence.from_dict, batch.to_pylist())


def write_annotations(
    path: str | Path, sentences: Iterable[Sentence], *, annotator: str, version: str, content_hash: str
) -> None:
    """Write sentences as they come, in constant memory; the file appears whole or not at all.

    An older file of that name is replaced. `content_hash` is `hash_lines` of the text.

    Raises:
        DataError: The disk is full or not writable, or a sentence does not fit the format.
    """
    rows = enumerate(sentences, 1)
    groups = iter(lambda: list(islice(rows, ROWS_PER_GROUP)), [])
    _write(path, map(_table, groups), annotator, version, content_hash)


def merge_annotations(
    path: str | Path, parts: Iterable[str | Path], *, annotator: str, version: str, content_hash: str
) -> None:
    """Write the rows of several annotated corpora into one file, the same bytes as `write_annotations` gives.

    The parts are files of `write_annotations`, in order; the other arguments are the same as there.

    Raises:
        DataError: A part cannot be read, the lines are not those of the text, or the disk is full.
    """

    def tables() -> Iterator[pa.Table]:
        digest, n_lines = hashlib.sha256(), 0
        for part in parts:
            for table in read_annotations(part).tables():
                n_lines += len(table)
                for text in table["text"].to_pylist():
                    digest.update(hashed_line(text))
                yield table
        if digest.hexdigest() != content_hash:
            raise DataError(
                f"expected the parts to hold the lines of the text in their order, got {n_lines} lines that "
                "differ. Nothing was written.",
                Path(path),
            )

    _write(path, tables(), annotator, version, content_hash)


def _write(
    path: str | Path, tables: Iterable[pa.Table], annotator: str, version: str, content_hash: str
) -> None:
    n_lines = n_words = 0
    seen, missed = set[str](), set[str]()
    with (
        atomic_file(path) as temporary,
        pq.ParquetWriter(temporary, SCHEMA, compression="zstd", write_page_checksum=True) as writer,
    ):
        for table in _groups(tables):
            lengths = pc.list_value_length(table["starts"])
            n_lines, n_words = n_lines + len(table), n_words + (pc.sum(lengths).as_py() or 0)
            _check_size(_BYTES_OF_A_WORD * (pc.sum(lengths).as_py() or 0), Path(path))
            with_words = pc.greater(lengths, 0)
            for column in COLUMNS:
                for has, columns in ((pc.is_valid, seen), (pc.is_null, missed)):
                    if pc.any(pc.and_(has(table[column]), with_words)).as_py():
                        columns.add(column)
            writer.write_table(table)
        columns = tuple(column for column in COLUMNS if column in seen - missed)
        header = AnnotationHeader(annotator, version, content_hash, n_lines, n_words, columns)
        writer.add_key_value_metadata({_HEADER_KEY: json.dumps(asdict(header), ensure_ascii=False)})


def _groups(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Regroup the rows into tables of `ROWS_PER_GROUP`; the last may be shorter."""
    rest = SCHEMA.empty_table()
    for table in tables:
        rest = pa.concat_tables([rest, table])
        while len(rest) >= ROWS_PER_GROUP:
            yield rest[:ROWS_PER_GROUP].combine_chunks()
            rest = rest[ROWS_PER_GROUP:]
    if len(rest):
        yield rest.combine_chunks()


def _table(rows: Sequence[tuple[int, Sentence]]) -> pa.Table:
    """Turn numbered sentences into rows."""
    for number, sentence in rows:
        if len(sentence) > MAX_WORDS:
            raise DataError(
                f"line {number} of the text: expected at most {MAX_WORDS:,} words, got {len(sentence):,}. "
                "Split the line."
            )
    sentences = [sentence for _, sentence in rows]
    columns: dict[str, Any] = {name: [getattr(one, name) for one in sentences] for name in COLUMNS}
    columns |= {
        "text": [one.text for one in sentences],
        "words": [None if _are_slices(one) else one.words for one in sentences],
        "starts": [[start for start, _ in one.offsets] for one in sentences],
        "ends": [[end for _, end in one.offsets] for one in sentences],
    }
    try:
        return pa.Table.from_pydict(columns, SCHEMA)
    except UnicodeEncodeError as error:
        raise DataError(
            f"text: expected characters that UTF-8 can hold, got {error.object[error.start]!r}."
        ) from error


def _are_slices(sentence: Sentence) -> bool:
    text = sentence.text
    return all(
        text[start:end] == word for word, (start, end) in zip(sentence.words, sentence.offsets, strict=True)
    )
