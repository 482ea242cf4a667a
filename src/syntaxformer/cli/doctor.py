"""`syntaxformer doctor`: what is installed, and which annotators and devices work."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version

import typer

__all__ = ["doctor"]

PACKAGES = (
    "syntaxformer",
    "torch",
    "transformers",
    "tokenizers",
    "datasets",
    "spacy",
    "sacrebleu",
    "matplotlib",
)


def doctor() -> None:
    """Check the installation by using it."""
    typer.echo(f"Python {platform.python_version()} on {platform.platform()}")
    for name in PACKAGES:
        try:
            typer.echo(f"{name} {version(name)}")
        except PackageNotFoundError:
            typer.echo(f"{name}: not installed")
    for line in (*_devices(), *_annotators()):
        typer.echo(line)


def _devices() -> list[str]:
    import torch

    from syntaxformer.training.trainer import pick_precision

    devices = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
    place = ", ".join(devices) or f"CPU, {torch.get_num_threads()} threads"
    return [f"device: {place}; training.precision=auto is {pick_precision('auto')}"]


def _annotators() -> list[str]:
    from syntaxformer.annotate import load_annotator
    from syntaxformer.errors import SyntaxformerError

    lines = []
    for name, text in (("en", "It works."), ("de", "Es geht.")):
        try:
            (sentence,) = load_annotator(name).annotate([text])
            tags = " ".join(
                f"{word}/{tag}" for word, tag in zip(sentence.words, sentence.upos or (), strict=False)
            )
            lines.append(f"annotator {name}: {tags}")
        except SyntaxformerError as error:
            lines.append(f"annotator {name}: {error}")
    return lines
