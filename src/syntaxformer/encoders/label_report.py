"""What is wrong with labelled rows before a model is trained on them: the counterpart of `data_report`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain

from syntaxformer.encoders.tables import TextExample, TextSet, fingerprints
from syntaxformer.encoders.task_types import Score, TaskType

FEW = 5
"""A class with fewer examples is warned of."""

DUPLICATES, CONTRARY = "duplicates of an earlier row", "with the text of a row that has another label"
_MOST_SHOWN = 12


@dataclass(frozen=True)
class LabelReport:
    """Faults of labelled rows.

    Args:
        source: What was looked at.
        n_rows: Number of its rows.
        classes: Class → number of its examples; empty for scores and answers.
        faults: Fault → lines of the rows that have it, ascending.
        warnings: What makes a model worse, or its scores on dev better than they are, in words.
    """

    source: str
    n_rows: int
    classes: dict[str, int]
    faults: dict[str, list[int]] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        lines = [f"{self.source}: {self.n_rows:,} rows"]
        counts = {fault: len(rows) for fault, rows in self.faults.items()}
        for what, n in (counts | {f"of class {name}": n for name, n in self.classes.items()}).items():
            shown = ", ".join(map(str, self.faults.get(what, [])[:3]))
            lines.append(f"{n:>9,} {n / self.n_rows:>7.2%}  {what}{f'   lines {shown}' if shown else ''}")
        return "\n".join([*lines, *self.warnings])


def report_labels(task_type: TaskType, train: TextSet, held_out: Sequence[TextSet] = ()) -> LabelReport:
    """Compare rows to train on with each other, and with sets that must not share texts with them."""
    is_classes = bool(task_type.names) and not isinstance(task_type, Score)
    labels = (task_type.classes(example.label) for example in train.examples if is_classes)
    counts = Counter(map(task_type.show, chain.from_iterable(labels)))
    names = task_type.names if is_classes else ()
    report = LabelReport(train.source, len(train), {name: counts[name] for name in names})
    groups: dict[str, list[TextExample]] = {}
    for fingerprint, example in zip(fingerprints(train.examples), train.examples, strict=True):
        groups.setdefault(fingerprint, []).append(example)
    contrary = [rows for rows in groups.values() if is_classes and len({row.label for row in rows}) > 1]
    report.faults[DUPLICATES] = sorted(row.line for rows in groups.values() for row in rows[1:])
    report.faults[CONTRARY] = sorted(row.line for rows in contrary for row in rows)
    if contrary:
        n, rows = sum(map(len, contrary)), contrary[0][:_MOST_SHOWN]
        shown = ", ".join(f"line {row.line} ({task_type.show(row.label)})" for row in rows)
        problem = f"expected one label for each text, got several in {n:,} rows, as in {shown}"
        report.warnings.append(f"{train.source}: {problem}. Mend or remove them.")
    for texts in held_out:
        prints = zip(texts.examples, fingerprints(texts.examples), strict=True)
        known = [row.line for row, fingerprint in prints if fingerprint in groups]
        report.faults[f"of {texts.source} that are also in training"] = known
        if known:
            problem = f"{len(known)} of its {len(texts)} rows have texts of the training rows"
            remedy = f"which raises scores on {texts.name}. Leave them out of one of the two."
            report.warnings.append(f"{texts.source}: {problem}, {remedy}")
    if few := [f"{name} ({n})" for name, n in report.classes.items() if n < FEW]:
        shown = ", ".join(few[:_MOST_SHOWN]) + ", …" * (len(few) > _MOST_SHOWN)
        problem = f"{train.source}: expected at least {FEW} examples of each class, got fewer of {shown}"
        report.warnings.append(f"{problem}. Such a class is hardly learned: add rows, or join classes.")
    return report
