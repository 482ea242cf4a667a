"""Contrastive tests: how often a model finds a right translation more probable than wrong ones."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import AliasChoices, BaseModel, ConfigDict, Field, ValidationError

from syntaxformer.base.config import nearest
from syntaxformer.base.errors import ConfigError, DataError
from syntaxformer.base.files import read_lines
from syntaxformer.base.statistics import wilson_interval
from syntaxformer.translation.decoding import Score
from syntaxformer.translation.scoring import paired_bootstrap

MOST_GROUPS = 200
ALONE = 16
"""Whole numbers below this are groups of their own; larger ones are grouped by powers of two."""

_log = logging.getLogger("syntaxformer.score")
_Text = Annotated[str, Field(pattern=r"\S")]


class WrongTranslation(BaseModel):
    """A wrong translation; other keys describe it."""

    model_config = ConfigDict(extra="allow")
    contrastive: _Text


class Contrast(BaseModel):
    """A source with its right translation and wrong ones; other keys describe it."""

    model_config = ConfigDict(extra="allow", populate_by_name=True)
    source: _Text = Field(validation_alias=AliasChoices("source", "src segment"))
    reference: _Text = Field(validation_alias=AliasChoices("reference", "ref segment"))
    errors: list[WrongTranslation] = Field(min_length=1)

    @property
    def translations(self) -> list[str]:
        """All translations, the right one first."""
        return [self.reference, *(error.contrastive for error in self.errors)]


def read_contrasts(path: Path) -> list[Contrast]:
    """Read a contrastive test: a JSON list as LingEval97 and ContraPro publish it, or a table with tabs.

    A row of the table has the columns source, reference and contrastive, and others that describe it.

    Raises:
        DataError: It is none of these, or an entry or row lacks a text.
    """
    is_json, contrasts = ".json" in path.suffixes, []
    for number, record in _entries(path) if is_json else _rows(path):
        try:
            contrasts.append(Contrast.model_validate(record))
        except ValidationError as error:
            problem = error.errors()[0]
            message = (
                f"{'.'.join(map(str, problem['loc']))}: expected a text or texts, got: {problem['msg']}."
            )
            if is_json:
                raise DataError(f"entry {number}: {message}", path) from error
            raise DataError(message.replace("errors.0.", ""), path, number) from error
    if not contrasts:
        raise DataError("expected at least one contrast, got none.", path)
    return contrasts


def _entries(path: Path) -> Iterator[tuple[int, Any]]:
    try:
        entries = json.loads("\n".join(read_lines(path, is_document=True)))
    except (ValueError, RecursionError) as error:
        raise DataError(f"expected JSON, got: {error}.", path) from error
    if not isinstance(entries, list):
        raise DataError(f"expected a JSON list, got {type(entries).__name__}.", path)
    is_empty = [isinstance(entry, dict) and entry.get("errors") == [] for entry in entries]
    if any(is_empty):  # some sentences of published tests gave no wrong translation
        _log.warning("%s: left out %d of %d entries without errors", path, sum(is_empty), len(entries))
    yield from ((n + 1, entry) for n, entry in enumerate(entries) if not is_empty[n])


def _rows(path: Path) -> Iterator[tuple[int, Any]]:
    lines = enumerate(read_lines(path), 1)
    header = next(lines, (1, ""))[1].split("\t")
    for number, line in lines:
        cells = line.split("\t")
        if len(cells) != len({*header}):
            raise DataError(f"expected {len({*header})} cells, got {len(cells)}.", path, number)
        row = dict(zip(header, cells, strict=True))
        of_source = {name: row.pop(name) for name in ("source", "reference") if name in row}
        yield number, {**of_source, "errors": [row]}


def check_key(contrasts: Sequence[Contrast], by: str) -> None:
    """Check that a key describes sources or wrong translations; raise ConfigError if not."""
    keys = {key for line in contrasts for entry in (line, *line.errors) for key in entry.model_extra or {}}
    if by not in keys:
        hint = nearest(by, sorted(keys)) if keys else "This test has none."
        raise ConfigError(f"--by: expected a key of the contrastive test, got {by}. {hint}")


def contrast_table(
    contrasts: Sequence[Contrast], systems: Mapping[str, Sequence[Sequence[Score]]], by: str | None = None
) -> list[dict[str, Any]]:
    """How often systems find the right translation more probable, in per cent, with Wilson's intervals.

    Pairs of a right and a wrong translation count, as in LingEval97, and sources whose right translation is
    more probable than all wrong ones, as in ContraPro.

    Args:
        contrasts: The test.
        systems: Name → the scores of each source's translations.
        by: A key, by whose values pairs are grouped, or sources if it describes these.

    Returns:
        For JSON: of each group its name, `n`, and by system the fields of an `Interval`; and in `against`
        those of a `Comparison`, the first system's difference over resampled sources.

    Raises:
        ConfigError: The key has more than `MOST_GROUPS` values.

    Source: Sennrich (2017), "How Grammatical is Character-level NMT?"; Müller et al. (2018).
    """
    tables: dict[tuple[int, int, str], dict[str, Any]] = {}
    for name, scores in systems.items():
        for row, (contrast, (right, *wrong)) in enumerate(zip(contrasts, scores, strict=True)):
            of_pairs = [right.log_prob > other.log_prob for other in wrong]
            decisions = [((0, 0, "pairs"), is_right) for is_right in of_pairs]
            decisions.append(((0, 1, "sources"), all(of_pairs)))
            if by is not None and by in (columns := contrast.model_extra or {}):
                decisions.append((_group(by, columns[by]), all(of_pairs)))
            elif by is not None:
                values = (_group(by, (error.model_extra or {}).get(by)) for error in contrast.errors)
                decisions += zip(values, of_pairs, strict=True)
            for group, is_right in decisions:
                table = tables.setdefault(group, {}).setdefault(name, np.zeros((len(contrasts), 2)))
                table[row] += is_right, 1
            if len(tables) > MOST_GROUPS:
                raise ConfigError(f"--by: expected a key of at most {MOST_GROUPS} values, got {by}.")
    return [_measured(group, tables[group]) for group in sorted(tables)]


def _measured(group: tuple[int, int, str], tables: Mapping[str, Any]) -> dict[str, Any]:
    """A row of `contrast_table`; `tables` are by system `[sources, 2]`, right decisions and all."""
    systems, first, n = dict[str, Any](), None, 0
    for name, table in tables.items():
        of_group = table[table[:, 1] > 0]
        n_right, n = map(int, of_group.sum(0))
        systems[name] = wilson_interval(n_right, n).as_dict()
        if first is not None:
            test = paired_bootstrap(of_group, first, lambda sums: 100 * float(sums[0] / sums[1]))
            systems[name]["against"] = test.as_dict()
        first = of_group if first is None else first
    return {"group": group[2], "n": n, "systems": systems}


def _group(by: str, value: Any) -> tuple[int, int, str]:
    """Order and name of a value's group: numbers, then texts, then no value."""
    text = value if isinstance(value, str) else "" if value is None else json.dumps(value, ensure_ascii=False)
    if not re.fullmatch(r"-?\d{1,18}", text):
        return (2 if text else 3), 0, f"{by} {text or 'none'}"
    n = int(text)
    low = n if n < ALONE else 1 << n.bit_length() - 1
    return 1, low, f"{by} {low}" if n < ALONE else f"{by} {low} to {2 * low - 1}"
