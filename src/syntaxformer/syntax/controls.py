"""Trees that have the shape of syntax and none of its content: controls for a comparison.

A gain that a control brings as well is no gain from the parse. `TreeOptions.control` names one; the collator
puts its trees in the place of the sentence's own. `permuted` is not among them, as its relations are no tree.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from syntaxformer.syntax.piece_relations import WordTrees
from syntaxformer.syntax.relations import NO_PHRASE, PhraseColumns, phrase_columns
from syntaxformer.trees import ROOT, Tree

TreeControl = Literal["random_tree", "linear_chain", "other_sentence"]
"""A tree drawn at random, the order of the words alone, or the tree of another sentence of that length."""


def random_governors(n_words: int, drawn: np.random.Generator) -> NDArray[np.int64]:
    """Governors of a tree drawn uniformly from the n^(n - 1) rooted trees over n words, -1 for the root.

    Word k is hung on min(U, k - 1), with U uniform over all words, and then the words are renumbered.

    Source: Aldous (1990), "The random walk construction of uniform spanning trees and uniform labelled
    trees", algorithm 2.
    """
    governors = np.full(n_words, ROOT, np.int64)
    if n_words > 1:
        order = drawn.permutation(n_words)
        above = np.minimum(drawn.integers(n_words, size=n_words - 1), np.arange(n_words - 1))
        governors[order[1:]] = order[above]
    return governors


def random_bracketing(n_words: int, drawn: np.random.Generator) -> Tree:
    """A binary tree drawn uniformly from the bracketings of n words, n at least 1; its leaves are "_".

    Source: Rémy (1985), as in Knuth, "The Art of Computer Programming" 7.2.1.6, algorithm R.
    """
    links = [0]  # of an inner node k (odd): children links[k] and links[k + 1]; even numbers are leaves
    for n_inner in range(1, n_words):
        place, side = divmod(int(drawn.integers(4 * n_inner - 2)), 2)
        links += [0, 0]
        links[2 * n_inner - side] = 2 * n_inner
        links[2 * n_inner - 1 + side] = links[place]
        links[place] = 2 * n_inner - 1
    order = [links[0]]
    for node in order:  # it grows while it is read, parents first
        order += [links[node], links[node + 1]] if node % 2 else []
    made: dict[int, Tree | str] = {}
    for node in reversed(order):
        made[node] = Tree("", (made[links[node]], made[links[node + 1]])) if node % 2 else "_"
    top = made[links[0]]
    return top if isinstance(top, Tree) else Tree("", (top,))


def right_branching(n_words: int) -> PhraseColumns:
    """The tree in which each word and all words after it are a phrase, whose head is that word."""
    words = np.arange(n_words)
    return PhraseColumns(np.minimum(words + 1, n_words - 1), words - 1, np.maximum(words - 1, 0))


def _lowest(gap_depths: NDArray[np.integer[Any]]) -> NDArray[np.integer[Any]]:
    """Depth of the lowest phrase that holds each word and another one, `NO_PHRASE` for none, `[words]`."""
    return np.maximum(gap_depths, np.append(gap_depths[1:], NO_PHRASE))


MOST_OF_LENGTH, MOST_WORDS = 50, 250_000
"""Trees of each number of words that a pool keeps, and words of all, so that a model's folder stays small."""


class TreePool:
    """Trees of different sentences, each with the checksum of its text, for `other_sentence`.

    Of sentences of the same length it keeps those with the lowest checksums, as if drawn:
    `MOST_OF_LENGTH` or, if these have over `most_words` together, fewer of each length, but at least two; the
    longest are then left out.
    """

    def __init__(self, rows: Iterable[tuple[int, WordTrees]], most_words: float = MOST_WORDS) -> None:
        found: dict[int, dict[int, WordTrees]] = {}
        for checksum, trees in rows:
            found.setdefault(len(trees), {}).setdefault(checksum, trees)
        most = MOST_OF_LENGTH
        while sum(n * min(most, len(one)) for n, one in found.items()) > most_words:
            if most > 2:
                most -= 1
            else:
                del found[max(found)]
        self._of_length = {
            n_words: sorted(of_length.items(), key=lambda row: row[0])[:most]
            for n_words, of_length in found.items()
        }
        self.rows = [row for of_length in self._of_length.values() for row in of_length]

    def other(self, n_words: int, checksum: int, drawn: np.random.Generator) -> WordTrees | None:
        """The trees of a sentence of so many words whose text has another checksum; None if there is none."""
        found = [trees for own, trees in self._of_length.get(n_words, ()) if own != checksum]
        return found[drawn.integers(len(found))] if found else None

    def to_json(self) -> list[Any]:
        """The rows as lists: checksum, governors, and the three columns of phrases."""
        return [
            [
                f"{checksum:08x}",
                None if trees.governors is None else trees.governors.tolist(),
                None if trees.phrases is None else [column.tolist() for column in trees.phrases.arrays],
            ]
            for checksum, trees in self.rows
        ]

    @classmethod
    def from_json(cls, rows: Iterable[Any]) -> TreePool:
        """Read what `to_json` returned."""
        found: list[tuple[int, WordTrees]] = []
        for checksum, governors, phrases in rows:
            n_words = len(governors if phrases is None else phrases[0])
            columns = phrases and PhraseColumns(*(np.array(column, np.int64) for column in phrases))
            found.append((int(checksum, 16), WordTrees.of_sentence(n_words, governors, columns)))
        return cls(found, math.inf)


def control_trees(
    trees: WordTrees, control: TreeControl, drawn: np.random.Generator, other: WordTrees | None = None
) -> WordTrees:
    """The trees that a control puts in the place of a sentence's own, of the same kinds.

    `random_tree` draws the dependency tree and the bracketing, and takes the heads of phrases from the
    former. `linear_chain` hangs each word on the word before it, and branches to the right. Each word stays
    as many edges below its lowest phrase as it is. `other_sentence` takes `other`, or without one what
    `random_tree` draws.
    """
    n_words = len(trees)
    if control == "other_sentence" and other is not None:
        return other
    is_chain = control == "linear_chain"
    governors = np.arange(n_words) - 1 if is_chain else random_governors(n_words, drawn)
    phrases = trees.phrases
    if phrases is not None and n_words:
        below = phrases.word_depths - _lowest(phrases.gap_depths)
        made = (
            right_branching(n_words)
            if is_chain
            else phrase_columns(random_bracketing(n_words, drawn), governors.tolist())
        )
        phrases = PhraseColumns(_lowest(made.gap_depths) + below, made.gap_depths, made.gap_heads)
    return WordTrees.of_sentence(n_words, None if trees.governors is None else governors, phrases)


def shuffle_relations(
    relations: NDArray[np.uint8], places: NDArray[np.int64], across: int, rng: np.random.Generator
) -> None:
    """Shuffle the relations of a segment in place, in each tree; its diagonal and pairs of segments stay.

    Args:
        relations: `[trees, nodes, nodes]`.
        places: Rows and columns of the segment.
        across: The relation of pairs in two segments.
        rng: Draws the order.
    """
    for matrix in relations:
        block = matrix[np.ix_(places, places)]
        free = (block != across) & ~np.eye(len(places), dtype=bool)
        block[free] = rng.permutation(block[free])
        matrix[np.ix_(places, places)] = block
