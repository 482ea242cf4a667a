"""Whether finished runs of an experiment differ in what their settings do not say.

A run is known by its settings, and these name files. Where a file was replaced between two runs, the recipe
was edited, or they were made by different code or in different precision, their numbers do not belong
together.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence

from syntaxformer.experiments.provenance import UNKNOWN, value_at
from syntaxformer.experiments.spec import SEED, TRIAL, Cell, Spec
from syntaxformer.experiments.store import StoredRun

__all__ = [
    "code_mixtures",
    "content_hashes",
    "mixtures",
    "precision_mixtures",
    "recipe_mixtures",
    "scoring_mixtures",
]

_DECIDES = {"infuse": "infusion", "seed": "infusion.seed"}
"""Setting → the place that it decides, too."""
_TRAINS = ("torch", "transformers")
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


def recipe_mixtures(runs: Sequence[StoredRun]) -> list[str]:
    """A sentence for each setting that finished runs have two values of, where the experiment gave them one.

    Args:
        runs: Finished ones.
    """
    known = [run for run in runs if run.result.get("recipe")]
    found: dict[tuple[str, str], dict[str, list[str]]] = {}
    for place in dict.fromkeys(key for run in known for key in run.result["recipe"]):
        for run in known:
            value = value_at(run.result["recipe"], place)
            if value is not UNKNOWN:
                sides = found.setdefault((place, _deciding(run.cell, place)), {})
                sides.setdefault(json.dumps(value, sort_keys=True), []).append(run.cell.name)
    expected = "one value where settings are the same"
    return [_sentence(place, expected, sides) for (place, _), sides in found.items() if len(sides) > 1]


def precision_mixtures(spec: Spec, runs: Sequence[StoredRun]) -> list[str]:
    """A sentence for each comparison of runs of different precision, where settings do not ask for it.

    Args:
        spec: What compares them.
        runs: Finished ones.
    """
    return _compared(
        spec,
        runs,
        ("precision", "training.precision", "one where settings do not differ in it"),
        lambda run: run.result["precision"],
        lambda run: run.cell.settings.get("training.precision"),
    )


def code_mixtures(spec: Spec, runs: Sequence[StoredRun]) -> list[str]:
    """A sentence for each comparison of runs of different code: commits, and versions of what trains.

    Args:
        spec: What compares them.
        runs: Finished ones.
    """
    return _compared(spec, runs, ("commit", "code", "one for runs that are compared"), _code)


def _code(run: StoredRun) -> str:
    versions = run.result.get("versions") or {}
    libraries = [f"{name} {versions[name]}" for name in _TRAINS if name in versions]
    return ", ".join([run.result["commit"], *libraries])


def scoring_mixtures(spec: Spec, runs: Sequence[StoredRun]) -> list[str]:
    """A sentence for each comparison of runs that are scored in two ways, as lower-cased and cased text are.

    Args:
        spec: What compares them.
        runs: Finished ones.
    """
    expected = "one way of scoring for runs that are compared"
    return _compared(spec, runs, ("scoring", "scoring", expected), _scored)


def table_mixtures(spec: Spec, runs: Sequence[StoredRun]) -> list[str]:
    """A sentence for each comparison of runs where only some have a table for source words alone.

    Args:
        spec: What compares them.
        runs: Finished ones.
    """
    setting = "model.share_source_embedding"
    return _compared(
        spec,
        runs,
        (
            "source_table",
            "source words' table",
            f"one kind, shared or own, where settings do not differ in {setting}",
        ),
        lambda run: run.result["source_table"],
        lambda run: run.cell.settings.get(setting),
    )


def _scored(run: StoredRun) -> str:
    """The way of scoring, and what became of the references."""
    way = json.dumps(run.result["scoring"], sort_keys=True)
    return f"{way} {note}" if (note := run.result.get("references")) else way


def _compared(
    spec: Spec,
    runs: Sequence[StoredRun],
    about: tuple[str, str, str],
    value: Callable[[StoredRun], str],
    apart: Callable[[StoredRun], object] = lambda _: None,
) -> list[str]:
    """A sentence for each comparison of runs with more than one value.

    Args:
        spec: What compares them.
        runs: Finished ones.
        about: Key of a result without which a run is left out; what the sentence speaks of, and expects.
        value: Of a run.
        apart: Runs that differ in this are meant to differ.
    """
    key, what, expected = about
    outside = {SEED, TRIAL}.union(spec.report.baseline, *spec.report.controls)
    found: dict[str, dict[str, list[str]]] = {}
    for run in runs:
        if not run.result.get(key):
            continue
        shared = {axis: level for axis, level in run.cell.labels.items() if axis not in outside}
        sides = found.setdefault(json.dumps([shared, apart(run)]), {})
        sides.setdefault(value(run), []).append(run.cell.name)
    return [_sentence(what, expected, sides) for sides in found.values() if len(sides) > 1]


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


def _sentences(found: dict[tuple[str, str], dict[str, list[str]]]) -> Iterator[str]:
    for (part, _), contents in found.items():
        if len(contents) > 1:
            sides = {f"sha256 {value[:12]}": names for value, names in contents.items()}
            yield _sentence(part, "one content behind the same settings", sides)


def _sentence(what: str, expected: str, found: Mapping[str, Sequence[str]]) -> str:
    sides = "; ".join(f"{value} in {_names(list(dict.fromkeys(names)))}" for value, names in found.items())
    return f"{what}: expected {expected}, got {len(found)}: {sides}."


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
