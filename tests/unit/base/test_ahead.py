"""Streams through a pool: order, bounds, errors, and a caller who leaves."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from syntaxformer.base.errors import DataError
from syntaxformer.base.files import MAX_LINE_BYTES
from syntaxformer.base.progress import LiveLines, map_ahead


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


@pytest.fixture
def pipe():
    reader, writer = os.pipe()
    with os.fdopen(reader, "rb"), os.fdopen(writer, "wb", buffering=0) as file:
        yield LiveLines(reader, "standard input"), file


def test_live_lines_know_whether_the_next_has_come(pipe):
    lines, typed = pipe
    typed.write(b"one\ntwo\r\nb\xe2\x80\xa8c\nthr")
    assert next(lines) == "one"
    assert not lines.is_waiting()
    assert next(lines) == "two"
    assert next(lines) == "b\u2028c"
    assert lines.is_waiting()
    typed.write(b"ee")
    assert lines.is_waiting()
    typed.close()
    assert list(lines) == ["three"]
    assert list(lines) == []
    assert not lines.is_waiting()  # the end has come


def test_live_lines_report_what_was_read_wrongly(pipe):
    lines, typed = pipe
    typed.write(b"one\n\xff\n")
    assert next(lines) == "one"
    with pytest.raises(DataError, match=r"^standard input:2: expected UTF-8, got byte 0xff"):
        next(lines)


def test_live_lines_hold_no_more_than_the_bound_of_a_line(pipe, monkeypatch):
    monkeypatch.setenv(MAX_LINE_BYTES, "5")
    lines, typed = pipe
    typed.write(b"12345\r\n123456")  # whose end has not come
    assert next(lines) == "12345"
    typed.write(b"7")
    with pytest.raises(DataError, match=r"^standard input:2: .*at most 5 bytes"):
        next(lines)


@pytest.mark.parametrize("stop", ["raise SystemExit(7)", "raise KeyboardInterrupt"])
def test_a_program_may_end_while_standard_input_is_open(stop):
    script = f"from syntaxformer.base.progress import standard_input\nlines = standard_input()\nprint(next(lines), flush=True)\n{stop}"
    process = subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    with process:
        process.stdin.write(b"one\n")
        process.stdin.flush()
        assert process.stdout.readline() == b"one\n"
        process.wait(60)  # and nobody closes its input
        assert b"Fatal" not in process.stderr.read()
    assert process.returncode == (7 if "Exit" in stop else -signal.SIGINT)
