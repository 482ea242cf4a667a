"""`syntaxformer demo`: a first look in a few minutes, on bundled everyday sentences."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Option

from syntaxformer.cli import options


def demo(
    output: Annotated[Path, Option("-o", "--output", help="Folder for corpus, models and figure.")] = Path(
        "demo"
    ),
    overwrite: options.OverwriteOption = False,
    settings: options.SettingsArgument = None,
) -> None:
    """Train a baseline and an infused translator, print their BLEU and draw their attention.

    This is a first look and not a benchmark: short everyday sentences of Tatoeba, one seed, a tiny model.

    syntaxformer demo -o demo
    """
    from syntaxformer.demo.run import run_demo

    for line in run_demo(output, overwrite, settings or ()):
        options.echo(line)
