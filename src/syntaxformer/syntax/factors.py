"""Factors: what a model is told about a piece besides the piece itself.

`FACTORS` is the table of the built-in ones; any other name is a column of the user's. `word_factor` gives the
value of a factor for each word, `piece_factors` the ids for each piece of a batch. Nothing here reads files.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import lru_cache
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from syntaxformer.base.errors import ConfigError
from syntaxformer.syntax.columns import TERM_ROLES, CodedColumn, WordColumns
from syntaxformer.syntax.pieces import NO_WORD, SUBWORD_POSITIONS, row_of_item, subword_codes
from syntaxformer.syntax.ragged import splits_of
from syntaxformer.syntax.relations import flat_parents
from syntaxformer.trees import ROOT, check_governors

NONE, UNKNOWN = "<none>", "<unk>"
_RESERVED = (NONE, UNKNOWN)
_LISTED_VALUES = 10


class UnseenFactorValueWarning(UserWarning):
    """Values of a factor that the model saw never in training, or less often than its `min_count`."""


class UnseenValues:
    """Collects factor values that were read as `<unk>`, to give one warning about all of them."""

    def __init__(self) -> None:
        self.counts: dict[str, Counter[str]] = {}

    def add(self, factor: str, counts: Mapping[str, int]) -> None:
        """Count further unseen values of a factor."""
        if counts:
            self.counts.setdefault(factor, Counter()).update(counts)

    def message(self) -> str | None:
        """One line that counts and names, for each factor, its unseen values; None if there were none."""
        return "; ".join(_unseen(factor, counts) for factor, counts in self.counts.items()) or None

    def warn(self) -> None:
        """Give the one warning if there were unseen values, and start counting again from zero."""
        message = self.message()
        self.counts.clear()
        if message:
            warnings.warn(message, UnseenFactorValueWarning, stacklevel=2)


def _unseen(factor: str, counts: Counter[str]) -> str:
    total, n_more = counts.total(), len(counts) - _LISTED_VALUES
    listed = ", ".join(f"{value!r} {count}x" for value, count in counts.most_common(_LISTED_VALUES))
    others = f" and {n_more} more" if n_more > 0 else ""
    plural = "value" if total == 1 else "values"
    return f"factor {factor}: {total} {plural} rare or unseen in training read as {UNKNOWN}: {listed}{others}"


@dataclass(frozen=True, slots=True)
class FactorVocabulary:
    """Values of one factor; id 0 is `<none>`, 1 is `<unk>`, then come the values in order.

    `values` are distinct, without the two reserved ones.

    Raises:
        ConfigError: A value occurs twice or is reserved.
    """

    name: str
    values: tuple[str, ...]

    def __post_init__(self) -> None:
        counts = Counter(self.values)
        several = [value for value, n in counts.items() if n > 1]
        problems = [f"expected distinct values, got {value!r} {counts[value]} times." for value in several]
        reserved = [value for value in _RESERVED if value in counts]
        problems += [f"expected values other than {NONE} and {UNKNOWN}, got {value!r}." for value in reserved]
        if problems:
            raise ConfigError([f"factor {self.name}: {problem}" for problem in problems])

    def __len__(self) -> int:
        return len(_RESERVED) + len(self.values)

    @property
    def entries(self) -> tuple[str, ...]:
        """All values in the order of their ids."""
        return (*_RESERVED, *self.values)

    @property
    def dtype(self) -> np.dtype[np.integer[Any]]:
        """Smallest integer type that holds every id."""
        fitting = (dtype for dtype in (np.uint8, np.int16, np.int32) if len(self) - 1 <= np.iinfo(dtype).max)
        return np.dtype(next(fitting))

    @classmethod
    def from_counts(cls, name: str, counts: Mapping[str, int], min_count: int = 1) -> FactorVocabulary:
        """Make an open vocabulary from data, with the most frequent value first and ties in order of name.

        Values seen less often than `min_count` are left out and read as `<unk>`, so that `<unk>` is trained.

        Raises:
            ConfigError: No value is frequent enough.
        """
        frequent = {value: n for value, n in counts.items() if n >= min_count and value not in _RESERVED}
        ordered = sorted(frequent, key=lambda value: (-frequent[value], value))
        if not ordered:
            raise ConfigError(
                f"factor {name}: expected a value seen {min_count} times or more, got none of {len(counts)}. "
                "Lower min_count or leave the factor out."
            )
        return cls(name, tuple(ordered))

    def encode(self, values: Sequence[str], unseen: UnseenValues | None = None) -> NDArray[np.integer[Any]]:
        """Ids of values, `[items]`, in `dtype`; see `encode_column`."""
        return self.encode_column(CodedColumn.from_values(values), unseen)

    def encode_column(self, column: CodedColumn, unseen: UnseenValues | None = None) -> NDArray[Any]:
        """Ids of a coded column, `[items]`, in `dtype`; items without a value (code -1) get that of `<none>`.

        Values that are not in the vocabulary get the id of `<unk>`, and are counted in `unseen`.
        """
        ids = {value: index for index, value in enumerate(self.entries)}
        # The last entry is that of code -1.
        table = np.array([ids.get(value, 1) for value in column.values] + [0], self.dtype)
        if unseen is not None:
            counts = column.counts().items()
            unseen.add(self.name, {value: n for value, n in counts if n and ids.get(value, 1) == 1})
        return table[column.codes]

    def decode(self, ids: NDArray[np.integer[Any]]) -> list[str]:
        """Values of ids, with `<none>` and `<unk>` spelled out."""
        entries = self.entries
        return [entries[index] for index in ids.tolist()]

    def to_dict(self) -> dict[str, Any]:
        """A form that JSON can hold, of which pydantic makes a vocabulary again."""
        return {"name": self.name, "values": list(self.values)}


POS_TAGS = (
    *("ADJ", "ADP", "ADV", "AUX", "CCONJ", "DET", "INTJ", "NOUN", "NUM"),
    *("PART", "PRON", "PROPN", "PUNCT", "SCONJ", "SYM", "VERB", "X", "SPACE"),
)
"""The 17 universal parts of speech, and spaCy's tag for words that are only white space."""

BINARY = ("0", "1")
SHAPES = ("lower", "capital", "upper", "mixed")
"""Values of the factor `case` where the pieces of the source are in lower case."""

TERM = "term"
"""The factor of a model that is given terms; nothing but `data.terms` puts it into a recipe."""

MAX_DEPTH = 15
DEPTHS = (*map(str, range(MAX_DEPTH)), f"{MAX_DEPTH}+")
"""Distances to the root; all distances from `MAX_DEPTH` on are one value."""


def starts_with_capital(columns: WordColumns) -> CodedColumn:
    """1 if the word's first character in the original line is an upper-case or title-case letter, else 0.

    "iPhone", "3D" and a word that opens with a quotation mark get 0, as do scripts without case.
    """
    line_starts = splits_of(list(map(len, columns.texts)))
    text = "".join(columns.texts).encode("utf-32-le", "surrogatepass")
    characters = np.append(np.frombuffer(text, np.uint32), np.uint32(0))
    first = characters[line_starts[row_of_item(columns.row_splits, columns.n_words)] + columns.starts]
    # Words begin with few distinct characters, so Unicode is asked once for each.
    distinct, which = np.unique(first, return_inverse=True)
    capital = np.fromiter((chr(code).istitle() for code in distinct.tolist()), np.bool_, len(distinct))
    return CodedColumn((capital[which] & (columns.ends > columns.starts)).astype(np.int8), BINARY)


def word_shapes(columns: WordColumns) -> CodedColumn:
    """How each word is written: one of `SHAPES`, by its letters that have a case.

    "upper" has two capitals or more and nothing else: "I" and "A" are "capital". Words without case are
    "lower".
    """
    rows = row_of_item(columns.row_splits, columns.n_words).tolist()
    places = zip(rows, columns.starts.tolist(), columns.ends.tolist(), strict=True)
    codes = [_shape(columns.texts[row][start:end]) for row, start, end in places]
    return CodedColumn(np.array(codes, np.int8), SHAPES)


@lru_cache(maxsize=2**16)
def _shape(word: str) -> int:
    """The place of a word's shape in `SHAPES`."""
    letters = [letter for letter in word if letter.lower() != letter.upper() and len(letter.upper()) == 1]
    capitals = [letter != letter.lower() for letter in letters]  # "ß" has none of its own
    if not any(capitals):
        return 0
    if len(capitals) > 1 and all(capitals):
        return 2
    return 1 if capitals[0] and sum(capitals) == 1 else 3


def verbal_predicate(columns: WordColumns) -> CodedColumn:
    """1 for every VERB and for the root of each tree, whatever its part of speech."""
    assert columns.upos is not None, "checked by check_factors"
    assert columns.governors is not None, "checked by check_factors"
    is_verb = np.array([value == "VERB" for value in columns.upos.values] + [False])[columns.upos.codes]
    return CodedColumn((is_verb | (columns.governors == ROOT)).astype(np.int8), BINARY)


def tree_depth(columns: WordColumns) -> CodedColumn:
    """Number of edges from each word up to its root; all from `MAX_DEPTH` on are one value."""
    return CodedColumn(np.minimum(word_depths(columns), MAX_DEPTH), DEPTHS)


def word_depths(columns: WordColumns) -> NDArray[np.int64]:
    """Number of edges from each word up to its root, `[words]`; messages name line and word.

    Raises:
        TreeError: A governor is outside its line, or there is a cycle; the message names line and word.
    """
    assert columns.governors is not None, "checked by check_factors"
    rows, splits = row_of_item(columns.row_splits, columns.n_words), columns.row_splits
    governors = np.asarray(columns.governors, np.int64)
    _, depths, is_wrong = flat_parents(governors, splits[rows], np.diff(splits)[rows])
    if is_wrong.any():
        row = int(rows[is_wrong.argmax()])
        words_of_row, text = slice(*splits[row : row + 2].tolist()), columns.texts[row]
        words = [text[start:end] for start, end in columns.offsets[words_of_row].tolist()]
        check_governors(governors[words_of_row].tolist(), words, columns.first_line + row)
    return depths


def term_role(columns: WordColumns) -> CodedColumn:
    """Whether a word is one of the text, one of a term, or one of a term's injected translation."""
    if columns.terms is not None:
        return columns.terms
    return CodedColumn(np.zeros(columns.n_words, np.int8), TERM_ROLES)


@dataclass(frozen=True, slots=True)
class Factor:
    """A built-in factor."""

    values: tuple[str, ...] | None  # if they are fixed; None if they come from the data
    needs: tuple[str, ...]  # annotations that it is computed from
    of_words: Callable[[WordColumns], CodedColumn] | None  # None for a property of the piece


FACTORS: Mapping[str, Factor] = {
    "pos": Factor(POS_TAGS, ("upos",), attrgetter("upos")),
    "case": Factor(BINARY, (), starts_with_capital),
    "subword": Factor(SUBWORD_POSITIONS, (), None),
    "predicate": Factor(BINARY, ("upos", "governors"), verbal_predicate),
    "deprel": Factor(None, ("deprels",), attrgetter("deprels")),
    "depth": Factor(DEPTHS, ("governors",), tree_depth),
    "lemma": Factor(None, ("lemmas",), attrgetter("lemmas")),
    "feats": Factor(None, ("feats",), attrgetter("feats")),
    TERM: Factor(TERM_ROLES, (), term_role),
}
"""Built-in factors by name."""


def check_factors(
    names: Sequence[str],
    provides: Iterable[str],
    user_columns: Iterable[str] = (),
    *,
    annotator: str = "the annotator",
) -> None:
    """Check that every factor exists, is named once and has the annotation that it needs.

    Raises:
        ConfigError: A check fails; all problems are listed.
    """
    provided, known = set(provides), [*FACTORS, *user_columns]
    problems = [
        f"factors: expected each once, got {name!r} {n} times." for name, n in Counter(names).items() if n > 1
    ]
    problems += [
        f"user column {name!r}: expected another name, got that of a built-in factor."
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
            problems += [
                f"factor {name!r}: expected {need}, got none from {annotator}. Choose an annotator that "
                "gives it, or drop the factor."
                for need in missing
            ]
    if problems:
        raise ConfigError(problems)


def word_factor(name: str, columns: WordColumns) -> CodedColumn:
    """Value of a factor that `check_factors` has let pass for each word."""
    if name not in FACTORS:
        return columns.user[name]
    of_words = FACTORS[name].of_words
    assert of_words is not None, "piece_factors reads `subword` from the pieces"
    return of_words(columns)


def build_vocabularies(
    batches: Iterable[WordColumns], factors: Sequence[str], min_count: int = 1
) -> dict[str, FactorVocabulary]:
    """Vocabulary of each factor: the fixed one if there is one, or else the values found in the data.

    Args:
        batches: All training words; they are read once, and only if a factor is open.
        factors: Factors of a recipe.
        min_count: As in `FactorVocabulary.from_counts`.

    Raises:
        ConfigError: A factor is unknown, its annotation is missing, or no value of an open factor is frequent
            enough.
    """
    fixed = {name: values for name in factors if name in FACTORS and (values := FACTORS[name].values)}
    counts: dict[str, Counter[str]] = {name: Counter() for name in factors if name not in fixed}
    for columns in batches if counts else ():
        check_factors(list(counts), columns.provides, columns.user)
        for name, counter in counts.items():
            counter.update(word_factor(name, columns).counts())
    vocabularies = {name: FactorVocabulary(name, values) for name, values in fixed.items()}
    for name, counter in counts.items():
        vocabularies[name] = FactorVocabulary.from_counts(name, counter, min_count)
    return {name: vocabularies[name] for name in factors}


def piece_factors(
    columns: WordColumns,
    words_of_pieces: ArrayLike,
    piece_row_splits: ArrayLike,
    vocabularies: Mapping[str, FactorVocabulary],
    unseen: UnseenValues | None = None,
) -> NDArray[np.int32]:
    """Ids of factors for every piece; a piece gets the value of its word.

    Args:
        columns: Words of consecutive lines.
        words_of_pieces: `[pieces]`, from `batch_word_of_piece` over the same lines.
        piece_row_splits: `[rows + 1]`.
        vocabularies: Those of the wanted factors, in the order of the result's columns.
        unseen: Where to count values that a vocabulary lacks; give one unless the vocabulary was built from
            the same values.

    Returns:
        `[pieces, factors]`; 0 (`<none>`) for pieces without word.

    Raises:
        ConfigError: A factor is unknown, or its annotation is missing.
        AlignmentError: The row splits do not cut the pieces into rows.
    """
    check_factors(list(vocabularies), columns.provides, columns.user)
    words = np.asarray(words_of_pieces, np.int64)
    rows = row_of_item(piece_row_splits, len(words), "piece_row_splits")
    flat_words = np.where(words == NO_WORD, columns.n_words, words + columns.row_splits[rows])
    ids = np.zeros((len(words), len(vocabularies)), np.int32)
    for column, (name, vocabulary) in enumerate(vocabularies.items()):
        if name in FACTORS and FACTORS[name].of_words is None:
            codes = CodedColumn(subword_codes(words, piece_row_splits), SUBWORD_POSITIONS)
            ids[:, column] = vocabulary.encode_column(codes, unseen)
        else:
            is_shape = name == "case" and vocabulary.values == SHAPES
            values = word_shapes(columns) if is_shape else word_factor(name, columns)
            # One more "word" for the pieces that have none.
            ids[:, column] = np.append(vocabulary.encode_column(values, unseen), 0)[flat_words]
    return ids
