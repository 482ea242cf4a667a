"""Trees of NLU examples as integers per word, cut to the words that a model sees.

A `Sentence` is converted once. Relations of the batch are made in `nlu_collator`.
"""

from __future__ import annotations

from collections.abc import Sequence
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from syntaxformer.base.errors import DataError, TreeError
from syntaxformer.syntax import NO_PHRASE, PhraseColumns, WordTrees, phrase_columns
from syntaxformer.trees import Sentence, Tree, parse_tree, phrase_structure
from syntaxformer.trees.phrase_structure import NEEDED_COLUMNS

__all__ = ["cut_trees", "phrases_of", "sentence_trees", "shown"]

_REMEMBERED = 1 << 17
_phrases: WeakKeyDictionary[Sentence, PhraseColumns] = WeakKeyDictionary()
# Universal tags that are no labels of the Penn Treebank.
_UNIVERSAL_ALONE = frozenset(
    {
        "ADJ",
        "ADP",
        "ADV",
        "AUX",
        "CCONJ",
        "DET",
        "NOUN",
        "NUM",
        "PART",
        "PRON",
        "PROPN",
        "PUNCT",
        "SCONJ",
        "VERB",
    }
)


def sentence_trees(sentence: Sentence, trees: Sequence[str]) -> WordTrees:
    """The wanted trees of one sentence.

    Args:
        sentence: Annotated.
        trees: Of "dependency" and "constituency".

    Raises:
        DataError: The sentence lacks one of them.
        TreeError: Its brackets are no tree over its words.
    """
    governors = phrases = None
    if "dependency" in trees:
        if sentence.governors is None and sentence.words:
            raise DataError(
                f"governors: expected a dependency parse of {shown(sentence)}, got none. "
                'Annotate with a parser (annotator "en"), or leave the dependency tree out of the config.'
            )
        governors = sentence.governors or ()
    if "constituency" in trees:
        phrases = phrases_of(sentence)
    return WordTrees.of_sentence(len(sentence), governors, phrases)


def phrases_of(sentence: Sentence) -> PhraseColumns:
    """The constituency tree: the sentence's own, else phrases from its dependency parse.

    They are remembered as long as the sentence is in memory: those of training from epoch to epoch, those of
    a service no longer than a request.

    Heads of phrases come from the labels' head rules in a tree with Penn Treebank tags; in one without labels
    (SST, SNLI, SICK), or that was made from a dependency parse, from that parse, where there is one.

    Raises:
        DataError: It has neither.
        TreeError: The brackets are no tree over its words.
    """
    found = _phrases.get(sentence)
    if found is None:
        found = _columns_of(sentence)
        if len(_phrases) < _REMEMBERED:
            _phrases[sentence] = found
    return found


def _columns_of(sentence: Sentence) -> PhraseColumns:
    if not sentence.words:
        return PhraseColumns(*(np.zeros(0, np.int32) for _ in range(3)))
    tree = _tree_of(sentence)
    governors = None if _has_penn_labels(tree) else sentence.governors
    columns = phrase_columns(tree, governors)
    if len(columns) != len(sentence):
        raise TreeError(
            f"constituency: expected a tree over the {len(sentence)} words of {shown(sentence)}, "
            f"got one over {len(columns)}."
        )
    return columns


def cut_trees(trees: WordTrees, n_kept: int, max_distance: int) -> WordTrees:
    """Trees over the first words of a sentence, with the same relations between them as in the whole.

    The words' governors above them stay, as nodes behind the kept words that no piece belongs to, as far up
    as a relation reaches: in a text of thousands of words a parser may chain them all.

    Args:
        trees: Of one sentence.
        n_kept: Words that stay.
        max_distance: D, the largest distance that has a relation.
    """
    above = np.zeros(0, np.int64)
    if trees.governors is not None:
        above = _ancestors_beyond(np.asarray(trees.governors, np.int64), n_kept, max_distance)
    # One further node at least, to stand for cut heads of phrases.
    n_nodes = n_kept + max(1, len(above))
    governors = phrases = None
    if trees.governors is not None:
        governors = _renumbered(np.asarray(trees.governors, np.int64), n_kept, above, n_nodes)
    if trees.phrases is not None:
        phrases = _cut_phrases(trees.phrases, n_kept, n_nodes)
    return WordTrees.of_sentence(n_nodes, governors, phrases)


def _ancestors_beyond(governors: NDArray[np.int64], n_kept: int, n_steps: int) -> NDArray[np.int64]:
    """Words from `n_kept` on above any of the words before, at most `n_steps` edges up, ascending."""
    reached = np.zeros(len(governors) + 1, bool)
    waiting = np.arange(n_kept)
    reached[waiting] = True
    for _ in range(n_steps):
        above = np.unique(governors[waiting])
        waiting = above[(above >= 0) & ~reached[above]]
        reached[waiting] = True
    return np.flatnonzero(reached[:-1])[n_kept:]


def _renumbered(
    governors: NDArray[np.int64], n_kept: int, above: NDArray[np.int64], n_nodes: int
) -> NDArray[np.int64]:
    numbers = np.full(len(governors) + 1, -1, np.int64)
    numbers[:n_kept] = np.arange(n_kept)
    numbers[above] = n_kept + np.arange(len(above))
    cut = np.full(n_nodes, -1, np.int64)
    kept = np.concatenate([np.arange(n_kept), above])
    # -1, a root, finds the last entry, which is -1.
    cut[: len(kept)] = numbers[governors[kept]]
    return cut


def _cut_phrases(phrases: PhraseColumns, n_kept: int, n_nodes: int) -> PhraseColumns:
    depths, heads = np.zeros(n_nodes, np.int64), np.zeros(n_nodes, np.int64)
    gaps = np.full(n_nodes, NO_PHRASE, np.int64)
    depths[:n_kept], gaps[:n_kept] = phrases.word_depths[:n_kept], phrases.gap_depths[:n_kept]
    heads[:n_kept] = np.minimum(phrases.gap_heads[:n_kept], n_kept)
    return PhraseColumns(depths, gaps, heads)


def _tree_of(sentence: Sentence) -> Tree:
    if sentence.constituency is not None:
        return parse_tree(sentence.constituency)
    missing = [column for column in NEEDED_COLUMNS if getattr(sentence, column) is None]
    if missing:
        raise DataError(
            f"constituency: expected a tree of {shown(sentence)}, or a parse to convert, got neither: "
            f'without {", ".join(missing)}. Annotate with a parser (annotator "en"), or leave '
            "the constituency tree out of the config."
        )
    return phrase_structure(sentence)


def _has_penn_labels(tree: Tree) -> bool:
    """Whether phrases have categories, SST's numbers being none, and words no universal tags."""
    is_labelled = False
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        if node.label in _UNIVERSAL_ALONE:
            return False
        is_labelled |= len(node.children) > 1 and bool(node.label) and not node.label.isdigit()
        waiting.extend(child for child in node.children if isinstance(child, Tree))
    return is_labelled


def shown(sentence: Sentence) -> str:
    """A sentence in a message: its text, cut where it is long."""
    return repr(sentence.text if len(sentence.text) <= 50 else sentence.text[:50] + "…")
