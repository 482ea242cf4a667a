"""Long work on a stream: show its progress, and limit how far it runs ahead of its reader.

Only this module draws bars, with rate and time left, on a terminal's stderr. Without a terminal it writes
lines to the logger `syntaxformer.base.progress`.
"""

from __future__ import annotations

import logging
import os
import select
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sized
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from itertools import islice
from multiprocessing import connection, parent_process
from typing import TypeVar

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from syntaxformer.base.errors import DataError
from syntaxformer.base.files import decode_lines, max_line_bytes

LOG_EVERY_S = 10.0  # if there is no terminal

MAX_CHARACTERS = 20_000_000
"""About the most text that is held at once where lines are worked on many at a time."""

T = TypeVar("T")

_log = logging.getLogger("syntaxformer.base.progress")


def track(
    iterable: Iterable[T],
    description: str,
    total: int | None = None,
    unit: str = "lines",
    *,
    enabled: bool = True,
) -> Iterator[T]:
    """Yield the items of an iterable and show the progress, if it is `enabled`.

    `description` says what the work is, such as "annotating train.en", and `unit`, in the plural, what the
    items are. Their number, `total`, is by default the iterable's length if it has one.
    """
    if not (enabled and _log.isEnabledFor(logging.INFO)):
        yield from iterable
        return
    if total is None and isinstance(iterable, Sized):
        total = len(iterable)
    if sys.stderr.isatty():
        with terminal_bar(unit) as progress:
            yield from progress.track(iterable, total, description=description)
        return
    start = logged = time.monotonic()
    n_done = 0
    for item in iterable:
        yield item
        n_done += 1
        now = time.monotonic()
        if n_done == 1:  # the time before it went into starting up and says nothing about the rate
            logged = now
        elif now - logged >= LOG_EVERY_S:
            _log.info("%s", _line(description, n_done, total, unit, now - start))
            logged = now
    if n_done:  # of nothing, nothing is said
        _log.info("%s, done", _line(description, n_done, n_done, unit, time.monotonic() - start))


def _line(description: str, n_done: int, total: int | None, unit: str, elapsed_s: float) -> str:
    rate = n_done / max(elapsed_s, 1e-9)
    of_total = f" of {total:,}" if total is not None else ""
    shown = f"{rate:,.0f}" if rate >= 10 else f"{rate:.2g}"  # items may be slow, such as shards and epochs
    line = f"{description}: {n_done:,}{of_total} {unit}, {shown} {unit}/s"
    if total is None or total == n_done:
        return line
    return f"{line}, {(total - n_done) / max(rate, 1e-9):,.0f} s left"


def terminal_bar(unit: str) -> Progress:
    """A bar on stderr that disappears when it is done, for loops inside other libraries."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    ends = (_RateColumn(unit), TimeRemainingColumn())
    return Progress(*columns, *ends, console=Console(stderr=True), transient=True)


class _RateColumn(ProgressColumn):
    """Items per second."""

    def __init__(self, unit: str) -> None:
        super().__init__()
        self.unit = unit

    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text("" if speed is None else f"{speed:,.3g} {self.unit}/s")


# Work in a pool runs a bounded number of items ahead, but lines that somebody types are answered at once.

R = TypeVar("R")


def map_in_threads(work: Callable[[T], R], items: Iterable[T], n_threads: int, n_ahead: int) -> Iterator[R]:
    """`map` by several threads, with `n_ahead` more items for each; by this thread alone if it is one."""
    if n_threads == 1:
        return map(work, items)
    return map_ahead(ThreadPoolExecutor(n_threads), work, items, n_ahead * n_threads)


def map_ahead(
    pool: Executor,
    work: Callable[[T], R],
    items: Iterable[T],
    n_ahead: int,
    is_waiting: Callable[[], bool] = lambda: False,
) -> Iterator[R]:
    """`map` with the workers of a pool, which is shut down at the end, even if the caller stops half-way.

    As with `map`, an error of the iterable is raised after the results of the items before it. Items are
    taken one by one, in the caller's thread, while the workers work: `n_ahead` beyond the one whose result is
    due. While the next item has not come yet (`is_waiting`), all items taken are finished first.
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
    """Yield the items before an error, and put the error into `broken`."""
    try:
        yield from items
    except Exception as error:
        broken.append(error)


class LiveLines:
    """Lines that somebody may be typing; knows whether the next one has come yet."""

    PATIENCE_S = 0.02
    """A line that comes within this time counts as present, since a pipe is filled in parts."""

    def __init__(self, descriptor: int, name: str) -> None:
        self._descriptor = descriptor
        self._come: deque[bytes] = deque()
        self._rest: bytes | None = b""
        self._lines = decode_lines(self._readline, name)

    def __iter__(self) -> LiveLines:
        return self

    def __next__(self) -> str:
        return next(self._lines)

    def is_waiting(self) -> bool:
        """Whether neither the next line nor the end of the stream has come yet."""
        while not self._come and self._rest is not None:
            if not select.select([self._descriptor], [], [], self.PATIENCE_S)[0]:
                return True
            self._read()
        return False

    def _read(self) -> None:
        """Read what has come; `_rest` is an unfinished line, or None at the end of the stream."""
        block = os.read(self._descriptor, 2**16)
        *lines, rest = ((self._rest or b"") + block).split(b"\n")
        self._come.extend(line + b"\n" for line in lines)
        is_too_long = len(rest) > max_line_bytes() + 1  # a CR may be the beginning of its end
        self._come.extend([rest] if rest and (is_too_long or not block) else [])
        self._rest = (b"" if is_too_long else rest) if block else None

    def _readline(self, _: int) -> bytes:
        """The next line with its end, for which this waits; empty at the end of the stream."""
        while not self._come and self._rest is not None:
            self._read()
        return self._come.popleft() if self._come else b""


def standard_input() -> Iterator[str]:
    """The lines of standard input.

    Raises:
        DataError: It is closed.
    """
    if sys.stdin is None:
        raise DataError("expected one, got none: it is closed. Give a file, or /dev/null.", "standard input")
    try:
        return LiveLines(sys.stdin.fileno(), "standard input")
    except OSError:  # no file, as in a notebook
        return decode_lines(sys.stdin.buffer.readline, "standard input")


def is_waiting_for(lines: object) -> bool:
    """Whether these are `LiveLines` whose next line has not come yet."""
    return hasattr(lines, "is_waiting") and lines.is_waiting()  # type: ignore[attr-defined]


def lines_at_hand(lines: Iterator[str], limit: int) -> list[str]:
    """The next lines, at least one; of `LiveLines` only those that have come, so no line waits for others."""
    chunk, n_left = list(islice(lines, 1)), MAX_CHARACTERS
    while chunk and len(chunk) < limit and (n_left := n_left - len(str(chunk[-1]))) > 0:
        if is_waiting_for(lines) or not (more := list(islice(lines, 1))):
            break
        chunk += more
    return chunk


def end_with_parent(end: Callable[[], object]) -> None:
    """Call `end` once the parent is gone: if it is killed, it cannot end its workers."""
    if (parent := parent_process()) is not None:
        sentinel = parent.sentinel
        threading.Thread(target=lambda: connection.wait([sentinel]) and end(), daemon=True).start()
