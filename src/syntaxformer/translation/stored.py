"""Cache folders for data that is too large for memory or too expensive to make twice.

A folder is written completely or not at all. Its name is a hash of what it was made from. By its manifest, a
truncated or changed folder is recognised and made again, which is logged. Lines of text are an Arrow file.
Encoded pairs are one plain file for each array: a batch needs rows from anywhere at once, which Arrow's
batches do not allow.
"""

# pyright: basic
# (pyarrow has no complete types.)

from __future__ import annotations

import ctypes
import hashlib
import json
import logging
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from syntaxformer.annotate.store import cache_folder, one_at_a_time
from syntaxformer.base.errors import CheckpointError
from syntaxformer.base.files import atomic_folder, read_json, remove_partials, verify_manifest

FORMAT = 5
"""Version of the folders' content, which is part of every hash."""

CHUNK = 10_000
"""Number of lines in memory at a time."""

LINES, ARRAYS = "lines.arrow", "arrays.json"

_log = logging.getLogger("syntaxformer.data")


def stored_folder(
    cache: Path | None, kind: str, made_from: Mapping[str, Any], build: Callable[[Path], None]
) -> Path:
    """Return the cache folder for some content, and make it first if it is missing or damaged.

    If two processes want the same folder at once, one makes it and the other waits. `kind` is a subfolder of
    the cache, by default the user's; `made_from` everything that decides the content, in a form that JSON can
    store; `build` fills an empty folder.

    Raises:
        DataError: The folder cannot be written.
    """
    identity = json.dumps([FORMAT, kind, made_from], sort_keys=True, default=str)
    path = (cache or cache_folder()) / kind / hashlib.sha256(identity.encode()).hexdigest()[:32]
    with one_at_a_time(path):
        is_whole = path.exists()
        try:
            if is_whole:
                verify_manifest(path)
        except CheckpointError as error:
            _log.warning("making a damaged cache folder again: %s", error)
            is_whole = False
        if not is_whole:
            remove_partials(path.parent, of=path.name)
            with atomic_folder(path) as partial:
                build(partial)
    return path


class StoredLines(Sequence[Any]):
    """A column of the lines that `write` stored on disk.

    Args:
        column: "src", "tgt", or "row" for the number of the line in its file.
        rows: Only these lines, in this order; None for all.
    """

    def __init__(self, folder: Path, column: str, rows: NDArray[np.int64] | None = None) -> None:
        self.folder, self.column, self.rows = folder, column, rows
        self._values = pa.ipc.open_file(pa.memory_map(str(folder / LINES))).read_all()[column]

    @classmethod
    def write(cls, folder: Path, lines: Iterator[tuple[str, str, int]]) -> tuple[StoredLines, ...]:
        """Store source, target and number of each line, and return these three columns."""
        schema = pa.schema([("src", pa.string()), ("tgt", pa.string()), ("row", pa.int64())])
        with pa.OSFile(str(folder / LINES), "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
            while chunk := list(islice(lines, CHUNK)):
                columns = dict(zip(schema.names, zip(*chunk, strict=True), strict=True))
                writer.write_batch(pa.RecordBatch.from_pydict(columns, schema))
        return tuple(cls(folder, name) for name in schema.names)

    def take(self, rows: Sequence[int]) -> StoredLines:
        """Select lines, in the order of `rows`."""
        numbers = np.asarray(rows, np.int64)
        return StoredLines(self.folder, self.column, numbers if self.rows is None else self.rows[numbers])

    def __len__(self) -> int:
        return len(self._values if self.rows is None else self.rows)

    def __iter__(self) -> Iterator[Any]:
        for start in range(0, len(self), CHUNK):
            yield from self[start : start + CHUNK]

    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            start, stop, step = index.indices(len(self))
            if self.rows is None and step == 1:
                return self._values.slice(start, max(stop - start, 0)).to_pylist()
            return [self[row] for row in range(start, stop, step)]
        row = index + len(self) if index < 0 else index
        if not 0 <= row < len(self):
            raise IndexError(f"line: expected 0 to {len(self) - 1}, got {index}.")
        return self._values[row if self.rows is None else int(self.rows[row])].as_py()


def joined_arrays(chunks: Iterable[Mapping[str, NDArray[Any]]]) -> dict[str, NDArray[Any]]:
    """The arrays of all chunks by name, in memory; see `write_arrays`."""
    all_chunks = list(_continued(chunks))
    return {name: np.concatenate([chunk[name] for chunk in all_chunks]) for name in all_chunks[0]}


def _continued(chunks: Iterable[Mapping[str, NDArray[Any]]]) -> Iterator[dict[str, NDArray[Any]]]:
    """The chunks; arrays whose names end in "splits", where lines begin, go on from the chunk before."""
    last: dict[str, int] = {}
    for chunk in chunks:
        arrays = dict(chunk)
        for name in (name for name in chunk if name.endswith("splits")):
            values = chunk[name] + last.get(name, 0)
            arrays[name] = values[1:] if name in last else values
            last[name] = int(values[-1])
        yield arrays


def write_arrays(folder: Path, chunks: Iterable[Mapping[str, NDArray[Any]]]) -> None:
    """Write arrays by name into a folder, chunk by chunk, each with the type of its first chunk.

    Arrays whose names end in "splits" say where lines begin; each chunk continues those of the chunk before.
    """
    with ExitStack() as stack:
        files: dict[str, Any] = {}
        about: dict[str, tuple[str, list[int]]] = {}
        for chunk in _continued(chunks):
            for name, values in chunk.items():
                if name not in files:
                    files[name] = stack.enter_context((folder / name).open("wb"))
                    about[name] = (values.dtype.str, [0, *values.shape[1:]])
                dtype, shape = about[name]
                # Not by `tofile`, whose errors do not name their cause.
                files[name].write(np.ascontiguousarray(values, dtype).tobytes())
                shape[0] += len(values)
    (folder / ARRAYS).write_text(json.dumps(about), "utf-8")


def map_arrays(folder: Path) -> dict[str, NDArray[Any]]:
    """The arrays that `write_arrays` wrote, by name, mapped into memory."""
    return {
        name: np.zeros(shape, dtype)  # an empty file cannot be mapped
        if 0 in shape
        else np.asarray(np.memmap(folder / name, dtype, "r", shape=tuple(shape)))
        for name, (dtype, shape) in read_json(folder / ARRAYS).items()
    }


def give_memory_back() -> None:
    """Return memory of past chunks from the allocators to the system: 600 MB after ten million pairs.

    Arrow's pool can do this on any system, the C library only if it is glibc.
    """
    pa.default_memory_pool().release_unused()
    if sys.platform == "linux" and hasattr(library := ctypes.CDLL(None), "malloc_trim"):
        library.malloc_trim(0)
