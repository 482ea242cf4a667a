"""Sentences with gold dependency trees as a structural probe needs them: distances, depths, what is scored.

Knows no model. Words are joined by single spaces: each has characters of its own ("don't" = "do n't").
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from syntaxformer.base.errors import DataError
from syntaxformer.syntax import batch_dependency_distances, dependency_depths
from syntaxformer.trees import Sentence, read_conllu

__all__ = ["ProbeTreebank", "probe_treebank", "read_probe_treebank"]

PUNCTUATION = "PUNCT"
"""Universal part of speech of words that no score counts."""

CHUNK_SENTENCES = 512


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
        left_out = dict(self.left_out)
        if reason and len(rows) < len(self):
            left_out[reason] = left_out.get(reason, 0) + len(self) - len(rows)
        columns = ("sentences", "distances", "depths", "is_scored")
        picked = {name: [getattr(self, name)[row] for row in rows] for name in columns}
        return replace(self, **picked, left_out=left_out)

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
        rows = range(len(self))
        kept, held = (
            [row for row in rows if (row + 1) % every],
            [row for row in rows if not (row + 1) % every],
        )
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
    kept: list[Sentence] = []
    left_out: dict[str, int] = {}
    for sentence in sentences:
        if reason := _problem(sentence):
            left_out[reason] = left_out.get(reason, 0) + 1
        else:
            kept.append(_spaced(sentence))
    distances, depths = _measures(kept)
    scored = [np.array([_is_scored(one, word) for word in range(len(one))]) for one in kept]
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
    names = ("upos", "xpos", "lemmas", "governors", "deprels", "constituency")
    return Sentence.from_words(words, **{name: getattr(sentence, name) for name in names})


def _is_scored(sentence: Sentence, word: int) -> bool:
    if sentence.upos is not None:
        return sentence.upos[word] != PUNCTUATION
    return any(character.isalnum() for character in sentence.words[word])


def _measures(
    sentences: Sequence[Sentence],
) -> tuple[list[NDArray[np.int32]], list[NDArray[np.int32]]]:
    """Distances and depths of all sentences, sentences of like length together."""
    distances: list[NDArray[np.int32]] = [np.zeros((0, 0), np.int32)] * len(sentences)
    depths: list[NDArray[np.int32]] = [np.zeros(0, np.int32)] * len(sentences)
    order = sorted(range(len(sentences)), key=lambda row: len(sentences[row]))
    for start in range(0, len(order), CHUNK_SENTENCES):
        rows = order[start : start + CHUNK_SENTENCES]
        lengths = [len(sentences[row]) for row in rows]
        governors = np.full((len(rows), max(lengths)), -1)
        for place, row in enumerate(rows):
            governors[place, : lengths[place]] = sentences[row].governors
        between, below = batch_dependency_distances(governors, lengths), dependency_depths(governors, lengths)
        for place, (row, length) in enumerate(zip(rows, lengths, strict=True)):
            distances[row] = between[place, :length, :length].copy()
            depths[row] = below[place, :length].astype(np.int32) - 1
    return distances, depths
