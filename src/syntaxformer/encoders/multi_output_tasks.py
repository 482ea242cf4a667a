"""Types of task with several answers for a text: labels, scores, a tag for each word; or a span as answer.

Labels and scores are lists in JSON (also in a cell of a TSV), or columns; `task_data` reads the files of tags
and of questions.
"""

from __future__ import annotations

import json
import re
import string
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, ClassVar

import numpy as np

from syntaxformer.encoders.metrics import score_predictions
from syntaxformer.encoders.tables import BadRows, Row, as_json, as_line
from syntaxformer.encoders.task_types import Examples, OneLabel, Predictions, Score, Scorer, TaskType

OUTSIDE = "O"
_OF_SPANS = re.compile("O$|[BIES]-")
_BOOLEAN = {"0": False, "0.0": False, "false": False, "1": True, "1.0": True, "true": True}
_TINY = 1e-9


def _listed(cell: Any) -> list[Any] | Mapping[str, Any]:
    """A list, which JSON writes where the cell is text, or the cells of several columns by name.

    Raises:
        ValueError: It is neither.
    """
    content = as_json(cell)
    if not isinstance(content, list | Mapping):
        raise ValueError(f'label: expected a list as ["a", "b"], or several columns, got {str(cell)[:60]!r}.')
    return content


@dataclass(frozen=True)
class SeveralScores(Score):
    """Several scores, a tuple: an output for each, trained with squared error.

    Args:
        labels: Names of the scores: those of their columns, or their places in the list, from 1.
    """

    labels: tuple[str, ...] = ()

    name: ClassVar[str] = "scores"
    takes_lists: ClassVar[bool] = True
    names = property(lambda self: self.labels or ())
    choosing = property(lambda self: ("pearson",))  # of "mse", less is better

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

    def score(
        self, metrics: Sequence[str], gold: Sequence[Any], predicted: Sequence[Any]
    ) -> dict[str, float]:
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
    choosing = property(lambda self: ("micro_f1", "macro_f1", "mean"))
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

    def score(
        self, metrics: Sequence[str], gold: Sequence[Any], predicted: Sequence[Any]
    ) -> dict[str, float]:
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

    def encode(self, labels: Sequence[Any]) -> list[Any]:
        """The names of predicted tags."""
        return [tuple(word["entity"] for word in text) for text in labels]

    def score(
        self, metrics: Sequence[str], gold: Sequence[Any], predicted: Sequence[Any]
    ) -> dict[str, float]:
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
    """The span of a text that answers a question; a label is all right answers, as (start, text).

    Args:
        longest_answer: Characters of the longest answer in training; no longer one is given.
        unanswerable: Whether training had questions without an answer, so that the model may give none.
    """

    longest_answer: int = 0
    unanswerable: bool = False

    name: ClassVar[str] = "answer"
    auto_class: ClassVar[str] = "AutoModelForQuestionAnswering"
    parts: ClassVar[str] = "span"
    choosing = property(lambda self: ("f1", "exact_match"))
    head: ClassVar[dict[str, Any]] = {"num_labels": 2}  # type: ignore[misc]

    def fit(self, labels: Sequence[Any]) -> AnswerSpan:
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

    def encode(self, labels: Sequence[Any]) -> list[Any]:
        """The texts of the answers."""
        return [answer["answer"] for answer in labels]

    def score(
        self, metrics: Sequence[str], gold: Sequence[Any], predicted: Sequence[Any]
    ) -> dict[str, float]:
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
