"""Reads sentences whose words have tags, in CoNLL columns (CoNLL-U among them) or as lists in a table."""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from syntaxformer.base.errors import DataError
from syntaxformer.base.files import read_lines
from syntaxformer.encoders.examples import TextExample, TextSet, text_set
from syntaxformer.encoders.multi_output_tasks import WordTags, spans_of
from syntaxformer.encoders.tables import (
    BadRows,
    Row,
    Source,
    TableColumns,
    as_json,
    as_line,
    csv_quoted,
    first_cells,
    holds_objects,
    pick_column,
    read_table,
    table_format,
)
from syntaxformer.encoders.task_types import TaskType

_log = logging.getLogger("syntaxformer.finetune")


CONLLU = ["id", "form", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc"]
"""Columns of CoNLL-U."""


_WORDS = ("tokens", "words")


_COMMENT = re.compile(r"#\s?\S+\s*[=:]|# ?(new\w+|id)\b|#$")


@dataclass(frozen=True)
class _TaggedSentence:
    """The line, word and tag of each row of a sentence; without tags if they are unknown."""

    lines: list[int]
    words: list[str]
    tags: list[str]


def read_words(
    path: Source, task_type: WordTags, columns: TableColumns, name: str, labelled: bool, bad: BadRows
) -> tuple[TextSet, TableColumns, TaskType]:
    """Read sentences in CoNLL columns, or with lists of words and tags in the rows of a table.

    Raises:
        DataError: Rows have too few or too many cells, a tag is missing, or unknown in training, or nothing
            is there.
    """
    if table_format(path) == "csv" or has_lists(path, columns.text):
        sentences, columns = _listed_words(task_type.labels, path, columns, labelled, bad)
    else:
        sentences, columns = _conll_words(path, columns, labelled, bad)
    counts = Counter(tag for sentence in sentences for tag in sentence.tags if tag)
    learns = bool(counts) and not task_type.labels
    if learns:
        task_type = task_type.with_labels(counts, path)
        if odd := task_type.unlike_spans(counts):
            message = "%s: tags mark spans, except %s. So words are scored, not spans by F1. Correct these."
            _log.warning(message, path, ", ".join(map(repr, odd)))
    read_by: Any = task_type
    if name != "train" and task_type.labels:
        read_by = task_type.widened(counts.elements(), path)
    known, examples, n_bare = {*read_by.labels}, [], 0
    for sentence in sentences:
        if wrong := {*sentence.tags} - known:
            for line, word, tag in zip(sentence.lines, sentence.words, sentence.tags, strict=True):
                if tag in wrong:
                    expected = f"tag of {word!r}: expected one of {', '.join(task_type.labels)}"
                    bad.add(line, [word, tag], f"{expected}, got {repr(tag) if tag else 'none'}.")
            continue
        if task_type.is_bio:
            n_bare += sum(sentence.tags[first][0] == "I" for _, first, _ in spans_of(sentence.tags))
        text, label = " ".join(sentence.words), tuple(sentence.tags) or None
        index, words = str(len(examples)), tuple(sentence.words)
        examples.append(TextExample((text,), label, (), index, sentence.lines[0], words))
    if n_bare:
        _log.info("%s: %d spans begin with I-, not B-; they count, as in seqeval", path, n_bare)
    return text_set(examples, {}, name, bad), columns, task_type


def has_lists(path: Source, column: str | None = None) -> bool:
    """Whether words and tags stand in lists in the cells of a table, and not in CoNLL columns."""
    if holds_objects(path):
        return True
    second = next(islice(read_lines(str(path)), 1, None), "")
    return bool({column, *_WORDS} & first_cells(path)) and '["' in second.replace('""', '"')


def _listed_words(
    known: Sequence[str], path: Source, columns: TableColumns, labelled: bool, bad: BadRows
) -> tuple[list[_TaggedSentence], TableColumns]:
    table = read_table(path, quoted=csv_quoted(path)[0])
    word = pick_column(table.columns, (columns.text,) if columns.text else _WORDS, "words", path)
    names = (columns.label,) if columns.label else ("tags", "ner_tags", "pos_tags", "upos", "labels")
    tag = next((name for name in names if name in table.columns), names[0])

    def read(row: Row) -> _TaggedSentence:
        row.check()
        words, tags = as_json(row.cells.get(word)), as_json(row.cells.get(tag))
        tags = [] if tags in (None, "") and not labelled else tags
        are_lists = isinstance(words, list) and isinstance(tags, list)
        is_right = are_lists and (len(tags) == len(words) or not (tags or labelled))
        if not is_right or not words or not all(str(text).strip() for text in words):
            problem = f"expected lists {word!r} and {tag!r} of as many words as tags, at least one, got"
            raise ValueError(f"{problem} {str(words)[:60]} and {str(tags)[:60]}.")
        numbers = (cell for cell in tags or () if isinstance(cell, int) and str(cell) not in known)
        if (number := next(numbers, None)) is not None:
            problem = f"{tag}: expected names of tags, such as B-PER, got the number {number}. A data set of"
            remedy = f"`datasets` has them in data.features[{tag!r}].feature.names: write these."
            raise ValueError(f"{problem} {remedy}")
        return _TaggedSentence([row.number] * len(words), list(map(str, words)), list(map(as_line, tags)))

    sentences = [sentence for _, sentence in bad.whole(table.rows, read)]
    return sentences, replace(columns, text=word, label=tag)


def _conll_words(
    path: Any, columns: TableColumns, labelled: bool, bad: BadRows
) -> tuple[list[_TaggedSentence], TableColumns]:
    lines = list(enumerate(read_lines(path), 1))
    rows = [line for line in lines if line[1].strip() and not line[1].startswith("-DOCSTART-")]
    # A row for sure: # may begin a comment or be a word.
    start, first = next((line for line in rows if line[1][0] != "#"), rows[0] if rows else (1, ""))
    separator = "\t" if "\t" in first else None
    n_cells, is_conllu = len(first.split(separator)), bool(re.match(r"\d\S*\t([^\t]*\t){8}[^\t]*$", first))
    blocks: list[list[tuple[int, list[str]]]] = [[]]
    for number, line in lines:
        is_comment = is_conllu or (separator or "") not in line or _COMMENT.match(line)
        if not line.strip() or line.startswith("-DOCSTART-"):
            blocks.append([])
        elif blocks[-1] or not (line.startswith("#") and is_comment):
            blocks[-1].append((number, line.split(separator)))
    if not (blocks := [block for block in blocks if block]):
        raise DataError("expected a word and its tag in each line, got an empty file.", path)
    numbers = [str(number) for number in range(1, n_cells + 1)]
    names = CONLLU if is_conllu else numbers  # as they are stored: a number may be another column elsewhere
    usual = ("form", "upos") if is_conllu else ("1", numbers[-1])
    chosen = columns.text or usual[0], columns.label or usual[1]
    columns_of = {name: column for side in (numbers, names) for column, name in enumerate(side)}
    word, tag = map(columns_of.get, chosen)
    if word is None or (labelled and tag in (None, word)) or (is_conllu and word == 0):
        problem = f"columns: expected two from 1 to {n_cells} (in CoNLL-U also {', '.join(CONLLU)}) for word"
        remedy = "Name them for training with --text-column and --label-column; other files need that layout."
        raise DataError(f"{problem} and tag, got {' and '.join(chosen)}. {remedy}", path, start)
    sentences = []
    for block in blocks:
        broken = [(number, row) for number, row in block if len(row) != n_cells or not row[word].strip()]
        for number, row in broken:
            problem = f"row: expected {n_cells} cells, as in line {start}, got {len(row)}: {row[:5]}."
            if len(row) == n_cells:
                problem = f"word: expected one in cell {word + 1}, got a blank: {row[:5]}."
            bad.add(number, row, f"{problem} Blank lines separate sentences.")
        if broken:
            continue
        # CoNLL-U has rows for multiword tokens (1-2) and empty nodes (1.1), too.
        words = [(number, row) for number, row in block if not is_conllu or row[0].isdecimal()]
        tags = [] if tag in (None, word) else [as_line(row[tag]) for _, row in words]
        sentences.append(
            _TaggedSentence([number for number, _ in words], [row[word] for _, row in words], tags)
        )
    return sentences, replace(columns, text=names[word], label=chosen[1] if tag is None else names[tag])
