"""Reading annotated corpora: sentences one at a time, or whole columns as flat NumPy arrays.

Small files are held in memory. Large ones are unpacked once to an Arrow file in the cache folder and
memory-mapped, so that millions of lines need little memory and worker processes share them.
"""

# pyright: basic
# (pyarrow has no complete types.)

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, overload

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from syntaxformer.annotate.columns import CODED, SCHEMA, AnnotationHeader
from syntaxformer.annotate.location import cache_folder
from syntaxformer.base.errors import DataError
from syntaxformer.base.files import atomic_file
from syntaxformer.trees import Sentence

__all__ = ["HEADER_KEY", "AnnotatedCorpus", "Columns", "read_annotations"]

HEADER_KEY = b"syntaxformer"
"""Key of the header in the file's metadata."""

IN_MEMORY_BYTES = 64 * 2**20
"""Unpacked size up to which a file is held in memory."""

_log = logging.getLogger(__name__)

_MIRROR_ROWS = 65_536
_REMEDY = "Annotate the text again with `syntaxformer annotate`"


@dataclass(frozen=True, slots=True)
class Columns:
    """Some rows of a corpus, words of all rows one after the other.

    Words of row i are `row_offsets[i]` to `row_offsets[i + 1]`. A column that not every sentence of the
    corpus has is None.

    Args:
        row_offsets: int64 `[rows + 1]`.
        starts: int32 `[words]`, first character of each word in its line.
        ends: int32 `[words]`, character after the last.
        upos: int8 `[words]`, codes into `header.tags["upos"]`.
        xpos: int16 `[words]`, codes into `header.tags["xpos"]`.
        governors: int16 `[words]`, 0-based within the row, -1 for roots.
        deprels: int16 `[words]`, codes into `header.tags["deprels"]`.
    """

    row_offsets: np.ndarray[Any, Any]
    starts: np.ndarray[Any, Any]
    ends: np.ndarray[Any, Any]
    upos: np.ndarray[Any, Any] | None
    xpos: np.ndarray[Any, Any] | None
    governors: np.ndarray[Any, Any] | None
    deprels: np.ndarray[Any, Any] | None


class AnnotatedCorpus(Sequence[Sentence]):
    """Sentences of an annotated file; made by `read_annotations`.

    The rows of a large file are unpacked when the first one is asked for; `header` and length need none.

    Args:
        path: The file.
        header: Its header.
        rows: Its rows, or where they are unpacked to.
    """

    def __init__(self, path: Path, header: AnnotationHeader, rows: pa.Table | Path) -> None:
        self.path = path
        self.header = header
        self._rows = rows

    @cached_property
    def batches(self) -> Sequence[pa.RecordBatch]:
        """The rows as Arrow, with codes for tags.

        Raises:
            DataError: A large file is damaged, or the cache, to which it is unpacked, cannot be written.
        """
        table = _mirrored(self.path, self._rows) if isinstance(self._rows, Path) else self._rows
        return table.to_batches()

    @cached_property
    def _first_rows(self) -> np.ndarray[Any, Any]:
        return np.cumsum([0, *(batch.num_rows for batch in self.batches)])

    def scan(self) -> Iterator[pa.RecordBatch]:
        """Give all rows once, in order; a large file is not unpacked for that.

        Raises:
            DataError: The file is damaged.
        """
        if isinstance(self._rows, Path) and not self._rows.is_file():
            yield from _stored_batches(self.path)
        else:
            yield from self.batches

    def __len__(self) -> int:
        return self.header.n_lines

    def __reduce__(self) -> tuple[Any, ...]:
        cache_dir = self._rows.parents[1] if isinstance(self._rows, Path) else None  # see `_mirror`
        return read_annotations, (self.path, cache_dir)

    @overload
    def __getitem__(self, index: int) -> Sentence: ...
    @overload
    def __getitem__(self, index: slice) -> list[Sentence]: ...
    def __getitem__(self, index: int | slice) -> Sentence | list[Sentence]:
        if isinstance(index, slice):
            return [self[row] for row in range(*index.indices(len(self)))]
        row = index + len(self) if index < 0 else index
        if not 0 <= row < len(self):
            raise IndexError(f"line: expected 0 to {len(self) - 1}, got {index}.")
        batch, within = self._place(row)
        return self._sentence(self.batches[batch].slice(within, 1).to_pylist()[0])

    def __iter__(self) -> Iterator[Sentence]:
        for batch in self.batches:
            for start in range(0, batch.num_rows, 1000):
                yield from map(self._sentence, batch.slice(start, 1000).to_pylist())

    def texts(self, rows: Sequence[int] | np.ndarray[Any, Any]) -> list[str]:
        """Return the lines of some rows."""
        places = (self._place(int(row)) for row in rows)
        return [self.batches[batch].column("text")[within].as_py() for batch, within in places]

    def columns(self, start: int = 0, stop: int | None = None) -> Columns:
        """Return rows `start` to `stop` (exclusive) as flat arrays."""
        first, last, _ = slice(start, stop).indices(len(self))
        return self.columns_of(np.arange(first, max(first, last)))

    def columns_of(self, rows: Sequence[int] | np.ndarray[Any, Any]) -> Columns:
        """Return some rows, in the order given, as flat arrays.

        Raises:
            IndexError: There is no such row.
        """
        wanted = np.asarray(rows, dtype=np.int64)
        if len(wanted) and not (wanted.min() >= 0 and wanted.max() < len(self)):
            raise IndexError(f"line: expected 0 to {len(self) - 1}, got {wanted.min()} to {wanted.max()}.")
        batch_of_row = np.searchsorted(self._first_rows, wanted, side="right") - 1
        lengths = np.zeros(len(wanted), dtype=np.int64)
        picks: list[tuple[int, np.ndarray[Any, Any], np.ndarray[Any, Any]]] = []
        for batch in np.unique(batch_of_row).tolist():
            positions = np.flatnonzero(batch_of_row == batch)
            within = wanted[positions] - self._first_rows[batch]
            offsets = self.batches[batch].column("starts").offsets.to_numpy()
            lengths[positions] = offsets[within + 1] - offsets[within]
            picks.append((batch, positions, offsets[within] - offsets[0]))
        row_offsets = np.concatenate([[0], np.cumsum(lengths)])
        moves = [
            (batch, _ranges(row_offsets[positions], lengths[positions]), _ranges(first, lengths[positions]))
            for batch, positions, first in picks
        ]
        return Columns(row_offsets, *(self._gather(column, moves, row_offsets[-1]) for column in _FLAT))

    def brackets(self, start: int = 0, stop: int | None = None) -> list[str | None] | None:
        """Return the constituency trees of rows `start` to `stop` (exclusive); None where there are none."""
        if "constituency" not in self.header.columns:
            return None
        first, last, _ = slice(start, stop).indices(len(self))
        found: list[str | None] = []
        for batch, offset in zip(self.batches, self._first_rows.tolist(), strict=False):
            part = slice(max(first - offset, 0), max(last - offset, 0))
            found += batch.column("constituency")[part].to_pylist()
        return found

    def _gather(self, column: str, moves: list[Any], n_words: int) -> Any:
        if column not in self.header.columns and column not in ("starts", "ends"):
            return None
        target = np.empty(n_words, dtype=SCHEMA.field(column).type.value_type.to_pandas_dtype())
        for batch, to, origin in moves:
            lists = self.batches[batch].column(column)
            target[to] = lists.values.to_numpy()[lists.offsets[0].as_py() + origin]
        return target

    def _place(self, row: int) -> tuple[int, int]:
        batch = int(np.searchsorted(self._first_rows, row, side="right")) - 1
        return batch, row - int(self._first_rows[batch])

    def _sentence(self, row: dict[str, Any]) -> Sentence:
        text = row["text"]
        offsets = tuple(zip(row["starts"], row["ends"], strict=True))
        words = row["words"]
        for column in CODED:
            if row[column] is not None:
                tags = self.header.tags[column]
                row[column] = tuple([tags[code] for code in row[column]])
        return Sentence(
            text,
            tuple([text[start:end] for start, end in offsets]) if words is None else tuple(words),
            offsets,
            upos=row["upos"],
            xpos=row["xpos"],
            lemmas=_tuple(row["lemmas"]),
            governors=_tuple(row["governors"]),
            deprels=row["deprels"],
            constituency=row["constituency"],
        )


_FLAT = ("starts", "ends", "upos", "xpos", "governors", "deprels")


def read_annotations(path: str | Path, cache_dir: str | Path | None = None) -> AnnotatedCorpus:
    """Open an annotated corpus.

    Args:
        path: A file that `write_annotations` wrote.
        cache_dir: Where a large file is unpacked; by default the cache folder of the user.

    Raises:
        DataError: There is no such file, it is no annotated corpus, or it is damaged; of a large file damage
            to rows is found when they are read.
    """
    path = Path(path)
    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            header = _header(file, path)
            metadata = file.metadata
            size = sum(metadata.row_group(group).total_byte_size for group in range(metadata.num_row_groups))
            if size <= IN_MEMORY_BYTES:
                return AnnotatedCorpus(path, header, file.read().cast(SCHEMA))
    except (pa.ArrowException, OSError) as error:
        raise _damaged(error, path) from error
    return AnnotatedCorpus(path, header, _mirror(path, header, Path(cache_dir or cache_folder())))


def _damaged(error: Exception, path: Path) -> DataError:
    return DataError(f"expected an annotated corpus, got: {error}. {_REMEDY}.", path)


def _header(file: pq.ParquetFile, path: Path) -> AnnotationHeader:
    metadata = file.metadata
    try:
        header = AnnotationHeader.from_json((metadata.metadata or {}).get(HEADER_KEY, b"null"))
    except ValueError as error:
        raise DataError(
            f"expected an annotated corpus, got another file. {error} {_REMEDY}.", path
        ) from error
    if header.n_lines != metadata.num_rows or set(file.schema_arrow.names) != set(SCHEMA.names):
        raise DataError(
            f"expected {header.n_lines} rows with columns {', '.join(SCHEMA.names)}, got "
            f"{metadata.num_rows} rows with {', '.join(file.schema_arrow.names)}. {_REMEDY}.",
            path,
        )
    return header


def _mirror(path: Path, header: AnnotationHeader, cache_dir: Path) -> Path:
    """Where a file is unpacked to."""
    status = path.stat()
    identity = f"{path.resolve()}\0{status.st_size}\0{status.st_mtime_ns}\0{header.to_json()}"
    return cache_dir / "arrow" / f"{hashlib.sha256(identity.encode()).hexdigest()[:32]}.arrow"


def _mirrored(path: Path, mirror: Path) -> pa.Table:
    """Unpack to an Arrow file, unless that was done before, and map it into memory."""
    try:
        return _mapped(mirror)
    except FileNotFoundError:
        pass
    except (pa.ArrowException, OSError) as error:
        _log.warning("unpacking %s again: %s: %s", path, mirror, error)
    with (
        atomic_file(mirror) as temporary,
        pa.OSFile(str(temporary), "wb") as sink,
        pa.ipc.new_stream(sink, SCHEMA) as writer,
    ):
        for batch in _stored_batches(path):
            writer.write_batch(batch)
    return _mapped(mirror)


def _mapped(mirror: Path) -> pa.Table:
    return pa.ipc.open_stream(pa.memory_map(str(mirror))).read_all()


def _stored_batches(path: Path) -> Iterator[pa.RecordBatch]:
    """The rows of a large file, part by part, each page held against its checksum."""
    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            for batch in file.iter_batches(_MIRROR_ROWS):
                yield batch.cast(SCHEMA)
    except (pa.ArrowException, OSError) as error:
        raise _damaged(error, path) from error


def _ranges(starts: np.ndarray[Any, Any], lengths: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return start, start + 1, … for each start, `length` numbers each, one after the other."""
    ends = np.cumsum(lengths)
    return np.repeat(starts - (ends - lengths), lengths) + np.arange(ends[-1] if len(ends) else 0)


def _tuple(values: list[Any] | None) -> tuple[Any, ...] | None:
    return None if values is None else tuple(values)
