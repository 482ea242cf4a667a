"""Reads questions about texts, in SQuAD's JSON or in the rows of a table."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from syntaxformer.base.errors import DataError
from syntaxformer.base.files import read_lines, without_packing
from syntaxformer.encoders.examples import TextExample, TextSet, in_place, text_set
from syntaxformer.encoders.tables import (
    BadRows,
    Row,
    Source,
    as_json,
    csv_quoted,
    first_cells,
    holds_objects,
    pick_column,
    read_table,
    table_format,
)


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
    except (LookupError, TypeError, AttributeError) as error:
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
    except (LookupError, TypeError) as error:
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
