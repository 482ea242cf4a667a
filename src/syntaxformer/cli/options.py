"""Options that several commands share, and what is checked of the files that they name."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from syntaxformer.base.errors import ConfigError, DataError

if TYPE_CHECKING:
    from syntaxformer.translation.translator import Translator


class Engine(StrEnum):
    """Who does the work."""

    local = "local"
    ray = "ray"


AddressOption = Annotated[
    str | None, Option(help="Of a running Ray cluster: auto, ray://HOST:10001. Default: one on this machine.")
]
BeamSizeOption = Annotated[int | None, Option(min=1, help="Default: the model's setting.")]
BlankOption = Annotated[
    list[str] | None,
    Option(metavar="NAME", help="The same, emptied; also parent, child, sibling, of pairs pair. Repeatable."),
]
DeviceOption = Annotated[str | None, Option(help="cpu, cuda, …; default: the best there is.")]
EngineOption = Annotated[
    Engine, Option(help="local: processes here. ray: a Ray cluster, which sees the same disks.")
]
FactorOption = Annotated[
    list[str] | None,
    Option(metavar="NAME=FILE", help="Values of a factor of your own, one a word; repeatable."),
]
JsonOption = Annotated[bool, Option("--json", help="Print one JSON object.")]
ModelAnnotatorOption = Annotated[str | None, Option(help="Use this annotator, not the models' own.")]
OverwriteOption = Annotated[bool, Option("--overwrite", help="Delete what an older run wrote there.")]
RefOption = Annotated[Path, Option(help="Reference translations, line by line.")]
ResumeOption = Annotated[bool, Option("--resume", help="Go on with an interrupted run.")]
SettingsArgument = Annotated[
    list[str] | None, Argument(metavar="[key.sub=value]...", help="Settings over the recipe's.")
]
ShuffleOption = Annotated[
    list[str] | None,
    Option(metavar="NAME", help="Shuffle a factor, a tree, syntax or governors: does the model use it?"),
]
SrcOption = Annotated[Path, Option(help="Source text, plain or .gz.")]
TranslatorArgument = Annotated[Path, Argument(help="Folder that `train` or `export` wrote.")]
TrustOption = Annotated[bool, Option(help="Load any annotator that the model names.")]


def refuse_lone_address(engine: Engine, address: str | None) -> None:
    """Check that an address is given to the engine that has one.

    Raises:
        ConfigError: It is given to the local engine.
    """
    if address is not None and engine is not Engine.ray:
        raise ConfigError("--address: expected --engine ray with it, got the local engine.")


def refuse_inputs(output: Path | None, inputs: Iterable[str | Path | None]) -> None:
    """Check that an output, None for standard output, is none of the files that are read.

    Raises:
        ConfigError: It is one, by its name or by a link.
    """
    if output is None or (output.exists() and not output.is_file()):
        return  # a pipe or a terminal may be read and written
    for source in map(Path, filter(None, inputs)):
        is_same_file = output.exists() and source.exists() and output.samefile(source)
        if is_same_file or output.resolve() == source.resolve():
            raise ConfigError(f"-o: expected another file than the input, got {source}.")


def refuse_other_endings(output: Path | None, known: Sequence[str]) -> None:
    """Check that a file's ending is one of what is written; a name without one says nothing and may stay.

    Raises:
        ConfigError: It is another.
    """
    if output is not None and output.suffix and output.suffix not in known:
        raise ConfigError(
            f"-o: expected a file ending of {' or '.join(known)}, got {output.name}. "
            f"Use {output.with_suffix(known[0]).name}."
        )


def check_parallel(src: Path, sources: Sequence[str], others: Mapping[Path, Sequence[str]]) -> None:
    """Check that files have a line for each source line, and that there is one.

    Raises:
        DataError: One has not.
    """
    for path, lines in others.items():
        if len(lines) != len(sources) or not sources:
            raise DataError(
                f"expected as many lines as {src}, at least one; got {len(lines)} and {len(sources)}.", path
            )


def factor_files(settings: Iterable[str] | None) -> list[str]:
    """The files of `--factor NAME=FILE`."""
    return [path for _, _, path in (setting.partition("=") for setting in settings or ()) if path]


def read_factors(settings: Iterable[str] | None) -> dict[str, Iterator[list[str]]]:
    """Open the factor files of `--factor NAME=FILE`.

    Raises:
        ConfigError: A setting of another form.
    """
    from syntaxformer.syntax import read_user_values

    pairs = [setting.partition("=") for setting in settings or ()]
    wrong = ["".join(one) for one in pairs if not (one[0] and one[2])]
    if wrong:
        raise ConfigError([f"--factor: expected NAME=FILE, got {one}." for one in wrong])
    return {name: read_user_values(path) for name, _, path in pairs}


def check_factor_names(given: Collection[str], translators: Iterable[Translator]) -> None:
    """Check that one of the models reads each factor that is given.

    Raises:
        ConfigError: None does.
    """
    known = {name for translator in translators for name in translator.encoder.factors}
    if unknown := set(given) - known:
        raise ConfigError(f"--factor: expected a factor of the model, got {', '.join(sorted(unknown))}.")
