"""The pipelines that come with the package: where each lies and what version it is, without loading spaCy."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from syntaxformer.annotate.fingerprint import hash_folder
from syntaxformer.base.errors import BackendMissingError

__all__ = ["bundled_folder", "bundled_version", "pipeline_version"]


def bundled_folder(language: str) -> Path:
    """Return the folder of a pipeline that comes with the package.

    Raises:
        BackendMissingError: The package was installed without it.
    """
    folder = Path(str(files("syntaxformer.annotate"))) / "pipelines" / language
    if not (folder / "meta.json").is_file():
        raise BackendMissingError(f"the bundled pipeline {language!r} ({folder})", "make annotators")
    return folder


def bundled_version(language: str) -> str:
    """Return the version of a pipeline that comes with the package.

    Raises:
        BackendMissingError: The package was installed without it.
    """
    folder = bundled_folder(language)
    return pipeline_version(json.loads((folder / "meta.json").read_text("utf-8")), folder)


def pipeline_version(meta: Mapping[str, Any], folder: Path) -> str:
    """Return what changes with a pipeline: its own name and version, and a hash of its files."""
    return f"{meta['lang']}_{meta['name']}-{meta['version']}+{hash_folder(folder)}"
