"""Folders written whole or not at all, with a manifest that tells when a file was cut off or changed later.

Used for checkpoints and for finished models. What is inside such a folder is safetensors, JSON and text only.
"""

from __future__ import annotations

import glob
import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from syntaxformer.base.atomic import sync
from syntaxformer.base.errors import CheckpointError, DataError

__all__ = [
    "LOCK",
    "MANIFEST",
    "MAX_JSON_BYTES",
    "PARTIAL",
    "atomic_folder",
    "disk_errors",
    "hash_file",
    "read_json",
    "read_record",
    "remove_partials",
    "verify_manifest",
    "write_manifest",
]

LOCK = ".lock"
"""What a command holds while it works in a folder."""

MANIFEST = "manifest.json"
PARTIAL = ".partial"
"""Ending of files and folders that are being written."""

MAX_JSON_BYTES = 8 * 2**20
"""Of a JSON file that is read whole; a list of empty lists takes 30 times as much memory."""

_READ = re.compile(
    r"token|vocab|merges|chat_template|adapter|\.safetensors|\.model$|\.onnx|^(pytorch_)?model[.-]"
    r"|^(syntaxformer|classifier|collator|infusion|export|onnx|run|(\w+_)?config)\.json$"
)
"""Names of files that loading a model may read, in whichever library."""

_Record = TypeVar("_Record", bound=BaseModel)


@contextmanager
def atomic_folder(path: str | Path) -> Iterator[Path]:
    """Give a temporary folder to fill; on success it gets a manifest and becomes `path`, else nothing stays.

    Args:
        path: Final name; an older folder of that name is replaced, and where it is a link, the folder that it
            leads to.

    Raises:
        DataError: The folder cannot be written (no space left, no permission), or a disk is mounted on it,
            so that no other can take its place.
    """
    path = Path(os.path.realpath(path))
    temporary: Path | None = None
    try:
        if path.is_mount():
            raise DataError("expected a folder to replace, got a disk's mount point. Give one in it.", path)
        with disk_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            temporary = Path(tempfile.mkdtemp(prefix=f".{path.name}.", suffix=PARTIAL, dir=path.parent))
            yield temporary
            write_manifest(temporary)
            temporary.chmod(0o755)
            _take_name(temporary, path)
    finally:
        if temporary is not None:
            shutil.rmtree(temporary, ignore_errors=True)


def _take_name(folder: Path, path: Path) -> None:
    """Move a folder to a path; an older one there is deleted when the new one has its place."""
    if not path.exists():
        folder.replace(path)
        return
    aside = folder.with_suffix(f".old{PARTIAL}")
    path.replace(aside)
    try:
        folder.replace(path)
    except OSError:
        aside.replace(path)
        raise
    shutil.rmtree(aside)


@contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Turn a write that fails, inside whichever library, into one error that names the folder.

    Raises:
        DataError: The folder cannot be written (no space left, no permission).
    """
    try:
        yield
    except Exception as error:
        if isinstance(error, OSError):
            reason = error.strerror or str(error)
        elif found := re.search(r"([^:]+) \(os error \d+\)", str(error)):
            # safetensors and tokenizers report a failed write by exceptions of their own.
            reason = found[1].strip()
        else:
            raise
        raise DataError(
            f"expected to write the folder, got: {reason}. Nothing was kept of it.", path
        ) from error


def remove_partials(folder: Path, below: bool = False, of: str | None = None) -> None:
    """Delete what a killed process left behind of files and folders that it was writing.

    Args:
        folder: Where it wrote.
        below: Also in the folders below.
        of: Only what was to become this name.
    """
    pattern = f".*{PARTIAL}" if of is None else f".{glob.escape(of)}.????????{PARTIAL}"
    for path in list(folder.rglob(pattern) if below else folder.glob(pattern)):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def write_manifest(folder: Path) -> None:
    """Record the size and the sha256 of each file, and bring them to the disk."""
    entries = {}
    for file in sorted(folder.iterdir()):
        if file.is_file() and file.name not in (MANIFEST, LOCK):
            sync(file)
            entries[file.name] = {"bytes": file.stat().st_size, "sha256": hash_file(file)}
    (folder / MANIFEST).write_text(json.dumps({"files": entries}, indent=1), "utf-8")
    sync(folder / MANIFEST)


def verify_manifest(folder: str | Path) -> None:
    """Hold that every file of a folder is what was written.

    Raises:
        CheckpointError: No manifest, or a file that is missing, cut off, changed, outside or not listed.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise CheckpointError(f"{folder}: expected a folder, found none.")
    files = read_json(folder / MANIFEST).get("files")
    if not isinstance(files, dict) or not files or not all(map(_is_entry, files.values())):
        raise CheckpointError(f"{folder / MANIFEST}: expected a list of files. The folder was altered.")
    present, home = {one.name for one in folder.iterdir()}, folder.resolve()
    if unlisted := sorted(name for name in present - files.keys() if _READ.search(name)):
        raise CheckpointError(
            f"{folder / MANIFEST}: expected every file that is read, lacking {unlisted[0]}."
        )
    for name, entry in files.items():
        file = folder / name
        if name not in present or not file.is_file():
            raise CheckpointError(f"{file}: expected a file of {entry['bytes']} bytes, found none.")
        # In the Hub's cache, files are links from a snapshot to what all share.
        if Path(os.path.realpath(file)).parent not in (home, home.parent.parent / "blobs"):
            raise CheckpointError(f"{file}: expected a file in the folder, got a link that leads out of it.")
        if file.stat().st_size != entry["bytes"]:
            raise CheckpointError(
                f"{file}: expected {entry['bytes']} bytes, got {file.stat().st_size}. It is truncated."
            )
        if hash_file(file) != entry["sha256"]:
            raise CheckpointError(
                f"{file}: expected the content that was written, got another. It was altered."
            )


def _is_entry(entry: Any) -> bool:
    return isinstance(entry, dict) and isinstance(entry.get("bytes"), int) and "sha256" in entry


def read_json(path: Path) -> dict[str, Any]:
    """Read an object from a JSON file of a model folder.

    Raises:
        CheckpointError: The file is missing, too large, is not JSON or holds no object.
    """
    try:
        if path.exists() and not path.is_file():
            raise ValueError("no file")
        if path.stat().st_size > MAX_JSON_BYTES:
            raise ValueError(f"a file of more than {MAX_JSON_BYTES} bytes")
        content = json.loads(path.read_text("utf-8"))
    except FileNotFoundError as error:
        raise CheckpointError(
            f"{path}: expected a file, found none. Is this a syntaxformer model folder?"
        ) from error
    except (OSError, ValueError, RecursionError) as error:
        raise CheckpointError(f"{path}: expected JSON, got: {str(error)[:120]}.") from error
    if not isinstance(content, dict):
        raise CheckpointError(f"{path}: expected a JSON object, got {type(content).__name__}.")
    return content


def hash_file(path: Path) -> str:
    """sha256 of a file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_record(path: Path, record: type[_Record], format_version: int | None = None) -> _Record:
    """Read a JSON file of a model folder that has a form of its own.

    Args:
        path: The file.
        record: Its form.
        format_version: What its `format_version` has to be; None where it has none.

    Raises:
        CheckpointError: It is missing or not what this version writes.
    """
    try:
        found = record.model_validate(read_json(path))
    except ValidationError as error:
        problem = error.errors()[0]
        place = ".".join(map(str, problem["loc"]))
        raise CheckpointError(f"{path}: {place}: {problem['msg']}. It was altered.") from error
    if format_version is not None and (version := getattr(found, "format_version", None)) != format_version:
        raise CheckpointError(f"{path}: expected format version {format_version}, got {version}.")
    return found
