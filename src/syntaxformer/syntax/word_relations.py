"""Relation tensors of a batch over words: both trees, segments of a pair, and the slots that specials need.

Takes trees as integers per word (`WordTrees`), as a dataset stores them. Carrying the relations on to
subword pieces is in `pieces`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from syntaxformer.base.errors import TreeError
from syntaxformer.syntax.phrase_columns import PhraseColumns
from syntaxformer.syntax.relations import (
    MAX_DISTANCE,
    Nodes,
    RelationArray,
    batch_constituency_relations,
    batch_dependency_relations,
    dependency_depths,
    pair_relation,
)

__all__ = ["TreeKind", "WordTrees", "word_relations"]

TreeKind = Literal["dependency", "constituency"]
"""The two kinds of tree, in the order that they have in a relation tensor by default."""


@dataclass(frozen=True, slots=True, eq=False)
class WordTrees:
    """Trees over the words of one example, of one segment or two.

    Args:
        segments: Segment of each word, 0 or 1, `[words]`.
        governors: Dependency governors, -1 for a root, `[words]`; None where that tree is not used.
        phrases: The constituency tree; None where it is not used.

    Raises:
        TreeError: A tree over another number of words.
    """

    segments: NDArray[np.integer[Any]]
    governors: NDArray[np.integer[Any]] | None = None
    phrases: PhraseColumns | None = None

    def __post_init__(self) -> None:
        for name, tree in (("governors", self.governors), ("phrases", self.phrases)):
            if tree is not None and len(tree) != len(self.segments):
                raise TreeError(f"{name}: expected {len(self.segments)} words, got {len(tree)}.")

    def __len__(self) -> int:
        return len(self.segments)

    @classmethod
    def of_sentence(
        cls, n_words: int, governors: ArrayLike | None = None, phrases: PhraseColumns | None = None
    ) -> WordTrees:
        """Trees of a single sentence."""
        given = None if governors is None else np.asarray(governors, np.int32)
        return cls(np.zeros(n_words, np.int8), given, phrases)

    @classmethod
    def of_pair(cls, first: WordTrees, second: WordTrees) -> WordTrees:
        """Two sentences side by side; the words of the second are numbered on from those of the first.

        Raises:
            TreeError: One has a tree that the other lacks.
        """
        n_first = len(first)
        segments = np.repeat(np.array([0, 1], np.int8), [n_first, len(second)])
        governors = phrases = None
        if first.governors is not None and second.governors is not None:
            moved = np.where(second.governors < 0, second.governors, second.governors + n_first)
            governors = np.concatenate([first.governors, moved])
        if first.phrases is not None and second.phrases is not None:
            one, two = first.phrases, second.phrases
            phrases = PhraseColumns(
                np.concatenate([one.word_depths, two.word_depths]),
                np.concatenate([one.gap_depths, two.gap_depths]),
                np.concatenate([one.gap_heads, two.gap_heads + n_first]),
            )
        for name, joined, trees in (
            ("governors", governors, (first.governors, second.governors)),
            ("phrases", phrases, (first.phrases, second.phrases)),
        ):
            if joined is None and any(tree is not None for tree in trees):
                raise TreeError(f"{name}: expected a tree for both segments or for none, got one.")
        return cls(segments, governors, phrases)


def word_relations(
    examples: Sequence[WordTrees],
    max_distance: int = MAX_DISTANCE,
    *,
    trees: Sequence[TreeKind] = get_args(TreeKind),
    nodes: Nodes = "headed",
) -> RelationArray:
    """Relations of a batch, with two slots behind the words.

    The last slot but one is that of a special piece over all roots: the parent of every word of every
    segment, one edge above the roots. The last slot has no relation to anything.

    Args:
        examples: The trees of each example.
        max_distance: D.
        trees: The kinds of tree wanted, in order.
        nodes: As in `constituency_relations`.

    Returns:
        `[examples, trees, words + 2, words + 2]`, with the words of the longest example.

    Raises:
        TreeError: An example lacks a tree that is wanted, or its governors have a cycle.
        ValueError: `trees`, `nodes` or `max_distance` is not one of those that there are.
    """
    unknown = [kind for kind in trees if kind not in _BUILDERS]
    if unknown or not trees:
        raise ValueError(
            f"trees: expected some of {', '.join(_BUILDERS)}, got {', '.join(unknown) or 'none'}."
        )
    n_words = np.array([len(example) for example in examples], np.int64)
    widest = int(n_words.max(initial=0))
    relations = np.zeros((len(examples), len(trees), widest + 2, widest + 2), np.uint8)
    segments = _pad([example.segments for example in examples], widest, 3)
    # Padding has segment 3, so that only a 0 and a 1 add up to 1.
    across = (segments[:, :, None] + segments[:, None, :]) == 1 if (segments == 1).any() else None
    for place, kind in enumerate(trees):
        among_words, depths = _BUILDERS[kind](examples, n_words, widest, max_distance, nodes)
        if across is not None:
            among_words[across] = pair_relation(max_distance)
        relations[:, place, :widest, :widest] = among_words
        from_top = np.where((depths > 0) & (depths <= max_distance), depths, 0)
        relations[:, place, widest, :widest] = from_top
        relations[:, place, :widest, widest] = np.where(from_top > 0, from_top + max_distance, 0)
    return relations


_T = TypeVar("_T")
_Built = tuple[RelationArray, NDArray[np.integer[Any]]]


def _dependency(
    examples: Sequence[WordTrees], n_words: NDArray[np.int64], widest: int, max_distance: int, nodes: Nodes
) -> _Built:
    governors = _pad([_wanted(example.governors, "governors") for example in examples], widest, -1)
    depths = dependency_depths(governors, n_words).astype(np.int64)
    return batch_dependency_relations(governors, n_words, max_distance), depths


def _constituency(
    examples: Sequence[WordTrees], n_words: NDArray[np.int64], widest: int, max_distance: int, nodes: Nodes
) -> _Built:
    phrases = [_wanted(example.phrases, "phrases") for example in examples]
    depths = _pad([tree.word_depths for tree in phrases], widest, -1)
    gaps = _pad([tree.gap_depths for tree in phrases], widest, -1)
    heads = _pad([tree.gap_heads for tree in phrases], widest, 0)
    return batch_constituency_relations(depths, gaps, heads, n_words, max_distance, nodes), depths + 1


_BUILDERS: dict[TreeKind, Callable[..., _Built]] = {"dependency": _dependency, "constituency": _constituency}


def _wanted(tree: _T | None, name: str) -> _T:
    if tree is None:
        raise TreeError(f"{name}: expected a tree for every example, got one without.")
    return tree


def _pad(rows: Sequence[NDArray[np.integer[Any]]], width: int, fill: int) -> NDArray[np.int64]:
    padded = np.full((len(rows), width), fill, np.int64)
    lengths = np.array([len(row) for row in rows], np.int64)
    if len(rows):
        padded[np.arange(width) < lengths[:, None]] = np.concatenate(rows)
    return padded
