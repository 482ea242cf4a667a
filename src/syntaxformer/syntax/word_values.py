"""Values of the built-in factors for each word, computed from flat columns without a loop over words.

Only the computations; `factors` says which factor uses which, and what happens where one lacks.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from syntaxformer.base.errors import TreeError
from syntaxformer.syntax.columns import CodedColumn, WordColumns
from syntaxformer.syntax.pieces import row_of_item
from syntaxformer.trees.sentence import ROOT

__all__ = [
    "BINARY",
    "DEPTHS",
    "MAX_DEPTH",
    "POS_TAGS",
    "starts_with_capital",
    "tree_depth",
    "verbal_predicate",
    "word_depths",
]

POS_TAGS = (
    *("ADJ", "ADP", "ADV", "AUX", "CCONJ", "DET", "INTJ", "NOUN", "NUM"),
    *("PART", "PRON", "PROPN", "PUNCT", "SCONJ", "SYM", "VERB", "X", "SPACE"),
)
"""The 17 universal parts of speech, and spaCy's tag for words that are only white space."""

BINARY = ("0", "1")

MAX_DEPTH = 15
DEPTHS = (*map(str, range(MAX_DEPTH)), f"{MAX_DEPTH}+")
"""Distance to the root; all from `MAX_DEPTH` on are one value."""


def starts_with_capital(columns: WordColumns) -> CodedColumn:
    """1 where the word's first character in the original line is an upper-case or title-case letter.

    "iPhone", "3D" and a word that opens with a quotation mark are 0, as are scripts without case.
    """
    line_lengths = np.fromiter(map(len, columns.texts), np.int64, len(columns.texts))
    line_starts = np.concatenate([[0], np.cumsum(line_lengths)])
    text = "".join(columns.texts).encode("utf-32-le", "surrogatepass")
    characters = np.append(np.frombuffer(text, np.uint32), np.uint32(0))
    first = characters[line_starts[row_of_item(columns.row_splits, columns.n_words)] + columns.starts]
    # Few distinct characters begin words: ask Unicode once for each.
    distinct, which = np.unique(first, return_inverse=True)
    capital = np.fromiter((chr(code).istitle() for code in distinct.tolist()), np.bool_, len(distinct))
    return CodedColumn((capital[which] & (columns.ends > columns.starts)).astype(np.int8), BINARY)


def verbal_predicate(columns: WordColumns) -> CodedColumn:
    """1 for every VERB and for the root of each tree, whatever its part of speech."""
    assert columns.upos is not None, "held by check_factors"
    assert columns.governors is not None, "held by check_factors"
    is_verb = np.array([value == "VERB" for value in columns.upos.values] + [False])[columns.upos.codes]
    return CodedColumn((is_verb | (columns.governors == ROOT)).astype(np.int8), BINARY)


def tree_depth(columns: WordColumns) -> CodedColumn:
    """Number of edges from each word up to its root, from `MAX_DEPTH` on one value."""
    return CodedColumn(np.minimum(word_depths(columns), MAX_DEPTH), DEPTHS)


def word_depths(columns: WordColumns) -> NDArray[np.int64]:
    """Number of edges from each word up to its root, `[words]`.

    Raises:
        TreeError: A governor outside its line, or a cycle; names the line and a word in it.
    """
    assert columns.governors is not None, "held by check_factors"
    rows = row_of_item(columns.row_splits, columns.n_words)
    governors = np.asarray(columns.governors, np.int64)
    lengths = np.diff(columns.row_splits)
    outside = (governors < ROOT) | (governors >= lengths[rows])
    if outside.any():
        word = int(outside.argmax())
        wanted = f"a governor from -1 to {lengths[rows[word]] - 1}, 0-based"
        raise _tree_error(columns, word, f"expected {wanted}, got {governors[word]}")
    words = np.arange(columns.n_words, dtype=np.int64)
    is_root = governors == ROOT
    # Pointer jumping: after k rounds `ancestor` is 2^k edges up, or the root, and `depth` what lies between.
    ancestor = np.where(is_root, words, governors + columns.row_splits[rows])
    depth = (~is_root).astype(np.int64)
    for _ in range(int(lengths.max(initial=1)).bit_length()):
        depth += depth[ancestor]
        ancestor = ancestor[ancestor]
    if not is_root[ancestor].all():
        word = int(is_root[ancestor].argmin())
        raise _tree_error(columns, word, "expected governors that lead to a root, got a cycle")
    return depth


def _tree_error(columns: WordColumns, word: int, problem: str) -> TreeError:
    line = columns.line_of_word(word)
    row = line - columns.first_line
    form = columns.texts[row][int(columns.starts[word]) : int(columns.ends[word])]
    return TreeError(f"word {word - int(columns.row_splits[row]) + 1}, {form!r}: {problem}.", line=line)
