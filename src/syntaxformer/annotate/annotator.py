"""What every annotator can do, whatever library it uses, and checks of what it is given.

Each line gives one `Sentence`, in order, even if it is empty, holds several sentences or has 5,000 words.
"""

from __future__ import annotations

import hashlib
import math
import os
import re
import signal
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set, Sized
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from importlib.resources import files
from itertools import chain
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Protocol, TypeVar, cast, runtime_checkable

from syntaxformer.base.errors import BackendMissingError, DataError, SyntaxformerError
from syntaxformer.base.files import hash_file
from syntaxformer.base.languages import SPACES
from syntaxformer.base.progress import end_with_parent, map_ahead, map_in_threads, track
from syntaxformer.trees import ROOT, Sentence, Tree, check_governors, format_tree, strip_root
from syntaxformer.trees.constituency import leaf_of
from syntaxformer.trees.dependency import join_governors
from syntaxformer.trees.locate import given_words, spans_of_given_words
from syntaxformer.trees.sentence import COLUMNS, PER_WORD

_CUTS = frozenset(" \t\n\r\v\f")
_SURROGATE = re.compile("[\ud800-\udfff]")

SHORT_HASH = 12
"""Hexadecimal digits of a version: 48 bits, enough to tell versions of one model apart."""

MAX_WORDS, _WORD = 100_000, re.compile(r"\w+|[^\w\s]")

S = TypeVar("S", bound=Sized)
T = TypeVar("T")
R = TypeVar("R")

SPLIT = "{split}"
"""Stands for "train", "dev" … in the path of a parsed file."""


@runtime_checkable
class Annotator(Protocol):
    """Turns text into sentences; a subclass that defines `stream` inherits the rest."""

    name: str
    """What `load_annotator` takes: "en", "spacy:de_core_news_sm", "conllu:train.conllu"."""
    version: str
    """Changes whenever the same line could be annotated differently."""
    provides: frozenset[str]
    """The columns that sentences will have, of `trees.sentence.COLUMNS`."""

    def stream(self, lines: Iterable[str], *, n_processes: int = 1) -> Iterator[Sentence]:
        """Yield one sentence for each line, in order, in constant memory."""
        ...

    def annotate(
        self, lines: Iterable[str], *, n_processes: int = 1, progress: bool = False
    ) -> list[Sentence]:
        """Return one sentence for each line, in order; arguments as in `stream`, `progress` shows a bar.

        Raises:
            TypeError: The lines are one string, which would be read as a list of characters, or no lines.
            DataError: A line is no string; with its number.
        """
        check_lines(lines)
        total = len(lines) if isinstance(lines, Sized) else None
        sentences = self.stream(_strings(lines), n_processes=n_processes)
        return list(track(sentences, f"annotating ({self.name})", total, enabled=progress))

    def annotate_words(self, sentences: Iterable[Sequence[str]]) -> list[Sentence]:
        """Return one sentence for each list of words, with exactly these words, joined by spaces.

        Raises:
            ValueError: A word is empty or holds white space.
        """
        return list(self.stream(" ".join(words) for words in check_words(sentences)))


class SpacedWords(Annotator):
    """Words that stand between spaces, without annotation: enough for factors of the text or of a file."""

    name, version, provides = SPACES, "1", frozenset[str]()

    def stream(self, lines: Iterable[str], *, n_processes: int = 1) -> Iterator[Sentence]:
        """Yield one sentence for each line; `n_processes` is ignored."""
        for line in lines:
            yield Sentence(line, tuple(given_words(line)), tuple(spans_of_given_words(line)))


def annotator_for(annotator: Annotator, split: str, rows: Sequence[int] | None = None) -> Annotator:
    """Return the annotator of a split: its own if each split has a parsed file, or else the same for all.

    Of a text that is not all of its file, `rows` are the numbers of its lines there, from 0 and ascending; a
    parsed file gives the sentences of the same numbers.

    Raises:
        DataError: The file of the split is missing.
    """
    choose: Any = getattr(annotator, "for_split", None)
    return annotator if choose is None else choose(split, rows)


def check_lines(lines: object, what: str = "lines") -> None:
    """Check that lines are several; `what` is their name in the message.

    Raises:
        TypeError: They are one string, which would be read as a list of characters, or no lines at all.
    """
    shown = ""
    if isinstance(lines, str):
        shown = f"the string {lines[:40]!r}. Put it into a list"
    elif isinstance(lines, bytes | Mapping | Set) or not isinstance(lines, Iterable):
        shown = "a mapping" if isinstance(lines, Mapping) else type(cast("object", lines)).__name__
    if shown:
        raise TypeError(f"{what}: expected a list of strings, got {shown}.")


def _strings(lines: Iterable[object]) -> Iterator[str]:
    for number, line in enumerate(lines, 1):
        if not isinstance(line, str):
            raise DataError(f"text: expected a string, got {type(line).__name__}.", line=number)
        yield line


def check_words(sentences: Iterable[Sequence[str]]) -> list[tuple[str, ...]]:
    """Check words given by a user, and return them as tuples.

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


def short_enough(lines: Iterable[str], path: str | None = None, first: int = 0) -> Iterator[str]:
    """Check the length of each line and yield it; the lines are those of `path` from line `first` on.

    Raises:
        DataError: A line has more words and marks than a parser should be given.
    """
    for number, line in enumerate(lines, first + 1):
        if len(line) > MAX_WORDS and (n_words := sum(1 for _ in _WORD.finditer(line))) > MAX_WORDS:
            message = f"expected at most {MAX_WORDS:,} words in a line, got {n_words:,}. Split the line."
            raise DataError(message, path, number)
        yield line


def encodable(text: str) -> str:
    """Replace lone surrogates, which no library stores or sends, one character for one."""
    return text if text.isascii() else _SURROGATE.sub("\ufffd", text)


def blank_sentence(line: str, provides: frozenset[str]) -> Sentence:
    """Return the sentence of a line without words: all its columns are present but empty."""
    return Sentence(line, (), (), **dict.fromkeys(provides.intersection(PER_WORD), ()))  # type: ignore[arg-type]


def chunks_of(
    items: Iterable[S], size: int, max_length: float = math.inf, length_of: Callable[[S], int] = len
) -> Iterator[list[S]]:
    """Cut items into lists of `size`, or of fewer where several together would exceed `max_length`."""
    chunk, length = list[S](), 0
    for item in items:
        item_length = length_of(item)
        if chunk and (len(chunk) == size or length + item_length > max_length):
            yield chunk
            chunk, length = [], 0
        chunk.append(item)
        length += item_length
    if chunk:
        yield chunk


def bundled_folder(language: str) -> Path:
    """Return the folder of a pipeline that comes with the package.

    Raises:
        BackendMissingError: The package was installed without it.
    """
    folder = Path(str(files("syntaxformer.annotate"))) / "pipelines" / language
    if not (folder / "meta.json").is_file():
        raise BackendMissingError(f"the bundled pipeline {language!r} ({folder})", "make annotators")
    return folder


def pipeline_version(meta: Mapping[str, Any], folder: Path) -> str:
    """Return what changes with a pipeline: its own name and version, and a hash of its files."""
    return f"{meta['lang']}_{meta['name']}-{meta['version']}+{short_hash(folder)}"


def hash_lines(lines: Iterable[str]) -> str:
    """Return the SHA-256 of lines; each ends in a line feed, so that moving a break changes it."""
    digest = hashlib.sha256()
    for line in lines:
        digest.update(hashed_line(line))
    return digest.hexdigest()


def hashed_line(line: str) -> bytes:
    """A line as it enters a hash of lines: in it, a break is a byte that UTF-8 does not have."""
    return line.encode("utf-8", "surrogatepass").replace(b"\n", b"\xff") + b"\n"


def short_hash(root: Path) -> str:
    """Return 12 digits of the SHA-256 of a file, or over names and contents of all files below a folder."""
    if root.is_file():
        return hash_file(root)[:SHORT_HASH]
    digest = hashlib.sha256()
    for path in sorted(root.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            name = path.relative_to(root).as_posix()
            digest.update(f"{name}\0{path.stat().st_size}\0".encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()[:SHORT_HASH]


LINES_PER_TASK, TASKS_AHEAD = 500, 2
"""Lines of a worker process's task, and tasks queued for each process, so that none is idle."""


class BatchParser(Protocol):
    """A parser as `BatchedAnnotator` needs it."""

    def parse_lines(self, lines: Sequence[str]) -> list[Sentence]:
        """Return one sentence for each line; no line is blank."""
        ...

    def parse_words(self, sentences: Sequence[tuple[str, ...]]) -> list[Sentence]:
        """Return one sentence for each list of words, with exactly these words; no list is empty."""
        ...


class BatchedAnnotator(Annotator):
    """A parser as an annotator; safe to share between threads.

    Args:
        name: The name by which `load_annotator` loads it, here and in worker processes.
        batch_chars: Characters given to the parser at once; by default 150 for each line.
        threads: Batches that the parser may work on at the same time, in threads, if it runs elsewhere.
            None: one at a time; each of several processes then loads the parser.
    """

    def __init__(
        self,
        parser: BatchParser,
        name: str,
        version: str,
        provides: frozenset[str],
        *,
        batch_lines: int,
        batch_chars: int | None = None,
        threads: int | None = None,
    ) -> None:
        self.parser = parser
        self.name, self.version, self.provides = name, version, provides
        self.batch_lines, self.batch_chars = batch_lines, batch_chars or 150 * batch_lines
        self.threads = threads
        self._lock: AbstractContextManager[object] = threading.Lock() if threads is None else nullcontext()

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the lock, which no other process can share."""
        return vars(self) | {"_lock": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Make a lock of this process."""
        vars(self).update(state, _lock=threading.Lock() if state["threads"] is None else nullcontext())

    def limited_to(self, columns: Collection[str]) -> BatchedAnnotator:
        """Return this annotator, with components switched off, if possible, that fill none of the columns."""
        if (limit := getattr(self.parser, "limit_to", None)) is not None:
            self.provides = limit(columns)
        return self

    def stream(self, lines: Iterable[str], *, n_processes: int = 1) -> Iterator[Sentence]:
        """Yield one sentence for each line, in order, in constant memory.

        `n_processes` counts worker processes, or requests to a server at a time; 1 works in this process.

        Raises:
            SyntaxformerError: A worker process died, the parser failed, or a line has over 100,000 words.
        """
        lines = short_enough(lines)
        if self.threads is None and n_processes > 1:
            tasks = chunks_of(lines, LINES_PER_TASK)
            return chain.from_iterable(map_in_processes(self.name, Annotator.annotate, tasks, n_processes))
        chunks = chunks_of(lines, self.batch_lines, self.batch_chars)
        n_threads = max(self.threads or 1, n_processes)
        return chain.from_iterable(map_in_threads(self._batch, chunks, n_threads, TASKS_AHEAD))

    def annotate_words(self, sentences: Iterable[Sequence[str]]) -> list[Sentence]:
        """As every annotator does, in batches of `batch_lines`."""
        checked = check_words(sentences)
        chunks = chunks_of(filter(None, checked), self.batch_lines)
        parsed = chain.from_iterable(map_in_threads(self._words, chunks, self.threads or 1, TASKS_AHEAD))
        return [next(parsed) if words else blank_sentence("", self.provides) for words in checked]

    def _words(self, sentences: Sequence[tuple[str, ...]]) -> Sequence[Sentence]:
        with self._lock:
            return self.parser.parse_words(sentences)

    def _batch(self, lines: Sequence[str]) -> list[Sentence]:
        filled = [line for line in lines if line.strip()]
        with self._lock:
            parsed = iter(self.parser.parse_lines(filled) if filled else [])
        return [next(parsed) if line.strip() else blank_sentence(line, self.provides) for line in lines]


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


_annotator: Annotator | None = None


def _load(name: str) -> None:
    from syntaxformer.annotate.registry import load_annotator

    global _annotator
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent answers Ctrl-C, in one line
    end_with_parent(lambda: os._exit(1))
    _annotator = load_annotator(name)


def _work(work: Callable[[Annotator, T], R], item: T) -> R:
    assert _annotator is not None
    return work(_annotator, item)


MAX_RUN = 400
"""Characters without white space after which a line is cut; words and nearly all addresses are shorter."""

MAX_SEGMENT = 100_000
"""Characters of a part, about 20,000 words, after which a line is cut at the next white space."""

_STRETCH = re.compile(rf"\s*\S{{0,{MAX_RUN}}}")
_TO_LAST_MARK = re.compile(r".*[。！？；，、።။।]", re.DOTALL)


def segments_of(line: str, max_segment: int = MAX_SEGMENT) -> Iterator[tuple[int, str]]:
    """Yield the start and the text of each part of a line; together the parts are the line.

    After `max_segment` characters, it is cut at white space; text without any is cut behind marks such as 。
    """
    start = end = 0
    while len(line) > MAX_RUN and (stretch := _STRETCH.match(line, end)) and stretch[0]:
        before, end = end, stretch.end()
        inside_run = end < len(line) and not line[end].isspace()
        if inside_run and (marked := _TO_LAST_MARK.match(line, before, end)):
            end = marked.end()
        if inside_run or end - start > max_segment:
            yield start, line[start:end]
            start = end
    if start < len(line) or not line:
        yield start, line[start:]


PHRASE = "S"
"""Label of the node over several sentences of a line, the same as in `phrase_structure`."""


@dataclass(slots=True)
class ParsedSentence:
    """A sentence as a parser found it; those of a line have their own word numbers and trees.

    Args:
        spans: Start and end of each word in the line, in characters, `[words]`.
        tags: Values of columns such as "upos" and "lemmas", `[words]` each; None for an unknown value.
        governors: Governor of each word within this sentence, 0-based, -1 = root.
    """

    words: list[str]
    spans: list[tuple[int, int]]
    tags: Mapping[str, Sequence[str | None]]
    governors: list[int] | None = None
    tree: Tree | None = None

    def column(self, name: str) -> Sequence[str | None]:
        """The values of a column of tags, None for each word where there are none."""
        return self.tags.get(name) or [None] * len(self.words)


def join_parsed(line: str, parsed: Sequence[ParsedSentence], provides: frozenset[str]) -> Sentence:
    """Join the sentences that a parser found in a line: several roots, and one tree over all words.

    Raises:
        TreeError: A governor is out of range, or there is a cycle.
    """
    columns: dict[str, Any] = {
        name: tuple(value or column.unknown for sentence in parsed for value in sentence.column(name))
        for name, column in COLUMNS.items()
        if name in provides and column.unknown is not None
    }
    words = tuple(word for sentence in parsed for word in sentence.words)
    if "governors" in provides:
        columns["governors"] = join_governors(
            sentence.governors or [ROOT] * len(sentence.words) for sentence in parsed
        )
        columns["deprels"] = tuple(
            "root" if governor == ROOT else deprel
            for governor, deprel in zip(columns["governors"], columns["deprels"], strict=True)
        )
        check_governors(columns["governors"], words)
    if "constituency" in provides and words:
        trees = [strip_root(sentence.tree or _flat_tree(sentence)) for sentence in parsed]
        columns["constituency"] = format_tree(trees[0] if len(trees) == 1 else Tree(PHRASE, tuple(trees)))
    return Sentence(line, words, tuple(span for sentence in parsed for span in sentence.spans), **columns)


def _flat_tree(sentence: ParsedSentence) -> Tree:
    """A tree for a sentence that the parser could not parse: all words under one S."""
    pairs = zip(sentence.words, sentence.column("xpos"), strict=True)
    return Tree(PHRASE, tuple(Tree(tag or "X", (leaf_of(word),)) for word, tag in pairs))
