"""Fetches the corpora that recipes name, from a mirror folder or from their homes, and checks what came."""

from __future__ import annotations

import gzip
import hashlib
import logging
import shutil
from pathlib import Path
from typing import Any

from syntaxformer.base.config import read_yaml
from syntaxformer.base.errors import ConfigError, DataError
from syntaxformer.base.files import (
    atomic_file,
    disk_errors,
    open_bytes,
    plain_or_packed,
    read_json,
    write_json,
)

_log = logging.getLogger("syntaxformer.data")

TABLE = Path(__file__).with_name("corpora.yaml")
RECORD = "checksums.json"
"""Checksums of files that the table does not know, written at the first fetch and checked afterwards."""


def fetch_corpus(name: str, output: Path, mirror: Path | None) -> list[Path]:
    """Put the files of a corpus into a folder, packed; files that are there and right are kept.

    Args:
        name: A key of `corpora.yaml`.
        output: The folder.
        mirror: Holds a folder of each corpus; its further files come, too. None: from the corpus's home.

    Raises:
        ConfigError: There is no such corpus, the mirror lacks it, or it has no home that gives these files.
        DataError: A file cannot be read, or has another content than it should have.
    """
    table = read_yaml(TABLE)
    if name not in table:
        raise ConfigError(f"corpus: expected one of {', '.join(table)}, got {name}.")
    corpus: dict[str, Any] = table[name]
    source = None if mirror is None else mirror / corpus["folder"]
    if source is None and "home" not in corpus:
        raise ConfigError(
            f"{name}: expected a mirror folder in SYNTAXFORMER_DATA, got none, and there is no public home "
            f"of these very files. {corpus['elsewhere']}"
        )
    if source is not None and not source.is_dir():
        raise ConfigError(f"SYNTAXFORMER_DATA: expected the folder {source}, found none. Check the mirror.")
    files = (
        list(corpus["files"])
        if source is None
        else sorted({path.name.removesuffix(".gz") for path in source.iterdir()})
    )
    with disk_errors(output):
        output.mkdir(parents=True, exist_ok=True)
    record = read_json(output / RECORD) if (output / RECORD).exists() else {}
    new = {}
    for file in files:
        expected = corpus["files"].get(file) or record.get(file)
        target = output / f"{file}.gz"
        if not (target.is_file() and expected and _hash_packed(target, target) == expected):
            with disk_errors(output), atomic_file(target) as temporary:
                place = _bring(corpus, source, file, temporary)
                found = _hash_packed(temporary, place)
                if expected and found != expected:
                    raise DataError(
                        f"expected sha256 {expected} of the unpacked text, got {found}. Fetch it again.",
                        place,
                    )
            new |= {} if expected else {file: found}
    if new:
        write_json(output / RECORD, {**record, **new}, indent=1)
        _log.info("no checksum was known of %s: recorded in %s", ", ".join(new), output / RECORD)
    return [output / f"{file}.gz" for file in files]


def _bring(corpus: dict[str, Any], source: Path | None, file: str, target: Path) -> str:
    """Write the packed file; return where it came from."""
    if source is None:
        split, _, ending = file.partition(".")
        address = f"{corpus['home']}{corpus.get('there', {}).get(split, split)}.{ending}.gz"
        _download(address, target)
        return address
    path = plain_or_packed(source / file)
    if path is None:
        raise DataError("expected a file, got something else. Remove it from the mirror.", source / file)
    with open_bytes(path) as unpacked, gzip.open(target, "wb") as packed:
        shutil.copyfileobj(unpacked, packed)
    return str(path)


def _download(address: str, target: Path) -> None:
    import httpx

    try:
        with httpx.stream("GET", address, follow_redirects=True, timeout=30) as answer:
            answer.raise_for_status()
            n_bytes = int(answer.headers.get("content-length", 0))
            _log.info("downloading %s: %.1f MB", address, n_bytes / 1e6)
            with target.open("wb") as file:
                for part in answer.iter_bytes():
                    file.write(part)
    except httpx.HTTPError as error:
        raise DataError(
            f"expected an answer, got: {error}. Try again, or set SYNTAXFORMER_DATA to a mirror.", address
        ) from error


def _hash_packed(path: Path, place: str | Path) -> str:
    try:
        with gzip.open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]
    except (OSError, EOFError) as error:
        raise DataError(
            f"expected a whole gzip file, got: {error}. Remove it and fetch it again.", place
        ) from error
