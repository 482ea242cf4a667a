"""Writing a file whole or not at all.

The content goes to a temporary name in the same folder, reaches the disk, and takes the final name in one
step: a crash, a full disk or a second writer never leaves half a file under the name that others read.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from syntaxformer.errors import DataError

__all__ = ["atomic_file", "sync"]


@contextmanager
def atomic_file(path: str | Path) -> Generator[Path, None, None]:
    """Give a temporary path to write to; on success it becomes `path`, on any error nothing stays behind.

    Args:
        path: Final name. Its folder is created; an older file of that name is replaced.

    Raises:
        DataError: The folder or the file cannot be written (no space left, no permission, read-only disk).
    """
    path = Path(path)
    temporary: Path | None = None
    try:
        temporary = _new_file_beside(path)
        yield temporary
        sync(temporary)
        temporary.replace(path)
        sync(path.parent)
    except OSError as error:
        reason = error.strerror or str(error)
        raise DataError(f"expected to write the file, got: {reason}. Nothing was written.", path) from error
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)


def _new_file_beside(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".partial", dir=path.parent)
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
