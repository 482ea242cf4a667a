"""`syntaxformer train`: trains a translator from a recipe."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Argument

from syntaxformer.cli import options


def train(
    recipe: Annotated[str, Argument(help="YAML file, a bundled recipe (multi30k), or a run's folder.")],
    overrides: options.SettingsArgument = None,
    resume: options.ResumeOption = False,
    overwrite: options.OverwriteOption = False,
) -> None:
    """Train a translator from a recipe.

    syntaxformer train recipes/multi30k.yaml data.dir=DIR infusion.kind=sum_then_concat output=runs/sit
    """
    from syntaxformer.runs.processes import process_team
    from syntaxformer.translation.recipe import load_recipe
    from syntaxformer.translation.training import train_translator

    output: Path = train_translator(load_recipe(recipe, overrides or (), "command line"), resume, overwrite)
    if process_team().is_main_process:
        options.echo(output)
