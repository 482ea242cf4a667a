"""Dependency trees as plain sequences of governors (0-based, `ROOT` = -1), several roots allowed.

Here are checks and simple measures of one tree; matrices over pairs of words are in `syntax`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from syntaxformer.base.errors import TreeError
from syntaxformer.trees.sentence import ROOT


def check_governors(
    governors: Sequence[int], words: Sequence[str] | None = None, line: int | None = None
) -> None:
    """Check that governors form trees: all are in range, and no word governs itself through others.

    Governors are 0-based, -1 for a root, `[words]`; the words and the line are named in the error.

    Raises:
        TreeError: A governor is out of range, or there is a cycle, whose words are named in order.
    """
    names = range(len(governors)) if words is None else words
    name = "word {}" if words is None else "{!r}"
    for word, governor in enumerate(governors):
        if not ROOT <= governor < len(governors):
            problem = f"expected -1 to {len(governors) - 1}, got {governor}."
            raise TreeError(f"governor of {name.format(names[word])}: {problem}", line=line)
    if cycle := _find_cycle(governors):
        path = " → ".join(name.format(names[word]) for word in [*cycle, cycle[0]])
        raise TreeError(f"governors: expected a tree, got a cycle {path}.", line=line)


def children_of(governors: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    """List the words that each word governs, in order: `children[i]` are the children of word i."""
    children: list[list[int]] = [[] for _ in governors]
    for word, governor in enumerate(governors):
        if governor != ROOT:
            children[governor].append(word)
    return tuple(tuple(words) for words in children)


def join_governors(parts: Iterable[Sequence[int]]) -> tuple[int, ...]:
    """Join the governors of several sentences, renumbering each to follow those before it."""
    joined: list[int] = []
    for governors in parts:
        first = len(joined)
        joined.extend(governor if governor == ROOT else governor + first for governor in governors)
    return tuple(joined)


def depths_of(governors: Sequence[int]) -> tuple[int, ...]:
    """Count the edges between each word and its root: 0 for a root, `[words]`.

    Raises:
        TreeError: The governors hold a cycle.
    """
    depths = [0] * len(governors)
    order = top_down(governors, children_of(governors))
    if len(order) < len(governors):
        check_governors(governors)
    for word in order:
        depths[word] = 0 if governors[word] == ROOT else depths[governors[word]] + 1
    return tuple(depths)


def _find_cycle(governors: Sequence[int]) -> list[int]:
    """Words of one cycle from its first word on, each followed by its governor; empty if there is none."""
    visited_from = [ROOT] * len(governors)
    for start in range(len(governors)):
        word = start
        while word != ROOT and visited_from[word] == ROOT:
            visited_from[word] = start
            word = governors[word]
        if word != ROOT and visited_from[word] == start:
            cycle = [word]
            while governors[cycle[-1]] != word:
                cycle.append(governors[cycle[-1]])
            smallest = cycle.index(min(cycle))
            return cycle[smallest:] + cycle[:smallest]
    return []


def projective_governors(governors: Sequence[int]) -> tuple[int, ...]:
    """Give each word its lowest ancestor such that all words between the two are below that ancestor.

    Projective trees stay as they are. The result is projective: a word between a governor g and its new
    dependent is below g, and so are its ancestors up to g, which all have g as a candidate. Governors are
    0-based, -1 for a root, without cycles, `[words]`.

    Source: Nivre & Nilsson (2005), lifting; differs: all words are lifted at once, against the given tree.
    """
    children, numbers, sizes = children_of(governors), dict[int, int](), [1] * len(governors)
    waiting = [word for word, governor in enumerate(governors) if governor == ROOT]
    while waiting:
        numbers[word := waiting.pop()] = len(numbers)
        waiting.extend(children[word])
    # The words below word i are numbered right after it; with i, these are sizes[i] numbers.
    firsts, lasts = list(range(len(governors))), list(range(len(governors)))
    for word in reversed(numbers):  # the words below it have been here before
        if governors[word] != ROOT:
            sizes[governors[word]] += sizes[word]
        below = range(numbers[word], numbers[word] + sizes[word])
        # The longest stretch around the word with only words below it, made of their stretches.
        while firsts[word] > 0 and numbers[firsts[word] - 1] in below:
            firsts[word] = firsts[firsts[word] - 1]
        while lasts[word] + 1 < len(numbers) and numbers[lasts[word] + 1] in below:
            lasts[word] = lasts[lasts[word] + 1]
    lifted: list[int] = []
    for word, governor in enumerate(governors):
        while governor != ROOT and not firsts[governor] <= word <= lasts[governor]:
            governor = governors[governor]
        lifted.append(governor)
    return tuple(lifted)


def top_down(governors: Sequence[int], children: Sequence[Sequence[int]]) -> list[int]:
    """List the words so that each governor comes before its words; words of a cycle are left out."""
    order = [word for word, governor in enumerate(governors) if governor == ROOT]
    for word in order:  # grows during the loop: breadth first
        order.extend(children[word])
    return order
