"""What finds the pieces of a translation: the protocol of a decoder, and which one reads which model folder.

`Translator` does all that is text; a decoder sees piece ids and factor ids only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Protocol, runtime_checkable

from syntaxformer.base.errors import CheckpointError
from syntaxformer.translation.length_limit import DecodingConfig
from syntaxformer.translation.model_folder import INFO, FolderInfo
from syntaxformer.translation.source import EncodedText, SourceEncoder

__all__ = ["DECODERS", "FoundPieces", "PieceDecoder", "load_decoder"]

DECODERS = {
    "pytorch": "syntaxformer.translation.torch_decoder",
    "ctranslate2": "syntaxformer.translation.ctranslate2_decoder",
}
"""`backend` of a folder's `syntaxformer.json` → module whose `load` reads the folder."""


@dataclass(frozen=True)
class FoundPieces:
    """One translation of a line.

    Args:
        pieces: Piece ids; special pieces may be among them.
        score: Log-probability divided by length ** length_penalty, the end piece included in both; None where
            it was not asked for.
    """

    pieces: list[int]
    score: float | None = None


@runtime_checkable
class PieceDecoder(Protocol):
    """Beam search over a loaded network.

    Attributes:
        n_ahead: Calls of `decode` that other threads make while the caller's encodes the next lines; 0 where
            the search itself is made of Python.
    """

    n_ahead: int

    def decode(
        self,
        source: EncodedText,
        rows: Sequence[int],
        settings: DecodingConfig,
        n_best: int = 1,
        scored: bool = False,
    ) -> list[list[FoundPieces]]:
        """Translate some rows of a text.

        Args:
            source: Encoded lines, none of the chosen ones empty.
            rows: Which lines, best given longest first: `settings.batch_size` neighbours share a batch.
            settings: Beam, length penalty, batch size and the limit of the length.
            n_best: Translations of each row, best first.
            scored: Give each translation its score.

        Returns:
            For each row its `n_best` translations.
        """
        ...


def load_decoder(folder: Path, info: FolderInfo, encoder: SourceEncoder, device: str | None) -> PieceDecoder:
    """Load the network of a model folder with the decoder that its `backend` names.

    Args:
        folder: A verified model folder.
        info: Its `syntaxformer.json`.
        encoder: Its tokenizer and factor vocabularies.
        device: "cpu", "cuda", …; None for the best there is.

    Raises:
        CheckpointError: No such backend, or the network cannot be read.
        BackendMissingError: The backend's package is not installed.
        ConfigError: There is no such device.
    """
    if info.backend not in DECODERS:
        raise CheckpointError(
            f"{folder / INFO}: backend: expected one of {', '.join(DECODERS)}, got {info.backend!r}. "
            "It was altered or written by a later version."
        )
    return import_module(DECODERS[info.backend]).load(folder, encoder, device)
