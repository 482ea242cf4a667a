"""Options that several commands share, and checks of the files that they name.

What a check does not accept, it refuses by a `ConfigError`, or by a `DataError` if it is in a file.
"""

from __future__ import annotations

import logging
import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import wraps
from inspect import Parameter, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option
from typer.core import TyperCommand, TyperGroup

from syntaxformer.base.errors import AlignmentError, ConfigError, DataError, SyntaxformerError, visible

if TYPE_CHECKING:
    from syntaxformer.translation.translator import Translator

_log = logging.getLogger("syntaxformer.data")


def _language(value: str) -> str:
    from syntaxformer.base.languages import given_language

    return given_language(value)


BaselineOption = Annotated[
    list[Path] | None, Option(help="Another model, from which the difference is reported; repeatable.")
]
BatchSizeOption = Annotated[int | None, Option(min=1, max=2**16, help="Number of lines decoded together.")]
BeamSizeOption = Annotated[int | None, Option(min=1, max=256, help="Default: the model's setting.")]
BlankOption = Annotated[
    list[str] | None,
    Option(
        metavar="NAME",
        help="Blank a factor, a tree, syntax, governors, parent, child, sibling or pair; repeatable.",
    ),
]
ByOption = Annotated[
    str | None,
    Option(metavar="KEY", help="Group a contrastive test by a key of its JSON or table: distance."),
]
ContrastOption = Annotated[
    Path | None, Option(help="Contrastive test, as LingEval97 or ContraPro, or a table with a header.")
]
DeviceOption = Annotated[
    str | None, Option(help="cpu, cuda, …, with :bf16 behind it to compute in bf16; default: the best.")
]
FactorOption = Annotated[
    list[str] | None,
    Option(metavar="NAME=FILE", help="Your own factor, with one value for each word; repeatable."),
]
LanguageOption = Annotated[
    str | None, Option(parser=_language, metavar="CODE", help="Default: by the name of the file.")
]
JsonOption = Annotated[bool, Option("--json", help="Print one JSON object.")]
ModelAnnotatorOption = Annotated[str | None, Option(help="Annotator to use instead of the models' own.")]
NoRepeatOption = Annotated[
    int | None, Option(min=2, help="No n-gram of so many pieces twice; default: the model's setting.")
]
OverwriteOption = Annotated[bool, Option("--overwrite", help="Delete the output of an older run.")]
ReferenceOption = Annotated[
    list[Path] | None, Option(help="Reference translations, line by line; repeatable: several references.")
]
RelationsOption = Annotated[
    list[Path] | None,
    Option(metavar="FILE", help="Python file that registers your relations or embeddings; repeatable."),
]
ResumeOption = Annotated[bool, Option("--resume", help="Continue an interrupted run.")]
SeedOption = Annotated[int | None, Option(min=0, max=2**32 - 1, help="Of the samples; default: 0.")]
SettingsArgument = Annotated[
    list[str] | None, Argument(metavar="[key.sub=value]...", help="Settings that override the recipe.")
]
ShuffleOption = Annotated[
    list[str] | None,
    Option(metavar="NAME", help="Shuffle a factor, a tree, syntax or governors to test its use; repeatable."),
]
TargetsOption = Annotated[
    list[Path] | None,
    Option(help="Translations, line by line; repeatable: a contrastive test, whose first is right."),
]
TemperatureOption = Annotated[float | None, Option(help="Sample; 1: with the model's own probabilities.")]
ToOption = Annotated[
    str | None, Option(metavar="LANGUAGE", help="Target language, of a model that has several.")
]
TopKOption = Annotated[int | None, Option(min=1, help="Sample among so many pieces; default: all.")]
TrustOption = Annotated[bool, Option(help="Load any annotator and tokenizer that the model has.")]


def echo(text: object, err: bool = False) -> None:
    """Print text; what goes to a terminal, or is a message, is made `visible`."""
    typer.echo(visible(text) if err or sys.stdout.isatty() else text, err=err)


def with_relations(verb: Callable[..., None]) -> Callable[..., None]:
    """Give a verb the option `--relations`; the user's own recipe may name such a file as `relations`."""

    @wraps(verb)
    def registered(relations: list[Path] | None = None, **arguments: Any) -> None:
        files: list[Any] = [*(relations or ())]
        for name in ("recipe", "spec"):
            path = Path(str(arguments.get(name)))
            # The recipe.yaml of a folder may be a stranger's.
            if path.suffix in (".yaml", ".yml") and path.name != "recipe.yaml" and path.is_file():
                from syntaxformer.base.config import read_yaml

                files += filter(None, [read_yaml(path).get("relations")])
        if files:
            from syntaxformer.syntax.own_relations import register_file

            for file in files:
                register_file(str(file))
        verb(**arguments)

    shape = signature(verb, eval_str=True)
    option = Parameter("relations", Parameter.KEYWORD_ONLY, default=None, annotation=RelationsOption)
    registered.__signature__ = shape.replace(parameters=[*shape.parameters.values(), option])  # type: ignore[attr-defined]
    return registered


class _OnceEach:
    """Refuses an option, or the key of a setting, that is repeated: else the last value counts unnoticed."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        command: Any = super()
        values, _, parameters = command.make_parser(ctx).parse_args(list(args))
        for parameter, n in Counter(parameters).items():
            if n > 1 and not parameter.multiple:
                raise ConfigError(f"{max(parameter.opts, key=len)}: expected it once, got it {n} times.")
            if (parameter.metavar or "").upper().rstrip("].").endswith(("=VALUE", "=FILE")):
                from syntaxformer.base.config import check_once  # which imports pydantic, as --help must not

                check_once(values[parameter.name] or ())
        return command.parse_args(ctx, args)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Show each option's whole name, however narrow the terminal: Typer cuts it as the text behind it."""
        import typer.rich_utils
        from rich.table import Table

        class WholeNames(Table):
            def add_row(self, *cells: Any, **style: Any) -> None:
                super().add_row(*cells, **style)
                for column in self.columns[:-2]:  # but not those of types and help
                    column.no_wrap = True

        typer.rich_utils.Table = WholeNames  # type: ignore[misc]
        command: Any = super()
        command.format_help(ctx, formatter)


class Command(_OnceEach, TyperCommand):
    """A verb."""


class Group(_OnceEach, TyperGroup):
    """A verb with verbs below it."""


class App(typer.Typer):
    """Verbs that take each option once, unless it is repeatable."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(cls=Group, **settings)

    def command(self, name: str | None = None, **settings: Any) -> Any:
        """Add a verb; see `Typer.command`."""
        return super().command(name, cls=Command, **settings)


def echo_table(rows: Sequence[Sequence[str]]) -> None:
    """Print a table with names on the left and numbers, which get six characters or more, on the right."""
    widths = [max(6 * (column > 0), *map(len, cells)) for column, cells in enumerate(zip(*rows, strict=True))]
    for first, *others in rows:
        numbers = (f"{cell:>{width}}" for cell, width in zip(others, widths[1:], strict=True))
        echo("  ".join([f"{first:{widths[0]}}", *numbers]))


def system_name(path: Path, systems: Collection[str]) -> str:
    """The name of a model among systems: its path, marked if it stands there already."""
    name = str(path)
    while name in systems:
        name += " (again)"
    return name


def refuse_inputs(output: Path | None, inputs: Iterable[str | Path | None], option: str = "-o") -> None:
    """Check that an output, None for standard output, is not one of the inputs, by its name or by a link."""
    if output is None or (output.exists() and not output.is_file()):
        return  # a pipe or a terminal may be read and written
    for source in map(Path, filter(None, inputs)):
        is_same_file = output.exists() and source.exists() and output.samefile(source)
        if is_same_file or output.resolve() == source.resolve():
            other = "the input" if option == "-o" else "an input or -o"
            raise ConfigError(f"{option}: expected another file than {other}, got {source}.")


def refuse_other_endings(output: Path | None, known: Sequence[str]) -> None:
    """Check that the ending of an output is a known one; a name without an ending is accepted."""
    if output is not None and output.suffix and output.suffix not in known:
        problem = f"expected a file ending of {' or '.join(known)}, got {output.name}"
        raise ConfigError(f"-o: {problem}. Use {output.with_suffix(known[0]).name}.")


def check_parallel(src: Path, sources: Sequence[object], path: Path, lines: Sequence[object]) -> None:
    """Check that a file has as many lines as the source, and at least one."""
    if len(lines) != len(sources) or not sources:
        message = f"expected as many lines as {src}, at least one; got {len(lines)} and {len(sources)}."
        raise DataError(message, path)


def read_parallel(src: Path, references: Sequence[Path]) -> tuple[list[str], list[list[str]]]:
    """The lines of a source and of each of its references; says how many are empty or have tabs."""
    from syntaxformer.base.files import read_lines

    sources, texts = list(read_lines(src)), [list(read_lines(path)) for path in references]
    for path, lines in zip((src, *references), (sources, *texts), strict=True):
        check_parallel(src, sources, path, lines)
        if lines is not sources and lines == sources:
            raise DataError(f"expected another text than in {src}, got the same.", path)
        empty = [number for number, line in enumerate(lines, 1) if not line.strip()]
        tabs = [number for number, line in enumerate(lines, 1) if "\t" in line and lines is not sources]
        for fault, numbers in (("are empty", empty), ("have a tab, which is read as a space", tabs)):
            if numbers:
                details = path, len(numbers), len(lines), fault, numbers[0]
                _log.warning("%s: %d of %d lines %s; the first is line %d", *details)
    return sources, texts


def check_languages(info: Any, src: Path | None, *references: Path) -> None:
    """Warn of a source or target file whose name says another language than the model's."""
    from syntaxformer.base.languages import language_of_file, language_of_side

    for path, ending in ((src, info.src), *((reference, info.tgt) for reference in references)):
        code = path and language_of_file(path).code
        if code and (expected := language_of_side(info, ending).code) not in (None, code):
            message = "%s: expected %s, as of the model, got a file of %s by its name"
            _log.warning(message, path, expected, code)


def factor_files(settings: Iterable[str] | None) -> dict[str, Path]:
    """The files of `--factor NAME=FILE` by the names of their factors."""
    pairs = [setting.partition("=") for setting in settings or ()]
    if wrong := ["".join(pair) for pair in pairs if not all(pair)]:
        raise ConfigError([f"--factor: expected NAME=FILE, got {setting}." for setting in wrong])
    return {name: Path(path) for name, _, path in pairs}


def read_factors(settings: Iterable[str] | None) -> dict[str, Iterator[list[str]]]:
    """Open the factor files of `--factor NAME=FILE`."""
    from syntaxformer.syntax import read_user_values

    return {name: read_user_values(path) for name, path in factor_files(settings).items()}


@contextmanager
def errors_of_factors(settings: Iterable[str] | None) -> Iterator[None]:
    """Let errors about values of `--factor NAME=FILE` name the file."""
    try:
        yield
    except AlignmentError as error:
        for name, path in factor_files(settings).items():
            message = str(error).removeprefix(f"line {error.line}: ")
            if error.path is None and message.startswith((f"column {name}:", f"factor {name}:")):
                raise AlignmentError(message, path, error.line) from error
        raise


def check_factor_names(names: Collection[str], translators: Iterable[Translator]) -> None:
    """Check that each given factor is read by one of the models."""
    factors = {name for translator in translators for name in translator.encoder.factors}
    if unknown := set(names) - factors:
        raise ConfigError(f"--factor: expected a factor of the model, got {', '.join(sorted(unknown))}.")


def spare_torch(models: Iterable[Path], annotator: str | None) -> None:
    """Import spaCy without torch for exports, or no model: thinc, below spaCy, would import it for nothing.

    Only a verb whose process loads no other annotator may do so: thinc looks for torch once.
    """
    from syntaxformer.base.languages import BUNDLED, PHRASES
    from syntaxformer.translation.model_folder import read_info

    with suppress(SyntaxformerError, ImportError):  # `Translator.load` says what is wrong
        infos = [read_info(model) for model in models]
        are_exports = all(info.backend != "pytorch" for info in infos)
        names = [annotator] if annotator else [info.annotator for info in infos]
        are_bundled = all((name or "").removesuffix(PHRASES) in BUNDLED for name in names)
        if names and are_exports and are_bundled and "torch" not in sys.modules:
            sys.modules["torch"] = None  # type: ignore[assignment]
            import spacy  # noqa: F401
    if sys.modules.get("torch", sys) is None:
        del sys.modules["torch"]
