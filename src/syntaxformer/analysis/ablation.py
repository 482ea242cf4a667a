"""Factors and relations shuffled or blanked at evaluation: does a trained model use them at all?

Nothing of the model changes, only what it reads. `ablate_translator` and `ablate_classifier` give a copy that
reads spoiled inputs; everything else of it works as before.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from syntaxformer.align import WordColumns
from syntaxformer.config import nearest
from syntaxformer.data.source import EncodedText, SourceEncoder
from syntaxformer.data.source_syntax import SourceSyntax
from syntaxformer.errors import ConfigError
from syntaxformer.infusion_config import TreeOptions
from syntaxformer.tasks.classifier import Classifier
from syntaxformer.tasks.translator import Translator

__all__ = ["Ablation", "ablate_batch", "ablate_classifier", "ablate_factors", "ablate_translator"]

KINDS = ("parent", "child", "sibling")
"""Kinds of relation, in the order of their ids."""

NO_VALUE = 0
"""`<none>` of every factor: what pieces of no word have, and words never have in training."""


@dataclass(frozen=True)
class Ablation:
    """What is spoiled, and how.

    Args:
        shuffle: Factors, whose values change places among all words; `syntax` or one tree, whose words change
            places in each example while its shape stays; `governors` of a LISA head, likewise.
        blank: Factors, which become `<none>`; `syntax`, a tree or a kind of relation (parent, child, sibling,
            pair), of which nothing is left; `governors`: every word becomes a root.
        seed: Of the shuffling.
    """

    shuffle: tuple[str, ...] = ()
    blank: tuple[str, ...] = ()
    seed: int = 1

    def __bool__(self) -> bool:
        return bool(self.shuffle or self.blank)

    @classmethod
    def parse(cls, shuffle: Sequence[str] | None, blank: Sequence[str] | None, seed: int = 1) -> Ablation:
        """From options of the command line, each of one name or several with commas."""
        wanted, emptied = (
            tuple(name.strip() for one in option or () for name in one.split(","))
            for option in (shuffle, blank)
        )
        return cls(wanted, emptied, seed)

    def check(self, factors: Sequence[str], trees: Sequence[str], has_governors: bool) -> None:
        """Hold that a model reads what is to be spoiled.

        Raises:
            ConfigError: It does not, or a kind of relation is to be shuffled.
        """
        both = [*factors, *(["syntax", *trees] if trees else []), *(["governors"] if has_governors else [])]
        blanks = [*both, *([*KINDS, "pair"] if trees else [])]
        problems = [
            f"--{name}: expected what the model reads, got {one}. "
            + (nearest(one, known) if known else "It reads neither factors nor trees.")
            for name, wanted, known in (("shuffle", self.shuffle, both), ("blank", self.blank, blanks))
            for one in wanted
            if one not in known
        ]
        if problems:
            raise ConfigError(problems)


def ablate_translator(translator: Translator, ablation: Ablation) -> Translator:
    """A translator that reads spoiled factors and trees.

    Raises:
        ConfigError: It does not read what is to be spoiled; or its tags are pieces of the text.
    """
    encoder, syntax = translator.encoder, translator.encoder.syntax
    if encoder.prepend:
        raise ConfigError("--shuffle, --blank: expected factors beside the text, got tags between its words.")
    trees = () if syntax.trees is None else syntax.trees.used_trees
    ablation.check(encoder.factors, trees, syntax.governors)
    fields = {name: getattr(encoder, name) for name in SourceEncoder.__dataclass_fields__}
    return Translator(
        translator.decoder,
        _AblatedEncoder(**fields, ablation=ablation),
        translator.info,
        translator.annotator,
    )


def ablate_classifier(classifier: Classifier, ablation: Ablation) -> Classifier:
    """A classifier that reads spoiled tags and trees.

    Raises:
        ConfigError: It does not read what is to be spoiled.
    """
    config = classifier.collator.config
    options = config.tree_options
    trees = () if options is None else options.used_trees
    ablation.check(("pos",) if config.pos else (), trees, config.lisa is not None)
    spoiled = copy(classifier)
    spoiled.collator = _AblatedCollator(classifier.collator, ablation)
    return spoiled


def ablate_factors(
    factors: NDArray[np.int32], names: Sequence[str], ablation: Ablation, drawn: np.random.Generator
) -> NDArray[np.int32]:
    """Spoil columns of factor values.

    Args:
        factors: `[pieces, factors]`.
        names: Of the columns.
        ablation: What is wanted.
        drawn: Source of the shuffling.
    """
    spoiled = factors.copy()
    for column, name in enumerate(names):
        of_words = np.flatnonzero(factors[:, column] != NO_VALUE)
        if name in ablation.shuffle:
            spoiled[of_words, column] = drawn.permutation(spoiled[of_words, column])
        if name in ablation.blank:
            spoiled[of_words, column] = NO_VALUE
    return spoiled


def ablate_batch(
    batch: dict[str, Tensor], options: TreeOptions | None, ablation: Ablation, drawn: np.random.Generator
) -> dict[str, Tensor]:
    """Spoil `syntax`, `governors` and `pos_ids` of a batch, as far as they are there."""
    spoiled = dict(batch)
    if "syntax" in batch and options is not None:
        spoiled["syntax"] = _spoil_relations(batch["syntax"], options, ablation, drawn)
    if "governors" in batch:
        spoiled["governors"] = _spoil_governors(batch["governors"], batch["first_pieces"], ablation, drawn)
    if "pos_ids" in batch:
        tags = batch["pos_ids"].numpy().reshape(-1, 1).astype(np.int32)
        flat = ablate_factors(tags, ("pos",), ablation, drawn)
        spoiled["pos_ids"] = torch.from_numpy(flat).view_as(batch["pos_ids"]).to(batch["pos_ids"].dtype)
    return spoiled


def _spoil_relations(
    relations: Tensor, options: TreeOptions, ablation: Ablation, drawn: np.random.Generator
) -> Tensor:
    """Relations `[batch, trees, pieces, pieces]`: words change places, or relations become none."""
    spoiled = relations.clone()
    for place, tree in enumerate(options.used_trees):
        if {"syntax", tree} & set(ablation.shuffle):
            for row in range(len(spoiled)):
                one = spoiled[row, place]
                linked = torch.nonzero((one != 0).any(0) | (one != 0).any(1))[:, 0]
                moved = linked[torch.from_numpy(drawn.permutation(len(linked)))]
                spoiled[row, place][linked[:, None], linked[None, :]] = one[moved[:, None], moved[None, :]]
        if {"syntax", tree} & set(ablation.blank):
            spoiled[:, place] = 0
    kinds = (spoiled.int() - 1).div(options.max_distance, rounding_mode="floor")
    for number, kind in enumerate((*KINDS, "pair")):
        if kind in ablation.blank:
            spoiled[kinds == number] = 0
    return spoiled


def _spoil_governors(
    governors: Tensor, first_pieces: Tensor, ablation: Ablation, drawn: np.random.Generator
) -> Tensor:
    """Places of governors `[batch, pieces]`; only first pieces of words point and are pointed at."""
    spoiled = governors.clone()
    for row in range(len(spoiled)):
        words = torch.nonzero(first_pieces[row])[:, 0]
        if "governors" in ablation.shuffle:
            moved = words[torch.from_numpy(drawn.permutation(len(words)))]
            new_place = torch.arange(governors.shape[1])
            new_place[words] = moved
            old = governors[row, words]
            spoiled[row, moved] = torch.where(old < 0, old, new_place[old.clamp_min(0)])
        if "governors" in ablation.blank:
            spoiled[row, words] = words
    return spoiled


@dataclass
class _AblatedEncoder(SourceEncoder):
    """A source encoder whose factors and trees are spoiled after they are made."""

    ablation: Ablation = Ablation()

    def encode(
        self, lines: Sequence[str], words: WordColumns | None = None, longest: int | None = None
    ) -> EncodedText:
        encoded = super().encode(lines, words, longest)
        drawn = np.random.default_rng(self.ablation.seed)
        syntax = encoded.syntax
        if syntax is not None:
            fields = {name: getattr(syntax, name) for name in SourceSyntax.__dataclass_fields__}
            syntax = _AblatedSyntax(**fields, ablation=self.ablation)
        factors = ablate_factors(encoded.factors, self.columns, self.ablation, drawn)
        return replace(encoded, factors=factors, syntax=syntax)


@dataclass(frozen=True)
class _AblatedSyntax(SourceSyntax):
    """Trees that are spoiled when a batch is made of them."""

    ablation: Ablation = Ablation()

    def batch(self, rows: Sequence[int], splits: NDArray[np.int64]) -> dict[str, Tensor]:
        drawn = np.random.default_rng([self.ablation.seed, *(int(row) for row in rows[:1])])
        return ablate_batch(super().batch(rows, splits), self.inputs.trees, self.ablation, drawn)


class _AblatedCollator:
    """A collator whose batches are spoiled; the rest is the collator's own."""

    def __init__(self, collator: Any, ablation: Ablation) -> None:
        self._collator, self._ablation = collator, ablation
        self._drawn = np.random.default_rng(ablation.seed)

    def __call__(self, examples: Sequence[Any]) -> dict[str, Tensor]:
        batch = self._collator(examples)
        return ablate_batch(batch, self._collator.config.tree_options, self._ablation, self._drawn)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._collator, name)
