"""What every annotator can do, whichever library is behind it; the table of annotators; loading them by name.

One line in, one `Sentence` out, always and in order: empty lines, several sentences on a line, 5,000 words.
Backends are imported when they are asked for. Every worker process loads the annotator by its name; nothing
is forked, so the caller's threads cannot hang a worker.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial
from importlib import import_module
from importlib.resources import files
from multiprocessing import connection, get_context, parent_process
from pathlib import Path
from typing import Any, Protocol, TypeVar, runtime_checkable

from syntaxformer.base.errors import BackendMissingError, ConfigError, DataError, SyntaxformerError
from syntaxformer.base.languages import BUNDLED, LANGUAGE_NAMES, language_of
from syntaxformer.base.progress import map_ahead, track
from syntaxformer.trees import Sentence
from syntaxformer.trees.sentence import PER_WORD

__all__ = [
    "BACKENDS",
    "PHRASES",
    "Annotator",
    "Backend",
    "ListsSentences",
    "annotator_identity",
    "blank_sentence",
    "bundled_folder",
    "check_lines",
    "check_words",
    "chunks_of",
    "encodable",
    "hash_file",
    "hash_folder",
    "hash_lines",
    "is_file",
    "load_annotator",
    "map_in_processes",
    "pipeline_version",
    "short_enough",
    "stream_in_processes",
]

PHRASES = "+phrases"
"""What follows an annotator's name to have its parses converted."""

_CUTS = frozenset(" \t\n\r\v\f")
_SURROGATE = re.compile("[\ud800-\udfff]")
_SHORT = 12
"""Hexadecimal digits of a version: 48 bits, enough to tell versions of one model apart."""
T = TypeVar("T")
S = TypeVar("S", bound=Sized)
R = TypeVar("R")

MAX_WORDS, _WORD = 100_000, re.compile(r"\w+|[^\w\s]")
LINES_PER_TASK = 500
TASKS_AHEAD = 2
"""Tasks that wait for each process, so that none idles."""


@runtime_checkable
class Annotator(Protocol):
    """Text in, sentences out."""

    @property
    def name(self) -> str:
        """What `load_annotator` takes: "en", "spacy:de_core_news_sm", "conllu:train.conllu"."""
        ...

    @property
    def version(self) -> str:
        """Changes whenever the same line could be annotated differently."""
        ...

    @property
    def provides(self) -> frozenset[str]:
        """The columns that sentences will have, of `trees.sentence.COLUMNS`."""
        ...

    def stream(self, lines: Iterable[str], *, n_processes: int = 1) -> Iterator[Sentence]:
        """Yield one sentence for each line, in order, in constant memory."""
        ...

    def annotate(
        self, lines: Iterable[str], *, n_processes: int = 1, progress: bool = False
    ) -> list[Sentence]:
        """Return one sentence for each line, in order."""
        ...

    def annotate_words(self, sentences: Iterable[Sequence[str]]) -> list[Sentence]:
        """Return one sentence for each list of words, with exactly these words, joined by spaces."""
        ...


class ListsSentences:
    """`annotate` for whatever has a name and `stream`: the base class of the annotators."""

    name: str

    def stream(self, lines: Iterable[str], *, n_processes: int = 1) -> Iterator[Sentence]:
        """Yield one sentence for each line, in order."""
        raise NotImplementedError

    def annotate(
        self, lines: Iterable[str], *, n_processes: int = 1, progress: bool = False
    ) -> list[Sentence]:
        """Return one sentence for each line, in order; arguments as in `stream`, `progress` shows a bar.

        Raises:
            TypeError: The lines are one string, which would be read as a list of characters.
        """
        check_lines(lines)
        total = len(lines) if isinstance(lines, Sized) else None
        sentences = self.stream(lines, n_processes=n_processes)
        return list(track(sentences, f"annotating ({self.name})", total, enabled=progress))


def blank_sentence(line: str, provides: frozenset[str]) -> Sentence:
    """Return the sentence of a line without words: its columns are there, and empty."""
    return Sentence(line, (), (), **dict.fromkeys(provides.intersection(PER_WORD), ()))  # type: ignore[arg-type]


def check_lines(lines: object, what: str = "lines") -> None:
    """Hold that lines, by whatever name, are not one string.

    Raises:
        TypeError: They are: it would be read as a list of characters.
    """
    if isinstance(lines, str):
        raise TypeError(
            f"{what}: expected a list of strings, got the string {lines[:40]!r}. Put it into a list."
        )


def check_words(sentences: Iterable[Sequence[str]]) -> list[tuple[str, ...]]:
    """Return words given by a user as tuples, after a look at each.

    Raises:
        ValueError: A word is empty, blank, or holds white space (a no-break space inside a word is allowed).
        TypeError: A sentence is one string, which would be read as a list of characters.
    """
    checked: list[tuple[str, ...]] = []
    for number, words in enumerate(sentences):
        if isinstance(words, str):
            raise TypeError(f"sentence {number}: expected a list of words, got the string {words[:40]!r}.")
        for word in words:
            if not word or word.isspace() or not _CUTS.isdisjoint(word):
                raise ValueError(
                    f"sentence {number}: expected words without white space and not empty, got {word!r}."
                )
        checked.append(tuple(words))
    return checked


def encodable(text: str) -> str:
    """Replace lone surrogates, which no library stores or sends, one character for one."""
    return text if text.isascii() else _SURROGATE.sub("\ufffd", text)


BUNDLED_HOME = "spacy:load_bundled"


@dataclass(frozen=True, slots=True)
class Backend:
    """A way to get annotation.

    Args:
        argument: What follows the colon in a name. PATH is a parsed file, which is read in order; URL a
            server; NAME and NAME_OR_PATH may be folders.
        what: One line for the user.
        home: "module:function" of `backends` that takes the argument and returns an annotator.
        package: What is installed for it beside this package; None for nothing.
    """

    argument: str
    what: str
    home: str
    package: str | None = None


BACKENDS = {
    "spacy": Backend("NAME_OR_PATH", "any installed spaCy pipeline", "spacy:load_spacy"),
    "stanza": Backend("LANG", "Stanza's models of a language", "stanza:load_stanza", "stanza"),
    "benepar": Backend("NAME", "phrases by the Berkeley neural parser", "benepar:load_benepar", "benepar"),
    "corenlp": Backend("URL", "a running Stanford CoreNLP server", "corenlp:load_corenlp"),
    "conllu": Backend("PATH", "an existing CoNLL-U file; {split} in its name", "files:load_conllu"),
    "ptb": Backend("PATH", "an existing file of bracketed trees; {split} too", "files:load_ptb"),
}
"""The one list of annotators beside the bundled ones: a new one is a row here and its module."""


def is_file(name: str) -> bool:
    """Whether an annotator is a file that was parsed elsewhere, whose sentences are read in order."""
    backend = BACKENDS.get(name.partition(":")[0])
    return ":" in name and backend is not None and backend.argument == "PATH"


def load_annotator(name: str) -> Annotator:
    """Load an annotator by name.

    Args:
        name: Bundled ("en", "de") or of `BACKENDS` ("spacy:de_core_news_sm", "conllu:train.conllu"). With
            "+phrases" after it, its dependency parses come as phrase structure too; options of a backend
            follow as "+key=value".

    Raises:
        ConfigError: No such annotator; names the nearest. Or "+phrases" after one that does not parse.
        BackendMissingError: It needs a package or model that is not installed; names the command.
        DataError: The file or folder that it works with cannot be read.
    """
    if name.endswith(PHRASES):
        from syntaxformer.annotate.wrappers import with_constituency

        return with_constituency(load_annotator(name.removesuffix(PHRASES)))
    scheme, colon, argument = name.partition(":")
    if not colon and name in BUNDLED:
        return _function(BUNDLED_HOME)(name)
    if scheme in BACKENDS and argument:
        return _function(BACKENDS[scheme].home)(argument)
    raise ConfigError(_unknown(name, scheme))


def annotator_identity(name: str) -> tuple[str, str]:
    """Return name and version of an annotator; of a bundled one without loading it, which takes seconds.

    Raises:
        ConfigError, BackendMissingError, DataError: As `load_annotator`.
    """
    if name in BUNDLED:
        return name, bundled_version(name)
    annotator = load_annotator(name)
    return annotator.name, annotator.version


def _function(home: str) -> Callable[[str], Annotator]:
    module, _, function = home.partition(":")
    return getattr(import_module(f"syntaxformer.annotate.backends.{module}"), function)


def _unknown(name: str, scheme: str) -> str:
    # An address may hold a password.
    name = name if "://" not in name else f"{scheme}:…"
    forms = [*BUNDLED, *(f"{scheme}:{backend.argument}" for scheme, backend in BACKENDS.items())]
    message = f"annotator: expected {', '.join(forms[:-1])} or {forms[-1]}, got {name!r}."
    if scheme in BACKENDS:
        return f"{message} Give {BACKENDS[scheme].argument} after the colon."
    nearest = get_close_matches(scheme, [*BUNDLED, *BACKENDS], n=1, cutoff=0.5)
    code = LANGUAGE_NAMES.get(name.lower()) or language_of(name) or ""
    meant = code if code in BUNDLED else f"stanza:{code}" if len(code) == 2 else nearest and nearest[0]
    return f"{message} Did you mean {meant!r}?" if meant else message


def bundled_folder(language: str) -> Path:
    """Return the folder of a pipeline that comes with the package.

    Raises:
        BackendMissingError: The package was installed without it.
    """
    folder = Path(str(files("syntaxformer.annotate"))) / "pipelines" / language
    if not (folder / "meta.json").is_file():
        raise BackendMissingError(f"the bundled pipeline {language!r} ({folder})", "make annotators")
    return folder


def bundled_version(language: str) -> str:
    """Return the version of a pipeline that comes with the package.

    Raises:
        BackendMissingError: The package was installed without it.
    """
    folder = bundled_folder(language)
    return pipeline_version(json.loads((folder / "meta.json").read_text("utf-8")), folder)


def pipeline_version(meta: Mapping[str, Any], folder: Path) -> str:
    """Return what changes with a pipeline: its own name and version, and a hash of its files."""
    return f"{meta['lang']}_{meta['name']}-{meta['version']}+{hash_folder(folder)}"


def hash_lines(lines: Iterable[str]) -> str:
    """Return the SHA-256 of lines; each ends in a line feed, so that moving a break changes it."""
    digest = hashlib.sha256()
    for line in lines:
        digest.update(line.encode("utf-8", "surrogatepass"))
        digest.update(b"\n")
    return digest.hexdigest()


def hash_file(path: Path) -> str:
    """Return the first 12 digits of the SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:_SHORT]


def hash_folder(folder: Path) -> str:
    """Return 12 digits of the SHA-256 over names and contents of all files in a folder and below."""
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            name = path.relative_to(folder).as_posix()
            digest.update(f"{name}\0{path.stat().st_size}\0".encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()[:_SHORT]


def chunks_of(items: Iterable[S], size: int, max_length: float = math.inf) -> Iterator[list[S]]:
    """Cut items into lists of `size`, shorter where several would together be longer than `max_length`."""
    chunk, length = list[S](), 0
    for item in items:
        if chunk and (len(chunk) == size or length + len(item) > max_length):
            yield chunk
            chunk, length = [], 0
        chunk.append(item)
        length += len(item)
    if chunk:
        yield chunk


def short_enough(lines: Iterable[str], path: str | None = None, first: int = 0) -> Iterator[str]:
    """Yield lines, those from `first` on of the file at `path`, each after a look at its length.

    Raises:
        DataError: A line has more words and marks than a parser should be given.
    """
    for number, line in enumerate(lines, first + 1):
        if len(line) > MAX_WORDS and (n_words := sum(1 for _ in _WORD.finditer(line))) > MAX_WORDS:
            message = f"expected at most {MAX_WORDS:,} words in a line, got {n_words:,}. Split the line."
            raise DataError(message, path, number)
        yield line


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
