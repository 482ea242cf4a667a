"""Encoded pairs on disk: written chunk by chunk, mapped to be read, so that a batch costs its own rows.

Numbers are as narrow as their vocabulary allows; a batch is the one that the arrays in memory give.
"""

from __future__ import annotations

import ctypes
import hashlib
import sys
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import DTypeLike, NDArray

from syntaxformer.syntax import PhraseColumns, WordColumns
from syntaxformer.translation.batches import EncodedPairs
from syntaxformer.translation.parallel import ParallelText
from syntaxformer.translation.prepare import encoded_chunks
from syntaxformer.translation.source import EncodedText, SourceEncoder
from syntaxformer.translation.source_syntax import SourceSyntax, SyntaxInputs
from syntaxformer.translation.stored_arrays import GrowingArray, map_array, stored_folder

__all__ = ["map_text", "stored_pairs", "write_pairs"]

SPLITS = ("splits", "word_splits")
PHRASES = ("word_depths", "gap_depths", "gap_heads")


def stored_pairs(
    cache: Path | None,
    text: ParallelText,
    encoder: SourceEncoder,
    columns: Sequence[WordColumns] | None,
    max_pieces: int | None,
    target: SourceEncoder,
    target_columns: Sequence[WordColumns] | None = None,
    annotators: Sequence[str] = (),
) -> EncodedPairs:
    """What `encode_pairs` returns, on disk; encoded only if the cache does not hold it.

    Args:
        cache: Folder of the cache; None for the user's.
        text: As in `encode_pairs`, likewise the next five.
        encoder: For the source.
        columns: Annotation, made when it is asked for.
        max_pieces: Longest side of a pair.
        target: For the target.
        target_columns: Annotation of the target.
        annotators: What decides the annotations: names, versions, hashes of the user's own files.

    Raises:
        DataError: As `encode_pairs`, or the cache cannot be written.
        ConfigError: As `encode_pairs`.
    """
    made_from = {
        "text": text.sha256,
        "encoders": [_identity(encoder), _identity(target)],
        "max_pieces": max_pieces,
        "annotators": list(annotators),
    }

    def build(folder: Path) -> None:
        chunks = encoded_chunks(text, encoder, columns, max_pieces, target, target_columns)
        write_pairs(folder, chunks, (encoder, target))
        del chunks
        give_memory_back()

    folder = stored_folder(cache, "pairs", made_from, build)
    return EncodedPairs(map_text(folder, "src", encoder.syntax), map_text(folder, "tgt", target.syntax))


def _identity(encoder: SourceEncoder) -> dict[str, Any]:
    """All of an encoder that decides what it makes of annotated lines."""
    tokenizer = encoder.tokenizer.backend_tokenizer.to_str()
    return {
        "tokenizer": hashlib.sha256(tokenizer.encode()).hexdigest(),
        "vocabularies": [vocabulary.to_dict() for vocabulary in encoder.vocabularies.values()],
        "preparation": asdict(encoder.preparation),
        "prepend": encoder.prepend,
        "syntax": encoder.syntax.model_dump(mode="json"),
    }


def write_pairs(
    folder: Path,
    chunks: Iterable[tuple[EncodedText, EncodedText]],
    encoders: tuple[SourceEncoder, SourceEncoder],
) -> None:
    """Write both sides into a folder, chunk by chunk."""
    with ExitStack() as stack:
        files: dict[str, GrowingArray] = {}
        last: dict[str, int] = {}
        for chunk in chunks:
            for side, part, encoder in zip(("src", "tgt"), chunk, encoders, strict=True):
                for name, values in _arrays(part).items():
                    place = f"{side}.{name}"
                    if name in SPLITS:  # lines begin behind those of the chunks before
                        values = values + last[place] if place in last else values
                        last[place] = int(values[-1])
                        values = values[1:] if place in files else values
                    if place not in files:
                        array = GrowingArray(
                            folder / f"{place}.npy", _dtype(name, values, encoder), values.shape[1:]
                        )
                        files[place] = stack.enter_context(array)
                    files[place].append(values)


def give_memory_back() -> None:
    """Hand to the system what allocators keep of chunks that are gone: 600 MB after ten million pairs.

    Arrow's pool can on any system, the C library where it is glibc.
    """
    pa.default_memory_pool().release_unused()
    if sys.platform == "linux" and hasattr(library := ctypes.CDLL(None), "malloc_trim"):
        library.malloc_trim(0)


def _arrays(text: EncodedText) -> dict[str, NDArray[Any]]:
    """All arrays of a text by name."""
    syntax, phrases = text.syntax, None if text.syntax is None else text.syntax.phrases
    found: dict[str, NDArray[Any] | None] = {
        "pieces": text.pieces,
        "splits": text.splits,
        "factors": text.factors,
        "n_tags": text.n_tags,
        "owners": None if syntax is None else syntax.owners,
        "word_splits": None if syntax is None else syntax.word_splits,
        "governors": None if syntax is None else syntax.governors,
        **{name: None if phrases is None else getattr(phrases, name) for name in PHRASES},
    }
    return {name: values for name, values in found.items() if values is not None}


def _dtype(name: str, values: NDArray[Any], encoder: SourceEncoder) -> DTypeLike:
    sizes = [len(vocabulary) for vocabulary in encoder.vocabularies.values()]
    highest = {"pieces": len(encoder.tokenizer) + sum(sizes), "factors": max(sizes, default=0)}
    return np.min_scalar_type(highest[name]) if name in highest else values.dtype


def map_text(folder: Path, side: str, syntax: SyntaxInputs) -> EncodedText:
    """One side of what `write_pairs` wrote; a part is read from the disk when it is looked at.

    Raises:
        CheckpointError: A file is damaged.
    """
    paths = {path.name.split(".")[1]: path for path in folder.glob(f"{side}.*.npy")}
    arrays: dict[str, Any] = {name: map_array(path) for name, path in paths.items()}
    text = EncodedText(arrays["pieces"], arrays["splits"], arrays["factors"], n_tags=arrays.get("n_tags"))
    if "owners" not in arrays:
        return text
    phrases = PhraseColumns(*(arrays[name] for name in PHRASES)) if PHRASES[0] in arrays else None
    parts = (arrays["owners"], arrays["word_splits"], arrays.get("governors"), phrases)
    return replace(text, syntax=SourceSyntax(syntax, *parts))
