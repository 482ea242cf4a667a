"""How far two phrase-structure trees agree: precision, recall and F1 of brackets, without labels.

Spans of two or more words count, each once, even if it has several phrases; so does the span of the whole
sentence. Punctuation counts like any other word, unless it is left out on request as in EVALB.
"""

from __future__ import annotations

from collections.abc import Iterable, Set
from itertools import accumulate
from typing import NamedTuple

from syntaxformer.base.errors import TreeError
from syntaxformer.trees.constituency import Tree, leaves_of, spans_of


class BracketScore(NamedTuple):
    """Numbers of brackets that match, that the trees under test have, and that the references have."""

    n_matched: int
    n_found: int
    n_gold: int

    @property
    def precision(self) -> float:
        """Share of the spans found that are right, 0 to 1."""
        return self.n_matched / max(self.n_found, 1)

    @property
    def recall(self) -> float:
        """Share of the right spans that were found, 0 to 1."""
        return self.n_matched / max(self.n_gold, 1)

    @property
    def f1(self) -> float:
        """Harmonic mean of both, 0 to 1."""
        return 2 * self.n_matched / max(self.n_found + self.n_gold, 1)


def bracket_score(pairs: Iterable[tuple[Tree, Tree]], *, punctuation: bool = True) -> BracketScore:
    """Compare trees.

    Each pair is a tree under test and its reference, over the same words. Without `punctuation`, words that
    hold no letter, digit or symbol such as "$" and "%" are left out.

    Raises:
        TreeError: Two trees have different words.
    """
    matched = found = gold = 0
    for tree, reference in pairs:
        words, expected = leaves_of(tree), leaves_of(reference)
        if words != expected:
            raise TreeError(f"tree: expected the words {' '.join(expected)!r}, got {' '.join(words)!r}.")
        ours, theirs = bracket_spans(tree, punctuation), bracket_spans(reference, punctuation)
        matched, found, gold = matched + len(ours & theirs), found + len(ours), gold + len(theirs)
    return BracketScore(matched, found, gold)


def bracket_spans(tree: Tree, punctuation: bool = True) -> Set[tuple[int, int]]:
    """Return the distinct spans of two words or more, as start and end (exclusive)."""
    is_said = [any(one.isalnum() or one in "$%&#£€" for one in word) for word in leaves_of(tree)]
    before = [0, *accumulate(punctuation or one for one in is_said)]
    spans = {(before[start], before[end]) for _, start, end in spans_of(tree)}
    return {(start, end) for start, end in spans if end - start > 1}
