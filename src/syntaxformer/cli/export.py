"""`syntaxformer export`: a trained translator for fast inference with CTranslate2."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

__all__ = ["Quantization", "export"]


class Quantization(StrEnum):
    """Types of the stored weights."""

    float32 = "float32"
    int8 = "int8"
    int8_float32 = "int8_float32"
    float16 = "float16"
    bfloat16 = "bfloat16"


def export(
    model: Annotated[Path, typer.Argument(help="Folder that `train` wrote.")],
    output: Annotated[Path, typer.Argument(metavar="OUT", help="The new folder.")],
    quantization: Annotated[
        Quantization, typer.Option(help="Type of the stored weights; int8 is the fastest on a processor.")
    ] = Quantization.float32,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an older export.")] = False,
) -> None:
    """Write a translator as a CTranslate2 folder, which `translate`, `evaluate` and `serve` take as a model.

    syntaxformer export runs/sit runs/sit-int8 --quantization int8
    """
    from syntaxformer.export import export_translator

    typer.echo(export_translator(model, output, quantization.value, overwrite))
