"""From raw source lines to what the encoder reads: prepared text, pieces, factors of each piece, batches.

The one path for training and for translation: a model folder stores exactly the parts of a `SourceEncoder`.

The annotator sees the raw line, subwords the prepared one: entities, Moses' tokenisation, lower case. A
prepared line knows which characters of the raw line its own stand for, so words of the one and pieces of the
other still meet by offsets.

With infusion kind `prepend`, tags are pieces of their own before the words that they belong to. A tag's id
lies behind the vocabulary of words, so no word is ever taken for one, and the target side never sees it. A
tag belongs to its word like the word's pieces: it is the first of them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import pairwise
from typing import Any, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import PreTrainedTokenizerFast

from syntaxformer.base.errors import BackendMissingError
from syntaxformer.infusion.config import TagPlace
from syntaxformer.syntax import (
    FactorVocabulary,
    UnseenValues,
    WordColumns,
    batch_word_of_piece,
    encoding_offsets,
    piece_factors,
)
from syntaxformer.syntax.inputs import LineSyntax, SyntaxInputs
from syntaxformer.syntax.ragged import Ragged, splits_of
from syntaxformer.trees.locate import given_words, spans_of_given_words

IntArray = NDArray[np.integer[Any]]

ENTITIES = {
    "&#124;": "|",
    "&lt;": "<",
    "&gt;": ">",
    "&apos;": "'",
    "&quot;": '"',
    "&#91;": "[",
    "&#93;": "]",
    "&amp;": "&",
}
"""Moses writes these characters so; the ampersand comes last, as it is part of the others."""


_ENTITY = re.compile("|".join(ENTITIES))


@dataclass(frozen=True)
class PreparedLines:
    """Lines as subwords see them.

    Args:
        texts: Prepared lines.
        starts: For each line, the raw character at which each prepared character starts; None: the same one.
        ends: The same of where it ends, exclusive. An inserted space stands for no character.
    """

    texts: list[str]
    starts: list[NDArray[np.int32]] | None = field(default=None, repr=False)
    ends: list[NDArray[np.int32]] | None = field(default=None, repr=False)

    def to_raw(self, offsets: NDArray[np.int32], splits: NDArray[np.int64]) -> NDArray[np.int32]:
        """Offsets in prepared lines as offsets in raw lines.

        Args:
            offsets: `[pieces, 2]`, character start and end of each piece in its prepared line.
            splits: `[lines + 1]`, where each line's pieces begin.
        """
        if self.starts is None or self.ends is None:
            return offsets
        raw = np.zeros_like(offsets)
        for line, (first, stop) in enumerate(pairwise(splits.tolist())):
            own = offsets[first:stop]
            filled = own[:, 1] > own[:, 0]
            raw[first:stop][filled, 0] = self.starts[line][own[filled, 0]]
            raw[first:stop][filled, 1] = self.ends[line][own[filled, 1] - 1]
        return raw


@dataclass(frozen=True)
class TextPreparation:
    """How one language's lines are prepared; the same in training and in translation.

    Args:
        language: Language code, for Moses' abbreviations.
        tokenized: Words are what stands between spaces; the spaces are made single.
        unescape: "&apos;" and its like are read as the characters that they stand for.
        moses: Subwords see the line as Moses' tokenizer splits it.
        lowercase: Subwords see the line in lower case; the annotator does not.
    """

    language: str = "en"
    tokenized: bool = False
    unescape: bool = False
    moses: bool = False
    lowercase: bool = False

    def clean(self, line: str) -> str:
        """The raw line, as the annotator sees it."""
        line = unescape(line) if self.unescape else line
        return " ".join(given_words(line)) if self.tokenized else line.replace("\t", " ")

    def clean_offsets(self, line: str, offsets: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
        """Where words of a line as it was before `clean` stand in the clean one."""
        widths = np.ones(len(line), np.int64)
        if self.unescape:
            for entity in _ENTITY.finditer(line):
                widths[entity.start() + 1 : entity.end()] = 0
        places = np.concatenate([[0], np.cumsum(widths)])
        if self.tokenized:
            places = _single_spaces(unescape(line) if self.unescape else line)[places]
        return [(int(places[start]), int(places[end])) for start, end in offsets]

    def prepare(self, lines: Sequence[str]) -> PreparedLines:
        """Clean lines as subwords see them.

        Raises:
            BackendMissingError: `moses` without the package sacremoses.
        """
        if not self.moses:
            return PreparedLines([lower_case(line) for line in lines] if self.lowercase else list(lines))
        tokenizer = _moses(self.language)
        split = [tokenizer.tokenize(line, escape=False, return_str=True) for line in lines]
        places = [_places(line, text) for line, text in zip(lines, split, strict=True)]
        texts = [lower_case(text) for text in split] if self.lowercase else split
        return PreparedLines(texts, [start for start, _ in places], [end for _, end in places])

    def restore(self, line: str) -> str:
        """A line of output as a reader wants it: what Moses split is joined; case does not come back."""
        return detokenize(line, self.language) if self.moses else line


def unescape(line: str) -> str:
    """Replace Moses' entities by the characters that they stand for."""
    if "&" not in line:
        return line
    for entity, character in ENTITIES.items():
        line = line.replace(entity, character)
    return line


def lower_case(line: str) -> str:
    """Lower case that keeps every character in its place: "İ" alone would become two."""
    lowered = line.lower()
    return lowered if len(lowered) == len(line) else "".join(one.lower()[:1] for one in line)


def detokenize(line: str, language: str) -> str:
    """Join what Moses' tokenizer split.

    Raises:
        BackendMissingError: The package sacremoses is not installed.
    """
    return _moses(language, "MosesDetokenizer").detokenize(line.split(), unescape=False)


@lru_cache(maxsize=16)
def _moses(language: str, kind: str = "MosesTokenizer") -> Any:
    try:
        import sacremoses
    except ImportError as error:
        raise BackendMissingError(
            "sacremoses, Moses' tokenizer for data.moses and data.detokenize,",
            "python -m pip install sacremoses",
        ) from error
    return getattr(sacremoses, kind)(lang=language)


def _single_spaces(line: str) -> NDArray[np.int64]:
    """Place of each character, and of the end, where words are joined by single spaces."""
    stays, spans = np.zeros(len(line), np.int64), spans_of_given_words(line)
    for start, end in spans:
        stays[start:end] = 1
    for _, end in spans[:-1]:
        stays[end] = 1  # the space after the word
    return np.concatenate([[0], np.cumsum(stays)])


def _places(raw: str, text: str) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Raw start and end of each character of a tokenised line: the same characters with spaces between."""
    starts, ends = np.zeros(len(text), np.int32), np.zeros(len(text), np.int32)
    place = 0
    for index, character in enumerate(text):
        found = raw.find(character, place) if character != " " else -1
        if found >= 0:
            starts[index], ends[index] = found, found + 1
            place = found + 1
        else:
            starts[index] = ends[index] = place
    return starts, ends


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
    syntax: LineSyntax | None = None
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
            splits_of(np.concatenate([part.lengths for part in parts])),
            np.concatenate([part.factors for part in parts]),
            LineSyntax.join(syntax) if syntax else None,
            np.concatenate(tags) if tags else None,
        )

    def select(self, rows: NDArray[np.integer[Any]]) -> EncodedText:
        """Some lines, in that order."""
        flat = Ragged(self.pieces, self.splits).places(rows)
        return EncodedText(
            self.pieces[flat],
            splits_of(self.lengths[rows]),
            self.factors[flat],
            None if self.syntax is None else self.syntax.select(rows, flat),
            None if self.n_tags is None else self.n_tags[rows],
        )


def encode_pieces(tokenizer: PreTrainedTokenizerFast, lines: Sequence[str]) -> list[Any]:
    """Encode lines with their end piece. Text that spells a special piece ("</s>") is text."""
    backend = tokenizer.backend_tokenizer
    backend.encode_special_tokens = True
    return backend.encode_batch(list(lines))


def source_batch(src: EncodedText, rows: Sequence[int], pad_id: int) -> dict[str, Tensor]:
    """The encoder's inputs for some rows; see `TranslationCollator`."""
    pieces = Ragged(src.pieces, src.splits)
    lengths, batch = pieces.lengths_of(rows), {"input_ids": pieces.padded(pad_id, rows)}
    mask = np.arange(lengths.max()) < lengths[:, None]
    if not mask.all():
        batch["attention_mask"] = mask.astype(np.int64)
    if src.factors.shape[1]:
        batch["factor_ids"] = Ragged(src.factors, src.splits).padded(0, rows)
    if src.syntax is not None:
        batch |= src.syntax.batch(rows, src.splits)
    return {name: torch.from_numpy(array) for name, array in batch.items()}


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
        splits = splits_of([len(one.ids) for one in encodings])
        owners = None
        if words is not None and self.needs_words:
            offsets = prepared.to_raw(encoding_offsets(encodings)[0], splits)
            owners = batch_word_of_piece(offsets, splits, words.offsets, words.row_splits)
        n_tags = len(self.factors) if self.prepend else 0
        kept, left = slice(None), splits
        if longest is not None and (1 + n_tags) * np.diff(splits).max(initial=0) > longest:
            is_first = first_of_words(owners, splits) if n_tags else None
            kept = fitting_pieces(splits, longest, is_first, n_tags)
            left = np.searchsorted(kept, splits)
        if words is None or owners is None:
            encoded = EncodedText(pieces[kept], left, np.zeros((int(left[-1]), 0), np.int32))
        else:
            encoded = self._with_annotation(pieces[kept], left, owners[kept], words)
        return replace(encoded, is_cut=np.diff(splits) != np.diff(left))

    def _with_annotation(
        self,
        pieces: NDArray[np.int32],
        splits: NDArray[np.int64],
        owners: NDArray[np.int32],
        words: WordColumns,
    ) -> EncodedText:
        """Factors as columns or as pieces, and the trees."""
        factors, n_tags = np.zeros((len(pieces), 0), np.int32), None
        if self.factors:
            factors = piece_factors(words, owners, splits, self.vocabularies, self.unseen)
        if self.prepend:
            sizes = [len(vocabulary) for vocabulary in self.vocabularies.values()]
            tags = factors + len(self.tokenizer) + np.cumsum([0, *sizes[:-1]], dtype=np.int32)
            text_lengths = np.diff(splits)
            pieces, splits, owners = with_tags(pieces, splits, owners, tags, self.prepend)
            factors, n_tags = np.zeros((len(pieces), 0), np.int32), np.diff(splits) - text_lengths
        return EncodedText(pieces, splits, factors, LineSyntax.of(self.syntax, words, owners), n_tags)


def first_of_words(owners: IntArray, splits: IntArray) -> NDArray[np.bool_]:
    """True for the first piece of each word.

    Args:
        owners: `[pieces]`, word of each piece within its line, -1 for none.
        splits: `[lines + 1]`.
    """
    lines = Ragged(owners, splits).row_of_item
    owned = np.flatnonzero(owners >= 0)
    words = lines[owned] * (int(owners.max(initial=0)) + 1) + owners[owned]
    is_first = np.zeros(len(owners), bool)
    is_first[owned[np.unique(words, return_index=True)[1]]] = True
    return is_first


def fitting_pieces(
    splits: IntArray, longest: int, is_first: NDArray[np.bool_] | None = None, n_tags: int = 0
) -> NDArray[np.int64]:
    """Pieces that stay where no line may be longer than `longest`, tags included; each keeps its last piece.

    Args:
        splits: `[lines + 1]`.
        longest: Most pieces of a line.
        is_first: From `first_of_words`; None without tags.
        n_tags: Tags of each word.
    """
    cost = np.ones(int(splits[-1]), np.int64)
    if is_first is not None:
        cost += n_tags * is_first
    ends = np.cumsum(cost)
    of_line = ends - np.repeat(np.concatenate([[0], ends])[splits[:-1]], np.diff(splits))
    stays = of_line < longest
    stays[splits[1:][np.diff(splits) > 0] - 1] = True
    return np.flatnonzero(stays)


def with_tags(
    pieces: IntArray,
    splits: IntArray,
    owners: IntArray,
    tags: NDArray[np.integer[Any]],
    place: TagPlace,
) -> tuple[NDArray[np.int32], NDArray[np.int64], NDArray[np.int32]]:
    """Put tags into lines. A word without a piece of its own has no tag.

    Args:
        pieces: `[pieces]`.
        splits: `[lines + 1]`.
        owners: `[pieces]`, word of each piece within its line, -1 for none.
        tags: `[pieces, tags]`, ids of the tags of each piece's word.
        place: Where they go.

    Returns:
        Pieces, splits and owners with them.

    Raises:
        ValueError: No such place.
    """
    if place not in get_args(TagPlace):
        raise ValueError(f"place of tags: expected one of {', '.join(get_args(TagPlace))}, got {place!r}.")
    is_first, n_tags = first_of_words(owners, splits), tags.shape[1]
    n_before = np.concatenate([[0], np.cumsum(is_first) * n_tags])  # tags of words that begin before a piece
    lengths = np.diff(splits)
    if place == "interleaved":
        shift, first_tag = n_before[1:], np.flatnonzero(is_first) + n_before[:-1][is_first]
    else:
        shift = np.repeat(n_before[splits[1:]], lengths)
        first_tag = (np.repeat(splits[:-1], lengths) + n_before[:-1])[is_first]
    n_all = len(pieces) + int(n_before[-1])
    found, words = np.empty(n_all, np.int32), np.empty(n_all, np.int32)
    moved, placed = np.arange(len(pieces)) + shift, first_tag[:, None] + np.arange(n_tags)
    found[moved], words[moved] = pieces, owners
    found[placed], words[placed] = tags[is_first], owners[is_first][:, None]
    return found, (splits + n_before[splits]).astype(np.int64), words
