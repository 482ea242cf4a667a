"""Annotate once: into a file, into the cache, or by looking lines up in files that were made before."""

# pyright: basic
# (pyarrow has no complete types.)

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Collection, Generator, Iterable, Iterator, Sequence, Sized
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa
from filelock import FileLock

from syntaxformer.annotate.annotator import Annotator, chunks_of, hash_lines
from syntaxformer.annotate.corpora.stored import (
    FORMAT,
    AnnotatedCorpus,
    read_annotations,
    sentences_of,
    write_annotations,
)
from syntaxformer.base.errors import ConfigError, DataError
from syntaxformer.base.files import remove_partials
from syntaxformer.base.progress import track
from syntaxformer.trees import Sentence
from syntaxformer.trees.sentence import COLUMNS

_LINES_AT_A_TIME = 100_000
"""Lines that are looked up together; worker processes, if any, are started again for each such group."""

_log = logging.getLogger(__name__)


def annotate_to_file(
    path: str | Path,
    lines: Iterable[str],
    annotator: Annotator,
    *,
    n_processes: int = 1,
    progress: bool = False,
    content_hash: str | None = None,
) -> AnnotatedCorpus:
    """Annotate lines into a file, unless it already holds exactly that.

    The text is a list or `SourceLines`; the lines of an iterator, which can be read only once, are kept in
    memory. `content_hash` is `hash_lines` of them, if it is known.

    Raises:
        DataError: The text cannot be read, or the file cannot be written.
    """
    lines = list(lines) if isinstance(lines, Iterator) else lines
    content_hash = content_hash or hash_lines(lines)
    wanted = annotator.name, annotator.version, content_hash
    if (found := read_if_current(Path(path), wanted, annotator.provides)) is not None:
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
    return read_annotations(path)


def annotate_cached(
    lines: Iterable[str],
    annotator: Annotator,
    cache_dir: str | Path | None = None,
    *,
    n_processes: int = 1,
    progress: bool = False,
) -> AnnotatedCorpus:
    """Annotate lines, or return an earlier annotation of the same text, annotator and version.

    If two processes want the same annotation at once, the second waits for the first. Lines are as in
    `annotate_to_file`; `cache_dir` is by default `$SYNTAXFORMER_CACHE` or `~/.cache/syntaxformer`.

    Raises:
        DataError: The text cannot be read, or the cache cannot be written.
    """
    lines = list(lines) if isinstance(lines, Iterator) else lines
    content_hash = hash_lines(lines)
    path = cache_path(cache_dir, annotator, content_hash)
    with one_at_a_time(path):
        remove_partials(path.parent, of=path.name)  # left by processes that were killed
        about = {"n_processes": n_processes, "progress": progress, "content_hash": content_hash}
        return annotate_to_file(path, lines, annotator, **about)


def cache_folder() -> Path:
    """Return `$SYNTAXFORMER_CACHE`, or else the folder `syntaxformer` in `$XDG_CACHE_HOME` or `~/.cache`."""
    named = os.environ.get("SYNTAXFORMER_CACHE")
    if named:
        return Path(named).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "syntaxformer"


def cache_path(cache_dir: str | Path | None, annotator: Annotator, content_hash: str) -> Path:
    """Where the cache keeps the annotation of a text with this hash."""
    identity = "\0".join([str(FORMAT), annotator.name, annotator.version, content_hash])
    folder = (Path(cache_dir) if cache_dir else cache_folder()) / "annotations"
    return folder / f"{hashlib.sha256(identity.encode()).hexdigest()[:32]}.parquet"


@contextmanager
def one_at_a_time(path: Path) -> Generator[None, None, None]:
    """Lock a path of the cache against other processes that would write the same.

    Raises:
        DataError: The cache cannot be written.
    """
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


def read_if_current(
    path: Path, wanted: tuple[str, str, str], columns: Collection[str] = ()
) -> AnnotatedCorpus | None:
    """Return a file's annotation if its annotator, version and hash of the text are those wanted, else None.

    A damaged file also gives None, and so does one that lacks some of the `columns`.
    """
    if not path.is_file():
        return None
    try:
        found = read_annotations(path)
        header = found.header
        if (header.annotator, header.version, header.content_hash) != wanted:
            return None
        if header.n_words and (lacking := {*columns} & {*COLUMNS} - {*header.columns}):
            _log.info("annotating again: %s lacks %s", path, ", ".join(sorted(lacking)))
            return None
        for _ in found.tables():
            pass
    except DataError as error:
        _log.warning("annotating again: %s", error)
        return None
    return found


class AnnotatedInOrder(Annotator):
    """The sentences of an annotated text for its lines in their order, spread over any number of calls.

    Equal lines may have different parses, as in a treebank.
    """

    def __init__(self, corpus: AnnotatedCorpus) -> None:
        header = corpus.header
        self.name, self.version, self.provides = header.annotator, header.version, frozenset(header.columns)
        self._waiting = iter(corpus)

    def stream(self, lines: Iterable[str], *, n_processes: int = 1) -> Iterator[Sentence]:
        """Yield the sentences of the next lines; DataError if they are not the next ones."""
        for line in lines:
            sentence = next(self._waiting, None)
            if sentence is None or sentence.text != line:
                raise DataError(f"annotation: expected its lines in their order, got {line[:40]!r}.")
            yield sentence


class AnnotatedBefore(Annotator):
    """An annotator with files that it annotated before; its name and version stay the same.

    Lines are found by their text, in any order. Each line of the files takes 16 bytes of memory.

    Raises:
        ConfigError: A file comes from another annotator or version, or lacks a column.
        DataError: A file cannot be read.
    """

    def __init__(self, annotator: Annotator, paths: Iterable[str | Path]) -> None:
        self.annotator = annotator
        self.name, self.version, self.provides = annotator.name, annotator.version, annotator.provides
        self._corpora = [self._checked(read_annotations(path)) for path in paths]

    def stream(self, lines: Iterable[str], *, n_processes: int = 1) -> Iterator[Sentence]:
        """Yield one sentence for each line, in order, in constant memory."""
        n_lines = n_found = 0
        for chunk in chunks_of(lines, _LINES_AT_A_TIME):
            givers = np.full(len(chunk), len(self._files))
            streams: list[Iterator[Sentence]] = []
            for number, file in enumerate(self._files):
                unknown = np.flatnonzero(givers == len(self._files))
                places, rows = file.find([chunk[line] for line in unknown])
                givers[unknown[places]] = number
                streams.append(sentences_of(rows))
            missing = [line for line, giver in zip(chunk, givers, strict=True) if giver == len(self._files)]
            streams.append(self.annotator.stream(missing, n_processes=n_processes))
            for giver in givers.tolist():
                yield next(streams[giver])
            n_lines += len(chunk)
            n_found += len(chunk) - len(missing)
        _log.info("annotation: %d of %d lines were annotated before", n_found, n_lines)

    def annotate_words(self, sentences: Iterable[Sequence[str]]) -> list[Sentence]:
        """Return one sentence for each list of words, annotated anew."""
        return self.annotator.annotate_words(sentences)

    @cached_property
    def _files(self) -> list[_File]:
        return [_File(corpus) for corpus in self._corpora]

    def _checked(self, corpus: AnnotatedCorpus) -> AnnotatedCorpus:
        header = corpus.header
        if (header.annotator, header.version) != (self.name, self.version):
            raise ConfigError(
                f"annotation.annotated: expected files by {self.name} {self.version}, got {corpus.path} by "
                f"{header.annotator} {header.version}. Annotate the text again, or leave the file out."
            )
        if header.n_words and (lacking := self.provides - set(header.columns)):
            raise ConfigError(
                f"annotation.annotated: expected files with {', '.join(sorted(lacking))}, got {corpus.path} "
                "without. Annotate the text again."
            )
        return corpus


class _File:
    """Finds the rows of lines by the hash of their text."""

    def __init__(self, corpus: AnnotatedCorpus) -> None:
        self.corpus = corpus
        hashes = _hashes(text for table in corpus.tables() for text in table["text"].to_pylist())
        self._rows = np.argsort(hashes, kind="stable")
        self._sorted = hashes[self._rows]

    def find(self, lines: Sequence[str]) -> tuple[np.ndarray, pa.Table]:
        """The positions of those lines that are in the file, and their rows."""
        wanted = _hashes(lines)
        places = np.searchsorted(self._sorted, wanted)
        known = np.flatnonzero(np.append(self._sorted, 0)[places] == wanted)
        known = known[places[known] < len(self._sorted)]
        table = self.corpus.take(self._rows[places[known]])
        texts = zip(known.tolist(), table["text"].to_pylist(), strict=True)
        same = np.array([lines[place] == text for place, text in texts], bool)
        return known[same], table.filter(pa.array(same))


def _hashes(lines: Iterable[str]) -> np.ndarray:
    return np.fromiter(map(_hash, lines), np.uint64)


def _hash(line: str) -> int:
    return int.from_bytes(hashlib.blake2b(line.encode("utf-8", "surrogatepass"), digest_size=8).digest())
