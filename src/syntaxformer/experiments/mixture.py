"""Whether finished runs of an experiment saw the same content behind the same paths.

A run is known by its settings, and these name files. Where a file was replaced between two runs, their
numbers do not belong together.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from syntaxformer.experiments.spec import Cell
from syntaxformer.experiments.store import StoredRun

__all__ = ["content_hashes", "mixtures"]

MOST_NAMED = 3
"""Runs that a line names of each content."""


def content_hashes(run: StoredRun) -> dict[str, str]:
    """What a run read → its sha256, as far as the run stored it."""
    found = dict(run.result.get("data_sha256") or {})
    found |= {f"test {side}": value for side, value in (run.result.get("test_sha256") or {}).items()}
    if run.result.get("model_sha256"):
        found["model"] = run.result["model_sha256"]
    return found


def mixtures(runs: Sequence[StoredRun]) -> list[str]:
    """A sentence for each setting behind which finished runs found different content.

    Args:
        runs: Finished ones.
    """
    found: dict[tuple[str, str], dict[str, list[str]]] = {}
    for run in runs:
        for part, value in content_hashes(run).items():
            setting = found.setdefault((part, _setting(run.cell, part)), {})
            setting.setdefault(value, []).append(run.cell.name)
    return list(_sentences(found))


def _sentences(found: dict[tuple[str, str], dict[str, list[str]]]) -> Iterator[str]:
    for (part, _), contents in found.items():
        if len(contents) > 1:
            sides = "; ".join(f"sha256 {value[:12]} in {_names(names)}" for value, names in contents.items())
            yield f"{part}: expected one content behind the same settings, got {len(contents)}: {sides}."


def _names(names: Sequence[str]) -> str:
    rest = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return ", ".join(names[:MOST_NAMED]) + rest


def _setting(cell: Cell, part: str) -> str:
    """What decides which content a run should find; the share that is taken is of the training set only."""
    if part == "model":
        return str(cell.settings.get("model"))
    if part.startswith("test "):
        return json.dumps(cell.test, sort_keys=True)
    if part == "annotation":
        own = {name: value for name, value in cell.settings.items() if not name.startswith("training.")}
        return json.dumps([cell.recipe, {**own, "seed": None}], sort_keys=True, default=str)
    data = {key: value for key, value in cell.settings.items() if key.partition(".")[0] == "data"}
    if part != "train":
        data.pop("data.fraction", None)
    return json.dumps([cell.recipe, cell.settings.get("task"), data], sort_keys=True, default=str)
