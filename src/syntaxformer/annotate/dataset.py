"""Rows of Hugging Face's `datasets`: a column of annotation beside their texts, which a collator reads."""

# pyright: basic
# (datasets and pyarrow have no complete types.)

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, islice, repeat
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from syntaxformer.annotate.annotator import Annotator, annotator_for
from syntaxformer.annotate.registry import load_annotator
from syntaxformer.annotate.store import SCHEMA, annotate_cached
from syntaxformer.base.config import nearest
from syntaxformer.base.errors import DataError

if TYPE_CHECKING:
    from datasets import Dataset, DatasetDict

SYNTAX, ANNOTATOR = "syntax", "annotator"
"""The column and, in it, who annotated. `Trainer` keeps it: `forward` of infused models names it."""

_CELL = pa.struct([pa.field(ANNOTATOR, pa.string()), *SCHEMA])
_CHUNK, _MOST_SHOWN = 1000, 5
_Rows = TypeVar("_Rows", "Dataset", "DatasetDict")


def annotate_dataset(
    dataset: _Rows,
    text: str | tuple[str, str] = "text",
    annotator: str | Annotator = "en+phrases",
    *,
    n_processes: int = 1,
) -> _Rows:
    """Annotate the texts of a data set, as a column `syntax` beside them.

    A cell holds `annotator`, `text`, `starts` and `ends` of words in it, `words` where they are not these
    characters, and the columns of `trees.sentence.COLUMNS`; of a pair a list of two. Rows that hold what this
    annotator says of their texts are left as they are.

    Args:
        dataset: A `Dataset`, or a `DatasetDict`, whose parts may have parsed files of their own.
        text: Column of the texts, or the two columns of pairs.
        annotator: As `load_annotator` takes it.
        n_processes: Worker processes that annotate.

    Raises:
        TypeError: It is no such data set, or is streamed.
        DataError: There is no such column, or a text is empty or None; with the numbers of the rows, from 0.
        ConfigError, BackendMissingError: There is no such annotator, or it is not installed.
    """
    from datasets import Dataset, DatasetDict

    if not isinstance(dataset, Dataset | DatasetDict):
        raise TypeError(
            f"dataset: expected a Dataset or DatasetDict of `datasets`, got {type(dataset).__name__}. "
            "Load it without streaming, or make one with Dataset.from_list."
        )
    names = (text,) if isinstance(text, str) else tuple(text)
    parts: Any = dataset if isinstance(dataset, DatasetDict) else {str(dataset.split or ""): dataset}
    lines = {split: _texts(rows, names, split) for split, rows in parts.items()}
    loaded = load_annotator(annotator)
    done: Any = DatasetDict()
    for split, rows in parts.items():
        done[split] = _annotated(rows, lines[split], len(names), annotator_for(loaded, split), n_processes)
    return done if isinstance(dataset, DatasetDict) else done.popitem()[1]


def parts_of(cell: Any) -> list[Any]:
    """What a cell of the column holds: one annotation, or two of a pair; none where it is empty."""
    return [] if cell is None else [cell] if isinstance(cell, Mapping) else list(cell)


def _texts(rows: Dataset, names: Sequence[str], split: str) -> list[str]:
    """All texts, those of a row one after the other, each after a look at it."""
    for name in names:
        if name not in rows.column_names:
            raise DataError(
                f"text: expected a column of the data set, got {name!r}. {nearest(name, rows.column_names)}"
            )
    texts = list(chain.from_iterable(zip(*(_column(rows, name) for name in names), strict=True)))
    empty = [position for position, text in enumerate(texts) if not isinstance(text, str) or not text.strip()]
    if empty:
        numbers = list(dict.fromkeys(position // len(names) for position in empty))
        shown = ", ".join(map(str, numbers[:_MOST_SHOWN])) + ", …" * (len(numbers) > _MOST_SHOWN)
        raise DataError(
            f"{f'{split}, ' if split else ''}column {names[empty[0] % len(names)]!r}: expected a text in "
            f"every row, got {texts[empty[0]]!r} in row {shown} (from 0; {len(numbers)} in all). Leave such "
            "rows out with `filter`."
        )
    return texts


def _column(rows: Dataset, name: str) -> Iterator[Any]:
    """Its cells; None for each row where there is no such column."""
    if name not in rows.column_names:
        return repeat(None, len(rows))
    chunks: Any = rows.with_format(None).select_columns([name]).iter(_CHUNK)
    return chain.from_iterable(chunk[name] for chunk in chunks)


def _annotated(
    rows: Dataset, lines: list[str], per_row: int, annotator: Annotator, n_processes: int
) -> Dataset:
    """The data set with its column; new annotation goes through the cache of annotated text."""
    from datasets import Dataset, Features
    from datasets.fingerprint import Hasher

    schema = pa.schema([pa.field(SYNTAX, _CELL if per_row == 1 else pa.list_(_CELL))])
    features = Features({**rows.features, **Features.from_arrow_schema(schema)})
    if rows.features.get(SYNTAX, features[SYNTAX]) != features[SYNTAX]:
        raise DataError(
            f"column {SYNTAX!r}: expected that of annotate_dataset for "
            f"{'texts' if per_row == 1 else 'pairs'}, got another. Rename or remove it."
        )
    by = f"{annotator.name} {annotator.version}"
    row_texts = list(zip(*(lines[offset::per_row] for offset in range(per_row)), strict=True))
    present_cells, before = _column(rows, SYNTAX), _column(rows, SYNTAX)
    known = [
        [(annotation.get(ANNOTATOR), annotation["text"]) for annotation in parts_of(cell)]
        == [(by, text) for text in texts]
        for cell, texts in zip(present_cells, row_texts, strict=True)
    ]
    if not known:  # `map` adds no column to a data set without rows
        return Dataset.from_dict({name: [] for name in features}, features, split=rows.split)
    if all(known):
        return rows
    missing = [
        text for is_known, texts in zip(known, row_texts, strict=True) if not is_known for text in texts
    ]
    corpus = annotate_cached(missing, annotator, n_processes=n_processes, progress=True)
    new = ({ANNOTATOR: by, **row} for table in corpus.tables() for row in table.to_pylist())

    def cells(_: Any, numbers: list[int]) -> dict[str, list[Any]]:  # is given all rows once, in their order
        old = zip(numbers, before, strict=False)
        column = [parts_of(cell) if known[at] else list(islice(new, per_row)) for at, cell in old]
        return {SYNTAX: [parts[0] for parts in column] if per_row == 1 else column}

    return rows.map(
        cells,
        with_indices=True,
        batched=True,
        batch_size=_CHUNK,
        features=features,
        new_fingerprint=Hasher.hash([rows._fingerprint, SYNTAX, by, per_row, lines]),
        desc=f"column {SYNTAX}",
    )
