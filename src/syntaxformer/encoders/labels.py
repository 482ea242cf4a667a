"""The labels of a table: how often each occurs, and which of them are hardly meant."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from syntaxformer.base.errors import DataError

if TYPE_CHECKING:
    from syntaxformer.encoders.tables import Row

_NO_LABEL = {"", "nan", "none", "null", "n/a", "na", "<na>", "nat"}


def count_labels(rows: Sequence[Row], column: str, source: str | Path) -> Counter[str]:
    """Count the rows of each label.

    Raises:
        DataError: Rows have none, or what they have looks like a header, one class only, or no classes.
    """
    counts: Counter[str] = Counter(row.whole(source).label(column, source) for row in rows)
    if n_bare := counts.pop("", 0):
        bare = [row.number for row in rows if not row.label(column, source)]
        rest = f" Rows without one: {n_bare}." if n_bare > 1 else ""
        raise DataError(
            f"column {column!r}: expected a label, got an empty cell.{rest} Leave out rows without a label.",
            source,
            bare[0],
        )
    if column.isdecimal() and len(rows) > 3:
        _refuse_header(rows[0], counts, column, source)
    if len(counts) < 2:
        raise DataError(
            f"column {column!r}: expected at least two labels, got only {', '.join(map(repr, counts))}.",
            source,
        )
    if len(counts) > 20 and len(counts) > counts.total() / 2:
        raise DataError(
            f"column {column!r}: expected labels that occur again, got {len(counts)} different ones in "
            f"{counts.total()} rows. Name the label's column with --label-column, or use --task regress.",
            source,
        )
    return counts


def _refuse_header(first: Row, counts: Counter[str], column: str, source: str | Path) -> None:
    """Refuse a first row that looks like a header: its label occurs once, while another one repeats."""
    label = first.text(column)
    if counts[label] == 1 and max((n for name, n in counts.items() if name != label), default=0) > 1:
        names = list(first.cells.values())
        raise DataError(
            f"expected rows of text and label, got what looks like a header: {', '.join(map(repr, names))}. "
            f"Give --text-column {names[0]} --label-column {label}, or remove the line; if it is a row, "
            "put it further down.",
            source,
            first.number,
        )


def number_of(cell: Any) -> float | None:
    """The number that a cell spells; None for other text."""
    try:
        return float(cell)
    except (TypeError, ValueError):
        return None


_FORMULA = re.compile(r"'*[=+\-@\t\r]")


def for_spreadsheet(cell: str) -> str:
    """The cell with a quote before it if a spreadsheet would run it as a formula; numbers are none."""
    return f"'{cell}" if _FORMULA.match(cell) and number_of(cell) is None else cell


def from_spreadsheet(cell: str) -> str:
    """The cell that `for_spreadsheet` was given."""
    return cell[1:] if cell.startswith("'") and _FORMULA.match(cell) else cell


def as_whole(label: str) -> str:
    """A label, if it is a whole number without the decimals that pandas writes."""
    return re.sub(r"^([+-]?\d+)\.0+$", r"\1", label)


def odd_labels(labels: Iterable[str]) -> list[str]:
    """What to know of labels that mean none, or differ only in case, invisible characters or as 1 and 1.0."""
    alike: dict[Any, list[str]] = {}
    for label in labels:
        seen = "".join(one for one in label if unicodedata.category(one) != "Cf").casefold()
        alike.setdefault(seen if number_of(seen) is None else number_of(seen), []).append(label)
    told = [
        f"labels {', '.join(map(ascii, one))} are classes of their own. Are they one? Then write them alike."
        for one in alike.values()
        if len(one) > 1
    ]
    none = [label for label in labels if label.casefold() in _NO_LABEL]
    return told + [f"{label!r} is learned as a class. If it means no label, leave it out." for label in none]
