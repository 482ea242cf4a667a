"""An annotator around a parser that takes batches: lines in order, blank lines kept away from it.

The parser itself, behind two functions, is in the backends.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

from syntaxformer.annotate.annotator import ListsSentences, blank_sentence, check_words
from syntaxformer.annotate.parallel import TASKS_AHEAD, chunks_of, short_enough, stream_in_processes
from syntaxformer.base.ahead import map_ahead
from syntaxformer.trees import Sentence

__all__ = ["BatchParser", "BatchedAnnotator"]


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
