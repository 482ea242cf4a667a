"""The `syntaxformer` command: its verbs, and how errors and warnings reach the user.

Importing this file must stay quick (`--help` in under half a second): each verb imports its work when it
runs.
"""

from __future__ import annotations

import logging
import os
import sys
import warnings
from typing import Annotated

import typer

from syntaxformer import __version__
from syntaxformer.cli.annotate import annotate
from syntaxformer.cli.attend import attend
from syntaxformer.cli.demo import demo
from syntaxformer.cli.doctor import doctor
from syntaxformer.cli.evaluate import evaluate
from syntaxformer.cli.train import train
from syntaxformer.cli.translate import translate
from syntaxformer.errors import ConfigError, SyntaxformerError

__all__ = ["app", "main"]

VERBS = (demo, annotate, train, translate, evaluate, attend, doctor)

app = typer.Typer(
    name="syntaxformer",
    help="Syntax in Transformers: train, translate and evaluate with parts of speech and trees.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
for verb in VERBS:
    app.command()(verb)


@app.callback()
def common(
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress, warnings only.")] = False,
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    """Set up logging for all verbs."""
    _ = debug  # read by main() before parsing: a usage error must know it too
    if version:
        typer.echo(__version__)
        raise typer.Exit
    logging.basicConfig(level=logging.WARNING, format="%(message)s", stream=sys.stderr, force=True)
    logging.getLogger("syntaxformer").setLevel(logging.WARNING if quiet else logging.INFO)
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
    warnings.showwarning = _show_warning


def main() -> None:
    """Run the command line; an error of ours is one line on stderr and exit code 2."""
    debug = "--debug" in sys.argv
    try:
        app()
    except SyntaxformerError as error:
        if debug:
            raise
        problems = error.problems if isinstance(error, ConfigError) else [str(error)]
        for problem in problems:
            print(f"error: {problem}", file=sys.stderr)
        sys.exit(2)
    except BrokenPipeError:
        # The reader of our output has gone (`| head`); keep Python from complaining when it flushes.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(130)


def _show_warning(message: Warning | str, category: type[Warning], *_: object, **__: object) -> None:
    """Our own warnings in one line; those of libraries only in debugging."""
    if issubclass(category, UserWarning) and "--debug" not in sys.argv:
        print(f"warning: {message}", file=sys.stderr)


if __name__ == "__main__":
    main()
