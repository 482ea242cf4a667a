"""Progress of long work: a bar with rate and time left on a terminal, plain log lines elsewhere.

The one place that draws bars. It writes to stderr (bar) or to the logger `syntaxformer.base.progress`.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Iterable, Iterator, Sized
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

LOG_EVERY_S = 10.0
"""Seconds between two log lines where there is no terminal."""

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
    """Yield the items of an iterable and show how far it is.

    Args:
        iterable: What is worked through.
        description: What the work is, "annotating train.en".
        total: Number of items; by default the iterable's length where it has one.
        unit: What an item is, in the plural.
        enabled: False passes the items on and shows nothing, as under --quiet.
    """
    if not (enabled and _log.isEnabledFor(logging.INFO)):
        yield from iterable
        return
    if total is None and isinstance(iterable, Sized):
        total = len(iterable)
    show = _track_on_terminal if sys.stderr.isatty() else _track_in_log
    yield from show(iterable, description, total, unit)


def terminal_bar(unit: str) -> Progress:
    """A bar on stderr that goes away when it is done, for loops that are not ours to write."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        _RateColumn(unit),
        TimeRemainingColumn(),
    )
    return Progress(*columns, console=Console(stderr=True), transient=True)


class _RateColumn(ProgressColumn):
    """Items a second."""

    def __init__(self, unit: str) -> None:
        super().__init__()
        self.unit = unit

    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text("" if speed is None else f"{speed:,.3g} {self.unit}/s")


def _track_on_terminal(iterable: Iterable[T], description: str, total: int | None, unit: str) -> Iterator[T]:
    with terminal_bar(unit) as progress:
        task = progress.add_task(description, total=total)
        for item in iterable:
            yield item
            progress.advance(task)


def _track_in_log(iterable: Iterable[T], description: str, total: int | None, unit: str) -> Iterator[T]:
    start = last = time.monotonic()
    done = 0
    for item in iterable:
        yield item
        done += 1
        now = time.monotonic()
        if done == 1:  # whatever came before it was starting up, and says nothing about the rate
            last = now
        elif now - last >= LOG_EVERY_S:
            _log.info("%s", _line(description, done, total, unit, now - start))
            last = now
    _log.info("%s, done", _line(description, done, done, unit, time.monotonic() - start))


def _line(description: str, done: int, total: int | None, unit: str, elapsed_s: float) -> str:
    rate = done / max(elapsed_s, 1e-9)
    of_total = f" of {total:,}" if total is not None else ""
    line = f"{description}: {done:,}{of_total} {unit}, {_rounded(rate)} {unit}/s"
    if total is None or total == done:
        return line
    return f"{line}, {(total - done) / max(rate, 1e-9):,.0f} s left"


def _rounded(rate: float) -> str:
    """Whole numbers, and two figures of what is slow: shards, epochs."""
    return f"{rate:,.0f}" if rate >= 10 else f"{rate:.2g}"
