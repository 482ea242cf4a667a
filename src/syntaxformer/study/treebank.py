"""Gold dependency trees for a structural probe: distances, depths, and scores of predictions.

Nothing here depends on a model. Words are joined by single spaces, so that no two share a piece ("do n't").
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.csgraph import minimum_spanning_tree
from scipy.stats import rankdata

from syntaxformer.base.errors import DataError
from syntaxformer.syntax import batch_dependency_distances, dependency_depths
from syntaxformer.trees import Sentence, read_conllu
from syntaxformer.trees.sentence import COLUMNS

PUNCTUATION = "PUNCT"
"""Universal part of speech of the words that are not scored."""


@dataclass(frozen=True)
class ProbeTreebank:
    """Sentences with one tree each, and the distances and depths that a probe should find.

    Args:
        sentences: Words joined by single spaces, `[sentences]`.
        distances: Number of edges between words, `[words, words]` each.
        depths: Number of edges to the root, `[words]` each.
        is_scored: Whether a word is not punctuation, `[words]` each.
        left_out: Reason to leave a sentence out → number of sentences.
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
        """The index of each sentence's first word in a flat list of all words, `[sentences + 1]`."""
        return np.cumsum([0, *map(len, self.sentences)])

    def select(self, rows: Sequence[int], reason: str | None = None) -> ProbeTreebank:
        """Select sentences; with a `reason`, the others are counted as left out."""
        left_out = Counter(self.left_out)
        if reason and len(rows) < len(self):
            left_out[reason] += len(self) - len(rows)
        columns = ("sentences", "distances", "depths", "is_scored")
        picked = {name: [getattr(self, name)[row] for row in rows] for name in columns}
        return replace(self, **picked, left_out=dict(left_out))

    def hold_out(self, every: int = 10) -> tuple[ProbeTreebank, ProbeTreebank]:
        """Split off every tenth sentence; counts of sentences left out stay with the first part.

        Raises:
            DataError: There are fewer sentences than `every`.
        """
        if len(self) < every:
            raise DataError(
                f"treebank: expected at least {every} sentences, of which every {every}th is held out, "
                f"got {len(self)}. Give a dev file (--dev) or a larger treebank."
            )
        held = range(every - 1, len(self), every)
        others = [row for row in range(len(self)) if row not in held]
        return self.select(others), replace(self.select(held), left_out={})


def read_probe_treebank(path: str | Path) -> ProbeTreebank:
    """Read CoNLL-U, plain or packed.

    Raises:
        DataError: The file cannot be read, or no sentence is left.
        TreeError: The file is not CoNLL-U, or some heads do not form a tree.
    """
    treebank = probe_treebank(read_conllu(path))
    if not len(treebank):
        raise DataError("expected at least one sentence of two words with a dependency tree, got none.", path)
    return treebank


def probe_treebank(sentences: Iterable[Sentence]) -> ProbeTreebank:
    """Keep the sentences that have a single tree over at least two words; count the others."""
    left_out: Counter[str] = Counter()
    spaced, distances, depths, is_scored = [], [], [], []
    for sentence in sentences:
        if sentence.governors is None:
            left_out["without a tree"] += 1
        elif len(sentence) < 2:
            left_out["shorter than two words"] += 1
        elif len(sentence.roots) != 1:
            left_out["of several trees"] += 1
        else:
            # A space inside a word becomes "_".
            words = ["_".join(word.split()) or "_" for word in sentence.words]
            columns = {name: getattr(sentence, name) for name in COLUMNS}
            spaced.append(Sentence.from_words(words, **columns))
            tree = [sentence.governors], [len(sentence)]
            distances.append(batch_dependency_distances(*tree)[0])
            depths.append(dependency_depths(*tree)[0].astype(np.int32) - 1)
            scored = [any(map(str.isalnum, word)) for word in words]
            if sentence.upos is not None:
                scored = [tag != PUNCTUATION for tag in sentence.upos]
            is_scored.append(np.array(scored))
    return ProbeTreebank(spaced, distances, depths, is_scored, dict(left_out))


SPEARMAN_LENGTHS = range(5, 51)
"""Sentence lengths over whose mean correlations the score is averaged."""

Array = NDArray[np.floating] | NDArray[np.integer]


def spanning_edges(distances: Array) -> set[tuple[int, int]]:
    """The minimum spanning tree of `[words, words]` distances: pairs of words, the first below the second."""
    # SciPy reads a weight of 0 as no edge. Adding 1 to all weights does not change the minimum tree.
    weights = np.triu(np.asarray(distances, np.float64) + 1.0, 1)
    tree = minimum_spanning_tree(weights).tocoo()
    return set(zip(tree.row.tolist(), tree.col.tolist(), strict=True))


def attachment_score(
    predicted: Sequence[Array], gold: Sequence[Array], is_scored: Sequence[NDArray[np.bool_]]
) -> float:
    """UUAS: the share of gold edges that are in the minimum spanning tree of the predicted distances.

    Words that are not scored (punctuation) are removed from both sides before the trees are built, so that a
    gold tree stays connected if punctuation governs a word.

    Args:
        predicted: Distances of each sentence, `[words, words]`.
        gold: Numbers of edges between words, in the same shapes.
        is_scored: `[words]` for each sentence.

    Returns:
        0 to 1 over all sentences together; NaN if there is no edge.

    Source: Hewitt & Manning (2019), section 3.
    """
    n_correct = n_edges = 0
    for *sides, scored in zip(predicted, gold, is_scored, strict=True):
        edges, gold_edges = (spanning_edges(side[np.ix_(scored, scored)]) for side in sides)
        n_correct += len(edges & gold_edges)
        n_edges += len(gold_edges)
    return n_correct / n_edges if n_edges else float("nan")


def root_accuracy(
    predicted: Sequence[Array], gold: Sequence[Array], is_scored: Sequence[NDArray[np.bool_]]
) -> float:
    """The share of sentences in which the scored word with the smallest predicted depth is the root.

    A sentence without scored words counts as wrong.

    Source: Hewitt & Manning (2019), section 3.
    """
    hits = [
        bool(mask.any()) and int(np.where(mask, guess, np.inf).argmin()) == int(np.argmin(depths))
        for guess, depths, mask in zip(predicted, gold, is_scored, strict=True)
    ]
    return float(np.mean(hits)) if hits else float("nan")


def spearman_by_length(predicted: Sequence[Array], gold: Sequence[Array]) -> dict[int, float]:
    """Sentence length → mean Spearman correlation of values `[words, words]` or `[words]` of its sentences.

    Distances are correlated row by row (from one word to all words, itself included), depths as one row.
    Constant rows, whose ranks are undefined, are left out.
    """
    by_length: dict[int, list[tuple[Array, Array]]] = defaultdict(list)
    for values, gold_values in zip(predicted, gold, strict=True):
        by_length[len(gold_values)].append((np.atleast_2d(values), np.atleast_2d(gold_values)))
    means = {}
    for length, pairs in sorted(by_length.items()):
        # Pearson of ranks; ties get their mean rank.
        ranks = [rankdata(np.concatenate(side), axis=-1) for side in zip(*pairs, strict=True)]
        first, second = (side - side.mean(-1, keepdims=True) for side in ranks)
        spread = np.sqrt((first**2).sum(-1) * (second**2).sum(-1))
        has_spread = spread > 0
        if has_spread.any():
            means[length] = float(((first * second).sum(-1)[has_spread] / spread[has_spread]).mean())
    return means


def spearman_score(by_length: Mapping[int, float], lengths: range = SPEARMAN_LENGTHS) -> float:
    """The mean of `spearman_by_length` over sentence lengths; NaN if no sentence has such a length.

    Source: Hewitt & Manning (2019), section 3: lengths 5 to 50.
    """
    values = [value for length, value in by_length.items() if length in lengths]
    return float(np.mean(values)) if values else float("nan")
