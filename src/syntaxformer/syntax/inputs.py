"""The only builder of what an encoder reads of a batch besides its pieces: factors, relations, governors.

It serves both products, in training and for a single line, and handles arrays only. `LineSyntax` keeps the
governors and phrases of lines, from which the matrices are made again for each batch.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Literal, cast, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import BaseModel, ConfigDict, Field, model_validator

from syntaxformer.base.errors import ConfigError
from syntaxformer.syntax.columns import WordColumns
from syntaxformer.syntax.factors import FactorVocabulary
from syntaxformer.syntax.own_relations import OwnRelations, find_relations
from syntaxformer.syntax.piece_relations import (
    DEFAULT_TREES,
    Specials,
    TreeKind,
    WordTrees,
    columns_of_trees,
    cut_trees,
    own_functions,
    pair_words_of_pieces,
    phrases_of_lines,
    piece_relations,
    with_all_siblings,
    word_relations,
)
from syntaxformer.syntax.ragged import Ragged, lengths_of, places_of, splits_of
from syntaxformer.syntax.relations import Nodes, PhraseColumns
from syntaxformer.trees.phrase_structure import linearised

TagPlace = Literal["interleaved", "prefix"]
"""Tags as pieces: each before its word, or all before all words."""

IntArray = NDArray[np.integer[Any]]

NO_GOVERNOR = -100
"""Target of pieces that are not supervised: specials, padding, and words whose governor was cut off."""

Omitted = Literal[TreeKind, "parent", "child", "sibling", "pair"]
"""What an ablation can leave out besides own relations: a tree, or a kind of relation in both trees."""


class TreeOptions(BaseModel):
    """Which relations of which trees a batch carries."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    trees: tuple[str, ...] = Field(
        default=DEFAULT_TREES,
        min_length=1,
        description="kinds of tree, in the order of the relation tensor: dependency, constituency, "
        "labelled_edges, or relations of your own that are registered",
    )
    relations: dict[str, OwnRelations] = Field(
        default_factory=dict[str, OwnRelations],
        exclude_if=lambda records: not records,
        description="records of your own relations among the trees; filled in by themselves",
    )
    max_distance: int = Field(default=15, ge=1, le=84, description="D, in tree edges (Bai et al. 2021: 15)")
    nodes: Nodes = Field(
        default="headed",
        description="headed: words own the phrases that they head (ours); leaves: words are leaves of the "
        "constituency tree and only siblings (Bai et al. 2021)",
    )
    siblings: Literal["apart", "all"] = Field(
        default="apart",
        description="apart: words of which neither is the other's ancestor; all: ancestors and descendants "
        "count as siblings too, as Bai et al. (2021) print the definition",
    )
    specials: Specials = Field(
        default="root",
        description="root: the first special piece (in a translator the end) is the parent of every root",
    )
    without: tuple[str, ...] = Field(
        default=(),
        description="trees and kinds of relation left out (Bai et al. 2021, table 5): some of "
        "dependency, constituency, parent, child, sibling, pair and your own",
    )

    @model_validator(mode="before")
    @classmethod
    def _completed(cls, content: Any) -> Any:
        """Look up own relations that `trees` names; leave out what older versions wrote for no control."""
        if not isinstance(content, Mapping):
            return content
        settings = dict(cast("Mapping[str, Any]", content))
        if control := settings.pop("control", None) or (settings.pop("random", False) and "permuted"):
            kind = "chain" if control == "linear_chain" else control
            expected = f"expected none, as annotators give wrong trees, got {control}"
            raise ValueError(f"control: {expected}. Train with the annotator '{kind}(en)' instead.")
        trees: Any = settings.get("trees")
        section: Any = settings.get("relations")
        stored = cast("Mapping[str, Any]", section if isinstance(section, Mapping) else {})
        records: dict[str, OwnRelations] = {
            name: find_relations(name, OwnRelations.model_validate(stored[name]) if name in stored else None)
            for name in cast("list[Any]", trees if isinstance(trees, list | tuple) else [])
            if isinstance(name, str) and name not in get_args(TreeKind)
        }
        return {**settings, **({"relations": records} if records else {})}

    @model_validator(mode="after")
    def _something_is_left(self) -> TreeOptions:
        known = [*get_args(Omitted), *self.relations]
        if unknown := [name for name in self.without if name not in known]:
            raise ValueError(f"without: expected some of {', '.join(known)}, got {unknown[0]!r}.")
        for name, record in self.relations.items():
            least = -(-(record.n_relations - 1) // 3)
            conflict = f"with {name}, {record.n_relations} relations that are no tree, got"
            if self.max_distance < least:
                raise ValueError(f"max_distance: expected {least} or more {conflict} {self.max_distance}.")
            if self.siblings != "apart":
                raise ValueError(f"siblings: expected apart {conflict} {self.siblings}.")
        if len(set(self.trees)) != len(self.trees):
            raise ValueError(f"trees: expected each kind once, got {', '.join(self.trees)}.")
        if not self.used_trees:
            raise ValueError("without: expected one tree to be left, got none. Leave out at most one.")
        if not any(self.active_networks(self.without)):
            raise ValueError("without: expected a relation to be left, got none.")
        return self

    @property
    def used_trees(self) -> tuple[str, ...]:
        """Trees of the relation tensor: those in `trees`, except those left out."""
        return tuple(tree for tree in self.trees if tree not in self.without)

    @property
    def omissible(self) -> tuple[str, ...]:
        """What can be left out with an effect: trees, and the kinds of relation in those that are used."""
        kinds = ("parent", "child", "sibling") if set(self.used_trees) - self.relations.keys() else ()
        return (*self.trees, *kinds, "pair")

    @property
    def planes(self) -> tuple[str, ...]:
        """The tree of each matrix of the relation tensor. With `siblings: all`, each tree has two of them."""
        return tuple(tree for tree in self.used_trees for _ in range(1 + (self.siblings == "all")))

    def active_networks(self, left_out: Collection[str]) -> list[bool]:
        """Which sub-networks (or biases) of the used trees take part, in the order of relation ids."""
        planes_of_tree: list[tuple[str, ...]] = [("parent", "child", "sibling", "pair")]
        if self.siblings == "all":
            planes_of_tree = [("parent", "child", "pair"), ("sibling",)]
        reach = self.max_distance
        active: list[bool] = []  # torch.compile follows no call of list[bool]
        for tree in self.used_trees:
            sizes = {"parent": reach, "child": reach, "sibling": reach, "pair": 1}
            if record := self.relations.get(tree):
                n_own = record.n_relations - 1
                sizes = {tree: n_own, "unused": 3 * reach - n_own, "pair": 1}
            for kinds in [(tree, "pair")] if record else planes_of_tree:
                for kind, size in sizes.items():
                    active += [kind in kinds and not {kind, tree} & set(left_out)] * size
        return active


class SyntaxInputs(BaseModel):
    """Which syntax the encoder reads from a batch."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    trees: TreeOptions | None = None  # those whose relations it reads
    governors: bool = False  # whether it reads their positions
    # Whether to keep which word each piece belongs to, if no tree needs it; for looking at a line.
    words: bool = Field(default=False, exclude=True)
    # Labels of the tree that the decoder learns to write; in training only.
    brackets: tuple[str, ...] | None = Field(default=None, exclude=True)

    @classmethod
    def of(cls, trees: TreeOptions | None, governors: bool, **training: Any) -> SyntaxInputs:
        """Make them from a section that has other settings besides `TreeOptions`."""
        options = trees and TreeOptions(**{name: getattr(trees, name) for name in TreeOptions.model_fields})
        return cls(trees=options, governors=governors, **training)

    @property
    def needs(self) -> tuple[str, ...]:
        """The annotations that it needs."""
        of_trees = [] if self.trees is None else columns_of_trees(self.trees.used_trees)
        written = [] if self.brackets is None else ["constituency"]
        return tuple(dict.fromkeys([*(["governors"] if self.governors else []), *of_trees, *written]))


def check_syntax(inputs: SyntaxInputs, provides: frozenset[str], annotator: str) -> None:
    """Check that an annotator gives the trees that a model reads.

    Raises:
        ConfigError: It does not.
    """
    missing = [need for need in inputs.needs if need not in provides]
    if missing:
        raise ConfigError(
            f"masks, relation_bias, lisa, parse_task: expected {' and '.join(missing)} from the annotator, "
            f"got none from {annotator}. Use one that parses, or leave these sections out."
        )


@dataclass(frozen=True)
class LineSyntax:
    """Trees of lines, flat, and which piece belongs to which word; None for what `inputs` does not need.

    Labels are the `linearised` tree of each line: 1 for an unknown one, those of `inputs.brackets` from 2.
    """

    inputs: SyntaxInputs
    owners: IntArray  # word of each piece within its line, -1 for none, [pieces]
    word_splits: NDArray[np.int64]  # [lines + 1]
    governors: IntArray | None  # within the line, -1 for roots, [words]
    phrases: PhraseColumns | None
    labels: Ragged | None = None
    own: Ragged | None = None  # relations of the user's own in all pairs of words of a line, [pairs, own]

    @classmethod
    def of(cls, inputs: SyntaxInputs, words: WordColumns, owners: IntArray) -> LineSyntax | None:
        """Take what `inputs` needs from annotated lines; None if it needs nothing.

        Raises:
            ConfigError: The annotation lacks something that is needed.
        """
        if not (inputs.needs or inputs.words):
            return None
        check_syntax(inputs, words.provides, "the annotation")
        used = inputs.trees.used_trees if inputs.trees else ()
        governors = phrases = labels = own_ids = None
        if "governors" in inputs.needs:
            governors = _narrow(words.governors)
        if "constituency" in columns_of_trees(used):
            phrases = PhraseColumns(*map(_narrow, phrases_of_lines(words).arrays))
        if inputs.brackets is not None:
            lines = [linearised(tree) if tree else [] for tree in words.constituency or ()]
            ids = FactorVocabulary("parse_task", inputs.brackets).encode(list(chain.from_iterable(lines)))
            labels = Ragged(ids, splits_of(list(map(len, lines))))
        if functions := own_functions(used).values():
            lines = [np.stack([function(line) for function in functions], -1) for line in words.sentences()]
            own_ids = Ragged.of([ids.reshape(-1, len(functions)) for ids in lines], np.uint8)
        return cls(inputs, _narrow(owners), words.row_splits, governors, phrases, labels, own_ids)

    def select(self, rows: IntArray, flat_pieces: IntArray) -> LineSyntax:
        """Select some lines; `flat_pieces` are the positions of their pieces."""
        flat = places_of(self.word_splits, rows)
        return LineSyntax(
            self.inputs,
            self.owners[flat_pieces],
            splits_of(lengths_of(self.word_splits, rows)),
            None if self.governors is None else self.governors[flat],
            None if self.phrases is None else self.phrases[flat],
            None if self.labels is None else self.labels.take(rows),
            None if self.own is None else self.own.take(rows),
        )

    def batch(self, rows: Sequence[int], splits: NDArray[np.int64]) -> dict[str, NDArray[Any]]:
        """Arrays of some lines, as `segment_syntax` gives them; the end piece is the parent of all roots."""
        if self.inputs.trees is None and not self.inputs.governors:
            return {}
        owners = Ragged(self.owners, splits).take(rows)
        last = owners.splits[1:] - 1
        ends = np.where(owners.values[last] < 0, owners.lengths - 1, -1)
        trees = [self._trees(row) for row in rows]
        return segment_syntax(self.inputs, trees, owners, ends)

    def words_of_pieces(self, rows: Sequence[int], splits: NDArray[np.int64]) -> NDArray[np.int64]:
        """Word of each piece within its line, -1 for none, `[rows, src]`; arguments as in `batch`."""
        return Ragged(self.owners, splits).padded(-1, rows)

    def _trees(self, row: int) -> WordTrees:
        words = slice(*self.word_splits[row : row + 2].tolist())
        n_words, own_relations = words.stop - words.start, {}
        if self.own is not None and self.inputs.trees is not None:
            ids = self.own[row].T.reshape(-1, n_words, n_words)
            own_relations = dict(zip(own_functions(self.inputs.trees.used_trees), ids, strict=True))
        governors = None if self.governors is None else self.governors[words]
        phrases = None if self.phrases is None else self.phrases[words]
        return WordTrees.of_sentence(n_words, governors, phrases, own_relations)


BATCH = 2
"""The number of the draws of batches: others would have draws of their own."""


@dataclass(frozen=True)
class EpochDraws:
    """Uniform numbers by seed, epoch of the sampler and what is drawn, the same in a resumed run."""

    seed: int
    batches: Any

    def uniform(self, what: int, ids: ArrayLike, words: ArrayLike) -> NDArray[np.float64]:
        """Numbers from 0 up to 1, of the shape of ids and words together.

        Source: Steele et al. (2014), "Fast Splittable Pseudorandom Number Generators", the mix of SplitMix64.
        """
        mixed = np.zeros(1, np.uint64)
        for key in (self.seed, self.batches.epoch, what, ids, words):
            mixed = mixed ^ np.asarray(key).astype(np.uint64)
            mixed = mixed + np.uint64(0x9E3779B97F4A7C15)
            mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
            mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
            mixed = mixed ^ (mixed >> np.uint64(31))
        return np.asarray((mixed >> np.uint64(11)) * 2.0**-53, np.float64)


def segment_syntax(
    inputs: SyntaxInputs,
    trees: Sequence[WordTrees],
    owners: Ragged,
    first_special: IntArray,
    per_row: int = 1,
) -> dict[str, NDArray[Any]]:
    """Build what the encoder reads of the trees of a batch.

    Args:
        inputs: What the encoder reads.
        trees: The trees of each segment.
        owners: Word of each piece of each segment, -1 for none.
        first_special: Position of the piece that is the parent of all roots, `[rows]`, -1 for none.
        per_row: Segments in a row, 1 or 2.

    Returns:
        Those that `inputs` asks for: `syntax` uint8 `[rows, trees, pieces, pieces]`, `governors` int64 and
        `first_pieces` bool `[rows, pieces]`.
    """
    options = inputs.trees
    reach = options.max_distance if options else 1
    # Words far behind the last that has a piece would only cost memory, which grows with their square.
    n_seen = owners.padded(-1).max(axis=1, initial=-1) + 1
    seen = [
        cut_trees(tree, n, reach) if n < len(tree) else tree
        for tree, n in zip(trees, n_seen.tolist(), strict=True)
    ]
    if per_row == 2:
        owners = Ragged(*pair_words_of_pieces(owners.values, owners.splits, splits_of(list(map(len, seen)))))
        seen = [WordTrees.of_pair(*pair) for pair in zip(seen[::2], seen[1::2], strict=True)]
    words = owners.padded(-1)
    arrays: dict[str, NDArray[Any]] = {}
    if options is not None:
        relations = word_relations(seen, reach, trees=options.used_trees, nodes=options.nodes)
        if options.siblings == "all":
            relations = with_all_siblings(relations, reach)
        arrays["syntax"] = piece_relations(relations, words, first_special, options.specials)
    if inputs.governors:
        governors = Ragged.of([() if tree.governors is None else tree.governors for tree in seen])
        arrays["governors"] = governor_targets(governors.padded(-1), words)
        arrays["first_pieces"] = first_pieces(words)
    return arrays


def governor_targets(governors: IntArray, words_of_pieces: IntArray) -> NDArray[np.int64]:
    """Position that each piece should point at.

    A word's first piece points at the first piece of its governor, that of a root at itself; later pieces
    point at the first piece of their word.

    Args:
        governors: Governor of each word, -1 for roots, `[rows, words]`.
        words_of_pieces: Word of each piece, -1 for specials and padding, `[rows, pieces]`.

    Returns:
        Positions of pieces; `NO_GOVERNOR` for pieces without a word or whose governor has no piece left.

    Raises:
        ValueError: A governor or a word does not exist.
    """
    n_words, n_pieces = governors.shape[1], words_of_pieces.shape[1]
    for name, ids in (("governors", governors), ("words_of_pieces", words_of_pieces)):
        if ids.size and not -1 <= ids.min() <= ids.max() < n_words:
            raise ValueError(
                f"{name}: expected -1 to {n_words - 1}, a word of the batch, got {ids.min()} to {ids.max()}."
            )
    first, places = _first_of_words(words_of_pieces, n_words), np.arange(n_pieces, dtype=np.int64)
    # Index -1 takes the last entry, which has no governor and no position.
    own_first = np.take_along_axis(first, words_of_pieces, 1)
    governor = np.take_along_axis(np.pad(governors, ((0, 0), (0, 1)), constant_values=-1), words_of_pieces, 1)
    of_governor = np.where(governor < 0, places, np.take_along_axis(first, governor, 1))
    targets = np.where(places == own_first, of_governor, own_first)
    return np.where((words_of_pieces < 0) | (targets >= n_pieces), NO_GOVERNOR, targets)


def first_pieces(words_of_pieces: IntArray) -> NDArray[np.bool_]:
    """True for the first piece of each word, `[rows, pieces]`, in order to count words."""
    first = _first_of_words(words_of_pieces, int(words_of_pieces.max(initial=-1)) + 1)
    places = np.arange(words_of_pieces.shape[1], dtype=np.int64)
    return (np.take_along_axis(first, words_of_pieces, 1) == places) & (words_of_pieces >= 0)


def _first_of_words(words_of_pieces: IntArray, n_words: int) -> NDArray[np.int64]:
    """Position of each word's first piece, or the number of pieces if it has none, `[rows, words + 1]`."""
    n_rows, n_pieces = words_of_pieces.shape
    first = np.full((n_rows, n_words + 1), n_pieces, np.int64)
    # Written from the last piece to the first, so that the first piece's position stays.
    backwards = np.broadcast_to(np.arange(n_pieces, dtype=np.int64)[::-1], (n_rows, n_pieces))
    np.put_along_axis(first, words_of_pieces[:, ::-1].astype(np.int64), backwards, 1)
    return first


def _narrow(numbers: Any) -> IntArray:
    """Store word numbers and depths in two bytes each, unless a line is so long that they need four."""
    wide = np.asarray(numbers)
    return wide.astype(np.int16 if wide.max(initial=0) <= np.iinfo(np.int16).max else np.int32, copy=False)
