"""What backends share: options behind a name, a parser of batches as an annotator, parses as sentences.

A parser splits a line into sentences of its own, with numbers and trees that start anew in each; here they
become one sentence with several roots and, where there are trees, one tree over all words. Blank lines do not
reach it, and very long ones can be cut: spaCy's tokenizer needs time quadratic in the length of a run without
white space, and models hold a whole document in memory.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Protocol

from syntaxformer.annotate.annotator import (
    TASKS_AHEAD,
    ListsSentences,
    blank_sentence,
    check_words,
    chunks_of,
    short_enough,
    stream_in_processes,
)
from syntaxformer.base.config import nearest
from syntaxformer.base.errors import ConfigError
from syntaxformer.base.progress import map_ahead
from syntaxformer.trees import ROOT, Sentence, Tree, check_governors, format_tree, strip_root
from syntaxformer.trees.constituency import leaf_of
from syntaxformer.trees.sentence import COLUMNS

__all__ = [
    "MAX_RUN",
    "MAX_SEGMENT",
    "BatchParser",
    "BatchedAnnotator",
    "OptionTypes",
    "ParsedSentence",
    "flat_tree",
    "join_parsed",
    "join_trees",
    "positive_int",
    "positive_number",
    "read_tree",
    "segments_of",
    "split_options",
]

OptionTypes = Mapping[str, Callable[[str], Any]]
"""Name of each option and what reads its value; a `ValueError` says what was expected."""

_START = re.compile(r"\+(?=[a-z_]+=)")


def split_options(name: str, argument: str, types: OptionTypes) -> tuple[str, dict[str, Any]]:
    """Split what follows an annotator's colon into its subject and its options.

    Args:
        name: The backend, for messages: "stanza".
        argument: "en+package=gum".
        types: The options that there are.

    Raises:
        ConfigError: An unknown option, one given twice, or a value of the wrong kind; all that are wrong.
    """
    subject, *settings = _START.split(argument)
    options: dict[str, Any] = {}
    problems: list[str] = []
    for setting in settings:
        key, _, value = setting.partition("=")
        if key not in types:
            problems.append(f"annotator {name}: unknown option {key!r}. {nearest(key, list(types))}")
        elif key in options:
            problems.append(f"annotator {name}: expected each option once, got {key!r} twice.")
        else:
            try:
                options[key] = types[key](value)
            except ValueError as error:
                problems.append(f"annotator {name}: {key}: {error}")
    if not subject:
        problems.append(f"annotator {name}: expected something between the colon and the options, got none.")
    if problems:
        raise ConfigError(problems)
    return subject, options


def positive_int(text: str) -> int:
    """Read a whole number above zero.

    Raises:
        ValueError: It is none.
    """
    if not (text.isascii() and text.isdecimal()) or len(text) > 9 or int(text) < 1:
        raise ValueError(f"expected a whole number from 1, got {text!r}.")
    return int(text)


def positive_number(text: str) -> float:
    """Read a number above zero.

    Raises:
        ValueError: It is none.
    """
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < 1e9:
        raise ValueError(f"expected a number above 0, got {text!r}.")
    return number


class BatchParser(Protocol):
    """A parser as `BatchedAnnotator` needs it."""

    def parse_lines(self, lines: Sequence[str]) -> list[Sentence]:
        """Return one sentence for each line; no line is blank."""
        ...

    def parse_words(self, sentences: Sequence[tuple[str, ...]]) -> list[Sentence]:
        """Return one sentence for each list of words, with exactly these words; no list is empty."""
        ...


class BatchedAnnotator(ListsSentences):
    """A parser as an annotator; safe to share between threads.

    Args:
        parser: Does the work.
        name: What `load_annotator` loads it by, in this and in worker processes.
        version: Changes whenever the same line could be annotated differently.
        provides: Columns of its sentences.
        batch_lines: Lines given to the parser at once.
        threads: Batches that the parser may work on at the same time, in threads: it answers from elsewhere.
            None: one at a time; several processes load the parser each.
    """

    def __init__(
        self,
        parser: BatchParser,
        name: str,
        version: str,
        provides: frozenset[str],
        *,
        batch_lines: int,
        threads: int | None = None,
    ) -> None:
        self.parser = parser
        self.name = name
        self.version = version
        self.provides = provides
        self.batch_lines = batch_lines
        self.threads = threads
        self._lock: AbstractContextManager[object] = threading.Lock() if threads is None else nullcontext()

    def stream(self, lines: Iterable[str], *, n_processes: int = 1) -> Iterator[Sentence]:
        """Yield one sentence for each line, in order, in constant memory.

        Args:
            lines: Any text, without its line end.
            n_processes: Worker processes, or requests at a time to a server; 1 works in this process.

        Raises:
            SyntaxformerError: A worker process died, the parser failed, or a line has over 100,000 words.
        """
        lines = short_enough(lines)
        if self.threads is None and n_processes > 1:
            yield from stream_in_processes(self.name, lines, n_processes)
            return
        chunks = chunks_of(lines, self.batch_lines, 150 * self.batch_lines)  # of characters
        n_threads = max(self.threads or 1, n_processes)
        batches = map(self._batch, chunks)
        if n_threads > 1:
            pool = ThreadPoolExecutor(n_threads, "annotate")
            batches = map_ahead(pool, self._batch, chunks, TASKS_AHEAD * n_threads)
        for batch in batches:
            yield from batch

    def annotate_words(self, sentences: Iterable[Sequence[str]]) -> list[Sentence]:
        """Return one sentence for each list of words, with exactly these words; the text is them with spaces.

        Raises:
            ValueError: A word is empty or holds white space.
        """
        checked = check_words(sentences)
        filled = [words for words in checked if words]
        found: list[Sentence] = []
        for start in range(0, len(filled), self.batch_lines):
            with self._lock:
                found.extend(self.parser.parse_words(filled[start : start + self.batch_lines]))
        parsed = iter(found)
        return [next(parsed) if words else blank_sentence("", self.provides) for words in checked]

    def _batch(self, lines: Sequence[str]) -> list[Sentence]:
        filled = [line for line in lines if line and not line.isspace()]
        with self._lock:
            parsed = iter(self.parser.parse_lines(filled) if filled else [])
        return [
            next(parsed) if line and not line.isspace() else blank_sentence(line, self.provides)
            for line in lines
        ]


PHRASE = "S"
"""Label over several sentences of a line, as `phrase_structure` has it."""


@dataclass(slots=True)
class ParsedSentence:
    """A sentence as a parser found it.

    Args:
        words: Its words, `[words]`.
        spans: Character start and end of each in the line, `[words]`.
        tags: Values of "upos", "xpos", "lemmas" and "deprels", `[words]` each; None where one is unknown.
        governors: Governor of each word within this sentence, 0-based, -1 = root.
        tree: Its phrases.
    """

    words: list[str]
    spans: list[tuple[int, int]]
    tags: dict[str, list[str | None]]
    governors: list[int] | None = None
    tree: Tree | None = None


def join_parsed(line: str, parsed: Sequence[ParsedSentence], provides: frozenset[str]) -> Sentence:
    """Join the sentences that a parser found in a line, in order.

    Args:
        line: The line.
        parsed: What was found in it; offsets count from the start of the line.
        provides: The columns wanted.

    Raises:
        TreeError: A governor is out of range, or there is a cycle.
    """
    columns: dict[str, Any] = {
        name: tuple(value or column.unknown for sentence in parsed for value in _column(sentence, name))
        for name, column in COLUMNS.items()
        if name in provides and column.unknown is not None
    }
    words = tuple(word for sentence in parsed for word in sentence.words)
    if "governors" in provides:
        columns |= _dependencies(parsed)
        check_governors(columns["governors"], words)
    if "constituency" in provides and words:
        trees = [
            flat_tree(sentence.words, sentence.tags.get("xpos")) if sentence.tree is None else sentence.tree
            for sentence in parsed
        ]
        columns["constituency"] = format_tree(join_trees(trees))
    return Sentence(line, words, tuple(span for sentence in parsed for span in sentence.spans), **columns)


def _column(sentence: ParsedSentence, column: str) -> Sequence[str | None]:
    return sentence.tags.get(column) or [None] * len(sentence.words)


def _dependencies(parsed: Sequence[ParsedSentence]) -> dict[str, tuple[Any, ...]]:
    governors: list[int] = []
    deprels: list[str | None] = []
    for sentence in parsed:
        first = len(governors)
        local = sentence.governors if sentence.governors is not None else [ROOT] * len(sentence.words)
        governors.extend(governor if governor == ROOT else governor + first for governor in local)
        deprels.extend(
            "root" if governor == ROOT else deprel or COLUMNS["deprels"].unknown
            for governor, deprel in zip(local, _column(sentence, "deprels"), strict=True)
        )
    return {"governors": tuple(governors), "deprels": tuple(deprels)}


def join_trees(trees: Sequence[Tree]) -> Tree:
    """Put trees side by side under one S; a single tree stays as it is. Outer ROOT brackets go.

    Args:
        trees: One at least.
    """
    stripped = [strip_root(tree) for tree in trees]
    return stripped[0] if len(stripped) == 1 else Tree(PHRASE, tuple(stripped))


def flat_tree(words: Sequence[str], tags: Sequence[str | None] | None = None) -> Tree:
    """The tree of a sentence that a parser gave up on: all words under one S."""
    labels = tags or [None] * len(words)
    return Tree(
        PHRASE, tuple(Tree(tag or "X", (leaf_of(word),)) for word, tag in zip(words, labels, strict=True))
    )


def read_tree(node: Any, label_of: Callable[[Any], str], children_of: Callable[[Any], Sequence[Any]]) -> Tree:
    """Copy a tree of another library; its leaves are what has no children.

    Args:
        node: The top.
        label_of: Gives the label of a phrase, or the word of a leaf.
        children_of: Gives the children of a phrase, nothing for a leaf.
    """
    made: dict[int, Tree | str] = {}
    for place in reversed(order := list(_below(node, children_of))):
        children = children_of(place)
        made[id(place)] = (
            Tree(label_of(place), tuple(made[id(child)] for child in children))
            if children
            else label_of(place)
        )
    top = made[id(order[0])]
    return top if isinstance(top, Tree) else Tree("", (top,))


def _below(node: Any, children_of: Callable[[Any], Sequence[Any]]) -> Iterator[Any]:
    waiting = [node]
    while waiting:
        place = waiting.pop()
        yield place
        waiting.extend(children_of(place))


MAX_RUN = 400
"""Characters without white space after which a cut is made: longer than words and nearly all addresses."""

MAX_SEGMENT = 100_000
"""Characters of a part, about 20,000 words; beyond it the next white space is a cut."""

_STRETCH = re.compile(rf"\s*\S{{0,{MAX_RUN}}}")


def segments_of(line: str, max_segment: int = MAX_SEGMENT) -> Iterator[tuple[int, str]]:
    """Yield start and text of each part of a line; together they are the line.

    Args:
        line: Any text.
        max_segment: Characters after which the next white space is a cut.
    """
    if len(line) <= MAX_RUN:
        yield 0, line
        return
    start = 0
    for end in _cuts(line, max_segment):
        yield start, line[start:end]
        start = end
    if start < len(line):
        yield start, line[start:]


def _cuts(line: str, max_segment: int) -> Iterator[int]:
    start = 0
    for stretch in _STRETCH.finditer(line):
        end = stretch.end()
        inside_run = end < len(line) and not line[end].isspace()
        if inside_run or end - start > max_segment:
            yield end
            start = end
