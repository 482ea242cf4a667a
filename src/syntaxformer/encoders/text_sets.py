"""Texts with labels, before any annotation: what every loader gives, whichever file it read."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from syntaxformer.runs.config import FRACTION_SEED

__all__ = ["TextExample", "TextSet", "hash_examples"]


@dataclass(frozen=True, slots=True)
class TextExample:
    """One text or pair of texts.

    Args:
        texts: One or two texts.
        label: Class number, score, or None where it is not known.
        trees: For each text its bracketed constituency tree, where the corpus carries one.
        index: What the corpus calls it; the first column of a submission.
        line: 1-based line of the file.
    """

    texts: tuple[str, ...]
    label: int | float | None = None
    trees: tuple[str | None, ...] = ()
    index: str = ""
    line: int = 0


@dataclass(frozen=True)
class TextSet:
    """The examples of one split.

    Args:
        name: "train", "dev", ….
        source: File or data set that they came from.
        examples: In the order of the file.
        left_out: Why rows were left out → how many.
    """

    name: str
    source: str
    examples: Sequence[TextExample]
    left_out: dict[str, int] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.examples)

    @property
    def has_trees(self) -> bool:
        """Whether every text has a tree of its own."""
        return bool(self.examples) and all(
            one.trees and all(tree is not None for tree in one.trees) for one in self.examples
        )

    def fraction(self, share: float) -> TextSet:
        """A random share of the lines, in order; a smaller share is part of a larger one.

        Args:
            share: More than 0, at most 1. Phrases of one tree stay together.
        """
        if share >= 1.0:
            return self
        lines = sorted({one.line for one in self.examples})
        n_kept = max(1, round(len(lines) * share))
        order = np.random.default_rng(FRACTION_SEED).permutation(len(lines))[:n_kept]
        kept = {lines[place] for place in order.tolist()}
        return replace(self, examples=[one for one in self.examples if one.line in kept])


def hash_examples(examples: Iterable[TextExample]) -> str:
    """sha256 over texts, trees and labels."""
    digest = hashlib.sha256()
    for one in examples:
        cells = [*one.texts, *(tree or "" for tree in one.trees), repr(one.label)]
        digest.update("\0".join(cells).encode("utf-8", "surrogatepass"))
        digest.update(b"\n")
    return digest.hexdigest()
