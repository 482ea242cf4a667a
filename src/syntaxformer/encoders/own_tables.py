"""Reads the user's own labelled texts: tables, sentences whose words have tags, questions about texts.

Columns of a table are named by the user, recognised by usual names, or are text and label in a table of two
columns without header. Tags stand in CoNLL columns (CoNLL-U among them) or as lists in a table, questions in
SQuAD's JSON or in the rows of a table.
"""

from __future__ import annotations

import csv
import json
import logging
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any

from syntaxformer.base.errors import ConfigError, DataError
from syntaxformer.base.files import read_lines, without_packing
from syntaxformer.encoders.examples import (
    Binding,
    TextExample,
    TextSet,
    examples_from_rows,
    in_place,
    text_set,
)
from syntaxformer.encoders.tables import (
    BadRows,
    Row,
    Source,
    Table,
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
from syntaxformer.encoders.task_types import OneLabel, Score, TaskType, WordTags, spans_of
from syntaxformer.encoders.tasks import USUAL

_log = logging.getLogger("syntaxformer.finetune")


def read_own_table(
    path: Source,
    task_type: TaskType,
    columns: TableColumns,
    name: str = "train",
    labelled: bool = True,
    bad: BadRows | None = None,
) -> tuple[TextSet, TableColumns, TaskType]:
    """Read a table, or the file of a type that has files of its own.

    A type without names of labels takes those of the file; other labels than its names are refused for
    training, and else read as classes that the type never predicts. `columns` are those that the user named.
    If it need not be `labelled`, blank lines between rows are refused, because rows are counted. Rows that
    cannot be used are added to `bad`, and refused if they are more than it allows.

    Returns:
        The examples, the columns that were read, and the type with its labels.

    Raises:
        DataError: The file cannot be used; with the line.
        ConfigError: The role of the columns is not clear.
    """
    bad = bad or BadRows(path)
    if isinstance(task_type, WordTags):
        return read_words(path, task_type, columns, name, labelled, bad)
    if task_type.parts == "span":
        columns = replace(columns, text="question", pair="context")
        return read_questions(path, name, labelled, bad), columns, task_type
    quoted, why = csv_quoted(path, columns.quotes)
    if why:
        level = logging.WARNING if why.startswith("nothing tells") else logging.INFO
        way, other = ("as in CSV, and removed", "text") if quoted else ("as part of the text", "csv")
        _log.log(level, "%s: quotes are read %s: %s. Otherwise set data.quotes=%s.", path, way, why, other)
    _refuse_other_separators(path, columns, labelled)
    table = read_table(path, partial(_numbered, path, columns, labelled), quoted, blank_lines=labelled)
    table = replace(table, rows=[row for row, _ in bad.whole(table.rows, Row.check)])
    if bad.rows and not table.rows:
        bad.refuse()
    if columns.named or table.has_header:
        first = ["score"] if task_type.name == Score.name or task_type.separate else []
        labels = list(dict.fromkeys([*first, *USUAL.label]))
        table, columns = _settle_columns(table, columns, path, labelled, labels, bad)
    else:
        columns = replace(columns, text="1", label="2" if len(table.columns) == 2 else None)
    if task_type.separate and columns.pair is None:
        problem = f"columns: expected two texts in a row for {task_type.name}, got one column of them"
        raise DataError(f"{problem}. Name them with --text-column and --text-pair-column.", path)
    rows, unlabelled = table.rows, [] if labelled else task_type.blanks()
    if columns.label is not None:
        try:
            learned, rows = task_type.settle(rows, columns.label, bad)
        except DataError:
            bad.refuse()  # which says why nothing can be learned
            raise
        if name != "train" and isinstance(learned, OneLabel):
            read = (lambda row, of: row.cells.get(of)) if learned.takes_lists else Row.text
            cells = (cell for row in rows if (cell := read(row, columns.label)) not in ("", *unlabelled))
            learned = learned.widened(cells, path)
        task_type = learned
    binding = Binding(texts=columns.texts, label=columns.label, task_type=task_type, unlabelled=unlabelled)
    return examples_from_rows(rows, binding, name, bad), columns, task_type


def cells_of(texts: TextSet, path: Source, columns: TableColumns) -> Iterator[list[str]]:
    """The rows of some examples as they stand in their table, after its header if it has one."""
    table = read_table(path, partial(_numbered, path, columns, True), csv_quoted(path, columns.quotes)[0])
    if table.has_header:
        yield table.columns
    lines = {example.line for example in texts.examples}
    for row in table.rows:
        if row.number in lines:
            cells = ("" if (cell := row.cells.get(name)) is None else cell for name in table.columns)
            yield [json.dumps(c, ensure_ascii=False) if isinstance(c, list | dict) else str(c) for c in cells]


def _numbered(path: Source, columns: TableColumns, labelled: bool, first: Sequence[str]) -> list[str] | None:
    """Numbers as the names of columns if the first line is a row; None if it is a header."""
    numbers = [str(number) for number in range(1, len(first) + 1)]
    if columns.named:
        # A single cell that equals a column's number is a label; a header has all names.
        named = set(columns.named)
        return numbers if named <= set(numbers) and not named <= set(first) else None
    texts, labels = USUAL.texts[0], USUAL.label
    if set(first) & set(texts) and (set(first) & set(labels) or not labelled):
        return None
    if len(first) == 2 or (len(first) == 1 and not labelled):
        return numbers
    remedy = "Name yours with --text-column and --label-column." if labelled else "Rename yours in the file."
    raise ConfigError(
        f"{path}: expected two columns, text and label, or columns named {texts[0]!r} and "
        f"{labels[0]!r}, got {len(first)} cells in line 1: {', '.join(map(repr, first[:5]))}. {remedy}"
    )


def _settle_columns(
    table: Table, columns: TableColumns, path: Source, labelled: bool, labels: Sequence[str], bad: BadRows
) -> tuple[Table, TableColumns]:
    """Find the columns by the names that the user gave, or by usual names; `labels` are those of labels."""
    names, usual, rows = table.columns, USUAL.texts, table.rows
    if not rows:
        raise DataError("expected rows of text and label, got none.", path)
    # Without required labels a model predicts; its columns are known, and no option can name others.
    options = ("--text-column", "--text-pair-column")
    what = options if labelled else ("text, as in training", "second text, as in training")
    text = pick_column(names, (columns.text,) if columns.text else usual[0], what[0], path)
    pair = next((name for name in usual[1] if name in names and not columns.text), None)
    if columns.pair:
        pair = pick_column(names, (columns.pair,), what[1], path)
    if pair is None and not columns.text and holds_objects(path):

        def check(row: Row) -> None:  # line 1, which says the columns, has no second text
            if more := [name for name in usual[1] if row.text(name)]:
                problem = f"row: expected the columns of line 1, got {', '.join(more)} as well."
                raise ValueError(f"{problem} Give a second text in every row, or in none.")

        rows = [row for row, _ in bad.whole(rows, check)]
    label = columns.label
    if label and "," in label and label not in names:
        several = label.split(",")
        for name in several if labelled else ():
            pick_column(names, (name,), "--label-column", path)
        label = label if set(several) <= set(names) else None
        if label is not None:
            cells = [{**row.cells, label: {name: row.cells.get(name) for name in several}} for row in rows]
            rows = [replace(row, cells=of_row) for row, of_row in zip(rows, cells, strict=True)]
    elif labelled:
        label = pick_column(names, (label,) if label else labels, "--label-column", path)
    else:
        label = next((name for name in ((label,) if label else labels) if name in names), None)
    settled = TableColumns(text, label, pair, columns.quotes)
    if twice := [name for name in settled.named if names.count(name) > 1]:
        raise DataError(f"line 1: expected column {twice[0]!r} once, got it twice. Rename one.", path)
    if labelled and not columns.named and (unread := {*usual[0], *labels} & set(names) - set(settled.named)):
        read, more = ", ".join(map(repr, settled.named)), ", ".join(sorted(map(repr, unread)))
        _log.warning("%s: %s are read, %s not. Choose by --text-column and --label-column.", path, read, more)
    return replace(table, rows=rows), settled


def _refuse_other_separators(path: Any, columns: TableColumns, labelled: bool) -> None:
    """Check that a CSV is not separated by semicolons or tabs.

    A single column of texts may contain them, so without labels one of the cells must be a column's name.
    """
    line = next(iter(read_lines(path)), "") if table_format(path) == "csv" else ""
    known = {*USUAL.texts[0], *USUAL.label, *columns.named}
    for separator, what in ((";", "semicolons"), ("\t", "tabs")):
        cells = next(csv.reader([line.replace("\r", " ")], delimiter=separator), [])
        if "," not in line and len(cells) > 1 and (labelled or known & set(cells)):
            problem = f"expected commas between the cells of a CSV file, got {what}: {line[:80]!r}."
            remedy = "Convert the file to commas, or to tabs with a name that ends in .tsv."
            raise DataError(f"{problem} {remedy}", path, 1)


CONLLU = ["id", "form", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc"]
_WORDS = ("tokens", "words")
_COMMENT = re.compile(r"#\s?\S+\s*[=:]|# ?(new\w+|id)\b|#$")


_Sentence = list[tuple[int, str, str | None]]
"""The line, text and tag of each word; the tag is None where tags are unknown."""


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
    counts = Counter(tag for sentence in sentences for _, _, tag in sentence if tag)
    if counts and not task_type.labels:
        task_type = task_type.with_labels(counts, path)
        if odd := task_type.unlike_spans(counts):
            message = "%s: tags mark spans, except %s. So words are scored, not spans by F1. Correct these."
            _log.warning(message, path, ", ".join(map(repr, odd)))
    read_by: Any = task_type
    if name != "train" and task_type.labels:
        read_by = task_type.widened(counts.elements(), path)
    known, examples, n_bare = {*read_by.labels, None}, [], 0
    for sentence in sentences:
        lines, words, tags = zip(*sentence, strict=True)
        if wrong := {*tags} - known:
            for line, word, tag in sentence:
                if tag in wrong:
                    expected = f"tag of {word!r}: expected one of {', '.join(task_type.labels)}"
                    bad.add(line, [word, tag], f"{expected}, got {repr(tag) if tag else 'none'}.")
            continue
        label = None if tags[0] is None else tags
        if label and task_type.is_bio:
            n_bare += sum(label[first][0] == "I" for _, first, _ in spans_of(label))
        examples.append(TextExample((" ".join(words),), label, (), str(len(examples)), lines[0], words))
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
) -> tuple[list[_Sentence], TableColumns]:
    table = read_table(path, quoted=csv_quoted(path)[0])
    word = pick_column(table.columns, (columns.text,) if columns.text else _WORDS, "words", path)
    names = (columns.label,) if columns.label else ("tags", "ner_tags", "pos_tags", "upos", "labels")
    tag = next((name for name in names if name in table.columns), names[0])

    def read(row: Row) -> _Sentence:
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
        names_of_tags = map(as_line, tags) if tags else [None] * len(words)
        return [(row.number, str(text), name) for text, name in zip(words, names_of_tags, strict=True)]

    sentences = [sentence for _, sentence in bad.whole(table.rows, read)]
    return sentences, replace(columns, text=word, label=tag)


def _conll_words(
    path: Any, columns: TableColumns, labelled: bool, bad: BadRows
) -> tuple[list[_Sentence], TableColumns]:
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
        rows = [(number, row) for number, row in block if not is_conllu or row[0].isdecimal()]
        if not rows:
            bad.add(*block[0], "sentence: expected words, got multiword tokens or empty nodes alone.")
            continue
        is_tagged = tag not in (None, word)
        sentences.append([(n, row[word], as_line(row[tag]) if is_tagged else None) for n, row in rows])
    return sentences, replace(columns, text=names[word], label=chosen[1] if tag is None else names[tag])


def read_questions(path: Source, name: str, labelled: bool, bad: BadRows) -> TextSet:
    """Read questions in SQuAD's JSON, version 1.1 or 2, or in the rows of a table, as on the Hub.

    Raises:
        DataError: It is neither, an answer does not stand at its place, or an id occurs twice.
    """
    examples, table, columns = dict[str, TextExample](), None, ("question", "context")
    if table_format(path) == "csv" or has_questions(path):
        table = read_table(path, quoted=csv_quoted(path)[0])
        for column in columns:
            pick_column(table.columns, (column,), column, path)

    def read(row: Row) -> None:
        row.check()
        question, index = row.cells, str(row.cells.get("id") or row.number)
        try:
            texts = tuple(in_place(cell) for name in columns if isinstance(cell := question.get(name), str))
            if len(texts) < 2 or index in examples or not all(map(str.strip, texts)):
                raise ValueError("expected an id of its own, a question and a context")
            label = _answers(question, texts[1], labelled)
        except ValueError as error:
            shown = f"question {index!r}: {error}. docs/guides/finetune.md shows the formats."
            raise ValueError(shown) from error
        number = row.number if table else question["paragraph"]
        examples[index] = TextExample(texts, label, (), index, number)

    for _ in bad.whole(table.rows if table else _squad_rows(path), read):
        pass
    return text_set(list(examples.values()), {}, name, bad)


def has_questions(path: Source) -> bool:
    """Whether questions stand in the rows of a table, and not in a document of JSON."""
    if holds_objects(path):
        return Path(without_packing(str(path))).suffix.lower() != ".json"
    return {"question", "context"} <= first_cells(path)


def _squad_rows(path: Any) -> Iterator[Row]:
    """The questions of a document, each with its paragraph's context and number, and the line of its id."""
    content, line, position = "\n".join(read_lines(path, is_document=True)), 1, 0
    try:
        paragraphs = chain.from_iterable(article["paragraphs"] for article in json.loads(content)["data"])
        for number, paragraph in enumerate(paragraphs, 1):
            for question in paragraph["qas"]:
                offset = content.find(json.dumps(question["id"], ensure_ascii=False), position)
                line = line + content.count("\n", position, offset) if offset >= 0 else 1
                position = offset if offset >= 0 else len(content)  # so none is looked for again
                yield Row(line, {**question, "context": paragraph["context"], "paragraph": number})
    except json.JSONDecodeError as error:
        got = "JSON lines" if error.msg == "Extra data" else f"what is no JSON: {error.msg}"
        problem = f"expected one object of JSON with all questions, as SQuAD's files are, got {got}."
        raise DataError(f"{problem} docs/guides/finetune.md shows it.", path, error.lineno) from error
    except (LookupError, TypeError, AttributeError, ValueError, RecursionError) as error:
        problem = f"expected SQuAD's format, got: {error!r}. docs/guides/finetune.md shows it."
        raise DataError(problem, path) from error


def _answers(question: Any, context: str, labelled: bool) -> tuple[tuple[int, str], ...] | None:
    """All right answers: none where nothing answers the question, None where they are unknown."""
    if question.get("is_impossible"):
        return ()
    cell = as_json(question.get("answers"))
    try:
        if isinstance(cell, dict):  # a table has lists of texts and of places
            pairs = [*zip(cell["answer_start"], cell["text"], strict=True)]
        else:
            pairs = [(answer["answer_start"], answer["text"]) for answer in cell or ()]
        answers = tuple((int(start), in_place(text)) for start, text in pairs)
    except (LookupError, TypeError, OverflowError) as error:
        expected = "answers: expected text and answer_start of each"
        raise ValueError(f"{expected}, got {str(cell)[:60]}") from error
    for start, text in answers:
        if not text or start < 0 or context[start : start + len(text)] != text:
            got = context[start : start + len(text)][:60]
            raise ValueError(f"expected {text[:60]!r} at character {start} of the context, got {got!r}")
    if isinstance(cell, dict):
        return answers
    if not answers and labelled:
        raise ValueError("expected answers, or is_impossible, got neither")
    return answers or None
