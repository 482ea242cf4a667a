"""Writing a file whole or not at all.

The content goes to a temporary name in the same folder, reaches the disk, and takes the final name in one
step: a crash, a full disk or a second writer never leaves half a file under the name that others read.
"""

from __future__ import annotations

import gzip
import os
import shutil
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from io import TextIOWrapper
from pathlib import Path
from typing import TextIO

from syntaxformer.base.errors import DataError

__all__ = ["atomic_file", "atomic_text", "sync"]

_OF_PROCESSES = ("/dev", "/dev/fd", "/proc/self/fd")
"""Folders whose files are open already, also where they lead to a plain one."""


@contextmanager
def atomic_file(path: str | Path) -> Generator[Path, None, None]:
    """Give a temporary path to write to; on success it becomes `path`, on any error nothing stays behind.

    Args:
        path: Final name. Its folder is created; an older file of that name is replaced, and where the name
            is a link, the file that it leads to. A pipe or a device gets the content at the end.

    Raises:
        DataError: The folder or the file cannot be written (no space left, no permission, read-only disk).
    """
    path = Path(path)
    temporary: Path | None = None
    try:
        if path.is_dir():
            raise IsADirectoryError(None, "it is a folder")
        if is_open_ended := _is_open_ended(path):
            temporary = _new_file_in(Path(tempfile.gettempdir()), path.name)
        else:
            path = Path(os.path.realpath(path))
            path.parent.mkdir(parents=True, exist_ok=True)
            temporary = _new_file_in(path.parent, path.name)
        yield temporary
        if is_open_ended:
            with temporary.open("rb") as content, path.open("wb") as target:
                shutil.copyfileobj(content, target)
        else:
            sync(temporary)
            temporary.replace(path)
            sync(path.parent)
    except OSError as error:
        reason = error.strerror or str(error)
        raise DataError(f"expected to write the file, got: {reason}. Nothing was written.", path) from error
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)


@contextmanager
def atomic_text(path: str | Path) -> Generator[TextIO, None, None]:
    """The same as a stream of UTF-8 text, packed where the name ends in `.gz`.

    Args:
        path: Final name.

    Raises:
        DataError: The folder or the file cannot be written.
    """
    with atomic_file(path) as temporary, temporary.open("wb") as file:
        if Path(path).suffix != ".gz":
            with TextIOWrapper(file, "utf-8", newline="\n") as text:
                yield text
            return
        # Neither name nor time: the same content gives the same bytes.
        with (
            gzip.GzipFile("", "wb", fileobj=file, mtime=0) as packed,
            TextIOWrapper(packed, "utf-8", newline="\n") as text,
        ):
            yield text


def _is_open_ended(path: Path) -> bool:
    """Whether a pipe or a device is there, whose place no file may take; /dev/stdout is a link to one."""
    return (path.exists() and not path.is_file()) or str(path.absolute().parent) in _OF_PROCESSES


def _new_file_in(folder: Path, name: str) -> Path:
    handle, name = tempfile.mkstemp(prefix=f".{name}.", suffix=".partial", dir=folder)
    os.close(handle)
    umask = os.umask(0)
    os.umask(umask)
    # mkstemp makes files private; the result should be as readable as any file that the user creates.
    Path(name).chmod(0o666 & ~umask)
    return Path(name)


def sync(path: Path) -> None:
    """Bring a file or a folder's entries to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
