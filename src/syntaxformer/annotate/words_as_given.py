"""Annotation of text that is tokenised already: the words are what stands between spaces, and stay so."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from syntaxformer.annotate.annotator import Annotator
from syntaxformer.annotate.splits import annotator_for
from syntaxformer.trees import Sentence
from syntaxformer.trees.locate import given_words

__all__ = ["WordsAsGiven"]

_LINES_AT_A_TIME = 1000


class WordsAsGiven:
    """An annotator that never re-tokenises.

    Args:
        annotator: Who tags and parses the words.
    """

    def __init__(self, annotator: Annotator) -> None:
        self.annotator = annotator

    @property
    def name(self) -> str:
        """The annotator's own name: a model folder stores the tokenisation apart."""
        return self.annotator.name

    @property
    def version(self) -> str:
        """The annotator's version, marked, because a cache must tell the two apart."""
        return f"{self.annotator.version}+words"

    @property
    def provides(self) -> frozenset[str]:
        """What the annotator provides."""
        return self.annotator.provides

    def for_split(self, split: str) -> Annotator:
        """Return the same for one split; see `annotator_for`."""
        return WordsAsGiven(annotator_for(self.annotator, split))

    def stream(self, lines: Iterable[str], *, n_processes: int = 1) -> Iterator[Sentence]:
        """Yield one sentence for each line; `n_processes` plays no part."""
        iterator = iter(lines)
        while chunk := list(islice(iterator, _LINES_AT_A_TIME)):
            yield from self.annotator.annotate_words([given_words(line) for line in chunk])

    def annotate(
        self, lines: Iterable[str], *, n_processes: int = 1, progress: bool = False
    ) -> list[Sentence]:
        """Return one sentence for each line."""
        return list(self.stream(lines))

    def annotate_words(self, sentences: Iterable[Sequence[str]]) -> list[Sentence]:
        """Return one sentence for each list of words."""
        return self.annotator.annotate_words(sentences)
