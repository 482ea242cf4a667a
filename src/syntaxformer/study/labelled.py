"""Which classifier is better on labelled rows: scores, tests, classes, and the rows on which answers differ.

The counterpart for translators is `cases`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from syntaxformer.base.statistics import compare_rows, difference_in_words
from syntaxformer.encoders.classifier import Classifier
from syntaxformer.encoders.tables import TextSet, n_trained_on
from syntaxformer.encoders.task_types import Predictions, TaskType
from syntaxformer.encoders.tasks import missed_note
from syntaxformer.study.document import Block, Heading, Paragraph, Table

Judged = dict[str, dict[str, Any]]
"""What `judge` returns."""


def judge(
    classifier: Classifier,
    texts: TextSet,
    systems: Mapping[str, Predictions],
    folders: Mapping[str, Path],
    baseline_first: bool = False,
) -> Judged:
    """Score classifiers on labelled rows by the first's metrics, and compare it with each of the others.

    The first's predictions come first. `folders` are those of models that may have been trained on the rows.
    If the baseline is first, differences are those of the others from it, instead of the reverse.

    Returns:
        For JSON: name → `scores`, `classes`, `never_predicted`, `only` (the one answer to all rows, or None),
        `n_trained_on`, and for the others `against`: metric → fields of a `Comparison`, if each row
        has one label or score, as the tests need.

    Raises:
        DataError: A row has no label.
    """
    kind, metrics, gold = classifier.task_type, classifier.info.metrics, [one.label for one in texts.examples]
    is_tested = not kind.parts and not kind.takes_lists
    found: Judged = {}
    first: list[Any] = []
    for name, predictions in systems.items():
        answers, told = kind.encode(predictions.labels), predictions.labels
        found[name] = {
            "scores": classifier.score(texts, predictions),
            "classes": kind.class_table(gold, answers),
            "only": told[0] if len(told) > 1 and all(one == told[0] for one in told) else None,
            "never_predicted": kind.never_predicted(gold, answers),
            "n_trained_on": n_trained_on(folders[name], texts) if name in folders else 0,
        }
        if first and is_tested:
            pair = (first, answers) if baseline_first else (answers, first)
            tests = compare_rows(lambda *sides: kind.score(metrics, *sides), gold, *pair)
            found[name]["against"] = {metric: test.as_dict() for metric, test in tests.items()}
        first = first or answers
    return found


def value_notes(judged: Judged, n_rows: int) -> list[str]:
    """What makes scores worth little: classes that are never predicted, one answer, rows of training."""
    notes = []
    for name, row in judged.items():
        if row["never_predicted"]:
            notes.append(f"{name}: {missed_note(row['never_predicted'])}")
        if row["only"] is not None:
            notes.append(f"{name} gives all {n_rows:,} rows the same answer, {row['only']!r}")
        if n := row["n_trained_on"]:
            told = f"{name} was trained on {n:,} of these {n_rows:,} rows"
            notes.append(f"{told}, so its scores say little about new ones")
    if len(judged) > 1 and not any("against" in row for row in judged.values()):
        notes.append("no p: whether scores differ by chance is tested only for one label or score a row")
    return notes


def class_rows(tables: Mapping[str, Mapping[str, Mapping[str, float]]]) -> list[list[str]]:
    """Cells of a table: name of the system, which is shown if there are several → class → values."""
    several = len(tables) > 1
    rows = [["class", *(["model"] * several), "precision", "recall", "F1", "rows"]]
    for label in next(iter(tables.values())):
        for name, table in tables.items():
            *values, n_rows = table[label].values()
            rows.append([label, *([name] * several), *(f"{one:.4f}" for one in values), f"{n_rows:,}"])
    return rows if len(rows) > 1 else []


def labelled_blocks(
    judged: Judged, kind: TaskType, texts: TextSet, systems: Mapping[str, Predictions], n_examples: int = 10
) -> list[Block]:
    """A report of what `judge` returned with `baseline_first`, with `n_examples` rows for each system."""
    names, scored = list(systems), []
    for name, row in judged.items():
        for metric, score in row["scores"].items():
            test = row.get("against", {}).get(metric)
            told = difference_in_words(test, names[0], 4) if test else "–"
            scored.append([name, metric, f"{score:.4f}", told])
    told = (kind.encode(one.labels) if kind.parts else one.labels for one in systems.values())
    answers = list(zip(*told, strict=True))
    places = [place for place, row in enumerate(answers) if len(set(row)) > 1]
    if isinstance(answers[0][0], float):
        places.sort(key=lambda place: min(answers[place]) - max(answers[place]))
    rows = []
    for place in places[: n_examples * len(names)]:
        example = texts.examples[place]
        told = (kind.show(example.label), *answers[place])
        rows.append([str(example.line), *map(_cell, told), " | ".join(example.texts)])
    classes = class_rows({name: row["classes"] for name, row in judged.items()})
    told = [
        f"{len(texts):,} rows of {texts.source}.",
        *(f"{one}." for one in value_notes(judged, len(texts))),
    ]
    return [
        Heading(f"{', '.join(names[:-1])} and {names[-1]}, row by row", 1),
        Paragraph(" ".join(told)),
        Table(["model", "score", "value", "difference"], scored),
        *([Heading("By class"), Table(classes[0], classes[1:])] if classes else []),
        Heading("Where they differ"),
        Paragraph(f"The answers differ on {len(places):,} rows; {len(rows):,} of them follow."),
        *([Table(["line", "label", *names, "text"], rows)] if rows else []),
    ]


def _cell(answer: Any) -> str:
    """An answer, or several; of the right answers to a question (start, text) the texts."""
    if isinstance(answer, tuple):
        return ", ".join(_cell(one[1] if isinstance(one, tuple) else one) for one in answer) or "–"
    return (answer or "–") if isinstance(answer, str) else f"{answer:.4g}"
