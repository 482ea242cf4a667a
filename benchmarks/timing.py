"""How the benchmarks take time."""

from __future__ import annotations

import time
import timeit
from collections.abc import Callable, Mapping
from typing import Any


def best_seconds(work: Callable[[], Any]) -> float:
    """Shortest of five runs."""
    return min(timeit.repeat(work, number=1, repeat=5))


def turns(
    works: Mapping[str, Callable[[], Any]], rounds: int, clock: Callable[[], Any] = time.process_time
) -> dict[str, list[Any]]:
    """What each takes in each round, by default of the processor; they take turns, after one to warm up."""
    taken: dict[str, list[Any]] = {name: [] for name in works}
    for name, work in list(works.items()) * (rounds + 1):
        start = clock()
        work()
        taken[name].append(clock() - start)
    return {name: values[1:] for name, values in taken.items()}
