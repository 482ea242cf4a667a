"""`WordColumns`: the words of many sentences as flat arrays, the form in which factors are computed.

They are built from `Sentence` objects or straight from the columns of an annotated corpus; tags are integer
codes with the list of their names. They hold values only: `factors` decides which of them a model knows.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, count, groupby, zip_longest
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from syntaxformer.base.errors import AlignmentError
from syntaxformer.base.files import read_lines
from syntaxformer.syntax.pieces import encoding_offsets, row_of_item
from syntaxformer.trees import Tree, depths_of, format_tree, tree_of_column
from syntaxformer.trees.constituency import events
from syntaxformer.trees.locate import given_words, spans_of_given_words
from syntaxformer.trees.phrase_structure import brackets_of_parse
from syntaxformer.trees.sentence import COLUMNS, NO_VALUE, PER_WORD, Sentence

DEFAULT_COLUMNS = ("upos", "governors", "deprels")
"""Annotations that are fetched by default: those of the built-in factors, without constituency trees."""

TERM_ROLES = ("source", "source_term", "target_term")
"""Values of the factor `term`: a word of the text, a word of a term in it, and one of its translation."""


@dataclass(frozen=True, slots=True)
class Injection:
    """A translation, words with spaces between them, of the words `first` to `stop`, exclusive, of a line."""

    row: int
    first: int
    stop: int
    target: str


@dataclass(frozen=True, slots=True, eq=False)
class CodedColumn:
    """Values of a column as codes, `[items]`: indices into the distinct values, -1 for an item without one.

    Raises:
        AlignmentError: A code is no index into `values`.
    """

    codes: NDArray[np.integer[Any]]
    values: tuple[str, ...]

    def __post_init__(self) -> None:
        if len(self.codes) and not -1 <= int(self.codes.min()) <= int(self.codes.max()) < len(self.values):
            raise AlignmentError(
                f"codes: expected -1 to {len(self.values) - 1}, an index into {len(self.values)} values, "
                f"got {self.codes.min()} to {self.codes.max()}."
            )

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, items: slice) -> CodedColumn:
        """A part of the column, with the same values."""
        return CodedColumn(self.codes[items], self.values)

    @classmethod
    def from_values(cls, values: Sequence[str]) -> CodedColumn:
        """Code a list of values; the distinct ones are numbered as they first appear."""
        numbers: dict[str, int] = {}
        codes = np.fromiter(
            (numbers.setdefault(value, len(numbers)) for value in values), np.int32, len(values)
        )
        return cls(codes, tuple(numbers))

    def counts(self) -> dict[str, int]:
        """How many items have each value."""
        # Shifted by one, since bincount takes no -1.
        counts = np.bincount(self.codes + 1, minlength=len(self.values) + 1)[1:].tolist()
        return dict(zip(self.values, counts, strict=True))

    def decode(self) -> list[str | None]:
        """The values as strings, None for an item without one."""
        names = (*self.values, None)
        return [names[code] for code in self.codes.tolist()]


@dataclass(frozen=True, slots=True, eq=False)
class WordColumns:
    """Words of consecutive lines, flat; what the annotator does not give is None.

    The tree of a line is as `Sentence.tree_source` has it, None for a line without words.

    Raises:
        AlignmentError: Columns have different lengths.
    """

    texts: Sequence[str]  # the lines, [rows]
    row_splits: NDArray[np.int64]  # line `row` has the words splits[row]:splits[row + 1], [rows + 1]
    starts: NDArray[np.integer[Any]]  # character start of each word in its line, [words]
    ends: NDArray[np.integer[Any]]  # character end, exclusive
    upos: CodedColumn | None = None
    xpos: CodedColumn | None = None
    deprels: CodedColumn | None = None
    governors: NDArray[np.integer[Any]] | None = None  # index within the line, -1 for a root, [words]
    lemmas: CodedColumn | None = None
    feats: CodedColumn | None = None
    user: Mapping[str, CodedColumn] = field(default_factory=dict[str, CodedColumn])
    first_line: int = 1  # number of the first line, from 1, for messages
    constituency: Sequence[str | Sentence | None] | None = None  # [rows]
    terms: CodedColumn | None = None  # of `TERM_ROLES`; None if nothing was injected

    def __post_init__(self) -> None:
        row_of_item(self.row_splits, len(self.starts))
        if len(self.row_splits) != len(self.texts) + 1:
            raise AlignmentError(
                f"row_splits: expected {len(self.texts) + 1} positions for {len(self.texts)} lines, "
                f"got {len(self.row_splits)}."
            )
        columns = {name: getattr(self, name) for name in ("ends", "terms", *PER_WORD)}
        for name, column in {**columns, **self.user}.items():
            if column is not None and len(column) != self.n_words:
                raise AlignmentError(
                    f"{name}: expected {self.n_words} values, one per word, got {len(column)}."
                )

    @property
    def n_words(self) -> int:
        """Number of words in all lines together."""
        return len(self.starts)

    @property
    def offsets(self) -> NDArray[np.int32]:
        """Character start and end of each word, `[words, 2]`."""
        return np.stack([self.starts, self.ends], axis=1).astype(np.int32)

    @property
    def provides(self) -> frozenset[str]:
        """Those annotations of `trees.sentence.COLUMNS` that are present."""
        return frozenset(name for name in COLUMNS if getattr(self, name) is not None)

    def sentences(self) -> Iterator[Sentence]:
        """The lines as sentences; each word is its characters in the line."""
        columns = {name: flat for name in PER_WORD if (flat := getattr(self, name)) is not None}
        for row, text in enumerate(self.texts):
            words = slice(*self.row_splits[row : row + 2].tolist())
            offsets = tuple(zip(self.starts[words].tolist(), self.ends[words].tolist(), strict=True))
            tree: Any = None if self.constituency is None else self.constituency[row]
            tree = brackets_of_parse if isinstance(tree, Sentence) else tree
            values: dict[str, Any] = {"constituency": tree}
            for name, column in columns.items():
                is_coded = isinstance(column, CodedColumn)
                values[name] = tuple(column[words].decode() if is_coded else column[words].tolist())
            yield Sentence(text, tuple(text[start:end] for start, end in offsets), offsets, **values)

    def with_user_column(self, name: str, values: CodedColumn | Sequence[str]) -> WordColumns:
        """A copy with one more user column, which has one value for each word.

        Raises:
            AlignmentError: There are more or fewer values than words.
        """
        column = values if isinstance(values, CodedColumn) else CodedColumn.from_values(values)
        return replace(self, user={**self.user, name: column})

    def with_injected(self, injections: Sequence[Injection], replaces: bool = False) -> WordColumns:
        """A copy whose lines also hold translations of some of their words, behind them or in their place.

        An injected word has the tag `X` and depends on the head of the term, its word nearest to the root; in
        a constituency tree it stands beside the term's last word. Words that are replaced stay in the trees,
        but have no characters, and so no pieces. Injections are in the order of lines and of words; no two
        of them share a word.

        Source: Dinu et al. (2019), section 3. differs: their words have no tags and trees.
        """
        if not injections:
            return self
        splits, texts, roles = self.row_splits, list(self.texts), np.zeros(self.n_words, np.int8)
        starts, ends = self.starts.astype(np.int64), self.ends.astype(np.int64)
        trees = None if self.constituency is None else list(self.constituency)
        injected: list[tuple[int, int, int, int]] = []  # of each word: index, head, start and end
        for row, group in groupby(injections, lambda injection: injection.row):
            of_row, (line, after_line) = list(group), splits[row : row + 2].tolist()
            depths = None if self.governors is None else depths_of(self.governors[line:after_line].tolist())
            parts, text, cut, shift = list[str](), self.texts[row], 0, 0
            for injection in of_row:
                first, after, target = line + injection.first, line + injection.stop, injection.target
                words = range(injection.first, injection.stop)
                head = min(words, key=depths.__getitem__) if depths else injection.first
                begin, end = int(self.starts[first]), int(self.ends[after - 1])
                offset = shift + (begin if replaces else end + 1)
                parts += [text[cut:begin] if replaces else f"{text[cut:end]} ", target]
                for start, stop in spans_of_given_words(target):
                    injected.append((after, line + head, offset + start, offset + stop))
                if replaces:
                    starts[first:after] = ends[first:after] = begin + shift
                roles[first:after] = 1
                cut, shift = end, offset + len(target) - end
                starts[after:after_line] = self.starts[after:after_line] + shift
                ends[after:after_line] = self.ends[after:after_line] + shift
            texts[row] = "".join([*parts, text[cut:]])
            if trees is not None and (tree := trees[row]) is not None:
                trees[row] = _with_leaves(tree, of_row)
        indices, heads, new_starts, new_ends = np.array(injected).T
        new_index, rows = np.arange(self.n_words), row_of_item(splits, self.n_words)
        new_index += np.searchsorted(indices, new_index, "right")
        row_splits = splits + np.searchsorted(indices, splits, "right")

        def joined(column: CodedColumn, unknown: str | None) -> CodedColumn:
            known = unknown is None or unknown in column.values
            values = column.values if known else (*column.values, str(unknown))
            code = -1 if unknown is None else values.index(unknown)
            return CodedColumn(np.insert(column.codes.astype(np.int32), indices, code), values)

        columns: dict[str, Any] = {
            name: joined(column, COLUMNS[name].unknown)
            for name in PER_WORD
            if isinstance(column := getattr(self, name), CodedColumn)
        }
        if self.governors is not None:
            of_text = np.where(self.governors < 0, 0, self.governors) + splits[rows]
            governors = np.where(self.governors < 0, -1, new_index[of_text] - row_splits[rows])
            governors_of_injected = new_index[heads] - row_splits[rows[heads]]
            columns["governors"] = np.insert(governors, indices, governors_of_injected)
        columns["starts"] = np.insert(starts, indices, new_starts)
        columns["ends"] = np.insert(ends, indices, new_ends)
        columns["terms"] = CodedColumn(np.insert(roles, indices, 2), TERM_ROLES)
        columns["user"] = {name: joined(column, None) for name, column in self.user.items()}
        return replace(self, **columns, texts=texts, row_splits=row_splits, constituency=trees)

    @classmethod
    def from_corpus(
        cls,
        corpus: Any,
        texts: Sequence[str],
        start: int = 0,
        columns: Collection[str] = DEFAULT_COLUMNS,
    ) -> WordColumns:
        """Columns of consecutive lines of an `AnnotatedCorpus`, without a `Sentence` for each.

        `texts` are the annotated lines from `start`, 0-based, to `start + len(texts)`. Columns that the
        corpus lacks are left out.

        Raises:
            AlignmentError: The corpus has fewer lines.
        """
        stored = corpus.columns(start, start + len(texts), columns)
        columns_of_words: dict[str, Any] = {
            name: CodedColumn(values, stored.tags[name]) if name in stored.tags else values
            for name, values in stored.values.items()
        }
        return cls(
            texts, stored.row_offsets, stored.starts, stored.ends, first_line=start + 1, **columns_of_words
        )

    @classmethod
    def from_sentences(
        cls,
        sentences: Sequence[Sentence],
        user: Mapping[str, Sequence[Sequence[str]]] | None = None,
        first_line: int = 1,
        only: Collection[str] = tuple(COLUMNS),
    ) -> WordColumns:
        """Columns of annotated sentences.

        `user` has a list of values for each line, for each of the user's columns (see `read_user_values`).
        `only` names the annotations to take. A line without lemmas, treebank tags or morphology, as
        `read_conllu` gives it if all are "_", has "_" for each word if other lines have them.

        Raises:
            AlignmentError: Some lines have one of `DEFAULT_COLUMNS` and others lack it, or a user column does
                not have one value per word.
        """
        offsets, row_splits = encoding_offsets(sentences)
        texts = [sentence.text for sentence in sentences]
        values = {name: _column(sentences, name, first_line) for name in only}
        columns = cls(texts, row_splits, offsets[:, 0], offsets[:, 1], first_line=first_line, **values)
        for name, rows in (user or {}).items():
            if len(rows) != len(sentences):
                raise AlignmentError(f"column {name}: expected {len(sentences)} lines, got {len(rows)}.")
            for line, (row, sentence) in enumerate(zip(rows, sentences, strict=True), first_line):
                if len(row) != len(sentence):
                    problem = f"expected {len(sentence)} values, one per word, got {len(row)}."
                    raise AlignmentError(f"column {name}: {problem}", line=line)
            columns = columns.with_user_column(name, list(chain.from_iterable(rows)))
        return columns


def _with_leaves(tree: str | Sentence, injections: Sequence[Injection]) -> str:
    """The brackets of a line's tree, with each injected word beside the last one of its term."""
    injected = {injection.stop - 1: given_words(injection.target) for injection in injections}
    phrases, words = list[list[Any]]([[]]), count()
    for kind, token in events(tree_of_column(tree if isinstance(tree, str) else brackets_of_parse(tree))):
        if kind == "open":
            phrases.append([token])
        elif kind == "word":
            phrases[-1] += [token, *injected.get(next(words), ())]
        else:
            label, *children = phrases.pop()
            phrases[-1].append(Tree(label, tuple(children)))
    return format_tree(phrases[0][0])


def _column(sentences: Sequence[Sentence], name: str, first_line: int) -> Any:
    """One annotation of all sentences, flat, or their trees; None if they do not have it."""
    field = "tree_source" if name == "constituency" else name
    values = [getattr(sentence, field) for sentence in sentences]
    if COLUMNS[name].unknown == NO_VALUE and any(values):
        pairs = zip(values, sentences, strict=True)
        values = [value or (NO_VALUE,) * len(sentence) for value, sentence in pairs]
    missing = [row for row, value in enumerate(values) if value is None and len(sentences[row])]
    if missing and any(values) and name in DEFAULT_COLUMNS:
        raise AlignmentError(
            f"{name}: expected a value for every word or for none, got one line without, unlike others.",
            line=missing[0] + first_line,
        )
    kind = COLUMNS[name].kind
    if missing or kind == "tree":
        return None if missing else values
    flat = list(chain.from_iterable(value or () for value in values))
    return np.array(flat, np.int32) if kind == "number" else CodedColumn.from_values(flat)


def read_user_column(
    path: str | Path,
    sentences: Iterable[Sequence[str]],
    text_name: str | Path = "the text",
    rows: Sequence[int] | None = None,
) -> CodedColumn:
    """Read the values of all words, flat, of a factor file that fits the words line by line.

    The words are those of the annotated (or already tokenised) sentence, not the text split at white space:
    "don't" takes two values if the annotator reads "do n't". A sentence without words takes an empty line.

    The file is UTF-8, plain or packed, with spaces or tabs between the values. `sentences` are `Sentence`
    objects, an annotated corpus or lists of words; if they are only some lines of the file, `rows` gives the
    numbers of these lines, 0-based and ascending.

    Raises:
        AlignmentError: The file has more or fewer lines than sentences, or a line more or fewer values than
            words.
        DataError: The file cannot be read or is not UTF-8.
    """
    code_of_value: dict[str, int] = {}
    codes: list[int] = []
    lines, words_of_lines = enumerate(read_lines(path), start=1), iter(sentences)
    if rows is not None:
        chosen = set(rows)
        lines = ((number, line) for number, line in lines if number - 1 in chosen)
    for row, (numbered, words) in enumerate(zip_longest(lines, words_of_lines)):
        if numbered is None or words is None:
            n_lines = row if numbered is None else row + 1 + sum(1 for _ in lines)
            n_sentences = row if words is None else row + 1 + sum(1 for _ in words_of_lines)
            raise AlignmentError(
                f"factor file: expected {n_sentences} lines, one for each line of {text_name}, "
                f"got {n_lines}.",
                path,
            )
        number, line = numbered
        values = given_words(line)
        if len(values) != len(words):
            raise AlignmentError(_misfit(values, list(words)), path, number)
        codes += [code_of_value.setdefault(value, len(code_of_value)) for value in values]
    return CodedColumn(np.array(codes, np.int32), tuple(code_of_value))


def read_user_values(path: str | Path) -> Iterator[list[str]]:
    """The values of each line of a factor file, without a check that they fit the words.

    Raises:
        DataError: The file cannot be read or is not UTF-8.
    """
    return map(given_words, read_lines(path))


def _misfit(values: Sequence[str], words: Sequence[str]) -> str:
    """What is wrong with a line, down to the first word or value without a partner."""
    problem = f"factor file: expected {len(words)} values, one per word, got {len(values)}."
    first = min(len(values), len(words))
    last_pair = f", after {values[first - 1]!r} for {words[first - 1]!r}" if first else ""
    if len(values) < len(words):
        return f"{problem} Word {first + 1}, {words[first]!r}, is the first without a value{last_pair}."
    return f"{problem} Value {first + 1}, {values[first]!r}, is the first without a word{last_pair}."
