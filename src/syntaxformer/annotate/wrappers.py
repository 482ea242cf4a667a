"""Annotators that wrap others: phrases from a parse, words as they are given."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain

from syntaxformer.annotate.annotator import Annotator, annotator_for, chunks_of
from syntaxformer.annotate.backends import is_file
from syntaxformer.annotate.parsers import BatchedAnnotator, map_in_processes
from syntaxformer.base.errors import ConfigError
from syntaxformer.base.languages import PHRASES
from syntaxformer.trees import Sentence
from syntaxformer.trees.locate import given_words
from syntaxformer.trees.phrase_structure import NEEDED_COLUMNS, brackets_of_parse

_PHRASES_VERSION = "+phrases1"
"""Changes with the rules of the conversion."""


_LINES_AT_A_TIME = 1000


def with_constituency(annotator: Annotator) -> Annotator:
    """Return an annotator that also provides `constituency`; the same one if it already does.

    A control changes the phrases as well: `random_tree(en)+phrases` is `random_tree(en+phrases)`.

    Raises:
        ConfigError: It lacks upos, governors or deprels.
    """
    if "constituency" in annotator.provides:
        return annotator
    if (around := getattr(annotator, "around", None)) is not None:  # a control
        return around(with_constituency(annotator.annotator))  # type: ignore[attr-defined]
    missing = [column for column in NEEDED_COLUMNS if column not in annotator.provides]
    if missing:
        raise ConfigError(
            f"annotator: expected one with {', '.join(NEEDED_COLUMNS)} for phrases, got "
            f"{annotator.name!r} without {', '.join(missing)}. Use one with a dependency parser."
        )
    return WithPhrases(annotator)


class WithPhrases(Annotator):
    """An annotator whose sentences get a constituency tree from their dependency parse.

    The tree adds nothing to what the parse says. Its brackets are written only when they are needed: a corpus
    that is stored needs them, relations do not.
    """

    def __init__(self, annotator: Annotator) -> None:
        self.annotator = annotator
        self.name = annotator.name + PHRASES
        self.version = annotator.version + _PHRASES_VERSION
        self.provides = annotator.provides | {"constituency"}

    def for_split(self, split: str) -> Annotator:
        """Return the same for one split; see `annotator_for`."""
        return WithPhrases(annotator_for(self.annotator, split))

    def stream(self, lines: Iterable[str], *, n_processes: int = 1) -> Iterator[Sentence]:
        """Yield one sentence for each line; the conversion itself runs in this process."""
        return map(_with_tree, self.annotator.stream(lines, n_processes=n_processes))

    def annotate_words(self, sentences: Iterable[Sequence[str]]) -> list[Sentence]:
        """Return one sentence for each list of words."""
        return list(map(_with_tree, self.annotator.annotate_words(sentences)))


def _with_tree(sentence: Sentence) -> Sentence:
    """Add the tree to a sentence; a line without words has none."""
    return replace(sentence, constituency=brackets_of_parse) if sentence.words else sentence


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
        if (around := getattr(self.annotator, "around", None)) is not None:
            # A control, whose pools of lines are larger than the chunks below.
            inside = WordsAsGiven(self.annotator.annotator)  # type: ignore[attr-defined]
            yield from around(inside).stream(lines, n_processes=n_processes)
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


def _of_words(annotator: Annotator, lines: Sequence[str]) -> list[Sentence]:
    return annotator.annotate_words([given_words(line) for line in lines])
