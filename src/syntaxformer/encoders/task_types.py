"""Types of task: what a network answers about a text, from the cell of a table to the answer that is shown.

A type is a class: its head, and how a label is read, learned, decided, scored and shown. `tasks.TYPES` names
them; one more type is one more class, in a file of its own, and its row there.
"""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from syntaxformer.base.config import nearest
from syntaxformer.base.errors import ConfigError, DataError
from syntaxformer.encoders.metrics import score_predictions

if TYPE_CHECKING:
    from torch import Tensor

    from syntaxformer.encoders.tables import Row

WORDS_OF_NUMBERS = {"0": "false", "1": "true"}
"""What is written for the labels of tasks with two numbered classes."""

IGNORED = -100

_log = logging.getLogger("syntaxformer.finetune")
_MOST_SHOWN = 12

Scorer = Callable[[Any, dict[str, "Tensor"]], "Tensor"]
"""A model and a batch to outputs, `[batch, labels]`."""


@dataclass(frozen=True)
class Predictions:
    """What a model says about texts, one for each.

    Args:
        labels: Label names, or scores.
        probabilities: For each text the probability of each label, in the order of the model's labels; None
            for scores.
        n_truncated: Texts that were cut to the model's length.
    """

    labels: list[str] | list[float]
    probabilities: list[list[float]] | None
    n_truncated: int = 0

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True)
class TaskType:
    """What all types share; the fields of a type are kept in `classifier.json` under the same names."""

    name: ClassVar[str]
    """In `tasks.TYPES`."""

    auto_class: ClassVar[str] = "AutoModelForSequenceClassification"
    """Class of `transformers` that loads a network of the type."""

    problem_type: ClassVar[str]
    """By which such a network chooses its loss."""

    single_pass: ClassVar[bool] = True
    """Whether outputs are the network's own for the text alone, which a graph can give."""

    @classmethod
    def of(cls, settings: Any) -> TaskType:
        """The type with what a `Task` or a `ClassifierInfo` holds."""
        names = (field.name for field in fields(cls))
        return cls(**{name: getattr(settings, name) for name in names if hasattr(settings, name)})

    @property
    def loader(self) -> Any:
        """The class of `transformers` of that name."""
        import transformers

        return getattr(transformers, self.auto_class)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the classes; none where there are no classes."""
        return ()

    @property
    def head(self) -> dict[str, Any]:
        """Settings of the network's config that make its head; none where it needs no new one."""
        names = self.names or ("score",)
        return {
            "num_labels": len(names),
            "id2label": dict(enumerate(names)),
            "label2id": {name: number for number, name in enumerate(names)},
            "problem_type": self.problem_type,
        }

    # What a table holds.

    def read(self, cell: str, fold_case: bool = False) -> Any:
        """The label of a cell, which is one line of text; `fold_case` takes names in any case.

        Raises:
            ValueError: It is none.
        """
        raise NotImplementedError

    def blanks(self, more: Sequence[str] = ()) -> list[str]:
        """What stands for no label in test sets; `more` are the task's own."""
        return [""]

    def settle(self, rows: list[Row], column: str, source: str | Path) -> tuple[TaskType, list[Row]]:
        """The type with the labels of a user's own table, and the rows without one that is a header.

        Raises:
            DataError: Nothing can be learned from such a column.
        """
        return self, rows

    def show(self, label: Any) -> Any:
        """A label as messages name it."""
        return self.names[int(label or 0)] if self.names else label

    # What a network learns.

    def for_head(self, head: str, has_decoder: Callable[[], bool]) -> TaskType:
        """The type that a checkpoint is trained for with `head` "auto", "classifier" or "text".

        Raises:
            ConfigError: It cannot be trained so.
        """
        if head == "text":
            raise ConfigError(
                "head: expected labels and an encoder-decoder for text, got scores. Use classifier."
            )
        return self

    def fit(self, labels: Sequence[Any]) -> TaskType:
        """The type with what it takes of the training labels."""
        return self

    def target(self, label: Any) -> Any:
        """What the network learns for a label."""
        return label

    # What a network answers.

    def scorer(self, tokenizer: Any) -> Scorer:
        """What makes outputs of batches."""
        return lambda model, batch: model(**batch).logits

    def decide(self, outputs: Tensor) -> list[Any]:
        """Labels, as `read` gives them, of outputs `[examples, labels]`."""
        raise NotImplementedError

    def predictions(self, outputs: Tensor, n_truncated: int = 0) -> Predictions:
        """Labels of outputs by their names, with their probabilities."""
        return Predictions(self.decide(outputs), None, n_truncated)

    def encode(self, labels: Sequence[Any]) -> list[Any]:
        """Predicted labels as `read` gives them."""
        return list(labels)

    def score(self, metrics: Sequence[str], gold: Sequence[Any], found: Sequence[Any]) -> dict[str, float]:
        """Score decided labels by the metrics of the task."""
        return score_predictions(metrics, gold, found)

    def never_predicted(self, gold: Sequence[Any], found: Sequence[Any]) -> dict[str, int]:
        """Label that rows have and no decision is → how many rows have it."""
        return {}

    # How an answer is shown.

    def answer(self, label: Any, probabilities: Sequence[float] | None) -> dict[str, Any]:
        """One prediction as `pipeline` and the service give it."""
        return {"score": label}

    def table(self, predictions: Predictions) -> Iterator[str]:
        """Lines of a table: a header, then a line for each text."""
        yield "prediction"
        yield from (f"{score:.6g}" for score in predictions.labels)

    def submitted(self, label: Any) -> str:
        """A prediction as the GLUE server takes it."""
        return label if isinstance(label, str) else f"{label:.3f}"


@dataclass(frozen=True)
class Score(TaskType):
    """A number: one output, learned by squared error.

    Args:
        score_range: Smallest and largest score; what is predicted is clipped to it.
        score_scale: Mean and standard deviation of the training scores, where outputs are in units of these.
    """

    score_range: tuple[float, float] | None = None
    score_scale: tuple[float, float] | None = None

    name: ClassVar[str] = "score"
    problem_type: ClassVar[str] = "regression"

    def read(self, cell: str, fold_case: bool = False) -> float:
        """A finite number in the range."""
        score = _number(cell)
        if score is None or not math.isfinite(score):
            raise ValueError(f"score: expected a finite number, got {cell!r}.")
        low, high = self.score_range or (-math.inf, math.inf)
        if not low <= score <= high:
            raise ValueError(f"score: expected {low:g} to {high:g}, got {cell}.")
        return score

    def settle(self, rows: list[Row], column: str, source: str | Path) -> tuple[TaskType, list[Row]]:
        """A first line without a number, before lines with one, is a header."""
        cells = [str(row.cells[column]) for row in rows[:2] if not row.problem and column.isdecimal()]
        is_header = len(cells) == 2 and _number(cells[0]) is None and _number(cells[1]) is not None
        return self, rows[1:] if is_header else rows

    def fit(self, labels: Sequence[float]) -> Score:
        """The scale of scores of any range: no head gets to 50 ± 30 by itself."""
        if self.score_range is not None:
            return self
        scores = np.array(labels, np.float64)
        return replace(self, score_scale=(float(scores.mean()), float(scores.std()) or 1.0))

    def target(self, label: float | None) -> float | None:
        """The score in units of the scale."""
        if self.score_scale is None:
            return label
        return (float(label or 0) - self.score_scale[0]) / self.score_scale[1]

    def decide(self, outputs: Tensor) -> list[float]:
        """Scores on the table's scale."""
        scores = outputs[:, 0]
        if self.score_scale is not None:
            scores = scores * self.score_scale[1] + self.score_scale[0]
        return (scores if self.score_range is None else scores.clamp(*self.score_range)).tolist()


@dataclass(frozen=True)
class OneLabel(TaskType):
    """One of several labels: an output for each, learned by cross-entropy."""

    labels: tuple[str, ...]

    name: ClassVar[str] = "label"
    problem_type: ClassVar[str] = "single_label_classification"

    def __post_init__(self) -> None:
        if self.labels is None:
            raise ValueError("labels: expected names, got none.")

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the classes."""
        return self.labels

    def read(self, cell: str, fold_case: bool = False) -> int:
        """The number of a label."""
        name = cell.lower() if fold_case else cell
        if name in self.labels:
            return self.labels.index(name)
        shown = ", ".join(self.labels[:_MOST_SHOWN]) + (", …" if len(self.labels) > _MOST_SHOWN else "")
        hint = f" {nearest(name, self.labels)}" if name and len(self.labels) > _MOST_SHOWN else ""
        raise ValueError(f"label: expected one of {shown}, got {cell!r}.{hint}")

    def blanks(self, more: Sequence[str] = ()) -> list[str]:
        """Nothing, and -1 where that is no label."""
        return [cell for cell in ("", "-1", *more) if cell not in self.labels]

    def settle(self, rows: list[Row], column: str, source: str | Path) -> tuple[TaskType, list[Row]]:
        """The labels of the rows, sorted; numbers by value."""
        if self.labels:
            return self, rows
        counts = _count_labels(rows, column, source)
        labels = sorted(counts, key=lambda label: (not label.isdecimal(), label.zfill(20), label))
        shown = ", ".join(f"{label} ({counts[label]:,})" for label in labels[:_MOST_SHOWN])
        more = f", … ({len(labels)} in all)" if len(labels) > _MOST_SHOWN else ""
        _log.info("%s: labels: %s%s", source, shown, more)
        return replace(self, labels=tuple(labels)), rows

    def for_head(self, head: str, has_decoder: Callable[[], bool]) -> TaskType:
        """Labels are written where there is a decoder."""
        if head == "classifier":
            return self
        if has_decoder():
            return WrittenLabel.over(self.labels)
        if head == "text":
            raise ConfigError(
                "head: expected labels and an encoder-decoder for text, got one without a decoder. "
                "Use classifier."
            )
        return self

    def decide(self, outputs: Tensor) -> list[int]:
        """The likeliest."""
        return outputs.argmax(1).tolist()

    def predictions(self, outputs: Tensor, n_truncated: int = 0) -> Predictions:
        """Names of the likeliest, and the probabilities of all."""
        names = [self.labels[number] for number in self.decide(outputs)]
        return Predictions(names, outputs.softmax(1).tolist(), n_truncated)

    def encode(self, labels: Sequence[str]) -> list[int]:
        """Numbers of names."""
        number_of = {name: number for number, name in enumerate(self.labels)}
        return [number_of[name] for name in labels]

    def never_predicted(self, gold: Sequence[int], found: Sequence[int]) -> dict[str, int]:
        """By name, in the order of the names."""
        counts, there = Counter(map(int, gold)), set(found)
        return dict(sorted((self.labels[label], n) for label, n in counts.items() if label not in there))

    def answer(self, label: str, probabilities: Sequence[float] | None) -> dict[str, Any]:
        """The label, and all probabilities."""
        return {"label": label, "probabilities": dict(zip(self.labels, probabilities or (), strict=True))}

    def table(self, predictions: Predictions) -> Iterator[str]:
        """The label, and all probabilities."""
        yield "\t".join(["prediction", *(f"p({label})" for label in self.labels)])
        for label, row in zip(predictions.labels, predictions.probabilities or (), strict=True):
            yield "\t".join([str(label), *(f"{probability:.4f}" for probability in row)])


@dataclass(frozen=True)
class WrittenLabel(OneLabel):
    """One of several labels, which a text-to-text model writes: the likeliest label is its answer.

    Labels are scored, not generated: every label gets a probability, and nothing else can be written.
    """

    words: tuple[str, ...]

    name: ClassVar[str] = "text"
    auto_class: ClassVar[str] = "AutoModelForSeq2SeqLM"
    single_pass: ClassVar[bool] = False
    head: ClassVar[dict[str, Any]] = {}  # type: ignore[misc]

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.words is None or len(self.words) != len(self.labels):
            raise ValueError(f"words: expected {len(self.labels)}, one a label, got {len(self.words or ())}.")

    @classmethod
    def over(cls, labels: tuple[str, ...]) -> WrittenLabel:
        """With words for labels."""
        numbered = set(labels) == set(WORDS_OF_NUMBERS)
        return cls(labels, tuple(WORDS_OF_NUMBERS[one] for one in labels) if numbered else labels)

    def target(self, label: int) -> str:
        """Its words."""
        return self.words[label]

    def scorer(self, tokenizer: Any) -> TextLabels:
        """Log-probabilities of the words."""
        return TextLabels(tokenizer, self.words)


class TextLabels:
    """Log-probabilities of labels as texts."""

    def __init__(self, tokenizer: Any, words: Sequence[str]) -> None:
        written = tokenizer(text_target=list(words), padding="longest", return_tensors="pt")
        self.pieces = written["input_ids"].masked_fill(written["attention_mask"] == 0, IGNORED)

    def __call__(self, model: Any, batch: dict[str, Tensor]) -> Tensor:
        """Log P(label | text), `[batch, labels]`; the sum over the label's pieces, its end included."""
        from torch import stack

        rows, given = len(batch["input_ids"]), batch
        found: list[Tensor] = []
        for pieces in self.pieces.to(batch["input_ids"].device):
            labels = pieces[None].expand(rows, -1)
            output = model(**given, labels=labels.contiguous())
            # Labels differ in the decoder only: the encoder runs for the first of them.
            states = (output.encoder_last_hidden_state,)
            given = {"encoder_outputs": states, "attention_mask": batch["attention_mask"]}
            picked = output.logits.float().log_softmax(-1).gather(-1, labels.clamp_min(0)[..., None])[..., 0]
            found.append(picked.where(labels != IGNORED, 0.0).sum(1))
        return stack(found, 1)


def _count_labels(rows: Sequence[Row], column: str, source: str | Path) -> Counter[str]:
    """Labels and how many rows have each.

    Raises:
        DataError: A row has none, there is one only, or nearly every row has its own; or line 1 is a header.
    """
    counts: Counter[str] = Counter()
    for row in rows:
        label = row.whole(source).text(column)
        if not label:
            raise DataError(f"column {column!r}: expected a label, got an empty cell.", source, row.number)
        counts[label] += 1
    if column.isdecimal() and len(rows) > 3:
        _refuse_header(rows[0], counts, column, source)
    if len(counts) < 2:
        raise DataError(
            f"column {column!r}: expected at least two labels, got only {', '.join(map(repr, counts))}.",
            source,
        )
    if len(counts) > 20 and len(counts) > counts.total() / 2:
        raise DataError(
            f"column {column!r}: expected labels that occur again, got {len(counts)} different ones in "
            f"{counts.total()} rows. Name the label's column with --label-column, or use --task regress.",
            source,
        )
    return counts


def _refuse_header(first: Row, counts: Counter[str], column: str, source: str | Path) -> None:
    """A first row whose label never comes again, while another does, is a header in disguise."""
    label = first.text(column)
    if counts[label] == 1 and max((n for name, n in counts.items() if name != label), default=0) > 1:
        names = list(first.cells.values())
        raise DataError(
            f"expected rows of text and label, got what looks like a header: {', '.join(map(repr, names))}. "
            f"Give --text-column {names[0]} --label-column {label}, or remove the line; if it is a row, "
            "put it further down.",
            source,
            first.number,
        )


def _number(cell: str) -> float | None:
    try:
        return float(cell)
    except ValueError:
        return None
