"""Factors: what a model is told about a piece besides the piece itself.

`FACTORS` is the table of the built-in ones; any other name is a column of the user's. `word_factor` gives a
factor's values per word, `piece_factors` the ids per piece that enter a batch. Reads no annotation, no file.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from syntaxformer.base.errors import ConfigError
from syntaxformer.syntax.columns import CodedColumn, WordColumns
from syntaxformer.syntax.pieces import NO_WORD, batch_word_of_piece, row_of_item
from syntaxformer.syntax.subword import SUBWORD_POSITIONS, subword_codes
from syntaxformer.syntax.vocabulary import FactorVocabulary, UnseenValues
from syntaxformer.syntax.word_values import (
    BINARY,
    DEPTHS,
    POS_TAGS,
    starts_with_capital,
    tree_depth,
    verbal_predicate,
)

__all__ = ["FACTORS", "Factor", "build_vocabularies", "check_factors", "piece_factors", "word_factor"]


@dataclass(frozen=True, slots=True)
class Factor:
    """A built-in factor.

    Args:
        name: As recipes call it.
        values: Its values where they are fixed; None where they come from the data.
        needs: Annotations without which it cannot be computed ("upos", "governors", "deprels").
        of_words: Its value for each word; None for `subword`, which is a property of the piece.
    """

    name: str
    values: tuple[str, ...] | None
    needs: tuple[str, ...]
    of_words: Callable[[WordColumns], CodedColumn] | None


def _upos(columns: WordColumns) -> CodedColumn:
    return _given(columns.upos)


def _deprels(columns: WordColumns) -> CodedColumn:
    return _given(columns.deprels)


def _given(column: CodedColumn | None) -> CodedColumn:
    assert column is not None, "check_factors has held that the annotation is there"
    return column


FACTORS: Mapping[str, Factor] = {
    factor.name: factor
    for factor in (
        Factor("pos", POS_TAGS, ("upos",), _upos),
        Factor("case", BINARY, (), starts_with_capital),
        Factor("subword", SUBWORD_POSITIONS, (), None),
        Factor("predicate", BINARY, ("upos", "governors"), verbal_predicate),
        Factor("deprel", None, ("deprels",), _deprels),
        Factor("depth", DEPTHS, ("governors",), tree_depth),
    )
}
"""Built-in factors by name."""


def check_factors(
    names: Sequence[str],
    provides: Iterable[str],
    user_columns: Iterable[str] = (),
    *,
    annotator: str = "the annotator",
    alternatives: Mapping[str, Iterable[str]] | None = None,
) -> None:
    """Hold that every factor exists, stands once, and finds the annotation that it needs.

    Args:
        names: Factors of a recipe.
        provides: Annotations at hand (`Annotator.provides`, `WordColumns.provides`).
        user_columns: Names of the user's columns.
        annotator: Its name, for the message.
        alternatives: What other annotators provide, by their names, for the message.

    Raises:
        ConfigError: All problems at once.
    """
    provided, known = set(provides), [*FACTORS, *user_columns]
    problems = [
        f"factors: {name!r} stands {n} times. Name it once." for name, n in Counter(names).items() if n > 1
    ]
    problems += [
        f"user column {name!r}: expected another name, this one is a built-in factor."
        for name in user_columns
        if name in FACTORS
    ]
    for name in dict.fromkeys(names):
        if name not in known:
            near = get_close_matches(name, known, 1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            problems.append(f"factors: expected one of {', '.join(known)}, got {name!r}.{hint}")
        elif name in FACTORS:
            missing = [need for need in FACTORS[name].needs if need not in provided]
            problems += [_missing(name, need, annotator, alternatives or {}) for need in missing]
    if problems:
        raise ConfigError(problems)


def _missing(name: str, need: str, annotator: str, alternatives: Mapping[str, Iterable[str]]) -> str:
    giving = [other for other, provides in alternatives.items() if need in provides]
    remedy = (
        f"Annotators that give it: {', '.join(giving)}" if giving else "Choose an annotator that gives it"
    )
    return f"factor {name!r}: expected {need}, got none from {annotator}. {remedy}, or drop the factor."


def word_factor(name: str, columns: WordColumns) -> CodedColumn:
    """Value of a factor for each word.

    Args:
        name: A built-in factor other than `subword`, or one of `columns.user`.
        columns: Words of consecutive lines.

    Raises:
        ConfigError: No such factor, or its annotation is missing.
    """
    check_factors([name], columns.provides, columns.user)
    if name not in FACTORS:
        return columns.user[name]
    of_words = FACTORS[name].of_words
    if of_words is None:
        raise ConfigError(
            f"factor {name!r}: expected a factor of words, got one of pieces. Use piece_factors."
        )
    return of_words(columns)


def build_vocabularies(
    batches: Iterable[WordColumns], factors: Sequence[str], min_count: int = 1
) -> dict[str, FactorVocabulary]:
    """Vocabulary of each factor: the fixed one where there is one, else the values found in the data.

    Args:
        batches: All training words; gone through once, and only if a factor is open.
        factors: Factors of a recipe.
        min_count: As in `FactorVocabulary.from_counts`.

    Raises:
        ConfigError: As `word_factor`, or an open factor of which no value is frequent enough.
    """
    fixed = {name: FACTORS[name].values for name in factors if name in FACTORS}
    counts: dict[str, Counter[str]] = {name: Counter() for name in factors if fixed.get(name) is None}
    for columns in batches if counts else ():
        for name, counter in counts.items():
            column = word_factor(name, columns)
            found = np.bincount(column.codes + 1, minlength=len(column.values) + 1)[1:].tolist()
            counter.update(dict(zip(column.values, found, strict=True)))

    def build(name: str) -> FactorVocabulary:
        values = fixed.get(name)
        if values is None:
            return FactorVocabulary.from_counts(name, counts[name], min_count)
        return FactorVocabulary(name, values)

    return {name: build(name) for name in factors}


def piece_factors(
    columns: WordColumns,
    piece_offsets: ArrayLike,
    piece_row_splits: ArrayLike,
    factors: Sequence[str],
    vocabularies: Mapping[str, FactorVocabulary],
    *,
    unseen: UnseenValues | None = None,
    words_of_pieces: ArrayLike | None = None,
) -> dict[str, NDArray[np.integer[Any]]]:
    """Ids of every factor for every piece; a piece has the value of its word.

    Args:
        columns: Words of consecutive lines.
        piece_offsets: `[pieces, 2]`, from `encoding_offsets` over the same lines.
        piece_row_splits: `[rows + 1]`.
        factors: Factors to compute.
        vocabularies: By factor name.
        unseen: Where to count values that a vocabulary does not have; give one wherever the values are not
            those that the vocabulary was built from.
        words_of_pieces: `[pieces]`, from `batch_word_of_piece`, where it is at hand already.

    Returns:
        For each factor `[pieces]`, in its vocabulary's `dtype`; 0 (`<none>`) for pieces without word.

    Raises:
        ConfigError: Unknown factor, missing annotation or missing vocabulary.
        AlignmentError: Pieces and words of different lines.
    """
    check_factors(factors, columns.provides, columns.user)
    missing = [name for name in factors if name not in vocabularies]
    if missing:
        raise ConfigError([f"factor {name!r}: expected a vocabulary, got none." for name in missing])
    if words_of_pieces is None:
        words_of_pieces = batch_word_of_piece(
            piece_offsets, piece_row_splits, columns.offsets, columns.row_splits
        )
    words = np.asarray(words_of_pieces, np.int64)
    rows = row_of_item(piece_row_splits, len(words), "piece_row_splits")
    flat_words = np.where(words == NO_WORD, columns.n_words, words + columns.row_splits[rows])
    ids: dict[str, NDArray[np.integer[Any]]] = {}
    for name in factors:
        if name in FACTORS and FACTORS[name].of_words is None:
            codes = CodedColumn(subword_codes(words, piece_row_splits), SUBWORD_POSITIONS)
            ids[name] = vocabularies[name].encode_column(codes, unseen)
        else:
            of_words = vocabularies[name].encode_column(word_factor(name, columns), unseen)
            # One more "word" for the pieces that have none.
            ids[name] = np.append(of_words, of_words.dtype.type(0))[flat_words]
    return ids
