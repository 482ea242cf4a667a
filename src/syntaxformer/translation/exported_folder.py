"""What an exported folder holds beside CTranslate2's files, and how encoded lines become its tokens.

`export.json` says what was exported; tokenizer and `syntaxformer.json` are those of the model folder. The
vocabulary files of CTranslate2 are the only names of pieces and factor values: ids count through them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from syntaxformer.base.errors import CheckpointError
from syntaxformer.base.files import read_record
from syntaxformer.base.folder_checks import folder_errors
from syntaxformer.translation.source import EncodedText, SourceEncoder

__all__ = ["EXPORT", "INSTALL", "SEPARATOR", "ExportInfo", "SourceTokens", "read_export", "read_names"]

EXPORT = "export.json"

INSTALL = 'python -m pip install "syntaxformer[export]"'
"""What installs CTranslate2."""

SEPARATOR = "￨"
"""U+FFE8, between the source factors of a CTranslate2 token; no name of a piece or value contains it."""


class ExportInfo(BaseModel):
    """Content of `export.json`.

    Args:
        quantization: Type of the stored weights.
        streams: Factor names of each source stream after the pieces; several stand for each combination.
        max_positions: Rows of the position table: most pieces of a source or a translation.
        largest_difference: Of a log-probability from the trained model, at export, with weights in float32.
        weights_sha256: Of the trained model's weights.
        versions: Of the packages that exported.
    """

    model_config = ConfigDict(extra="forbid")

    quantization: str
    streams: list[list[str]]
    max_positions: int
    largest_difference: float
    weights_sha256: str
    versions: dict[str, str]


def read_export(folder: Path) -> ExportInfo:
    """Read `export.json`.

    Raises:
        CheckpointError: It is missing or not what this version writes.
    """
    return read_record(folder / EXPORT, ExportInfo)


def read_names(folder: Path, side: str, place: int | None = None) -> list[str]:
    """The names of a vocabulary of CTranslate2, in the order of their ids.

    Args:
        folder: Exported folder.
        side: "source" or "target".
        place: Which of several source streams, from 0.

    Raises:
        CheckpointError: There is no such vocabulary, or it is not a list of strings.
    """
    numbered = [] if place is None else [f"{side}_{place + 1}_vocabulary.json"]
    for name in (*numbered, f"{side}_vocabulary.json", "shared_vocabulary.json"):
        if (folder / name).is_file():
            break
    else:
        raise CheckpointError(f"{folder}: expected a {side} vocabulary, found none.")
    with folder_errors(folder / name, "JSON"):
        names = json.loads((folder / name).read_text("utf-8"))
    if not isinstance(names, list) or not all(isinstance(one, str) for one in names):
        raise CheckpointError(f"{folder / name}: expected a list of strings. It was altered.")
    return names


class SourceTokens:
    """Encoded lines → CTranslate2's tokens, "piece￨value" or "piece￨value/value".

    Args:
        pieces: Names of pieces, by id.
        streams: For each further source stream its names, by the id of the combination of its factors'
            values; the last factor changes fastest.
        columns: For each stream the columns of `EncodedText.factors` that it combines.
        sizes: For each stream the number of values of each of these factors.
    """

    def __init__(
        self,
        pieces: Sequence[str],
        streams: Sequence[Sequence[str]] = (),
        columns: Sequence[Sequence[int]] = (),
        sizes: Sequence[Sequence[int]] = (),
    ) -> None:
        self.pieces: NDArray[Any] = np.array(pieces, dtype=object)
        self.streams = [np.array([SEPARATOR + name for name in names], dtype=object) for names in streams]
        self.columns, self.sizes = columns, sizes

    @classmethod
    def read(cls, folder: Path, info: ExportInfo, encoder: SourceEncoder) -> SourceTokens:
        """Read the names of an exported folder, for lines that its source encoder encodes.

        Raises:
            CheckpointError: Its vocabularies or factors are not those of the export.
        """
        order = list(encoder.columns)
        if sorted(name for names in info.streams for name in names) != sorted(order):
            raise CheckpointError(
                f"{folder / EXPORT}: expected the factors {', '.join(order) or 'none'} of syntaxformer.json, "
                f"got {info.streams}. It was altered."
            )
        several = bool(info.streams)
        names = [
            read_names(folder, "source", place if several else None) for place in range(len(info.streams) + 1)
        ]
        columns = [[order.index(name) for name in stream] for stream in info.streams]
        sizes = [[len(encoder.vocabularies[name]) for name in stream] for stream in info.streams]
        return cls(names[0], names[1:], columns, sizes)

    def __call__(self, source: EncodedText, rows: Sequence[int]) -> list[list[str]]:
        """The tokens of some lines."""
        return [self._line(source, int(source.splits[row]), int(source.splits[row + 1])) for row in rows]

    def _line(self, source: EncodedText, start: int, stop: int) -> list[str]:
        tokens = self.pieces[source.pieces[start:stop]]
        for names, columns, sizes in zip(self.streams, self.columns, self.sizes, strict=True):
            values = source.factors[start:stop][:, columns].T
            tokens = tokens + names[np.ravel_multi_index(tuple(values), tuple(sizes))]
        return tokens.tolist()
