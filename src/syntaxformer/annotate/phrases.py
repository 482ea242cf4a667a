"""Constituency for annotators that only parse dependencies: `en+phrases` is `en`, and its parses as phrases.

A wrapper, so that plain annotation pays nothing; the trees are made once and stored with the rest, because a
collator that converted at every epoch would wait for it. No information beyond the parse.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from syntaxformer.annotate.annotator import Annotator, ListsSentences
from syntaxformer.annotate.parsed import tree_over_words
from syntaxformer.annotate.splits import annotator_for
from syntaxformer.base.errors import ConfigError
from syntaxformer.trees import Sentence, format_tree, phrase_structure
from syntaxformer.trees.phrase_structure import NEEDED_COLUMNS

__all__ = ["PHRASES", "WithPhrases", "with_constituency"]

PHRASES = "+phrases"
"""What follows an annotator's name to have its parses converted."""

_VERSION = "+phrases1"
"""Changes with the rules of the conversion."""


def with_constituency(annotator: Annotator) -> Annotator:
    """Return an annotator that provides `constituency` too; itself where it does so already.

    Args:
        annotator: Provides upos, governors and deprels of Universal Dependencies.

    Raises:
        ConfigError: It lacks one of these.
    """
    if "constituency" in annotator.provides:
        return annotator
    missing = [column for column in NEEDED_COLUMNS if column not in annotator.provides]
    if missing:
        raise ConfigError(
            f"annotator: expected one with {', '.join(NEEDED_COLUMNS)} for phrases, got "
            f"{annotator.name!r} without {', '.join(missing)}. Use one with a dependency parser."
        )
    return WithPhrases(annotator)


class WithPhrases(ListsSentences):
    """An annotator whose sentences get a constituency tree from their dependency parse.

    Args:
        annotator: Who parses.
    """

    def __init__(self, annotator: Annotator) -> None:
        self.annotator = annotator
        self.name = annotator.name + PHRASES
        self.version = annotator.version + _VERSION
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
    """A line without words has no tree; a space inside a word becomes a no-break space in it."""
    if not sentence.words:
        return sentence
    tree = tree_over_words(phrase_structure(sentence), sentence.words)
    return replace(sentence, constituency=format_tree(tree))
