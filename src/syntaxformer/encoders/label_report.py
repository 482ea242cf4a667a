"""What is wrong with labelled rows before a model is trained on them: the counterpart of `data_report`."""

from __future__ import annotations

from collections.abc import Sequence

from syntaxformer.encoders.examples import TextSet, fingerprints
from syntaxformer.encoders.task_types import Score, TaskType

FEW = 5
"""A class with fewer examples is warned of."""

DUPLICATES, CONTRARY = "duplicates of an earlier row", "with the text of a row that has another label"
_MOST_SHOWN = 12


def report_labels(
    task_type: TaskType, train: TextSet, held_out: Sequence[TextSet] = ()
) -> tuple[dict[str, list[int]], list[str]]:
    """Compare rows to train on with each other, and with sets that must not share texts with them.

    Returns:
        Fault or class → the rows that have it, ascending, counted from 0; and warnings of what makes a model
        worse, or its scores on dev better than they are.
    """
    rows_of: dict[str, list[int]] = {}
    for row, fingerprint in enumerate(fingerprints(train.examples)):
        rows_of.setdefault(fingerprint, []).append(row)
    labels = [example.label for example in train.examples]
    is_classes = bool(task_type.names) and not isinstance(task_type, Score)
    contrary = [rows for rows in rows_of.values() if is_classes and len({labels[row] for row in rows}) > 1]
    faults = {
        DUPLICATES: sorted(row for rows in rows_of.values() for row in rows[1:]),
        CONTRARY: sorted(row for rows in contrary for row in rows),
    }
    warnings = []
    if contrary:
        pairs = [(train.examples[row].line, task_type.show(labels[row])) for row in contrary[0][:_MOST_SHOWN]]
        shown = ", ".join(f"line {line} ({label})" for line, label in pairs)
        problem = f"expected one label for each text, got several in {len(faults[CONTRARY]):,} rows"
        warnings.append(f"{train.source}: {problem}, as in {shown}. Mend or remove them.")
    for texts in held_out:
        shared = [fingerprint for fingerprint in fingerprints(texts.examples) if fingerprint in rows_of]
        faults[f"also in {texts.source}"] = sorted({row for name in shared for row in rows_of[name]})
        if shared:
            problem = f"{len(shared)} of its {len(texts)} rows have texts of the training rows"
            remedy = f"which raises scores on {texts.name}. Leave them out of one of the two."
            warnings.append(f"{texts.source}: {problem}, {remedy}")
    if is_classes:
        classes: dict[str, list[int]] = {name: [] for name in task_type.names}
        for row, label in enumerate(labels):
            for name in {*map(task_type.show, task_type.classes(label))}:
                classes[name].append(row)
        faults |= {f"of class {name}": rows for name, rows in classes.items()}
        if few := [f"{name} ({len(rows)})" for name, rows in classes.items() if len(rows) < FEW]:
            shown = ", ".join(few[:_MOST_SHOWN]) + ", …" * (len(few) > _MOST_SHOWN)
            problem = f"{train.source}: expected at least {FEW} rows with each class, got fewer of {shown}"
            warnings.append(f"{problem}. Such a class is hardly learned: add rows, or join classes.")
    return faults, warnings
