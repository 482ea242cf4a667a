"""Work on a stream in a pool: in order, a bounded amount ahead of what was taken."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future
from typing import TypeVar

__all__ = ["map_ahead"]

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

    Args:
        pool: Threads or processes.
        work: What a worker does with an item.
        items: Taken one by one, in the caller's thread, while the workers work.
        n_ahead: Items taken beyond the one whose result is due.
        is_waiting: Whether the next item is not there yet: then all that was taken is finished first.
    """
    begun: deque[Future[R]] = deque()
    try:
        for item in items:
            begun.append(pool.submit(work, item))
            while begun and (len(begun) > n_ahead or is_waiting()):
                yield begun.popleft().result()
        while begun:
            yield begun.popleft().result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
