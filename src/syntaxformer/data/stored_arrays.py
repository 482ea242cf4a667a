"""Arrays too large for memory: `.npy` files that grow while they are written and are mapped to be read.

They stand in folders of the cache that are written whole or not at all, each under a hash of what it was made
from, with a manifest: a folder that is cut off or changed is made again, and a line says so. No pickle.
"""

from __future__ import annotations

import hashlib
import json
import logging
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

import numpy as np
from filelock import FileLock
from numpy.lib import format as npy
from numpy.typing import DTypeLike, NDArray

from syntaxformer.annotate.corpora.cached import cache_folder
from syntaxformer.errors import CheckpointError, DataError
from syntaxformer.folders import PARTIAL, atomic_folder, verify_manifest

__all__ = ["GrowingArray", "map_array", "stored_folder"]

FORMAT = 2
"""Version of what the folders hold; part of every hash."""

_log = logging.getLogger("syntaxformer.data")


class GrowingArray:
    """An array on disk that is appended to, chunk by chunk; to be used with `with`.

    Args:
        path: The `.npy` file.
        dtype: Type of its numbers on disk.
        row_shape: Shape of one item: (3,) for three columns.
    """

    def __init__(self, path: Path, dtype: DTypeLike, row_shape: tuple[int, ...] = ()) -> None:
        self.path, self.dtype, self.row_shape = path, np.dtype(dtype), row_shape
        self.n_rows = 0
        self._file: BinaryIO = path.open("wb")
        self._header_bytes = self._write_header()

    def append(self, values: NDArray[Any]) -> None:
        """Add rows at the end."""
        # Not by `tofile`, whose errors do not name their cause.
        self._file.write(np.ascontiguousarray(values, self.dtype).tobytes())
        self.n_rows += len(values)

    def _write_header(self) -> int:
        """NumPy leaves room in a header for its first axis to grow, so it can be written over."""
        shape = (self.n_rows, *self.row_shape)
        content = {"descr": npy.dtype_to_descr(self.dtype), "fortran_order": False, "shape": shape}
        npy.write_array_header_1_0(self._file, content)
        return self._file.tell()

    def __enter__(self) -> GrowingArray:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._file:
            if error is None:
                self._file.flush()
                self._file.seek(0)
                assert self._write_header() == self._header_bytes, "NumPy's header left no room to grow"


def map_array(path: Path) -> NDArray[Any]:
    """A `.npy` file as an array that is read from the disk where it is looked at.

    Raises:
        CheckpointError: It is no such file.
    """
    try:
        return np.asarray(np.load(path, mmap_mode="r", allow_pickle=False))
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path}: expected an array, got: {error}.") from error


def stored_folder(
    cache: Path | None, kind: str, made_from: Mapping[str, Any], build: Callable[[Path], None]
) -> Path:
    """The folder of the cache that holds what is made from something; made now if it is not there, whole.

    Of two processes that want the same at once one makes it, and the other waits.

    Args:
        cache: Folder of the cache; None for the user's.
        kind: Subfolder.
        made_from: All that decides the content, as JSON can hold it.
        build: Fills an empty folder.

    Raises:
        DataError: The folder cannot be written.
    """
    identity = json.dumps([FORMAT, kind, made_from], sort_keys=True, default=str)
    folder = (cache or cache_folder()) / kind
    path = folder / hashlib.sha256(identity.encode()).hexdigest()[:32]
    lock = FileLock(f"{path}.lock")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    except OSError as error:
        reason = error.strerror or str(error)
        raise DataError(f"expected a cache folder to write to, got: {reason}.", folder) from error
    try:
        if not _is_whole(path):
            for left in folder.glob(f".{path.name}.*{PARTIAL}"):  # by a process that was killed
                shutil.rmtree(left, ignore_errors=True)
            with atomic_folder(path) as partial:
                build(partial)
    finally:
        lock.release()
    return path


def _is_whole(path: Path) -> bool:
    if not path.exists():
        return False
    try:
        verify_manifest(path)
    except CheckpointError as error:
        _log.warning("making it again: %s", error)
        return False
    return True
