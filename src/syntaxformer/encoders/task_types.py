"""Types of task: the kinds of answer that a network gives about a text.

Each type is a class that defines the network's head and how labels are read, learned, predicted, scored and
shown. `TYPES` lists the types; to add one, write a class and add it there.
"""

from __future__ import annotations

import json
import logging
import math
import re
import string
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import chain
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from syntaxformer.base.config import nearest
from syntaxformer.base.errors import ConfigError, DataError
from syntaxformer.encoders.metrics import per_class, score_predictions
from syntaxformer.encoders.tables import BadRows, Row, Source, as_json, as_line, for_spreadsheet, number_of

if TYPE_CHECKING:
    from torch import Tensor

_log = logging.getLogger("syntaxformer.finetune")
_MOST_SHOWN = 12
OUTSIDE = "O"
_OF_SPANS = re.compile("O$|[BIES]-")
_BOOLEAN = {"0": False, "0.0": False, "false": False, "1": True, "1.0": True, "true": True}
_TINY = 1e-9
_NO_LABEL = {"", "nan", "none", "null", "n/a", "na", "<na>", "nat"}

Labels = Sequence[Any]
"""Labels as `TaskType.read` returns them."""

Examples = Sequence[Any]
"""`SyntaxExample`s, or windows of them."""

Scorer = Callable[[Any, dict[str, "Tensor"]], "Tensor"]
"""Computes outputs `[batch, labels]` from a model and a batch."""


@dataclass(frozen=True)
class Predictions:
    """The predictions of a model, one for each text."""

    labels: list[Any]  # names, or scores; or of each text a tuple of them, or what `decide` of its type gives
    probabilities: list[list[float]] | None  # `[texts, labels]`; None for types without
    n_truncated: int = 0  # texts that were cut to the model's length
    ids: Sequence[str] = ()  # of each text in its file

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True)
class TaskType:
    """The base of all types; the fields of a type are stored in `classifier.json` under the same names."""

    name: ClassVar[str]  # in `TYPES`
    auto_class: ClassVar[str] = "AutoModelForSequenceClassification"  # of `transformers`; it loads networks
    problem_type: ClassVar[str] = ""  # setting by which the network chooses its loss, if it has one
    single_pass: ClassVar[bool] = True  # one pass gives the outputs, so that a graph can compute them
    separate: ClassVar[bool] = False  # the network reads each text of a pair by itself
    takes_lists: ClassVar[bool] = False  # a label is a list in JSON, or several columns
    same_as: ClassVar[str] = ""  # name of the type whose answers are the same, if another's are
    parts: ClassVar[str] = ""  # "words" or "span" if not the text gets an answer: long texts have windows
    names: ClassVar[Any] = ()  # of the classes, a tuple; empty if there are none
    choosing: ClassVar[Any] = ()  # own scores that can choose the best epoch, a tuple; more is better

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
        """The label in a cell, else ValueError; `fold_case` ignores the case of names."""
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

    def fit(self, labels: Labels) -> TaskType:
        """The type with the statistics of the training labels that it needs."""
        return self

    def target(self, label: Any) -> Any:
        """The value that the network learns for a label."""
        return label

    def balanced_weights(self, labels: Labels) -> list[float]:
        """The weight of each class in the loss, with which all weigh the same over the training labels.

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

    def encode(self, labels: Labels) -> list[Any]:
        """Convert predicted label names to labels as `read` returns them."""
        return list(labels)

    def score(self, metrics: Sequence[str], gold: Labels, predicted: Labels) -> dict[str, float]:
        """Score predicted labels by the metrics of the task."""
        return score_predictions(metrics, gold, predicted)

    def never_predicted(self, gold: Labels, predicted: Labels) -> dict[str, int]:
        """Label that is never predicted → number of rows that have it."""
        return {}

    def class_table(self, gold: Labels, predicted: Labels) -> dict[str, dict[str, float]]:
        """Class → its `precision`, `recall`, `f1` and `support`, in the order of the classes."""
        return {}

    # Answers as they are shown.

    def answer(self, label: Any, probabilities: Sequence[float] | None) -> dict[str, Any]:
        """One prediction as `pipeline` and the service return it."""
        return {self.same_as or self.name: label}

    def table(self, predictions: Predictions) -> Iterator[str]:
        """Lines of a table: a header, then a line for each text."""
        yield "\t".join(map(for_spreadsheet, self.names or ["prediction"]))
        for scores in predictions.labels:
            yield "\t".join(f"{score:.6g}" for score in np.ravel(scores))


@dataclass(frozen=True)
class Score(TaskType):
    """A number: one output, trained with squared error.

    `score_scale` are mean and standard deviation of the training scores, if outputs are standardised; several
    scores have their means first, then their standard deviations.

    Raises:
        ValueError: The scale has too few or too many numbers.
    """

    score_range: tuple[float, float] | None = None  # predictions are clipped to it
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

    def fit(self, labels: Labels) -> Score:
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
    same_as: ClassVar[str] = "score"
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

    def fit(self, labels: Labels) -> Similarity:
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


@dataclass(frozen=True)
class OneLabel(TaskType):
    """One of several labels: an output for each, trained with cross-entropy."""

    labels: tuple[str, ...]

    name: ClassVar[str] = "label"
    problem_type: ClassVar[str] = "single_label_classification"
    names = property(lambda self: self.labels)

    def __post_init__(self) -> None:
        if self.labels is None:
            raise ValueError("labels: expected names, got none.")

    def read(self, cell: Any, fold_case: bool = False) -> Any:
        """The number of a label."""
        name = cell.lower() if fold_case else cell
        if name in self.labels:
            return self.labels.index(name)
        if (whole := _as_whole(name)) in (known := list(map(_as_whole, self.labels))):
            return known.index(whole)  # 1, where pandas wrote 1.0
        shown, is_cut = ", ".join(self.labels[:_MOST_SHOWN]), len(self.labels) > _MOST_SHOWN
        hint = f" {nearest(name, self.labels)}" if name and is_cut else ""
        raise ValueError(f"label: expected one of {shown}{', …' * is_cut}, got {cell!r}.{hint}")

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

        labels, source = list(bad.whole(rows, label_of)), bad.source
        counts, rows = Counter(label for _, label in labels), [row for row, _ in labels]
        if not rows:
            return self, rows
        first = rows[0].text(column)
        repeats = any(n > 1 for name, n in counts.items() if name != first)
        if column.isdecimal() and len(rows) > 3 and counts[first] == 1 and repeats:
            names = list(rows[0].cells.values())
            got = f"got what looks like a header: {', '.join(map(repr, names))}."
            remedy = f"Give --text-column {names[0]} --label-column {first}, or remove the line"
            problem = f"expected rows of text and label, {got} {remedy}; if it is a row, put it further down."
            raise DataError(problem, source, rows[0].number)
        if len(counts) < 2:
            got = ", ".join(map(repr, counts))
            raise DataError(f"column {column!r}: expected at least two labels, got only {got}.", source)
        if len(counts) > 20 and len(counts) > counts.total() / 2:
            got = f"got {len(counts)} different ones in {counts.total()} rows."
            remedy = "Name the label's column with --label-column, or use --task regress."
            raise DataError(f"column {column!r}: expected labels that occur again, {got} {remedy}", source)
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

    def encode(self, labels: Labels) -> list[Any]:
        """Convert names to numbers."""
        numbers = {name: number for number, name in enumerate(self.labels)}
        return [numbers[name] for name in labels]

    def never_predicted(self, gold: Labels, predicted: Labels) -> dict[str, int]:
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
    same_as: ClassVar[str] = "label"
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
        """The type with words for these labels, which are other ones for two numbered classes."""
        words = {"0": "false", "1": "true"}
        return cls(labels, tuple(map(words.__getitem__, labels)) if {*labels} == {*words} else labels)

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


# Several answers for a text: scores and labels, which are lists in JSON (also in a cell of a TSV) or columns;
# a tag for each word; or a span as answer.


def _listed(cell: Any) -> list[Any] | Mapping[str, Any]:
    """A list, which JSON writes where the cell is text, or the cells of several columns by name."""
    content = as_json(cell)
    if not isinstance(content, list | Mapping):
        raise ValueError(f'label: expected a list as ["a", "b"], or several columns, got {str(cell)[:60]!r}.')
    return content


@dataclass(frozen=True)
class SeveralScores(Score):
    """Several scores, a tuple: an output for each, trained with squared error."""

    labels: tuple[str, ...] = ()  # of the scores: those of their columns, or their places in the list, from 1

    name: ClassVar[str] = "scores"
    takes_lists: ClassVar[bool] = True
    names = property(lambda self: self.labels or ())
    choosing: ClassVar[tuple[str, ...]] = ("pearson",)  # of "mse", less is better

    def read(self, cell: Any, fold_case: bool = False) -> Any:
        """Read as many finite scores as there are names; an object has them by name."""
        scores = _listed(cell)
        if isinstance(scores, Mapping):
            if scores.keys() != {*self.names}:
                problem = f"expected those named {', '.join(self.names)}, got {', '.join(scores) or 'none'}"
                raise ValueError(f"scores: {problem}. Name the same ones in every row.")
            scores = [scores[name] for name in self.names]
        if len(scores) != len(self.names):
            raise ValueError(f"scores: expected {len(self.names)}, got {len(scores)}.")
        return tuple(super(SeveralScores, self).read(score) for score in scores)

    def settle(self, rows: list[Row], column: str, bad: BadRows) -> tuple[TaskType, list[Row]]:
        """Take the names of the columns, or number the scores of the first row."""
        if self.labels:
            return self, rows
        read = list(bad.whole(rows, lambda row: _listed(row.cells.get(column))))
        scores = read[0][1] if read else []
        names = scores if isinstance(scores, Mapping) else map(str, range(1, len(scores) + 1))
        return replace(self, labels=tuple(names)), [row for row, _ in read]

    def decide(self, outputs: Any, examples: Examples = ()) -> list[Any]:
        """Scores on the scales of the table."""
        mean, sd = np.reshape(self.score_scale or (0.0, 1.0), (2, -1))
        return list(map(tuple, (outputs.numpy() * sd + mean).tolist()))

    def score(self, metrics: Sequence[str], gold: Labels, predicted: Labels) -> dict[str, float]:
        """Pearson's correlation, as a mean over the scores, and the mean squared error of all."""
        sides = np.array([gold, predicted], float)
        each = [score_predictions(("pearson",), *columns)["pearson"] for columns in sides.transpose(2, 0, 1)]
        return {"pearson": float(np.mean(each)), "mse": float(np.square(sides[0] - sides[1]).mean())}

    def answer(self, label: Any, probabilities: Sequence[float] | None) -> dict[str, Any]:
        """The scores by name."""
        return {"scores": dict(zip(self.names, label, strict=True))}


@dataclass(frozen=True)
class SeveralLabels(OneLabel):
    """Any number of labels, a tuple of names: an output for each, trained with binary cross-entropy."""

    name: ClassVar[str] = "labels"
    problem_type: ClassVar[str] = "multi_label_classification"
    takes_lists: ClassVar[bool] = True
    choosing: ClassVar[tuple[str, ...]] = ("micro_f1", "macro_f1", "mean")
    for_head, encode = TaskType.for_head, TaskType.encode
    class_table, balanced_weights = TaskType.class_table, TaskType.balanced_weights

    def read(self, cell: Any, fold_case: bool = False) -> tuple[str, ...]:
        """The labels of a list, or the columns that hold 1."""
        labels = _listed(cell)
        if isinstance(labels, Mapping):
            holds = {name: _BOOLEAN.get(str(value).strip().lower()) for name, value in labels.items()}
            if wrong := [name for name, value in holds.items() if value is None]:
                raise ValueError(f"column {wrong[0]!r}: expected 0 or 1, got {str(labels[wrong[0]])[:60]!r}.")
            labels = [name for name, value in holds.items() if value]
        names = tuple(sorted(set(map(as_line, labels))))
        if "" in names:
            raise ValueError(f"labels: expected names, got an empty one in {str(cell)[:60]}.")
        if not self.labels:
            return names
        return tuple(sorted({self.labels[super(SeveralLabels, self).read(name)] for name in names}))

    def settle(self, rows: list[Row], column: str, bad: BadRows) -> tuple[TaskType, list[Row]]:
        """Take the labels of the rows, and the names of columns that are 0 in all rows."""
        if self.labels:
            return self, rows
        read = list(bad.whole(rows, lambda row: self.read(row.cells.get(column))))
        counts = Counter(chain.from_iterable(labels for _, labels in read))
        for row, _ in read:
            columns = _listed(row.cells.get(column))
            counts.update(dict.fromkeys(columns, 0) if isinstance(columns, Mapping) else {})
        rows = [row for row, _ in read]
        return self.with_labels(counts, bad.source) if rows else self, rows

    def unknown(self, cell: Any) -> Sequence[str]:
        """As in the base class; a cell that is no list is left to `read`."""
        try:
            names = replace(self, labels=()).read(cell)
        except ValueError:
            return ()
        return [*chain.from_iterable(map(OneLabel(self.labels).unknown, names))]

    def target(self, label: Any) -> Any:
        """1 for each label that holds, 0 for the others."""
        return [float(name in label) for name in self.labels]

    def decide(self, outputs: Any, examples: Examples = ()) -> list[Any]:
        """The labels whose probability is over one half."""
        return [tuple(sorted(np.array(self.labels)[np.asarray(row) > 0].tolist())) for row in outputs]

    def probabilities(self, outputs: Any) -> list[list[float]] | None:
        """The probability of each label by itself."""
        return outputs.sigmoid().tolist()

    def score(self, metrics: Sequence[str], gold: Labels, predicted: Labels) -> dict[str, float]:
        """F1 over all answers, and as a mean over the labels that occur on either side."""
        names = dict.fromkeys([*self.labels, *chain(*gold)])  # some gold labels may not have been learned
        sides = np.array(
            [[[name in row for name in names] for row in side] for side in (gold, predicted)], int
        )
        hits, both = (sides[0] & sides[1]).sum(0), sides.sum((0, 1))
        micro, each = 2 * hits.sum() / max(1, both.sum()), 2 * hits[both > 0] / both[both > 0]
        macro = float(each.mean()) if len(each) else 0.0
        return {"micro_f1": float(micro), "macro_f1": macro, "mean": (float(micro) + macro) / 2}

    def answer(self, label: Any, probabilities: Sequence[float] | None) -> dict[str, Any]:
        """The labels, and all probabilities."""
        return {"labels": list(label), **super().answer(None, probabilities)}


@dataclass(frozen=True)
class WordTags(OneLabel):
    """A tag for each word, a tuple of names, read at the word's first piece."""

    name: ClassVar[str] = "tags"
    auto_class: ClassVar[str] = "AutoModelForTokenClassification"
    parts: ClassVar[str] = "words"
    choosing = property(
        lambda self: ("f1", "accuracy", "precision", "recall") if self.is_bio else ("accuracy",)
    )
    for_head, probabilities, answer = TaskType.for_head, TaskType.probabilities, TaskType.answer
    class_table, balanced_weights = TaskType.class_table, TaskType.balanced_weights

    @property
    def is_bio(self) -> bool:
        """Whether tags mark spans: O, and B-, I-, E- or S- before a kind."""
        return all(map(_OF_SPANS.match, self.labels))

    def unlike_spans(self, counts: Mapping[str, int]) -> list[str]:
        """The tags that mark no spans although most words have tags that do."""
        odd = [tag for tag in counts if not _OF_SPANS.match(tag)]
        marks = len(counts) - len(odd) - (OUTSIDE in counts)
        return odd if marks and 2 * sum(counts[tag] for tag in odd) < sum(counts.values()) else []

    def target(self, label: Any) -> Any:
        """The numbers of the tags."""
        return tuple(map(self.labels.index, label))

    def per_window(self, outputs: Any, windows: Examples, collator: Any) -> Sequence[Any]:
        """Probabilities of each word's tags, `[words, labels]`; 0 for words outside of the window."""
        words, is_read = collator.read_pieces(windows)
        tables = [np.zeros((len(window.segments[0]), len(self.labels))) for window in windows]
        for row, piece in np.argwhere(is_read).tolist():
            tables[row][words[row, piece]] = outputs[row, piece].softmax(0)
        return tables

    def joined(self, windows: Sequence[Sequence[Any]]) -> Any:
        """The mean over the windows that have a word; O, at next to nothing, for a word without pieces."""
        sums = [np.sum(tables, 0) for tables in windows]
        for table in sums:
            table[:, self.labels.index(OUTSIDE) if OUTSIDE in self.labels else 0] += _TINY
        return [table / np.maximum(1, table.sum(1, keepdims=True)) for table in sums]

    def decide(self, outputs: Any, examples: Examples = ()) -> list[Any]:
        """For each word, as in transformers: word, entity (the tag), score, start and end."""
        answers = []
        for example, rows in zip(examples, outputs, strict=True):
            text, answer = example.segments[0], []
            for word, (start, end), row in zip(text.words, text.offsets, rows, strict=True):
                entity, score = self.labels[row.argmax()], float(row.max())
                answer.append({"word": word, "entity": entity, "score": score, "start": start, "end": end})
            answers.append(answer)
        return answers

    def encode(self, labels: Labels) -> list[Any]:
        """The names of predicted tags."""
        return [tuple(word["entity"] for word in text) for text in labels]

    def score(self, metrics: Sequence[str], gold: Labels, predicted: Labels) -> dict[str, float]:
        """F1, precision and recall of spans if tags mark spans, as seqeval has them; share of right tags."""
        pairs = zip(chain(*gold), chain(*predicted), strict=True)
        accuracy = {"accuracy": float(np.mean([tag == other for tag, other in pairs]))}
        if not self.is_bio:
            return accuracy
        of_gold, of_predicted = (
            {(row, *span) for row, tags in enumerate(side) for span in spans_of(tags)}
            for side in (gold, predicted)
        )
        hits, n_gold, n_predicted = len(of_gold & of_predicted), len(of_gold), len(of_predicted)
        more = {"precision": hits / max(1, n_predicted), "recall": hits / max(1, n_gold)}
        return {"f1": 2 * hits / max(1, n_gold + n_predicted), **accuracy, **more}

    def table(self, predictions: Predictions) -> Iterator[str]:
        """Word and tag in CoNLL columns, with an empty line after each text."""
        for text in predictions.labels:
            yield from (f"{' '.join(word['word'].split())}\t{word['entity']}" for word in text)
            yield ""


def spans_of(tags: Sequence[str]) -> list[tuple[str, int, int]]:
    """Kind, first word and last word of each span that B-, I-, E- and S- mark, as conlleval and seqeval read.

    A span also begins where its kind changes, and after O, E- or S-, whatever its own letter is.
    """
    spans: list[tuple[str, int, int]] = []
    for word, (before, tag) in enumerate(zip([OUTSIDE, *tags], tags, strict=False)):
        if tag != OUTSIDE:
            begins = tag[0] in "BS" or before == OUTSIDE or before[0] in "ES" or tag[2:] != before[2:]
            spans.append((tag[2:], word if begins else spans.pop()[1], word))
    return spans


@dataclass(frozen=True)
class AnswerSpan(TaskType):
    """The span of a text that answers a question; a label is all right answers, as (start, text)."""

    longest_answer: int = 0  # characters, in training; no longer one is given
    unanswerable: bool = False  # training had questions without an answer, so that the model may give none

    name: ClassVar[str] = "answer"
    auto_class: ClassVar[str] = "AutoModelForQuestionAnswering"
    parts: ClassVar[str] = "span"
    choosing: ClassVar[tuple[str, ...]] = ("f1", "exact_match")
    head: ClassVar[dict[str, Any]] = {"num_labels": 2}  # type: ignore[misc]

    def fit(self, labels: Labels) -> AnswerSpan:
        """The length of the longest answer, and whether some question has none."""
        longest = max((len(text) for label in labels for _, text in label), default=0)
        return replace(self, longest_answer=longest, unanswerable=not all(labels))

    def target(self, label: Any) -> Any:
        """The characters of the first answer; an empty range where there is none."""
        start, text = label[0] if label else (0, "")
        return range(start + len(text) - len(text.lstrip()), start + len(text.rstrip()))

    def scorer(self, tokenizer: Any) -> Scorer:
        """The logits of both ends, `[batch, pieces, 2]`; a graph gives them at once."""
        from torch import stack

        def both(model: Any, batch: Any) -> Any:
            output = model(**batch)
            is_graph = hasattr(output, "logits")
            return output.logits if is_graph else stack([output.start_logits, output.end_logits], -1)

        return both

    def per_window(self, outputs: Any, windows: Examples, collator: Any) -> Sequence[Any]:
        """The best answer of each window: sum of its logits, that of no answer, start, end, log-norm."""
        answers = []
        for places, logits in zip(collator.places_of_pieces(windows), outputs.numpy(), strict=True):
            inside = np.flatnonzero(places[:, 0] >= 0)
            norm = np.logaddexp.reduce(logits[[0, *inside]], 0).sum()  # first piece: no answer
            inside = inside if len(inside) else np.zeros(1, int)  # a text without pieces has no answer
            n_characters = places[None, inside, 1] - places[inside, None, 0]
            allowed = (n_characters > 0) & (n_characters <= max(1, self.longest_answer))
            total = np.where(allowed, logits[inside, None, 0] + logits[None, inside, 1], -np.inf)
            first, last = inside[list(np.unravel_index(total.argmax(), total.shape))]
            ends = max(0, places[first, 0]), max(0, places[last, 1])
            answers.append(tuple(map(float, (total.max(), logits[0].sum(), *ends, norm))))
        return answers

    def joined(self, windows: Sequence[Sequence[Any]]) -> Any:
        """The best answer over the windows of each text, or none if all windows have more for that."""
        least = (min(answers, key=lambda answer: answer[1]) for answers in windows)
        nones = [[(none[1], none[1], 0, 0, none[4])] * self.unanswerable for none in least]
        return [max([*answers, *none]) for answers, none in zip(windows, nones, strict=True)]

    def decide(self, outputs: Any, examples: Examples = ()) -> list[Any]:
        """The answer to each question, as in transformers: answer, start, end and score, its probability."""
        answers = []
        for example, (total, _, *ends, norm) in zip(examples, outputs, strict=True):
            start, end = map(int, ends)
            text, score = example.segments[1].text[start:end], float(np.exp(total - norm))
            answers.append({"answer": text, "start": start, "end": end, "score": score})
        return answers

    def encode(self, labels: Labels) -> list[Any]:
        """The texts of the answers."""
        return [answer["answer"] for answer in labels]

    def score(self, metrics: Sequence[str], gold: Labels, predicted: Labels) -> dict[str, float]:
        """F1 over words, and exact matches, as SQuAD's script has them: the best over the right answers."""
        best = [
            np.max([_overlap(answer, text) for _, text in label or [(0, "")]], 0)
            for label, answer in zip(gold, predicted, strict=True)
        ]
        return dict(zip(("f1", "exact_match"), np.mean(best, 0).tolist(), strict=True))

    def table(self, predictions: Predictions) -> Iterator[str]:
        """An object of JSON with the answer to each id, which SQuAD's script reads."""
        texts = dict(zip(predictions.ids, self.encode(predictions.labels), strict=True))
        yield from json.dumps(texts, ensure_ascii=False, indent=0).split("\n")


def _overlap(*pair: str) -> tuple[float, float]:
    """F1 over words, and whether both are the same, normalised as by Rajpurkar et al. (2016)."""
    plain = ("".join(mark for mark in text.lower() if mark not in string.punctuation) for text in pair)
    predicted, gold = (re.sub(r"\b(a|an|the)\b", " ", text).split() for text in plain)
    same, common = float(predicted == gold), (Counter(predicted) & Counter(gold)).total()
    return (2 * common / (len(predicted) + len(gold)) if predicted and gold else same), same


_KINDS = (OneLabel, Score, WrittenLabel, SeveralLabels, SeveralScores, WordTags, AnswerSpan, Similarity)
TYPES: dict[str, type[TaskType]] = {kind.name: kind for kind in _KINDS}
"""The kinds of answer, each a class."""
