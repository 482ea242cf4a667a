"""Which classifier is better on labelled rows: scores, tests, classes, and the rows on which answers differ.

The counterpart for translators is `cases`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from syntaxformer.base.statistics import compare_rows, difference_in_words
from syntaxformer.encoders.classifier import Classifier
from syntaxformer.encoders.examples import TextSet, n_trained_on
from syntaxformer.encoders.task_types import Predictions, Score, TaskType
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
    kind, metrics = classifier.task_type, classifier.info.metrics
    gold = [example.label for example in texts.examples]
    is_tested = not kind.parts and not kind.takes_lists
    judged: Judged = {}
    first: list[Any] = []
    for name, predictions in systems.items():
        labels, answers = predictions.labels, kind.encode(predictions.labels)
        judged[name] = {
            "scores": classifier.score(texts, predictions),
            "classes": kind.class_table(gold, answers),
            "only": labels[0] if len(labels) > 1 and all(label == labels[0] for label in labels) else None,
            "never_predicted": kind.never_predicted(gold, answers),
            "n_trained_on": n_trained_on(folders[name], texts) if name in folders else 0,
        }
        if first and is_tested:
            pair = (first, answers) if baseline_first else (answers, first)
            if isinstance(kind, Score):  # correlations know no scale, but exchanging answers does
                pair = [np.subtract(side, np.mean(side)) / (np.std(side) or 1) for side in pair]
            tests = compare_rows(lambda *sides: kind.score(metrics, *sides), gold, *pair)
            judged[name]["against"] = {metric: test.as_dict() for metric, test in tests.items()}
        first = first or answers
    return judged


def value_notes(judged: Judged, n_rows: int) -> list[str]:
    """What makes scores worth little: classes that are never predicted, one answer, rows of training."""
    notes = []
    for name, row in judged.items():
        if row["never_predicted"]:
            notes.append(f"{name}: {missed_note(row['never_predicted'])}")
        if row["only"] is not None:
            notes.append(f"{name} gives all {n_rows:,} rows the same answer, {row['only']!r}")
        if n := row["n_trained_on"]:
            note = f"{name} was trained on {n:,} of these {n_rows:,} rows"
            notes.append(f"{note}, so its scores say little about new ones")
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
            rows.append([label, *([name] * several), *(f"{value:.4f}" for value in values), f"{n_rows:,}"])
    return rows if len(rows) > 1 else []


def labelled_blocks(
    judged: Judged, kind: TaskType, texts: TextSet, systems: Mapping[str, Predictions], n_examples: int = 10
) -> list[Block]:
    """A report of what `judge` returned with `baseline_first`, with `n_examples` rows for each system.

    Classes: rows that the first gets wrong stand first, as in Sundararaman et al. (2019), table 4.
    """
    names, scored = list(systems), []
    for name, row in judged.items():
        for metric, score in row["scores"].items():
            test = row.get("against", {}).get(metric)
            difference = difference_in_words(test, names[0], 4) if test else "–"
            scored.append([name, metric, f"{score:.4f}", difference])
    of_systems = [
        kind.encode(predictions.labels) if kind.parts else predictions.labels
        for predictions in systems.values()
    ]
    answers = list(zip(*of_systems, strict=True))
    differing = [number for number, row in enumerate(answers) if len(set(row)) > 1]
    shown, gains = [kind.show(example.label) for example in texts.examples], ""
    if isinstance(answers[0][0], float):
        differing.sort(key=lambda number: min(answers[number]) - max(answers[number]))
    elif not kind.parts and not kind.takes_lists:
        differing.sort(key=lambda number: answers[number][0] == shown[number])
        for system, name in enumerate(names[1:], 1):
            pairs = [(answers[n][system] == shown[n], answers[n][0] == shown[n]) for n in differing]
            better, worse = pairs.count((True, False)), pairs.count((False, True))
            gains += f" {name} is right and {names[0]} wrong on {better:,}, the reverse on {worse:,}."
    rows = []
    for number in differing[: n_examples * len(names)]:
        example = texts.examples[number]
        cells = map(_cell, (shown[number], *answers[number]))
        rows.append([str(example.line), *cells, " | ".join(example.texts)])
    classes = class_rows({name: row["classes"] for name, row in judged.items()})
    notes = [f"{len(texts):,} rows of {texts.source}", *value_notes(judged, len(texts))]
    return [
        Heading(f"{', '.join(names[:-1])} and {names[-1]}, row by row", 1),
        Paragraph(" ".join(f"{note}." for note in notes)),
        Table(["model", "score", "value", "difference"], scored),
        *([Heading("By class"), Table(classes[0], classes[1:])] if classes else []),
        Heading("Where they differ"),
        Paragraph(f"The answers differ on {len(differing):,} rows; {len(rows):,} of them follow.{gains}"),
        *([Table(["line", "label", *names, "text"], rows)] if rows else []),
    ]


def _cell(answer: Any) -> str:
    """An answer, or several; of the right answers to a question (start, text) the texts."""
    if isinstance(answer, tuple):
        texts = (right[1] if isinstance(right, tuple) else right for right in answer)
        return ", ".join(map(_cell, texts)) or "–"
    return (answer or "–") if isinstance(answer, str) else f"{answer:.4g}"
