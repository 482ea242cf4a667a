"""Annotation in several processes: in order, a bounded amount at a time.

Every worker loads the annotator by its name; nothing is forked, so the caller's threads cannot hang a worker.
"""

from __future__ import annotations

import math
import os
import re
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Sized
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from multiprocessing import connection, get_context, parent_process
from typing import TypeVar

from syntaxformer.annotate.annotator import Annotator
from syntaxformer.base.ahead import map_ahead
from syntaxformer.base.errors import DataError, SyntaxformerError
from syntaxformer.trees import Sentence

__all__ = ["chunks_of", "map_in_processes", "short_enough", "stream_in_processes"]

T = TypeVar("T")
S = TypeVar("S", bound=Sized)
R = TypeVar("R")

MAX_WORDS, _WORD = 100_000, re.compile(r"\w+|[^\w\s]")
LINES_PER_TASK = 500
TASKS_AHEAD = 2
"""Tasks that wait for each process, so that none idles."""


def chunks_of(items: Iterable[S], size: int, max_length: float = math.inf) -> Iterator[list[S]]:
    """Cut items into lists of `size`, shorter where several would together be longer than `max_length`."""
    chunk, length = list[S](), 0
    for item in items:
        if chunk and (len(chunk) == size or length + len(item) > max_length):
            yield chunk
            chunk, length = [], 0
        chunk.append(item)
        length += len(item)
    if chunk:
        yield chunk


def short_enough(lines: Iterable[str], path: str | None = None, first: int = 0) -> Iterator[str]:
    """Yield lines, those from `first` on of the file at `path`, each after a look at its length.

    Raises:
        DataError: A line has more words and marks than a parser should be given.
    """
    for number, line in enumerate(lines, first + 1):
        if len(line) > MAX_WORDS and (n_words := sum(1 for _ in _WORD.finditer(line))) > MAX_WORDS:
            message = f"expected at most {MAX_WORDS:,} words in a line, got {n_words:,}. Split the line."
            raise DataError(message, path, number)
        yield line


def stream_in_processes(name: str, lines: Iterable[str], n_processes: int) -> Iterator[Sentence]:
    """Yield one sentence a line, in order, made by `n_processes` workers that load annotator `name`.

    Raises:
        SyntaxformerError: A worker died.
    """
    for sentences in map_in_processes(name, _sentences, chunks_of(lines, LINES_PER_TASK), n_processes):
        yield from sentences


def map_in_processes(
    name: str, work: Callable[[Annotator, T], R], items: Iterable[T], n_processes: int
) -> Iterator[R]:
    """Yield `work(annotator, item)` for each item, in order.

    Args:
        name: The annotator that each worker loads once.
        work: A function that workers can import.
        items: Taken a few ahead.
        n_processes: Workers.

    Raises:
        SyntaxformerError: A worker died.
    """
    pool = ProcessPoolExecutor(n_processes, get_context("spawn"), initializer=_load, initargs=(name,))
    try:
        yield from map_ahead(pool, partial(_work, work), items, TASKS_AHEAD * n_processes)
    except BrokenProcessPool as error:
        raise SyntaxformerError(
            f"annotation with {n_processes} processes: expected all to live, got a dead one (out of "
            "memory, killed, or a script working outside `if __name__ == '__main__'`). Use fewer processes."
        ) from error


_annotator: Annotator | None = None


def _load(name: str) -> None:
    from syntaxformer.annotate.registry import load_annotator

    global _annotator
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to answer, in one line
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _annotator = load_annotator(name)


def _end_with_parent() -> None:
    """A parent that is killed cannot end its workers, who would wait for it for ever."""
    if (parent := parent_process()) is not None:
        connection.wait([parent.sentinel])
        os._exit(1)


def _work(work: Callable[[Annotator, T], R], item: T) -> R:
    assert _annotator is not None
    return work(_annotator, item)


def _sentences(annotator: Annotator, lines: list[str]) -> list[Sentence]:
    return list(annotator.stream(lines))
