"""From raw source lines to what the encoder reads: prepared text, pieces, factors of each piece, batches.

Training and translation both use this code: a model folder stores exactly the parts of a `SourceEncoder`.

The annotator reads the raw line. The tokenizer reads the prepared line, which may differ from it by entities,
Moses' tokenisation, lower case and what is protected. Prepared lines record which raw characters theirs stand
for, so that words of the raw line and pieces of the prepared line can be aligned by offsets.

With infusion kind `prepend`, tags are separate pieces before their words. Their ids follow those of the word
vocabulary, so no word is taken for a tag, and the target side has none. A tag counts as the first piece of
its word.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from difflib import SequenceMatcher
from functools import lru_cache
from itertools import chain, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from unicodedata import normalize

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from syntaxformer.base.errors import needs_extra, panics
from syntaxformer.base.files import read_json
from syntaxformer.syntax import (
    SUBWORD_POSITIONS,
    FactorVocabulary,
    UnseenValues,
    WordColumns,
    batch_word_of_piece,
    encoding_offsets,
    piece_factors,
    subword_codes,
)
from syntaxformer.syntax.inputs import LineSyntax, SyntaxInputs, TagPlace
from syntaxformer.syntax.ragged import Ragged, splits_of
from syntaxformer.translation.protection import UNUSED_SYMBOL, Span, numbered, shared_spans, values_of
from syntaxformer.trees.locate import given_words, plain_form, spans_of_given_words

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedTokenizerFast

IntArray = NDArray[np.integer[Any]]

SPECIAL_ROLES = ("pad_token", "bos_token", "eos_token", "unk_token")

ENTITIES = {
    "&#124;": "|", "&lt;": "<", "&gt;": ">", "&apos;": "'", "&quot;": '"', "&#91;": "[", "&#93;": "]",
    "&amp;": "&",
}  # fmt: skip
"""How Moses writes these characters."""

_ENTITY = re.compile("|".join(ENTITIES))


@dataclass(frozen=True)
class PreparedLines:
    """Lines as the tokenizer reads them.

    Args:
        places: For each line, where in the raw line each prepared character starts, and where it ends,
            exclusive; None if nothing changed. An inserted space covers no raw character.
    """

    texts: list[str]
    places: list[tuple[NDArray[np.int32], NDArray[np.int32]]] | None = field(default=None, repr=False)

    def to_raw(self, offsets: NDArray[np.int32], splits: NDArray[np.int64]) -> NDArray[np.int32]:
        """Convert offsets in prepared lines to offsets in raw lines.

        Args:
            offsets: `[pieces, 2]`, character start and end of each piece in its prepared line.
            splits: `[lines + 1]`, index of the first piece of each line.
        """
        if self.places is None:
            return offsets
        raw = np.zeros_like(offsets)
        for (starts, ends), (first, stop) in zip(self.places, pairwise(splits.tolist()), strict=True):
            of_line = offsets[first:stop]
            filled = of_line[:, 1] > of_line[:, 0]
            raw[first:stop][filled, 0] = starts[of_line[filled, 0]]
            raw[first:stop][filled, 1] = ends[of_line[filled, 1] - 1]
        return raw


@dataclass(frozen=True)
class TextPreparation:
    """How lines of one language are prepared, in training and in translation.

    Args:
        language: Language code, for Moses' list of abbreviations.
        tokenized: Spaces separate the words; repeated spaces become one.
        unescape: Entities such as "&apos;" are read as the characters that they stand for.
        moses: Subwords are made from the line as Moses' tokenizer splits it.
        lowercase: Subwords are made from the line in lower case; the annotator sees the original.
        punctuation: Subwords are made from the line with Moses' plain forms of quotes, dashes and spaces.
        nfc: The line is brought to its `plain_form`, with single spaces; if `tokenized`, each word is.
        symbols: Pieces of the user's, which stay as they are.
        protect: Kinds and patterns of what is written as numbered symbols, see `protection`.
    """

    language: str = "en"
    tokenized: bool = False
    unescape: bool = False
    moses: bool = False
    lowercase: bool = False
    punctuation: bool = False
    nfc: bool = False
    symbols: tuple[str, ...] = ()
    protect: tuple[str, ...] = ()

    @classmethod
    def of_side(cls, settings: Any, ending: str, symbols: tuple[str, ...]) -> TextPreparation:
        """That of the side with this ending, by a recipe's data section or what a folder stores of it."""
        from syntaxformer.base.languages import language_of_side  # needs langcodes, and batches do not

        language = language_of_side(settings, ending).code or ending
        lowercase = settings.lowercase is True or (settings.lowercase == "source" and ending == settings.src)
        options = (settings.tokenized, settings.unescape, settings.moses, lowercase)
        plain, nfc = bool(settings.normalize_punctuation), settings.normalize == "nfc"
        return cls(language, *options, plain, nfc, symbols, settings.protect)

    def clean(self, line: str) -> str:
        """Clean a raw line for the annotator."""
        line = unescape(line) if self.unescape else line
        if self.tokenized:  # words stay as many as they are
            return " ".join(map(_plain_word, given_words(line)) if self.nfc else given_words(line))
        return " ".join(filter(None, plain_form(line).split(" "))) if self.nfc else line.replace("\t", " ")

    def clean_offsets(self, line: str, offsets: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
        """Convert offsets of words in a line before `clean` to offsets after it."""
        widths = np.ones(len(line), np.int64)
        if self.unescape:
            for entity in _ENTITY.finditer(line):
                widths[entity.start() + 1 : entity.end()] = 0
        places = np.concatenate([[0], np.cumsum(widths)])
        line = unescape(line) if self.unescape else line
        if self.nfc:
            starts, ends = _places(replace(self, unescape=False).clean(line), line)
            spans = ((places[start], places[end]) for start, end in offsets)
            return [(int(starts[a]), int(ends[b - 1])) if b > a else (0, 0) for a, b in spans]
        if self.tokenized:
            places = _single_spaces(line)[places]
        return [(int(places[start]), int(places[end])) for start, end in offsets]

    def spans(self, lines: Sequence[str]) -> list[list[Span]] | None:
        """What is replaced in each clean source line; None if there is nothing to replace in any."""
        if self.protect or (self.symbols and (self.moses or self.punctuation or self.lowercase)):
            rows = values_of(lines, self.protect, self.symbols)
            return [numbered(line, values) for line, values in zip(lines, rows, strict=True)]
        return None

    def protected(self, lines: Sequence[str]) -> list[list[tuple[str, str]]]:
        """The values of each clean source line with their symbols, "" for those that stay text."""
        rows = []
        for line, values in zip(lines, values_of(lines, self.protect, self.symbols), strict=True):
            symbols = {start: symbol for start, _, symbol in numbered(line, values)}
            texts = [(start, line[start:end]) for start, end, is_symbol in values if not is_symbol]
            rows.append([(symbols.get(start, ""), text) for start, text in texts])
        return rows

    def shared_spans(
        self, sources: Sequence[str], targets: Sequence[str]
    ) -> tuple[list[list[Span]], list[list[Span]], list[int]]:
        """See `protection.shared_spans`."""
        return shared_spans(sources, targets, self.protect, self.symbols)

    def prepare(self, lines: Sequence[str], spans: Sequence[Sequence[Span]] | None = None) -> PreparedLines:
        """Prepare clean lines for the tokenizer; `spans`: what to replace in each, None for `self.spans`."""
        if (spans := self.spans(lines) if spans is None else spans) is not None:
            return _with_symbols(self, lines, spans)
        if not self.moses and not self.punctuation:
            return PreparedLines([lower_case(line) for line in lines] if self.lowercase else list(lines))
        split = list(lines)
        if self.punctuation:
            normalizer = _moses(self.language, "MosesPunctNormalizer")
            split = [normalizer.normalize(line) if line else line for line in split]
        if self.moses:
            tokenizer = _moses(self.language)
            split = [tokenizer.tokenize(line, escape=False, return_str=True) for line in split]
        places = [_places(line, text) for line, text in zip(lines, split, strict=True)]
        texts = [lower_case(text) for text in split] if self.lowercase else split
        return PreparedLines(texts, places)

    def restore(self, line: str) -> str:
        """Make a line of output readable: join what Moses split. Lower case stays."""
        return detokenize(line, self.language) if self.moses else line


def _plain_word(word: str) -> str:
    """A word's plain form if that is a word, too: it could be empty, or get a space for a no-break space."""
    return plain if (plain := plain_form(word)) and " " not in plain else normalize("NFC", word)


def unescape(line: str) -> str:
    """Replace Moses' entities by the characters that they stand for."""
    return _ENTITY.sub(lambda entity: ENTITIES[entity[0]], line)


def lower_case(line: str) -> str:
    """Lower-case a line without moving any character: "İ" would become two characters otherwise."""
    lowered = line.lower()
    return lowered if len(lowered) == len(line) else "".join(character.lower()[:1] for character in line)


def detokenize(line: str, language: str) -> str:
    """Join what Moses' tokenizer split."""
    return _moses(language, "MosesDetokenizer").detokenize(line.split(), unescape=False)


@lru_cache(maxsize=16)
def _moses(language: str, kind: str = "MosesTokenizer") -> Any:
    with needs_extra("moses", "has Moses' tokenizer"):
        import sacremoses

    return getattr(sacremoses, kind)(lang=language)


def _single_spaces(line: str) -> NDArray[np.int64]:
    """New position of each character, and of the end, after words are joined by single spaces."""
    stays, end = np.zeros(len(line), np.int64), 0
    for start, end in spans_of_given_words(line):
        stays[start : end + 1] = 1  # with the space after the word
    stays[end:] = 0
    return np.concatenate([[0], np.cumsum(stays)])


def _places(raw: str, text: str) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Raw start and end of each character of a prepared line, which differs mostly by its spaces."""
    starts, ends = np.zeros(len(text), np.int32), np.zeros(len(text), np.int32)
    if len(raw) == len(text) and raw.upper() == text.upper():  # another case
        starts[:] = np.arange(len(text))
        return starts, starts + 1
    if raw.replace(" ", "") != text.replace(" ", ""):  # other quotes, "..." for one character
        for kind, first, stop, start, end in SequenceMatcher(None, raw, text, False).get_opcodes():
            same = np.arange(first, stop, dtype=np.int32)
            starts[start:end], ends[start:end] = (same, same + 1) if kind == "equal" else (first, stop)
        return starts, ends
    last = 0
    for index, character in enumerate(text):
        at = raw.find(character, last) if character != " " else -1
        if at >= 0:
            starts[index], ends[index] = at, at + 1
            last = at + 1
        else:
            starts[index] = ends[index] = last
    return starts, ends


def offsets_in(raw: str, text: str, offsets: NDArray[np.int32]) -> NDArray[np.int32]:
    """Convert offsets in a text to offsets in the one that it was made from, or the one that it became."""
    if raw == text:
        return offsets
    runs = [[*re.finditer(r"\S+", side)] for side in (raw, text)]
    if len(runs[0]) != len(runs[1]):
        starts, ends = _places(raw, text)
    else:  # word by word, so that no change moves others
        starts, ends = np.zeros(len(text), np.int32), np.full(len(text), len(raw), np.int32)
        raw_end = end = 0  # of the word before
        for run, word in zip(*runs, strict=True):
            starts[end : word.start()], ends[end : word.start()] = raw_end, run.start()
            of_word = slice(*word.span())
            starts[of_word], ends[of_word] = (place + run.start() for place in _places(run[0], word[0]))
            raw_end, end = run.end(), word.end()
        starts[end:] = raw_end
    return PreparedLines([text], [(starts, ends)]).to_raw(offsets, np.array([0, len(offsets)]))


_MASK = "\U0010fffd"
"""Stands for a symbol in what Moses and lower case would change."""


def _with_symbols(
    preparation: TextPreparation, lines: Sequence[str], spans: Sequence[Sequence[Span]]
) -> PreparedLines:
    """Prepare lines with symbols in the place of spans; each character of a symbol covers the whole span."""
    masked, borders = [], []
    for line, row in zip(lines, spans, strict=True):
        line = line.replace(_MASK, "\ufffd")
        line = UNUSED_SYMBOL.sub("[", line) if preparation.protect else line  # no text spells a symbol
        starts, stays = np.arange(len(line) + 1, dtype=np.int32), np.ones(len(line) + 1, bool)
        ends, runs, last = starts + 1, list[str](), 0
        for start, end, _ in row:
            runs += line[last:start], _MASK
            ends[start], stays[start + 1 : end], last = end, False, end
        masked.append("".join([*runs, line[last:]]))
        borders.append((starts[stays], ends[stays]))
    texts, places, prepared = [], [], replace(preparation, symbols=(), protect=()).prepare(masked)
    for number, (text, (starts, ends)) in enumerate(zip(prepared.texts, borders, strict=True)):
        if prepared.places is not None:
            first, last = prepared.places[number]
            starts, ends = starts[first], np.where(last > first, ends[last - 1], starts[first])
        symbols, widths = [symbol for *_, symbol in spans[number]], np.ones(len(text), np.int64)
        widths[[at for at, character in enumerate(text) if character == _MASK]] = [*map(len, symbols)]
        texts.append("".join(chain(*zip(text.split(_MASK), [*symbols, ""], strict=True))))
        places.append(tuple(np.repeat(side[: len(text)], widths) for side in (starts, ends)))
    return PreparedLines(texts, places)


@dataclass(frozen=True)
class EncodedText:
    """Encoded lines in flat arrays.

    Args:
        pieces: `[pieces]`, int32, all lines one after the other.
        splits: `[lines + 1]`, index of the first piece of each line.
        factors: `[pieces, factors]`, int32; without columns if there are no factors or they are pieces.
        syntax: Trees of the lines, if the encoder reads any.
        n_tags: `[lines]`, how many pieces of each line are tags; None if there are no tags.
        is_cut: `[lines]`, which lines were cut; None if none were.
        others: The same lines as the other members of an ensemble read them.
        offsets: `[pieces, 2]`, characters of each piece in its clean line, if asked for; a tag has those of
            the first piece of its word.
        words: The words that the annotator found, if offsets were asked for.
        prefixes: For each line the target pieces that its translation must begin with; None: any.
        terms: For each line and each of its terms the translations, one of which should be used.
    """

    pieces: NDArray[np.int32]
    splits: NDArray[np.int64]
    factors: NDArray[np.int32]
    syntax: LineSyntax | None = None
    n_tags: NDArray[np.int64] | None = None
    is_cut: NDArray[np.bool_] | None = None
    others: tuple[EncodedText, ...] = ()
    offsets: NDArray[np.int32] | None = None
    words: WordColumns | None = None
    prefixes: Sequence[list[int]] | None = None
    terms: Sequence[Sequence[tuple[str, ...]]] | None = None

    def prefix_of(self, row: int) -> list[int]:
        """The target pieces that a line's translation must begin with."""
        return [] if self.prefixes is None else self.prefixes[row]

    def __len__(self) -> int:
        return len(self.splits) - 1

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Number of pieces in each line, tags included."""
        return np.diff(self.splits)

    @property
    def n_cut(self) -> int:
        """Number of lines that were cut."""
        return 0 if self.is_cut is None else int(self.is_cut.sum())

    @property
    def text_lengths(self) -> NDArray[np.int64]:
        """Number of pieces in each line, tags excluded."""
        return self.lengths if self.n_tags is None else self.lengths - self.n_tags

    def select(self, rows: NDArray[np.integer[Any]]) -> EncodedText:
        """Select lines, in the order of `rows`."""
        flat = Ragged(self.pieces, self.splits).places(rows)
        return EncodedText(
            self.pieces[flat],
            splits_of(self.lengths[rows]),
            self.factors[flat],
            None if self.syntax is None else self.syntax.select(rows, flat),
            None if self.n_tags is None else self.n_tags[rows],
        )


def encode_pieces(tokenizer: PreTrainedTokenizerFast, lines: Sequence[str]) -> list[Any]:
    """Encode lines with their end piece. Text that looks like a special piece ("</s>") stays text."""
    backend = tokenizer.backend_tokenizer
    backend.encode_special_tokens = True
    with panics():
        return backend.encode_batch(list(lines))


class Cut(NamedTuple):
    """A line in pieces, with their places in it."""

    ids: list[int]
    offsets: list[tuple[int, int]]


def tagged(cut: Cutter, tags: Sequence[Sequence[str]], tokenizer: Any, lines: Sequence[str]) -> list[Any]:
    """Cut lines; each one's tags come first, which cover no text and so have no syntax."""
    ids = {tag: tokenizer.backend_tokenizer.token_to_id(tag) for tag in {*chain.from_iterable(tags)}}
    return [
        Cut([*(ids[tag] for tag in of_line), *line.ids], [*[(0, 0)] * len(of_line), *line.offsets])
        for of_line, line in zip(tags, cut(tokenizer, lines), strict=True)
    ]


_BYTE = re.compile(r"<0x[0-9A-F]{2}>")


def unknown_pieces(tokenizer: Any, spelled: bool = True) -> NDArray[np.int64]:
    """Ids of what characters without a piece become: the unknown piece and, if `spelled`, those of bytes."""
    pieces = tokenizer.get_vocab() if spelled else {}
    ids = [tokenizer.unk_token_id, *(pieces[piece] for piece in pieces if _BYTE.fullmatch(piece))]
    return np.array([number for number in ids if number is not None], np.int64)


Cutter = Callable[["PreTrainedTokenizerFast", Sequence[str]], list[Any]]
"""Tokenizer and prepared lines → for each line its `ids` and `offsets`, as `encode_pieces` gives them."""


def source_batch(src: EncodedText, rows: Sequence[int], pad_id: int) -> dict[str, Tensor]:
    """Make the encoder's inputs for some rows; see `TranslationCollator`."""
    import torch

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


class PlainTokenizer:
    """What translation needs of a `PreTrainedTokenizerFast`, without the slow import of transformers.

    `tokenizer_file` is a tokenizer.json; `specials` names the special pieces by role, such as "pad_token".
    """

    KNOWN = frozenset({"backend", "model_max_length", "tokenizer_class", "is_local", "local_files_only"})
    """Keys of tokenizer_config.json, besides the roles, that change neither pieces nor text."""

    def __init__(self, tokenizer_file: str, **specials: str) -> None:
        self.backend_tokenizer = backend = Tokenizer.from_file(tokenizer_file)
        backend.add_special_tokens(list(specials.values()))
        ids = [backend.token_to_id(specials[role]) if role in specials else None for role in SPECIAL_ROLES]
        self.pad_token_id, self.bos_token_id, self.eos_token_id, self.unk_token_id = ids
        self.get_vocab, self.batch_decode = backend.get_vocab, backend.decode_batch

    @classmethod
    def reads(cls, folder: Path) -> bool:
        """Whether a folder's tokenizer has no settings that only transformers knows."""
        settings = read_json(folder / "tokenizer_config.json")
        is_plain = settings.get("tokenizer_class") in ("TokenizersBackend", "PreTrainedTokenizerFast")
        is_text = all(type(settings.get(role, "")) is str for role in SPECIAL_ROLES)
        return is_plain and is_text and settings.keys() <= cls.KNOWN.union(SPECIAL_ROLES)

    @classmethod
    def from_pretrained(cls, folder: Path) -> PlainTokenizer:
        """Read a folder that `reads` accepts."""
        settings = read_json(folder / "tokenizer_config.json")
        specials = {role: settings[role] for role in SPECIAL_ROLES if role in settings}
        return cls(str(folder / "tokenizer.json"), **specials)

    def __len__(self) -> int:
        return self.backend_tokenizer.get_vocab_size()

    def convert_ids_to_tokens(self, ids: Sequence[int]) -> list[str | None]:
        """The names of pieces."""
        return [self.backend_tokenizer.id_to_token(number) for number in ids]


@dataclass
class SourceEncoder:
    """Encodes source lines: tokenizer, factor vocabularies, preparation and trees.

    Args:
        vocabularies: One for each factor, in the order of the model's columns.
        unseen: Counts factor values that are not in the vocabularies.
        preparation: What happens to a line before the tokenizer; the annotator sees the raw line.
        own_target: The target language's tokenizer, if it is a different one.
        prepend: Where tags are placed as pieces; None if factors are columns instead.
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
        """The tokenizer of the target side, which is the source's unless each side has its own."""
        return self.own_target or self.tokenizer

    @property
    def factors(self) -> tuple[str, ...]:
        """Factor names, in the order of the columns."""
        return tuple(self.vocabularies)

    @property
    def columns(self) -> tuple[str, ...]:
        """Factors that are columns, in order; none if tags are pieces."""
        return () if self.prepend else self.factors

    @property
    def needs_words(self) -> bool:
        """Whether lines must be annotated."""
        return bool(self.vocabularies or self.syntax.needs or self.syntax.words)

    def factor_values(self, factors: NDArray[np.int32]) -> dict[str, list[str]]:
        """Factor → its value for each piece, from rows of `EncodedText.factors`."""
        columns = zip(self.columns, factors.T, strict=True)
        return {name: self.vocabularies[name].decode(ids) for name, ids in columns}

    def piece_names(self, pieces: NDArray[np.int32]) -> list[str]:
        """Names of source pieces; tags look like `<NOUN>`."""
        first_tag = len(self.tokenizer)
        tags = [value for vocabulary in self.vocabularies.values() for value in vocabulary.entries]
        texts = self.tokenizer.convert_ids_to_tokens(np.minimum(pieces, first_tag - 1).tolist())
        return [
            text if piece < first_tag else f"<{tags[piece - first_tag].strip('<>')}>"
            for text, piece in zip(texts, pieces.tolist(), strict=True)
        ]

    def encode(
        self,
        lines: Sequence[str],
        words: WordColumns | None = None,
        longest: int | None = None,
        cut: Cutter = encode_pieces,
        with_offsets: bool = False,
        spans: Sequence[Sequence[Span]] | None = None,
    ) -> EncodedText:
        """Encode raw lines, with their annotation if there are factors or trees; `spans` as in `prepare`.

        Lines are cut to `longest` pieces, tags included, and keep the pieces of their end; None cuts none.

        Raises:
            ValueError: There are factors or trees, but no annotation.
            AlignmentError: The annotation does not fit the lines.
            ConfigError: A factor or the encoder needs an annotation that is missing.
        """
        if self.needs_words and words is None:
            names = ", ".join([*self.factors, *self.syntax.needs])
            raise ValueError(f"words: expected an annotation for the factors {names}, got none.")
        prepared = self.preparation.prepare(lines, spans)
        encodings = cut(self.tokenizer, prepared.texts)
        pieces = np.fromiter((piece for encoding in encodings for piece in encoding.ids), np.int32)
        splits = splits_of([len(encoding.ids) for encoding in encodings])
        owners, offsets, is_owned = None, None, words is not None and self.needs_words
        if is_owned or with_offsets:
            offsets = prepared.to_raw(encoding_offsets(encodings)[0], splits)
        if words is not None and is_owned:
            owners = batch_word_of_piece(offsets, splits, words.offsets, words.row_splits)
        n_tags = len(self.factors) if self.prepend else 0
        rows, new_splits = slice(None), splits
        if longest is not None and (1 + n_tags) * np.diff(splits).max(initial=0) > longest:
            is_first = first_of_words(owners, splits) if n_tags else None
            rows = fitting_pieces(splits, longest, is_first, n_tags, self.end_length)
            new_splits = np.searchsorted(rows, splits)
        if words is None or owners is None:
            encoded = EncodedText(pieces[rows], new_splits, np.zeros((int(new_splits[-1]), 0), np.int32))
        else:
            encoded = self._with_annotation(pieces[rows], new_splits, owners[rows], words)
        encoded = replace(encoded, is_cut=np.diff(splits) != np.diff(new_splits))
        if not with_offsets or offsets is None:
            return encoded
        offsets = offsets[rows]
        if owners is not None and self.prepend:
            places = np.arange(len(offsets))
            of_tags = np.repeat(places[:, None], n_tags, 1)
            offsets = offsets[with_tags(places, new_splits, owners[rows], of_tags, self.prepend)[0]]
        return replace(encoded, offsets=offsets, words=words)

    @property
    def end_length(self) -> int:
        """Pieces after the text: the end piece, and mBART's code behind it."""
        added = self.tokenizer.backend_tokenizer.encode("a").special_tokens_mask
        return max(1, next(n for n, is_special in enumerate([*added[::-1], 0]) if not is_special))

    def _with_annotation(
        self,
        pieces: NDArray[np.int32],
        splits: NDArray[np.int64],
        owners: NDArray[np.int32],
        words: WordColumns,
    ) -> EncodedText:
        """Add factors, as columns or as pieces, and the trees."""
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
    """True for the first piece of each word; `owners` and `splits` are those of `with_tags`."""
    return np.isin(subword_codes(owners, splits), [SUBWORD_POSITIONS.index(position) for position in "BO"])


def fitting_pieces(
    splits: IntArray,
    longest: int,
    is_first: NDArray[np.bool_] | None = None,
    n_tags: int = 0,
    end_length: int = 1,
) -> NDArray[np.int64]:
    """Indices of the pieces to keep so that lines have at most `longest` pieces; those of the end stay.

    Args:
        splits: `[lines + 1]`.
        longest: Largest number of pieces in a line, tags included.
        is_first: The result of `first_of_words`; None without tags.
        n_tags: Number of tags for each word.
        end_length: Number of pieces at the end of each line that stay.
    """
    cost = np.ones(int(splits[-1]), np.int64)
    if is_first is not None:
        cost += n_tags * is_first
    ends = np.cumsum(cost)
    of_line = ends - np.repeat(np.concatenate([[0], ends])[splits[:-1]], np.diff(splits))
    stays = of_line <= longest - end_length
    for back in range(end_length):
        stays[splits[1:][np.diff(splits) > back] - 1 - back] = True
    return np.flatnonzero(stays)


def with_tags(
    pieces: IntArray, splits: IntArray, owners: IntArray, tags: NDArray[np.integer[Any]], place: TagPlace
) -> tuple[NDArray[np.int32], NDArray[np.int64], NDArray[np.int32]]:
    """Put tags into lines. A word without pieces gets no tag.

    Args:
        pieces: `[pieces]`.
        splits: `[lines + 1]`.
        owners: `[pieces]`, index of each piece's word within its line, -1 for none.
        tags: `[pieces, tags]`, ids of the tags of each piece's word.
        place: Where the tags go.

    Returns:
        Pieces, splits and owners, with the tags included.
    """
    is_first, n_tags = first_of_words(owners, splits), tags.shape[1]
    n_before = np.concatenate([[0], np.cumsum(is_first) * n_tags])  # tags of words that begin before a piece
    lengths = np.diff(splits)
    if place == "interleaved":
        shift, first_tag = n_before[1:], np.flatnonzero(is_first) + n_before[:-1][is_first]
    else:
        shift = np.repeat(n_before[splits[1:]], lengths)
        first_tag = (np.repeat(splits[:-1], lengths) + n_before[:-1])[is_first]
    n_all = len(pieces) + int(n_before[-1])
    with_pieces, words = np.empty(n_all, np.int32), np.empty(n_all, np.int32)
    moved, placed = np.arange(len(pieces)) + shift, first_tag[:, None] + np.arange(n_tags)
    with_pieces[moved], words[moved] = pieces, owners
    with_pieces[placed], words[placed] = tags[is_first], owners[is_first][:, None]
    return with_pieces, (splits + n_before[splits]).astype(np.int64), words
