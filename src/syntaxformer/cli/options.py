"""Options that several commands share, and what is held of the files that they name."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from syntaxformer.base.errors import ConfigError

BeamSizeOption = Annotated[int | None, typer.Option(min=1, help="Default: the model's setting.")]
DeviceOption = Annotated[str | None, typer.Option(help="cpu, cuda, …; default: the best there is.")]
FactorOption = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME=FILE", help="Values of a factor of your own, one a word; repeatable."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
ModelAnnotatorOption = Annotated[str | None, typer.Option(help="Use this annotator, not the models' own.")]
OverwriteOption = Annotated[
    bool, typer.Option("--overwrite", help="Delete an older run in the output folder.")
]
RefOption = Annotated[Path, typer.Option(help="Reference translations, line by line.")]
ResumeOption = Annotated[bool, typer.Option("--resume", help="Go on with an interrupted run.")]
SrcOption = Annotated[Path, typer.Option(help="Source text, plain or .gz.")]
TrustOption = Annotated[bool, typer.Option(help="Load any annotator that the model names.")]


class Engine(StrEnum):
    """Who does the work."""

    local = "local"
    ray = "ray"


AddressOption = Annotated[
    str | None,
    typer.Option(help="Of a running Ray cluster: auto, ray://HOST:10001. Default: one on this machine."),
]


def refuse_lone_address(engine: Engine, address: str | None) -> None:
    """Hold that an address is given to the engine that has one.

    Raises:
        ConfigError: It is given to the local engine.
    """
    if address is not None and engine is not Engine.ray:
        raise ConfigError("--address: expected --engine ray with it, got the local engine.")


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
