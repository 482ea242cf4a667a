"""Trees that corpora carry in a column beside the text: SNLI, MNLI, SST, SICK.

Tells by itself whether labels stand in the brackets, so that a user's own column needs no switch. Files of
trees alone are `ptb.read_ptb`'s.
"""

from __future__ import annotations

import re

from syntaxformer.trees.constituency import sentence_from_tree
from syntaxformer.trees.ptb import Tree, parse_tree
from syntaxformer.trees.sentence import Sentence

__all__ = ["sentence_of_column", "tree_of_column"]

# A label stands right after its bracket; binary parses are written with a space there.
_LABEL = re.compile(r"\([^\s()]")


def tree_of_column(text: str) -> Tree:
    """Read a tree: `(ROOT (S ...))`, `(3 (2 It) (4 works))`, or without labels `( ( A girl ) dances )`.

    Args:
        text: One cell of the column.

    Raises:
        TreeError: The brackets do not match, a phrase is empty, or there is not exactly one tree.
    """
    return parse_tree(text, labels=_LABEL.search(text) is not None)


def sentence_of_column(text: str, line: str | None = None) -> Sentence:
    """Make a `Sentence` of a tree column and its text column.

    Args:
        text: One cell of the tree column.
        line: The text that it is the tree of; by default the words joined by spaces.

    Raises:
        TreeError: As in `tree_of_column`, or the words do not fit the line.
    """
    return sentence_from_tree(tree_of_column(text), line)
