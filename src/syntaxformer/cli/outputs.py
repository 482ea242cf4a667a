"""Holding that what `-o` names may be written: it is no input, and its ending is a known one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from syntaxformer.base.errors import ConfigError

__all__ = ["factor_files", "refuse_inputs", "refuse_other_endings"]


def refuse_inputs(output: Path | None, inputs: Iterable[str | Path | None]) -> None:
    """Hold that an output is none of the files that are read.

    Args:
        output: The file to write; None for standard output.
        inputs: Files that are read; None for one that was not given.

    Raises:
        ConfigError: It is one, by its name or by a link.
    """
    if output is None or (output.exists() and not output.is_file()):
        return  # a pipe or a terminal may be read and written
    for source in inputs:
        if source is not None and _is_same(output, Path(source)):
            raise ConfigError(f"-o: expected another file than the input, got {source}.")


def _is_same(output: Path, source: Path) -> bool:
    if output.resolve() == source.resolve():
        return True
    return output.exists() and source.exists() and output.samefile(source)


def factor_files(settings: Iterable[str] | None) -> list[str]:
    """The files of `--factor NAME=FILE`."""
    return [path for _, _, path in (setting.partition("=") for setting in settings or ()) if path]


def refuse_other_endings(output: Path | None, known: Sequence[str]) -> None:
    """Hold that a file's ending is one of what is written; a name without one says nothing and may stay.

    Raises:
        ConfigError: It is another.
    """
    if output is not None and output.suffix and output.suffix not in known:
        raise ConfigError(
            f"-o: expected a file ending of {' or '.join(known)}, got {output.name}. "
            f"Use {output.with_suffix(known[0]).name}."
        )
