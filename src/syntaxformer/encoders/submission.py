"""Predictions on disk: the files that the GLUE server takes, and tables for everybody else."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from syntaxformer.base.errors import ConfigError, DataError
from syntaxformer.base.files import atomic_text
from syntaxformer.encoders.classifier import Predictions
from syntaxformer.encoders.task_table import Task
from syntaxformer.encoders.text_sets import TextSet

__all__ = ["prediction_rows", "submission_rows", "write_rows"]


def submission_rows(task: Task, split: str, texts: TextSet, predictions: Predictions) -> Iterator[str]:
    """Lines of a GLUE submission: `index`, tab, label name; scores with three decimals.

    Args:
        task: A GLUE task.
        split: A test split.
        texts: Its examples.
        predictions: One for each.

    Raises:
        ConfigError: The server takes no such file.
        DataError: Examples are not numbered from 0 without a gap: it is not the test set that the server has.
    """
    if split not in task.submission:
        known = ", ".join(task.submission) or "none"
        raise ConfigError(f"submission: expected a split of {task.title} with one ({known}), got {split!r}.")
    yield "index\tprediction"
    for number, (one, label) in enumerate(zip(texts.examples, predictions.labels, strict=True)):
        if one.index != str(number):
            raise DataError(
                f"index: expected {number}, got {one.index!r}. The GLUE server numbers its test sets from 0.",
                texts.source,
                one.line,
            )
        yield f"{number}\t{label if isinstance(label, str) else f'{label:.3f}'}"


def prediction_rows(labels: Sequence[str] | None, predictions: Predictions) -> Iterator[str]:
    """Lines of a table: a header, then for each text its label and all probabilities, or its score.

    Args:
        labels: The model's label names; None for scores.
        predictions: One for each text.
    """
    if labels is None or predictions.probabilities is None:
        yield "prediction"
        yield from (f"{score:.6g}" for score in predictions.labels)
        return
    yield "\t".join(["prediction", *(f"p({label})" for label in labels)])
    for label, probabilities in zip(predictions.labels, predictions.probabilities, strict=True):
        yield "\t".join([str(label), *(f"{probability:.4f}" for probability in probabilities)])


def write_rows(path: Path, rows: Iterator[str]) -> None:
    """Write lines, whole or not at all, packed where the name ends in `.gz`.

    Raises:
        DataError: The file cannot be written.
    """
    with atomic_text(path) as file:
        file.writelines(f"{row}\n" for row in rows)
