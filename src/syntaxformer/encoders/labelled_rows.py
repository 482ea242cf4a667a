"""Rows to labelled examples: the one place that checks texts, labels and scores."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from syntaxformer.base.config import nearest
from syntaxformer.base.errors import DataError
from syntaxformer.encoders.tables import BrokenRow, Row
from syntaxformer.encoders.text_sets import TextExample, TextSet

__all__ = ["Binding", "examples_from_rows", "one_line", "unlabelled_cells"]

_MOST_SHOWN = 12


@dataclass(frozen=True, kw_only=True)
class Binding:
    """Which column of a table is what.

    Args:
        texts: Column of each text.
        label: Column of the label; None where there is none, as in a test set.
        labels: Label → class number; None for scores.
        trees: Column of each text's tree; empty where there are none.
        index: Column that numbers the examples; None counts them from 0.
        no_label: Labels whose rows are left out, and counted.
        score_range: Smallest and largest score.
        tolerant: Leave out, and count, broken rows and empty texts.
        unlabelled: Cells in place of a label that mean that the row has none, as in test sets.
        fold_case: Labels count as equal whatever their case.
    """

    texts: Sequence[str]
    label: str | None
    labels: Mapping[str, int] | None
    trees: Sequence[str] = ()
    index: str | None = None
    no_label: Sequence[str] = ()
    score_range: tuple[float, float] | None = None
    tolerant: bool = False
    unlabelled: Sequence[str] = ()
    fold_case: bool = False


def examples_from_rows(
    rows: Iterable[Row | BrokenRow], binding: Binding, name: str, source: str | Path
) -> TextSet:
    """Make examples of rows.

    Args:
        rows: The table.
        binding: Its columns.
        name: Of the split.
        source: Where the rows came from, for messages.

    Raises:
        DataError: With the line: a broken row, an empty text, an unknown label, a score that is no number or
            out of range. Or no row is left.
    """
    examples: list[TextExample] = []
    left_out: Counter[str] = Counter()
    for row in rows:
        reason = _reason_to_leave_out(row, binding, source)
        if reason or isinstance(row, BrokenRow):
            left_out[reason or "broken row"] += 1
            continue
        texts = tuple(one_line(row.cells[column]) for column in binding.texts)
        label = None if binding.label is None else _label(row, binding, source)
        trees = tuple(one_line(row.cells.get(column)) or None for column in binding.trees)
        index = str(len(examples)) if binding.index is None else one_line(row.cells.get(binding.index))
        examples.append(TextExample(texts, label, trees, index, row.number))
    if not examples:
        raise DataError(f"expected at least one example, got none{_counts(left_out)}.", source)
    return TextSet(name, str(source), examples, dict(left_out))


def _reason_to_leave_out(row: Row | BrokenRow, binding: Binding, source: str | Path) -> str | None:
    """Why a row is left out; None for one that is read.

    Raises:
        DataError: The row cannot be read, and the task does not leave such rows out.
    """
    if isinstance(row, BrokenRow):
        if binding.tolerant:
            return "broken row"
        raise row.error(source)
    if binding.label is not None and one_line(row.cells.get(binding.label)) in binding.no_label:
        return "no gold label"
    for column in binding.texts:
        if column not in row.cells:
            raise DataError(f"column {column!r}: expected it in every row, got none.", source, row.number)
        if not one_line(row.cells[column]):
            if binding.tolerant:
                return "empty text"
            raise DataError(
                f"column {column!r}: expected a text, got an empty one. Remove the row.", source, row.number
            )
    return None


def unlabelled_cells(labels: Iterable[str] | None, more: Sequence[str] = ()) -> list[str]:
    """What stands for no label in test sets: nothing, or -1 where that is neither a label nor a score.

    Args:
        labels: Label names; None for scores.
        more: The task's own.
    """
    return [""] if labels is None else [cell for cell in ("", "-1", *more) if cell not in labels]


def one_line(cell: Any) -> str:
    """A cell as one line of text, with one space where there was white space."""
    return "" if cell is None else " ".join(str(cell).split())


def _label(row: Row, binding: Binding, source: str | Path) -> int | float | None:
    cell = one_line(row.cells.get(binding.label or ""))
    if cell in binding.unlabelled:
        return None
    if binding.labels is None:
        return _score(cell, binding, source, row.number)
    key = cell.lower() if binding.fold_case else cell
    if key not in binding.labels:
        known = list(binding.labels)
        shown = ", ".join(known[:_MOST_SHOWN]) + (", …" if len(known) > _MOST_SHOWN else "")
        hint = f" {nearest(cell, known)}" if cell and len(known) > _MOST_SHOWN else ""
        raise DataError(f"label: expected one of {shown}, got {cell!r}.{hint}", source, row.number)
    return binding.labels[key]


def _score(cell: str, binding: Binding, source: str | Path, number: int) -> float:
    try:
        score = float(cell)
    except ValueError:
        score = math.nan
    if not math.isfinite(score):
        raise DataError(f"score: expected a finite number, got {cell!r}.", source, number)
    low, high = binding.score_range or (-math.inf, math.inf)
    if not low <= score <= high:
        raise DataError(f"score: expected {low:g} to {high:g}, got {cell}.", source, number)
    return score


def _counts(left_out: Mapping[str, int]) -> str:
    return "".join(f"; left out: {count} ({reason})" for reason, count in left_out.items())
