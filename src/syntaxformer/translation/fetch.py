"""Fetches the corpora that recipes name, from a mirror folder or from their homes, and checks what came."""

from __future__ import annotations

import gzip
import hashlib
import logging
import lzma
import re
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Any, cast

from syntaxformer.base.config import read_yaml
from syntaxformer.base.errors import ConfigError, DataError
from syntaxformer.base.files import (
    atomic_file,
    disk_errors,
    open_bytes,
    plain_or_packed,
    read_json,
    without_packing,
    write_json,
)

_log = logging.getLogger("syntaxformer.data")

TABLE = Path(__file__).with_name("corpora.yaml")
RECORD = "checksums.json"
"""Checksums of files that the table does not know, written at the first fetch and checked afterwards."""

_BROKEN = (
    *(gzip.BadGzipFile, zipfile.BadZipFile, tarfile.TarError, zlib.error, lzma.LZMAError),
    *(EOFError, KeyError, IndexError),
)


def fetch_corpus(name: str, output: Path, mirror: Path | None) -> list[Path]:
    """Put the files of a corpus, a key of `corpora.yaml`, into a folder, packed; files that are right stay.

    `mirror` holds a folder of each corpus; its further files come, too. None: from the corpus's home.

    Raises:
        ConfigError: There is no such corpus, or the mirror lacks it.
        DataError: A file cannot be read, or has another content than it should have.
    """
    table = read_yaml(TABLE)
    if name not in table:
        raise ConfigError(f"corpus: expected one of {', '.join(table)}, got {name}.")
    corpus: dict[str, Any] = table[name]
    source = None if mirror is None else mirror / corpus["folder"]
    if source is not None and not source.is_dir():
        raise ConfigError(f"SYNTAXFORMER_DATA: expected the folder {source}, found none. Check the mirror.")
    if source is None:
        files = [f"{split}.{language}" for split in corpus["at_home"] for language in ("de", "en")]
    else:
        files = sorted({without_packing(path) for path in source.iterdir()})
    with disk_errors(output):
        output.mkdir(parents=True, exist_ok=True)
    record = read_json(output / RECORD) if (output / RECORD).exists() else {}
    new = {}
    with disk_errors(output), TemporaryDirectory(dir=output) as downloads:
        for file in files:
            expected = corpus["files"].get(file) or record.get(file)
            target = output / f"{file}.gz"
            if not (target.is_file() and expected and _hash_packed(target, target) == expected):
                with atomic_file(target) as temporary:
                    origin = _bring(corpus, source, file, temporary, Path(downloads))
                    sha256 = _hash_packed(temporary, origin)
                    if expected and sha256 != expected:
                        raise DataError(
                            f"expected sha256 {expected} of the unpacked text, got {sha256}. Fetch it again.",
                            origin,
                        )
                new |= {} if expected else {file: sha256}
    if new:
        write_json(output / RECORD, {**record, **new}, indent=1)
        _log.info("no checksum was known of %s: recorded in %s", ", ".join(new), output / RECORD)
    return [output / f"{file}.gz" for file in files]


def _bring(corpus: dict[str, Any], source: Path | None, file: str, target: Path, downloads: Path) -> str:
    """Write the packed file; return where it came from. An archive is downloaded once, into `downloads`."""
    split, _, language = file.rpartition(".")
    if source is not None:
        path = plain_or_packed(source / file)
        if path is None:
            raise DataError("expected a file, got something else. Remove it from the mirror.", source / file)
        origin, names = str(path), [file]
    else:
        names = [name.format(language) for name in corpus["at_home"][split]]
        origin = corpus["home"] + names[0] * corpus["home"].endswith("/")
        path = downloads / origin.rpartition("/")[2]
        if not path.exists():
            _download(origin, path)
    lines = chain.from_iterable(_lines(path, name) for name in names)
    if source is None and (columns := corpus.get("columns")):
        lines = (line.split(b"\t")[columns.index(language)] + b"\n" for line in lines)
    if source is None and (nth := corpus.get("held_out")) and not split.startswith("test"):
        lines = (line for n, line in enumerate(lines, 1) if (n % nth == 0) == split.startswith("valid"))
    try:
        with gzip.open(target, "wb") as packed:
            packed.writelines(lines)
    except _BROKEN as error:
        raise DataError(f"expected {', '.join(names)}, got: {error}. Fetch it again.", origin) from error
    return origin


def _lines(download: Path, name: str) -> Iterator[bytes]:
    """The lines of a download, or of a file in it; of talks only text, titles and descriptions."""
    kind = download.suffix if name != download.name else None  # a mirror may hold an archive itself
    if kind == ".zip":
        with zipfile.ZipFile(download) as archive, archive.open(name) as file:
            yield from file
    elif kind == ".tgz":
        with tarfile.open(download) as archive:
            for line in cast("IO[bytes]", archive.extractfile(name)):
                bare = re.sub(rb"</?(seg|title|description)\b[^>]*>", b"", line).strip()
                if b"<seg" in line or not (name.endswith(".xml") or re.match(rb"</?[a-z]+[ >]", bare)):
                    yield bare + b"\n"
    else:
        with open_bytes(download) as file:
            yield from (line.replace(b" ##AT##-##AT## ", b"-") for line in file)  # Stanford's cut hyphens


def _download(address: str, target: Path) -> None:
    import httpx

    try:
        with httpx.stream("GET", address, follow_redirects=True, timeout=30) as answer:
            answer.raise_for_status()
            n_bytes = int(answer.headers.get("content-length", 0))
            _log.info("downloading %s: %.1f MB", address, n_bytes / 1e6)
            with target.open("wb") as file:
                file.writelines(answer.iter_bytes())
    except httpx.HTTPError as error:
        raise DataError(
            f"expected an answer, got: {error}. Try again, or set SYNTAXFORMER_DATA to a mirror.", address
        ) from error


def _hash_packed(path: Path, origin: str | Path) -> str:
    try:
        with gzip.open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]
    except (OSError, EOFError) as error:
        raise DataError(
            f"expected a whole gzip file, got: {error}. Remove it and fetch it again.", origin
        ) from error
