"""The `syntaxformer` command: its verbs, and how errors and warnings reach the user.

Importing this file must stay quick (`--help` in under half a second): each verb imports its work when it
runs.
"""

from __future__ import annotations

import logging
import os
import sys
import warnings
from contextlib import suppress
from typing import Annotated

import typer

from syntaxformer import __version__
from syntaxformer.cli.annotate import annotate
from syntaxformer.cli.attend import attend
from syntaxformer.cli.compare import compare
from syntaxformer.cli.demo import demo
from syntaxformer.cli.doctor import doctor
from syntaxformer.cli.evaluate import evaluate
from syntaxformer.cli.experiment import experiment
from syntaxformer.cli.export import export
from syntaxformer.cli.finetune import finetune
from syntaxformer.cli.predict import predict
from syntaxformer.cli.probe import probe
from syntaxformer.cli.scratch import scratch
from syntaxformer.cli.serve import serve
from syntaxformer.cli.train import train
from syntaxformer.cli.translate import translate
from syntaxformer.errors import ConfigError, SyntaxformerError

__all__ = ["app", "main"]

VERBS = (
    demo,
    annotate,
    train,
    translate,
    evaluate,
    scratch,
    finetune,
    predict,
    attend,
    compare,
    probe,
    export,
    serve,
    doctor,
)

app = typer.Typer(
    name="syntaxformer",
    help="Syntax in Transformers: train, translate and evaluate with parts of speech and trees.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
for verb in VERBS:
    app.command()(verb)
app.add_typer(experiment)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def common(
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress, warnings only.")] = False,
    version: Annotated[
        bool,
        typer.Option("--version", is_eager=True, callback=_show_version, help="Print the version and exit."),
    ] = False,
) -> None:
    """Set up logging for all verbs."""
    _ = debug, version  # `debug` is read by main() before parsing: a usage error must know it too
    logging.basicConfig(level=logging.WARNING, format="%(message)s", stream=sys.stderr, force=True)
    logging.getLogger("syntaxformer").setLevel(logging.WARNING if quiet else logging.INFO)
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
    warnings.showwarning = _show_warning


def main() -> None:
    """Run the command line; whatever the user can cause is one line a problem on stderr and exit code 2."""
    debug = "--debug" in sys.argv
    code: object = 0
    try:
        code = app(standalone_mode=False, prog_name="syntaxformer")
        sys.stdout.flush()
    except BrokenPipeError:
        _drop_output()  # the reader has gone (`| head`)
        code = 141
    except Exception as error:
        problems = _problems(error)
        if debug or problems is None:
            raise
        for problem in problems:
            print(f"error: {' '.join(problem.splitlines())}", file=sys.stderr)
        if isinstance(error, OSError):
            _drop_output()
        code = 2
    if code == 130:
        print("interrupted", file=sys.stderr)
    sys.exit(code if isinstance(code, int) else 0)


def _drop_output() -> None:
    """Keep Python from complaining when it flushes, at its end, what could not be written."""
    with suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _problems(error: Exception) -> list[str] | None:
    """What to tell the user; None for an error that is ours."""
    if isinstance(error, ConfigError):
        return error.problems
    if isinstance(error, SyntaxformerError):
        return [str(error)]
    if isinstance(error, OSError):
        return [
            f"{error.filename or 'output'}: expected to read or write it, got: {error.strerror or error}."
        ]
    # Typer's own errors, of a class that depends on its version: a missing argument, an unknown option.
    if (usage := getattr(error, "format_message", None)) is not None:
        command = getattr(getattr(error, "ctx", None), "command_path", "syntaxformer")
        message = usage()
        return [f"{message.rstrip('.')}. See `{command} --help`."] if message.strip() else []
    return None


def _show_warning(message: Warning | str, category: type[Warning], *_: object, **__: object) -> None:
    """Our own warnings in one line; those of libraries only in debugging."""
    if issubclass(category, UserWarning) and "--debug" not in sys.argv:
        print(f"warning: {message}", file=sys.stderr)


if __name__ == "__main__":
    main()
