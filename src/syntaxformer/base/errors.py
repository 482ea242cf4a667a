"""The exception tree.

Everything that a user can cause is a `SyntaxformerError`; the command line turns it into one line on stderr
and exit code 2. Misuse of an argument in Python is a `ValueError` or `TypeError` in the same words:
`<what>: expected <constraint>, got <value>[, at <file:line>]. <remedy>.`
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Generator, Sequence
from contextlib import contextmanager

NOT_FINITE = (
    "model: expected finite outputs, got NaN or infinity. Its weights are too large for its precision: use "
    "it without :bf16, or train it again with a lower training.learning_rate."
)
MOST_BAD_ROWS = 20  # that are shown


class SyntaxformerError(Exception):
    """Base of every error that this package raises for a reason outside its own code."""


class ConfigError(SyntaxformerError):
    """A recipe or an option that cannot work; holds all problems found, not only the first."""

    def __init__(self, problems: str | Sequence[str]) -> None:
        self.problems = [problems] if isinstance(problems, str) else list(problems)
        super().__init__("; ".join(self.problems))


class DataError(SyntaxformerError):
    """Content that cannot be used, of a file if it has a `path`, at its 1-based `line` if that is known."""

    def __init__(self, message: str, path: object = None, line: int | None = None) -> None:
        self.path = None if path is None else str(path)
        self.line = line
        location = self.path or ""
        if line is not None:
            location = f"{location}:{line}" if location else f"line {line}"
        super().__init__(f"{location}: {message}" if location else message)


class BadRowsError(DataError):
    """All rows of a source that cannot be used, by their lines; `problems` shows the first of them."""

    def __init__(self, path: object, rows: Sequence[tuple[int, str]]) -> None:
        shown = rows[:MOST_BAD_ROWS]
        super().__init__(shown[0][1], path, shown[0][0])
        self.problems = [f"{path}:{line}: {problem}" for line, problem in shown]
        if len(rows) > 1:
            note = f"{path}: expected rows that can be used, got {len(rows):,} that cannot"
            note += f", of which {len(shown)} are shown" if len(rows) > len(shown) else ""
            remedy = f"Mend them, or leave them out with --skip-bad-rows {len(rows)} (of finetune)."
            self.problems.append(f"{note}. {remedy}")
        self.args = ("\n".join(self.problems),)


class TreeError(DataError):
    """A dependency or constituency tree that is not one: a cycle, governor out of range, open bracket."""


class AlignmentError(DataError):
    """Words, pieces or factor columns of one line that do not fit each other."""


class BackendMissingError(SyntaxformerError):
    """An optional package or model that is not installed."""

    def __init__(self, what: str, install: str) -> None:
        self.install = install
        super().__init__(f"{what} is not installed. Run: {install}")


@contextmanager
def needs_extra(extra: str, purpose: str) -> Generator[None]:
    """Turn a missing package of an extra into a `BackendMissingError` with the command that installs it."""
    try:
        yield
    except ImportError as error:
        install = f'python -m pip install "syntaxformer[{extra}]"'
        raise BackendMissingError(f"{error.name}, which {purpose},", install) from error


class CheckpointError(SyntaxformerError):
    """A model folder or a training checkpoint that is incomplete, altered or of another kind."""


_CONTROL = re.compile(r"[\0-\x08\x0b-\x1f\x7f-\x9f]")


def visible(text: object) -> str:
    """Text for a terminal: a control character, which could command it, is spelled in hexadecimal."""
    return _CONTROL.sub(lambda match: f"\\x{ord(match[0]):02x}", str(text))


def one_line(error: BaseException, most: int = 200) -> str:
    """The message of a library's error, or its class, in one line, cut between words to `most` characters."""
    return textwrap.shorten(str(error) or type(error).__name__, most, placeholder=" …")


@contextmanager
def panics() -> Generator[None]:
    """Turn a panic of a library in Rust, whose class is no `Exception`, into a `CheckpointError`."""
    try:
        yield
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        expected = "tokenizer: expected one that can cut every text"
        raise CheckpointError(f"{expected}, got: {one_line(error)}") from error
