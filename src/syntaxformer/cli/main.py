"""The `syntaxformer` command: its verbs, and how errors and warnings reach the user.

Importing this file must stay fast (`--help` takes less than half a second), so each verb imports its code
only when it runs.
"""

from __future__ import annotations

import gc
import logging
import os
import sys
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from syntaxformer import __version__
from syntaxformer.base.errors import SyntaxformerError, panics, visible
from syntaxformer.cli import options
from syntaxformer.cli.annotate import annotate
from syntaxformer.cli.annotator import annotator
from syntaxformer.cli.attend import attend
from syntaxformer.cli.compare import compare
from syntaxformer.cli.cost import cost
from syntaxformer.cli.curves import curves
from syntaxformer.cli.data import data
from syntaxformer.cli.demo import demo
from syntaxformer.cli.doctor import doctor
from syntaxformer.cli.evaluate import evaluate
from syntaxformer.cli.experiment import experiment
from syntaxformer.cli.export import export
from syntaxformer.cli.finetune import finetune
from syntaxformer.cli.options import with_relations
from syntaxformer.cli.predict import predict
from syntaxformer.cli.probe import probe
from syntaxformer.cli.score import score
from syntaxformer.cli.serve import serve
from syntaxformer.cli.train import train
from syntaxformer.cli.translate import backtranslate, translate

GROUPS = {
    "Begin": (demo, doctor),
    "Translate": (train, translate, evaluate, score),
    "Fine-tune an encoder": (finetune, predict),
    "Look into models": (attend, compare, cost, curves, probe),
    "Prepare and deliver": (annotate, backtranslate, export, serve),
}
"""Purpose → verbs, in the order of the help."""

VERBS = tuple(verb for verbs in GROUPS.values() for verb in verbs)

_WITHOUT_RELATIONS = (demo, doctor, curves, annotate)
"""Verbs that load and train no model of the user's."""

app = options.App(
    name="syntaxformer",
    help="Syntax in Transformers: train, translate and evaluate with parts of speech and trees.",
    epilog="`syntaxformer VERB --help` shows an example.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)
_PACKAGE = Path(__file__).parents[1]
_REPEATS = ": the same command continues the work"
_GOES_ON = dict.fromkeys(("annotate", "backtranslate", "experiment"), _REPEATS)
_GOES_ON["translate"] = f"{_REPEATS} if --resume is added"
"""What to do after an interruption, for verbs that need not start again; runs say it themselves."""

for group, verbs in GROUPS.items():
    for verb in verbs:
        app.command(rich_help_panel=group)(verb if verb in _WITHOUT_RELATIONS else with_relations(verb))
app.add_typer(experiment, rich_help_panel="Look into models")
app.add_typer(data, rich_help_panel="Prepare and deliver")
app.add_typer(annotator, rich_help_panel="Prepare and deliver")


def _show_version(flag: bool) -> None:
    if flag:
        typer.echo(__version__)
        raise typer.Exit


class _Visible(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return visible("warning: " * (record.levelno == logging.WARNING) + super().format(record))


@app.callback()
def common(
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Show warnings but no progress.")] = False,
    version: Annotated[
        bool,
        typer.Option("--version", is_eager=True, callback=_show_version, help="Print the version and exit."),
    ] = False,
    max_line_bytes: Annotated[
        int | None,
        typer.Option(min=1, help="Largest size of a line of text that is read. Default: 1,000,000 bytes."),
    ] = None,
) -> None:
    """Set up logging for all verbs, and the bound of lines."""
    _ = debug, version  # main() reads `debug` before parsing, because usage errors also depend on it
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Visible())
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    logging.getLogger("syntaxformer").setLevel(logging.WARNING if quiet else logging.INFO)
    if max_line_bytes is not None:
        from syntaxformer.base.files import MAX_LINE_BYTES

        os.environ[MAX_LINE_BYTES] = str(max_line_bytes)
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
    warnings.showwarning = _show_warning


def main() -> None:
    """Run the command line; problems that a user can cause give one line each on stderr and exit code 2."""
    gc.set_threshold(50_000)  # by default a fifth of the time of importing transformers goes into it
    debug = "--debug" in sys.argv
    for name in ("stdout", "stderr"):  # closed by whoever started us: nobody reads
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open("w"))  # noqa: SIM115  # until the end
    code: object = 0
    try:
        with panics():
            code = app(standalone_mode=False, prog_name="syntaxformer")
        sys.stdout.flush()
    except BrokenPipeError:
        _drop_output()  # the reader of the output has ended (`| head`)
        code = 141
    except Exception as error:
        problems = _problems(error)
        if problems is None or (debug and not _is_usage(error)):
            raise
        for problem in problems:
            print(visible(f"error: {' '.join(problem.splitlines())}"), file=sys.stderr)
        if isinstance(error, OSError):
            _drop_output()
        code = 2
    if code == 130:
        verbs = {*(verb.__name__ for verb in VERBS), "annotator", "data", "experiment"}
        verb = next((argument for argument in sys.argv[1:] if argument in verbs), "")
        has_output = any(argument.startswith(("-o", "--output")) for argument in sys.argv)
        is_shown = verb == "translate" and not has_output  # of which nothing stays
        print(f"interrupted{'' if is_shown else _GOES_ON.get(verb, '')}", file=sys.stderr)
    sys.exit(code if isinstance(code, int) else 0)


def _drop_output() -> None:
    """Keep Python from complaining at its end about output that could not be written."""
    with suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _problems(error: Exception) -> list[str] | None:
    """The messages for the user; None for an error inside this package."""
    if isinstance(error, SyntaxformerError):
        return getattr(error, "problems", [str(error)])
    if isinstance(error, OSError):
        got = error.strerror or error
        return [f"{error.filename or 'output'}: expected to read or write it, got: {got}."]
    if not _is_usage(error):
        return None
    command = getattr(getattr(error, "ctx", None), "command_path", "syntaxformer")
    message = error.format_message().replace("Value error, ", "", 1)  # type: ignore[attr-defined]
    remedy = f"See `{command} --help`."
    name, _, verb = command.partition(" ")
    for option in ("--debug", "--quiet", "--max-line-bytes"):
        if verb and message.rstrip(".").endswith(option):
            remedy = f"Put it before the verb: `{name} {option} {verb} …`."
    end = "" if message.endswith((".", "?")) else "."
    return [f"{message}{end} {remedy}"] if message.strip() else []


def _is_usage(error: Exception) -> bool:
    """Whether it is an error of Typer (a missing argument, an unknown option), whose class varies."""
    return hasattr(error, "format_message")


def _show_warning(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, *_: object, **__: object
) -> None:
    """Show the package's own warnings in one line, and those of libraries only with --debug."""
    if Path(filename).is_relative_to(_PACKAGE):
        print(visible(f"warning: {message}"), file=sys.stderr)
    elif "--debug" in sys.argv:
        print(f"warning: {filename}:{lineno}: {category.__name__}: {message}", file=sys.stderr)


if __name__ == "__main__":
    main()
