"""Any dependency tree made projective: words that hang across others move up to the next ancestor that may.

Phrases are stretches of neighbouring words, so the conversion to phrases starts here. Nothing here recurses.
"""

from __future__ import annotations

from collections.abc import Sequence

from syntaxformer.trees.dependency import children_of
from syntaxformer.trees.sentence import ROOT

__all__ = ["projective_governors", "top_down"]


def projective_governors(governors: Sequence[int]) -> tuple[int, ...]:
    """Give each word its lowest ancestor from which only words below that ancestor separate it.

    Projective trees stay as they are. The result is projective: a word between a governor g and its new
    dependent is below g, and so is every ancestor of it on the way to g, each with g as a candidate.

    Args:
        governors: 0-based, -1 for a root, without cycles, `[words]`.

    Source: Nivre & Nilsson (2005), lifting; differs: all words are lifted at once, against the given tree.
    """
    places, sizes = _subtree_numbers(governors)
    blocks = [_block(word, places, sizes) for word in range(len(governors))]
    lifted: list[int] = []
    for word, governor in enumerate(governors):
        while governor != ROOT and not blocks[governor][0] <= word <= blocks[governor][1]:
            governor = governors[governor]
        lifted.append(governor)
    return tuple(lifted)


def top_down(governors: Sequence[int], children: Sequence[Sequence[int]]) -> list[int]:
    """List the words so that each governor stands before its words; words of a cycle are left out."""
    order = [word for word, governor in enumerate(governors) if governor == ROOT]
    for word in order:  # grows while it is walked: breadth first
        order.extend(children[word])
    return order


def _subtree_numbers(governors: Sequence[int]) -> tuple[list[int], list[int]]:
    """Number words so that those below word i come right after it, sizes[i] with itself; places and sizes."""
    children = children_of(governors)
    order = top_down(governors, children)
    sizes, places = [1] * len(governors), [0] * len(governors)
    for word in reversed(order):
        if governors[word] != ROOT:
            sizes[governors[word]] += sizes[word]
    free = 0
    for word in order:
        if governors[word] == ROOT:
            places[word] = free
            free += sizes[word]
        place = places[word] + 1
        for child in children[word]:
            places[child] = place
            place += sizes[child]
    return places, sizes


def _block(word: int, places: Sequence[int], sizes: Sequence[int]) -> tuple[int, int]:
    """First and last word of the longest stretch around a word that holds only words below it."""
    start, end = places[word], places[word] + sizes[word]
    first = last = word
    while first > 0 and start <= places[first - 1] < end:
        first -= 1
    while last + 1 < len(places) and start <= places[last + 1] < end:
        last += 1
    return first, last
