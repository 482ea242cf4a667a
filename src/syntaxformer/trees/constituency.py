"""Operations on a constituency tree: words, spans, removal of traces and function tags.

They work on `Tree` from `ptb` and read no files. Nothing here recurses.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from syntaxformer.base.errors import DataError, TreeError
from syntaxformer.trees.locate import locate_words
from syntaxformer.trees.ptb import Tree, events, format_tree, parse_tree
from syntaxformer.trees.sentence import Sentence

TRACE = "-NONE-"
_ROOT_LABELS = frozenset({"", "ROOT", "TOP", "S1"})
_FUNCTION = re.compile(r"[-=|].*")


class Span(NamedTuple):
    """A phrase over words `start` to `end` (exclusive)."""

    label: str
    start: int
    end: int


def leaves_of(tree: Tree) -> tuple[str, ...]:
    """Return the words of a tree, left to right."""
    return tuple(text for event, text in events(tree) if event == "word")


def tags_of(tree: Tree) -> tuple[str, ...]:
    """Return the label right above each word, `[words]`."""
    return tuple(parent.label for parent, node in _walk(tree) if isinstance(node, str))


def spans_of(tree: Tree) -> tuple[Span, ...]:
    """Return all phrases, parents before children, including the tags over single words.

    Words count from 0. `(S (NP (NNP John)) (VBD slipped))` gives S 0–2, NP 0–1, NNP 0–1, VBD 1–2.
    """
    spans: list[Span] = []
    opened: list[int] = []
    n_words = 0
    for event, label in events(tree):
        if event == "open":
            opened.append(len(spans))
            spans.append(Span(label, n_words, n_words))
        elif event == "word":
            n_words += 1
        else:
            place = opened.pop()
            spans[place] = spans[place]._replace(end=n_words)
    return tuple(spans)


def remove_traces(tree: Tree) -> Tree:
    """Return the tree without traces (`-NONE-`) and without phrases that held nothing else.

    Raises:
        TreeError: Nothing is left.
    """
    kept = rebuild(
        tree,
        lambda node, children: Tree(node.label, children) if children and node.label != TRACE else None,
    )
    if kept is None:
        raise TreeError(f"tree: expected at least one word that is no trace, got {format_tree(tree)[:60]!r}.")
    return kept


def strip_functions(tree: Tree) -> Tree:
    """Return the tree with plain categories: NP-SBJ-1 and NP=2 become NP; -NONE- and -LRB- stay."""
    renamed = rebuild(tree, lambda node, children: Tree(_category(node.label), children))
    return tree if renamed is None else renamed


def strip_root(tree: Tree) -> Tree:
    """Return the tree below outer brackets (no label, ROOT, TOP, S1) that hold nothing but one phrase."""
    while tree.label in _ROOT_LABELS and len(tree.children) == 1 and isinstance(tree.children[0], Tree):
        tree = tree.children[0]
    return tree


def sentence_from_tree(tree: Tree, text: str | None = None) -> Sentence:
    """Make a `Sentence` of a tree: its words without traces, tags as `xpos`, the tree on one line.

    Traces go, and outer brackets without a phrase's label, as in the trees of parsers. Words of phrases
    without a label get the tag X, since `( A girl)` would be read as "girl" in a phrase A. The text is the
    line that the words come from, by default the words joined by spaces.

    Raises:
        TreeError: The words do not fit the text, or no word is left.
    """
    tree = strip_root(remove_traces(tree))
    words = leaves_of(tree)
    has_tags = all(_is_tag(parent) for parent, node in _walk(tree) if isinstance(node, str))
    columns = {"xpos": tags_of(tree) if has_tags else None, "constituency": format_tree(_tag_words(tree))}
    if text is None:
        return Sentence.from_words(words, **columns)
    return Sentence(text, words, locate_words(text, words, respelled=True), **columns)  # type: ignore[arg-type]


def tree_over_words(tree: Tree, words: Sequence[str]) -> Tree:
    """Return the tree with these words as its leaves, since parsers respell brackets and quotes.

    Raises:
        DataError: The tree has more or fewer leaves than there are words.
    """
    if (n_leaves := len(leaves_of(tree))) != len(words):
        raise DataError(f"parser: expected a tree over {len(words)} words, got one over {n_leaves}.")
    remaining = iter(words)
    made: list[tuple[str, list[Tree | str]]] = [("", [])]
    for event, label in events(tree):
        if event == "open":
            made.append((label, []))
        elif event == "word":
            made[-1][1].append(leaf_of(next(remaining)))
        else:
            label, children = made.pop()
            made[-1][1].append(Tree(label, tuple(children)))
    top = made[0][1][0]
    return top if isinstance(top, Tree) else Tree("", (top,))


def leaf_of(word: str) -> str:
    """A word as a leaf: white space, which would cut it in a bracketed tree, becomes a no-break space."""
    return "".join("\u00a0" if character in " \t\r\n" else character for character in word) or "_"


def _category(label: str) -> str:
    return label if label.startswith("-") else _FUNCTION.sub("", label)


def _is_tag(phrase: Tree) -> bool:
    """Whether a phrase is a tag over one word; SST's numbers are sentiments, not tags."""
    return phrase.word is not None and phrase.label != "" and not phrase.label.isdigit()


def _tag_words(tree: Tree) -> Tree:
    """Put a tag over each word that is a direct child of a phrase without a label."""
    tagged = rebuild(
        tree, lambda node, children: Tree(node.label, children if node.label else _tagged(children))
    )
    return tree if tagged is None else tagged


def _tagged(children: tuple[Tree | str, ...]) -> tuple[Tree, ...]:
    return tuple(Tree("X", (child,)) if isinstance(child, str) else child for child in children)


def _walk(tree: Tree) -> Iterator[tuple[Tree, Tree | str]]:
    """Pairs of parent and child, depth first and left to right; the top is its own parent."""
    waiting: list[tuple[Tree, Tree | str]] = [(tree, tree)]
    while waiting:
        parent, node = waiting.pop()
        yield parent, node
        if isinstance(node, Tree):
            waiting.extend((node, child) for child in reversed(node.children))


def subtrees_of(tree: Tree) -> list[Tree]:
    """The tree and all phrases in it, parents first and left to right."""
    return [node for _, node in _walk(tree) if isinstance(node, Tree)]


def rebuild(tree: Tree, make: Callable[[Tree, tuple[Tree | str, ...]], Tree | None]) -> Tree | None:
    """Build a new tree from the leaves up; `make` gets each phrase with its new children; None drops it."""
    made: dict[int, Tree | None] = {}
    for node in reversed(subtrees_of(tree)):  # children before parents
        new = (child if isinstance(child, str) else made[id(child)] for child in node.children)
        made[id(node)] = make(node, tuple(child for child in new if child is not None))
    return made[id(tree)]


# A label stands right after its bracket; binary parses are written with a space there.
_LABEL = re.compile(r"\([^\s()]")


def tree_of_column(text: str) -> Tree:
    """Read a tree: `(ROOT (S ...))`, `(3 (2 It) (4 works))`, or without labels `( ( A girl ) dances )`.

    Raises:
        TreeError: The brackets do not match, a phrase is empty, or there is not exactly one tree.
    """
    return parse_tree(text, labels=_LABEL.search(text) is not None)
