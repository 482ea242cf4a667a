"""Reading text files line by line, plain or gzip, UTF-8 and nothing else.

A line ends at a line feed (a carriage return before it is dropped), never at U+2028 or U+0085: parallel files
stay parallel.
Every problem is a `DataError` that names the file, the line and the byte. No tokenisation, no tree.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, cast

from syntaxformer.base.errors import DataError

__all__ = ["TextLines", "count_lines", "decode_lines", "open_bytes", "read_lines"]

_BOM = b"\xef\xbb\xbf"


def open_bytes(path: str | Path) -> BinaryIO:
    """Open a plain file or, by its suffix `.gz`, a gzip file for reading bytes.

    Raises:
        DataError: There is no such file, it is a folder, or it may not be read.
    """
    path = Path(path)
    try:
        return cast(BinaryIO, gzip.open(path, "rb")) if path.suffix == ".gz" else path.open("rb")
    except OSError as error:
        remedy = " Download it first." if ":/" in str(path) else ""
        raise DataError(f"expected a readable file, got: {error.strerror}.{remedy}", path) from error


def read_lines(path: str | Path, first: int = 0) -> Iterator[str]:
    """Yield the lines of a UTF-8 file without their line ends; a byte order mark is dropped.

    Args:
        path: Plain file, or gzip where the name ends in `.gz`.
        first: The line to begin with, from 0; those before are not looked at.

    Raises:
        DataError: The file cannot be read or unpacked, or a line holds bytes that are not UTF-8 or a NUL.
    """
    return decode_lines(_raw_lines(path), path, first)


def decode_lines(raw_lines: Iterable[bytes], name: str | Path, first: int = 0) -> Iterator[str]:
    """Yield the lines of an open binary file or stream, checked as `read_lines` does.

    Args:
        raw_lines: Lines with their line feeds.
        name: What error messages call it.
        first: The line to begin with, from 0; those before are not looked at.

    Raises:
        DataError: A line holds bytes that are not UTF-8 or a NUL.
    """
    position = 0
    for number, raw in enumerate(raw_lines, 1):
        if number > first:
            line = raw.removesuffix(b"\n").removesuffix(b"\r")
            if number == 1:
                line = line.removeprefix(_BOM)
            yield _decode(line, name, number, position + raw.find(line))
        position += len(raw)


def count_lines(path: str | Path) -> int:
    """Count the lines that `read_lines` yields, without decoding them.

    Raises:
        DataError: The file cannot be read or unpacked.
    """
    return sum(1 for _ in _raw_lines(path))


class TextLines:
    """The lines of a file as something that can be walked through more than once, and has a length.

    Args:
        path: Plain or gzip file.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._length: int | None = None

    def __iter__(self) -> Iterator[str]:
        return read_lines(self.path)

    def __len__(self) -> int:
        if self._length is None:
            self._length = count_lines(self.path)
        return self._length


def _raw_lines(path: str | Path) -> Iterator[bytes]:
    with open_bytes(path) as file:
        try:
            yield from file
        except (OSError, EOFError, zlib.error) as error:
            raise DataError(f"expected a whole file, got: {error}. Copy or pack it again.", path) from error


def _decode(line: bytes, path: str | Path, number: int, position: int) -> str:
    if (nul := line.find(b"\0")) >= 0:
        raise DataError(
            f"expected text, got a NUL at byte {nul + 1} of the line ({position + nul + 1} of the file).",
            path,
            number,
        )
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataError(
            f"expected UTF-8, got byte 0x{line[error.start]:02x} at byte {error.start + 1} of the line "
            f"({position + error.start + 1} of the file). Convert the file to UTF-8.",
            path,
            number,
        ) from error
