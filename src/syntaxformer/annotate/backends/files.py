"""Annotation that already exists: the n-th line of a text gets the n-th sentence of a parsed file.

It reads CoNLL-U and Penn Treebank files. Nothing is predicted or guessed: a sentence whose words are not
those of its line is an error.
"""

from __future__ import annotations

import glob
import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import copy
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path

import numpy as np

from syntaxformer.annotate.annotator import (
    SHORT_HASH,
    SPLIT,
    Annotator,
    annotator_for,
    blank_sentence,
    short_hash,
)
from syntaxformer.base.errors import ConfigError, DataError, TreeError
from syntaxformer.base.files import open_bytes
from syntaxformer.trees import Sentence, locate_words, read_conllu, read_ptb, sentence_from_tree
from syntaxformer.trees.conllu import surface_of, tokens_of
from syntaxformer.trees.locate import plain_form
from syntaxformer.trees.sentence import COLUMNS, NO_VALUE

_FIRST_SENTENCES = 100
"""Sentences that are read to learn the columns of a file."""

_OTHER_TEXT = f"Is it the parse of this text? {SPLIT} in a path stands for train, dev and test."

_VERSION = "+parsed3"
"""Changes with how a file is read."""


class PreparsedAnnotator(Annotator):
    """Gives the sentences of a file, line by line.

    A blank line takes the next sentence only if that has no words either, so files may omit blank lines.

    Words of a `respelled` one may be spelled in the Penn Treebank's way (quotes, brackets, full stops).
    """

    def __init__(
        self, scheme: str, read: Callable[[Path], Iterator[Sentence]], file: str, *, respelled: bool = False
    ) -> None:
        self.name, self.path = f"{scheme}:{file}", (path := Path(file))
        open_bytes(path).close()
        self.version = f"{short_hash(path)}{_VERSION}"
        self._read = read
        self._respelled = respelled
        self._rows: Sequence[int] | None = None
        first = list(islice((sentence for sentence in read(path) if sentence.words), _FIRST_SENTENCES))
        self.provides = frozenset(
            column for column in COLUMNS if any(getattr(sentence, column) is not None for sentence in first)
        )

    def for_split(self, split: str, rows: Sequence[int] | None = None) -> Annotator:
        """The same file for all splits; with rows, the sentences of these numbers unless it has no others."""
        if rows is None:
            return self
        of_rows = copy(self)
        of_rows.version += f"+{hashlib.sha256(np.asarray(rows, np.int64).tobytes()).hexdigest()[:SHORT_HASH]}"
        of_rows._rows = rows
        return of_rows

    def _sentences(self) -> Iterator[Sentence]:
        rows = self._rows
        if rows is None or sum(1 for _ in self._read(self.path)) <= len(rows):  # a parse of these lines alone
            return self._read(self.path)
        chosen = set(rows)
        return (sentence for row, sentence in enumerate(self._read(self.path)) if row in chosen)

    def stream(self, lines: Iterable[str], *, n_processes: int = 1) -> Iterator[Sentence]:
        """Yield the n-th sentence for the n-th line, with its offsets in that line.

        Raises:
            DataError: There are more or fewer sentences than lines, or a sentence has other words than its
                line or lacks a column that others have.
            TreeError: The file is malformed; the message names the line.
        """
        sentences = self._sentences()
        waiting = next(sentences, None)
        number = 0
        for number, line in enumerate(lines, 1):
            if not line.strip() and (waiting is None or waiting.words):
                yield blank_sentence(line, self.provides)
                continue
            if waiting is None:
                raise DataError(
                    f"expected a sentence for line {number} of the text, {line[:40]!r}, got the end. "
                    + _OTHER_TEXT,
                    self.path,
                )
            yield self._fit(self._with_columns(waiting, line, number), line, number)
            waiting = next(sentences, None)
        if waiting is not None:
            raise DataError(
                f"expected as many sentences as lines of the text, got one after its {number} lines: "
                f"{waiting.text[:40]!r}. {_OTHER_TEXT}",
                self.path,
            )

    def _with_columns(self, sentence: Sentence, line: str, number: int) -> Sentence:
        """Give a sentence every column that the file has; lemmas, xpos and feats may be "_" throughout."""
        if not sentence.words:
            return sentence
        missing = sorted(column for column in self.provides if getattr(sentence, column) is None)
        if needed := [column for column in missing if COLUMNS[column].unknown != NO_VALUE]:
            raise DataError(
                f"sentence for line {number} of the text, {line[:40]!r}: expected {', '.join(needed)}, which "
                "other sentences of the file have, got none. Add what is missing, or leave it out of all "
                "sentences.",
                self.path,
            )
        open_values = dict.fromkeys(missing, (NO_VALUE,) * len(sentence.words))
        return replace(sentence, **open_values) if missing else sentence

    def _fit(self, sentence: Sentence, line: str, number: int) -> Sentence:
        """Give a sentence the text of its line, and its words' offsets there."""
        if sentence.text == line:
            return sentence
        tokens = tokens_of(sentence)
        try:
            surfaces = [surface_of(sentence, token) for token in tokens]
            surfaces = [word if word in line else plain_form(word) for word in surfaces]  # as the line may be
            token_spans = locate_words(line, surfaces, respelled=self._respelled)
        except TreeError as error:
            raise DataError(
                f"sentence for line {number} of the text, {line[:40]!r}: {error}", self.path
            ) from error
        offsets = tuple(span for token, span in zip(tokens, token_spans, strict=True) for _ in token)
        return replace(sentence, text=line, offsets=offsets)


class SplitAnnotator(Annotator):
    """Several parsed files under one path with `{split}`; it cannot annotate until the split is known.

    Raises:
        DataError: No file fits the path.
    """

    def __init__(self, scheme: str, path: str, load: Callable[[str], PreparsedAnnotator]) -> None:
        self.name, self.path = f"{scheme}:{path}", path
        self._load = load
        # Path.glob refuses absolute patterns.
        files = sorted(glob.glob("*".join(glob.escape(segment) for segment in path.split(SPLIT))))  # noqa: PTH207
        if not files:
            raise DataError(
                f"expected a file for at least one {SPLIT}, found none. Relative paths begin in the "
                "current folder; --annotator names other files.",
                path,
            )
        self.provides = load(files[0]).provides
        hashes = "\n".join(f"{file}:{short_hash(Path(file))}" for file in files if Path(file).is_file())
        self.version = hashlib.sha256(hashes.encode()).hexdigest()[:SHORT_HASH]

    def for_split(self, split: str, rows: Sequence[int] | None = None) -> Annotator:
        """Return the annotator of one split; DataError if its file is missing or cannot be read."""
        path = self.path.replace(SPLIT, split)
        if not Path(path).is_file():
            raise DataError(f"expected the parsed file of the split {split!r}, found none.", path)
        return annotator_for(self._load(path), split, rows)

    def stream(self, lines: Iterable[str], *, n_processes: int = 1) -> Iterator[Sentence]:
        """Raise a ConfigError, since nothing says which file to read."""
        raise ConfigError(
            f"annotator: expected one that can annotate any text, got {self.name!r}, which holds the parses "
            f"of its splits only. Give another, or a path without {SPLIT}."
        )


def load_conllu(path: str) -> PreparsedAnnotator | SplitAnnotator:
    """Take annotation from a CoNLL-U file, or from one for each `{split}`.

    Raises:
        DataError: The file cannot be read.
        TreeError: It is malformed.
    """
    load = partial(PreparsedAnnotator, "conllu", read_conllu)
    return SplitAnnotator("conllu", path, load) if SPLIT in path else load(path)


def load_ptb(path: str) -> PreparsedAnnotator | SplitAnnotator:
    """Take tags (`xpos`) and constituency from bracketed trees; path and errors are as in `load_conllu`."""
    load = partial(PreparsedAnnotator, "ptb", _sentences_of_trees, respelled=True)
    return SplitAnnotator("ptb", path, load) if SPLIT in path else load(path)


def _sentences_of_trees(path: Path) -> Iterator[Sentence]:
    for number, tree in enumerate(read_ptb(path), 1):
        try:
            yield sentence_from_tree(tree)
        except TreeError as error:
            raise TreeError(f"tree {number}: {error}", path) from error
