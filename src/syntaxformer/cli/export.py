"""`syntaxformer export`: exports translators to CTranslate2 and fine-tuned classifiers to ONNX Runtime."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from typer import Argument, Option

from syntaxformer.cli import options


def export(
    model: Annotated[Path, Argument(help="Folder that `train` or `finetune` wrote.")],
    output: Annotated[Path, Argument(metavar="OUT", help="The new folder.")],
    quantization: Annotated[
        Literal["float32", "int8", "int8_float32", "float16", "bfloat16"],
        Option(help="Type of the weights; int8 is the fastest on processors. Classifiers: float32, int8."),
    ] = "float32",
    overwrite: options.OverwriteOption = False,
) -> None:
    """Write a model for fast inference.

    A translator becomes a CTranslate2 folder, which `translate`, `evaluate` and `serve` accept as a model. A
    fine-tuned classifier becomes an ONNX folder for `predict` and `serve`.

    syntaxformer export runs/sit runs/sit-int8 --quantization int8

    syntaxformer export runs/cola-masks runs/cola-onnx --quantization int8
    """
    from syntaxformer.encoders.export_onnx import export_classifier
    from syntaxformer.translation.export_ctranslate2 import export_translator

    if (model / "classifier.json").exists():
        options.echo(export_classifier(model, output, overwrite, quantization))
        return
    options.echo(export_translator(model, output, quantization, overwrite))
