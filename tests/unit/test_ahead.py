"""Streams through a pool: order, bounds, errors, and a caller who leaves."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from syntaxformer.ahead import map_ahead


def test_results_come_in_order_though_the_first_takes_longest():
    later_is_done = threading.Event()

    def work(number: int) -> int:
        if number == 0:
            assert later_is_done.wait(timeout=60)
        else:
            later_is_done.set()
        return number * number

    assert list(map_ahead(ThreadPoolExecutor(2), work, range(7), 3)) == [0, 1, 4, 9, 16, 25, 36]


@pytest.mark.parametrize("n_ahead", [0, 1, 4])
def test_no_more_is_taken_than_was_agreed(n_ahead):
    taken = []
    results = map_ahead(ThreadPoolExecutor(2), str, (taken.append(n) or n for n in range(50)), n_ahead)
    assert next(results) == "0"
    assert len(taken) == n_ahead + 1
    results.close()
    assert len(taken) == n_ahead + 1


def test_where_the_next_item_is_not_there_all_that_was_taken_is_finished():
    taken = []
    items = (taken.append(n) or n for n in range(9))
    results = map_ahead(ThreadPoolExecutor(1), str, items, 5, lambda: len(taken) == 2)
    assert [next(results), next(results)] == ["0", "1"]
    assert len(taken) == 2


def test_an_error_of_the_work_reaches_the_caller_in_its_place():
    results = map_ahead(ThreadPoolExecutor(2), lambda n: 12 // n, [3, 2, 0, 1], 2)
    assert [next(results), next(results)] == [4, 6]
    with pytest.raises(ZeroDivisionError):
        next(results)


def test_an_error_of_the_items_comes_after_the_results_before_it():
    def items():
        yield from (1, 2, 3)
        raise ValueError("no fourth")

    results = map_ahead(ThreadPoolExecutor(2), str, items(), 5)
    assert [next(results), next(results), next(results)] == ["1", "2", "3"]
    with pytest.raises(ValueError, match="no fourth"):
        next(results)
