"""Annotated text on disk: a Parquet file for each text, and the cache in which nothing is annotated twice.

A file has one row for each line and is written whole or not at all. Its header names the annotator and the
text. Tags are text, which Parquet stores as codes; words are stored only if they differ from their characters
in the text. Rows are read group by group, never all at once.
"""

# pyright: basic
# (pyarrow has no complete types.)

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Collection, Generator, Iterable, Iterator, Sequence, Sized
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any, overload

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from filelock import FileLock

from syntaxformer.annotate.annotator import Annotator, chunks_of, hash_lines
from syntaxformer.base.errors import ConfigError, DataError
from syntaxformer.base.files import atomic_file, remove_partials
from syntaxformer.base.progress import track
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
_UNREADABLE = (pa.ArrowException, OSError, UnicodeDecodeError)
"""What Arrow raises for damaged files; names of columns may be no UTF-8."""


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
        column_names = [name for name in COLUMNS if name in names and name in self.header.columns]
        schema = pa.schema([_CODED.field(name) for name in ("starts", "ends", *column_names)])
        table = self.table(start, stop, schema)
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
        n_words = max(about.column(index).num_values for index in range(about.num_columns))
        _check_size(max(about.total_byte_size, _BYTES_OF_A_WORD * n_words), self.path)
        try:
            # Arrow's own threads make it slower: a column of a group is too little work for a thread.
            read = self._file.read_row_group(group, columns=schema.names, use_threads=False)
            _check_size(read.nbytes + sum(map(_n_bytes, read.columns)), self.path)
            return read.select(schema.names).cast(schema)
        except _UNREADABLE as error:
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
        names = metadata.schema.to_arrow_schema().names
    except _UNREADABLE as error:
        raise _damaged(error, path) from error
    try:
        values = json.loads((metadata.metadata or {}).get(_HEADER_KEY.encode(), b"{}"))
        if values.get("format") != FORMAT:  # others may have other keys
            raise ValueError(f"header: expected format {FORMAT}, got {values.get('format')}.")
        header = AnnotationHeader(**{**values, "columns": tuple(values["columns"])})
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise DataError(
            f"expected an annotated corpus, got another file. {error} {_REMEDY}.", path
        ) from error
    if header.n_lines != metadata.num_rows or set(names) != set(SCHEMA.names):
        raise DataError(
            f"expected {header.n_lines} rows with columns {', '.join(SCHEMA.names)}, got "
            f"{metadata.num_rows} rows with {', '.join(names)}. {_REMEDY}.",
            path,
        )
    coded = ["text", "constituency", *(f"{name}.list.element" for name in ("words", *_STRINGS))]
    try:
        file = pq.ParquetFile(path, metadata=metadata, page_checksum_verification=True, read_dictionary=coded)
    except (*_UNREADABLE, KeyError) as error:  # KeyError: a column has another type
        raise _damaged(error, path) from error
    return AnnotatedCorpus(path, header, file)


_MOST_BYTES, _BYTES_OF_A_WORD = 2**28, 16
"""Of a group in memory: a long string, or a number, that is stored once may stand in every row."""


def _n_bytes(column: pa.ChunkedArray) -> int:
    """Bytes of the strings that the codes of a column stand for."""
    flat = [pc.list_flatten(chunk) if pa.types.is_list(chunk.type) else chunk for chunk in column.chunks]
    coded = [chunk for chunk in flat if pa.types.is_dictionary(chunk.type)]
    return sum(pc.sum(pc.binary_length(each.dictionary).take(each.indices)).as_py() or 0 for each in coded)


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
    path: str | Path,
    sentences: Iterable[Sentence],
    *,
    annotator: str,
    version: str,
    content_hash: str,
    first: int = 0,
) -> None:
    """Write sentences as they come, in constant memory; the file appears whole or not at all.

    An older file of that name is replaced. `content_hash` is `hash_lines` of the text; `first`, for messages,
    counts the lines before these.

    Raises:
        DataError: The disk is full or not writable, or a sentence does not fit the format.
    """
    groups = enumerate(chunks_of(sentences, ROWS_PER_GROUP))
    tables = (sentence_table(group, first + number * ROWS_PER_GROUP + 1) for number, group in groups)
    write_tables(path, tables, annotator=annotator, version=version, content_hash=content_hash)


def write_tables(
    path: str | Path, tables: Iterable[pa.Table], *, annotator: str, version: str, content_hash: str
) -> None:
    """Write rows of other files, as `write_annotations`; the same rows give the same bytes.

    Raises:
        DataError: A table cannot be read, or the disk is full or not writable.
    """
    n_lines = n_words = 0
    seen, missed = set[str](), set[str]()
    with (
        atomic_file(path) as temporary,
        pq.ParquetWriter(temporary, SCHEMA, compression="zstd", write_page_checksum=True) as writer,
    ):
        for table in _groups(tables):
            lengths = pc.list_value_length(table["starts"])
            n_words_here = pc.sum(lengths).as_py() or 0
            n_lines, n_words = n_lines + len(table), n_words + n_words_here
            _check_size(_BYTES_OF_A_WORD * n_words_here, Path(path))
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


def sentence_table(sentences: Sequence[Sentence], first: int = 1) -> pa.Table:
    """Turn sentences into rows; the number of the first line is for messages."""
    for number, sentence in enumerate(sentences, first):  # before phrases are made, which takes time
        if len(sentence) > MAX_WORDS:
            raise DataError(
                f"line {number} of the text: expected at most {MAX_WORDS:,} words, got {len(sentence):,}. "
                "Split the line."
            )
    names = ("text", "words", *COLUMNS)
    columns: dict[str, Any] = {name: [getattr(sentence, name) for sentence in sentences] for name in names}
    for row, sentence in enumerate(sentences):  # words that are their characters in the text are not stored
        if sentence.words == tuple(sentence.text[start:end] for start, end in sentence.offsets):
            columns["words"][row] = None
    for side, name in enumerate(("starts", "ends")):
        columns[name] = [[offset[side] for offset in sentence.offsets] for sentence in sentences]
    try:
        return pa.Table.from_pydict(columns, SCHEMA)
    except UnicodeEncodeError as error:
        raise DataError(
            f"text: expected characters that UTF-8 can hold, got {error.object[error.start]!r}."
        ) from error


_LINES_AT_A_TIME = 100_000
"""Lines that are looked up together; worker processes, if any, are started again for each such group."""

_log = logging.getLogger(__name__)


def annotate_to_file(
    path: str | Path,
    lines: Iterable[str],
    annotator: Annotator,
    *,
    n_processes: int = 1,
    progress: bool = False,
    content_hash: str | None = None,
) -> AnnotatedCorpus:
    """Annotate lines into a file, unless it already holds exactly that.

    The text is a list or `SourceLines`; the lines of an iterator, which can be read only once, are kept in
    memory. `content_hash` is `hash_lines` of them, if it is known.

    Raises:
        DataError: The text cannot be read, or the file cannot be written.
    """
    lines = list(lines) if isinstance(lines, Iterator) else lines
    identity = (annotator.name, annotator.version, content_hash or hash_lines(lines))
    if (corpus := read_if_current(Path(path), identity, annotator.provides)) is not None:
        return corpus
    total = len(lines) if isinstance(lines, Sized) else None
    sentences = annotator.stream(lines, n_processes=n_processes)
    sentences = track(sentences, f"annotating ({annotator.name})", total, enabled=progress)
    name, version, content_hash = identity
    write_annotations(path, sentences, annotator=name, version=version, content_hash=content_hash)
    return read_annotations(path)


def annotate_cached(
    lines: Iterable[str],
    annotator: Annotator,
    cache_dir: str | Path | None = None,
    *,
    n_processes: int = 1,
    progress: bool = False,
) -> AnnotatedCorpus:
    """Annotate lines, or return an earlier annotation of the same text, annotator and version.

    If two processes want the same annotation at once, the second waits for the first. Lines are as in
    `annotate_to_file`; `cache_dir` is by default `$SYNTAXFORMER_CACHE` or `~/.cache/syntaxformer`.

    Raises:
        DataError: The text cannot be read, or the cache cannot be written.
    """
    lines = list(lines) if isinstance(lines, Iterator) else lines
    content_hash = hash_lines(lines)
    path = cache_path(cache_dir, annotator, content_hash)
    with one_at_a_time(path):
        remove_partials(path.parent, of=path.name)  # left by processes that were killed
        return annotate_to_file(
            path, lines, annotator, n_processes=n_processes, progress=progress, content_hash=content_hash
        )


def cache_folder() -> Path:
    """Return `$SYNTAXFORMER_CACHE`, or else the folder `syntaxformer` in `$XDG_CACHE_HOME` or `~/.cache`."""
    if folder := os.environ.get("SYNTAXFORMER_CACHE"):
        return Path(folder).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "syntaxformer"


def cache_path(cache_dir: str | Path | None, annotator: Annotator, content_hash: str) -> Path:
    """Where the cache keeps the annotation of a text with this hash."""
    identity = "\0".join([str(FORMAT), annotator.name, annotator.version, content_hash])
    folder = (Path(cache_dir) if cache_dir else cache_folder()) / "annotations"
    return folder / f"{hashlib.sha256(identity.encode()).hexdigest()[:32]}.parquet"


@contextmanager
def one_at_a_time(path: Path) -> Generator[None, None, None]:
    """Lock a path of the cache against other processes that would write the same.

    Raises:
        DataError: The cache cannot be written.
    """
    lock = FileLock(f"{path}.lock")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    except OSError as error:
        reason = error.strerror or str(error)
        raise DataError(f"expected a cache folder to write to, got: {reason}.", path.parent) from error
    try:
        yield
    finally:
        lock.release()


def read_if_current(
    path: Path, identity: tuple[str, str, str], columns: Collection[str] = ()
) -> AnnotatedCorpus | None:
    """Return a file's annotation if its annotator, version and hash of the text are these, else None.

    A damaged file also gives None, and so does one that lacks some of the `columns`.
    """
    if not path.is_file():
        return None
    try:
        corpus = read_annotations(path)
        header = corpus.header
        if (header.annotator, header.version, header.content_hash) != identity:
            return None
        if header.n_words and (lacking := {*columns} & {*COLUMNS} - {*header.columns}):
            _log.info("annotating again: %s lacks %s", path, ", ".join(sorted(lacking)))
            return None
        for _ in corpus.tables():  # damage is found by reading
            pass
    except DataError as error:
        _log.warning("annotating again: %s", error)
        return None
    return corpus


class AnnotatedInOrder(Annotator):
    """The sentences of an annotated text for its lines in their order, spread over any number of calls.

    Equal lines may have different parses, as in a treebank.
    """

    def __init__(self, corpus: AnnotatedCorpus) -> None:
        header = corpus.header
        self.name, self.version, self.provides = header.annotator, header.version, frozenset(header.columns)
        self._waiting = iter(corpus)

    def stream(self, lines: Iterable[str], *, n_processes: int = 1) -> Iterator[Sentence]:
        """Yield the sentences of the next lines; DataError if they are not the next ones."""
        for line in lines:
            sentence = next(self._waiting, None)
            if sentence is None or sentence.text != line:
                raise DataError(f"annotation: expected its lines in their order, got {line[:40]!r}.")
            yield sentence


class AnnotatedBefore(Annotator):
    """An annotator with files that it annotated before; its name and version stay the same.

    Lines are found by their text, in any order. Each line of the files takes 16 bytes of memory.

    Raises:
        ConfigError: A file comes from another annotator or version, or lacks a column.
        DataError: A file cannot be read.
    """

    def __init__(self, annotator: Annotator, paths: Iterable[str | Path]) -> None:
        self.annotator = annotator
        self.name, self.version, self.provides = annotator.name, annotator.version, annotator.provides
        self._corpora = [read_annotations(path) for path in paths]
        for path, header in ((corpus.path, corpus.header) for corpus in self._corpora):
            if (header.annotator, header.version) != (self.name, self.version):
                raise ConfigError(
                    f"annotation.annotated: expected files by {self.name} {self.version}, got {path} by "
                    f"{header.annotator} {header.version}. Annotate the text again, or leave the file out."
                )
            if header.n_words and (lacking := self.provides - set(header.columns)):
                raise ConfigError(
                    f"annotation.annotated: expected files with {', '.join(sorted(lacking))}, got {path} "
                    "without. Annotate the text again."
                )

    @cached_property
    def _indices(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """For each file the sorted hashes of its lines, and the row of each."""
        indices = []
        for corpus in self._corpora:
            hashes = _hashes(text for table in corpus.tables() for text in table["text"].to_pylist())
            rows = np.argsort(hashes, kind="stable")
            indices.append((hashes[rows], rows))
        return indices

    def stream(self, lines: Iterable[str], *, n_processes: int = 1) -> Iterator[Sentence]:
        """Yield one sentence for each line, in order, in constant memory."""
        n_lines = n_known = 0
        for chunk in chunks_of(lines, _LINES_AT_A_TIME):
            sources: dict[int, Iterator[Sentence]] = {}
            for corpus, index in zip(self._corpora, self._indices, strict=True):
                unknown = {at: line for at, line in enumerate(chunk) if at not in sources}
                numbers, rows = _look_up(corpus, *index, unknown)
                sources |= dict.fromkeys(numbers, sentences_of(rows))
            missing = [line for at, line in enumerate(chunk) if at not in sources]
            annotated = self.annotator.stream(missing, n_processes=n_processes)
            for at in range(len(chunk)):
                yield next(sources.get(at, annotated))
            n_lines, n_known = n_lines + len(chunk), n_known + len(sources)
        _log.info("annotation: %d of %d lines were annotated before", n_known, n_lines)

    def annotate_words(self, sentences: Iterable[Sequence[str]]) -> list[Sentence]:
        """Return one sentence for each list of words, annotated anew."""
        return self.annotator.annotate_words(sentences)


def _look_up(
    corpus: AnnotatedCorpus, hashes: np.ndarray, rows: np.ndarray, lines: dict[int, str]
) -> tuple[list[int], pa.Table]:
    """The numbers of those lines that a file has, and their rows."""
    if not len(rows):
        return [], SCHEMA.empty_table()
    numbers, searched = np.array([*lines], np.int64), _hashes(lines.values())
    nearest = np.minimum(np.searchsorted(hashes, searched), len(rows) - 1)
    equal = hashes[nearest] == searched
    numbers, table = numbers[equal], corpus.take(rows[nearest[equal]])
    texts = zip(numbers.tolist(), table["text"].to_pylist(), strict=True)
    same = np.array([lines[number] == text for number, text in texts], bool)
    return numbers[same].tolist(), table.filter(pa.array(same))


def _hashes(lines: Iterable[str]) -> np.ndarray:
    digests = (hashlib.blake2b(line.encode("utf-8", "surrogatepass"), digest_size=8) for line in lines)
    return np.fromiter((int.from_bytes(digest.digest()) for digest in digests), np.uint64)
