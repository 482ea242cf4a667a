"""Hashes that tell whether an input, a model or a file has changed."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

__all__ = ["hash_file", "hash_folder", "hash_lines"]

_SHORT = 12
"""Hexadecimal digits of a version: 48 bits, enough to tell versions of one model apart."""


def hash_lines(lines: Iterable[str]) -> str:
    """Return the SHA-256 of lines; each ends in a line feed, so that moving a break changes it."""
    digest = hashlib.sha256()
    for line in lines:
        digest.update(line.encode("utf-8", "surrogatepass"))
        digest.update(b"\n")
    return digest.hexdigest()


def hash_file(path: Path) -> str:
    """Return the first 12 digits of the SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:_SHORT]


def hash_folder(folder: Path) -> str:
    """Return 12 digits of the SHA-256 over names and contents of all files in a folder and below."""
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            name = path.relative_to(folder).as_posix()
            digest.update(f"{name}\0{path.stat().st_size}\0".encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()[:_SHORT]
