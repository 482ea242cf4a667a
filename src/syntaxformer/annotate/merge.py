"""Annotated corpora put together to one, as Arrow columns.

No sentence is made, so that this costs little beside the annotation. The file is, byte for byte, what
`write_annotations` makes of all sentences.
"""

# pyright: basic
# (pyarrow has no complete types.)

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa

from syntaxformer.annotate.columns import SentenceEncoder
from syntaxformer.annotate.corpus import read_annotations
from syntaxformer.annotate.store import ROWS_PER_GROUP, annotation_writer, write_header
from syntaxformer.base.errors import DataError

__all__ = ["merge_annotations"]


def merge_annotations(
    path: str | Path, parts: Iterable[str | Path], *, annotator: str, version: str, content_hash: str
) -> None:
    """Write the rows of several annotated corpora into one.

    Args:
        path: The Parquet file; replaced if it exists.
        parts: Files that `write_annotations` wrote, in order.
        annotator: Name of what made them.
        version: Its version.
        content_hash: `hash_lines` of the whole text.

    Raises:
        DataError: A part cannot be read, the lines are not those of the text, or the disk is full.
    """
    encoder, digest = SentenceEncoder(), hashlib.sha256()
    with annotation_writer(path) as writer:
        for batch in _groups(_recoded(parts, encoder)):
            for text in batch.column("text").to_pylist():
                digest.update(f"{text}\n".encode())
            writer.write_batch(batch)
        if digest.hexdigest() != content_hash:
            raise DataError(
                f"expected the parts to hold the lines of the text in their order, got {encoder.n_lines} "
                "lines that differ. Nothing was written.",
                Path(path),
            )
        write_header(writer, encoder.header(annotator, version, content_hash))


def _recoded(parts: Iterable[str | Path], encoder: SentenceEncoder) -> Iterator[pa.RecordBatch]:
    for part in parts:
        corpus = read_annotations(part)
        for batch in corpus.scan():
            yield encoder.recode(batch, corpus.header.tags)


def _groups(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows, `ROWS_PER_GROUP` in each batch but the last."""
    waiting: list[pa.RecordBatch] = []
    n_rows = 0
    for batch in batches:
        while n_rows + batch.num_rows >= ROWS_PER_GROUP:
            missing = ROWS_PER_GROUP - n_rows
            yield pa.concat_batches([*waiting, batch.slice(0, missing)])
            waiting, n_rows, batch = [], 0, batch.slice(missing)
        if batch.num_rows:
            waiting.append(batch)
            n_rows += batch.num_rows
    if waiting:
        yield pa.concat_batches(waiting)
