"""Annotated corpora on disk: written whole or not at all, cached so that nothing is tagged twice.

Parquet with a header (annotator, version, hash of the text, tag lists). Reading is in `corpus`, the layout in
`columns`.
"""

# pyright: basic
# (pyarrow has no complete types.)

from __future__ import annotations

import hashlib
import logging
from collections.abc import Generator, Iterable, Iterator, Sized
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

import pyarrow.parquet as pq
from filelock import FileLock

from syntaxformer.annotate.annotator import Annotator
from syntaxformer.annotate.columns import FORMAT, SCHEMA, AnnotationHeader, SentenceEncoder
from syntaxformer.annotate.corpus import HEADER_KEY, AnnotatedCorpus, Columns, read_annotations
from syntaxformer.annotate.fingerprint import hash_lines
from syntaxformer.annotate.location import cache_folder
from syntaxformer.base.errors import DataError
from syntaxformer.base.files import atomic_file, remove_partials
from syntaxformer.base.progress import track
from syntaxformer.trees import Sentence

__all__ = [
    "ROWS_PER_GROUP",
    "AnnotatedCorpus",
    "Columns",
    "annotate_cached",
    "annotate_to_file",
    "annotation_writer",
    "cache_path",
    "read_annotations",
    "read_if_current",
    "write_annotations",
    "write_header",
]

ROWS_PER_GROUP = 4096
"""Lines that are held in memory while writing."""

_log = logging.getLogger(__name__)


def write_annotations(
    path: str | Path, sentences: Iterable[Sentence], *, annotator: str, version: str, content_hash: str
) -> None:
    """Write sentences as they come, in constant memory; the file appears whole or not at all.

    Args:
        path: The Parquet file; replaced if it exists.
        sentences: One for each line of the text.
        annotator: Name of what made them.
        version: Its version.
        content_hash: `hash_lines` of the text.

    Raises:
        DataError: The disk is full or not writable, or a sentence does not fit the format.
    """
    encoder = SentenceEncoder()
    rows = iter(sentences)
    with annotation_writer(path) as writer:
        while group := list(islice(rows, ROWS_PER_GROUP)):
            writer.write_batch(encoder.encode(group))
        write_header(writer, encoder.header(annotator, version, content_hash))


@contextmanager
def annotation_writer(path: str | Path) -> Generator[pq.ParquetWriter, None, None]:
    """Open an annotated corpus to write batches of `ROWS_PER_GROUP` rows and a header to.

    The file appears at the end, and not at all after an error.

    Raises:
        DataError: The disk is full or not writable.
    """
    with (
        atomic_file(path) as temporary,
        pq.ParquetWriter(temporary, SCHEMA, compression="zstd", write_page_checksum=True) as writer,
    ):
        yield writer


def write_header(writer: pq.ParquetWriter, header: AnnotationHeader) -> None:
    """Write what a file says about itself."""
    writer.add_key_value_metadata({HEADER_KEY.decode(): header.to_json()})


def annotate_to_file(
    path: str | Path,
    lines: Iterable[str],
    annotator: Annotator,
    *,
    n_processes: int = 1,
    progress: bool = False,
) -> AnnotatedCorpus:
    """Annotate lines into a file, unless it already holds exactly that.

    Args:
        path: The Parquet file.
        lines: The text: a list, `TextLines`; an iterator, which gives its lines but once, is held in memory.
        annotator: Who annotates.
        n_processes: Worker processes.
        progress: Show a bar.

    Raises:
        DataError: The text cannot be read or the file not be written.
    """
    lines = list(lines) if isinstance(lines, Iterator) else lines
    return _annotate(Path(path), lines, annotator, hash_lines(lines), None, n_processes, progress)


def annotate_cached(
    lines: Iterable[str],
    annotator: Annotator,
    cache_dir: str | Path | None = None,
    *,
    n_processes: int = 1,
    progress: bool = False,
) -> AnnotatedCorpus:
    """Annotate lines, or return what was annotated before: same text, annotator and version.

    Two processes that want the same at once do it once: the second waits.

    Args:
        lines: The text: a list, `TextLines`; an iterator, which gives its lines but once, is held in memory.
        annotator: Who annotates.
        cache_dir: Folder of the cache, to which a large annotation is unpacked too; by default
            `$SYNTAXFORMER_CACHE` or `~/.cache/syntaxformer`.
        n_processes: Worker processes.
        progress: Show a bar.

    Raises:
        DataError: The text cannot be read or the cache not be written.
    """
    lines = list(lines) if isinstance(lines, Iterator) else lines
    content_hash = hash_lines(lines)
    path = cache_path(cache_dir, annotator, content_hash)
    with _one_at_a_time(path):
        remove_partials(path.parent, of=path.name)  # by processes that were killed
        return _annotate(path, lines, annotator, content_hash, cache_dir, n_processes, progress)


def cache_path(cache_dir: str | Path | None, annotator: Annotator, content_hash: str) -> Path:
    """Where the cache keeps the annotation of a text, told by its hash."""
    identity = "\0".join([str(FORMAT), annotator.name, annotator.version, content_hash])
    folder = (Path(cache_dir) if cache_dir else cache_folder()) / "annotations"
    return folder / f"{hashlib.sha256(identity.encode()).hexdigest()[:32]}.parquet"


@contextmanager
def _one_at_a_time(path: Path) -> Generator[None, None, None]:
    lock = FileLock(f"{path}.lock")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    except OSError as error:
        reason = error.strerror or str(error)
        raise DataError(f"expected a cache folder to write to, got: {reason}.", path.parent) from error
    try:
        yield
    finally:
        lock.release()


def _annotate(
    path: Path,
    lines: Iterable[str],
    annotator: Annotator,
    content_hash: str,
    cache_dir: str | Path | None,
    n_processes: int,
    progress: bool,
) -> AnnotatedCorpus:
    wanted = (annotator.name, annotator.version, content_hash)
    if (found := read_if_current(path, wanted, cache_dir)) is not None:
        return found
    total = len(lines) if isinstance(lines, Sized) else None
    sentences = annotator.stream(lines, n_processes=n_processes)
    write_annotations(
        path,
        track(sentences, f"annotating ({annotator.name})", total, enabled=progress),
        annotator=annotator.name,
        version=annotator.version,
        content_hash=content_hash,
    )
    return read_annotations(path, cache_dir)


def read_if_current(
    path: Path, wanted: tuple[str, str, str], cache_dir: str | Path | None = None
) -> AnnotatedCorpus | None:
    """Return what a file holds, if that is the annotation wanted: annotator, version and hash of the text.

    A file that is damaged anywhere is not. A large one is unpacked to `cache_dir`, as in `read_annotations`.
    """
    if not path.is_file():
        return None
    try:
        found = read_annotations(path, cache_dir)
        header = found.header
        if (header.annotator, header.version, header.content_hash) != wanted:
            return None
        for _ in found.scan():
            pass
    except DataError as error:
        _log.warning("annotating again: %s", error)
        return None
    return found
