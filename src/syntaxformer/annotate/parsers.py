"""A parser of batches as an annotator: long lines in parts, sentences joined again, threads and processes."""

from __future__ import annotations

import os
import re
import signal
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import chain
from multiprocessing import get_context
from typing import Any, Protocol, TypeVar

from syntaxformer.annotate.annotator import Annotator, blank_sentence, check_words, chunks_of, short_enough
from syntaxformer.base.errors import SyntaxformerError
from syntaxformer.base.progress import end_with_parent, map_ahead, map_in_threads
from syntaxformer.trees import ROOT, Sentence, Tree, check_governors, format_tree, strip_root
from syntaxformer.trees.constituency import leaf_of
from syntaxformer.trees.dependency import join_governors
from syntaxformer.trees.sentence import COLUMNS

LINES_PER_TASK, TASKS_AHEAD = 500, 2
"""Lines of a worker process's task, and tasks queued for each process, so that none is idle."""


T = TypeVar("T")


R = TypeVar("R")


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
            return chain.from_iterable(map_in_processes(self.name, sentences_of_lines, tasks, n_processes))
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


def sentences_of_lines(annotator: Annotator, lines: list[str]) -> list[Sentence]:
    """What a worker makes of some lines."""
    return list(annotator.stream(lines))


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


# What a parser found in a line. It splits the line into its own sentences, each with its own word numbers and
# trees; they become one sentence with several roots and, if there are trees, one tree over all words.


PHRASE = "S"
"""Label of the node over several sentences of a line, the same as in `phrase_structure`."""


@dataclass(slots=True)
class ParsedSentence:
    """A sentence as a parser found it.

    Args:
        spans: Start and end of each word in the line, in characters, `[words]`.
        tags: Values of "upos", "xpos", "lemmas" and "deprels", `[words]` each; None for an unknown value.
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
    """Join the sentences that a parser found in a line, in order.

    Offsets count from the start of the line.

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
        local = [one.governors if one.governors is not None else [ROOT] * len(one.words) for one in parsed]
        columns["governors"] = join_governors(local)
        columns["deprels"] = tuple(
            "root" if governor == ROOT else deprel
            for governor, deprel in zip(columns["governors"], columns["deprels"], strict=True)
        )
        check_governors(columns["governors"], words)
    if "constituency" in provides and words:
        trees = [one.tree or flat_tree(one.words, one.tags.get("xpos")) for one in parsed]
        columns["constituency"] = format_tree(join_trees(trees))
    return Sentence(line, words, tuple(span for sentence in parsed for span in sentence.spans), **columns)


def join_trees(trees: Sequence[Tree]) -> Tree:
    """Put one or more trees under one S; a single tree stays as it is. Outer ROOT brackets are removed."""
    stripped = [strip_root(tree) for tree in trees]
    return stripped[0] if len(stripped) == 1 else Tree(PHRASE, tuple(stripped))


def flat_tree(words: Sequence[str], tags: Sequence[str | None] | None = None) -> Tree:
    """A tree for a sentence that the parser could not parse: all words under one S."""
    pairs = zip(words, tags or [None] * len(words), strict=True)
    return Tree(PHRASE, tuple(Tree(tag or "X", (leaf_of(word),)) for word, tag in pairs))


def read_tree(node: Any, label_of: Callable[[Any], str], children_of: Callable[[Any], Sequence[Any]]) -> Tree:
    """Copy a tree of another library, whose leaves are the nodes without children."""
    made, order = dict[int, Tree | str](), [node]
    for place in order:  # grows while it is walked, parents before children
        order.extend(children_of(place))
    for place in reversed(order):
        parts = tuple(made[id(child)] for child in children_of(place))
        made[id(place)] = Tree(label_of(place), parts) if parts else label_of(place)
    top = made[id(node)]
    return top if isinstance(top, Tree) else Tree("", (top,))
