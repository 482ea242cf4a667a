"""Bracketed constituency trees, as in the Penn Treebank: `(S (NP (NNP John)) (VP (VBD slipped)))`.

It reads files with trees on one line or several, SST's number labels, an empty or ROOT outer bracket, and
binary parses without labels. Nothing here recurses, so trees may be thousands of levels deep.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from syntaxformer.base.errors import TreeError
from syntaxformer.base.files import read_lines

BRACKETS = {"-LRB-": "(", "-RRB-": ")", "-LCB-": "{", "-RCB-": "}", "-LSB-": "[", "-RSB-": "]"}
_ESCAPES = {character: escape for escape, character in BRACKETS.items()}
# Penn's words have a backslash before these two. Reading drops it; writing doubles it to keep a real one.
BACKSLASHED = re.compile(r"\\(?=[/*])")
_ESCAPED = re.compile("|".join([*BRACKETS, BACKSLASHED.pattern]))
BRACKET = re.compile("[][(){}]")
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
    """Yield the trees of a file, plain or gzip; a tree may be part of a line, a line or several lines.

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
                tree = _close(open_phrases, labels, path, number)
                if tree is not None:
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


def _close(
    open_phrases: list[list[Tree | str]], labels: bool, path: str | Path | None, number: int
) -> Tree | None:
    """End the innermost phrase; return it if it is a whole tree."""
    if not open_phrases:
        raise TreeError("tree: expected an opening bracket, got ')'.", path, number)
    parts = open_phrases.pop()
    label = ""
    if labels and parts and isinstance(parts[0], str):
        label, parts = parts[0], parts[1:]
    if not parts:
        raise TreeError(f"tree: expected a word or phrase under {label!r}, got none.", path, number)
    tree = Tree(label, tuple(_unescape(part) if isinstance(part, str) else part for part in parts))
    if not open_phrases:
        return tree
    open_phrases[-1].append(tree)
    return None


def _unescape(token: str) -> str:
    is_plain = "-" not in token and "\\" not in token
    return token if is_plain else _ESCAPED.sub(lambda match: BRACKETS.get(match[0], ""), token)
