"""Shuffles or blanks factors and relations at evaluation, to see whether a trained model uses them.

Only the inputs change, not the model. `ablate_translator` and `ablate_classifier` return a copy that reads
changed inputs and otherwise works as before.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from syntaxformer.base.config import nearest
from syntaxformer.base.errors import ConfigError
from syntaxformer.encoders.classifier import Classifier
from syntaxformer.encoders.collator import SyntaxCollator, SyntaxExample
from syntaxformer.syntax import FACTORS, LineSyntax, TreeOptions, WordColumns, first_pieces
from syntaxformer.syntax.piece_relations import own_functions
from syntaxformer.translation.source import EncodedText, SourceEncoder
from syntaxformer.translation.translator import Translator

KINDS = ("parent", "child", "sibling")
"""Kinds of relations, in the order of their ids."""

NO_VALUE = 0
"""Id of `<none>` in every factor: the value of pieces without a word, which words never have in training."""


@dataclass(frozen=True)
class Ablation:
    """Which inputs are shuffled or blanked.

    Args:
        shuffle: Factors, whose values are permuted among the words of a sentence (`subword`, a factor of
            pieces, among its pieces). `syntax` or one tree, whose words are permuted while its shape stays.
            `governors` that a LISA head attends to, likewise.
        blank: Factors, which become `<none>`. `syntax`, a tree or a kind of relation (parent, child, sibling,
            pair), which is removed. `governors`, so that every word becomes a root.
        seed: Seed of the shuffling, which depends only on it and the text, not on the rest of the batch.
    """

    shuffle: tuple[str, ...] = ()
    blank: tuple[str, ...] = ()
    seed: int = 1

    def __bool__(self) -> bool:
        return bool(self.shuffle or self.blank)

    @classmethod
    def parse(cls, shuffle: Sequence[str] | None, blank: Sequence[str] | None) -> Ablation:
        """Read options of the command line, each of which has one name or several with commas."""
        wanted, emptied = (
            tuple(name.strip() for one in option or () for name in one.split(","))
            for option in (shuffle, blank)
        )
        return cls(wanted, emptied)

    def check(self, factors: Sequence[str], trees: Sequence[str], has_governors: bool) -> None:
        """Check that a model reads the inputs that are to be changed.

        Raises:
            ConfigError: It does not, or a kind of relation is to be shuffled.
        """
        both = [*factors, *(["syntax", *trees] if trees else []), *(["governors"] if has_governors else [])]
        blanks = [*both, *([*KINDS, "pair"] if {*trees} - own_functions(trees).keys() else [])]
        problems = [
            f"--{name}: expected what the model reads, got {one}. "
            + (nearest(one, known) if known else "It reads neither factors nor trees.")
            for name, wanted, known in (("shuffle", self.shuffle, both), ("blank", self.blank, blanks))
            for one in wanted
            if one not in known
        ]
        if problems:
            raise ConfigError(problems)


@dataclass(frozen=True)
class PieceWords:
    """The word of each piece in some texts.

    Args:
        words: `[texts, pieces]`, -1 for none; numbers of a second segment continue those of the first.
        segments: `[texts, pieces]`, 0 or 1.
        texts: `[texts]`, a number that identifies each text in any batch.
    """

    words: NDArray[np.int64]
    segments: NDArray[np.int64]
    texts: NDArray[np.int64]

    @classmethod
    def of_lines(cls, words: NDArray[Any], texts: NDArray[np.int64]) -> PieceWords:
        """Build it for texts of one segment."""
        return cls(np.asarray(words, np.int64), np.zeros(words.shape, np.int64), texts)

    def roles(self, name: str, seed: int) -> NDArray[np.int64]:
        """The piece whose factor or place in a tree each piece takes, `[texts, pieces]`."""
        words = self.words
        if name in FACTORS and FACTORS[name].of_words is None:  # a factor of pieces: each is as a word
            words = np.where(words >= 0, np.arange(words.shape[1]), -1)
        rows = zip(words, self.segments, self.texts.tolist(), strict=True)
        found = [word_roles(words, segments, drawn_for(seed, text, name)) for words, segments, text in rows]
        return np.stack(found) if found else np.zeros(self.words.shape, np.int64)


def ablate_translator(translator: Translator, ablation: Ablation) -> Translator:
    """A copy of a translator that reads changed factors and trees.

    Raises:
        ConfigError: It does not read what is to be changed, or its tags are pieces of the text.
    """
    encoder, syntax = translator.encoder, translator.encoder.syntax
    if encoder.prepend:
        raise ConfigError("--shuffle, --blank: expected factors as columns, got tags between the words.")
    trees = () if syntax.trees is None else syntax.trees.used_trees
    ablation.check(encoder.factors, trees, syntax.governors)
    spoiled = _AblatedEncoder(**vars(encoder), ablation=ablation)
    return Translator(translator.decoder, spoiled, translator.info, translator.annotator)


def ablate_classifier(classifier: Classifier, ablation: Ablation) -> Classifier:
    """A copy of a classifier that reads changed tags and trees.

    Raises:
        ConfigError: It does not read what is to be changed.
    """
    config = classifier.collator.config
    options = config.tree_options
    trees = () if options is None else options.used_trees
    looks_at_governors = config.lisa is not None and config.lisa.inject == "gold"
    ablation.check(config.factors, trees, looks_at_governors)
    spoiled = copy(classifier)
    spoiled.collator = _AblatedCollator(classifier.collator, ablation)
    return spoiled


def ablate_factors(
    factors: NDArray[Any], names: Sequence[str], of_pieces: PieceWords, ablation: Ablation
) -> NDArray[Any]:
    """Shuffle or blank the columns of these names in factor values `[texts, pieces, factors]`."""
    spoiled = factors.copy()
    for column, name in enumerate(names):
        if name in ablation.shuffle:
            roles = of_pieces.roles(name, ablation.seed)
            spoiled[:, :, column] = np.take_along_axis(factors[:, :, column], roles, 1)
        if name in ablation.blank:
            spoiled[:, :, column] = NO_VALUE
    return spoiled


def ablate_batch(
    batch: dict[str, Tensor],
    options: TreeOptions | None,
    of_pieces: PieceWords,
    ablation: Ablation,
    factors: Sequence[str] = (),
) -> dict[str, Tensor]:
    """Change `syntax`, `governors` and `factor_ids` (with columns `factors`), if the batch has them."""
    spoiled = dict(batch)
    if "syntax" in batch and options is not None:
        spoiled["syntax"] = _spoil_relations(batch["syntax"], options, of_pieces, ablation)
    if "governors" in batch:
        spoiled["governors"] = _spoil_governors(batch["governors"], of_pieces, ablation)
    if "factor_ids" in batch:
        ids = batch["factor_ids"].numpy()
        spoiled["factor_ids"] = torch.from_numpy(ablate_factors(ids, factors, of_pieces, ablation))
    return spoiled


def _spoil_relations(
    relations: Tensor, options: TreeOptions, of_pieces: PieceWords, ablation: Ablation
) -> Tensor:
    """Permute the words of relations `[batch, trees, pieces, pieces]`, or remove relations."""
    spoiled = relations.clone()
    for place, tree in enumerate(options.planes):
        if {"syntax", tree} & set(ablation.shuffle):
            for row, roles in enumerate(torch.from_numpy(of_pieces.roles(tree, ablation.seed))):
                spoiled[row, place] = relations[row, place][roles][:, roles]
        if {"syntax", tree} & set(ablation.blank):
            spoiled[:, place] = 0
    trees = torch.tensor([tree not in options.relations for tree in options.planes])[:, None, None]
    kinds = (spoiled.int() * trees - 1).div(options.max_distance, rounding_mode="floor")
    for number, kind in enumerate((*KINDS, "pair")):
        if kind in ablation.blank:
            spoiled[kinds == number] = 0
    return spoiled


def _spoil_governors(governors: Tensor, of_pieces: PieceWords, ablation: Ablation) -> Tensor:
    """Change positions of governors `[batch, pieces]`; only first pieces of words have and are governors."""
    spoiled = governors.clone()
    first = torch.from_numpy(first_pieces(of_pieces.words))
    for row, roles in enumerate(torch.from_numpy(of_pieces.roles("governors", ablation.seed))):
        words = torch.nonzero(first[row])[:, 0]
        if "governors" in ablation.shuffle:
            player = torch.arange(governors.shape[1])
            player[roles[words]] = words
            old = governors[row, roles[words]]
            spoiled[row, words] = torch.where(old < 0, old, player[old.clamp_min(0)])
        if "governors" in ablation.blank:
            spoiled[row, words] = words
    return spoiled


@dataclass
class _AblatedEncoder(SourceEncoder):
    """A source encoder that changes factors and trees after they are made."""

    ablation: Ablation = Ablation()

    def _with_annotation(
        self,
        pieces: NDArray[np.int32],
        splits: NDArray[np.int64],
        owners: NDArray[np.int32],
        words: WordColumns,
    ) -> EncodedText:
        encoded = super()._with_annotation(pieces, splits, owners, words)
        lines = np.split(pieces, splits[1:-1])
        texts = np.array([zlib.crc32(line.tobytes()) for line in lines], np.int64)
        syntax, factors = encoded.syntax, encoded.factors.copy()
        if syntax is not None:
            syntax = _AblatedSyntax(**vars(syntax), ablation=self.ablation, texts=texts)
        for row, (start, stop) in enumerate(pairwise(splits.tolist())):
            of_line = PieceWords.of_lines(owners[None, start:stop], texts[row : row + 1])
            spoiled = ablate_factors(factors[None, start:stop], self.columns, of_line, self.ablation)
            factors[start:stop] = spoiled[0]
        return replace(encoded, factors=factors, syntax=syntax)


@dataclass(frozen=True)
class _AblatedSyntax(LineSyntax):
    """Trees that are changed when a batch is made; `texts` as in `PieceWords`."""

    ablation: Ablation = Ablation()
    texts: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))

    def batch(self, rows: Sequence[int], splits: NDArray[np.int64]) -> dict[str, NDArray[Any]]:
        of_pieces = PieceWords.of_lines(self.words_of_pieces(rows, splits), self.texts[list(rows)])
        whole = {name: torch.from_numpy(array) for name, array in super().batch(rows, splits).items()}
        spoiled = ablate_batch(whole, self.inputs.trees, of_pieces, self.ablation)
        return {name: tensor.numpy() for name, tensor in spoiled.items()}


class _AblatedCollator(SyntaxCollator):
    """A collator that changes its batches and otherwise works as before."""

    def __init__(self, collator: SyntaxCollator, ablation: Ablation) -> None:
        vars(self).update(vars(collator), ablation=ablation)

    def __call__(self, examples: Sequence[SyntaxExample]) -> dict[str, Tensor]:
        batch = super().__call__(examples)
        words, segments = self.words_of_pieces(examples)
        of_pieces = PieceWords(words, segments, np.array([one.checksum for one in examples], np.int64))
        return ablate_batch(batch, self.config.tree_options, of_pieces, self.ablation, self.config.factors)


def drawn_for(seed: int, text: int, name: str) -> np.random.Generator:
    """The random numbers for one factor or tree of one text, given by its checksum, in whichever batch."""
    return np.random.default_rng([seed, text, zlib.crc32(name.encode())])


def word_roles(
    words: NDArray[np.int64], segments: NDArray[np.int64], drawn: np.random.Generator
) -> NDArray[np.int64]:
    """Permute words within their segment; `words` and `segments` are a row of those of `PieceWords`.

    Returns:
        `[pieces]`: for each piece, the first piece of the word whose role its word takes; pieces without a
        word keep their own role.
    """
    roles = np.arange(len(words))
    of_words = words >= 0
    present, first = np.unique(words[of_words], return_index=True)
    first = np.flatnonzero(of_words)[first]
    played = first.copy()
    for segment in np.unique(segments[first]):
        own = segments[first] == segment
        played[own] = drawn.permutation(first[own])
    roles[of_words] = played[np.searchsorted(present, words[of_words])]
    return roles
