"""Types of task with several answers for a text: labels, a tag for each word, or the part that is an answer.

Labels are lists in JSON (also in a cell of a TSV), or columns of 0 and 1. Tags and questions have files of
their own: CoNLL columns, CoNLL-U among them, or lists in JSON; and SQuAD's JSON.
"""

from __future__ import annotations

import json
import logging
import re
import string
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from syntaxformer.base.errors import DataError
from syntaxformer.base.files import read_lines
from syntaxformer.encoders.tables import (
    Row,
    TextExample,
    TextSet,
    in_place,
    pick_column,
    read_table,
    table_format,
)
from syntaxformer.encoders.task_types import Examples, OneLabel, Predictions, Scorer, TaskType, listed

_log = logging.getLogger("syntaxformer.finetune")

OUTSIDE = "O"
CONLLU = ["id", "form", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc"]
"""Columns of CoNLL-U."""

_OF_SPANS = re.compile("O$|[BIES]-")
_BOOLEAN = {"0": False, "0.0": False, "false": False, "1": True, "1.0": True, "true": True}
_COMMENT = re.compile(r"#\s?\S+\s*[=:]|# ?(new\w+|id)\b|#$")
_TINY = 1e-9


def _as_label(cell: Any) -> str:
    """A label or tag as one line; empty if there is none."""
    return "" if cell is None or cell != cell else " ".join(str(cell).split())


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
        found = listed(cell)
        if isinstance(found, Mapping):
            holds = {name: _BOOLEAN.get(str(value).strip().lower()) for name, value in found.items()}
            if wrong := [name for name, value in holds.items() if value is None]:
                raise ValueError(f"column {wrong[0]!r}: expected 0 or 1, got {str(found[wrong[0]])[:60]!r}.")
            found = [name for name, value in holds.items() if value]
        names = tuple(sorted(set(map(_as_label, found))))
        if "" in names:
            raise ValueError(f"labels: expected names, got an empty one in {str(cell)[:60]}.")
        if not self.labels:
            return names
        return tuple(sorted({self.labels[number] for number in map(super().read, names)}))

    def settle(self, rows: list[Row], column: str, source: str | Path) -> tuple[TaskType, list[Row]]:
        """Take the labels of the rows, and the names of columns that are 0 in all rows."""
        counts: Counter[str] = Counter()
        for row in () if self.labels else rows:
            cell = row.whole(source).cells.get(column)
            try:
                counts.update(self.read(cell))
            except ValueError as error:
                raise DataError(str(error), source, row.number) from error
            counts.update(dict.fromkeys(found, 0) if isinstance(found := listed(cell), Mapping) else {})
        return (self if self.labels else self.with_labels(counts, source)), rows

    def target(self, label: Any) -> Any:
        """1 for each label that holds, 0 for the others."""
        return [float(name in label) for name in self.labels]

    def decide(self, outputs: Any, examples: Examples = ()) -> list[Any]:
        """The labels whose probability is over one half."""
        return [tuple(sorted(np.array(self.labels)[np.asarray(row) > 0].tolist())) for row in outputs]

    def probabilities(self, outputs: Any) -> list[list[float]] | None:
        """The probability of each label by itself."""
        return outputs.sigmoid().tolist()

    def score(self, metrics: Sequence[str], gold: Sequence[Any], found: Sequence[Any]) -> dict[str, float]:
        """F1 over all answers, and as a mean over the labels that occur on either side."""
        sides = np.array([list(map(self.target, side)) for side in (gold, found)], int)
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

    def read_file(self, path: str | Path, columns: Any, name: str, labelled: bool) -> Any:
        """Read sentences in CoNLL columns, or with lists of words and tags in JSON.

        Raises:
            DataError: A row has too few or too many cells, a tag is unknown or missing, or nothing is there.
        """
        is_json = table_format(path) == "json"
        read = partial(_json_words, self.labels) if is_json else _conll_words
        rows, columns = read(path, columns, labelled)
        counts = Counter(chain.from_iterable(tags for _, _, tags in rows))
        counts.pop("", None)  # said below, with its line
        known = self if self.labels or not counts else self.with_labels(counts, path)
        odd = [tag for tag in counts if not _OF_SPANS.match(tag)]
        marks = len(counts) - len(odd) - (OUTSIDE in counts)
        if odd and marks and known is not self and 2 * sum(counts[tag] for tag in odd) < counts.total():
            told = "%s: tags mark spans, except %s. So words are scored, not spans by F1. Correct these."
            _log.warning(told, path, ", ".join(map(repr, odd)))
        examples, n_bare = [], 0
        for lines, words, tags in rows:
            for line, word, tag in zip(lines, words, tags, strict=False):
                if tag not in known.labels:
                    found = repr(tag) if tag else "none"
                    problem = f"tag of {word!r}: expected one of {', '.join(known.labels)}, got {found}."
                    raise DataError(problem, path, line)
            n_bare += sum(tags[first][0] == "I" for _, first, _ in spans_of(tags) if known.is_bio)
            place, text, label = str(len(examples)), " ".join(words), tuple(tags) or None
            examples.append(TextExample((text,), label, (), place, lines[0], tuple(words)))
        if n_bare:
            _log.info("%s: %d spans begin with I-, not B-; they count, as in seqeval", path, n_bare)
        return TextSet(name, str(path), examples), columns, known

    @property
    def is_bio(self) -> bool:
        """Whether tags mark spans: O, and B-, I-, E- or S- before a kind."""
        return all(map(_OF_SPANS.match, self.labels))

    def target(self, label: Any) -> Any:
        """The numbers of the tags."""
        return tuple(map(self.labels.index, label))

    def per_window(self, outputs: Any, windows: Examples, collator: Any) -> Sequence[Any]:
        """Probabilities of each word's tags, `[words, labels]`; 0 for words outside of the window."""
        words, is_read = collator.read_pieces(windows)
        found = [np.zeros((len(one.segments[0]), len(self.labels))) for one in windows]
        for row, piece in np.argwhere(is_read).tolist():
            found[row][words[row, piece]] = outputs[row, piece].softmax(0)
        return found

    def joined(self, windows: Sequence[Sequence[Any]]) -> Any:
        """The mean over the windows that have a word; O, at next to nothing, for a word without pieces."""
        found = [np.sum(parts, 0) for parts in windows]
        for one in found:
            one[:, self.labels.index(OUTSIDE) if OUTSIDE in self.labels else 0] += _TINY
        return [one / np.maximum(1, one.sum(1, keepdims=True)) for one in found]

    def decide(self, outputs: Any, examples: Examples = ()) -> list[Any]:
        """For each word, as in transformers: word, entity (the tag), score, start and end."""
        keys, found = ("word", "entity", "score", "start", "end"), []
        for text, rows in zip((one.segments[0] for one in examples), outputs, strict=True):
            tags = [self.labels[number] for number in rows.argmax(1)]
            cells = zip(text.words, tags, rows.max(1).tolist(), *zip(*text.offsets, strict=True), strict=True)
            found.append([dict(zip(keys, one, strict=True)) for one in cells])
        return found

    def encode(self, labels: Sequence[Any]) -> list[Any]:
        """The names of predicted tags."""
        return [tuple(one["entity"] for one in text) for text in labels]

    def score(self, metrics: Sequence[str], gold: Sequence[Any], found: Sequence[Any]) -> dict[str, float]:
        """F1, precision and recall of spans if tags mark spans, as seqeval has them; share of right tags."""
        pairs = zip(chain(*gold), chain(*found), strict=True)
        accuracy = {"accuracy": float(np.mean([one == other for one, other in pairs]))}
        if not self.is_bio:
            return accuracy
        sides = [
            {(row, *one) for row, tags in enumerate(side) for one in spans_of(tags)} for side in (gold, found)
        ]
        hits, n_gold, n_found = len(sides[0] & sides[1]), *map(len, sides)
        more = {"precision": hits / max(1, n_found), "recall": hits / max(1, n_gold)}
        return {"f1": 2 * hits / max(1, n_gold + n_found), **accuracy, **more}

    def table(self, predictions: Predictions) -> Iterator[str]:
        """Word and tag in CoNLL columns, with an empty line after each text."""
        for text in predictions.labels:
            yield from (f"{' '.join(one['word'].split())}\t{one['entity']}" for one in text)
            yield ""


def spans_of(tags: Sequence[str]) -> list[tuple[str, int, int]]:
    """Kind, first word and last word of each span that B-, I-, E- and S- mark, as conlleval and seqeval read.

    A span also begins where its kind changes, and after O, E- or S-, whatever its own letter is.
    """
    spans: list[tuple[str, int, int]] = []
    for place, (before, tag) in enumerate(zip([OUTSIDE, *tags], tags, strict=False)):
        if tag != OUTSIDE:
            begins = tag[0] in "BS" or before == OUTSIDE or before[0] in "ES" or tag[2:] != before[2:]
            spans.append((tag[2:], place if begins else spans.pop()[1], place))
    return spans


_Sentences = tuple[list[tuple[list[int], list[str], list[str]]], Any]
"""The lines, words and tags (none if unknown) of each sentence, and the columns that were read."""


def _json_words(known: Sequence[str], path: str | Path, columns: Any, labelled: bool) -> _Sentences:
    table, rows = read_table(path), []
    word = pick_column(table.columns, (columns.text,) if columns.text else ("tokens", "words"), "words", path)
    names = (columns.label,) if columns.label else ("tags", "ner_tags", "pos_tags", "upos", "labels")
    tag = next((name for name in names if name in table.columns), names[0])
    for row in table.rows:
        words, tags = row.cells.get(word), row.cells.get(tag, None if labelled else [])
        are_lists = isinstance(words, list) and isinstance(tags, list)
        is_right = are_lists and (len(tags) == len(words) or not (tags or labelled))
        if not is_right or not words or not all(str(one).strip() for one in words):
            problem = f"expected lists {word!r} and {tag!r} of as many words as tags, at least one, got"
            raise DataError(f"{problem} {str(words)[:60]} and {str(tags)[:60]}.", path, row.number)
        numbers = (one for one in tags if isinstance(one, int) and str(one) not in known)
        if (number := next(numbers, None)) is not None:
            names = f"data.features[{tag!r}].feature.names"
            problem = f"{tag}: expected names of tags, such as B-PER, got the number {number}. A data set of"
            raise DataError(f"{problem} `datasets` has them in {names}: write these.", path, row.number)
        rows.append(([row.number] * len(words), list(map(str, words)), list(map(_as_label, tags))))
    return rows, replace(columns, text=word, label=tag)


def _conll_words(path: str | Path, columns: Any, labelled: bool) -> _Sentences:
    lines = list(enumerate(read_lines(path), 1))
    rows = [one for one in lines if one[1].strip() and not one[1].startswith("-DOCSTART-")]
    # A row for sure: # may begin a comment or be a word.
    start, first = next((one for one in rows if one[1][0] != "#"), rows[0] if rows else (1, ""))
    separator = "\t" if "\t" in first else None
    n_cells, is_conllu = len(first.split(separator)), bool(re.match(r"\d\S*\t([^\t]*\t){8}[^\t]*$", first))
    blocks: list[list[tuple[int, str]]] = [[]]
    for number, line in lines:
        is_comment = is_conllu or (separator or "") not in line or _COMMENT.match(line)
        if not line.strip() or line.startswith("-DOCSTART-"):
            blocks.append([])
        elif blocks[-1] or not (line.startswith("#") and is_comment):
            blocks[-1].append((number, line))
    blocks = [block for block in blocks if block]
    if not blocks:
        raise DataError("expected a word and its tag in each line, got an empty file.", path)
    known = [str(number) for number in range(1, n_cells + 1)]
    names = CONLLU if is_conllu else known  # as they are stored: a number may be another column elsewhere
    usual = ("form", "upos") if is_conllu else ("1", known[-1])
    given = columns.text or usual[0], columns.label or usual[1]
    places = {name: place for of_file in (known, names) for place, name in enumerate(of_file)}
    word, tag = map(places.get, given)
    if word is None or (labelled and tag in (None, word)) or (is_conllu and word == 0):
        problem = f"columns: expected two from 1 to {n_cells} (in CoNLL-U also {', '.join(CONLLU)}) for word"
        remedy = "Name them for training with --text-column and --label-column; other files need that layout."
        raise DataError(f"{problem} and tag, got {' and '.join(given)}. {remedy}", path, start)
    sentences = []
    for block in blocks:
        cells = [(number, line.split(separator)) for number, line in block]
        for number, row in cells:
            if len(row) != n_cells or not row[word].strip():
                problem = f"row: expected {n_cells} cells, as in line {start}, got {len(row)}: {row[:5]}."
                if len(row) == n_cells:
                    problem = f"word: expected one in cell {word + 1}, got a blank: {row[:5]}."
                raise DataError(f"{problem} Blank lines separate sentences.", path, number)
        # CoNLL-U has rows for multiword tokens (1-2) and empty nodes (1.1), too.
        cells = [(number, row) for number, row in cells if not is_conllu or row[0].isdecimal()]
        tags = [] if tag in (None, word) else [_as_label(row[tag]) for _, row in cells]
        sentences.append(([number for number, _ in cells], [row[word] for _, row in cells], tags))
    return sentences, replace(columns, text=names[word], label=given[1] if tag is None else names[tag])


@dataclass(frozen=True)
class AnswerSpan(TaskType):
    """The part of a text that answers a question; a label is all right answers, as (start, text).

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

    def read_file(self, path: str | Path, columns: Any, name: str, labelled: bool) -> Any:
        """Read questions in SQuAD's JSON, version 1.1 or 2.

        Raises:
            DataError: It is not SQuAD's, an answer does not stand at its place, or an id occurs twice.
        """
        content, examples, one = "\n".join(read_lines(path, is_document=True)), dict[str, TextExample](), {}
        try:
            paragraphs = chain.from_iterable(article["paragraphs"] for article in json.loads(content)["data"])
            for number, paragraph in enumerate(paragraphs, 1):
                context = in_place(paragraph["context"])
                for one in paragraph["qas"]:
                    label, texts = _answers(one, context, labelled), (in_place(one["question"]), context)
                    if one["id"] in examples or not all(map(str.strip, texts)):
                        raise ValueError("expected an id of its own, a question and a context")
                    examples[one["id"]] = TextExample(texts, label, (), one["id"], number)
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            if isinstance(error, json.JSONDecodeError):
                got = "JSON lines" if error.msg == "Extra data" else f"what is no JSON: {error.msg}"
                problem = f"expected one object of JSON with all questions, as SQuAD's files are, got {got}."
                raise DataError(f"{problem} docs/finetune.md shows it.", path, error.lineno) from error
            where = one.get("id") if isinstance(one, dict) else None
            line = content[: max(0, content.find(f'"{where}"'))].count("\n") + 1
            problem = f"question {where!r}: {error!r}. docs/finetune.md shows SQuAD's format."
            raise DataError(problem, path, line if where else None) from error
        if not examples:
            raise DataError("expected at least one question, got none.", path)
        found = TextSet(name, str(path), list(examples.values()))
        return found, replace(columns, text="question", pair="context"), self

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
            found = model(**batch)
            is_graph = hasattr(found, "logits")
            return found.logits if is_graph else stack([found.start_logits, found.end_logits], -1)

        return both

    def per_window(self, outputs: Any, windows: Examples, collator: Any) -> Sequence[Any]:
        """The best answer of each window: sum of its logits, that of no answer, start, end, log-norm."""
        rows = []
        for places, logits in zip(collator.places_of_pieces(windows), outputs.numpy(), strict=True):
            inside = np.flatnonzero(places[:, 0] >= 0)
            norm = np.logaddexp.reduce(logits[[0, *inside]], 0).sum()  # first piece: no answer
            inside = inside if len(inside) else np.zeros(1, int)  # a text without pieces has no answer
            n_characters = places[None, inside, 1] - places[inside, None, 0]
            allowed = (n_characters > 0) & (n_characters <= max(1, self.longest_answer))
            total = np.where(allowed, logits[inside, None, 0] + logits[None, inside, 1], -np.inf)
            first, last = inside[list(np.unravel_index(total.argmax(), total.shape))]
            found = total.max(), logits[0].sum(), max(0, places[first, 0]), max(0, places[last, 1]), norm
            rows.append(tuple(map(float, found)))
        return rows

    def joined(self, windows: Sequence[Sequence[Any]]) -> Any:
        """The best answer over the windows of each text, or none if all windows have more for that."""
        least = (min(parts, key=lambda part: part[1]) for parts in windows)
        nones = [[(none[1], none[1], 0, 0, none[4])] * self.unanswerable for none in least]
        return [max([*parts, *none]) for parts, none in zip(windows, nones, strict=True)]

    def decide(self, outputs: Any, examples: Examples = ()) -> list[Any]:
        """The answer to each question, as in transformers: answer, start, end and score, its probability."""
        found = []
        for one, (total, _, *ends, norm) in zip(examples, outputs, strict=True):
            (start, end), score = map(int, ends), float(np.exp(total - norm))
            text = one.segments[1].text[start:end]
            found.append({"answer": text, "start": start, "end": end, "score": score})
        return found

    def encode(self, labels: Sequence[Any]) -> list[Any]:
        """The texts of the answers."""
        return [one["answer"] for one in labels]

    def score(self, metrics: Sequence[str], gold: Sequence[Any], found: Sequence[Any]) -> dict[str, float]:
        """F1 over words, and exact matches, as SQuAD's script has them: the best over the right answers."""
        pairs = zip(gold, found, strict=True)
        best = [np.max([_overlap(said, text) for _, text in label or [(0, "")]], 0) for label, said in pairs]
        return dict(zip(("f1", "exact_match"), np.mean(best, 0).tolist(), strict=True))

    def table(self, predictions: Predictions) -> Iterator[str]:
        """An object of JSON with the answer to each id, which SQuAD's script reads."""
        texts = dict(zip(predictions.ids, self.encode(predictions.labels), strict=True))
        yield from json.dumps(texts, ensure_ascii=False, indent=0).split("\n")


def _answers(question: Any, context: str, labelled: bool) -> tuple[tuple[int, str], ...] | None:
    """All right answers: none where nothing answers the question, None where they are unknown."""
    found = tuple((one["answer_start"], in_place(one["text"])) for one in question.get("answers", ()))
    if question.get("is_impossible"):
        return ()
    for start, text in found:
        if not text or context[start : start + len(text)] != text:
            got = context[start : start + len(text)][:60]
            raise ValueError(f"expected {text[:60]!r} at character {start} of the context, got {got!r}")
    if not found and labelled:
        raise ValueError("expected answers, or is_impossible, got neither")
    return found or None


def _overlap(*pair: str) -> tuple[float, float]:
    """F1 over words, and whether both are the same, normalised as by Rajpurkar et al. (2016)."""
    plain = ("".join(one for one in text.lower() if one not in string.punctuation) for text in pair)
    found, gold = (re.sub(r"\b(a|an|the)\b", " ", text).split() for text in plain)
    same, common = float(found == gold), (Counter(found) & Counter(gold)).total()
    return (2 * common / (len(found) + len(gold)) if found and gold else same), same
