"""A queue that gathers, refuses in time, and mixes nothing up."""

from __future__ import annotations

import asyncio
import re
import threading
import time

import pytest

from syntaxformer.serve.batcher import Batcher, Metrics
from syntaxformer.serve.problems import Problem


class Work:
    """Doubles numbers; waits at a gate; remembers its batches."""

    def __init__(self):
        self.gate = threading.Event()
        self.batches = []

    def __call__(self, settings, items, is_over):
        self.batches.append((settings, list(items)))
        self.gate.wait(5)
        if -1 in items:
            raise ValueError("minus one")
        return [2 * item for item in items]


@pytest.fixture
def work():
    return Work()


def _run(main):
    async def guarded():
        return await asyncio.wait_for(main(), 20)

    return asyncio.run(guarded())


def _while_busy(work, batcher, first, *others):
    """Submit the first, then others while it is worked on; results in order, or what was raised instead."""

    async def main():
        tasks = [asyncio.create_task(batcher.submit(*first))]
        await asyncio.sleep(0.05)
        for other in others:
            tasks.append(asyncio.create_task(batcher.submit(*other)))
            await asyncio.sleep(0)
        await asyncio.sleep(0.05)
        work.gate.set()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        await batcher.close()
        return results

    return _run(main)


WAITING = re.compile(r'syntaxformer_waiting_texts\{model=""\} (.*)')


def _waiting(metrics):
    return float(WAITING.search(metrics.text().decode())[1])


@pytest.mark.parametrize(
    ("limits", "requests", "batches"),
    [
        # Requests that come meanwhile share a batch if their settings are equal, and are not cut for it.
        ({"max_batch": 5}, [([1], "a"), ([2, 3], "a"), ([4], "b"), ([5, 6, 7], "a"), ([8], "a")],
         [[1], [2, 3, 5, 6, 7], [4], [8]]),
        # A large request lets the others pass after each of its parts.
        ({"max_batch": 2}, [([0, 1, 2, 3, 4, 5, 6], "a"), ([11], "b")], [[0, 1], [11], [2, 3], [4, 5], [6]]),
        ({"max_batch": 3, "max_waiting": 2}, [([0, 1, 2, 3, 4, 5, 6], "a")], [[0, 1, 2], [3, 4, 5], [6]]),
    ],
    ids=["shared", "parts between others", "parts"],
)  # fmt: skip
def test_batches_of_requests(work, limits, requests, batches):
    results = _while_busy(work, Batcher(work, **limits), *((*request, 9) for request in requests))
    assert results == [[2 * item for item in items] for items, _ in requests]
    assert [items for _, items in work.batches] == batches


def test_clients_take_turns_and_not_requests(work):
    """The requests of one do not stand before the one of another, and who had more time goes later."""
    crowd = [([1, 2, 3], "a", 9, "crowd"), ([10], "b", 9, "crowd"), ([11], "c", 9, "crowd")]
    _while_busy(work, Batcher(work, max_batch=2), *crowd, ([12], "d", 9, "other"))
    assert [items for _, items in work.batches] == [[1, 2], [12], [10], [11], [3]]


def test_too_many_waiting_are_refused_and_leave_other_clients_their_room(work):
    metrics = Metrics()
    crowd = [([1] * n, None, 9, "crowd") for n in (3, 2, 1, 1)]  # the first is worked on, the last too many
    batcher = Batcher(work, max_waiting=3, metrics=metrics)
    *answers, problem, other = _while_busy(work, batcher, *crowd, ([2, 2], None, 9, "other"))
    assert (answers, other) == ([[2, 2, 2], [2, 2], [2]], [4, 4])
    assert (problem.status, problem.code, problem.headers) == (429, "busy", {"Retry-After": "1"})
    assert problem.message.startswith("queue: expected room for 1 texts, got 3 waiting, of at most 3.")
    assert re.findall(r'_refused_total\{.*reason="(\w+)"\} 1\.0', metrics.text().decode()) == ["busy"]


def test_what_is_late_is_given_up_and_not_worked_on(work):
    metrics = Metrics()
    results = _while_busy(work, Batcher(work, metrics=metrics), ([1], None, 9), ([2], None, 0.02))
    assert results[0] == [2]
    assert (results[1].status, results[1].headers) == (503, {"Retry-After": "5"})
    assert results[1].message.startswith("service: expected an answer within 0.02 s")
    assert [items for _, items in work.batches] == [[1]]
    assert _waiting(metrics) == 0


def test_nobody_fails_for_anothers_text(work):
    results = _while_busy(work, Batcher(work), *(([item], None, 9) for item in (1, 2, -1, 3)))
    assert [results[0], results[1], results[3]] == [[2], [4], [6]]
    assert isinstance(results[2], ValueError)


def test_hundreds_of_requests_get_their_own_answers():
    async def main():
        batcher = Batcher(lambda number, items, _: [item + number for item in items], 7, 10**6)
        requests = (batcher.submit(list(range(n, n + n % 5 + 1)), n % 3, 15) for n in range(300))
        return await asyncio.gather(*requests)

    for n, result in enumerate(_run(main)):
        assert result == [item + n % 3 for item in range(n, n + n % 5 + 1)]


def test_a_request_that_nobody_waits_for_ends_with_its_part(work):
    metrics = Metrics()

    async def main():
        batcher = Batcher(work, max_batch=2, max_waiting=3, metrics=metrics)
        with pytest.raises(Problem):
            await batcher.submit(list(range(100)), "a", 0.1)
        assert _waiting(metrics) == 0  # others have room at once
        work.gate.set()
        return await batcher.submit([5], "a", 9)

    assert _run(main) == [10]
    assert [items for _, items in work.batches] == [[0, 1], [5]]
    assert _waiting(metrics) == 0


def test_costly_items_are_worked_on_a_few_at_a_time(work):
    work.gate.set()
    items = [4, 6, 1, 30, 2, 3]
    results = _run(lambda: Batcher(work, max_cost=10).submit(items, None, 9, costs=items))
    assert results == [2 * item for item in items]
    assert [items for _, items in work.batches] == [[4, 6], [1], [30], [2, 3]]


def test_a_large_request_that_fails_in_its_second_part_fails_once_and_leaves_nothing(work):
    work.gate.set()
    metrics = Metrics()

    async def main():
        batcher = Batcher(work, max_batch=2, metrics=metrics)
        with pytest.raises(ValueError, match="minus one"):
            await batcher.submit([1, 2, -1, 3, 4, 5], None, 9)
        return await batcher.submit([7], None, 9)

    assert _run(main) == [14]
    assert [items for _, items in work.batches] == [[1, 2], [-1, 3], [7]]
    assert _waiting(metrics) == 0


def test_what_takes_too_long_together_is_tried_in_parts_and_alone_refused():
    batches = []

    def work(settings, items, is_over):
        batches.append(list(items))
        if len(items) > 2 or -1 in items:
            raise TimeoutError("expected less, got more")
        return items

    async def main():
        batcher = Batcher(work)
        answer = await batcher.submit(list(range(8)), None, 9)
        with pytest.raises(Problem) as caught:
            await batcher.submit([3, -1], None, 9)
        return answer, caught.value

    answer, problem = _run(main)
    assert answer == list(range(8))
    assert batches[:5] == [list(range(8)), [0, 1], [2, 3], [4, 5], [6, 7]]
    assert (problem.status, problem.code) == (422, "text_too_long")
    assert problem.message.startswith("texts.1: expected less, got more. ")


@pytest.mark.parametrize("leaves", [True, False])
def test_work_is_told_that_nobody_waits_any_more(leaves):
    seconds = []

    def work(settings, items, is_over):
        while not is_over():
            time.sleep(0.01)
        seconds.append(time.monotonic() - start)
        raise TimeoutError

    async def main():
        batcher = Batcher(work)
        task = asyncio.create_task(batcher.submit([1], None, 9 if leaves else 0.1))
        await asyncio.sleep(0.1)
        if leaves:
            task.cancel()
        await asyncio.wait({task})
        await batcher.close()

    start = time.monotonic()
    _run(main)
    assert 0.1 <= seconds[0] < 1
