"""Which classifier is better on labelled rows: scores, tests, classes, and the rows on which answers differ.

The counterpart for translators is `cases`.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from io import StringIO
from pathlib import Path
from typing import Any

from syntaxformer.base.errors import ConfigError
from syntaxformer.base.statistics import compare_rows
from syntaxformer.encoders.classifier import Classifier
from syntaxformer.encoders.tables import TextSet, n_trained_on
from syntaxformer.encoders.task_types import Predictions
from syntaxformer.study.document import Block, Heading, Marked, Paragraph, Table


def judge(
    classifier: Classifier,
    texts: TextSet,
    systems: Mapping[str, Predictions],
    baseline_first: bool = False,
) -> dict[str, dict[str, Any]]:
    """Score classifiers on labelled rows, and compare the first with each of the others.

    Args:
        classifier: The first; its metrics count.
        texts: The rows.
        systems: Name → predictions for the rows, those of the first classifier first.
        baseline_first: Differences are those of the others from the first, instead of the reverse.

    Returns:
        For JSON: name → `scores`, `classes` (see `TaskType.class_table`), `only` (the one answer that it gives
        to all rows, or None), and for the others `against`: metric → fields of a `Comparison`.

    Raises:
        DataError: A row has no label.
        ConfigError: There are several systems, and the answers are neither labels nor scores of rows.
    """
    kind, metrics = classifier.task_type, classifier.info.metrics
    gold = [one.label for one in texts.examples]
    found: dict[str, dict[str, Any]] = {}
    first: list[Any] = []
    for name, predictions in systems.items():
        answers = kind.encode(predictions.labels)
        row: dict[str, Any] = {"scores": classifier.score(texts, predictions)}
        row |= {"classes": kind.class_table(gold, answers), "only": None}
        if predictions.labels.count(predictions.labels[0]) == len(predictions):  # type: ignore[arg-type]
            row["only"] = predictions.labels[0]
        if first and not all(isinstance(label, int | float) for label in gold):
            raise ConfigError("--baseline: expected a task with one label or score a row, got another.")
        if first:
            pair = (first, answers) if baseline_first else (answers, first)
            tests = compare_rows(lambda *sides: kind.score(metrics, *sides), gold, *pair)
            row["against"] = {metric: test.as_dict() for metric, test in tests.items()}
        found[name], first = row, first or answers
    return found


def with_trained_on(
    judged: dict[str, dict[str, Any]], folders: Mapping[str, Path], texts: TextSet
) -> dict[str, dict[str, Any]]:
    """Add `n_trained_on`, the number of rows whose texts a model was trained on, to what `judge` returned."""
    counts = {name: n_trained_on(folder, texts) for name, folder in folders.items()}
    return {name: {**row, "n_trained_on": counts.get(name, 0)} for name, row in judged.items()}


def value_notes(judged: Mapping[str, Mapping[str, Any]], n_rows: int) -> list[str]:
    """What makes scores worth little: one answer to all rows, or rows that a model was trained on."""
    notes = []
    for name, row in judged.items():
        if row["only"] is not None and n_rows > 1:
            no_p = ", so no difference from it has a p" * (len(judged) > 1)
            notes.append(f"{name} gives all {n_rows:,} rows the same answer, {row['only']!r}{no_p}")
        if n := row["n_trained_on"]:
            what = f"was trained on {n:,} of these {n_rows:,} rows, so its scores say little about new ones"
            notes.append(f"{name} {what}")
    return notes


def class_rows(tables: Mapping[str, Mapping[str, Mapping[str, float]]]) -> list[list[str]]:
    """Cells of a table with precision, recall, F1 and number of rows of each class, for each system.

    Args:
        tables: Name of the system → class → values; the name is shown if there are several.
    """
    one = len(tables) == 1
    rows = [["class", *([] if one else ["model"]), "precision", "recall", "F1", "rows"]]
    for label in next(iter(tables.values())):
        for name, table in tables.items():
            values = [f"{table[label][key]:.4f}" for key in ("precision", "recall", "f1")]
            rows.append([label, *([] if one else [name]), *values, f"{table[label]['support']:,}"])
    return rows


def differing_rows(kind: Any, texts: TextSet, systems: Mapping[str, Predictions]) -> list[list[str]]:
    """Cells of a table of the rows on which answers differ: line, label, each answer, each text.

    Scores are sorted by how far they are apart, and labels as the rows stand in the file.
    """
    answers = list(zip(*(one.labels for one in systems.values()), strict=True))
    places = [place for place, row in enumerate(answers) if len(set(row)) > 1]
    if not kind.names:
        places.sort(key=lambda place: min(answers[place]) - max(answers[place]))
    n_texts = len(texts.examples[0].texts)
    header = ["line", "label", *systems, *["text", "text_pair"][:n_texts]]
    rows = [(texts.examples[place], answers[place]) for place in places]
    return [
        header,
        *([str(one.line), *map(_shown, (kind.show(one.label), *row)), *one.texts] for one, row in rows),
    ]


def _shown(answer: str | float) -> str:
    return answer if isinstance(answer, str) else f"{answer:.4g}"


def as_csv(rows: Sequence[Sequence[str]]) -> str:
    """Rows as CSV."""
    text = StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


def labelled_blocks(
    judged: Mapping[str, Mapping[str, Any]],
    differing: Sequence[Sequence[str]],
    texts: TextSet,
    n_examples: int = 10,
) -> list[Block]:
    """A report of `judge` with `baseline_first`, for `document.to_markdown`.

    Args:
        judged: What `judge` returned.
        differing: What `differing_rows` returned.
        texts: The rows.
        n_examples: Number of differing rows to show for each system.
    """
    names, n_differing = list(judged), len(differing) - 1
    metrics = list(judged[names[0]]["scores"])
    told = [f"{note}." for note in value_notes(judged, len(texts))]
    scores = [[name, *(f"{row['scores'][metric]:.4f}" for metric in metrics)] for name, row in judged.items()]
    tests = [
        [
            name,
            metric,
            f"{one['difference']:+.4f}",
            "–" if one["low"] is None else f"{one['low']:+.4f} to {one['high']:+.4f}",
            "–" if one["p_value"] is None else f"{one['p_value']:.3f}",
            one["no_p"] or one["test"],
        ]
        for name in names[1:]
        for metric, one in judged[name]["against"].items()
    ]
    shown = differing[1 : 1 + n_examples * len(names)]
    marked = [
        [*row[:2], *(_marked(cell, row[1]) for cell in row[2 : 2 + len(names)]), *row[2 + len(names) :]]
        for row in shown
    ]
    of_classes = class_rows({name: row["classes"] for name, row in judged.items()})
    return [
        Heading(f"{', '.join(names[:-1])} and {names[-1]}, row by row", 1),
        Paragraph(
            " ".join(
                [f"{len(texts):,} rows of {texts.source}; the answers differ on {n_differing:,}.", *told]
            )
        ),
        Table(["", *metrics], scores),
        Heading(f"Against {names[0]}"),
        Table(["", "score", "difference", "95 %", "p", "test"], tests),
        *([Heading("By class"), Table(of_classes[0], of_classes[1:])] if of_classes[1:] else []),
        Heading("Rows on which they differ"),
        Paragraph(f"{len(shown):,} of {n_differing:,}; answers that are the label are bold."),
        *([Table(differing[0], marked)] if shown else []),
    ]


def _marked(answer: str, label: str) -> Marked:
    return Marked(answer, [(0, len(answer))] if answer == label else [])
