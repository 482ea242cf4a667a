"""Looks lines up in files which `annotate` wrote, and tags only those that are not there."""

# pyright: basic
# (pyarrow has no complete types.)

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt

from syntaxformer.annotate.annotator import Annotator, ListsSentences
from syntaxformer.annotate.corpus import AnnotatedCorpus, read_annotations
from syntaxformer.annotate.parallel import chunks_of
from syntaxformer.base.errors import ConfigError
from syntaxformer.trees import Sentence

__all__ = ["AnnotatedBefore"]

_LINES_AT_A_TIME = 100_000
"""Worker processes, where there are some, start anew for the unknown lines of so many."""

_log = logging.getLogger(__name__)


class AnnotatedBefore(ListsSentences):
    """An annotator with files of what it annotated before; its name and version stay the same.

    Lines are found by their text, whatever their order. 16 bytes of memory a line of the files.

    Args:
        annotator: Who annotates the other lines.
        paths: Files that `syntaxformer annotate` wrote with it.
        cache_dir: Where large ones are unpacked; by default the cache folder of the user.

    Raises:
        ConfigError: A file is of another annotator or version, or lacks a column.
        DataError: A file cannot be read.
    """

    def __init__(
        self, annotator: Annotator, paths: Iterable[str | Path], cache_dir: str | Path | None = None
    ) -> None:
        self.annotator = annotator
        self.name, self.version, self.provides = annotator.name, annotator.version, annotator.provides
        self._corpora = [self._checked(read_annotations(path, cache_dir)) for path in paths]

    def stream(self, lines: Iterable[str], *, n_processes: int = 1) -> Iterator[Sentence]:
        """Yield one sentence for each line, in order, in constant memory."""
        n_lines = n_found = 0
        for chunk in chunks_of(lines, _LINES_AT_A_TIME):
            places = [self._find(line) for line in chunk]
            missing = [line for line, place in zip(chunk, places, strict=True) if place is None]
            new = self.annotator.stream(missing, n_processes=n_processes)
            for place in places:
                yield next(new) if place is None else place[0][place[1]]
            n_lines += len(chunk)
            n_found += len(chunk) - len(missing)
        _log.info("annotation: %d of %d lines were annotated before", n_found, n_lines)

    def annotate_words(self, sentences: Iterable[Sequence[str]]) -> list[Sentence]:
        """Return one sentence for each list of words, annotated anew."""
        return self.annotator.annotate_words(sentences)

    @cached_property
    def _files(self) -> list[_File]:
        return [_File(corpus) for corpus in self._corpora]

    def _find(self, line: str) -> tuple[AnnotatedCorpus, int] | None:
        for file in self._files:
            if (row := file.find(line)) is not None:
                return file.corpus, row
        return None

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
    """Finds the row of a line by the hash of its text."""

    def __init__(self, corpus: AnnotatedCorpus) -> None:
        self.corpus = corpus
        texts = (text for batch in corpus.scan() for text in batch.column("text").to_pylist())
        hashes = np.fromiter(map(_hash, texts), np.uint64, len(corpus))
        self._rows: npt.NDArray[np.int64] = np.argsort(hashes, kind="stable")
        self._hashes: npt.NDArray[np.uint64] = hashes[self._rows]

    def find(self, line: str) -> int | None:
        wanted = np.uint64(_hash(line))
        place = int(np.searchsorted(self._hashes, wanted))
        if place == len(self._hashes) or self._hashes[place] != wanted:
            return None
        row = int(self._rows[place])
        return row if self.corpus.texts([row]) == [line] else None


def _hash(line: str) -> int:
    return int.from_bytes(hashlib.blake2b(line.encode("utf-8", "surrogatepass"), digest_size=8).digest())
