"""The store of an experiment: one SQLite row a run, beside the folders of the runs; survives a kill.

STORE/store.sqlite            state, settings and result of every run
STORE/cells/NAME/cell.json    what the run is to do
STORE/cells/NAME/log.txt      what it said
STORE/cells/NAME/model        its folder, to resume from
STORE/cells/NAME/result.json  written last; a run that has it is done
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from syntaxformer.base.errors import DataError
from syntaxformer.study.experiments.spec import Cell

WAITING, RUNNING, DONE, FAILED, KILLED = "waiting", "running", "done", "failed", "killed"
"""States. `failed` is an error of the run itself, tried again on request; `killed` is tried again anyway."""

_SCHEMA = """
CREATE TABLE IF NOT EXISTS runs (
  key TEXT PRIMARY KEY, name TEXT NOT NULL, verb TEXT NOT NULL, recipe TEXT, labels TEXT NOT NULL,
  settings TEXT NOT NULL, test TEXT, state TEXT NOT NULL, attempts INTEGER NOT NULL DEFAULT 0,
  seconds REAL NOT NULL DEFAULT 0, error TEXT, result TEXT)
"""


@dataclass(frozen=True)
class StoredRun:
    """A row.

    Args:
        cell: What is run.
        state: One of the states.
        attempts: How often it was started.
        seconds: Time of all attempts.
        error: Why it failed or was killed, the last time.
        result: What `cell_run.run_cell` found; empty until it is done.
    """

    cell: Cell
    state: str
    attempts: int
    seconds: float
    error: str | None
    result: dict[str, Any]


class RunStore:
    """Rows of one experiment.

    Args:
        folder: Created where there is none.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.path = self.folder / "store.sqlite"

    def cell_folder(self, cell: Cell) -> Path:
        """Where a run keeps its files."""
        return self.folder / "cells" / cell.name

    def add(self, cells: Sequence[Cell]) -> None:
        """Add runs that are not there; those that are stay as they are.

        Raises:
            DataError: The store cannot be written.
        """
        rows = [
            (one.key, one.name, one.verb, one.recipe, _json(one.labels), _json(one.settings), _json(one.test))
            for one in cells
        ]
        with self._open() as connection:
            connection.executemany(
                "INSERT INTO runs (key, name, verb, recipe, labels, settings, test, state) "
                f"VALUES (?, ?, ?, ?, ?, ?, ?, '{WAITING}') "
                "ON CONFLICT (key) DO NOTHING",
                rows,
            )

    def runs(self) -> dict[str, StoredRun]:
        """All rows by key, in the order in which they were added.

        One that was running when its runner was killed is `KILLED`.

        Raises:
            DataError: The store cannot be read.
        """
        if not self.path.exists():
            return {}
        columns = "key, verb, recipe, labels, settings, test, state, attempts, seconds, error, result, name"
        with self._open() as connection:
            rows = connection.execute(f"SELECT {columns} FROM runs ORDER BY rowid").fetchall()
        found = {row[0]: _read(row) for row in rows}
        left = [key for key, run in found.items() if run.state == RUNNING]
        if left and not self._has_runner():
            for key in left:
                found[key] = replace(found[key], state=KILLED, error="its runner was killed")
        return found

    def _has_runner(self) -> bool:
        lock = self.lock()
        try:
            lock.acquire(timeout=0)
        except (Timeout, OSError, NotImplementedError):  # or a disk without locks, where nobody knows
            return True
        lock.release()
        return False

    def lock(self) -> FileLock:
        """What a runner holds while it works on the store."""
        return FileLock(self.folder / "runner.lock")

    def start(self, key: str) -> None:
        """A run is started once more."""
        self._update(key, f"state = '{RUNNING}', attempts = attempts + 1, error = NULL")

    def finish(self, key: str, seconds: float, result: dict[str, Any]) -> None:
        """A run is done, after so many seconds of all its attempts."""
        self._update(key, f"state = '{DONE}', seconds = ?, result = ?", seconds, _json(result))

    def stop(self, key: str, state: str, seconds: float, error: str) -> None:
        """A run ended without a result, `FAILED` or `KILLED`, after so many seconds of all its attempts."""
        self._update(key, "state = ?, seconds = ?, error = ?", state, seconds, error)

    def release(self, states: Sequence[str], keys: Collection[str] | None = None) -> None:
        """Let runs in these states wait again.

        Args:
            states: Of the runs.
            keys: Of the runs; None for all.
        """
        marks = ", ".join("?" * len(states))
        chosen = [key for key, run in self.runs().items() if keys is None or key in keys]
        with self._open() as connection:
            connection.executemany(
                f"UPDATE runs SET state = '{WAITING}' WHERE key = ? AND state IN ({marks})",
                [(key, *states) for key in chosen],
            )

    def _update(self, key: str, change: str, *values: object) -> None:
        with self._open() as connection:
            connection.execute(f"UPDATE runs SET {change} WHERE key = ?", (*values, key))

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        """A connection for one transaction: written whole or not at all."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with closing(sqlite3.connect(self.path, timeout=60)) as connection, connection:
                connection.execute(_SCHEMA)
                yield connection
        except (sqlite3.Error, OSError) as error:
            raise DataError(f"expected a store of runs, got: {error}.", self.path) from error


def _json(value: Any) -> str | None:
    return None if value is None else json.dumps(value, ensure_ascii=False, default=str)


def _read(row: tuple[Any, ...]) -> StoredRun:
    _, verb, recipe, labels, settings, test, state, attempts, seconds, error, result, name = row
    cell = Cell(
        verb, recipe, json.loads(labels), json.loads(settings), json.loads(test) if test else None, name
    )
    return StoredRun(cell, state, attempts, seconds, error, json.loads(result) if result else {})
