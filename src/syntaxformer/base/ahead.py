"""Work on a stream in a pool, a bounded amount ahead of what was taken; never ahead of somebody who types."""

from __future__ import annotations

import os
import select
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future
from itertools import islice
from typing import TypeVar

from syntaxformer.base.files import decode_lines

T = TypeVar("T")
R = TypeVar("R")


def _never() -> bool:
    return False


def map_ahead(
    pool: Executor,
    work: Callable[[T], R],
    items: Iterable[T],
    n_ahead: int,
    is_waiting: Callable[[], bool] = _never,
) -> Iterator[R]:
    """`map`, by the workers of a pool; it is shut down at the end, also where the caller stops half-way.

    As with `map`, an error of the items comes after the results of those before it.

    Args:
        pool: Threads or processes.
        work: What a worker does with an item.
        items: Taken one by one, in the caller's thread, while the workers work.
        n_ahead: Items taken beyond the one whose result is due.
        is_waiting: Whether the next item is not there yet: then all that was taken is finished first.
    """
    begun: deque[Future[R]] = deque()
    broken: list[Exception] = []
    try:
        for item in _until_broken(items, broken):
            begun.append(pool.submit(work, item))
            while begun and (len(begun) > n_ahead or is_waiting()):
                yield begun.popleft().result()
        while begun:
            yield begun.popleft().result()
        if broken:
            raise broken.pop()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _until_broken(items: Iterable[T], broken: list[Exception]) -> Iterator[T]:
    """The items before an error, and the error in `broken`."""
    try:
        yield from items
    except Exception as error:
        broken.append(error)


class LiveLines:
    """Lines that somebody may be typing; knows whether the next one has come yet."""

    PATIENCE_S = 0.02
    """A line that comes within this time counts as being there: a pipe is filled in parts."""

    def __init__(self, descriptor: int, name: str) -> None:
        self._descriptor = descriptor
        self._come: deque[bytes] = deque()
        self._rest: bytes | None = b""
        self._lines = decode_lines(self._arriving(), name)

    def __iter__(self) -> LiveLines:
        return self

    def __next__(self) -> str:
        return next(self._lines)

    def is_waiting(self) -> bool:
        """Whether the next line, or the end of the stream, has not come."""
        while not self._come and self._rest is not None:
            if not select.select([self._descriptor], [], [], self.PATIENCE_S)[0]:
                return True
            self._read()
        return False

    def _read(self) -> None:
        """Take what has come; `_rest` is a line that has not ended, None at the end of the stream."""
        block = os.read(self._descriptor, 2**16)
        *lines, rest = ((self._rest or b"") + block).split(b"\n")
        self._come.extend(line + b"\n" for line in lines)
        self._come.extend([rest] if rest and not block else [])
        self._rest = rest if block else None

    def _arriving(self) -> Iterator[bytes]:
        while self._come or self._rest is not None:
            if self._come:
                yield self._come.popleft()
            else:
                self._read()


def standard_input() -> Iterator[str]:
    """The lines of standard input."""
    try:
        return LiveLines(sys.stdin.fileno(), "standard input")
    except OSError:  # no file, as in a notebook
        return decode_lines(sys.stdin.buffer, "standard input")


def is_waiting_for(lines: object) -> bool:
    """Whether these are `LiveLines` of which the next has not come."""
    return getattr(lines, "is_waiting", _never)()


def lines_at_hand(lines: Iterator[str], limit: int) -> list[str]:
    """The next lines, one at least; of `LiveLines` those that have come: nobody who types waits for more."""
    chunk = list(islice(lines, 1))
    while chunk and len(chunk) < limit and not is_waiting_for(lines):
        if (line := next(lines, None)) is None:
            break
        chunk.append(line)
    return chunk
