"""Rows of Hugging Face's `datasets`: a column of annotation beside their texts, which a collator reads."""

# pyright: basic
# (datasets and pyarrow have no complete types.)

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, compress, islice, repeat
from operator import not_
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from syntaxformer.annotate.annotator import Annotator, annotator_for
from syntaxformer.annotate.registry import load_annotator
from syntaxformer.annotate.store import SCHEMA, annotate_cached, sentence_table
from syntaxformer.base.config import nearest
from syntaxformer.base.errors import DataError

if TYPE_CHECKING:
    from datasets import Dataset, DatasetDict, IterableDataset, IterableDatasetDict

SYNTAX, ANNOTATOR = "syntax", "annotator"
"""The column and, in it, who annotated. `Trainer` keeps it: `forward` of infused models names it."""

_CELL = pa.struct([pa.field(ANNOTATOR, pa.string()), *SCHEMA])
_CHUNK, _MOST_SHOWN = 1000, 5
_Rows = TypeVar("_Rows", "Dataset", "DatasetDict", "IterableDataset", "IterableDatasetDict")
_OF_MAP = [
    "batch_size",
    "desc",
    "load_from_cache_file",
    "keep_in_memory",
    "writer_batch_size",
    "cache_file_name",
]
"""Options of `map`, of which a stream takes the first, and a `DatasetDict` all but the last."""


def annotate_dataset(
    dataset: _Rows,
    text: str | tuple[str, str] = "text",
    annotator: str | Annotator = "en+phrases",
    *,
    num_proc: int | None = None,
    **map_options: Any,
) -> _Rows:
    """Annotate the texts of a data set, as a column `syntax` beside them.

    A cell holds `annotator`, `text`, `starts` and `ends` of words in it, `words` where they are not these
    characters, and the columns of `trees.sentence.COLUMNS`; of a pair a list of two. Rows that hold what this
    annotator says of their texts are left as they are.

    A stream is annotated as it is read, in batches. The cache of `datasets` knows the annotator and its
    version, so a data set on disk is annotated once.

    Args:
        dataset: A `Dataset`, `DatasetDict`, `IterableDataset` or `IterableDatasetDict`, whose parts may have
            parsed files of their own.
        text: Column of the texts, or the two columns of pairs.
        annotator: As `load_annotator` takes it.
        num_proc: Worker processes that annotate; None for this one. A stream is annotated where it is read.
        map_options: Options of `Dataset.map`: `batch_size`, `desc`, `load_from_cache_file`, `keep_in_memory`,
            `writer_batch_size`, and for a `Dataset` `cache_file_name`; of a stream `batch_size` alone.

    Raises:
        TypeError: It is no such data set, or an option is none of these.
        DataError: There is no such column, or a text is empty or None; with the numbers of the rows, from 0.
        ConfigError, BackendMissingError: There is no such annotator, or it is not installed.
    """
    from datasets import Dataset, DatasetDict, IterableDataset, IterableDatasetDict

    if not isinstance(dataset, Dataset | DatasetDict | IterableDataset | IterableDatasetDict):
        raise TypeError(
            f"dataset: expected one of `datasets`, got {type(dataset).__name__}. Use Dataset.from_list."
        )
    streams = isinstance(dataset, IterableDataset | IterableDatasetDict)
    names = (text,) if isinstance(text, str) else tuple(text)
    known = _OF_MAP[:1] if streams else _OF_MAP[:-1] if isinstance(dataset, DatasetDict) else _OF_MAP
    unknown = [option for option in map_options if option not in known]
    if unknown or (streams and num_proc is not None):
        option = (*unknown, "num_proc")[0]
        raise TypeError(f"{option}: expected options of map ({', '.join(known)}), got another.")
    parts: Any = dataset if isinstance(dataset, dict) else {str(dataset.split or ""): dataset}
    lines: dict[str, list[str]] = {}
    for split, rows in parts.items() if not streams else ():
        columns = {name: partial(_column, rows, name) for name in rows.column_names}
        lines[split] = _texts(columns, names, split)
    loaded = load_annotator(annotator)
    done: Any = type(dataset)() if isinstance(dataset, dict) else {}
    for split, rows in parts.items():
        of_split = annotator_for(loaded, split)
        if streams:
            done[split] = _stream(rows, names, split, of_split, map_options)
        else:
            done[split] = _annotated(rows, lines[split], len(names), of_split, num_proc or 1, map_options)
    return done if isinstance(dataset, dict) else done.popitem()[1]


def parts_of(cell: Any) -> list[Any]:
    """What a cell of the column holds: one annotation, or two of a pair; none where it is empty."""
    return [] if cell is None else [cell] if isinstance(cell, Mapping) else list(cell)


def _texts(
    columns: Mapping[str, Callable[[], Iterable[Any]]], names: Sequence[str], split: str, first: int = 0
) -> list[str]:
    """The texts of rows, those of a row one after the other; the first row has this number in the split.

    Raises:
        DataError: There is no such column, or a text is none.
    """
    for name in names:
        if name not in columns:
            hint = nearest(name, [*columns])
            raise DataError(f"text: expected a column of the data set, got {name!r}. {hint}")
    texts = list(chain.from_iterable(zip(*(columns[name]() for name in names), strict=True)))
    empty = [position for position, text in enumerate(texts) if not isinstance(text, str) or not text.strip()]
    if empty:
        numbers = list(dict.fromkeys(first + position // len(names) for position in empty))
        shown = ", ".join(map(str, numbers[:_MOST_SHOWN])) + ", …" * (len(numbers) > _MOST_SHOWN)
        raise DataError(
            f"{f'{split}, ' if split else ''}column {names[empty[0] % len(names)]!r}: expected a text in "
            f"every row, got {texts[empty[0]]!r} in row {shown} (from 0; {len(numbers)} in all). Leave such "
            "rows out with `filter`."
        )
    return texts


def _stream(rows: Any, names: Sequence[str], split: str, annotator: Annotator, options: Any) -> Any:
    """The stream with its column; each batch is annotated as it is read."""

    def cells(batch: dict[str, list[Any]], numbers: list[int]) -> dict[str, list[Any]]:
        columns = {name: partial(batch.__getitem__, name) for name in batch}
        texts = _texts(columns, names, split, numbers[0])
        by = f"{annotator.name} {annotator.version}"
        new = [{ANNOTATOR: by, **row} for row in sentence_table(annotator.annotate(texts)).to_pylist()]
        pairs = [new[at : at + len(names)] for at in range(0, len(new), len(names))]
        return {SYNTAX: new if len(names) == 1 else pairs}

    features = None if rows.features is None else _features(rows, len(names))
    options = {"batch_size": _CHUNK, **options}
    return rows.map(cells, with_indices=True, batched=True, features=features, **options)


def _features(rows: Any, per_row: int) -> Any:
    """Those of the rows with the column of texts or pairs."""
    from datasets import Features

    column = pa.field(SYNTAX, _CELL if per_row == 1 else pa.list_(_CELL))
    return Features({**rows.features, **Features.from_arrow_schema(pa.schema([column]))})


def _column(rows: Dataset, name: str) -> Iterator[Any]:
    """Its cells; None for each row where there is no such column."""
    if name not in rows.column_names:
        return repeat(None, len(rows))
    chunks: Any = rows.with_format(None).select_columns([name]).iter(_CHUNK)
    return chain.from_iterable(chunk[name] for chunk in chunks)


def _annotated(
    rows: Dataset, lines: list[str], per_row: int, annotator: Annotator, n_processes: int, options: Any
) -> Dataset:
    """The data set with its column; new annotation goes through the cache of annotated text."""
    from datasets import Dataset
    from datasets.fingerprint import Hasher

    features = _features(rows, per_row)
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

    def annotations() -> Iterator[dict[str, Any]]:  # not begun where `map` has the column in its cache
        missing = list(chain.from_iterable(compress(row_texts, map(not_, known))))
        corpus = annotate_cached(missing, annotator, n_processes=n_processes, progress=True)
        for table in corpus.tables():
            yield from ({ANNOTATOR: by, **row} for row in table.to_pylist())

    new = annotations()

    def cells(_: Any, numbers: list[int]) -> dict[str, list[Any]]:  # is given all rows once, in their order
        old = zip(numbers, before, strict=False)
        column = [parts_of(cell) if known[at] else list(islice(new, per_row)) for at, cell in old]
        return {SYNTAX: [parts[0] for parts in column] if per_row == 1 else column}

    return rows.map(
        cells,
        with_indices=True,
        batched=True,
        features=features,
        new_fingerprint=Hasher.hash([rows._fingerprint, SYNTAX, by, per_row, lines]),
        **{"batch_size": _CHUNK, "desc": f"column {SYNTAX}", **options},
    )
