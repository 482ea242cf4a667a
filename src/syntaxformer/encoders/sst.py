"""The Stanford Sentiment Treebank from its trees: whole sentences to evaluate, their phrases too to train on.

The tree of a sentence or phrase is its constituency. Labels 0 to 4 stand at every node.

Source: Socher et al. (2013); paper 002, section 4.1: "all phrases with lengths larger than 3" train.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from syntaxformer.base.errors import DataError
from syntaxformer.base.files import read_lines
from syntaxformer.encoders.task_table import Task
from syntaxformer.encoders.text_sets import TextExample, TextSet
from syntaxformer.trees import Tree, format_tree, leaves_of, parse_trees

__all__ = ["SST_TASKS", "read_treebank"]

SHORTEST_PHRASE = 4
"""Words of the shortest phrase that trains; sentences train whatever their length."""

_FILES = {"train": ("train.txt",), "dev": ("dev.txt",), "test": ("test.txt",)}
_SENTENCE = (("sentence", "text"),)

SST_TASKS = (
    Task(
        name="sst1",
        title="SST-1",
        labels=("0", "1", "2", "3", "4"),
        metrics=("accuracy",),
        texts=_SENTENCE,
        files=_FILES,
        treebank=True,
        aliases=("sst5",),
    ),
    Task(
        name="sst2_trees",
        title="SST-2 (trees)",
        labels=("0", "1"),
        metrics=("accuracy",),
        texts=_SENTENCE,
        files=_FILES,
        treebank=True,
        binary=True,
    ),
)


def read_treebank(task: Task, path: str | Path, split: str, phrases: bool) -> TextSet:
    """Read sentiment trees, one a line.

    Args:
        task: One of `SST_TASKS`.
        path: Plain or gzip file.
        split: Its name.
        phrases: Give the phrases of four words or more too, each once in a sentence; else sentences only.

    Raises:
        DataError: The file cannot be read, is empty, or a label is not 0 to 4.
        TreeError: The brackets do not match.
    """
    examples: list[TextExample] = []
    n_neutral = 0
    for number, tree in enumerate(parse_trees(read_lines(path), path=path), 1):
        for node in _phrases(tree) if phrases else (tree,):
            label = _label(task, node, path, number)
            if label is None:
                n_neutral += 1
                continue
            text = " ".join(leaves_of(node))
            examples.append(TextExample((text,), label, (format_tree(node),), str(number - 1), number))
    if not examples:
        raise DataError("expected at least one tree with a label, got none.", path)
    left_out = {"neutral, in a task of two classes": n_neutral} if n_neutral else {}
    return TextSet(split, str(path), examples, left_out)


def _phrases(tree: Tree) -> Iterator[Tree]:
    """The tree itself and its phrases of `SHORTEST_PHRASE` words or more, each string of words once."""
    seen: set[tuple[str, ...]] = set()
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        words = leaves_of(node)
        if node is not tree and len(words) < SHORTEST_PHRASE:
            continue
        if words not in seen:
            seen.add(words)
            yield node
        waiting.extend(child for child in reversed(node.children) if isinstance(child, Tree))


def _label(task: Task, tree: Tree, path: str | Path, number: int) -> int | None:
    """Class number; None for a neutral tree where there are two classes."""
    if tree.label not in ("0", "1", "2", "3", "4"):
        raise DataError(f"sentiment: expected 0 to 4, got {tree.label!r}.", path, number)
    value = int(tree.label)
    if not task.binary:
        return value
    return None if value == 2 else int(value > 2)
