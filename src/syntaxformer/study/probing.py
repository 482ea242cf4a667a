"""Structural probing: how much of a dependency tree a linear map finds in word vectors.

`probe_model` trains and scores a distance probe and a depth probe on each wanted layer, and on controls that
do not read sentences. Vectors come from `word_states`. Words of a treebank are joined by single spaces, so
that no two share a piece ("do n't").
"""

from __future__ import annotations

import logging
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

import numpy as np
import torch
from jaxtyping import Bool, Float
from numpy.typing import NDArray
from pydantic import Field
from scipy.sparse.csgraph import minimum_spanning_tree
from scipy.stats import rankdata
from torch import Tensor, nn

from syntaxformer.base.config import MAX_SEED
from syntaxformer.base.errors import ConfigError, DataError
from syntaxformer.runs.config import Section
from syntaxformer.study.word_states import WordEncoder, cache_states
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


def spearman_score(by_length: Mapping[int, float]) -> float:
    """The mean of `spearman_by_length` over sentence lengths; NaN if no sentence has such a length.

    Source: Hewitt & Manning (2019), section 3: lengths 5 to 50.
    """
    values = [value for length, value in by_length.items() if length in SPEARMAN_LENGTHS]
    return float(np.mean(values)) if values else float("nan")


class ProbeBatches:
    """Batches of one treebank; vectors are looked up in `[words, d_model]` of all sentences on request."""

    def __init__(self, treebank: ProbeTreebank, vectors: Tensor, batch_size: int) -> None:
        self.vectors, self.n_sentences = vectors, len(treebank)
        lengths = np.diff(treebank.splits)
        order = np.argsort(lengths, kind="stable").tolist()
        self.rows = [order[start : start + batch_size] for start in range(0, len(order), batch_size)]
        self.is_word, self.where = [], []
        self.gold: dict[str, list[Tensor]] = {"distances": [], "depths": []}
        for rows in self.rows:
            words = np.arange(longest := lengths[rows].max())
            self.is_word.append(torch.from_numpy(words < lengths[rows][:, None]))
            places = np.minimum(treebank.splits[rows][:, None] + words, len(vectors) - 1)
            self.where.append(torch.from_numpy(places))
            distances, depths = torch.zeros(len(rows), longest, longest), torch.zeros(len(rows), longest)
            for number, (row, n) in enumerate(zip(rows, lengths[rows], strict=True)):
                distances[number, :n, :n] = torch.from_numpy(treebank.distances[row]).float()
                depths[number, :n] = torch.from_numpy(treebank.depths[row]).float()
            self.gold["distances"].append(distances)
            self.gold["depths"].append(depths)

    def __getitem__(self, number: int) -> tuple[Tensor, Tensor]:
        """Vectors `[batch, words, d_model]`, zero for padding, and a mask of the words `[batch, words]`."""
        is_word = self.is_word[number]
        return self.vectors[self.where[number]] * is_word[..., None], is_word

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        return map(self.__getitem__, range(len(self.rows)))

    @torch.inference_mode()
    def predict(self, probe: nn.Module) -> list[NDArray[np.float32]]:
        """The predictions of a probe for each sentence, in the treebank's order and without padding."""
        predictions: list[NDArray[np.float32]] = [np.zeros(0, np.float32)] * self.n_sentences
        for rows, (vectors, is_word) in zip(self.rows, self, strict=True):
            lengths = is_word.sum(1).tolist()
            for row, length, values in zip(rows, lengths, probe(vectors).numpy(), strict=True):
                predictions[row] = values[(slice(length),) * values.ndim].copy()
        return predictions


INITIAL_BOUND = 0.05
"""Entries of a new map are drawn uniformly between minus and plus this number."""


class Probe(nn.Module):
    """A linear map B of at most `d_model` rows; in the mapped vectors, distances predict edges of the tree.

    Edges between two words are predicted by d(i, j)² = ‖B (h_i − h_j)‖², edges to the root by ‖B h_i‖².

    Source: Hewitt & Manning (2019), eq. 1 and section 2.2.
    """

    def __init__(self, d_model: int, rank: int, finds: Literal["distances", "depths"]) -> None:
        super().__init__()
        self.finds = finds
        self.map = nn.Parameter(torch.empty(d_model, rank).uniform_(-INITIAL_BOUND, INITIAL_BOUND))

    def forward(self, vectors: Float[Tensor, "batch words d_model"]) -> Float[Tensor, "batch words *words"]:
        """The squared distance of every two words, or the squared norm of every word."""
        projected = vectors @ self.map
        if self.finds == "depths":
            return projected.square().sum(-1)
        # A shift does not change distances. Without it, the products below would be large and nearly cancel.
        projected = projected - projected.mean(1, keepdim=True)
        squares = projected.square().sum(-1)
        products = projected @ projected.transpose(1, 2)
        return (squares[:, :, None] + squares[:, None, :] - 2 * products).clamp_min(0)


def probe_loss(
    predicted: Float[Tensor, "batch words *words"],
    gold: Float[Tensor, "batch words *words"],
    is_word: Bool[Tensor, "batch words"],
) -> Float[Tensor, ""]:
    """The mean over sentences of 1/n² Σ_ij |gold_ij − predicted_ij|, or of 1/n Σ_i |gold_i − predicted_i|.

    Source: Hewitt & Manning (2019), section 2.2.
    """
    axes = tuple(range(1, gold.ndim))
    counted = is_word if gold.ndim == 2 else is_word[:, :, None] & is_word[:, None, :]
    wrong = (gold - predicted).abs().where(counted, 0.0)
    return (wrong.sum(axes) / counted.sum(axes)).mean()


_log = logging.getLogger("syntaxformer.probe")

RANDOM, LINEAR = "random vectors", "linear chain"


class ProbeConfig(Section):
    """How probes are trained; defaults are close to Hewitt & Manning (2019), appendix."""

    rank: int = Field(
        default=64, ge=1, le=2**16, description="rows of the map; the paper gained nothing above 64"
    )
    batch_size: int = Field(default=32, ge=1, le=2**16, description="sentences in an update (paper: 20)")
    learning_rate: float = Field(default=0.001, gt=0, description="learning rate of Adam")
    decay: float = Field(default=0.1, gt=0, lt=1, description="factor of the rate if dev does not improve")
    max_epochs: int = Field(default=30, ge=1, description="passes over the training sentences")
    patience: int = Field(default=2, ge=1, description="number of lower rates that are tried")
    depth: bool = Field(default=True, description="also train the depth probe")
    controls: bool = Field(
        default=True, description="also probe random word vectors and score a linear chain"
    )
    seed: int = Field(
        default=1, ge=0, le=MAX_SEED, description="seed of maps, batch order and random vectors"
    )


@dataclass(frozen=True)
class ProbeScores:
    """The scores of one layer.

    Args:
        name: "layer 3", "embeddings", or a control.
        uuas: Share of undirected edges found, without punctuation, 0 to 1; NaN without an edge.
        spearman: Correlation of distances, mean over lengths 5 to 50; NaN without such a sentence.
        root_accuracy: Share of roots found; None without the depth probe.
        norm_spearman: Correlation of depths, mean over lengths 5 to 50.
        epochs: Epochs of the distance probe until dev stopped improving.
        seconds: Training time of both probes.
    """

    name: str
    uuas: float
    spearman: float
    root_accuracy: float | None
    norm_spearman: float | None
    epochs: int
    seconds: float


@dataclass(frozen=True)
class ProbeReport:
    """Scores of all layers and controls, and the data behind them."""

    scores: list[ProbeScores]
    n_train: int
    n_dev: int
    n_test: int
    n_uncovered: int
    left_out: dict[str, int]
    rank: int
    seed: int

    def as_dict(self) -> dict[str, object]:
        """The report for JSON, with None for NaN, the score that the test set leaves undefined."""
        scores = [
            {name: None if value != value else value for name, value in asdict(score).items()}
            for score in self.scores
        ]
        return {**asdict(self), "scores": scores}


def probe_model(
    encoder: WordEncoder,
    train: ProbeTreebank,
    dev: ProbeTreebank,
    test: ProbeTreebank,
    config: ProbeConfig | None = None,
    layers: Sequence[int] | None = None,
) -> ProbeReport:
    """Probe layers of an encoder, 0 for embeddings, and controls; scores are on `test`, which may be `dev`.

    Raises:
        ConfigError: There is no such layer, no layer at all, or no sentence that the encoder can read.
    """
    config = config or ProbeConfig()
    layers = range(encoder.n_states) if layers is None else layers
    wrong = [str(layer) for layer in layers if not 0 <= layer < encoder.n_states]
    if wrong or len(layers) == 0:
        raise ConfigError(f"layers: expected 0 to {encoder.n_states - 1}, got {', '.join(wrong) or 'none'}.")
    fitting = {}
    for treebank in _distinct((train, dev, test)):
        lengths = encoder.owners(treebank.sentences).lengths
        rows = np.flatnonzero(lengths <= encoder.longest).tolist()
        if not rows:
            raise ConfigError(f"treebank: expected a sentence of at most {encoder.longest} pieces, got none.")
        fitting[id(treebank)] = treebank.select(rows, f"longer than {encoder.longest} pieces")
    splits = [fitting[id(treebank)] for treebank in (train, dev, test)]
    sentences = [sentence for treebank in fitting.values() for sentence in treebank.sentences]
    scores = []
    with TemporaryDirectory(prefix="syntaxformer-probe-") as folder:
        cache = cache_states(encoder, sentences, layers, Path(folder))
        for layer in layers:
            vectors = cache.layer(layer)
            score = probe_states(f"layer {layer}" if layer else "embeddings", vectors, splits, config)
            measured = f"{score.name}: UUAS {100 * score.uuas:.1f}, Spearman {score.spearman:.3f}"
            _log.info("%s, %d epochs, %.0f s", measured, score.epochs, score.seconds)
            scores.append(score)
    if config.controls:
        words = [word for sentence in sentences for word in sentence.words]
        random = random_vectors(words, vectors.shape[1], config.seed)
        scores += [probe_states(RANDOM, random, splits, config), linear_chain(splits[2])]
    left_out = sum((Counter(treebank.left_out) for treebank in fitting.values()), Counter())
    sizes, rank = map(len, splits), min(config.rank, vectors.shape[1])
    return ProbeReport(scores, *sizes, cache.n_uncovered, dict(left_out), rank, config.seed)


def probe_states(
    name: str, vectors: Tensor, splits: Sequence[ProbeTreebank], config: ProbeConfig
) -> ProbeScores:
    """Train on a matrix of the word vectors of train, dev and test in turn; equal splits occur once."""
    start = time.monotonic()
    distinct = _distinct(splits)
    states = vectors.split([int(treebank.splits[-1]) for treebank in distinct])
    batches = {
        id(treebank): ProbeBatches(treebank, of_split, config.batch_size)
        for treebank, of_split in zip(distinct, states, strict=True)
    }
    train, dev, test = (batches[id(treebank)] for treebank in splits)
    torch.manual_seed(config.seed)
    rank = min(config.rank, vectors.shape[1])  # more rows could not find more
    distance = Probe(vectors.shape[1], rank, "distances")
    epochs = _fit(distance, train, dev, config)
    depths = None
    if config.depth:
        depth = Probe(vectors.shape[1], rank, "depths")
        _fit(depth, train, dev, config)
        depths = test.predict(depth)
    seconds = time.monotonic() - start
    return _score(name, test.predict(distance), depths, splits[2], epochs, seconds)


def _distinct(splits: Sequence[ProbeTreebank]) -> list[ProbeTreebank]:
    """Each treebank once, because the test set may be the dev set."""
    return list({id(treebank): treebank for treebank in splits}.values())


def linear_chain(treebank: ProbeTreebank) -> ProbeScores:
    """The control that connects neighbours: the distance is |i − j| and the depth is the position."""
    positions = [np.arange(len(sentence)) for sentence in treebank.sentences]
    distances = [np.abs(row[:, None] - row[None, :]) for row in positions]
    return _score(LINEAR, distances, positions, treebank, 0, 0.0)


def random_vectors(words: Sequence[str], width: int, seed: int) -> Tensor:
    """A vector for each word type, drawn from a normal distribution, `[words, width]`."""
    types = {word: number for number, word in enumerate(sorted(set(words)))}
    table = torch.randn(len(types), width, generator=torch.Generator().manual_seed(seed))
    return table[torch.tensor([types[word] for word in words])]


def _fit(probe: Probe, batches: ProbeBatches, dev: ProbeBatches, config: ProbeConfig) -> int:
    """Train until dev stops improving, then `patience` times more, each with a lower rate; keep the best."""
    order = np.random.default_rng(config.seed)
    rate, n_rates, best, best_map = config.learning_rate, 0, float("inf"), None
    optimizer = torch.optim.Adam(probe.parameters(), lr=rate)
    n_epochs = 0
    while n_epochs < config.max_epochs:
        n_epochs += 1
        for number in order.permutation(len(batches.rows)).tolist():
            vectors, is_word = batches[number]
            optimizer.zero_grad()
            probe_loss(probe(vectors), batches.gold[probe.finds][number], is_word).backward()
            optimizer.step()
        with torch.inference_mode():
            pairs = zip(dev, dev.gold[probe.finds], strict=True)
            losses = [
                float(probe_loss(probe(vectors), gold, is_word)) * len(is_word)
                for (vectors, is_word), gold in pairs
            ]
        dev_loss = sum(losses) / dev.n_sentences
        if dev_loss < best * (1 - 1e-4):
            best, best_map = dev_loss, probe.map.detach().clone()
        elif n_rates == config.patience:
            break
        else:
            n_rates, rate = n_rates + 1, rate * config.decay
            optimizer = torch.optim.Adam(probe.parameters(), lr=rate)
    if best_map is not None:
        probe.map.data.copy_(best_map)
    return n_epochs


def _score(
    name: str,
    distances: Sequence[NDArray],
    depths: Sequence[NDArray] | None,
    treebank: ProbeTreebank,
    epochs: int,
    seconds: float,
) -> ProbeScores:
    uuas = attachment_score(distances, treebank.distances, treebank.is_scored)
    spearman = spearman_score(spearman_by_length(distances, treebank.distances))
    root = norms = None
    if depths is not None:
        root = root_accuracy(depths, treebank.depths, treebank.is_scored)
        norms = spearman_score(spearman_by_length(depths, treebank.depths))
    return ProbeScores(name, uuas, spearman, root, norms, epochs, round(seconds, 1))
