"""What parsers return, put together to the `Sentence` of a line.

A parser splits a line into sentences of its own, with numbers and trees that start anew in each; here they
become one sentence with several roots and, where there are trees, one tree over all words.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from syntaxformer.base.errors import DataError
from syntaxformer.trees import ROOT, Sentence, Tree, check_governors, format_tree, leaves_of, strip_root

__all__ = ["ParsedSentence", "flat_tree", "join_parsed", "join_trees", "read_tree", "tree_over_words"]

NO_BREAK_SPACE = "\u00a0"
PHRASE = "S"
"""Label over several sentences of a line, as `phrase_structure` has it."""

_UNKNOWN = {"upos": "X", "xpos": "_", "lemmas": "_"}


@dataclass(slots=True)
class ParsedSentence:
    """A sentence as a parser found it.

    Args:
        words: Its words, `[words]`.
        spans: Character start and end of each in the line, `[words]`.
        tags: Values of "upos", "xpos", "lemmas" and "deprels", `[words]` each; None where one is unknown.
        governors: Governor of each word within this sentence, 0-based, -1 = root.
        tree: Its phrases.
    """

    words: list[str]
    spans: list[tuple[int, int]]
    tags: dict[str, list[str | None]]
    governors: list[int] | None = None
    tree: Tree | None = None


def join_parsed(line: str, parsed: Sequence[ParsedSentence], provides: frozenset[str]) -> Sentence:
    """Join the sentences that a parser found in a line, in order.

    Args:
        line: The line.
        parsed: What was found in it; offsets count from the start of the line.
        provides: The columns wanted.

    Raises:
        TreeError: A governor is out of range, or there is a cycle.
    """
    columns: dict[str, Any] = {
        column: tuple(value or _UNKNOWN[column] for sentence in parsed for value in _column(sentence, column))
        for column in ("upos", "xpos", "lemmas")
        if column in provides
    }
    words = tuple(word for sentence in parsed for word in sentence.words)
    if "governors" in provides:
        columns |= _dependencies(parsed)
        check_governors(columns["governors"], words)
    if "constituency" in provides and words:
        trees = [
            flat_tree(sentence.words, sentence.tags.get("xpos")) if sentence.tree is None else sentence.tree
            for sentence in parsed
        ]
        columns["constituency"] = format_tree(join_trees(trees))
    return Sentence(line, words, tuple(span for sentence in parsed for span in sentence.spans), **columns)


def _column(sentence: ParsedSentence, column: str) -> Sequence[str | None]:
    return sentence.tags.get(column) or [None] * len(sentence.words)


def _dependencies(parsed: Sequence[ParsedSentence]) -> dict[str, tuple[Any, ...]]:
    governors: list[int] = []
    deprels: list[str] = []
    for sentence in parsed:
        first = len(governors)
        local = sentence.governors if sentence.governors is not None else [ROOT] * len(sentence.words)
        governors.extend(governor if governor == ROOT else governor + first for governor in local)
        deprels.extend(
            "root" if governor == ROOT else deprel or "dep"
            for governor, deprel in zip(local, _column(sentence, "deprels"), strict=True)
        )
    return {"governors": tuple(governors), "deprels": tuple(deprels)}


def join_trees(trees: Sequence[Tree]) -> Tree:
    """Put trees side by side under one S; a single tree stays as it is. Outer ROOT brackets go.

    Args:
        trees: One at least.
    """
    stripped = [strip_root(tree) for tree in trees]
    return stripped[0] if len(stripped) == 1 else Tree(PHRASE, tuple(stripped))


def flat_tree(words: Sequence[str], tags: Sequence[str | None] | None = None) -> Tree:
    """The tree of a sentence that a parser gave up on: all words under one S."""
    labels = tags or [None] * len(words)
    return Tree(
        PHRASE, tuple(Tree(tag or "X", (_leaf(word),)) for word, tag in zip(words, labels, strict=True))
    )


def read_tree(node: Any, label_of: Callable[[Any], str], children_of: Callable[[Any], Sequence[Any]]) -> Tree:
    """Copy a tree of another library; its leaves are what has no children.

    Args:
        node: The top.
        label_of: Gives the label of a phrase, or the word of a leaf.
        children_of: Gives the children of a phrase, nothing for a leaf.
    """
    made: dict[int, Tree | str] = {}
    for place in reversed(order := list(_below(node, children_of))):
        children = children_of(place)
        made[id(place)] = (
            Tree(label_of(place), tuple(made[id(child)] for child in children))
            if children
            else label_of(place)
        )
    top = made[id(order[0])]
    return top if isinstance(top, Tree) else Tree("", (top,))


def _below(node: Any, children_of: Callable[[Any], Sequence[Any]]) -> Iterator[Any]:
    waiting = [node]
    while waiting:
        place = waiting.pop()
        yield place
        waiting.extend(children_of(place))


def tree_over_words(tree: Tree, words: Sequence[str]) -> Tree:
    """Return the tree with these words as its leaves: parsers spell brackets and quotes their own way.

    Raises:
        DataError: It has more or fewer leaves than there are words.
    """
    if (n_leaves := len(leaves_of(tree))) != len(words):
        raise DataError(f"parser: expected a tree over {len(words)} words, got one over {n_leaves}.")
    remaining = iter(words)
    made: list[tuple[str, list[Tree | str]]] = [("", [])]
    waiting: list[Tree | str | None] = [tree]
    while waiting:
        node = waiting.pop()
        if node is None:
            label, children = made.pop()
            made[-1][1].append(Tree(label, tuple(children)))
        elif isinstance(node, str):
            made[-1][1].append(_leaf(next(remaining)))
        else:
            made.append((node.label, []))
            waiting.append(None)
            waiting.extend(reversed(node.children))
    top = made[0][1][0]
    return top if isinstance(top, Tree) else Tree("", (top,))


def _leaf(word: str) -> str:
    """A bracketed tree cuts words at white space; a no-break space is none to it."""
    return "".join(NO_BREAK_SPACE if character in " \t\r\n" else character for character in word) or "_"
