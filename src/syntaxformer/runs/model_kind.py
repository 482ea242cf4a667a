"""What a path that is given as a model is: a translator, a classifier, or none and what instead."""

from __future__ import annotations

from pathlib import Path

from syntaxformer.base.errors import CheckpointError
from syntaxformer.base.folder_checks import check_settings
from syntaxformer.base.folders import MANIFEST, verify_manifest

__all__ = ["CLASSIFIER", "TRANSLATOR", "check_kind", "kind_of", "verify_folder"]

TRANSLATOR = "syntaxformer.json"
"""What every translator's folder holds."""

CLASSIFIER = "classifier.json"
"""What every fine-tuned model's folder holds."""

_KINDS = {
    TRANSLATOR: ("a translator", "`syntaxformer train`", "`syntaxformer translate` or `evaluate`"),
    CLASSIFIER: ("a fine-tuned model", "`syntaxformer finetune`", "`syntaxformer predict`"),
}
"""File → what the folder is, who wrote it, and who takes it."""

_MOST_SHOWN = 5


def kind_of(folder: Path) -> str | None:
    """`TRANSLATOR`, `CLASSIFIER`, or None for a folder that is neither."""
    return next((name for name in _KINDS if (folder / name).is_file()), None)


def check_kind(folder: Path, wanted: str) -> None:
    """Hold that a path is not plainly something else than the model that is wanted.

    Args:
        folder: The path.
        wanted: `TRANSLATOR` or `CLASSIFIER`.

    Raises:
        CheckpointError: It is a file, a folder of models, or a model of the other kind.
    """
    if folder.is_file():
        raise CheckpointError(f"{folder}: expected a model folder, got a file. The model is given first.")
    if not folder.is_dir() or (folder / wanted).exists():
        return
    what, writer, _ = _KINDS[wanted]
    if (kind := kind_of(folder)) is not None:
        found, _, verbs = _KINDS[kind]
        raise CheckpointError(
            f"{folder}: expected {what}, which {writer} writes, got {found}. {verbs} takes it."
        )
    models = sorted(one.name for one in folder.iterdir() if one.name[0] != "." and kind_of(one))
    if models and not (folder / MANIFEST).exists():
        shown = ", ".join(models[:_MOST_SHOWN]) + (", …" if len(models) > _MOST_SHOWN else "")
        raise CheckpointError(
            f"{folder}: expected a model folder, got one that holds models: {shown}. "
            f"Give one of them, such as {folder / models[0]}."
        )


def verify_folder(folder: Path, wanted: str) -> None:
    """Check that a model is finished, as it was written, and that its settings do no harm.

    Raises:
        CheckpointError: It is not, or not what is wanted.
    """
    check_kind(folder, wanted)
    writer = _KINDS[wanted][1]
    if (folder / "recipe.yaml").exists() and not (folder / MANIFEST).exists():
        raise CheckpointError(
            f"{folder}: expected a finished model, got a run that is not finished. "
            f"Wait for it, or go on with {writer[:-1]} … --resume`."
        )
    verify_manifest(folder)
    if not (folder / wanted).exists():
        raise CheckpointError(f"{folder}: expected a model that {writer} wrote, got another: no {wanted}.")
    check_settings(folder)
