"""From raw source lines to what the encoder reads: pieces, and the factors of each piece.

The one path for training and for translation: what a model folder stores is exactly this object's parts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from transformers import PreTrainedTokenizerFast

from syntaxformer.syntax import (
    FactorVocabulary,
    UnseenValues,
    WordColumns,
    batch_word_of_piece,
    encoding_offsets,
    piece_factors,
)
from syntaxformer.translation.preparation import TextPreparation
from syntaxformer.translation.source_syntax import SourceSyntax, SyntaxInputs
from syntaxformer.translation.tag_pieces import TagPlace, first_of_words, fitting_pieces, with_tags

__all__ = ["EncodedText", "SourceEncoder", "encode_pieces"]


@dataclass(frozen=True)
class EncodedText:
    """Lines as flat arrays.

    Args:
        pieces: `[pieces]`, int32, all lines one after the other.
        splits: `[lines + 1]`, where each line begins.
        factors: `[pieces, factors]`, int32; no column where there are no factors, or they are pieces.
        syntax: Trees of the lines, where the encoder reads any.
        n_tags: `[lines]`, how many of each line's pieces are tags; None for none.
        is_cut: Which lines were cut, `[lines]`; None for none.
    """

    pieces: NDArray[np.int32]
    splits: NDArray[np.int64]
    factors: NDArray[np.int32]
    syntax: SourceSyntax | None = None
    n_tags: NDArray[np.int64] | None = None
    is_cut: NDArray[np.bool_] | None = None

    def __len__(self) -> int:
        return len(self.splits) - 1

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Pieces of each line, tags included."""
        return np.diff(self.splits)

    @property
    def n_cut(self) -> int:
        """Lines that were cut."""
        return 0 if self.is_cut is None else int(self.is_cut.sum())

    @property
    def text_lengths(self) -> NDArray[np.int64]:
        """Pieces of each line that are text."""
        return self.lengths if self.n_tags is None else self.lengths - self.n_tags

    @classmethod
    def join(cls, parts: Sequence[EncodedText]) -> EncodedText:
        """Lines of several texts, one after the other."""
        tags = [part.n_tags for part in parts if part.n_tags is not None]
        syntax = [part.syntax for part in parts if part.syntax is not None]
        return cls(
            np.concatenate([part.pieces for part in parts]),
            np.concatenate([[0], np.cumsum(np.concatenate([part.lengths for part in parts]))]),
            np.concatenate([part.factors for part in parts]),
            SourceSyntax.join(syntax) if syntax else None,
            np.concatenate(tags) if tags else None,
        )

    def select(self, rows: NDArray[np.integer[Any]]) -> EncodedText:
        """Some lines, in that order."""
        lengths = self.lengths[rows]
        splits = np.concatenate([[0], np.cumsum(lengths)])
        flat = np.repeat(self.splits[rows] - splits[:-1], lengths) + np.arange(splits[-1])
        return EncodedText(
            self.pieces[flat],
            splits,
            self.factors[flat],
            None if self.syntax is None else self.syntax.select(rows, flat),
            None if self.n_tags is None else self.n_tags[rows],
        )


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
        prepend: Factors are pieces before their words, and where; None: they are columns beside the pieces.
        syntax: What the encoder reads of the trees.
    """

    tokenizer: PreTrainedTokenizerFast
    vocabularies: dict[str, FactorVocabulary] = field(default_factory=dict)
    unseen: UnseenValues = field(default_factory=UnseenValues)
    preparation: TextPreparation = field(default_factory=TextPreparation)
    own_target: PreTrainedTokenizerFast | None = None
    prepend: TagPlace | None = None
    syntax: SyntaxInputs = field(default_factory=SyntaxInputs)

    @property
    def target_tokenizer(self) -> PreTrainedTokenizerFast:
        """The tokenizer of the other side: the same one unless the sides have vocabularies of their own."""
        return self.own_target or self.tokenizer

    @property
    def factors(self) -> tuple[str, ...]:
        """Factor names, in the order of the columns."""
        return tuple(self.vocabularies)

    @property
    def columns(self) -> tuple[str, ...]:
        """Factors that stand beside pieces, in order; none where they are pieces themselves."""
        return () if self.prepend else self.factors

    @property
    def needs_words(self) -> bool:
        """Whether lines must be annotated."""
        return bool(self.vocabularies or self.syntax.needs)

    def piece_names(self, pieces: NDArray[np.int32]) -> list[str]:
        """Source pieces as text, tags as `<NOUN>`."""
        first_tag = len(self.tokenizer)
        tags = [value for vocabulary in self.vocabularies.values() for value in vocabulary.entries]
        texts = self.tokenizer.convert_ids_to_tokens(np.minimum(pieces, first_tag - 1).tolist())
        return [
            text if piece < first_tag else f"<{tags[piece - first_tag].strip('<>')}>"
            for text, piece in zip(texts, pieces.tolist(), strict=True)
        ]

    def encode(
        self, lines: Sequence[str], words: WordColumns | None = None, longest: int | None = None
    ) -> EncodedText:
        """Encode lines.

        Args:
            lines: Raw text.
            words: Their annotation; needed where there are factors or trees.
            longest: Cut lines to so many pieces, tags included; their end piece stays. None for no limit.

        Raises:
            ValueError: There are factors or trees, and no annotation.
            AlignmentError: Annotation and lines do not belong together.
            ConfigError: A factor or the encoder needs an annotation that is not there.
        """
        if self.needs_words and words is None:
            names = ", ".join([*self.factors, *self.syntax.needs])
            raise ValueError(f"words: expected an annotation for the factors {names}, got none.")
        prepared = self.preparation.prepare(lines)
        encodings = encode_pieces(self.tokenizer, prepared.texts)
        pieces = np.fromiter((piece for one in encodings for piece in one.ids), np.int32)
        splits = np.concatenate([[0], np.cumsum([len(one.ids) for one in encodings], dtype=np.int64)])
        if words is None or not self.needs_words:
            kept = _kept(splits, longest)
            nothing = np.zeros((len(pieces), 0), np.int32)
            left = _splits_of(splits, kept)
            return EncodedText(pieces[kept], left, nothing[kept], is_cut=np.diff(splits) != np.diff(left))
        offsets = prepared.to_raw(encoding_offsets(encodings)[0], splits)
        owners = batch_word_of_piece(offsets, splits, words.offsets, words.row_splits)
        kept = _kept(
            splits, longest, first_of_words(owners, splits), len(self.factors) if self.prepend else 0
        )
        left = _splits_of(splits, kept)
        encoded = self._with_annotation(pieces[kept], left, owners[kept], offsets[kept], words)
        return replace(encoded, is_cut=np.diff(splits) != np.diff(left))

    def _with_annotation(
        self,
        pieces: NDArray[np.int32],
        splits: NDArray[np.int64],
        owners: NDArray[np.int32],
        offsets: NDArray[np.int32],
        words: WordColumns,
    ) -> EncodedText:
        """Factors as columns or as pieces, and the trees."""
        factors, n_tags = np.zeros((len(pieces), 0), np.int32), None
        if self.factors:
            found = piece_factors(
                words,
                offsets,
                splits,
                self.factors,
                self.vocabularies,
                unseen=self.unseen,
                words_of_pieces=owners,
            )
            factors = np.stack([found[name] for name in self.factors], axis=1).astype(np.int32)
        if self.prepend:
            sizes = [len(vocabulary) for vocabulary in self.vocabularies.values()]
            tags = factors + len(self.tokenizer) + np.cumsum([0, *sizes[:-1]], dtype=np.int32)
            text_lengths = np.diff(splits)
            pieces, splits, owners = with_tags(pieces, splits, owners, tags, self.prepend)
            factors, n_tags = np.zeros((len(pieces), 0), np.int32), np.diff(splits) - text_lengths
        return EncodedText(pieces, splits, factors, SourceSyntax.of(self.syntax, words, owners), n_tags)


def _kept(
    splits: NDArray[np.int64],
    longest: int | None,
    is_first: NDArray[np.bool_] | None = None,
    n_tags: int = 0,
) -> NDArray[np.int64] | slice:
    return slice(None) if longest is None else fitting_pieces(splits, longest, is_first, n_tags)


def _splits_of(splits: NDArray[np.int64], kept: NDArray[np.int64] | slice) -> NDArray[np.int64]:
    """Where lines begin among the pieces that were kept."""
    return splits if isinstance(kept, slice) else np.searchsorted(kept, splits)
