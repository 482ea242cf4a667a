"""Bracketed constituency trees, as in the Penn Treebank: `(S (NP (NNP John)) (VP (VBD slipped)))`.

It reads files with trees on one line or several, SST's number labels, an empty or ROOT outer bracket, and
binary parses without labels. Nothing here recurses, so trees may be thousands of levels deep.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from syntaxformer.base.errors import DataError, TreeError
from syntaxformer.base.files import read_lines
from syntaxformer.trees.locate import BACKSLASHED, BRACKET, BRACKETS, locate_words
from syntaxformer.trees.sentence import Sentence

TRACE = "-NONE-"
_ROOT_LABELS = frozenset({"", "ROOT", "TOP", "S1"})
_FUNCTION = re.compile(r"[-=|].*")
_ESCAPES = {character: escape for escape, character in BRACKETS.items()}
_ESCAPED = re.compile("|".join([*BRACKETS, BACKSLASHED.pattern]))
# Only ASCII space separates: words of SST and SNLI hold no-break spaces ("2 1/2").
_SPACE = " \t\r\n"
_TOKEN = re.compile(rf"[()]|[^(){_SPACE}]+")


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Tree:
    """A phrase: a label and its children, which are phrases or words.

    Args:
        label: Category such as "NP", or "" if the source has none.
        children: At least one phrase or word; words hold real brackets, not `-LRB-`, and no Penn backslashes.
    """

    label: str
    children: tuple[Tree | str, ...]

    def __str__(self) -> str:
        return format_tree(self)

    def __repr__(self) -> str:
        return f"Tree({format_tree(self)!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Tree) and list(events(self)) == list(events(other))

    def __hash__(self) -> int:
        return hash(tuple(events(self)))

    @property
    def word(self) -> str | None:
        """The word, if this phrase is one word with its tag, such as `(NNP John)`, else None."""
        only = self.children[0]
        return only if len(self.children) == 1 and isinstance(only, str) else None


def parse_tree(text: str, *, labels: bool = True) -> Tree:
    """Read one tree from a string.

    Without `labels`, all tokens are words, as in the binary parses of SNLI and SICK: `( ( A girl ) dances )`.

    Raises:
        TreeError: The brackets do not match, a phrase is empty, or there is not exactly one tree.
    """
    trees = list(parse_trees([text], labels=labels))
    if len(trees) != 1:
        raise TreeError(f"tree: expected one tree, got {len(trees)}: {text[:60]!r}.")
    return trees[0]


def read_ptb(path: str | Path, *, labels: bool = True) -> Iterator[Tree]:
    """Yield the trees of a file, plain or packed; a tree may be part of a line, a line or several lines.

    Raises:
        DataError: The file cannot be read.
        TreeError: As in `parse_tree`, with file and line.
    """
    return parse_trees(read_lines(path), labels=labels, path=path)


def parse_trees(
    lines: Iterable[str], *, labels: bool = True, path: str | Path | None = None
) -> Iterator[Tree]:
    """Yield the trees of some lines; `path` names their source in errors.

    Raises:
        TreeError: As in `parse_tree`, with the line.
    """
    open_phrases: list[list[Tree | str]] = []
    number = opened_at = 0
    for number, line in enumerate(lines, 1):
        for token in _TOKEN.findall(line):
            if token == "(":
                opened_at = opened_at if open_phrases else number
                open_phrases.append([])
            elif token == ")":
                if not open_phrases:
                    raise TreeError("tree: expected an opening bracket, got ')'.", path, number)
                tree = _phrase_of(open_phrases.pop(), labels, path, number)
                if open_phrases:
                    open_phrases[-1].append(tree)
                else:
                    yield tree
            elif open_phrases:
                open_phrases[-1].append(token)
            elif labels:
                raise TreeError(f"tree: expected an opening bracket, got {token[:40]!r}.", path, number)
            else:
                yield Tree("", (_unescape(token),))
    if open_phrases:
        raise TreeError(
            f"tree: expected {len(open_phrases)} more closing bracket(s), got the end at line {number}.",
            path,
            opened_at,
        )


def format_tree(tree: Tree) -> str:
    """Write a tree on one line, with brackets in words as `-LRB-` and the like; slashes and stars stay.

    Raises:
        TreeError: A word or label is empty or holds white space that would cut it in two.
    """
    pieces: list[str] = []
    for kind, token in events(tree):
        if kind == "close":
            pieces.append(")")
        elif kind == "open":
            if any(character in token for character in f"(){_SPACE}"):
                raise TreeError(f"label of a tree: expected no bracket and no white space, got {token!r}.")
            pieces.append(f" ({token}")
        else:
            if not token or any(space in token for space in _SPACE):
                raise TreeError(f"word of a tree: expected characters without white space, got {token!r}.")
            escaped = BRACKET.sub(lambda match: _ESCAPES[match[0]], BACKSLASHED.sub(r"\\\\", token))
            pieces.append(f" {escaped}")
    return "".join(pieces)[1:]


def events(tree: Tree) -> Iterator[tuple[str, str]]:
    """Walk a tree as `("open", label)`, `("word", word)` and `("close", "")`."""
    waiting: list[Tree | str | None] = [tree]
    while waiting:
        node = waiting.pop()
        if node is None:
            yield "close", ""
        elif isinstance(node, str):
            yield "word", node
        else:
            yield "open", node.label
            waiting.append(None)
            waiting.extend(reversed(node.children))


def _phrase_of(parts: list[Tree | str], labels: bool, path: str | Path | None, number: int) -> Tree:
    """The phrase of what stands between two brackets."""
    label = ""
    if labels and parts and isinstance(parts[0], str):
        label, parts = parts[0], parts[1:]
    if not parts:
        raise TreeError(f"tree: expected a word or phrase under {label!r}, got none.", path, number)
    return Tree(label, tuple(_unescape(child) if isinstance(child, str) else child for child in parts))


def _unescape(token: str) -> str:
    is_plain = "-" not in token and "\\" not in token
    return token if is_plain else _ESCAPED.sub(lambda match: BRACKETS.get(match[0], ""), token)


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
            index = opened.pop()
            spans[index] = spans[index]._replace(end=n_words)
    return tuple(spans)


def remove_traces(tree: Tree) -> Tree:
    """Return the tree without traces (`-NONE-`) and without phrases that held nothing else.

    Raises:
        TreeError: Nothing is left.
    """

    def without(node: Tree, children: tuple[Tree | str, ...]) -> Tree | None:
        return Tree(node.label, children) if children and node.label != TRACE else None

    rest = rebuild(tree, without)
    if rest is None:
        raise TreeError(f"tree: expected at least one word that is no trace, got {format_tree(tree)[:60]!r}.")
    return rest


def strip_functions(tree: Tree) -> Tree:
    """Return the tree with plain categories: NP-SBJ-1 and NP=2 become NP; -NONE- and -LRB- stay."""

    def renamed(node: Tree, children: tuple[Tree | str, ...]) -> Tree:
        label = node.label
        return Tree(label if label.startswith("-") else _FUNCTION.sub("", label), children)

    return rebuild(tree, renamed) or tree


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
    tagged = rebuild(tree, _with_tags) or tree
    columns = {"xpos": tags_of(tree) if has_tags else None, "constituency": format_tree(tagged)}
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
    open_phrases: list[tuple[str, list[Tree | str]]] = [("", [])]
    for event, label in events(tree):
        if event == "open":
            open_phrases.append((label, []))
        elif event == "word":
            open_phrases[-1][1].append(leaf_of(next(remaining)))
        else:
            label, children = open_phrases.pop()
            open_phrases[-1][1].append(Tree(label, tuple(children)))
    top = open_phrases[0][1][0]
    return top if isinstance(top, Tree) else Tree("", (top,))


def leaf_of(word: str) -> str:
    """A word as a leaf: white space, which would cut it in a bracketed tree, becomes a no-break space."""
    return re.sub(f"[{_SPACE}]", "\u00a0", word) or "_"


def _is_tag(phrase: Tree) -> bool:
    """Whether a phrase is a tag over one word; SST's numbers are sentiments, not tags."""
    return phrase.word is not None and phrase.label != "" and not phrase.label.isdigit()


def _with_tags(node: Tree, children: tuple[Tree | str, ...]) -> Tree:
    """A tag over each word that is a direct child of a phrase without a label."""
    if not node.label:
        children = tuple(Tree("X", (child,)) if isinstance(child, str) else child for child in children)
    return Tree(node.label, children)


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
    trees: dict[int, Tree | None] = {}
    for node in reversed(subtrees_of(tree)):  # children before parents
        new = (child if isinstance(child, str) else trees[id(child)] for child in node.children)
        trees[id(node)] = make(node, tuple(child for child in new if child is not None))
    return trees[id(tree)]


# A label stands right after its bracket; binary parses are written with a space there.
_LABEL = re.compile(r"\([^\s()]")


def tree_of_column(text: str) -> Tree:
    """Read a tree: `(ROOT (S ...))`, `(3 (2 It) (4 works))`, or without labels `( ( A girl ) dances )`.

    Raises:
        TreeError: The brackets do not match, a phrase is empty, or there is not exactly one tree.
    """
    return parse_tree(text, labels=_LABEL.search(text) is not None)
