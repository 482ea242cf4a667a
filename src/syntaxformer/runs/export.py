"""The common part of both products' exports: where they may be written and which files they copy."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from fnmatch import fnmatch
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from syntaxformer.base.errors import BackendMissingError, CheckpointError
from syntaxformer.base.files import MANIFEST, hash_file, read_json
from syntaxformer.runs.config import Section

INSTALL = 'python -m pip install "syntaxformer[export]"'
"""The command that installs CTranslate2 and ONNX Runtime."""


class ExportInfo(Section):
    """How an export was made; every export stores it in a file."""

    largest_difference: float = 0.0
    weights_sha256: str
    versions: dict[str, str]


def origin(model_folder: Path, packages: Sequence[str]) -> dict[str, Any]:
    """The fields of an `ExportInfo` about the model and the versions of these packages."""
    names = ("syntaxformer", *packages, "torch", "transformers", "tokenizers")
    versions = {name: version(name) for name in names}
    return {"weights_sha256": hash_file(model_folder / "model.safetensors"), "versions": versions}


def need_packages(names: Sequence[str], whose: str) -> None:
    """Check that packages are installed.

    Raises:
        BackendMissingError: One is not installed.
    """
    for name in names:
        if find_spec(name.lower()) is None:
            raise BackendMissingError(f"{name}, which {whose},", INSTALL)


def output_problems(output: Path, mark: str, overwrite: bool) -> list[str]:
    """Reasons not to write a folder; `mark` is the file that every export of this kind has."""
    if not output.exists() or (output.is_dir() and not any(output.iterdir())):
        return []
    if not (output / mark).is_file():
        kind = "which holds other files" if output.is_dir() else "a file"
        return [f"output: expected a new folder, got {output}, {kind}."]
    if not overwrite:
        return [f"output: expected a new folder, got {output}, an older export. Give --overwrite."]
    return []


def copy_side_files(folder: Path, model_folder: Path, left_out: Sequence[str]) -> None:
    """Copy the files that a model's manifest lists, except those that match `left_out`."""
    for name in read_json(model_folder / MANIFEST)["files"]:
        if not any(fnmatch(name, pattern) for pattern in left_out):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(model_folder / name, folder / name)


def check_difference(difference: float, largest: float, what: str) -> None:
    """Check that an export computes the same as its model.

    Raises:
        CheckpointError: It does not.
    """
    if not difference <= largest:
        raise CheckpointError(
            f"export: expected {what} within {largest} of the model's, got {difference:.2g} off. "
            "This is an error of syntaxformer: please report it with the recipe."
        )
