"""`syntaxformer demo`: a first look in a few minutes, on everyday sentences that the package brings."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from syntaxformer.demo.run import DemoReport


def demo(
    output: Annotated[
        Path, typer.Option("-o", "--output", help="Folder for corpus, models and figure.")
    ] = Path("demo"),
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Delete an older demo there.")] = False,
    settings: Annotated[
        list[str] | None,
        typer.Argument(metavar="[key.sub=value]...", help="Settings over the recipe `tiny`."),
    ] = None,
) -> None:
    """Train a baseline and an infused translator, print their BLEU, draw their attention.

    A first look, not a benchmark: short everyday sentences of Tatoeba, one seed, a tiny model.
    """
    from syntaxformer.demo.run import run_demo

    _print(run_demo(output, overwrite, settings or ()))


def _print(report: DemoReport) -> None:
    from syntaxformer.demo.corpus import ATTRIBUTION

    typer.echo(f"\n{report.systems[0].scores.n_lines} test sentences of {ATTRIBUTION}")
    typer.echo(f"{'system':<10} {'BLEU':>6} {'chrF':>6} {'parameters':>11} {'seconds':>8}   folder")
    for one in report.systems:
        scores, size = one.scores, f"{one.n_parameters:>11,} {one.seconds:>8.0f}"
        typer.echo(f"{one.name:<10} {scores.bleu:>6.2f} {scores.chrf:>6.2f} {size}   {one.folder}")
    difference = report.comparison
    typer.echo(
        f"difference {difference.difference:>+6.2f} BLEU, p = {difference.p_value:.3f} "
        "(paired bootstrap; one seed and short sentences: a first look, not a benchmark)"
    )
    for example in report.examples:
        typer.echo(f"\nsource     {example.tagged}\nreference  {example.reference}")
        for name, text in example.translations.items():
            typer.echo(f"{name:<10} {text}")
    typer.echo(f"\nattention  {report.figure}")
