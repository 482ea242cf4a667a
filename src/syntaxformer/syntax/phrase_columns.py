"""Constituency trees as three numbers a word, from which the relations of any two words follow.

How deep each word hangs, and for each gap between neighbours the depth and the head of the lowest phrase
that holds
both: the lowest common phrase of two distant words is the highest one over the gaps between them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from syntaxformer.base.errors import TreeError
from syntaxformer.syntax.head_rules import head_child
from syntaxformer.trees import Tree, depths_of, parse_tree

__all__ = ["NO_PHRASE", "PhraseColumns", "phrase_columns"]

NO_PHRASE = -1
"""Depth of the gap where nothing joins the words on its two sides."""

_INFINITIVE_PARTICLES = frozenset({"to", "zu"})


@dataclass(frozen=True, slots=True, eq=False)
class PhraseColumns:
    """A constituency tree, or several side by side, over the words of a line.

    Args:
        word_depths: Edges from the top of the tree to each word, `[words]`.
        gap_depths: Edges from the top to the lowest phrase that holds a word and the one before it,
            `[words]`; `NO_PHRASE` for the first word and between separate trees.
        gap_heads: Index of that phrase's head word, `[words]`; 0 where there is no phrase.
    """

    word_depths: NDArray[np.integer[Any]]
    gap_depths: NDArray[np.integer[Any]]
    gap_heads: NDArray[np.integer[Any]]

    def __len__(self) -> int:
        return len(self.word_depths)


def phrase_columns(
    tree: Tree | str, governors: Sequence[int] | None = None, *, labels: bool = True
) -> PhraseColumns:
    """Reduce a tree to columns.

    Edges are counted in the tree as it is written: with a tag over each word, the word hangs one edge below
    its tag.

    Args:
        tree: A tree or its brackets.
        governors: Dependency governors of the same words. Where given, the head of a phrase is its word
            nearest to the dependency root (the first on a tie), instead of what the label's head rule says:
            right for trees without labels (SST, SICK, SNLI).
        labels: As in `parse_tree`, for brackets.

    Raises:
        TreeError: No tree, or another number of governors than of words.
    """
    if isinstance(tree, str):
        tree = parse_tree(tree, labels=labels)
    nodes, depths, children = _unfold(tree)
    words = [node for node in nodes if isinstance(node, str)]
    n_words = len(words)
    if governors is not None and len(governors) != n_words:
        raise TreeError(f"governors: expected {n_words}, one a word of the tree, got {len(governors)}.")
    ranks = None if governors is None else depths_of(governors)
    word_depths, gap_heads = [0] * n_words, [0] * n_words
    gap_depths = [NO_PHRASE] * n_words
    firsts, heads = [0] * len(nodes), [0] * len(nodes)
    word = n_words
    for place in range(
        len(nodes) - 1, -1, -1
    ):  # children before their phrase, words from the last to the first
        node, inside = nodes[place], children[place]
        if isinstance(node, str):
            word -= 1
            word_depths[word] = depths[place]
            firsts[place] = heads[place] = word
            continue
        firsts[place] = firsts[inside[0]]
        if ranks is not None:
            heads[place] = min((heads[child] for child in inside), key=ranks.__getitem__)
        else:
            heads[place] = heads[inside[_head_place(node, [words[heads[child]] for child in inside])]]
        for child in inside[1:]:
            gap_depths[firsts[child]], gap_heads[firsts[child]] = depths[place], heads[place]
    return PhraseColumns(*(np.array(column, np.int32) for column in (word_depths, gap_depths, gap_heads)))


def _unfold(tree: Tree) -> tuple[list[Tree | str], list[int], list[list[int]]]:
    """Phrases and words, parents first and left to right; the depth of each; the places of its children."""
    nodes: list[Tree | str] = []
    depths: list[int] = []
    children: list[list[int]] = []
    waiting: list[tuple[Tree | str, int, int]] = [(tree, 0, -1)]
    while waiting:
        node, depth, parent = waiting.pop()
        place = len(nodes)
        nodes.append(node)
        depths.append(depth)
        children.append([])
        if parent >= 0:
            children[parent].append(place)
        if isinstance(node, Tree):
            waiting.extend((child, depth + 1, place) for child in reversed(node.children))
    return nodes, depths, children


def _head_place(phrase: Tree, head_words: Sequence[str]) -> int:
    """Which child heads a phrase; of each its head word."""
    if len(phrase.children) == 1:
        return 0
    return head_child(phrase.label, list(map(_label, phrase.children, head_words)))


def _label(child: Tree | str, head_word: str) -> str:
    """Of a child, as head rules read it.

    Where it has none (SST, SICK, SNLI), punctuation is known by its characters. Two universal tags stand for
    several of Penn's: PART for "to" and "not", PUNCT for the comma of a list and the full stop.
    """
    label = "" if isinstance(child, str) else child.label
    if label == "PART" and head_word.lower() in _INFINITIVE_PARTICLES:
        return "TO"
    if label == "PUNCT" and head_word == ",":
        return ","
    says_nothing = label in ("", "X") or label.isdigit()
    return "." if says_nothing and not any(character.isalnum() for character in head_word) else label
