"""From trees to relation matrices: the ids of the relations between two words, in both kinds of tree.

With D the largest distance, the id for query i and key j is 0 for none; d (1..D) if i is an ancestor of j, d
edges away; D + d if i is a descendant; 2D + d if it is neither and they are linked by their lowest common
ancestor; 3D + 1 if they are in different segments of a pair.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from syntaxformer.base.errors import TreeError
from syntaxformer.syntax.head_rules import head_child
from syntaxformer.trees import ROOT, Sentence, Tree, check_governors, depths_of, tree_of_column
from syntaxformer.trees.phrase_structure import Phrase, phrases_of_parse

MAX_DISTANCE = 15
"""The default largest distance, as in the paper."""

RELATIONS_VERSION = 1
"""Version of the relation ids. Each model stores it, since ids of another version would mislead it."""

LARGEST_DISTANCE = 84
"""3 * 84 + 1 = 253 is the largest pair relation that fits into a byte."""

RelationArray = NDArray[np.uint8]


def n_relations(max_distance: int = MAX_DISTANCE) -> int:
    """Number of relation ids, `none` and `pair` included: 3D + 2."""
    return pair_relation(max_distance) + 1


def pair_relation(max_distance: int = MAX_DISTANCE) -> int:
    """Relation of two words in different segments: 3D + 1.

    Raises:
        ValueError: The largest distance is not between 1 and 84.
    """
    if not 1 <= max_distance <= LARGEST_DISTANCE:
        expected = f"expected 1 to {LARGEST_DISTANCE}, so that an id fits into a byte"
        raise ValueError(f"max_distance: {expected}, got {max_distance}.")
    return 3 * max_distance + 1


def relation_name(relation: int, max_distance: int = MAX_DISTANCE) -> str:
    """Name of a relation id: "none", "parent 2", "child 1", "sibling 3", "pair".

    Raises:
        ValueError: There is no such relation.
    """
    if not 0 <= relation < n_relations(max_distance):
        raise ValueError(f"relation: expected 0 to {n_relations(max_distance) - 1}, got {relation}.")
    if relation in (0, pair_relation(max_distance)):
        return "pair" if relation else "none"
    kind, distance = divmod(relation - 1, max_distance)
    return f"{('parent', 'child', 'sibling')[kind]} {distance + 1}"


def relations_of_steps(
    steps_up: NDArray[np.integer[Any]],
    steps_down: NDArray[np.integer[Any]],
    linked: NDArray[np.bool_],
    max_distance: int,
) -> RelationArray:
    """Relation ids, `[...]`, of pairs of words, from the path between them.

    `steps_up` are the edges from i up to the lowest common ancestor of i and j, 0 if i is that ancestor, and
    `steps_down` those from there down to j, `[...]`; both are ignored if no tree links i and j.
    """
    side = max_distance + 2
    # All distances above D are alike; int16 holds an index into the table.
    index = np.minimum(steps_up, max_distance + 1).astype(np.int16)
    index *= side
    index += np.minimum(steps_down, max_distance + 1).astype(np.int16)
    # Unlinked pairs get the entry of i = j, which is no relation.
    index *= linked
    return np.take(_table(max_distance), index)


@cache
def _table(max_distance: int) -> RelationArray:
    """Relation of each (steps up, steps down), flat over a square of side D + 2."""
    pair_relation(max_distance)
    up, down = np.indices((max_distance + 2, max_distance + 2))
    distance = up + down
    kind = np.where(up == 0, 0, np.where(down == 0, 1, 2))
    table = np.where((distance > 0) & (distance <= max_distance), kind * max_distance + distance, 0)
    flat = table.astype(np.uint8).ravel()
    flat.flags.writeable = False
    return flat


NO_PATH = -1
"""Distance of two words that no tree links, and of padding."""


def dependency_relations(governors: Sequence[int], max_distance: int = MAX_DISTANCE) -> RelationArray:
    """Relation of every pair of words in a dependency tree.

    Governors are 0-based, -1 for a root, `[words]`; several roots are allowed.

    Returns:
        Relation ids, `[words, words]`; row i sees column j.

    Raises:
        TreeError: A governor is out of range, or there is a cycle.
        ValueError: `max_distance` is not between 1 and 84.

    Source: Bai et al. (2021), section 3.2.
    """
    row = np.asarray(governors, np.int64).reshape(1, -1)
    return batch_dependency_relations(row, [row.shape[1]], max_distance)[0]


def batch_dependency_relations(
    governors: ArrayLike, n_words: ArrayLike, max_distance: int = MAX_DISTANCE
) -> RelationArray:
    """Relations of many sentences at once.

    Governors are `[rows, words]`, with any values as padding; `n_words` is the number of words of each row,
    `[rows]`.

    Returns:
        `[rows, words, words]`; 0 wherever a word is padding.

    Raises:
        TreeError: A governor is out of range, or there is a cycle; the message names the words.
        ValueError: `max_distance` is not between 1 and 84.
    """
    parents, sizes = _parents_and_sizes(governors, n_words)
    shared = _shared_ancestors(parents, sizes)
    up, down = sizes[:, :, None] - shared, sizes[:, None, :] - shared
    return relations_of_steps(up, down, shared > 0, max_distance)


def batch_dependency_distances(governors: ArrayLike, n_words: ArrayLike) -> NDArray[np.int32]:
    """Number of edges between every two words, whatever their relation: the targets of a structural probe.

    Returns:
        `[rows, words, words]`; 0 on the diagonal, `NO_PATH` between trees and wherever a word is padding.

    Args and raises as `batch_dependency_relations`.
    """
    parents, sizes = _parents_and_sizes(governors, n_words)
    shared = _shared_ancestors(parents, sizes).astype(np.int32)
    depths = sizes.astype(np.int32)
    return np.where(shared > 0, depths[:, :, None] + depths[:, None, :] - 2 * shared, NO_PATH)


def dependency_depths(governors: ArrayLike, n_words: ArrayLike) -> NDArray[np.integer[Any]]:
    """Edges between each word and the root, plus one: 1 for a root, 0 for padding, `[rows, words]`.

    Args and raises as `batch_dependency_relations`.
    """
    return _parents_and_sizes(governors, n_words)[1]


def _parents_and_sizes(
    governors: ArrayLike, n_words: ArrayLike
) -> tuple[NDArray[np.int64], NDArray[np.integer[Any]]]:
    """Checked `flat_parents`, and numbers of ancestors `[rows, words]`, which count the word itself."""
    padded, lengths = np.asarray(governors, np.int64), np.asarray(n_words, np.int64)
    n_rows, width = padded.shape
    is_word = np.arange(width, dtype=np.int64) < lengths[:, None]
    first = np.repeat(np.arange(n_rows, dtype=np.int64) * width, width)
    of_words = np.where(is_word, padded, ROOT).ravel()
    parents, depths, is_wrong = flat_parents(of_words, first, np.repeat(lengths, width))
    if is_wrong.any():
        row = int(is_wrong.argmax()) // width
        check_governors(padded[row, : lengths[row]].tolist())
    counted = np.where(is_word, depths.reshape(padded.shape) + 1, 0)
    return parents, counted.astype(np.min_scalar_type(int(counted.max(initial=0))))


def flat_parents(
    governors: NDArray[np.int64], first: NDArray[np.int64], n_words: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]:
    """The place of each word's governor in a flat list of lines, its edges up to the root, and what is wrong.

    A root is its own parent. Governors are within their line, which begins at `first` and has `n_words`; all
    are `[words]`. A word is wrong if its governor is out of range, or no root is above it.
    """
    is_wrong = (governors < ROOT) | (governors >= n_words)
    is_root = (governors == ROOT) | is_wrong
    parents = np.where(is_root, np.arange(len(governors)), governors + first)
    # Pointer jumping: after k rounds `ancestor` is 2^k edges up, or the root.
    ancestor, depths = parents, (~is_root).astype(np.int64)
    for _ in range(int(n_words.max(initial=0)).bit_length()):
        if is_root[ancestor].all():
            break
        depths += depths[ancestor]
        ancestor = ancestor[ancestor]
    return parents, depths, is_wrong | ~is_root[ancestor]


def _shared_ancestors(
    parents: NDArray[np.int64], sizes: NDArray[np.integer[Any]]
) -> NDArray[np.integer[Any]]:
    """Number of common ancestors of two words, themselves included, `[rows, words, words]`.

    Paths are compared one level at a time, in as many rounds as the deepest tree has levels.
    """
    n_rows, n_words = sizes.shape
    index_type = np.min_scalar_type(n_words + 1)
    word_indices = np.arange(n_rows * n_words, dtype=np.int64)
    flat_sizes, local = sizes.ravel(), np.tile(np.arange(n_words, dtype=np.int64), n_rows).astype(index_type)
    shared = np.zeros((n_rows, n_words, n_words), sizes.dtype)
    same = np.empty(shared.shape, np.bool_)
    ancestor = word_indices
    for level in range(int(sizes.max(initial=0)), 0, -1):
        # The ancestor at this level; a word that is not as deep stands for itself.
        ancestor = np.where(flat_sizes > level, parents[ancestor], word_indices)
        reaches = flat_sizes >= level
        # Words above this level have no ancestor here; they get two different numbers that no word has, so
        # that they never agree.
        of_query = np.where(reaches, local[ancestor], index_type.type(n_words)).reshape(n_rows, n_words)
        of_key = np.where(reaches, local[ancestor], index_type.type(n_words + 1)).reshape(n_rows, n_words)
        np.equal(of_query[:, :, None], of_key[:, None, :], out=same)
        shared += same
    return shared


NO_PHRASE = -1
"""Depth of a gap if no phrase joins the words on its two sides."""

_INFINITIVE_PARTICLES = frozenset({"to", "zu"})


@dataclass(frozen=True, slots=True, eq=False)
class PhraseColumns:
    """A constituency tree, or several side by side, over the words of a line, as three numbers per word.

    The lowest common phrase of two distant words is the highest of those over the gaps between them.

    Args:
        word_depths: Edges from the top of the tree to each word, `[words]`.
        gap_depths: Edges from the top to the lowest phrase that holds a word and the one before it,
            `[words]`; `NO_PHRASE` for the first word and between separate trees.
        gap_heads: Index of that phrase's head word, `[words]`; 0 if there is no phrase.
    """

    word_depths: NDArray[np.integer[Any]]
    gap_depths: NDArray[np.integer[Any]]
    gap_heads: NDArray[np.integer[Any]]

    def __len__(self) -> int:
        return len(self.word_depths)

    def __getitem__(self, words: Any) -> PhraseColumns:
        """The columns of some words, by a slice or by their positions."""
        return PhraseColumns(*(array[words] for array in self.arrays))

    @property
    def arrays(self) -> tuple[NDArray[np.integer[Any]], ...]:
        """All three, in order."""
        return self.word_depths, self.gap_depths, self.gap_heads

    @classmethod
    def join(cls, parts: Sequence[PhraseColumns]) -> PhraseColumns:
        """Join the words of several, one after the other; heads keep their numbers."""
        columns = zip(*(tree.arrays for tree in parts), strict=True)
        return cls(*(map(np.concatenate, columns) if parts else [np.zeros(0, np.int32)] * 3))


def phrase_columns(tree: Tree | str | Sentence, governors: Sequence[int] | None = None) -> PhraseColumns:
    """Reduce a tree to columns.

    Edges are counted in the tree as it is written: if each word has a tag, it is one edge below its tag. The
    parse of a `Sentence` is converted as by `phrase_structure`, but without building a tree. If dependency
    governors of the same words are given, the head of a phrase is its word nearest to the dependency root
    (the first on a tie), not that of the label's head rule, as is right for trees without labels (SST, SICK,
    SNLI). Brackets may have labels or none.

    Raises:
        TreeError: It is not a tree, or there are more or fewer governors than words.
    """
    tags = tree.upos if isinstance(tree, Sentence) else None
    top = tree_of_column(tree) if isinstance(tree, str) else tree
    nodes, depths, children = _unfold(phrases_of_parse(top) if isinstance(top, Sentence) else top)
    is_leaf = [not isinstance(node, Tree | Phrase) for node in nodes]
    words = tree.words if isinstance(tree, Sentence) else [node for node in nodes if isinstance(node, str)]
    n_words = len(words)
    if governors is not None and len(governors) != n_words:
        raise TreeError(f"governors: expected {n_words}, one per word of the tree, got {len(governors)}.")
    ranks = None if governors is None else depths_of(governors)
    word_depths, gap_heads = [0] * n_words, [0] * n_words
    gap_depths = [NO_PHRASE] * n_words
    firsts, heads = [0] * len(nodes), [0] * len(nodes)
    word = n_words
    # Children come before their phrase, and words from the last to the first.
    for index in range(len(nodes) - 1, -1, -1):
        inside = children[index]
        if is_leaf[index]:
            word -= 1
            word_depths[word] = depths[index] + (tags is not None)
            firsts[index] = heads[index] = word
            continue
        firsts[index] = firsts[inside[0]]
        if ranks is not None:
            heads[index] = min((heads[child] for child in inside), key=ranks.__getitem__)
        elif len(inside) == 1:
            heads[index] = heads[inside[0]]
        else:
            labels_inside = [_label(nodes[child], words[heads[child]], tags) for child in inside]
            heads[index] = heads[inside[head_child(nodes[index].label, labels_inside)]]
        for child in inside[1:]:
            gap_depths[firsts[child]], gap_heads[firsts[child]] = depths[index], heads[index]
    return PhraseColumns(*(np.array(column, np.int32) for column in (word_depths, gap_depths, gap_heads)))


def _unfold(top: Tree | Phrase) -> tuple[list[Any], list[int], list[list[int]]]:
    """Phrases and words, parents first and left to right; the depth of each; the places of its children."""
    nodes, depths, children = list[Any](), list[int](), list[list[int]]()
    waiting: list[tuple[Any, int, int]] = [(top, 0, -1)]
    while waiting:
        node, depth, parent = waiting.pop()
        index = len(nodes)
        nodes.append(node)
        depths.append(depth)
        children.append([])
        if parent >= 0:
            children[parent].append(index)
        if isinstance(node, Tree | Phrase):
            waiting.extend((child, depth + 1, index) for child in reversed(node.children))
    return nodes, depths, children


def _label(child: Tree | Phrase | str | int, head_word: str, tags: Sequence[str] | None) -> str:
    """Label of a child, as the head rules read it.

    Punctuation without a label (SST, SICK, SNLI) is recognised by its characters. Two universal tags stand
    for several of Penn's: PART for "to" and "not", PUNCT for the comma of a list and the full stop.
    """
    label = ""
    if isinstance(child, Tree | Phrase):
        label = child.label
    elif tags is not None and isinstance(child, int):
        label = tags[child]
    if label == "PART" and head_word.lower() in _INFINITIVE_PARTICLES:
        return "TO"
    if label == "PUNCT" and head_word == ",":
        return ","
    says_nothing = label in ("", "X") or label.isdigit()
    return "." if says_nothing and not any(character.isalnum() for character in head_word) else label


Nodes = Literal["headed", "leaves"]
"""What a word is in the tree: the owner of the phrases that it heads, or only a leaf."""


def constituency_relations(
    tree: Tree | str,
    max_distance: int = MAX_DISTANCE,
    nodes: Nodes = "headed",
    *,
    governors: Sequence[int] | None = None,
) -> RelationArray:
    """Relation of every pair of words in a constituency tree.

    Let P be the lowest phrase over i and j. If i is P's head word, i is an ancestor of j, and the distance is
    the number of edges from j up to P. If neither heads P, they are siblings, and the distance is the number
    of edges from i over P to j. With `nodes="leaves"` all pairs are siblings. `governors` are dependency
    governors that decide the heads, as in `phrase_columns`.

    Returns:
        Relation ids, `[words, words]`; row i sees column j.

    Raises:
        TreeError: It is not a tree, or the governors do not fit it.
        ValueError: `nodes` or `max_distance` is not allowed.

    Source: Bai et al. (2021), section 3.2; differs: there no word heads a phrase, so none is an ancestor.
    """
    columns = phrase_columns(tree, governors)
    rows = (columns.word_depths[None], columns.gap_depths[None], columns.gap_heads[None])
    return batch_constituency_relations(*rows, [len(columns)], max_distance, nodes)[0]


def batch_constituency_relations(
    word_depths: ArrayLike,
    gap_depths: ArrayLike,
    gap_heads: ArrayLike,
    n_words: ArrayLike,
    max_distance: int = MAX_DISTANCE,
    nodes: Nodes = "headed",
) -> RelationArray:
    """Relations of many sentences at once.

    The columns are those of `PhraseColumns`, `[rows, words]`, with any values as padding; `n_words` is the
    number of words of each row, `[rows]`.

    Returns:
        `[rows, words, words]`; 0 wherever a word is padding.

    Raises:
        ValueError: `nodes` or `max_distance` is not allowed.
    """
    if nodes not in get_args(Nodes):
        raise ValueError(f"nodes: expected one of {', '.join(get_args(Nodes))}, got {nodes!r}.")
    depths, gaps, heads = (np.asarray(column, np.int64) for column in (word_depths, gap_depths, gap_heads))
    words = np.arange(depths.shape[1], dtype=np.int64)
    is_word = words < np.asarray(n_words, np.int64)[:, None]
    depths = np.where(is_word, depths, 0)
    # No phrase joins padding to the words before it.
    gaps, heads = np.where(is_word, gaps, NO_PHRASE), np.where(is_word, heads, 0)
    common, owner = _lowest_phrases(gaps, heads, int(depths.max(initial=0)))
    depths, words = depths.astype(common.dtype), words.astype(common.dtype)
    steps_up, steps_down = depths[:, :, None] - common, depths[:, None, :] - common
    if nodes == "headed":
        steps_up *= owner != words[:, None]
        steps_down *= owner != words
    return relations_of_steps(steps_up, steps_down, common != NO_PHRASE, max_distance)


def _lowest_phrases(
    gap_depths: NDArray[np.integer[Any]], gap_heads: NDArray[np.integer[Any]], deepest: int
) -> tuple[NDArray[np.signedinteger[Any]], NDArray[np.signedinteger[Any]]]:
    """Depth (`NO_PHRASE` for none) and head of the lowest phrase over two words, `[rows, words, words]`."""
    n_rows, n_words = gap_depths.shape
    # Depth and head form one number, so that one minimum finds both: equal depths between two words are one
    # phrase.
    bits = max(n_words - 1, 1).bit_length()
    largest = (deepest + 2) << bits
    number = np.min_scalar_type(-largest)
    keys = ((gap_depths.astype(np.int64) << bits) | gap_heads).astype(number)
    # [later word, rows, earlier word], so that the running minimum goes over whole planes.
    planes = np.full((n_words, n_rows, n_words), largest - 1, number)
    words = np.arange(n_words, dtype=np.int64)
    earlier = words[:, None] > words
    np.copyto(planes, keys.T[:, :, None], where=earlier[:, None, :])
    for later in range(1, n_words):
        np.minimum(planes[later], planes[later - 1], out=planes[later])
    half = planes.transpose(1, 2, 0)
    both = np.minimum(half, half.transpose(0, 2, 1))
    both[:, range(n_words), range(n_words)] = NO_PHRASE
    return both >> bits, both & number.type((1 << bits) - 1)
