"""`syntaxformer demo`: a first look in a few minutes, on bundled everyday sentences."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Option

from syntaxformer.cli import options

if TYPE_CHECKING:
    from syntaxformer.demo.run import DemoReport


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

    _print(run_demo(output, overwrite, settings or ()))


def _print(report: DemoReport) -> None:
    from syntaxformer.demo.corpus import ATTRIBUTION

    options.echo(f"\n{report.systems[0].scores.n_lines} test sentences of {ATTRIBUTION}")
    options.echo(f"{'system':<10} {'BLEU':>6} {'chrF':>6} {'parameters':>11} {'seconds':>8}   folder")
    for system in report.systems:
        scores, size = system.scores, f"{system.n_parameters:>11,} {system.seconds:>8.0f}"
        options.echo(f"{system.name:<10} {scores.bleu:>6.2f} {scores.chrf:>6.2f} {size}   {system.folder}")
    difference = report.comparison
    p_value = f"no p: {difference.no_p}" if difference.no_p else f"p = {difference.p_value:.3f}"
    options.echo(
        f"difference {difference.difference:>+6.2f} BLEU, {p_value} "
        "(one-sided paired bootstrap; one seed, short sentences: a first look, not a benchmark)"
    )
    for example in report.examples:
        options.echo(f"\nsource     {example.tagged}\nreference  {example.reference}")
        for name, text in example.translations.items():
            options.echo(f"{name:<10} {text}")
    options.echo(f"\nattention  {report.figure}")
