"""The table of kinds of tree, and their relations between the pieces of a padded batch.

Every piece has the relations of its word; `relations` decides how two words are related, or a function of the
user's own that `register_relations` puts into the table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from syntaxformer.base.errors import AlignmentError, DataError, TreeError
from syntaxformer.syntax.columns import WordColumns
from syntaxformer.syntax.factors import POS_TAGS
from syntaxformer.syntax.relations import (
    MAX_DISTANCE,
    NO_PHRASE,
    Nodes,
    PhraseColumns,
    RelationArray,
    batch_constituency_relations,
    batch_dependency_relations,
    dependency_depths,
    pair_relation,
    phrase_columns,
)
from syntaxformer.trees import Sentence, Tree, parse_tree
from syntaxformer.trees.constituency import subtrees_of
from syntaxformer.trees.phrase_structure import NEEDED_COLUMNS

TreeKind = Literal["dependency", "constituency"]
"""The kinds of tree that are always in `TREES`."""

DEFAULT_TREES: tuple[TreeKind, ...] = ("dependency", "constituency")
"""The trees of a relation tensor by default, in their order there."""


@dataclass(frozen=True, slots=True, eq=False)
class WordTrees:
    """Trees over the words of one example, of one segment or two; None for a tree that is not used.

    Raises:
        TreeError: A tree has more or fewer words than `segments`.
    """

    segments: NDArray[np.integer[Any]]  # of each word, 0 or 1, [words]
    governors: NDArray[np.integer[Any]] | None = None  # -1 for a root, [words]
    phrases: PhraseColumns | None = None
    own: Mapping[str, RelationArray] = field(default_factory=dict[str, RelationArray])  # [words, words] each

    def __post_init__(self) -> None:
        for name, tree in self.by_name.items():
            if len(tree) != len(self.segments):
                raise TreeError(f"{name}: expected {len(self.segments)} words, got {len(tree)}.")

    def __len__(self) -> int:
        return len(self.segments)

    @property
    def by_name(self) -> dict[str, Any]:
        """The trees that are used, and the relations of the user's own."""
        trees = {"governors": self.governors, "phrases": self.phrases, **self.own}
        return {name: tree for name, tree in trees.items() if tree is not None}

    @classmethod
    def of_sentence(
        cls,
        n_words: int,
        governors: ArrayLike | None = None,
        phrases: PhraseColumns | None = None,
        own: Mapping[str, RelationArray] | None = None,
    ) -> WordTrees:
        """Trees of a single sentence."""
        array = None if governors is None else np.asarray(governors, np.int32)
        return cls(np.zeros(n_words, np.int8), array, phrases, own or {})

    @classmethod
    def of_pair(cls, first: WordTrees, second: WordTrees) -> WordTrees:
        """Put two sentences side by side; the words of the second are numbered after those of the first.

        Raises:
            TreeError: One has a tree that the other lacks.
        """
        if lacking := first.by_name.keys() ^ second.by_name.keys():
            raise TreeError(f"{min(lacking)}: expected a tree for both segments or for none, got one.")
        n_first = len(first)
        segments = np.repeat(np.array([0, 1], np.int8), [n_first, len(second)])
        governors = phrases = None
        if first.governors is not None and second.governors is not None:
            moved = np.where(second.governors < 0, second.governors, second.governors + n_first)
            governors = np.concatenate([first.governors, moved])
        if first.phrases is not None and second.phrases is not None:
            moved = replace(second.phrases, gap_heads=second.phrases.gap_heads + n_first)
            phrases = PhraseColumns.join([first.phrases, moved])
        own_relations = {
            name: np.pad(ids, (0, len(second))) + np.pad(second.own[name], (n_first, 0))
            for name, ids in first.own.items()
        }
        return cls(segments, governors, phrases, own_relations)


def word_relations(
    examples: Sequence[WordTrees],
    max_distance: int = MAX_DISTANCE,
    *,
    trees: Sequence[str] = DEFAULT_TREES,
    nodes: Nodes = "headed",
) -> RelationArray:
    """Relations of a batch, with two slots after the words.

    The last slot but one is that of a special piece above all roots: an ancestor of every word of every
    segment, one edge above the roots; in relations of the user's own it has none. The last slot has no
    relation to anything.

    Returns:
        `[examples, trees, words + 2, words + 2]`, with the words of the longest example.

    Raises:
        TreeError: An example lacks one of `trees`, or its governors have a cycle.
        ValueError: `trees`, `nodes` or `max_distance` is not allowed.
    """
    unknown = [kind for kind in trees if kind not in TREES]
    if unknown or not trees:
        raise ValueError(f"trees: expected some of {', '.join(TREES)}, got {', '.join(unknown) or 'none'}.")
    n_words = np.array([len(example) for example in examples], np.int64)
    widest = int(n_words.max(initial=0))
    relations = np.zeros((len(examples), len(trees), widest + 2, widest + 2), np.uint8)
    segments = _padded([example.segments for example in examples], widest, 3)
    # Padding has segment 3, so that only a 0 and a 1 add up to 1.
    across = (segments[:, :, None] + segments[:, None, :]) == 1 if (segments == 1).any() else None
    for plane, kind in enumerate(trees):
        among_words, depths = TREES[kind].build(examples, n_words, widest, max_distance, nodes)
        if across is not None:
            among_words[across] = pair_relation(max_distance)
        relations[:, plane, :widest, :widest] = among_words
        from_top = np.where((depths > 0) & (depths <= max_distance), depths, 0)
        relations[:, plane, widest, :widest] = from_top
        relations[:, plane, :widest, widest] = np.where(from_top > 0, from_top + max_distance, 0)
    return relations


def with_all_siblings(relations: RelationArray, max_distance: int = MAX_DISTANCE) -> RelationArray:
    """Two matrices for each tree: without siblings, and with every pair that a tree links as siblings.

    Relations are `[rows, trees, words, words]`, the result is `[rows, 2 * trees, words, words]`.

    Source: Bai et al. (2021), section 3.2: siblings are all i and j that have a lowest common ancestor.
    """
    ids = np.arange(3 * max_distance + 2)
    linked = (ids > 0) & (ids <= 3 * max_distance)
    others = np.where(linked & (ids > 2 * max_distance), 0, ids).astype(np.uint8)
    siblings = np.where(linked, 2 * max_distance + (ids - 1) % max_distance + 1, ids).astype(np.uint8)
    both = np.stack([others[relations], siblings[relations]], 2)
    return both.reshape(len(both), -1, *both.shape[3:])


_Examples = Sequence[WordTrees]
_Built = tuple[RelationArray, NDArray[np.integer[Any]]]


def _dependency(examples: _Examples, n_words: Any, widest: int, max_distance: int, nodes: Nodes) -> _Built:
    governors = _padded(_whole("governors", [example.governors for example in examples]), widest, -1)
    depths = dependency_depths(governors, n_words).astype(np.int64)
    return batch_dependency_relations(governors, n_words, max_distance), depths


def _constituency(examples: _Examples, n_words: Any, widest: int, max_distance: int, nodes: Nodes) -> _Built:
    phrases = _whole("phrases", [example.phrases for example in examples])
    rows = zip(*(tree.arrays for tree in phrases), strict=True) if phrases else [()] * 3
    depths, gap_depths, gap_heads = (_padded(row, widest, NO_PHRASE) for row in rows)
    ids = batch_constituency_relations(depths, gap_depths, gap_heads, n_words, max_distance, nodes)
    return ids, depths + 1


def of_user(name: str, examples: _Examples, n_words: Any, widest: int, *_: Any) -> _Built:
    """As a tree's `build`, for relations of the user's own."""
    ids = np.zeros((len(examples), widest, widest), np.uint8)
    for row, of_example in enumerate(_whole(name, [example.own.get(name) for example in examples])):
        ids[row, : len(of_example), : len(of_example)] = of_example
    return ids, np.zeros((len(examples), widest), np.int64)


def _whole(name: str, trees: list[Any]) -> list[Any]:
    """Trees of a kind, of which every example has one."""
    if any(tree is None for tree in trees):
        raise TreeError(f"{name}: expected a tree for every example, got one without.")
    return trees


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of tree, or relations of the user's own.

    `build` is a function of the examples, their numbers of words, the largest of these, D and `nodes`. It
    returns the relations between words, `[examples, words, words]`, and how many edges each word lies below a
    special piece above all roots, `[examples, words]`; 0 for a word that is not below it.
    """

    columns: tuple[str, ...]  # those of a `Sentence` that it is read from
    build: Callable[[_Examples, NDArray[np.int64], int, int, Nodes], _Built]
    function: Callable[[Sentence], RelationArray] | None = None  # the user's; None for a tree


TREES: dict[str, Kind] = {
    "dependency": Kind(("governors",), _dependency),
    "constituency": Kind(("constituency",), _constituency),
}
"""The only table of kinds of tree; `own_relations.register_relations` adds rows."""


def own_functions(trees: Iterable[str]) -> dict[str, Callable[[Sentence], RelationArray]]:
    """The functions of those of some trees that are relations of the user's own, in the given order."""
    return {name: function for name in trees if name in TREES and (function := TREES[name].function)}


def columns_of_trees(trees: Iterable[str]) -> list[str]:
    """Columns of a `Sentence` that some kinds of tree are read from, in the order of the table."""
    chosen = set(trees)
    columns = (kind.columns for name, kind in TREES.items() if name in chosen)
    return list(dict.fromkeys(chain.from_iterable(columns)))


def _padded(rows: Sequence[NDArray[np.integer[Any]]], width: int, fill: int) -> NDArray[np.int64]:
    # By itself and not through `Ragged`, which would cost a fifth of a sentence's relations.
    filled = np.full((len(rows), width), fill, np.int64)
    lengths = np.array([len(row) for row in rows], np.int64)
    if len(rows):
        filled[np.arange(width) < lengths[:, None]] = np.concatenate(rows)
    return filled


_UNIVERSAL_ALONE = frozenset(POS_TAGS) - {"INTJ", "SYM", "X", "SPACE"}
"""Universal tags that are no labels of the Penn Treebank."""


def sentence_trees(sentence: Sentence, trees: Sequence[str]) -> WordTrees:
    """Some trees of one sentence; a `DataError` if it lacks one of them."""
    governors = phrases = None
    own_relations = {name: function(sentence) for name, function in own_functions(trees).items()}
    columns = columns_of_trees(set(trees) - own_relations.keys())
    if "governors" in columns:
        if sentence.governors is None and sentence.words:
            raise DataError(
                f"governors: expected a dependency parse of {shown(sentence)}, got none. "
                'Annotate with a parser (annotator "en"), or leave the dependency tree out of the config.'
            )
        governors = sentence.governors or ()
    if "constituency" in columns:
        phrases = phrases_of(sentence)
    return WordTrees.of_sentence(len(sentence), governors, phrases, own_relations)


def phrases_of(sentence: Sentence) -> PhraseColumns:
    """The constituency tree: the sentence's own, or else phrases from its dependency parse.

    The result is stored with the sentence, so it lives through all epochs of a training but only for one
    request of a service.

    In a tree with Penn Treebank tags, head rules of the labels give the heads of phrases. A tree without
    labels (SST, SNLI, SICK), or made from a dependency parse, takes them from that parse if there is one.

    Raises:
        DataError: The sentence has neither.
        TreeError: The brackets are not a tree over its words.
    """
    memory, key = vars(sentence), "phrase columns"
    if key not in memory:  # one narrow array, as a training text keeps those of all sentences
        columns = np.stack(_columns_of(sentence).arrays)
        memory[key] = columns.astype(np.min_scalar_type(-1 - int(np.abs(columns).max(initial=0))))
    return PhraseColumns(*memory[key].astype(np.int64))


def _columns_of(sentence: Sentence) -> PhraseColumns:
    if not sentence.words:
        return PhraseColumns.join([])
    source = sentence.tree_source
    if source is None:
        missing = [column for column in NEEDED_COLUMNS if getattr(sentence, column) is None]
        if missing:
            raise DataError(
                f"constituency: expected a tree of {shown(sentence)}, or a parse to convert, got neither: it "
                f'lacks {", ".join(missing)}. Annotate with a parser (annotator "en"), or leave '
                "the constituency tree out of the config."
            )
        source = sentence
    tree = parse_tree(source) if isinstance(source, str) else source
    columns = phrase_columns(tree, None if _has_penn_labels(tree) else sentence.governors)
    if len(columns) != len(sentence):
        raise TreeError(
            f"constituency: expected a tree over the {len(sentence)} words of {shown(sentence)}, "
            f"got one over {len(columns)}."
        )
    return columns


def _has_penn_labels(tree: Tree | Sentence) -> bool:
    """Whether phrases have categories (SST's numbers are none) and words have no universal tags."""
    if isinstance(tree, Sentence):
        return _UNIVERSAL_ALONE.isdisjoint(tree.upos or ())
    phrases = subtrees_of(tree)
    if any(phrase.label in _UNIVERSAL_ALONE for phrase in phrases):
        return False
    return any(len(phrase.children) > 1 and phrase.label and not phrase.label.isdigit() for phrase in phrases)


def phrases_of_lines(words: WordColumns) -> PhraseColumns:
    """Constituency trees of all words of some lines, one line after the other.

    Heads come from the dependency tree if there is one, since the head rules are made for English.

    Raises:
        TreeError: A line with words has no tree, or one over other words; the message names the line.
    """
    parts: list[PhraseColumns] = []
    for row, tree in enumerate(words.constituency or [None] * len(words.texts)):
        start, stop = words.row_splits[row : row + 2].tolist()
        if start == stop:
            continue
        governors = None if words.governors is None else words.governors[start:stop].tolist()
        try:
            if tree is None:
                raise TreeError("expected a constituency tree, got none.")
            columns = phrase_columns(tree, governors)
            if len(columns) != stop - start:
                raise TreeError(f"constituency: expected {stop - start} words, got {len(columns)}.")
        except TreeError as error:
            raise TreeError(str(error), line=row + words.first_line) from error
        parts.append(columns)
    return PhraseColumns.join(parts)


def cut_trees(trees: WordTrees, n_kept: int, max_distance: int) -> WordTrees:
    """Trees over the first words of a sentence, with the same relations between them as in the whole.

    Ancestors of these words that are cut off stay as nodes without pieces behind the kept words, but only as
    far up as a relation reaches: in a text of thousands of words a parser may chain them all.
    """
    n_nodes = n_kept + 1  # at least one further node stands for heads of phrases that were cut off
    governors = phrases = None
    if trees.governors is not None:
        whole = np.asarray(trees.governors, np.int64)
        is_reached = np.zeros(len(whole) + 1, bool)
        waiting = np.arange(n_kept)
        is_reached[waiting] = True
        for _ in range(max_distance):
            above = np.unique(whole[waiting])
            waiting = above[(above >= 0) & ~is_reached[above]]
            is_reached[waiting] = True
        nodes = np.flatnonzero(is_reached[:-1])
        n_nodes = max(n_nodes, len(nodes))
        numbers = np.full(len(whole) + 1, -1, np.int64)
        numbers[nodes] = np.arange(len(nodes))
        governors = np.full(n_nodes, -1, np.int64)
        # A root, -1, takes the last entry, which is -1.
        governors[: len(nodes)] = numbers[whole[nodes]]
    if trees.phrases is not None:
        gaps, (depths, heads) = np.full(n_nodes, NO_PHRASE, np.int64), np.zeros((2, n_nodes), np.int64)
        depths[:n_kept], gaps[:n_kept], heads[:n_kept] = trees.phrases[:n_kept].arrays
        phrases = PhraseColumns(depths, gaps, np.minimum(heads, n_kept))
    beyond = (0, n_nodes - n_kept)
    own_relations = {name: np.pad(ids[:n_kept, :n_kept], beyond) for name, ids in trees.own.items()}
    return WordTrees.of_sentence(n_nodes, governors, phrases, own_relations)


def shown(sentence: Sentence) -> str:
    """A sentence for a message: its text, shortened if it is long."""
    return repr(sentence.text if len(sentence.text) <= 50 else sentence.text[:50] + "…")


Specials = Literal["root", "none"]
"""Whether the first special piece is the parent of all roots, or has no relation."""


def piece_relations(
    relations: RelationArray,
    words_of_pieces: ArrayLike,
    first_special: ArrayLike | None = None,
    specials: Specials = "root",
) -> RelationArray:
    """Relations between pieces.

    Two pieces of one word have relation 0, and so have pieces without a word: specials and padding.
    `relations` are those of `word_relations`, `[rows, trees, words + 2, words + 2]`. `words_of_pieces`,
    `[rows, pieces]`, gives the word of each piece within its row, -1 for none. `first_special`, `[rows]`, is
    the position of the parent of all roots, usually [CLS], -1 for none. `specials="root"` gives that piece
    its relations, "none" leaves them at 0.

    Returns:
        `[rows, trees, pieces, pieces]`.

    Raises:
        AlignmentError: A piece has a word that does not exist, or the numbers of rows differ.
        ValueError: `specials` is neither of the two.
    """
    if specials not in get_args(Specials):
        raise ValueError(f"specials: expected one of {', '.join(get_args(Specials))}, got {specials!r}.")
    words = np.array(words_of_pieces, np.int64)
    n_rows, n_trees, n_slots, _ = relations.shape
    if words.ndim != 2 or len(words) != n_rows:
        raise AlignmentError(f"words_of_pieces: expected shape [{n_rows}, pieces], got {list(words.shape)}.")
    if words.size and not -1 <= words.min() <= words.max() < n_slots - 2:
        raise AlignmentError(
            f"words_of_pieces: expected -1 to {n_slots - 3}, a word of the batch, "
            f"got {words.min()} to {words.max()}."
        )
    if first_special is not None and specials == "root":
        places = np.asarray(first_special, np.int64)
        rows = np.flatnonzero(places >= 0)
        words[rows, places[rows]] = n_slots - 2
    carried = np.empty((n_rows, n_trees, words.shape[1], words.shape[1]), np.uint8)
    for row in range(n_rows):
        # Index -1 wraps to the last slot, which has no relations.
        rows_taken = relations[row].take(words[row], axis=1, mode="wrap")
        rows_taken.take(words[row], axis=2, mode="wrap", out=carried[row])
    return carried


def pair_words_of_pieces(
    words_of_pieces: ArrayLike, piece_row_splits: ArrayLike, word_row_splits: ArrayLike
) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Number the words of a pair's second segment after those of the first.

    `words_of_pieces` is flat, aligned with two rows per pair (see `segment_offsets`); the splits are
    `[2 * pairs + 1]`.

    Returns:
        `(words_of_pieces [pieces], piece_row_splits [pairs + 1])`, one row per pair.

    Raises:
        AlignmentError: The rows are not pairs.
    """
    words = np.array(words_of_pieces, np.int32)
    pieces, splits = np.asarray(piece_row_splits, np.int64), np.asarray(word_row_splits, np.int64)
    if len(pieces) != len(splits) or len(pieces) % 2 == 0:
        raise AlignmentError(
            f"row_splits: expected two rows per pair, got {len(pieces) - 1} of pieces "
            f"and {len(splits) - 1} of words."
        )
    shift: NDArray[np.integer[Any]] = np.diff(splits)
    shift[1::2] = shift[::2]
    shift[::2] = 0
    of_piece = np.repeat(shift, np.diff(pieces))
    words[words >= 0] += of_piece[words >= 0].astype(np.int32)
    return words, pieces[::2]
