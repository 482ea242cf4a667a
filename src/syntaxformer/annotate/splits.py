"""Parsed files of several splits behind one name: `conllu:parsed/{split}.conllu` for train and dev.

Who annotates a split asks `annotator_for` for the annotator of it; all others come back as they are.
"""

from __future__ import annotations

import glob
import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import cast

from syntaxformer.annotate.annotator import Annotator
from syntaxformer.annotate.fingerprint import hash_file
from syntaxformer.base.errors import ConfigError, DataError
from syntaxformer.trees import Sentence

__all__ = ["SPLIT", "AnnotatedLines", "SplitAnnotator", "annotator_for", "annotator_in_chunks"]

SPLIT = "{split}"
"""Stands for "train", "dev" … in the path of a parsed file."""


def annotator_for(annotator: Annotator, split: str) -> Annotator:
    """Return the annotator of a split: its own where there is a parsed file for each, else the same for all.

    Raises:
        DataError: The file of the split is missing.
    """
    choose = cast("Callable[[str], Annotator] | None", getattr(annotator, "for_split", None))
    return annotator if choose is None else choose(split)


def annotator_in_chunks(annotator: Annotator, split: str, lines: Sequence[str]) -> Annotator:
    """Return what annotates the lines of a split chunk by chunk, as translating does.

    A parsed file is read from its start by each call, so its sentences are laid out here; every other
    annotator comes back as it is.

    Args:
        annotator: The recipe's.
        split: "dev".
        lines: All lines of the split, in order.

    Raises:
        DataError: The file of the split is missing or does not fit the lines.
    """
    chosen = annotator_for(annotator, split)
    return annotator if chosen is annotator else AnnotatedLines(chosen, lines)


class AnnotatedLines:
    """An annotator of given lines, in their order, over as many calls as it takes.

    Args:
        annotator: Annotates them, once.
        lines: All lines.
    """

    def __init__(self, annotator: Annotator, lines: Sequence[str]) -> None:
        self.name = annotator.name
        self.version = annotator.version
        self.provides = annotator.provides
        self._waiting = iter(annotator.annotate(lines))

    def stream(self, lines: Iterable[str], *, n_processes: int = 1) -> Iterator[Sentence]:
        """Yield the sentences of the next lines.

        Raises:
            DataError: They are not the next lines.
        """
        for line in lines:
            sentence = next(self._waiting, None)
            if sentence is None or sentence.text != line:
                found = "the end" if sentence is None else repr(sentence.text[:40])
                raise DataError(
                    f"annotator {self.name}: expected its lines in their order, got {line[:40]!r} at {found}."
                )
            yield sentence

    def annotate(
        self, lines: Iterable[str], *, n_processes: int = 1, progress: bool = False
    ) -> list[Sentence]:
        """Return the sentences of the next lines; see `stream`."""
        return list(self.stream(lines))

    def annotate_words(self, sentences: Iterable[Sequence[str]]) -> list[Sentence]:
        """Return the sentences of the next lines, given as words; see `stream`."""
        return list(self.stream(" ".join(words) for words in sentences))


class SplitAnnotator:
    """Several parsed files under one name; cannot annotate before it is told the split.

    Args:
        scheme: "conllu" or "ptb".
        path: Path with `{split}` in it.
        load: Makes the annotator of one file.

    Raises:
        DataError: No file fits the path.
    """

    def __init__(self, scheme: str, path: str, load: Callable[[str], Annotator]) -> None:
        self.name = f"{scheme}:{path}"
        self.path = path
        self._load = load
        files = sorted(_files_of(path))
        if not files:
            raise DataError(
                f"expected a file for at least one {SPLIT}, found none. Relative paths begin in the "
                "current folder; --annotator names other files.",
                path,
            )
        self.provides = frozenset[str]().union(*(load(file).provides for file in files[:1]))
        hashes = "\n".join(f"{file}:{hash_file(Path(file))}" for file in files if Path(file).is_file())
        self.version = hashlib.sha256(hashes.encode()).hexdigest()[:12]

    def for_split(self, split: str) -> Annotator:
        """Return the annotator of one split.

        Raises:
            DataError: Its file is missing or cannot be read.
        """
        path = self.path.replace(SPLIT, split)
        if not Path(path).is_file():
            raise DataError(f"expected the parsed file of the split {split!r}, found none.", path)
        return self._load(path)

    def stream(self, lines: Iterable[str], *, n_processes: int = 1) -> Iterator[Sentence]:
        """Refuse: which file would it be?

        Raises:
            ConfigError: Always.
        """
        raise ConfigError(
            f"annotator: expected one that can annotate any text, got {self.name!r}, which holds the parses "
            f"of its splits only. Give another, or a path without {SPLIT}."
        )

    def annotate(
        self, lines: Iterable[str], *, n_processes: int = 1, progress: bool = False
    ) -> list[Sentence]:
        """Refuse, as `stream` does."""
        return list(self.stream(lines))

    def annotate_words(self, sentences: Iterable[Sequence[str]]) -> list[Sentence]:
        """Refuse, as `stream` does."""
        return list(self.stream(()))


def _files_of(path: str) -> list[str]:
    # Path.glob refuses absolute patterns.
    return glob.glob("*".join(glob.escape(part) for part in path.split(SPLIT)))  # noqa: PTH207
