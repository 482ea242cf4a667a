"""Annotators that wrap others: one for each split, words kept as given, lines in chunks, several processes.

Also which annotator a model folder may name, since a stranger may have made the folder.
"""

from __future__ import annotations

import glob
import hashlib
import os
import re
import shutil
import signal
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from importlib.util import find_spec
from itertools import chain
from multiprocessing import get_context
from pathlib import Path
from site import getsitepackages, getusersitepackages
from sysconfig import get_path
from typing import TypeVar, cast

from syntaxformer.annotate.annotator import (
    BACKENDS,
    TASKS_AHEAD,
    Annotator,
    BatchedAnnotator,
    annotator_for,
    chunks_of,
    is_file,
    load_annotator,
    short_hash,
    with_constituency,
)
from syntaxformer.annotate.controls import Control
from syntaxformer.base.errors import CheckpointError, ConfigError, DataError, SyntaxformerError
from syntaxformer.base.files import KEPT, disk_errors
from syntaxformer.base.languages import BUNDLED, split_name
from syntaxformer.base.progress import end_with_parent, map_ahead
from syntaxformer.trees import Sentence
from syntaxformer.trees.locate import given_words

SPLIT = "{split}"
"""Stands for "train", "dev" … in the path of a parsed file."""

_LINES_AT_A_TIME = 1000


def prepare(
    name: str | Annotator,
    *,
    needs: Collection[str] = (),
    only: Collection[str] | None = None,
    words_given: bool = False,
    annotated: Sequence[str | Path] = (),
) -> Annotator:
    """Load an annotator for a run or for a model.

    If `needs` asks for phrases and the annotator gives none, its dependency parses are converted. `only` is
    the columns that will be read; of an annotator that is loaded here, components that fill others are
    switched off if possible. With `words_given`, spaces separate the words; `annotated` names files of
    earlier annotation, where lines are looked up first.

    Raises:
        ConfigError, BackendMissingError, DataError: As `load_annotator`, `with_constituency` and
            `AnnotatedBefore`.
    """
    from syntaxformer.annotate import AnnotatedBefore, load_annotator

    annotator = load_annotator(name)
    limit = getattr(annotator, "limited_to", None)
    if isinstance(name, str) and only is not None and limit is not None:  # the user's own object stays whole
        annotator = cast("Annotator", limit(only))
    if "constituency" in needs and "governors" in annotator.provides:
        annotator = with_constituency(annotator)
    annotator = WordsAsGiven(annotator) if words_given else annotator
    return AnnotatedBefore(annotator, annotated) if annotated else annotator


class SplitAnnotator(Annotator):
    """Several parsed files under one path with `{split}`; it cannot annotate until the split is known.

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
        hashes = "\n".join(f"{file}:{short_hash(Path(file))}" for file in files if Path(file).is_file())
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
        """Refuse, since nothing says which file to read.

        Raises:
            ConfigError: Always.
        """
        raise ConfigError(
            f"annotator: expected one that can annotate any text, got {self.name!r}, which holds the parses "
            f"of its splits only. Give another, or a path without {SPLIT}."
        )


class WordsAsGiven(Annotator):
    """An annotator that never re-tokenises: spaces separate the words of a line.

    It keeps the annotator's name, because a model folder stores the tokenisation separately.
    """

    def __init__(self, annotator: Annotator) -> None:
        self.annotator = annotator
        self.name, self.provides = annotator.name, annotator.provides
        self.version = f"{annotator.version}+words"  # a cache must tell the two apart

    def for_split(self, split: str) -> Annotator:
        """Return the same for one split; see `annotator_for`."""
        return WordsAsGiven(annotator_for(self.annotator, split))

    def stream(self, lines: Iterable[str], *, n_processes: int = 1) -> Iterator[Sentence]:
        """Yield one sentence for each line."""
        if isinstance(self.annotator, Control):  # whose pools of lines are larger than the chunks below
            inside = WordsAsGiven(self.annotator.annotator)
            yield from self.annotator.around(inside).stream(lines, n_processes=n_processes)
            return
        if is_file(self.name):  # which is read from its start at each call, and never splits words
            yield from self.annotator.stream(" ".join(given_words(line)) for line in lines)
            return
        chunks = chunks_of(lines, _LINES_AT_A_TIME)
        made: Iterator[list[Sentence]] = (_of_words(self.annotator, chunk) for chunk in chunks)
        parser = getattr(self.annotator, "annotator", self.annotator)  # also below +phrases
        if not isinstance(parser, BatchedAnnotator):
            yield from chain.from_iterable(made)
            return
        threads = parser.threads
        if threads is None and n_processes > 1:
            made = map_in_processes(self.name, _of_words, chunks, n_processes)
        parser.threads = threads and max(threads, n_processes)  # requests at a time
        try:
            yield from chain.from_iterable(made)
        finally:
            parser.threads = threads

    def annotate_words(self, sentences: Iterable[Sequence[str]]) -> list[Sentence]:
        """Return one sentence for each list of words."""
        return self.annotator.annotate_words(sentences)


def trusted_annotator(
    named: str | None, given: str | Annotator | None, folder: Path, trust: bool = False
) -> str | Annotator | None:
    """The annotator to load for a model: the one that the user gives, or else the one that its folder names.

    The folder may name an installed annotator or a path inside itself, and with `trust` any annotator. What
    the user gives is not checked.

    Raises:
        CheckpointError: The folder's annotator would use the network or read files outside the folder.
    """
    if given is not None or named is None:
        return given
    before, plain, after = split_name(named)
    if plain in BUNDLED:
        return named
    if ":" not in plain and any((home / plain / "meta.json").is_file() for home in (Path(), folder)):
        plain = f"spacy:{plain}"
    scheme, _, path = plain.partition(":")
    inside = Path(os.path.realpath(folder / path))
    read = inside / "config.cfg" if scheme == "spacy" else inside
    is_inside = (is_file(plain) or scheme == "spacy") and folder.resolve() in inside.parents
    is_inside = is_inside and (read.is_file() or path == KEPT)
    expected, problem = "one that is installed or in it, got one that would", None
    if is_inside and scheme == "spacy" and not trust:
        from syntaxformer.annotate.backends.spacy import foreign_part

        expected = f"in {path} what `annotator train` writes, got"
        problem = foreign_part(inside) if path == KEPT else "a pipeline that the manifest does not list"
    elif not (is_inside or trust):
        problem = _deed(plain)
    if problem is not None:
        raise CheckpointError(
            f"{folder}: annotator: expected {expected} {problem}. "
            "Name one yourself (--annotator), or trust the folder (--trust-annotator)."
        )
    return f"{before}{scheme}:{inside}{after}" if is_inside else f"{before}{plain}{after}"


def kept_pipeline(name: str) -> Path | None:
    """The folder of a pipeline of spaCy's own parts, of which a model keeps a copy; None for others."""
    plain = split_name(name)[1]
    folder = Path(plain.removeprefix("spacy:"))
    if plain in BUNDLED or not (folder / "config.cfg").is_file():
        return None
    from syntaxformer.annotate.backends.spacy import foreign_part

    return folder if foreign_part(folder) is None else None


def stored_name(name: str) -> str:
    """The name of an annotator in a model's folder, relative to it if `keep_annotator` copies it there."""
    before, _, after = split_name(name)
    return f"{before}spacy:{KEPT}{after}" if kept_pipeline(name) else name


def keep_annotator(name: str | None, folder: Path) -> None:
    """Copy a pipeline into a model's folder, so that the model translates with it wherever the folder goes.

    Raises:
        DataError: The folder cannot be written.
    """
    if name is not None and (pipeline := kept_pipeline(name)):
        with disk_errors(folder):
            shutil.copytree(pipeline, folder / KEPT, dirs_exist_ok=True)


def _deed(name: str) -> str | None:
    """Say what an annotator does besides using installed packages; None for nothing."""
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
    if is_path or "dir" in options or any(re.search(r"[/\\]|^\.", one) for one in names):
        return f"read {names[-1]!r}"
    spec = find_spec(subject) if scheme == "spacy" and subject.isidentifier() else None
    installed = {get_path("purelib"), get_path("platlib"), *getsitepackages(), getusersitepackages()}
    homes = {str(Path(home).parent) for home in (spec and spec.submodule_search_locations) or ()}
    return None if homes <= installed else f"import {subject!r} from {', '.join(sorted(homes))}"


T = TypeVar("T")
R = TypeVar("R")


def map_in_processes(
    name: str, work: Callable[[Annotator, T], R], items: Iterable[T], n_processes: int
) -> Iterator[R]:
    """Yield `work(annotator, item)` for each item, in order.

    Nothing is forked, so that the caller's threads cannot hang a worker. `work` is a function that workers
    can import; items are taken a few ahead.

    Raises:
        SyntaxformerError: A worker died.
    """
    pool = ProcessPoolExecutor(n_processes, get_context("spawn"), initializer=_load, initargs=(name,))
    try:
        yield from map_ahead(pool, partial(_work, work), items, TASKS_AHEAD * n_processes)
    except BrokenProcessPool as error:
        raise SyntaxformerError(
            f"annotation with {n_processes} processes: expected all to survive, got a dead one (out of "
            "memory, killed, or a script with work outside `if __name__ == '__main__'`). Use fewer processes."
        ) from error


def _of_words(annotator: Annotator, lines: Sequence[str]) -> list[Sentence]:
    return annotator.annotate_words([given_words(line) for line in lines])


_annotator: Annotator | None = None


def _load(name: str) -> None:
    global _annotator
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent answers Ctrl-C, in one line
    end_with_parent(lambda: os._exit(1))
    _annotator = load_annotator(name)


def _work(work: Callable[[Annotator, T], R], item: T) -> R:
    assert _annotator is not None
    return work(_annotator, item)


def sentences_of_lines(annotator: Annotator, lines: list[str]) -> list[Sentence]:
    """What a worker makes of some lines."""
    return list(annotator.stream(lines))
