"""How the benchmarks take time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

REPEATS = 5


def best_seconds(work: Callable[[], Any]) -> float:
    """Shortest of five runs."""
    times: list[float] = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)
