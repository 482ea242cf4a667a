"""Sentences with gold dependency trees as a structural probe needs them: distances, depths, what is scored.

Knows no model. Words are joined by single spaces: each has characters of its own ("don't" = "do n't").
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import minimum_spanning_tree
from scipy.stats import rankdata

from syntaxformer.base.errors import DataError
from syntaxformer.syntax import batch_dependency_distances, dependency_depths
from syntaxformer.trees import Sentence, read_conllu
from syntaxformer.trees.sentence import COLUMNS

PUNCTUATION = "PUNCT"
"""Universal part of speech of words that no score counts."""


@dataclass(frozen=True)
class ProbeTreebank:
    """Sentences of one tree each, with what is to be found in their vectors.

    Args:
        sentences: Words joined by single spaces, `[sentences]`.
        distances: Edges between words, `[words, words]` each.
        depths: Edges to the root, `[words]` each.
        is_scored: Whether a word is no punctuation, `[words]` each.
        left_out: Why a sentence is not here → how many.
    """

    sentences: Sequence[Sentence]
    distances: Sequence[NDArray[np.int32]] = field(repr=False)
    depths: Sequence[NDArray[np.int32]] = field(repr=False)
    is_scored: Sequence[NDArray[np.bool_]] = field(repr=False)
    left_out: dict[str, int] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.sentences)

    @property
    def splits(self) -> NDArray[np.int64]:
        """Where each sentence begins in a flat list of all words, `[sentences + 1]`."""
        return np.cumsum([0, *map(len, self.sentences)])

    def select(self, rows: Sequence[int], reason: str | None = None) -> ProbeTreebank:
        """Some sentences; the others are counted under a reason, or belong to another part."""
        left_out = Counter(self.left_out)
        if reason and len(rows) < len(self):
            left_out[reason] += len(self) - len(rows)
        columns = ("sentences", "distances", "depths", "is_scored")
        picked = {name: [getattr(self, name)[row] for row in rows] for name in columns}
        return replace(self, **picked, left_out=dict(left_out))

    def hold_out(self, every: int = 10) -> tuple[ProbeTreebank, ProbeTreebank]:
        """The treebank without every tenth sentence, and these; what was left out before counts in the first.

        Raises:
            DataError: It has fewer sentences than that.
        """
        if len(self) < every:
            raise DataError(
                f"treebank: expected at least {every} sentences, of which every {every}th is held out, "
                f"got {len(self)}. Give a dev file (--dev) or a larger treebank."
            )
        held = range(every - 1, len(self), every)
        kept = [row for row in range(len(self)) if row not in held]
        return self.select(kept), replace(self.select(held), left_out={})


def read_probe_treebank(path: str | Path) -> ProbeTreebank:
    """Read CoNLL-U, plain or gzip.

    Raises:
        DataError: The file cannot be read, or no sentence is left.
        TreeError: It is not CoNLL-U, or holds something that is no tree.
    """
    treebank = probe_treebank(read_conllu(path))
    if not len(treebank):
        raise DataError("expected at least one sentence of two words with a dependency tree, got none.", path)
    return treebank


def probe_treebank(sentences: Iterable[Sentence]) -> ProbeTreebank:
    """Take the sentences that have one tree over at least two words; count the others."""
    by_reason: dict[str | None, list[Sentence]] = defaultdict(list)
    for sentence in sentences:
        by_reason[_problem(sentence)].append(sentence)
    kept = list(map(_spaced, by_reason.pop(None, [])))
    scored = [np.array([_is_scored(one, word) for word in range(len(one))]) for one in kept]
    left_out = {str(reason): len(found) for reason, found in by_reason.items()}
    trees = [([one.governors or ()], [len(one)]) for one in kept]
    distances = [batch_dependency_distances(*tree)[0] for tree in trees]
    depths = [dependency_depths(*tree)[0].astype(np.int32) - 1 for tree in trees]
    return ProbeTreebank(kept, distances, depths, scored, left_out)


def _problem(sentence: Sentence) -> str | None:
    if sentence.governors is None:
        return "without a tree"
    if len(sentence) < 2:
        return "shorter than two words"
    return None if len(sentence.roots) == 1 else "of several trees"


def _spaced(sentence: Sentence) -> Sentence:
    """The same words, tags and tree over words joined by spaces; a space inside a word becomes "_"."""
    words = ["_".join(word.split()) or "_" for word in sentence.words]
    return Sentence.from_words(words, **{name: getattr(sentence, name) for name in COLUMNS})


def _is_scored(sentence: Sentence, word: int) -> bool:
    if sentence.upos is not None:
        return sentence.upos[word] != PUNCTUATION
    return any(character.isalnum() for character in sentence.words[word])


SPEARMAN_LENGTHS = range(5, 51)
"""Sentence lengths whose mean correlations are averaged."""

Array = NDArray[np.floating] | NDArray[np.integer]


def spanning_edges(distances: Sequence[Array]) -> list[NDArray[np.int64]]:
    """Minimum spanning tree of each sentence, from the upper half of `[words, words]`, all in one call.

    For each sentence `[words - 1, 2]`, pairs of words (first < second), in order.
    """
    firsts, seconds, weights = [], [], []
    starts = [0, *accumulate(len(one) for one in distances)]
    for start, one in zip(starts, distances, strict=False):
        first, second = np.triu_indices(len(one), 1)
        firsts.append(first + start)
        seconds.append(second + start)
        # SciPy takes a weight of 0 for no edge. All spanning trees have as many edges: adding 1 changes none.
        weights.append(np.asarray(one, np.float64)[first, second] + 1.0)
    if not firsts or not sum(map(len, firsts)):
        return [np.zeros((0, 2), np.int64) for _ in distances]
    where = np.concatenate(firsts), np.concatenate(seconds)
    graph = coo_array((np.concatenate(weights), where), shape=(starts[-1], starts[-1])).tocsr()
    forest = minimum_spanning_tree(graph).tocoo()
    edges = np.sort(np.stack([forest.row, forest.col], 1).astype(np.int64), axis=1)
    edges = edges[np.lexsort((edges[:, 1], edges[:, 0]))]
    borders = np.searchsorted(edges[:, 0], starts)
    return [edges[begin:end] - start for start, begin, end in zip(starts, borders, borders[1:], strict=False)]


def attachment_score(
    predicted: Sequence[Array], gold: Sequence[Array], is_scored: Sequence[NDArray[np.bool_]]
) -> float:
    """UUAS: the share of gold edges that the minimum spanning tree of the predicted distances has.

    Words that are not scored (punctuation) are taken out of both before the trees are built, so that a gold
    tree stays one tree where punctuation governs a word.

    Args:
        predicted: For each sentence distances `[words, words]`.
        gold: Edges between words, the same shapes.
        is_scored: For each sentence `[words]`.

    Returns:
        0 to 1 over all sentences together; NaN where there is no edge.

    Source: Hewitt & Manning (2019), section 3.
    """
    kept = [np.flatnonzero(mask) for mask in is_scored]
    found, wanted = (
        spanning_edges([one[np.ix_(words, words)] for one, words in zip(side, kept, strict=True)])
        for side in (predicted, gold)
    )
    n_correct = sum(
        len(set(map(tuple, one.tolist())) & set(map(tuple, other.tolist())))
        for one, other in zip(found, wanted, strict=True)
    )
    n_edges = sum(map(len, wanted))
    return n_correct / n_edges if n_edges else float("nan")


def root_accuracy(
    predicted: Sequence[Array], gold: Sequence[Array], is_scored: Sequence[NDArray[np.bool_]]
) -> float:
    """The share of sentences whose word of least predicted depth, punctuation left out, is the root.

    A sentence without any scored word counts as wrong.

    Source: Hewitt & Manning (2019), section 3.
    """
    hits = [
        bool(mask.any()) and int(np.where(mask, guess, np.inf).argmin()) == int(np.argmin(depths))
        for guess, depths, mask in zip(predicted, gold, is_scored, strict=True)
    ]
    return float(np.mean(hits)) if hits else float("nan")


def spearman_by_length(predicted: Sequence[Array], gold: Sequence[Array]) -> dict[int, float]:
    """Sentence length → mean Spearman correlation of its sentences, of `[words, words]` or `[words]` each.

    Distances are correlated row by row (from one word to all words, itself included), depths as one row.
    Rows without any spread, where a rank says nothing, are left out.
    """
    by_length: dict[int, list[tuple[Array, Array]]] = defaultdict(list)
    for one, other in zip(predicted, gold, strict=True):
        by_length[len(other)].append((np.atleast_2d(one), np.atleast_2d(other)))
    means = {}
    for length, pairs in sorted(by_length.items()):
        rows = _row_correlations(*(np.concatenate(side) for side in zip(*pairs, strict=True)))
        if not np.isnan(rows).all():
            means[length] = float(np.nanmean(rows))
    return means


def spearman_score(by_length: Mapping[int, float], lengths: range = SPEARMAN_LENGTHS) -> float:
    """Mean over sentence lengths of `spearman_by_length`; NaN where no sentence has such a length.

    Source: Hewitt & Manning (2019), section 3: lengths 5 to 50.
    """
    values = [value for length, value in by_length.items() if length in lengths]
    return float(np.mean(values)) if values else float("nan")


def _row_correlations(first: Array, second: Array) -> NDArray[np.float64]:
    """Spearman of each row with its row, `[rows]`: Pearson of ranks, ties at their mean rank."""
    one, other = (rankdata(side, axis=-1) for side in (first, second))
    one, other = (ranks - ranks.mean(-1, keepdims=True) for ranks in (one, other))
    spread = np.sqrt((one**2).sum(-1) * (other**2).sum(-1))
    return np.divide((one * other).sum(-1), spread, out=np.full(len(one), np.nan), where=spread > 0)
