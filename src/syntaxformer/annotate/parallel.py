"""Lines to sentences in several processes: in order, a bounded amount at a time.

Every worker loads the annotator by its name; nothing is forked, so the caller's threads cannot hang a worker.
"""

from __future__ import annotations

import signal
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from itertools import islice
from multiprocessing import get_context

from syntaxformer.ahead import map_ahead
from syntaxformer.errors import SyntaxformerError
from syntaxformer.trees import Sentence

__all__ = ["chunks_of", "stream_in_processes"]

LINES_PER_TASK = 500
TASKS_AHEAD = 2
"""Tasks that wait for each process, so that none idles."""


def chunks_of(lines: Iterable[str], size: int) -> Iterator[list[str]]:
    """Cut lines into lists of `size`, the last one shorter."""
    iterator = iter(lines)
    while chunk := list(islice(iterator, size)):
        yield chunk


def stream_in_processes(name: str, lines: Iterable[str], n_processes: int) -> Iterator[Sentence]:
    """Yield one sentence a line, in order, made by `n_processes` workers that load annotator `name`.

    Raises:
        SyntaxformerError: A worker died.
    """
    pool = ProcessPoolExecutor(n_processes, get_context("spawn"), initializer=_load, initargs=(name,))
    tasks = chunks_of(lines, LINES_PER_TASK)
    try:
        for sentences in map_ahead(pool, _annotate, tasks, TASKS_AHEAD * n_processes):
            yield from sentences
    except BrokenProcessPool as error:
        raise SyntaxformerError(
            f"annotation with {n_processes} processes: expected all to live, got a dead one (out of "
            "memory, killed, or a script working outside `if __name__ == '__main__'`). Use fewer processes."
        ) from error


_annotator = None


def _load(name: str) -> None:
    from syntaxformer.annotate.registry import load_annotator

    global _annotator
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to answer, in one line
    _annotator = load_annotator(name)


def _annotate(lines: list[str]) -> list[Sentence]:
    assert _annotator is not None
    return list(_annotator.stream(lines))
