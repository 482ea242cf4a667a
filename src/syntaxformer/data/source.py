"""From raw source lines to what the encoder reads: pieces, and the factors of each piece.

The one path for training and for translation: what a model folder stores is exactly this object's parts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from transformers import PreTrainedTokenizerFast

from syntaxformer.align import FactorVocabulary, UnseenValues, WordColumns, encoding_offsets, piece_factors
from syntaxformer.data.preparation import TextPreparation

__all__ = ["EncodedText", "SourceEncoder", "encode_pieces"]


@dataclass(frozen=True)
class EncodedText:
    """Lines as flat arrays.

    Args:
        pieces: `[pieces]`, int32, all lines one after the other.
        splits: `[lines + 1]`, where each line begins.
        factors: `[pieces, factors]`, int32; no column where there are no factors.
    """

    pieces: NDArray[np.int32]
    splits: NDArray[np.int64]
    factors: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.splits) - 1

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Pieces of each line."""
        return np.diff(self.splits)

    def cut(self, longest: int) -> EncodedText:
        """Leave the first pieces of lines that are longer, and their end piece."""
        if self.lengths.max(initial=0) <= longest:
            return self
        kept = [
            np.r_[start : min(stop - 1, start + longest - 1), stop - 1]
            for start, stop in pairwise(self.splits.tolist())
        ]
        flat = np.concatenate(kept)
        splits = np.concatenate([[0], np.cumsum([len(part) for part in kept])])
        return EncodedText(self.pieces[flat], splits, self.factors[flat])


def encode_pieces(tokenizer: PreTrainedTokenizerFast, lines: Sequence[str]) -> list[Any]:
    """Encode lines with their end piece. Text that spells a special piece ("</s>") is text."""
    backend = tokenizer.backend_tokenizer
    backend.encode_special_tokens = True
    return backend.encode_batch(list(lines))


@dataclass
class SourceEncoder:
    """Tokenizer and factor vocabularies of the source side.

    Args:
        tokenizer: Any fast tokenizer.
        vocabularies: One for each factor, in the order of the model's columns.
        unseen: Counts factor values that the vocabularies do not know.
        preparation: What happens to a line before the tokenizer; the annotation is that of the raw line.
        own_target: The target language's tokenizer, where it is another one.
    """

    tokenizer: PreTrainedTokenizerFast
    vocabularies: dict[str, FactorVocabulary] = field(default_factory=dict)
    unseen: UnseenValues = field(default_factory=UnseenValues)
    preparation: TextPreparation = field(default_factory=TextPreparation)
    own_target: PreTrainedTokenizerFast | None = None

    @property
    def target_tokenizer(self) -> PreTrainedTokenizerFast:
        """The tokenizer of the other side: the same one unless the sides have vocabularies of their own."""
        return self.own_target or self.tokenizer

    @property
    def factors(self) -> tuple[str, ...]:
        """Factor names, in the order of the columns."""
        return tuple(self.vocabularies)

    def encode(self, lines: Sequence[str], words: WordColumns | None = None) -> EncodedText:
        """Encode lines.

        Args:
            lines: Raw text.
            words: Their annotation; needed where there are factors.

        Raises:
            ValueError: There are factors, and no annotation.
            AlignmentError: Annotation and lines do not belong together.
            ConfigError: A factor needs an annotation that is not there.
        """
        if self.vocabularies and words is None:
            names = ", ".join(self.factors)
            raise ValueError(f"words: expected an annotation for the factors {names}, got none.")
        prepared = self.preparation.prepare(lines)
        encodings = encode_pieces(self.tokenizer, prepared.texts)
        pieces = np.fromiter((piece for one in encodings for piece in one.ids), np.int32)
        splits = np.concatenate([[0], np.cumsum([len(one.ids) for one in encodings], dtype=np.int64)])
        factors = np.zeros((len(pieces), len(self.vocabularies)), np.int32)
        if self.factors and words is not None:
            offsets, _ = encoding_offsets(encodings)
            columns = piece_factors(
                words,
                prepared.to_raw(offsets, splits),
                splits,
                self.factors,
                self.vocabularies,
                unseen=self.unseen,
            )
            factors = np.stack([columns[name] for name in self.factors], axis=1).astype(np.int32)
        return EncodedText(pieces, splits, factors)
