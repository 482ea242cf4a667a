"""`syntaxformer attend`: an attention figure for one sentence."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["attend"]


def attend(
    model: Annotated[Path, typer.Argument(help="Folder that `train` wrote.")],
    text: Annotated[str, typer.Argument(help="The sentence.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="PNG, PDF or SVG.")] = Path("attention.png"),
    beside: Annotated[Path | None, typer.Option(help="A second model, drawn to the left.")] = None,
    layer: Annotated[int, typer.Option(help="Layer, counted from 0; -1 is the last.")] = -1,
    head: Annotated[int | None, typer.Option(min=0, help="One head; default: the mean.")] = None,
) -> None:
    """Draw which source pieces each target piece attends to."""
    from syntaxformer.analysis import cross_attention, draw_attention
    from syntaxformer.errors import ConfigError
    from syntaxformer.tasks.translator import Translator

    if not text.strip():
        raise ConfigError("text: expected a sentence, got an empty one.")
    folders = [folder for folder in (beside, model) if folder is not None]
    maps = {str(folder): cross_attention(Translator.load(folder), text) for folder in folders}
    n_layers, n_heads = maps[str(model)].weights.shape[:2]
    if not -n_layers <= layer < n_layers or (head is not None and head >= n_heads):
        raise ConfigError(f"layer, head: expected below {n_layers} and {n_heads}, got {layer} and {head}.")
    draw_attention(maps, output, layer, head)
    for folder, one in maps.items():
        typer.echo(f"{folder}: {one.translation}")
    typer.echo(output)
