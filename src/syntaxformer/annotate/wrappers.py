"""Annotators around annotators: one for each split, words kept as given, lines in chunks, several processes.

And which annotator a model folder may name: a stranger may have made it.
"""

from __future__ import annotations

import glob
import hashlib
import os
import re
import signal
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from itertools import islice
from multiprocessing import connection, get_context, parent_process
from pathlib import Path
from typing import TypeVar, cast

from syntaxformer.annotate.annotator import (
    BACKENDS,
    PHRASES,
    TASKS_AHEAD,
    Annotator,
    ListsSentences,
    annotator_for,
    chunks_of,
    hash_file,
    is_file,
    load_annotator,
    with_constituency,
)
from syntaxformer.base.errors import CheckpointError, ConfigError, DataError, SyntaxformerError
from syntaxformer.base.languages import BUNDLED
from syntaxformer.base.progress import map_ahead
from syntaxformer.trees import Sentence
from syntaxformer.trees.locate import given_words

__all__ = [
    "SPLIT",
    "AnnotatedLines",
    "SplitAnnotator",
    "WordsAsGiven",
    "annotator_in_chunks",
    "map_in_processes",
    "prepare",
    "stream_in_processes",
    "trusted_annotator",
]

SPLIT = "{split}"
"""Stands for "train", "dev" … in the path of a parsed file."""

_LINES_AT_A_TIME = 1000

_FOREIGN_PART = re.compile(
    r'^\s*source\s*=|@\w+"?\s*[=:]\s*"(?!spacy(-legacy)?\.|\w+\.v\d)|factory"?\s*+[=:]\s*+(?!"(tok2vec|tagger'
    r'|morphologizer|(beam_)?(parser|ner)|senter|sentencizer|attribute_ruler|(trainable_)?lemmatizer)")',
    re.MULTILINE,
)
"""In a pipeline's `config.cfg`: what is not spaCy's own may do anything."""


def prepare(
    name: str,
    *,
    needs: Collection[str] = (),
    only: Collection[str] | None = None,
    words_given: bool = False,
    annotated: Sequence[str | Path] = (),
) -> Annotator:
    """Load an annotator for a run or for a model.

    Args:
        name: As `load_annotator` takes it.
        needs: Columns wanted; phrases come from its dependency parses where it has none of its own.
        only: Columns that will be read: what gives others alone is switched off where that can be.
        words_given: Words are what stands between spaces.
        annotated: Files of what it annotated before, in which lines are looked up.

    Raises:
        ConfigError, BackendMissingError, DataError: As `load_annotator`, `with_constituency` and
            `AnnotatedBefore`.
    """
    from syntaxformer.annotate import AnnotatedBefore, load_annotator

    annotator = load_annotator(name)
    if only is not None and (limit := getattr(annotator, "limited_to", None)) is not None:
        annotator = cast("Annotator", limit(only))
    if "constituency" in needs and "governors" in annotator.provides:
        annotator = with_constituency(annotator)
    annotator = WordsAsGiven(annotator) if words_given else annotator
    return AnnotatedBefore(annotator, annotated) if annotated else annotator


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


class AnnotatedLines(ListsSentences):
    """An annotator of given lines, in their order, over as many calls as it takes.

    Args:
        annotator: Annotates them, once.
        lines: All lines.
    """

    def __init__(self, annotator: Annotator, lines: Sequence[str]) -> None:
        self.name, self.version, self.provides = annotator.name, annotator.version, annotator.provides
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


class SplitAnnotator(ListsSentences):
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
        # Path.glob refuses absolute patterns.
        files = sorted(glob.glob("*".join(glob.escape(part) for part in path.split(SPLIT))))  # noqa: PTH207
        if not files:
            raise DataError(
                f"expected a file for at least one {SPLIT}, found none. Relative paths begin in the "
                "current folder; --annotator names other files.",
                path,
            )
        self.provides = load(files[0]).provides
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


class WordsAsGiven(ListsSentences):
    """An annotator that never re-tokenises: the words of a line are what stands between spaces.

    It has the annotator's own name, as a model folder stores the tokenisation apart.

    Args:
        annotator: Who tags and parses the words.
    """

    def __init__(self, annotator: Annotator) -> None:
        self.annotator = annotator
        self.name, self.provides = annotator.name, annotator.provides
        self.version = f"{annotator.version}+words"  # a cache must tell the two apart

    def for_split(self, split: str) -> Annotator:
        """Return the same for one split; see `annotator_for`."""
        return WordsAsGiven(annotator_for(self.annotator, split))

    def stream(self, lines: Iterable[str], *, n_processes: int = 1) -> Iterator[Sentence]:
        """Yield one sentence for each line; `n_processes` plays no part."""
        iterator = iter(lines)
        while chunk := list(islice(iterator, _LINES_AT_A_TIME)):
            yield from self.annotator.annotate_words([given_words(line) for line in chunk])

    def annotate_words(self, sentences: Iterable[Sequence[str]]) -> list[Sentence]:
        """Return one sentence for each list of words."""
        return self.annotator.annotate_words(sentences)


def trusted_annotator(named: str | None, given: str | None, folder: Path, trust: bool = False) -> str | None:
    """The annotator to load for a model: what the user has given, else what its folder has named.

    Args:
        named: A path may be relative to the folder.
        given: It is not judged.
        folder: Of the model.
        trust: Whether the folder may name any.

    Raises:
        CheckpointError: The folder's would use the network, or read what is not in it.
    """
    if given is not None or named is None:
        return given
    plain = named.removesuffix(PHRASES)
    if plain in BUNDLED:
        return named
    scheme, _, path = plain.partition(":")
    inside = Path(os.path.realpath(folder / path))
    read = inside / "config.cfg" if scheme == "spacy" else inside
    is_inside = (is_file(plain) or scheme == "spacy") and folder.resolve() in inside.parents
    is_inside = is_inside and read.is_file()
    if is_inside and (scheme != "spacy" or not _FOREIGN_PART.search(read.read_text("utf-8", "replace"))):
        return f"{scheme}:{inside}{named.removeprefix(plain)}"
    if not trust and (deed := _deed(plain)):
        raise CheckpointError(
            f"{folder}: annotator: expected one that is installed or in it, got one that would {deed}. "
            "Name one yourself (--annotator), or trust the folder (--trust-annotator)."
        )
    return named


def _deed(name: str) -> str | None:
    """What an annotator does beyond installed packages; None for nothing."""
    scheme, _, argument = name.partition(":")
    form = BACKENDS[scheme].argument if scheme in BACKENDS else ""
    subject, *settings = re.split(r"\+(?=[a-z_]+=)", argument)
    options = dict(setting.split("=", 1) for setting in settings)
    if form == "URL":
        from syntaxformer.annotate.backends.corenlp import ADDRESS_VARIABLE, server_address

        _, place, uses_variable = server_address(subject)
        password = f", with the password of ${ADDRESS_VARIABLE}" if uses_variable else ""
        return f"send every line to {place}{password}"
    names = [subject, *(options[key] for key in ("package", "dir") if key in options)]
    is_path = form == "PATH" or (form.startswith("NAME") and Path(subject).exists())
    if is_path or "dir" in options or any("/" in one for one in names):
        return f"read {names[-1]!r}"
    return _deed(options["words"]) if "words" in options else None


LINES_PER_TASK = 500
T = TypeVar("T")
R = TypeVar("R")


def stream_in_processes(name: str, lines: Iterable[str], n_processes: int) -> Iterator[Sentence]:
    """Yield one sentence a line, in order, made by `n_processes` workers that load annotator `name`.

    Raises:
        SyntaxformerError: A worker died.
    """
    for sentences in map_in_processes(name, _sentences, chunks_of(lines, LINES_PER_TASK), n_processes):
        yield from sentences


def map_in_processes(
    name: str, work: Callable[[Annotator, T], R], items: Iterable[T], n_processes: int
) -> Iterator[R]:
    """Yield `work(annotator, item)` for each item, in order.

    Nothing is forked, so that the caller's threads cannot hang a worker.

    Args:
        name: The annotator that each worker loads once.
        work: A function that workers can import.
        items: Taken a few ahead.
        n_processes: Workers.

    Raises:
        SyntaxformerError: A worker died.
    """
    pool = ProcessPoolExecutor(n_processes, get_context("spawn"), initializer=_load, initargs=(name,))
    try:
        yield from map_ahead(pool, partial(_work, work), items, TASKS_AHEAD * n_processes)
    except BrokenProcessPool as error:
        raise SyntaxformerError(
            f"annotation with {n_processes} processes: expected all to live, got a dead one (out of "
            "memory, killed, or a script working outside `if __name__ == '__main__'`). Use fewer processes."
        ) from error


_annotator: Annotator | None = None


def _load(name: str) -> None:
    global _annotator
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to answer, in one line
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _annotator = load_annotator(name)


def _end_with_parent() -> None:
    """A parent that is killed cannot end its workers, who would wait for it for ever."""
    if (parent := parent_process()) is not None:
        connection.wait([parent.sentinel])
        os._exit(1)


def _work(work: Callable[[Annotator, T], R], item: T) -> R:
    assert _annotator is not None
    return work(_annotator, item)


def _sentences(annotator: Annotator, lines: list[str]) -> list[Sentence]:
    return list(annotator.stream(lines))
