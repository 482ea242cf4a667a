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
from typing import TYPE_CHECKING, Any

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

if TYPE_CHECKING:
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
        options = [",".join(option).split(",") if option else [] for option in (shuffle, blank)]
        return cls(*(tuple(name.strip() for name in names) for names in options))

    def check(self, factors: Sequence[str], trees: Sequence[str], has_governors: bool) -> None:
        """Check that a model reads the inputs that are to be changed.

        Raises:
            ConfigError: It does not, or a kind of relation is to be shuffled.
        """
        inputs = [*factors, *(["syntax", *trees] if trees else []), *(["governors"] if has_governors else [])]
        kinds = [*KINDS, "pair"] if {*trees} - own_functions(trees).keys() else []
        options = (("shuffle", self.shuffle, inputs), ("blank", self.blank, [*inputs, *kinds]))
        problems = [
            f"--{option}: expected what the model reads, got {name}. "
            + (nearest(name, known) if known else "It reads neither factors nor trees.")
            for option, names, known in options
            for name in names
            if name not in known
        ]
        if problems:
            raise ConfigError(problems)


@dataclass(frozen=True)
class PieceWords:
    """The word of each piece in some texts.

    Args:
        words: `[texts, pieces]`, -1 for none; numbers of a second segment continue those of the first.
        texts: `[texts]`, a number that identifies each text in any batch.
        segments: `[texts, pieces]`, 0 or 1; None for texts of one segment.
    """

    words: NDArray[np.int64]
    texts: NDArray[np.int64]
    segments: NDArray[np.int64] | None = None

    def roles(self, name: str, seed: int) -> NDArray[np.int64]:
        """Permute the words of each segment, for one factor or tree; alike in whichever batch a text is.

        Returns:
            `[texts, pieces]`: for each piece, the first piece of the word whose role its word takes; pieces
            without a word keep their own role. In a factor of pieces, each piece is as a word.
        """
        words, n_pieces = np.asarray(self.words, np.int64), self.words.shape[1]
        if name in FACTORS and FACTORS[name].of_words is None:
            words = np.where(words >= 0, np.arange(n_pieces), -1)
        segments = np.zeros_like(words) if self.segments is None else self.segments
        roles = np.tile(np.arange(n_pieces), (len(words), 1))
        for row, text in enumerate(self.texts.tolist()):
            rng = np.random.default_rng([seed, text, zlib.crc32(name.encode())])
            pieces = np.flatnonzero(words[row] >= 0)
            present, first = np.unique(words[row, pieces], return_index=True)
            first = pieces[first]
            role = first.copy()
            for segment in np.unique(segments[row, first]):
                members = segments[row, first] == segment
                role[members] = rng.permutation(first[members])
            roles[row, pieces] = role[np.searchsorted(present, words[row, pieces])]
        return roles


def ablate_translator(translator: Translator, ablation: Ablation) -> Translator:
    """A copy of a translator, with all members of an ensemble, that reads changed factors and trees.

    Raises:
        ConfigError: It does not read what is to be changed, or its tags are pieces of the text.
    """
    encoder, syntax = translator.encoder, translator.encoder.syntax
    if encoder.prepend:
        raise ConfigError("--shuffle, --blank: expected factors as columns, got tags between the words.")
    trees = () if syntax.trees is None else syntax.trees.used_trees
    ablation.check(encoder.factors, trees, syntax.governors)
    ablated = copy(translator)
    ablated.encoder = _AblatedEncoder(**vars(encoder), ablation=ablation)
    ablated.others = [ablate_translator(member, ablation) for member in translator.others]
    return ablated


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
    ablated = copy(classifier)
    ablated.collator = _AblatedCollator(classifier.collator, ablation)
    return ablated


def ablate_factors(
    factors: NDArray[Any], names: Sequence[str], of_pieces: PieceWords, ablation: Ablation
) -> NDArray[Any]:
    """Shuffle or blank the columns of these names in factor values `[texts, pieces, factors]`."""
    ablated = factors.copy()
    for column, name in enumerate(names):
        if name in ablation.shuffle:
            roles = of_pieces.roles(name, ablation.seed)
            ablated[:, :, column] = np.take_along_axis(factors[:, :, column], roles, 1)
        if name in ablation.blank:
            ablated[:, :, column] = NO_VALUE
    return ablated


def ablate_batch(
    batch: dict[str, Tensor],
    options: TreeOptions | None,
    of_pieces: PieceWords,
    ablation: Ablation,
    factors: Sequence[str] = (),
) -> dict[str, Tensor]:
    """Change `syntax`, `governors` and `factor_ids` (with columns `factors`), if the batch has them."""
    ablated = dict(batch)
    if "syntax" in batch and options is not None:
        relations = ablated["syntax"] = batch["syntax"].clone()  # [batch, trees, pieces, pieces]
        for plane, tree in enumerate(options.planes):
            if {"syntax", tree} & {*ablation.shuffle}:
                for row, roles in enumerate(torch.from_numpy(of_pieces.roles(tree, ablation.seed))):
                    relations[row, plane] = batch["syntax"][row, plane][roles][:, roles]
            if {"syntax", tree} & {*ablation.blank}:
                relations[:, plane] = 0
        trees = torch.tensor([tree not in options.relations for tree in options.planes])[:, None, None]
        kinds = (relations.int() * trees - 1).div(options.max_distance, rounding_mode="floor")
        for number, kind in enumerate((*KINDS, "pair")):
            if kind in ablation.blank:
                relations[kinds == number] = 0
    if "governors" in batch and {"governors"} & {*ablation.shuffle, *ablation.blank}:
        governors = ablated["governors"] = batch["governors"].clone()  # [batch, pieces]
        # Only first pieces have and are governors.
        first = torch.from_numpy(first_pieces(np.asarray(of_pieces.words, np.int64)))
        for row, roles in enumerate(torch.from_numpy(of_pieces.roles("governors", ablation.seed))):
            words = torch.nonzero(first[row])[:, 0]
            if "governors" in ablation.shuffle:
                word_of_role = torch.arange(governors.shape[1])
                word_of_role[roles[words]] = words
                before = batch["governors"][row, roles[words]]
                governors[row, words] = torch.where(before < 0, before, word_of_role[before.clamp_min(0)])
            if "governors" in ablation.blank:
                governors[row, words] = words
    if "factor_ids" in batch:
        ids = batch["factor_ids"].numpy()
        ablated["factor_ids"] = torch.from_numpy(ablate_factors(ids, factors, of_pieces, ablation))
    return ablated


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
        texts = [zlib.crc32(line.tobytes()) for line in np.split(pieces, splits[1:-1])]
        syntax, factors = encoded.syntax, encoded.factors.copy()
        if syntax is not None:
            syntax = _AblatedSyntax(**vars(syntax), ablation=self.ablation, texts=np.array(texts, np.int64))
        for text, (start, stop) in zip(texts, pairwise(splits.tolist()), strict=True):
            of_line = PieceWords(owners[None, start:stop], np.array([text]))
            ablated = ablate_factors(factors[None, start:stop], self.columns, of_line, self.ablation)
            factors[start:stop] = ablated[0]
        return replace(encoded, factors=factors, syntax=syntax)


@dataclass(frozen=True)
class _AblatedSyntax(LineSyntax):
    """Trees that are changed when a batch is made; `texts` as in `PieceWords`."""

    ablation: Ablation = Ablation()
    texts: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))

    def batch(self, rows: Sequence[int], splits: NDArray[np.int64]) -> dict[str, NDArray[Any]]:
        of_pieces = PieceWords(self.words_of_pieces(rows, splits), self.texts[list(rows)])
        whole = {name: torch.from_numpy(array) for name, array in super().batch(rows, splits).items()}
        ablated = ablate_batch(whole, self.inputs.trees, of_pieces, self.ablation)
        return {name: tensor.numpy() for name, tensor in ablated.items()}


class _AblatedCollator(SyntaxCollator):
    """A collator that changes its batches and otherwise works as before."""

    def __init__(self, collator: SyntaxCollator, ablation: Ablation) -> None:
        vars(self).update(vars(collator), ablation=ablation)

    def __call__(self, examples: Sequence[SyntaxExample]) -> dict[str, Tensor]:
        batch, examples = super().__call__(examples), self.rows(examples)
        words, segments = self.words_of_pieces(examples)
        texts = np.array([example.checksum for example in examples], np.int64)
        of_pieces = PieceWords(words, texts, segments)
        return ablate_batch(batch, self.config.tree_options, of_pieces, self.ablation, self.config.factors)
