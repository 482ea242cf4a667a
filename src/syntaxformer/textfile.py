"""Reading text files line by line, plain or gzip, UTF-8 and nothing else.

A line ends at a line feed (a carriage return before it is dropped), never at U+2028 or U+0085: parallel files
stay parallel.
Every problem is a `DataError` that names the file, the line and the byte. No tokenisation, no tree.
"""

from __future__ import annotations

import gzip
import queue
import sys
import threading
import zlib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, cast

from syntaxformer.errors import DataError

__all__ = ["LiveLines", "TextLines", "count_lines", "decode_lines", "open_bytes", "read_lines"]

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
        raise DataError(f"expected a readable file, got: {error.strerror}.", path) from error


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


class LiveLines:
    """Lines of a stream that somebody may be typing into; knows whether the next one has come yet.

    Args:
        stream: Bytes.
        name: What error messages call it.
    """

    PATIENCE_S = 0.02
    """A line that comes within this time counts as being there: a pipe is filled in parts."""

    def __init__(self, stream: Iterable[bytes], name: str) -> None:
        self._queue: queue.Queue[bytes | Exception | None] = queue.Queue(maxsize=4096)
        self._next: list[bytes | Exception | None] = []
        self._lines = decode_lines(self._arriving(), name)
        threading.Thread(target=self._read, args=(stream,), daemon=True).start()

    @classmethod
    def of_standard_input(cls) -> LiveLines:
        """What is typed or piped, through a reader of its own.

        At its end Python closes `sys.stdin`, and aborts where a thread still waits in it for the next line.
        """
        stream: Iterable[bytes] = sys.stdin.buffer
        with suppress(OSError):  # no file, as in a notebook
            stream = open(sys.stdin.fileno(), "rb", closefd=False)  # noqa: SIM115
        return cls(stream, "standard input")

    def __iter__(self) -> LiveLines:
        return self

    def __next__(self) -> str:
        return next(self._lines)

    def is_waiting(self) -> bool:
        """Whether the next line, or the end of the stream, has not come."""
        if not self._next:
            with suppress(queue.Empty):
                self._next.append(self._queue.get(timeout=self.PATIENCE_S))
        return not self._next

    def _read(self, stream: Iterable[bytes]) -> None:
        try:
            for line in stream:
                self._queue.put(line)
        except Exception as error:
            self._queue.put(error)
        self._queue.put(None)

    def _arriving(self) -> Iterator[bytes]:
        while (item := self._next.pop() if self._next else self._queue.get()) is not None:
            if isinstance(item, Exception):
                raise item
            yield item
        self._next.append(None)  # the end stays the end


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
