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


def test_requests_that_come_meanwhile_share_a_batch(work):
    async def main():
        batcher = Batcher(work, max_batch=5)
        first = asyncio.create_task(batcher.submit([1], "a", 9))
        await asyncio.sleep(0.05)
        rest = [
            asyncio.create_task(batcher.submit(items, key, 9))
            for items, key in (([2, 3], "a"), ([4], "b"), ([5, 6, 7], "a"), ([8], "a"))
        ]
        await asyncio.sleep(0.05)
        work.gate.set()
        results = await asyncio.gather(first, *rest)
        await batcher.close()
        return results

    assert _run(main) == [[2], [4, 6], [8], [10, 12, 14], [16]]
    assert work.batches == [("a", [1]), ("a", [2, 3, 5, 6, 7]), ("b", [4]), ("a", [8])]


def test_a_request_larger_than_a_batch_is_worked_on_in_parts(work):
    work.gate.set()

    async def main():
        batcher = Batcher(work, max_batch=3, max_waiting=2)
        return await batcher.submit(list(range(7)), None, 9)

    assert _run(main) == [0, 2, 4, 6, 8, 10, 12]
    assert [len(items) for _, items in work.batches] == [3, 3, 1]


def test_too_many_waiting_are_refused(work):
    metrics = Metrics()

    async def main():
        batcher = Batcher(work, max_waiting=3, metrics=metrics)
        first = asyncio.create_task(batcher.submit([1], None, 9))
        await asyncio.sleep(0.05)
        second = asyncio.create_task(batcher.submit([2, 3], None, 9))
        await asyncio.sleep(0)
        with pytest.raises(Problem) as caught:
            await batcher.submit([4, 5], None, 9)
        work.gate.set()
        assert await asyncio.gather(first, second) == [[2], [4, 6]]
        assert await batcher.submit([4, 5], None, 9) == [8, 10]
        return caught.value

    problem = _run(main)
    assert (problem.status, problem.code, problem.headers) == (429, "busy", {"Retry-After": "1"})
    assert (
        problem.message
        == "queue: expected room for 2 texts, got 2 waiting, of at most 3. Send it again later."
    )
    assert re.findall(r'_refused_total\{.*reason="(\w+)"\} 1\.0', metrics.text().decode()) == ["busy"]


def test_what_is_late_is_given_up_and_not_worked_on(work):
    metrics = Metrics()

    async def main():
        batcher = Batcher(work, metrics=metrics)
        first = asyncio.create_task(batcher.submit([1], None, 9))
        await asyncio.sleep(0.05)
        with pytest.raises(Problem) as caught:
            await batcher.submit([2], None, 0.05)
        work.gate.set()
        assert await first == [2]
        await batcher.close()
        return caught.value

    problem = _run(main)
    assert (problem.status, problem.headers) == (503, {"Retry-After": "5"})
    assert problem.message.startswith("service: expected an answer within 0.05 s, got none. ")
    assert [items for _, items in work.batches] == [[1]]
    assert 'syntaxformer_waiting_texts{model=""} 0.0' in metrics.text().decode()


def test_nobody_fails_for_anothers_text(work):
    async def main():
        batcher = Batcher(work)
        first = asyncio.create_task(batcher.submit([1], None, 9))
        await asyncio.sleep(0.05)
        rest = [asyncio.create_task(batcher.submit([item], None, 9)) for item in (2, -1, 3)]
        await asyncio.sleep(0.05)
        work.gate.set()
        return await asyncio.gather(first, *rest, return_exceptions=True)

    one, two, failed, three = _run(main)
    assert (one, two, three) == ([2], [4], [6])
    assert isinstance(failed, ValueError)


def test_a_thousand_requests_get_their_own_answers():
    async def main():
        batcher = Batcher(
            lambda settings, items, is_over: [item + settings for item in items],
            max_batch=7,
            max_waiting=10**6,
        )
        tasks = [
            batcher.submit(list(range(place, place + place % 5 + 1)), place % 3, 15) for place in range(1000)
        ]
        start = time.monotonic()
        results = await asyncio.gather(*tasks)
        assert time.monotonic() - start < 15
        return results

    for place, result in enumerate(_run(main)):
        assert result == [item + place % 3 for item in range(place, place + place % 5 + 1)]


def test_a_large_request_lets_the_others_pass_after_each_part(work):
    async def main():
        batcher = Batcher(work, max_batch=2)
        large = asyncio.create_task(batcher.submit(list(range(7)), "a", 9))
        await asyncio.sleep(0.05)
        small = asyncio.create_task(batcher.submit([11], "b", 9))
        await asyncio.sleep(0.05)
        work.gate.set()
        return await asyncio.gather(large, small)

    assert _run(main) == [[0, 2, 4, 6, 8, 10, 12], [22]]
    assert [items for _, items in work.batches] == [[0, 1], [11], [2, 3], [4, 5], [6]]


def test_a_request_that_nobody_waits_for_ends_with_its_part(work):
    metrics = Metrics()

    async def main():
        batcher = Batcher(work, max_batch=2, max_waiting=3, metrics=metrics)
        with pytest.raises(Problem):
            await batcher.submit(list(range(100)), "a", 0.1)
        assert (
            'syntaxformer_waiting_texts{model=""} 0.0' in metrics.text().decode()
        )  # others have room at once
        work.gate.set()
        answer = await batcher.submit([5], "a", 9)
        await batcher.close()
        return answer

    assert _run(main) == [10]
    assert [items for _, items in work.batches] == [[0, 1], [5]]
    assert 'syntaxformer_waiting_texts{model=""} 0.0' in metrics.text().decode()


def test_costly_items_are_worked_on_a_few_at_a_time(work):
    work.gate.set()

    async def main():
        batcher, items = Batcher(work, max_cost=10), [4, 6, 1, 30, 2, 3]
        return await batcher.submit(items, None, 9, costs=items)

    assert _run(main) == [8, 12, 2, 60, 4, 6]
    assert [items for _, items in work.batches] == [[4, 6], [1], [30], [2, 3]]


def test_a_large_request_that_fails_in_its_second_part_fails_once_and_leaves_nothing(work):
    work.gate.set()
    metrics = Metrics()

    async def main():
        batcher = Batcher(work, max_batch=2, metrics=metrics)
        with pytest.raises(ValueError, match="minus one"):
            await batcher.submit([1, 2, -1, 3, 4, 5], None, 9)
        answer = await batcher.submit([7], None, 9)
        await batcher.close()
        return answer

    assert _run(main) == [14]
    assert [items for _, items in work.batches] == [[1, 2], [-1, 3], [7]]
    assert 'syntaxformer_waiting_texts{model=""} 0.0' in metrics.text().decode()


def test_clients_take_turns_and_not_requests(work):
    """The requests of one do not stand before the one of another, and who had more time goes later."""

    async def main():
        batcher = Batcher(work, max_batch=2)
        tasks = [asyncio.create_task(batcher.submit([1, 2, 3], "a", 9, "crowd"))]
        await asyncio.sleep(0.05)
        for number, (client, settings) in enumerate((("crowd", "b"), ("crowd", "c"), ("other", "d"))):
            tasks.append(asyncio.create_task(batcher.submit([10 + number], settings, 9, client)))
        await asyncio.sleep(0.05)
        work.gate.set()
        await asyncio.gather(*tasks)

    _run(main)
    assert [items for _, items in work.batches] == [[1, 2], [12], [10], [11], [3]]


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
    looks = []

    def work(settings, items, is_over):
        while not is_over():
            time.sleep(0.01)
        looks.append(time.monotonic() - start)
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
    assert 0.1 <= looks[0] < 1


def test_what_waits_for_one_client_leaves_others_their_room(work):
    async def main():
        batcher = Batcher(work, max_waiting=3)
        tasks = []
        for _ in range(2):
            tasks.append(asyncio.create_task(batcher.submit([1, 1, 1], None, 9, "crowd")))
            await asyncio.sleep(0.05)
        with pytest.raises(Problem, match="queue"):
            await batcher.submit([1], None, 9, "crowd")
        tasks.append(asyncio.create_task(batcher.submit([2, 2], None, 9, "other")))
        await asyncio.sleep(0)
        work.gate.set()
        return await asyncio.gather(*tasks)

    assert _run(main)[2] == [4, 4]
