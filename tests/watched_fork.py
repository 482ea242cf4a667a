"""Open what a stranger made in a fork of this process, and see from outside what it runs, reaches for and fills up."""

from __future__ import annotations

import json
import os
import re
import select
import signal
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from syntaxformer.base.errors import SyntaxformerError

MOST_SECONDS, MOST_WAITED, MOST_BYTES = 10, 60, 2**30
"""Of the processor; by the clock, which beside other work says little; and of memory."""

MARK, SECRET = "ran", "secret"
"""What hostile code writes beside the folder, and what lies there and is not the folder's to read."""

RUN = f"open({MARK!r}, 'w')  # register_relations"
"""Hostile code, with the word by which a module of relations is known."""

HARMLESS, REFUSED, TRACEBACK, STOPPED = "harmless", "refused", "traceback", "stopped"
_DEEDS = {
    *("socket.connect", "socket.getaddrinfo", "os.system", "os.exec", "os.posix_spawn"),
    "pickle.find_class",
}
"""Events of Python that no folder may cause."""


class Payload:
    """A pickle that runs."""

    def __reduce__(self) -> Any:
        return exec, (RUN,)


def outcome(call: Callable[[], Any], home: Path) -> tuple[str, str, list[str]]:
    """What comes of a call in a folder: its kind, the result or error as text, and all that should not be."""
    answer, written = os.pipe()
    if (child := os.fork()) == 0:
        try:
            os.write(written, json.dumps(_watched(call, home)).encode())
        finally:
            os._exit(0)
    os.close(written)
    end, most, raw, faults = time.monotonic() + MOST_WAITED, _memory(child) + MOST_BYTES, b"", []
    while not faults:
        if select.select([answer], [], [], 0.02)[0]:
            if not (read := os.read(answer, 2**16)):
                break
            raw += read
        elif _processor_s(child) > MOST_SECONDS or time.monotonic() > end:
            faults = [f"no answer in {MOST_SECONDS} s"]
        elif _memory(child) > most:
            faults = ["more than 1 GB"]
    os.close(answer)
    if faults:
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    if faults or not raw:
        return STOPPED, "", faults or [f"died of signal {os.WTERMSIG(status)}"]
    kind, text, faults, peak = json.loads(raw)
    if (home / MARK).exists():
        faults.append("code ran")
    if peak > MOST_BYTES:
        faults.append(f"{peak >> 20} MB")
    if kind == REFUSED and not text.isprintable():
        faults.append("control characters or several lines")
    return kind, text, faults


def _watched(call: Callable[[], Any], home: Path) -> tuple[str, str, list[str], int]:
    """In the fork: the outcome, what was done besides, and the peak of memory in bytes."""
    os.chdir(home)
    for number in (1, 2):
        os.dup2(os.open("output", os.O_WRONLY | os.O_CREAT | os.O_APPEND), number)
    sys.path.insert(0, "")  # as `python -m` and notebooks have it
    warnings.resetwarnings()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    sys.modules["huggingface_hub"].constants.HF_HUB_OFFLINE = False  # what asks the Hub is to be seen
    deeds, before = [], _memory("self")
    Path("/proc/self/clear_refs").write_text("5", "ascii")  # the peak is counted from here

    def watch(event: str, arguments: tuple[Any, ...]) -> None:
        is_read = event == "open" and str(arguments[0]).endswith((SECRET, "/etc/passwd"))
        if is_read or event in _DEEDS:
            deeds.append(f"{event} {arguments}"[:100])
        if event.startswith("socket."):
            raise OSError("no network in this test")

    sys.addaudithook(watch)
    try:
        kind, text = HARMLESS, json.dumps(call())
    except SyntaxformerError as error:
        kind, text = REFUSED, getattr(error, "problems", [str(error)])[0]
    except BaseException as error:
        kind, text = TRACEBACK, f"{type(error).__name__}: {error}"
    return kind, text[:50_000], list(dict.fromkeys(deeds))[:3], _memory("self", "VmHWM") - before


def _processor_s(process: int) -> float:
    fields = Path(f"/proc/{process}/stat").read_text("ascii").rpartition(")")[2].split()
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


def _memory(process: int | str, field: str = "VmRSS") -> int:
    match = re.search(rf"{field}:\s+(\d+) kB", Path(f"/proc/{process}/status").read_text("ascii"))
    return 1024 * int(match[1]) if match else 0
