"""How well distances and depths of words give back a dependency tree: UUAS, Spearman, root accuracy.

Arrays in, numbers out; predicted and gold are treated alike. Where they come from is not asked.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import minimum_spanning_tree
from scipy.stats import rankdata

__all__ = [
    "SPEARMAN_LENGTHS",
    "attachment_score",
    "root_accuracy",
    "spanning_edges",
    "spearman_by_length",
    "spearman_score",
]

SPEARMAN_LENGTHS = range(5, 51)
"""Sentence lengths whose mean correlations are averaged."""

Array = NDArray[np.floating] | NDArray[np.integer]


def spanning_edges(distances: Sequence[Array]) -> list[NDArray[np.int64]]:
    """Minimum spanning tree of each sentence, all of them in one call.

    Args:
        distances: For each sentence `[words, words]`, symmetric; the upper half is read.

    Returns:
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

    Args:
        predicted: For each sentence depths `[words]`.
        gold: Edges to the root, 0 for the root itself.
        is_scored: For each sentence `[words]`; a sentence without any scored word counts as wrong.

    Source: Hewitt & Manning (2019), section 3.
    """
    hits = [
        bool(mask.any()) and int(np.where(mask, guess, np.inf).argmin()) == int(np.argmin(depths))
        for guess, depths, mask in zip(predicted, gold, is_scored, strict=True)
    ]
    return float(np.mean(hits)) if hits else float("nan")


def spearman_by_length(predicted: Sequence[Array], gold: Sequence[Array]) -> dict[int, float]:
    """Sentence length → mean Spearman correlation of its sentences.

    Distances are correlated row by row (from one word to all words, itself included), depths as one row.
    Rows without any spread, where a rank says nothing, are left out.

    Args:
        predicted: For each sentence `[words, words]` or `[words]`.
        gold: The same shapes.
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
