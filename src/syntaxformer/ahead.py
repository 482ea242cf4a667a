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
