"""What backends share: the options after a name, and the conversion of parses to sentences.

A parser splits a line into its own sentences, each with its own word numbers and trees. Here they become one
sentence with several roots and, if there are trees, one tree over all words.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from syntaxformer.base.config import nearest
from syntaxformer.base.errors import ConfigError
from syntaxformer.trees import ROOT, Sentence, Tree, check_governors, format_tree, strip_root
from syntaxformer.trees.constituency import leaf_of
from syntaxformer.trees.dependency import join_governors
from syntaxformer.trees.sentence import COLUMNS

OptionTypes = Mapping[str, Callable[[str], Any]]
"""Name of each option and the function that reads its value; its `ValueError` says what was expected."""

_START = re.compile(r"\+(?=[a-z_]+=)")


def split_options(name: str, argument: str, types: OptionTypes) -> tuple[str, dict[str, Any]]:
    """Split what follows an annotator's colon into its subject and its options.

    Raises:
        ConfigError: An option is unknown or given twice, or has a bad value; all problems are listed.
    """
    subject, *settings = _START.split(argument)
    options: dict[str, Any] = {}
    problems: list[str] = []
    for setting in settings:
        key, _, value = setting.partition("=")
        if key not in types:
            problems.append(f"annotator {name}: unknown option {key!r}. {nearest(key, list(types))}")
        elif key in options:
            problems.append(f"annotator {name}: expected each option once, got {key!r} twice.")
        else:
            try:
                options[key] = types[key](value)
            except ValueError as error:
                problems.append(f"annotator {name}: {key}: {error}")
    if not subject:
        problems.append(f"annotator {name}: expected something between the colon and the options, got none.")
    if problems:
        raise ConfigError(problems)
    return subject, options


def positive_number(text: str, kind: Callable[[str], float] = float, what: str = "a number above 0") -> Any:
    """Read a number above zero; `what` it must be is for the message.

    Raises:
        ValueError: The text is not one.
    """
    with suppress(ValueError):
        if 0 < (number := kind(text)) < 1e9:
            return number
    raise ValueError(f"expected {what}, got {text!r}.")


positive_int = partial(positive_number, kind=int, what="a whole number from 1")


PHRASE = "S"
"""Label of the node over several sentences of a line, the same as in `phrase_structure`."""


@dataclass(slots=True)
class ParsedSentence:
    """A sentence as a parser found it.

    Args:
        spans: Start and end of each word in the line, in characters, `[words]`.
        tags: Values of "upos", "xpos", "lemmas" and "deprels", `[words]` each; None for an unknown value.
        governors: Governor of each word within this sentence, 0-based, -1 = root.
    """

    words: list[str]
    spans: list[tuple[int, int]]
    tags: Mapping[str, Sequence[str | None]]
    governors: list[int] | None = None
    tree: Tree | None = None


def join_parsed(line: str, parsed: Sequence[ParsedSentence], provides: frozenset[str]) -> Sentence:
    """Join the sentences that a parser found in a line, in order.

    Offsets count from the start of the line.

    Raises:
        TreeError: A governor is out of range, or there is a cycle.
    """
    columns: dict[str, Any] = {
        name: tuple(value or column.unknown for sentence in parsed for value in _column(sentence, name))
        for name, column in COLUMNS.items()
        if name in provides and column.unknown is not None
    }
    words = tuple(word for sentence in parsed for word in sentence.words)
    if "governors" in provides:
        local = [one.governors if one.governors is not None else [ROOT] * len(one.words) for one in parsed]
        columns["governors"] = join_governors(local)
        columns["deprels"] = tuple(
            "root" if governor == ROOT else deprel
            for governor, deprel in zip(columns["governors"], columns["deprels"], strict=True)
        )
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


def join_trees(trees: Sequence[Tree]) -> Tree:
    """Put one or more trees under one S; a single tree stays as it is. Outer ROOT brackets are removed."""
    stripped = [strip_root(tree) for tree in trees]
    return stripped[0] if len(stripped) == 1 else Tree(PHRASE, tuple(stripped))


def flat_tree(words: Sequence[str], tags: Sequence[str | None] | None = None) -> Tree:
    """A tree for a sentence that the parser could not parse: all words under one S."""
    labels = tags or [None] * len(words)
    return Tree(
        PHRASE, tuple(Tree(tag or "X", (leaf_of(word),)) for word, tag in zip(words, labels, strict=True))
    )


def read_tree(node: Any, label_of: Callable[[Any], str], children_of: Callable[[Any], Sequence[Any]]) -> Tree:
    """Copy a tree of another library, whose leaves are the nodes without children."""
    made, order = dict[int, Tree | str](), [node]
    for place in order:  # grows while it is walked, parents before children
        order.extend(children_of(place))
    for place in reversed(order):
        parts = tuple(made[id(child)] for child in children_of(place))
        made[id(place)] = Tree(label_of(place), parts) if parts else label_of(place)
    top = made[id(node)]
    return top if isinstance(top, Tree) else Tree("", (top,))
