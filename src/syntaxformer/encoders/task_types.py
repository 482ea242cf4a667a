"""Types of task: the kinds of answer that a network gives about a text.

Each type is a class that defines the network's head and how labels are read, learned, predicted, scored and
shown. `tasks.TYPES` lists the types; to add one, write a class and add it there. Those with several answers
for a text are in `multi_output_tasks`.
"""

from __future__ import annotations

import json
import logging
import math
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from itertools import chain
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from syntaxformer.base.config import nearest
from syntaxformer.base.errors import ConfigError, DataError
from syntaxformer.encoders.metrics import per_class, score_predictions
from syntaxformer.encoders.tables import BadRows, Row, Source, for_spreadsheet, number_of

if TYPE_CHECKING:
    from torch import Tensor

WORDS_OF_NUMBERS = {"0": "false", "1": "true"}
"""Words that a model writes for the labels of tasks with two numbered classes."""

_log = logging.getLogger("syntaxformer.finetune")
_MOST_SHOWN = 12
_NO_LABEL = {"", "nan", "none", "null", "n/a", "na", "<na>", "nat"}

Examples = Sequence[Any]
"""`SyntaxExample`s, or windows of them."""

Scorer = Callable[[Any, dict[str, "Tensor"]], "Tensor"]
"""Computes outputs `[batch, labels]` from a model and a batch."""


@dataclass(frozen=True)
class Predictions:
    """The predictions of a model, one for each text.

    Args:
        labels: Label names, or scores; or for each text a tuple of them, or what `decide` of its type gives.
        probabilities: For each text, the probability of each label, in the order of the model's labels;
            None for types without.
        n_truncated: Number of texts that were cut to the model's length.
        ids: The id of each text in its file.
    """

    labels: list[Any]
    probabilities: list[list[float]] | None
    n_truncated: int = 0
    ids: Sequence[str] = ()

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True)
class TaskType:
    """The base of all types; the fields of a type are stored in `classifier.json` under the same names."""

    name: ClassVar[str]
    """Name in `tasks.TYPES`."""

    auto_class: ClassVar[str] = "AutoModelForSequenceClassification"
    """Class of `transformers` that loads a network of the type."""

    problem_type: ClassVar[str] = ""
    """Setting by which the network chooses its loss, if it has one."""

    single_pass: ClassVar[bool] = True
    """Whether one pass over the text gives the outputs, so that a graph can compute them."""

    separate: ClassVar[bool] = False
    """Whether the network reads each text of a pair by itself."""

    takes_lists: ClassVar[bool] = False
    """Whether a label is a list in JSON, or several columns."""

    parts: ClassVar[str] = ""
    """What gets an answer if not the text: "words", or a "span". A long text is then read in windows."""

    @classmethod
    def of(cls, settings: Any) -> TaskType:
        """Build the type from the fields of a `Task` or a `ClassifierInfo`."""
        names = (field.name for field in fields(cls))
        return cls(**{name: getattr(settings, name) for name in names if hasattr(settings, name)})

    @property
    def loader(self) -> Any:
        """The class of `transformers` that `auto_class` names."""
        import transformers

        return getattr(transformers, self.auto_class)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the classes; empty if there are no classes."""
        return ()

    @property
    def choosing(self) -> tuple[str, ...]:
        """Scores by which the best epoch can be chosen, if the type has its own; more is better."""
        return ()

    @property
    def head(self) -> dict[str, Any]:
        """Config settings that give the network its head; empty if it needs no new head."""
        names = self.names or ("score",)
        return {
            "num_labels": len(names),
            "id2label": dict(enumerate(names)),
            "label2id": {name: number for number, name in enumerate(names)},
            "problem_type": self.problem_type,
        }

    # Labels in a table.

    def read(self, cell: Any, fold_case: bool = False) -> Any:
        """The label in a cell; `fold_case` ignores the case of names.

        Raises:
            ValueError: The cell is not a label.
        """
        raise NotImplementedError

    def blanks(self, more: Sequence[str] = ()) -> list[str]:
        """Cells that mean "no label" in test sets; `more` are those of the task."""
        return [""]

    def settle(self, rows: list[Row], column: str, bad: BadRows) -> tuple[TaskType, list[Row]]:
        """The type with the labels of the user's own table, and the rows without a header and bad rows.

        Raises:
            DataError: Nothing can be learned from this column.
        """
        return self, rows

    def classes(self, label: Any) -> Sequence[Any]:
        """The classes that a label names."""
        return label if self.takes_lists or self.parts == "words" else (label,)

    def show(self, label: Any) -> Any:
        """A label as it appears in messages."""
        if not self.names or not isinstance(label, int | None):
            return label
        return self.names[number] if (number := int(label or 0)) < len(self.names) else "(not learned)"

    # Targets of training.

    def for_head(self, head: str, has_decoder: Callable[[], bool], tokenizer: Any) -> TaskType:
        """The type for which a checkpoint is trained with `head` "auto", "classifier" or "text".

        Raises:
            ConfigError: The checkpoint has no such head, or its tokenizer cannot tell the labels apart.
        """
        if head == "text":
            raise ConfigError(
                f"head: expected labels and an encoder-decoder for text, got {self.name}. Use classifier."
            )
        if self.parts and has_decoder():
            raise ConfigError(f"model: expected an encoder alone for {self.parts}, got one with a decoder.")
        return self

    def fit(self, labels: Sequence[Any]) -> TaskType:
        """The type with the statistics of the training labels that it needs."""
        return self

    def target(self, label: Any) -> Any:
        """The value that the network learns for a label."""
        return label

    def balanced_weights(self, labels: Sequence[Any]) -> list[float]:
        """The weight of each class in the loss, so that all classes weigh the same over the training labels.

        Raises:
            ConfigError: The network does not choose among classes.
        """
        remedy = "Set head=classifier." if isinstance(self, WrittenLabel) else "Leave it out."
        problem = "expected a network with an output for each class, and one class a text"
        raise ConfigError(f"training.class_weights: {problem}, got the type {self.name!r}. {remedy}")

    # Answers of a network.

    def scorer(self, tokenizer: Any) -> Scorer:
        """The function that computes outputs from batches."""
        return lambda model, batch: model(**batch).logits

    def per_window(self, outputs: Any, windows: Examples, collator: Any) -> Sequence[Any]:
        """What is kept of the outputs of each window in a batch; a text that is not long is one window."""
        return outputs.unbind()

    def joined(self, windows: Sequence[Sequence[Any]]) -> Any:
        """The outputs of examples, `[examples, labels]`, from those of the windows of each."""
        from torch import stack

        return stack([first for first, *_ in windows])

    def decide(self, outputs: Any, examples: Examples = ()) -> list[Any]:
        """Predicted labels, as `read` returns them, from the outputs of examples."""
        raise NotImplementedError

    def predictions(self, outputs: Any, n_truncated: int = 0, examples: Examples = ()) -> Predictions:
        """Predicted labels by name, with their probabilities, from outputs."""
        names = list(map(self.show, self.decide(outputs, examples)))
        return Predictions(names, self.probabilities(outputs), n_truncated)

    def probabilities(self, outputs: Any) -> list[list[float]] | None:
        """The probability of each label, if there are such."""

    def encode(self, labels: Sequence[Any]) -> list[Any]:
        """Convert predicted label names to labels as `read` returns them."""
        return list(labels)

    def score(
        self, metrics: Sequence[str], gold: Sequence[Any], predicted: Sequence[Any]
    ) -> dict[str, float]:
        """Score predicted labels by the metrics of the task."""
        return score_predictions(metrics, gold, predicted)

    def never_predicted(self, gold: Sequence[Any], predicted: Sequence[Any]) -> dict[str, int]:
        """Label that is never predicted → number of rows that have it."""
        return {}

    def class_table(self, gold: Sequence[Any], predicted: Sequence[Any]) -> dict[str, dict[str, float]]:
        """Class → its `precision`, `recall`, `f1` and `support`, in the order of the classes."""
        return {}

    # Answers as they are shown.

    def answer(self, label: Any, probabilities: Sequence[float] | None) -> dict[str, Any]:
        """One prediction as `pipeline` and the service return it."""
        return {self.name: label}

    def table(self, predictions: Predictions) -> Iterator[str]:
        """Lines of a table: a header, then a line for each text."""
        yield "\t".join(map(for_spreadsheet, self.names or ["prediction"]))
        for scores in predictions.labels:
            yield "\t".join(f"{score:.6g}" for score in np.ravel(scores))


@dataclass(frozen=True)
class Score(TaskType):
    """A number: one output, trained with squared error.

    Args:
        score_range: Smallest and largest score; predictions are clipped to it.
        score_scale: Mean and standard deviation of the training scores, if outputs are standardised. Several
            scores have their means first, then their standard deviations.

    Raises:
        ValueError: The scale has too few or too many numbers.
    """

    score_range: tuple[float, float] | None = None
    score_scale: tuple[float, ...] | None = None

    name: ClassVar[str] = "score"
    problem_type: ClassVar[str] = "regression"

    def __post_init__(self) -> None:
        expected = 2 * max(1, len(self.names))
        if self.score_scale is not None and len(self.score_scale) != expected:
            raise ValueError(f"score_scale: expected {expected} numbers, got {len(self.score_scale)}")

    def read(self, cell: Any, fold_case: bool = False) -> Any:
        """Read a finite number in the range."""
        score = number_of(cell)
        if score is None or not math.isfinite(score):
            raise ValueError(f"score: expected a finite number, got {cell!r}.")
        low, high = self.score_range or (-math.inf, math.inf)
        if not low <= score <= high:
            raise ValueError(f"score: expected {low:g} to {high:g}, got {cell}.")
        return score

    def settle(self, rows: list[Row], column: str, bad: BadRows) -> tuple[TaskType, list[Row]]:
        """Drop a header: a first row with a name in place of a number, before one with a number."""
        cells = [row.text(column) for row in rows[:2] if column.isdecimal()]
        if len(cells) < 2 or not cells[0] or number_of(cells[0]) is not None or number_of(cells[1]) is None:
            return self, rows
        _log.warning("%s: line 1 is left out as a header, as %r is no number.", bad.source, cells[0])
        return self, rows[1:]

    def fit(self, labels: Sequence[Any]) -> Score:
        """Standardise scores without a fixed range: a new head would not learn 50 ± 30."""
        if self.score_range is not None:
            return self
        mean, sd = np.mean(labels, 0), np.std(labels, 0)
        return replace(self, score_scale=tuple(np.hstack([mean, np.where(sd > 0, sd, 1)]).tolist()))

    def target(self, label: Any) -> Any:
        """The standardised score."""
        if self.score_scale is None:
            return label
        mean, sd = np.reshape(self.score_scale, (2, *np.shape(label)))
        return ((label - mean) / sd).tolist()

    def decide(self, outputs: Any, examples: Examples = ()) -> list[Any]:
        """Scores on the scale of the table."""
        scores = outputs[:, 0]
        if self.score_scale is not None:
            scores = scores * self.score_scale[1] + self.score_scale[0]
        return (scores if self.score_range is None else scores.clamp(*self.score_range)).tolist()


@dataclass(frozen=True)
class Similarity(Score):
    """How alike the texts of a pair are: the cosine of their vectors, on the scale of the table.

    The smallest score of training is the cosine 0 and the largest the cosine 1; `score_scale` holds the
    smallest one and the distance to the largest.
    """

    name: ClassVar[str] = "similarity"
    auto_class: ClassVar[str] = "AutoModel"
    single_pass: ClassVar[bool] = False
    separate: ClassVar[bool] = True
    head: ClassVar[dict[str, Any]] = {}  # type: ignore[misc]

    def for_head(self, head: str, has_decoder: Callable[[], bool], tokenizer: Any) -> TaskType:
        """Refuse another head than "auto", and an encoder-decoder."""
        if head != "auto" or has_decoder():
            got = head if head != "auto" else "one with a decoder"
            raise ConfigError(f"head: expected auto and an encoder alone for {self.name}, got {got}.")
        return self

    def fit(self, labels: Sequence[Any]) -> Similarity:
        """Take the scale from the training scores."""
        low, high = self.score_range or (min(labels), max(labels))
        return replace(self, score_scale=(low, high - low or 1.0))

    def scorer(self, tokenizer: Any) -> Scorer:
        """The cosine of each pair, `[pairs, 1]`, whose texts are neighbours in the batch.

        The vector of a text is the mean of the states of its pieces.

        Source: Reimers and Gurevych (2019), "Sentence-BERT", section 3.
        """
        from torch.nn.functional import cosine_similarity

        def score(model: Any, batch: dict[str, Tensor]) -> Tensor:
            mask = batch["attention_mask"][..., None]
            vectors = (model(**batch).last_hidden_state * mask).sum(1) / mask.sum(1)
            return cosine_similarity(vectors[0::2], vectors[1::2])[:, None]

        return score

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """CoSENT's loss of the cosines `[pairs, 1]`, which learns the order of `targets`, `[pairs]`.

        log(1 + Σ exp(20 (cos_i - cos_j))), over all i and j of which j has the larger target.

        Source: Huang et al. (2024), "CoSENT: Consistent Sentence Embedding via Similarity Ranking".
        """
        from torch import cat

        cosines = 20 * outputs.float()[:, 0]
        differences = cosines[:, None] - cosines[None, :]
        of_order = differences[targets[:, None] < targets[None, :]]
        return cat([of_order.new_zeros(1), of_order]).logsumexp(0)

    def answer(self, label: Any, probabilities: Sequence[float] | None) -> dict[str, Any]:
        """The score."""
        return {Score.name: label}


@dataclass(frozen=True)
class OneLabel(TaskType):
    """One of several labels: an output for each, trained with cross-entropy."""

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

    def read(self, cell: Any, fold_case: bool = False) -> Any:
        """The number of a label."""
        name = cell.lower() if fold_case else cell
        if name in self.labels:
            return self.labels.index(name)
        if (whole := _as_whole(name)) in (known := list(map(_as_whole, self.labels))):
            return known.index(whole)  # 1, where pandas wrote 1.0
        shown = ", ".join(self.labels[:_MOST_SHOWN]) + (", …" if len(self.labels) > _MOST_SHOWN else "")
        hint = f" {nearest(name, self.labels)}" if name and len(self.labels) > _MOST_SHOWN else ""
        raise ValueError(f"label: expected one of {shown}, got {cell!r}.{hint}")

    def blanks(self, more: Sequence[str] = ()) -> list[str]:
        """The empty cell and -1, unless they are labels."""
        return [cell for cell in ("", "-1", *more) if cell not in self.labels]

    def settle(self, rows: list[Row], column: str, bad: BadRows) -> tuple[TaskType, list[Row]]:
        """Take the labels of the rows; refuse what looks like a header, like no classes, or like only one."""
        if self.labels:
            return self, rows

        def label_of(row: Row) -> str:
            if not (label := row.label(column)):
                problem = f"column {column!r}: expected a label, got an empty cell."
                raise ValueError(f"{problem} Leave out rows without a label.")
            return label

        labels = list(bad.whole(rows, label_of))
        counts, rows, source = Counter(label for _, label in labels), [row for row, _ in labels], bad.source
        if not rows:
            return self, rows
        first = rows[0].text(column)
        repeats = any(n > 1 for name, n in counts.items() if name != first)
        if column.isdecimal() and len(rows) > 3 and counts[first] == 1 and repeats:
            names = list(rows[0].cells.values())
            got = ", ".join(map(repr, names))
            raise DataError(
                f"expected rows of text and label, got what looks like a header: {got}. "
                f"Give --text-column {names[0]} --label-column {first}, or remove the line; if it is a row, "
                "put it further down.",
                source,
                rows[0].number,
            )
        if len(counts) < 2:
            got = ", ".join(map(repr, counts))
            raise DataError(f"column {column!r}: expected at least two labels, got only {got}.", source)
        if len(counts) > 20 and len(counts) > counts.total() / 2:
            raise DataError(
                f"column {column!r}: expected labels that occur again, got {len(counts)} different ones in "
                f"{counts.total()} rows. Name the label's column with --label-column, or use --task regress.",
                source,
            )
        return self.with_labels(counts, source), rows

    def unknown(self, cell: Any) -> Sequence[str]:
        """The classes that a cell names and training did not have."""
        try:
            self.read(cell)
        except ValueError:
            return (cell,)
        return ()

    def widened(self, cells: Iterable[Any], source: Source) -> Any:
        """The type to read labels that are only scored: with classes that training lacks, of which it warns.

        They are never predicted, so their rows count as missed.
        """
        counts = Counter(chain.from_iterable(map(self.unknown, cells)))
        if not counts:
            return self
        shown = ", ".join(f"{name!r} ({n:,})" for name, n in counts.most_common(_MOST_SHOWN))
        more = ", …" * (len(counts) > _MOST_SHOWN)
        _log.warning("%s: labels that training did not have count as missed: %s%s", source, shown, more)
        return replace(self, labels=(*self.labels, *counts))

    def with_labels(self, counts: Counter[str], source: Source) -> Any:
        """The type with these labels, numbers first and by value; they are logged with their counts.

        Raises:
            DataError: There are none.
        """
        if not counts:
            raise DataError("labels: expected some to learn, got none in any row.", source)
        values = {name: n for name in counts if (n := number_of(name)) is not None and math.isfinite(n)}
        labels = sorted(counts, key=lambda name: (name not in values, values.get(name, 0.0), name))
        shown = ", ".join(f"{label} ({counts[label]:,})" for label in labels[:_MOST_SHOWN])
        more = f", … ({len(labels)} in all)" if len(labels) > _MOST_SHOWN else ""
        _log.info("%s: labels, sorted (numbers by value): %s%s", source, shown, more)
        for warning in _odd_labels(labels):
            _log.warning("%s: %s", source, warning)
        return replace(self, labels=tuple(labels))

    def for_head(self, head: str, has_decoder: Callable[[], bool], tokenizer: Any) -> TaskType:
        """A checkpoint with a decoder writes its labels as text."""
        if head == "classifier":
            return self
        if has_decoder():
            written, known = WrittenLabel.over(self.labels), dict[str, str]()
            ids = tokenizer(text_target=[*written.words])["input_ids"]
            for word, pieces in zip(written.words, ids, strict=True):
                if (other := known.setdefault(str(pieces), word)) != word:
                    raise ConfigError(
                        "head: expected labels that the tokenizer tells apart, got the same pieces for "
                        f"{other!r} and {word!r}. Set head=classifier, or rename the labels."
                    )
            return written
        if head == "text":
            problem = "expected labels and an encoder-decoder for text, got one without a decoder"
            raise ConfigError(f"head: {problem}. Use classifier.")
        return self

    def balanced_weights(self, labels: Sequence[int]) -> list[float]:
        """Rows / (classes · rows of the class), over the classes that occur, as scikit-learn's "balanced"."""
        counts = Counter(labels)
        shares = (counts[number] * len(counts) / len(labels) for number in range(len(self.labels)))
        return [1 / share if share else 1.0 for share in shares]

    def decide(self, outputs: Any, examples: Examples = ()) -> list[Any]:
        """The most probable labels."""
        return outputs.argmax(1).tolist()

    def probabilities(self, outputs: Any) -> list[list[float]] | None:
        """The probabilities of all labels."""
        return outputs.softmax(1).tolist()

    def encode(self, labels: Sequence[Any]) -> list[Any]:
        """Convert names to numbers."""
        numbers = {name: number for number, name in enumerate(self.labels)}
        return [numbers[name] for name in labels]

    def never_predicted(self, gold: Sequence[Any], predicted: Sequence[Any]) -> dict[str, int]:
        """As in the base class, by name and in the order of the names."""
        counts = Counter(chain.from_iterable(map(self.classes, gold)))
        missed = counts.keys() - set(chain.from_iterable(map(self.classes, predicted)))
        names = {label: self.show(label) for label in missed if {label, self.show(label)} & {*self.labels}}
        return dict(sorted((name, counts[label]) for label, name in names.items()))

    def class_table(self, gold: Sequence[int], predicted: Sequence[int]) -> dict[str, dict[str, float]]:
        """As in the base class."""
        rows = per_class(gold, predicted, len(self.labels)).T.tolist()
        return {
            label: {"precision": precision, "recall": recall, "f1": f1, "support": int(support)}
            for label, (precision, recall, f1, support) in zip(self.labels, rows, strict=False)
        }

    def answer(self, label: Any, probabilities: Sequence[float] | None) -> dict[str, Any]:
        """The label, and all probabilities."""
        return {"label": label, "probabilities": dict(zip(self.labels, probabilities or (), strict=True))}

    def table(self, predictions: Predictions) -> Iterator[str]:
        """The label, and all probabilities."""
        yield "\t".join(["prediction", *(f"p({label})" for label in self.labels)])
        for label, row in zip(predictions.labels, predictions.probabilities or (), strict=True):
            shown = label if isinstance(label, str) else json.dumps(label, ensure_ascii=False)
            yield "\t".join([for_spreadsheet(shown), *(f"{probability:.4f}" for probability in row)])


@dataclass(frozen=True)
class WrittenLabel(OneLabel):
    """One of several labels that a text-to-text model writes; the most probable label is its answer.

    Labels are scored and not generated, so every label gets a probability and no other text can occur.
    """

    words: tuple[str, ...]

    name: ClassVar[str] = "text"
    auto_class: ClassVar[str] = "AutoModelForSeq2SeqLM"
    single_pass: ClassVar[bool] = False
    head: ClassVar[dict[str, Any]] = {}  # type: ignore[misc]
    balanced_weights = TaskType.balanced_weights

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.words is None or len(self.words) != len(self.labels):
            expected = f"words: expected {len(self.labels)}, one for each label"
            raise ValueError(f"{expected}, got {len(self.words or ())}.")

    def widened(self, cells: Iterable[Any], source: Source) -> Any:
        """As in the base class; these labels need no words to be written as."""
        return OneLabel(self.labels).widened(cells, source)

    @classmethod
    def over(cls, labels: tuple[str, ...]) -> WrittenLabel:
        """The type with words for these labels."""
        numbered = set(labels) == set(WORDS_OF_NUMBERS)
        return cls(labels, tuple(WORDS_OF_NUMBERS[label] for label in labels) if numbered else labels)

    def target(self, label: int) -> str:
        """The words of the label."""
        return self.words[label]

    def scorer(self, tokenizer: Any) -> Scorer:
        """Log P(label | text), `[batch, labels]`, summed over the pieces of its words and the end piece."""
        from torch import stack

        from syntaxformer.nn.kernels.cross_entropy import IGNORED_LABEL

        written = tokenizer(text_target=list(self.words), padding="longest", return_tensors="pt")
        of_labels = written["input_ids"].masked_fill(written["attention_mask"] == 0, IGNORED_LABEL)

        def score(model: Any, batch: dict[str, Tensor]) -> Tensor:
            inputs = batch
            log_probs: list[Tensor] = []
            for pieces in of_labels.to(batch["input_ids"].device):
                labels = pieces[None].expand(len(batch["input_ids"]), -1)
                output = model(**inputs, labels=labels.contiguous())
                # Labels only change the decoder's input, so the encoder runs once, for the first label.
                states = (output.encoder_last_hidden_state,)
                inputs = {"encoder_outputs": states, "attention_mask": batch["attention_mask"]}
                of_pieces = output.logits.float().log_softmax(-1)
                picked = of_pieces.gather(-1, labels.clamp_min(0)[..., None])[..., 0]
                log_probs.append(picked.where(labels != IGNORED_LABEL, 0.0).sum(1))
            return stack(log_probs, 1)

        return score


def _as_whole(label: str) -> str:
    """A label, if it is a whole number without the decimals that pandas writes."""
    return re.sub(r"^([+-]?\d+)\.0+$", r"\1", label)


def _odd_labels(labels: Iterable[str]) -> list[str]:
    """What to know of labels that mean none, or differ only in case, invisible characters or as 1 and 1.0."""
    alike: dict[Any, list[str]] = {}
    for label in labels:
        visible = "".join(mark for mark in label if unicodedata.category(mark) != "Cf").casefold()
        alike.setdefault(visible if number_of(visible) is None else number_of(visible), []).append(label)
    groups = (", ".join(map(ascii, group)) for group in alike.values() if len(group) > 1)
    remedy = "are classes of their own. Are they one? Then write them alike."
    warnings = [f"labels {group} {remedy}" for group in groups]
    none = [label for label in labels if label.casefold() in _NO_LABEL]
    return warnings + [
        f"{label!r} is learned as a class. If it means no label, leave it out." for label in none
    ]
