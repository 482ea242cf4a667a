"""Trees of source lines, kept as integers a word and turned into a batch's relations and governors.

Governors and phrases alone are held; the matrices are made anew for each batch, from its words, and carried
to its pieces.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict
from torch import Tensor

from syntaxformer.base.errors import ConfigError
from syntaxformer.infusion.config import TreeOptions
from syntaxformer.nn.lisa import first_pieces, governor_targets
from syntaxformer.syntax import (
    PhraseColumns,
    WordColumns,
    WordTrees,
    piece_relations,
    word_relations,
)
from syntaxformer.syntax.piece_relations import columns_of_trees, cut_trees, phrases_of_lines

__all__ = ["SourceSyntax", "SyntaxInputs", "check_syntax"]

IntArray = NDArray[np.integer[Any]]


class SyntaxInputs(BaseModel):
    """What syntax the encoder reads of a batch.

    Args:
        trees: Relations of which trees; None for none.
        governors: Whether places of governors are wanted.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    trees: TreeOptions | None = None
    governors: bool = False

    @classmethod
    def of(cls, trees: TreeOptions | None, governors: bool) -> SyntaxInputs:
        """From a section that says more than which trees."""
        fields = None if trees is None else {name: getattr(trees, name) for name in TreeOptions.model_fields}
        return cls(trees=None if fields is None else TreeOptions(**fields), governors=governors)

    @property
    def needs(self) -> tuple[str, ...]:
        """The annotations that it takes."""
        of_trees = [] if self.trees is None else columns_of_trees(self.trees.used_trees)
        return tuple(dict.fromkeys([*(["governors"] if self.governors else []), *of_trees]))


def check_syntax(inputs: SyntaxInputs, provides: frozenset[str], annotator: str) -> None:
    """Hold that an annotator gives the trees that a model reads.

    Raises:
        ConfigError: It does not.
    """
    missing = [need for need in inputs.needs if need not in provides]
    if missing:
        raise ConfigError(
            f"masks, relation_bias, lisa: expected {' and '.join(missing)} from the annotator, got none from "
            f"{annotator}. Use one that parses, or leave these sections out."
        )


@dataclass(frozen=True)
class SourceSyntax:
    """Trees of lines, flat, and which piece belongs to which word.

    Args:
        inputs: What is wanted of them.
        owners: `[pieces]`, word of each piece within its line, -1 for none.
        word_splits: `[lines + 1]`.
        governors: `[words]`, within the line, -1 for roots; None where not wanted.
        phrases: Of all words; None where not wanted.
    """

    inputs: SyntaxInputs
    owners: IntArray
    word_splits: NDArray[np.int64]
    governors: IntArray | None
    phrases: PhraseColumns | None

    @classmethod
    def of(cls, inputs: SyntaxInputs, words: WordColumns, owners: IntArray) -> SourceSyntax | None:
        """What is wanted of annotated lines; None where nothing is.

        Raises:
            ConfigError: The annotation lacks it.
        """
        if not inputs.needs:
            return None
        check_syntax(inputs, words.provides, "the annotation")
        governors = words.governors if "governors" in inputs.needs else None
        phrases = phrases_of_lines(words) if "constituency" in inputs.needs else None
        small = None if governors is None else _narrow(governors)
        return cls(inputs, _narrow(owners), words.row_splits, small, phrases)

    @classmethod
    def join(cls, parts: Sequence[SourceSyntax]) -> SourceSyntax:
        """Lines of several texts, one after the other."""
        lengths = np.concatenate([np.diff(part.word_splits) for part in parts])
        governors = [part.governors for part in parts if part.governors is not None]
        phrases = [part.phrases for part in parts if part.phrases is not None]
        return cls(
            parts[0].inputs,
            np.concatenate([part.owners for part in parts]),
            np.concatenate([[0], np.cumsum(lengths)]),
            np.concatenate(governors) if governors else None,
            _side_by_side(phrases) if phrases else None,
        )

    def select(self, rows: NDArray[np.integer[Any]], flat_pieces: NDArray[np.integer[Any]]) -> SourceSyntax:
        """Some lines; `flat_pieces` are the places of their pieces."""
        flat = _places(self.word_splits, rows)
        lengths = np.diff(self.word_splits)[rows]
        return SourceSyntax(
            self.inputs,
            self.owners[flat_pieces],
            np.concatenate([[0], np.cumsum(lengths)]),
            None if self.governors is None else self.governors[flat],
            None if self.phrases is None else self.phrases[flat],
        )

    def batch(self, rows: Sequence[int], splits: NDArray[np.int64]) -> dict[str, Tensor]:
        """Tensors for some lines.

        Args:
            rows: The lines.
            splits: Where each line's pieces begin.

        Returns:
            As far as they are wanted: `syntax` uint8 `[rows, trees, src, src]`, `governors` int64 and
            `first_pieces` bool `[rows, src]`.
        """
        chosen = np.asarray(rows)
        owners = self.words_of_pieces(rows, splits)
        batch: dict[str, Tensor] = {}
        if self.inputs.trees is not None:
            batch["syntax"] = torch.from_numpy(self._relations(chosen, owners, splits))
        if self.inputs.governors and self.governors is not None:
            governors = torch.from_numpy(_padded(self.governors, self.word_splits, chosen, -1))
            words_of_pieces = torch.from_numpy(owners)
            batch["governors"] = governor_targets(governors, words_of_pieces)
            batch["first_pieces"] = first_pieces(words_of_pieces)
        return batch

    def words_of_pieces(self, rows: Sequence[int], splits: NDArray[np.int64]) -> NDArray[np.int64]:
        """Word of each piece within its line, -1 for none, `[rows, src]`; arguments as of `batch`."""
        return _padded(self.owners, splits, np.asarray(rows), -1)

    def _relations(self, rows: IntArray, owners: IntArray, splits: NDArray[np.int64]) -> NDArray[np.uint8]:
        options = self.inputs.trees
        assert options is not None, "held by batch"
        relations = word_relations(
            [
                self._trees(row, n_seen, options.max_distance)
                for row, n_seen in zip(rows.tolist(), owners.max(axis=1, initial=-1) + 1, strict=True)
            ],
            options.max_distance,
            trees=options.used_trees,
            nodes=options.nodes,
        )
        last = np.diff(splits)[rows] - 1
        ends = np.where(owners[np.arange(len(rows)), last] < 0, last, -1)
        return piece_relations(relations, owners, ends, options.specials)

    def _trees(self, row: int, n_seen: int, max_distance: int) -> WordTrees:
        """Of a line whose first words only have pieces where it was cut: relations are quadratic in words."""
        words = slice(*self.word_splits[row : row + 2].tolist())
        trees = WordTrees.of_sentence(
            words.stop - words.start,
            None if self.governors is None else self.governors[words],
            None if self.phrases is None else self.phrases[words],
        )
        return cut_trees(trees, n_seen, max_distance) if n_seen < len(trees) else trees


def _side_by_side(parts: Sequence[PhraseColumns]) -> PhraseColumns:
    return PhraseColumns(*map(_narrow, PhraseColumns.join(parts).arrays))


def _narrow(numbers: Any) -> IntArray:
    """Numbers of words and depths in two bytes each, unless a line is so long that they need more."""
    wide = np.asarray(numbers)
    return wide.astype(np.int16 if wide.max(initial=0) <= np.iinfo(np.int16).max else np.int32, copy=False)


def _places(splits: NDArray[np.int64], rows: IntArray) -> NDArray[np.int64]:
    """Places of all items of some rows in a flat array."""
    lengths = np.diff(splits)[rows]
    starts = np.concatenate([[0], np.cumsum(lengths)])
    return np.repeat(splits[:-1][rows] - starts[:-1], lengths) + np.arange(starts[-1])


def _padded(values: IntArray, splits: NDArray[np.int64], rows: IntArray, fill: int) -> NDArray[np.int64]:
    lengths = np.diff(splits)[rows]
    padded = np.full((len(rows), int(lengths.max(initial=0))), fill, np.int64)
    padded[np.arange(padded.shape[1]) < lengths[:, None]] = values[_places(splits, rows)]
    return padded
