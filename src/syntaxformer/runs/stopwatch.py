"""The time that the processes of one run take together, counted by themselves.

Whoever started a process may be killed before it ends; what it counted stays in its folder.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from pathlib import Path

from syntaxformer.base.errors import DataError
from syntaxformer.base.files import atomic_file

__all__ = ["Stopwatch", "counted_seconds"]

_log = logging.getLogger("syntaxformer.training")

SECONDS = "seconds.json"
EVERY_S = 5.0
"""So much is lost where a process is killed."""


class Stopwatch:
    """Counts while it is entered, on from where the last process of this run stopped.

    Args:
        folder: Of the run.
        every_s: Seconds between writes.
        start: When this process began, by `time.monotonic`; None for now.
    """

    def __init__(self, folder: Path, every_s: float = EVERY_S, start: float | None = None) -> None:
        self.folder, self.every_s = folder, every_s
        self._before = counted_seconds(folder)
        self._start = time.monotonic() if start is None else start
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._keep_writing, daemon=True)

    @property
    def seconds(self) -> float:
        """Of all processes up to now."""
        return round(self._before + time.monotonic() - self._start, 1)

    def __enter__(self) -> Stopwatch:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def stop(self) -> float:
        """Count no further; gives the seconds of all processes."""
        if not self._ended.is_set():
            self._ended.set()
            self._thread.join()
            self._write()
        return self.seconds

    def _keep_writing(self) -> None:
        while not self._ended.wait(self.every_s):
            self._write()

    def _write(self) -> None:
        """A full disk is the run's own error to report; its time is not worth another one."""
        try:
            with atomic_file(self.folder / SECONDS) as temporary:
                temporary.write_text(json.dumps({"seconds": self.seconds}), "utf-8")
        except DataError as error:
            _log.warning("time not counted: %s", error)


def counted_seconds(folder: Path) -> float:
    """Seconds that the processes of a run have counted; 0 where none has."""
    try:
        return float(json.loads((folder / SECONDS).read_text("utf-8"))["seconds"])
    except (OSError, ValueError, KeyError, TypeError):
        return 0.0
