"""Controls: annotators whose trees or tags are wrong on purpose, with the shape of syntax alone.

A gain that a control brings as well is no gain from the parse. What is drawn depends on a seed and the text
of the line alone, so it is the same in training, in prediction, in each process and on each machine. Text,
words and offsets stay; a sentence of less than two words stays as it is.
"""

from __future__ import annotations

import logging
import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

import numpy as np

from syntaxformer.annotate.annotator import Annotator, annotator_for, chunks_of
from syntaxformer.base.errors import ConfigError
from syntaxformer.base.progress import MAX_CHARACTERS
from syntaxformer.trees import ROOT, Sentence, Tree, format_tree, parse_tree
from syntaxformer.trees.constituency import rebuild, tree_over_words
from syntaxformer.trees.sentence import COLUMNS, PER_WORD

LINES_PER_POOL = 5_000
"""Lines among which `other_sentence` draws: the first 5,000 of an input, the next 5,000, and so on.

As for shards, fewer where together they would have more than `MAX_CHARACTERS` characters.
"""

_VERSION = "1"
"""Changes with what is drawn."""

_OPENED = re.compile(r"\([^() \t\r\n]*[ \t\r\n]*")
_WORD = re.compile(rf"((?:{_OPENED.pattern})*)([^() \t\r\n]+)(\)*)")
_log = logging.getLogger(__name__)


class Control(Annotator):
    """An annotator whose sentences get wrong trees, or for `permuted` wrong tags as well.

    Args:
        annotator: The annotator whose sentences are changed.
        kind: "random_tree": each dependency tree with as many roots is as likely as any other, and so is each
            binary bracketing. "chain": each word hangs on the word before it; it and all words after it are a
            phrase. "other_sentence": governors, deprels and phrases of a sentence with as many words and
            another text, among the same `LINES_PER_POOL` lines; without one a random tree, and a warning
            counts these. "permuted": each word gets tags, lemma, features and node of a word that is drawn,
            and the parts of each phrase are put into a drawn order.
            But for "permuted", tags stay on their words, and for the first two deprels, too. Phrases of the
            first two have no label, and take their heads from the dependency tree if there is one.
        seed: Others draw other trees.

    Raises:
        ConfigError: The annotator gives nothing that the control changes.
    """

    def __init__(self, annotator: Annotator, kind: str, seed: int = 0) -> None:
        if annotator.provides.isdisjoint(COLUMNS if kind == "permuted" else ("governors", "constituency")):
            expected = f"expected an annotator that {'tags' if kind == 'permuted' else 'parses'}"
            raise ConfigError(f"annotator: {kind}: {expected}, got {annotator.name!r}. Use another.")
        self.annotator, self.kind, self.seed, self.provides = annotator, kind, seed, annotator.provides
        self.name = f"{kind}({annotator.name}{f',seed={seed}' if seed else ''})"
        self.version = f"{annotator.version}+{kind}{_VERSION}"
        self._has_warned = False

    def around(self, annotator: Annotator) -> Control:
        """Return the same control of another annotator."""
        return Control(annotator, self.kind, self.seed)

    def for_split(self, split: str, rows: Sequence[int] | None = None) -> Annotator:
        """Return the same for one split; see `annotator_for`."""
        return self.around(annotator_for(self.annotator, split, rows))

    def stream(self, lines: Iterable[str], *, n_processes: int = 1) -> Iterator[Sentence]:
        """Yield one sentence for each line; `other_sentence` reads `LINES_PER_POOL` lines at a time."""
        return self.change(self.annotator.stream(lines, n_processes=n_processes))

    def annotate_words(self, sentences: Iterable[Sequence[str]]) -> list[Sentence]:
        """Return one sentence for each list of words."""
        return list(self.change(self.annotator.annotate_words(sentences)))

    def change(self, sentences: Iterable[Sentence]) -> Iterator[Sentence]:
        """Yield the sentences of an input as the control has them."""
        n_alone, has_pool = 0, self.kind == "other_sentence"
        size = LINES_PER_POOL if has_pool else 1
        for chunk in chunks_of(sentences, size, MAX_CHARACTERS, lambda sentence: len(sentence.text)):
            pool: dict[int, dict[str, Sentence]] = {}
            for sentence in chunk:
                pool.setdefault(len(sentence), {}).setdefault(sentence.text, sentence)
            for sentence in chunk:
                rng = np.random.default_rng([self.seed, zlib.crc32(sentence.text.encode("utf-8", "replace"))])
                others = [other for text, other in pool[len(sentence)].items() if text != sentence.text]
                n_alone += has_pool and len(sentence) > 1 and not others
                yield self._changed(sentence, others, rng) if len(sentence) > 1 else sentence
        if n_alone and not self._has_warned:
            self._has_warned = True
            alone = "lines that get a random tree, as no other sentence has as many words"
            _log.warning(f"%s: {alone}: %d", self.name, n_alone)

    def _changed(self, sentence: Sentence, others: Sequence[Sentence], rng: np.random.Generator) -> Sentence:
        if self.kind == "permuted":
            return permuted(sentence, rng)
        columns: dict[str, Any] = {}
        other = others[int(rng.integers(len(others)))] if others else None
        if other is not None:
            columns = {"governors": other.governors, "deprels": other.deprels}
        elif sentence.governors is not None and self.kind == "chain":
            columns = {"governors": range(ROOT, len(sentence) - 1)}
        elif sentence.governors is not None:
            columns = {"governors": random_governors(len(sentence), max(len(sentence.roots), 1), rng)}
        if brackets := sentence.constituency:
            frame, words = _cut(brackets)
            if other is not None:
                frame, _ = _cut(other.constituency or "")
            elif self.kind == "chain":
                frame = ["( "] * (len(words) - 1) + ["", ")" * (len(words) - 1)]
            else:
                frame = random_bracketing(len(words), rng)
            joined = "".join(chain.from_iterable(zip(frame, [*words, ""], strict=True)))
            brackets = joined.replace(")(", ") (")
        return replace(sentence, **columns, constituency=brackets)


def permuted(sentence: Sentence, rng: np.random.Generator) -> Sentence:
    """Give each word what another word has; brackets cannot follow, so the parts of phrases are shuffled."""

    def shuffled(node: Tree, children: tuple[Tree | str, ...]) -> Tree:
        order: list[int] = rng.permutation(len(children)).tolist()
        return Tree(node.label, tuple(children[row] for row in order))

    rows = rng.permutation(len(sentence)).tolist()
    columns = {name: values for name in PER_WORD if (values := getattr(sentence, name)) is not None}
    columns = {name: tuple(values[row] for row in rows) for name, values in columns.items()}
    if "governors" in columns:
        words = {row: word for word, row in enumerate(rows)}
        columns["governors"] = tuple(words.get(row, ROOT) for row in columns["governors"])
    tree = rebuild(parse_tree(sentence.constituency), shuffled) if sentence.constituency else None
    brackets = tree and format_tree(tree_over_words(tree, sentence.words))
    return replace(sentence, **columns, constituency=brackets)


def random_governors(n_words: int, n_roots: int, rng: np.random.Generator) -> list[int]:
    """Governors drawn uniformly from all forests of so many rooted trees over n words, -1 for roots.

    Word k is hung on min(U, k - 1), with U uniform over all words, and the first word that is no root on one
    of the roots; then the words are renumbered.

    Source: Aldous (1990), "The random walk construction of uniform spanning trees and uniform labelled
    trees", algorithm 2, here with the roots as one node.
    """
    governors, order = np.full(n_words, ROOT, np.int64), rng.permutation(n_words)
    above = np.minimum(rng.integers(n_words, size=n_words - n_roots), np.arange(n_roots - 1, n_words - 1))
    above[:1] = rng.integers(n_roots)
    governors[order[n_roots:]] = order[above]
    return governors.tolist()


def random_bracketing(n_words: int, rng: np.random.Generator) -> list[str]:
    """The brackets before each word and after the last, drawn uniformly from all binary bracketings.

    Source: Rémy (1985): a node that is drawn gets a new leaf at one of its sides, until there are enough.
    """
    nodes: list[Any] = [[]]
    for _ in range(n_words - 1):
        node, leaf = nodes[rng.integers(len(nodes))], list[Any]()
        below = list(node)
        node[:] = (below, leaf) if rng.integers(2) else (leaf, below)
        nodes += [below, leaf]
    frame, waiting = [""], [nodes[0]]
    while waiting:
        node = waiting.pop()
        if node == []:
            frame.append("")
        else:
            frame[-1] += "( " if node else ")"
            waiting += [None, *reversed(node)] if node else []
    return frame


def _cut(brackets: str) -> tuple[list[str], list[str]]:
    """The brackets around words, as of `random_bracketing`, and each word with the brackets of its own."""
    frame, words = [""], list[str]()
    for match in _WORD.finditer(brackets):
        opened, n_closed = _OPENED.findall(match[1]), len(match[3])
        n_around = max(len(opened) - n_closed, 0)
        frame[-1] += "".join(opened[:n_around])
        n_own = len(opened) - n_around
        words.append("".join(opened[n_around:]) + match[2] + ")" * n_own if n_own else f"(X {match[2]})")
        frame.append(")" * (n_closed - n_own))
    return frame, words
