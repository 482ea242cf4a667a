"""The pipelines that come with the package: where each lies and what version it is, without loading spaCy."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from syntaxformer.annotate.fingerprint import hash_folder
from syntaxformer.errors import BackendMissingError

__all__ = [
    "BUNDLED",
    "bundled_folder",
    "bundled_for",
    "bundled_version",
    "pipeline_version",
    "warn_of_language",
]

_log = logging.getLogger(__name__)

BUNDLED = ("de", "de_lower", "en")
"""Pipelines that come with the package: a language, and what is special."""


def bundled_for(language: str | None, default: str) -> str:
    """Return the bundled pipeline of a language, or the default where there is none."""
    return language if language in BUNDLED else default


def warn_of_language(annotator: str, language: str, setting: str) -> None:
    """Warn where a bundled pipeline is to annotate a language that it is not for.

    Args:
        annotator: Name of any annotator; those that are not bundled are not judged.
        language: Of the text, as the recipe has it; judged where it is a code of two letters.
        setting: Where the name stands.
    """
    plain, plus, more = annotator.partition("+")
    is_code = len(language) == 2 and language.isalpha()
    if plain in BUNDLED and is_code and plain.partition("_")[0] != language:
        better = language if language in BUNDLED else f"stanza:{language}"
        _log.warning(
            "%s: expected an annotator for %s, the language of the text, got %s. Set %s=%s.",
            setting, language, annotator, setting, f"{better}{plus}{more}",
        )  # fmt: skip


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
