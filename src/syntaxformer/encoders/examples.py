"""Examples of texts with their labels, and how rows of any source become examples."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from syntaxformer.base.errors import CheckpointError, DataError
from syntaxformer.base.files import TRAINED_ON
from syntaxformer.encoders.tables import BadRows, Row
from syntaxformer.runs.config import FRACTION_SEED

if TYPE_CHECKING:
    from syntaxformer.encoders.task_types import TaskType


@dataclass(frozen=True, slots=True)
class TextExample:
    """One text or pair of texts."""

    texts: tuple[str, ...]
    label: Any = None  # class number or score, or what `TaskType.read` of another type gives; None if unknown
    trees: tuple[str | None, ...] = ()  # the bracketed constituency tree of each text, if there are some
    index: str = ""  # the id in the corpus, which is the first column of a submission
    line: int = 0  # from 1, in the file; of a question, the number of its paragraph
    words: tuple[str, ...] = ()  # of the text, with single spaces between them, if the file gives words


@dataclass(frozen=True)
class TextSet:
    """The examples of one split."""

    name: str
    source: str
    examples: Sequence[TextExample]
    left_out: dict[str, int] = field(default_factory=dict)  # reason → number of rows that became no example
    rows: Sequence[int] | None = None  # numbers of the examples among all of the split, if there are others

    def __len__(self) -> int:
        return len(self.examples)

    @property
    def text_rows(self) -> Sequence[int] | None:
        """The numbers of these texts among all of the split, in order; None if they are all."""
        if self.rows is None:
            return None
        n_texts = len(self.examples[0].texts)
        return [row * n_texts + number for row in self.rows for number in range(n_texts)]

    @property
    def has_trees(self) -> bool:
        """Whether the data has a tree for every text."""
        trees = [example.trees for example in self.examples]
        return bool(trees) and all(of_text and None not in of_text for of_text in trees)

    def part(self, n_rows: int | None, share: float) -> TextSet:
        """A random share of the first rows, in order; every smaller share is part of a larger one.

        In `n_rows`, all phrases of one tree count as one; None takes all rows. The share is at most 1.
        """
        lines = sorted({example.line for example in self.examples})[:n_rows]
        order = np.random.default_rng(FRACTION_SEED).permutation(len(lines))
        chosen = {lines[row] for row in order[: max(1, round(len(lines) * share))].tolist()}
        rows = [row for row, example in enumerate(self.examples) if example.line in chosen]
        return self if len(rows) == len(self) else self.at(rows)

    def at(self, rows: Sequence[int]) -> TextSet:
        """The examples of these rows, counted among those of this set, ascending."""
        numbers = rows if self.rows is None else [self.rows[row] for row in rows]
        return replace(self, examples=[self.examples[row] for row in rows], rows=numbers)


@lru_cache(8)  # many questions are about one text
def in_place(text: str) -> str:
    """The text on one line, each white space as one space, so that every character keeps its place."""
    return re.sub(r"\s", " ", text)


def raw_example(
    texts: Sequence[str], line: int, source: str | None = None, index: str = "", keep_places: bool = False
) -> TextExample:
    """An example of raw texts, with single spaces for white space unless characters keep their places.

    Raises:
        DataError: A text is empty.
    """
    cleaned = tuple(in_place(text) if keep_places else " ".join(text.split()) for text in texts)
    if not all(map(str.strip, cleaned)):
        raise DataError("text: expected one that is not empty, got ''.", source, line)
    return TextExample(cleaned, None, (), index, line)


@dataclass(frozen=True, kw_only=True)
class Binding:
    """The columns of a table for the roles that a `Task` names, and how their cells are read."""

    texts: Sequence[str]
    label: str | None  # None in a test set without them
    task_type: TaskType
    trees: Sequence[str] = ()
    index: str | None = None  # None counts the examples from 0
    no_label: Sequence[str] = ()
    tolerant: bool = False
    unlabelled: Sequence[str] = ()  # cells of the label column that mean "no label" in test sets
    fold_case: bool = False  # of labels


def examples_from_rows(rows: Iterable[Row], binding: Binding, name: str, bad: BadRows) -> TextSet:
    """Make examples from rows.

    Raises:
        DataError: No row is left, or more rows than `bad` allows are broken, have an empty text, an unknown
            label, or a score that is not a number or out of range.
    """
    examples: list[TextExample] = []
    left_out: Counter[str] = Counter()

    def read_label(row: Row) -> Any:
        if binding.label is None:
            return None
        takes_lists = binding.task_type.takes_lists
        cell = row.cells.get(binding.label) if takes_lists else row.label(binding.label)
        if binding.unlabelled and cell in (None, *binding.unlabelled):
            return None
        return binding.task_type.read(cell, binding.fold_case)

    def read(row: Row) -> TextExample | str:
        if row.problem and binding.tolerant:
            return "broken row"
        row.check()
        if binding.label is not None and row.text(binding.label) in binding.no_label:
            return "no gold label"
        texts = tuple(_text(row, column, binding.tolerant) for column in binding.texts)
        if not all(texts):
            return "empty text"
        trees = tuple(row.text(column) or None for column in binding.trees)
        index = str(len(examples)) if binding.index is None else row.text(binding.index)
        return TextExample(texts, read_label(row), trees, index, row.number)

    for _, example in bad.whole(rows, read):
        if isinstance(example, TextExample):
            examples.append(example)
        else:
            left_out[example] += 1
    return text_set(examples, left_out, name, bad)


def _text(row: Row, column: str, may_be_empty: bool) -> str:
    what, text = f"column {column!r}: expected", row.text(column)
    if column not in row.cells:
        raise ValueError(f"{what} it in every row, got none.")
    if isinstance(row.cells[column], list | dict | bool):  # of JSON
        problem = f"{what} a text, got {str(row.cells[column])[:60]}."
        raise ValueError(f"{problem} Join words with spaces; texts have a column each.")
    if not text and not may_be_empty:
        raise ValueError(f"{what} a text, got an empty one. Remove the row.")
    return text


def text_set(examples: list[TextExample], left_out: Mapping[str, int], name: str, bad: BadRows) -> TextSet:
    """The examples of a source of which all rows were read, without its bad rows."""
    bad.refuse()
    left_out = {**left_out, **({"row that cannot be used": len(bad.rows)} if bad.rows else {})}
    if not examples:
        counts = "".join(f"; left out: {count} ({reason})" for reason, count in left_out.items())
        raise DataError(f"expected at least one example, got none{counts}.", bad.source)
    return TextSet(name, str(bad.source), examples, left_out)


def hash_examples(examples: Iterable[TextExample]) -> str:
    """sha256 over texts, trees and labels."""
    digest = hashlib.sha256()
    for example in examples:
        cells = [*example.texts, *(tree or "" for tree in example.trees), repr(example.label)]
        digest.update("\0".join(cells).encode("utf-8", "surrogatepass"))
        digest.update(b"\n")
    return digest.hexdigest()


def fingerprints(examples: Iterable[TextExample]) -> list[str]:
    """A hash of 48 bits of the text or texts of each example, whatever its label."""
    texts = ("\0".join(example.texts).encode("utf-8", "surrogatepass") for example in examples)
    return [hashlib.blake2b(text, digest_size=6).hexdigest() for text in texts]


_MOST_FINGERPRINTS = 2**28  # bytes of the largest list of fingerprints that is read, of 20 million texts


def n_trained_on(folder: Path, texts: TextSet) -> int:
    """Number of examples whose texts a model was trained on; 0 if its folder has no fingerprints.

    Raises:
        CheckpointError: The list is larger than training writes it.
    """
    path = folder / TRAINED_ON
    if not path.is_file():
        return 0
    if (size := path.stat().st_size) > _MOST_FINGERPRINTS:
        raise CheckpointError(f"{path}: expected at most {_MOST_FINGERPRINTS} bytes, got {size}. Remove it.")
    counts = Counter(fingerprint.encode() for fingerprint in fingerprints(texts.examples))
    with path.open("rb") as lines:
        return sum(counts.pop(line.strip(), 0) for line in lines)
