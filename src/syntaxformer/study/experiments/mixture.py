"""Whether finished runs of an experiment differ in what their settings do not say.

A run is known by its settings, and these name files. Where a file was replaced between two runs, the recipe
was edited, or they were made by different code or in different precision, their numbers do not belong
together.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from syntaxformer.study.experiments.provenance import UNKNOWN, value_at
from syntaxformer.study.experiments.spec import SEED, TRIAL, Cell, Spec
from syntaxformer.study.experiments.store import StoredRun

__all__ = ["content_hashes", "mixtures"]

_DECIDES = {"infuse": "infusion", "seed": "infusion.seed"}
"""Setting → the place that it decides, too."""
_TRAINS = ("torch", "transformers")
_TABLE = "model.share_source_embedding"
MOST_NAMED = 3
"""Runs that a line names of each content."""

Found = Iterable[tuple[str, str, str, StoredRun]]
"""What is looked at, the runs that should have it in common, the value, and a run that has it."""


def content_hashes(run: StoredRun) -> dict[str, str]:
    """What a run read → its sha256, as far as the run stored it."""
    found = dict(run.result.get("data_sha256") or {})
    found |= {f"test {side}": value for side, value in (run.result.get("test_sha256") or {}).items()}
    if run.result.get("model_sha256"):
        found["model"] = run.result["model_sha256"]
    return found


def mixtures(spec: Spec, runs: Sequence[StoredRun]) -> Iterator[tuple[str, list[str], str]]:
    """What finished runs differ in though they should not: what it is, a sentence for each case, a remedy.

    Args:
        spec: What compares them.
        runs: Finished ones.
    """
    for check in CHECKS:
        found: dict[tuple[str, str], dict[str, list[str]]] = {}
        for what, group, value, run in check.find(spec, runs):
            found.setdefault((what, group), {}).setdefault(value, []).append(run.cell.name)
        sentences = [
            f"{what}: expected {check.expected}, got {len(sides)}: "
            f"{'; '.join(f'{value} in {_names(names)}' for value, names in sides.items())}."
            for (what, _), sides in found.items()
            if len(sides) > 1
        ]
        if sentences:
            yield check.title, sentences, check.remedy


def _names(repeated: Sequence[str]) -> str:
    names = list(dict.fromkeys(repeated))
    rest = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return ", ".join(names[:MOST_NAMED]) + rest


def _contents(_: Spec, runs: Sequence[StoredRun]) -> Found:
    for run in runs:
        for part, value in content_hashes(run).items():
            yield part, _setting(run.cell, part), f"sha256 {value[:12]}", run


def _recipes(_: Spec, runs: Sequence[StoredRun]) -> Found:
    places = dict.fromkeys(key for run in runs for key in run.result.get("recipe") or ())
    for place, run in product(places, runs):
        value = value_at(run.result.get("recipe") or {}, place)
        if value is not UNKNOWN:
            yield place, _deciding(run.cell, place), json.dumps(value, sort_keys=True), run


def _compared(
    what: str, key: str, value: Callable[[StoredRun], str] | None = None, setting: str = ""
) -> Callable[[Spec, Sequence[StoredRun]], Found]:
    """Values of runs that a report compares.

    Args:
        what: What the sentence speaks of.
        key: Of a result; a run without it is left out.
        value: Of a run; what stands at the key by default.
        setting: Runs that differ in it are meant to differ.
    """

    def find(spec: Spec, runs: Sequence[StoredRun]) -> Found:
        outside = {SEED, TRIAL}.union(spec.report.baseline, *spec.report.controls)
        for run in (one for one in runs if one.result.get(key)):
            shared = {axis: level for axis, level in run.cell.labels.items() if axis not in outside}
            group = json.dumps([shared, run.cell.settings.get(setting)])
            yield what, group, value(run) if value else run.result[key], run

    return find


def _code(run: StoredRun) -> str:
    """Commit, and versions of what trains."""
    versions = run.result.get("versions") or {}
    libraries = [f"{name} {versions[name]}" for name in _TRAINS if name in versions]
    return ", ".join([run.result["commit"], *libraries])


def _scored(run: StoredRun) -> str:
    """The way of scoring, and what became of the references."""
    way = json.dumps(run.result["scoring"], sort_keys=True)
    return f"{way} {note}" if (note := run.result.get("references")) else way


@dataclass(frozen=True, slots=True)
class Check:
    """Something that runs which belong together have in common."""

    title: str
    expected: str
    remedy: str
    find: Callable[[Spec, Sequence[StoredRun]], Found]


CHECKS = (
    Check("data", "one content behind the same settings", "Put the old content back", _contents),
    Check("recipes", "one value where settings are the same", "Put the recipe back", _recipes),
    Check(
        "precision",
        "one where settings do not differ in it",
        "Give training.precision in settings",
        _compared("training.precision", "precision", setting="training.precision"),
    ),
    Check(
        "code",
        "one for runs that are compared",
        "Check out the commit of the others",
        _compared("code", "commit", _code),
    ),
    Check(
        "tables",
        f"one kind, shared or own, where settings do not differ in {_TABLE}",
        f"Set {_TABLE}: false for the baseline, too",
        _compared("source words' table", "source_table", setting=_TABLE),
    ),
    Check(
        "scoring",
        "one way of scoring for runs that are compared",
        "Compare systems whose output has one form",
        _compared("scoring", "scoring", _scored),
    ),
)


def _deciding(cell: Cell, place: str) -> str:
    """The settings of a run that say what stands at a place of its recipe: it, around it or below it."""
    given = {
        name: value
        for name, value in cell.settings.items()
        if _is_in(place, name) or _is_in(name, place) or _is_in(place, _DECIDES.get(name, name))
    }
    return json.dumps(given, sort_keys=True, default=str)


def _is_in(place: str, section: str) -> bool:
    return f"{place}.".startswith(f"{section}.")


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
