"""`FactorVocabulary`: the values of one factor and their ids, and the count of values that it does not know.

Stored as JSON inside a model folder. Knows nothing of words or pieces: see `factors`.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeGuard, cast

import numpy as np
from numpy.typing import NDArray

from syntaxformer.base.errors import CheckpointError, ConfigError
from syntaxformer.syntax.columns import CodedColumn

__all__ = ["NONE", "UNKNOWN", "FactorVocabulary", "UnseenFactorValueWarning", "UnseenValues"]

NONE, UNKNOWN = "<none>", "<unk>"
_RESERVED = (NONE, UNKNOWN)
_LISTED_VALUES = 10


class UnseenFactorValueWarning(UserWarning):
    """Values of a factor that the model never saw in training."""


class UnseenValues:
    """Collects factor values that were read as `<unk>`, for one warning about all of them."""

    def __init__(self) -> None:
        self.counts: dict[str, Counter[str]] = {}

    def add(self, factor: str, counts: Mapping[str, int]) -> None:
        """Count further unseen values of a factor."""
        if counts:
            self.counts.setdefault(factor, Counter()).update(counts)

    def message(self) -> str | None:
        """One line: per factor how many values were unseen, and which; None where all were known."""
        return "; ".join(_unseen(factor, counts) for factor, counts in self.counts.items()) or None

    def warn(self) -> None:
        """Give the one warning, where there is something to warn of, and start again from zero."""
        message = self.message()
        self.counts.clear()
        if message:
            warnings.warn(message, UnseenFactorValueWarning, stacklevel=2)


def _unseen(factor: str, counts: Counter[str]) -> str:
    total = counts.total()
    listed = ", ".join(f"{value!r} {count}x" for value, count in counts.most_common(_LISTED_VALUES))
    others = f" and {len(counts) - _LISTED_VALUES} more" if len(counts) > _LISTED_VALUES else ""
    plural = "value" if total == 1 else "values"
    return f"factor {factor}: {total} {plural} unseen in training read as {UNKNOWN}: {listed}{others}"


@dataclass(frozen=True, slots=True)
class FactorVocabulary:
    """Values of one factor; id 0 is `<none>`, 1 is `<unk>`, then come the values in order.

    Args:
        name: The factor.
        values: Distinct values, without the two reserved ones.

    Raises:
        ConfigError: A value that stands twice or is reserved.
    """

    name: str
    values: tuple[str, ...]

    def __post_init__(self) -> None:
        problems = _value_problems(self.values)
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
        """An open vocabulary out of data, most frequent value first, ties by name.

        Args:
            name: The factor.
            counts: How often each value was seen.
            min_count: Values seen less often stay out and are read as `<unk>`, so that this entry is trained.

        Raises:
            ConfigError: No value is frequent enough.
        """
        frequent = {value: n for value, n in counts.items() if n >= min_count and value not in _RESERVED}
        kept = sorted(frequent, key=lambda value: (-frequent[value], value))
        if not kept:
            raise ConfigError(
                f"factor {name}: expected a value seen {min_count} times or more, got none of {len(counts)}. "
                "Lower min_count or leave the factor out."
            )
        return cls(name, tuple(kept))

    def encode(self, values: Sequence[str], unseen: UnseenValues | None = None) -> NDArray[np.integer[Any]]:
        """Ids of values, `[items]`, in `dtype`; see `encode_column`."""
        return self.encode_column(CodedColumn.from_values(values), unseen)

    def encode_column(
        self, column: CodedColumn, unseen: UnseenValues | None = None
    ) -> NDArray[np.integer[Any]]:
        """Ids of a coded column.

        Args:
            column: Items without a value (code -1) get the id of `<none>`.
            unseen: Where to count values that are not in the vocabulary, and get the id of `<unk>`.

        Returns:
            `[items]`, in `dtype`.
        """
        ids = {value: index for index, value in enumerate(self.entries)}
        # The last entry is that of code -1.
        table = np.array([ids.get(value, 1) for value in column.values] + [0], self.dtype)
        if unseen is not None:
            # Shifted by one, since bincount takes no -1.
            counts = np.bincount(column.codes + 1, minlength=len(column.values) + 1)[1:].tolist()
            occurring = zip(column.values, counts, strict=True)
            unseen.add(self.name, {value: n for value, n in occurring if n and ids.get(value, 1) == 1})
        return table[column.codes]

    def decode(self, ids: NDArray[np.integer[Any]]) -> list[str]:
        """Values of ids, with `<none>` and `<unk>` spelled out."""
        entries = self.entries
        return [entries[index] for index in ids.tolist()]

    def to_dict(self) -> dict[str, Any]:
        """A form that JSON can hold; `from_dict` reads it."""
        return {"name": self.name, "values": list(self.values)}

    @classmethod
    def from_dict(cls, stored: Any) -> FactorVocabulary:
        """Read what `to_dict` wrote.

        Raises:
            CheckpointError: Anything else.
        """
        content = cast("dict[str, object]", stored) if isinstance(stored, dict) else {}
        name, values = content.get("name"), content.get("values")
        if set(content) != {"name", "values"} or not isinstance(name, str) or not _is_strings(values):
            shown = repr(cast("object", stored))[:80]
            raise CheckpointError(
                f'factor vocabulary: expected {{"name": string, "values": [strings]}}, got {shown}. '
                "The model folder was altered or written by another version."
            )
        try:
            return cls(name, tuple(values))
        except ConfigError as error:
            raise CheckpointError(f"factor vocabulary: {error}") from error


def _is_strings(values: object) -> TypeGuard[list[str]]:
    return isinstance(values, list) and all(isinstance(value, str) for value in cast("list[object]", values))


def _value_problems(values: Sequence[str]) -> list[str]:
    counts = Counter(values)
    problems = [f"expected distinct values, got {value!r} {n} times." for value, n in counts.items() if n > 1]
    reserved = [value for value in _RESERVED if value in counts]
    return problems + [
        f"expected values other than {NONE} and {UNKNOWN}, got {value!r}." for value in reserved
    ]
