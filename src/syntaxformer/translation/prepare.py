"""From parallel text to encoded pairs: learn subwords, annotate both sides, carry factors to pieces."""

from __future__ import annotations

import hashlib
import logging
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from transformers import PreTrainedTokenizerFast

from syntaxformer.base.errors import AlignmentError, ConfigError, DataError
from syntaxformer.base.files import count_lines
from syntaxformer.base.languages import PHRASES as AND_PHRASES
from syntaxformer.runs.config import FRACTION_SEED, Section
from syntaxformer.syntax import CodedColumn, PhraseColumns, WordColumns, build_vocabularies, read_user_column
from syntaxformer.syntax.columns import DEFAULT_COLUMNS
from syntaxformer.syntax.factors import FactorVocabulary
from syntaxformer.syntax.inputs import LineSyntax, SyntaxInputs
from syntaxformer.syntax.ragged import Ragged
from syntaxformer.translation.batches import UNKNOWN_TAG, EncodedPairs
from syntaxformer.translation.corpora import CorpusConfig, ParallelText, find_file
from syntaxformer.translation.source import Cutter, EncodedText, SourceEncoder, TextPreparation, encode_pieces
from syntaxformer.translation.stored import CHUNK as CHUNK_LINES
from syntaxformer.translation.stored import (
    StoredLines,
    give_memory_back,
    joined_arrays,
    map_arrays,
    stored_folder,
    write_arrays,
)
from syntaxformer.translation.subwords import (
    Cut,
    SubwordConfig,
    encoder_tokenizer,
    given_tokenizer,
    size_for,
    stored_subwords,
    train_subwords,
)
from syntaxformer.trees.phrase_structure import linearised

if TYPE_CHECKING:
    from syntaxformer.annotate import AnnotatedCorpus, Annotator
    from syntaxformer.translation.translator import FolderInfo

_log = logging.getLogger("syntaxformer.data")

PHRASES = ("word_depths", "gap_depths", "gap_heads")
_OF_LINES = {"label": "labels", "own": "own"}
"""What a file's name begins with → a field of `LineSyntax`, with values of each line."""


def nested_fraction(text: ParallelText, fraction: float) -> ParallelText:
    """A random share of the real pairs, in order, part of every larger share; and all synthetic pairs."""
    if fraction == 1.0:
        return text
    n_real = len(text) - text.n_synthetic
    rows = np.random.default_rng(FRACTION_SEED).permutation(n_real)[: max(1, round(n_real * fraction))]
    return text.select([*sorted(rows.tolist()), *range(n_real, len(text))])


def get_tokenizers(
    text: ParallelText,
    config: SubwordConfig,
    corpus: CorpusConfig,
    pretrained: tuple[str | None, str | None] = (None, None),
) -> tuple[PreTrainedTokenizerFast, PreTrainedTokenizerFast | None]:
    """The source tokenizer, and the target tokenizer if it is a different one; learned on prepared text.

    Raises:
        ConfigError: As `given_tokenizer` and `encoder_tokenizer`.
    """
    raw = not (corpus.tokenized or corpus.moses)
    sides = {"src": (text.src, corpus.src), "tgt": (text.tgt, corpus.tgt)}
    sides = {name: (lines, corpus.preparation(ending)) for name, (lines, ending) in sides.items()}

    def learn(*names: str) -> PreTrainedTokenizerFast:
        key = "target_vocab_size" if names == ("tgt",) and config.target_vocab_size else "vocab_size"
        size = getattr(config, key)
        if size is None:
            lines = chain.from_iterable(sides[name][0] for name in names)
            chosen_for = len(text), len(set(chain.from_iterable(lines)))
            size = size_for(*chosen_for)
            _log.info("subwords.vocab_size: %d, chosen for %d pairs and %d characters", size, *chosen_for)
        own = config.model_copy(update={"vocab_size": size})

        def train() -> PreTrainedTokenizerFast:
            lines = chain.from_iterable(part for name in names for part in prepared_parts(*sides[name]))
            return train_subwords(lines, own, raw, key)

        if not isinstance(text.src, StoredLines):
            return train()
        prepared = {name: asdict(sides[name][1]) for name in names}
        made_from = {"text": text.sha256, "raw": raw, "sides": prepared}
        made_from |= own.model_dump(mode="json", exclude={"dropout"})
        return stored_subwords(corpus.cache, made_from, train)

    if any(pretrained):
        of_source, of_target = pretrained
        return (
            encoder_tokenizer(of_source, target=False) if of_source else learn("src"),
            encoder_tokenizer(of_target, target=True) if of_target else learn("tgt"),
        )
    if config.tokenizer is not None:
        tokenizer = given_tokenizer(config.tokenizer)
        for side in sides.values():
            _say_losses(tokenizer, prepared_parts(*side))
        return tokenizer, None
    return (learn("src", "tgt"), None) if config.joint else (learn("src"), learn("tgt"))


def prepared_parts(lines: Sequence[str], preparation: TextPreparation) -> Iterator[list[str]]:
    """Lines as subwords see them, `CHUNK_LINES` at a time."""
    for start in range(0, len(lines), CHUNK_LINES):
        yield preparation.prepare(lines[start : start + CHUNK_LINES]).texts


def _say_losses(tokenizer: PreTrainedTokenizerFast, parts: Iterable[Sequence[str]]) -> None:
    """Say how many lines are not what they were when their pieces are put together again."""
    n_lines, n_lost, first = 0, 0, ""
    for lines in parts:
        ids = [one.ids for one in encode_pieces(tokenizer, lines)]
        back = tokenizer.batch_decode(ids, skip_special_tokens=True)
        lost = [line for line, one in zip(lines, back, strict=True) if line.strip() != one.strip()]
        n_lines, n_lost, first = n_lines + len(lines), n_lost + len(lost), first or "".join(lost[:1])
    if n_lost:
        _log.warning(
            "subwords.tokenizer: %d of %d lines come back changed from their pieces, and would be translated "
            "so, such as: %s",
            *(n_lost, n_lines, first[:80]),
        )


def annotated_columns(
    text: ParallelText,
    annotator: Annotator,
    config: CorpusConfig,
    split: str,
    factors: Sequence[str],
    processes: int = 1,
    columns: Collection[str] = DEFAULT_COLUMNS,
) -> Sequence[WordColumns]:
    """Annotate the source side, or read it from the cache, in chunks of `CHUNK_LINES` with user columns.

    A text on disk is annotated when the first chunk is requested, and no chunk stays in memory.

    Raises:
        ConfigError: The file of a user column is missing, or the annotator has one parsed file for each
            split and the text joins several splits.
        AlignmentError: A user column does not fit the words.
        DataError: The cache cannot be written, or the parsed file of the split is missing.
    """
    from syntaxformer.annotate.wrappers import SPLIT

    splits = config.train_splits
    if SPLIT in annotator.name and split in splits and len(splits) > 1:
        raise ConfigError(
            f"annotator: expected one training split for parsed files with {SPLIT} in their path, got "
            f"{annotator.name} and data.train={', '.join(splits)}. Join text and parses of all splits."
        )
    own = [name for name in factors if name in config.factor_files]
    chunks = AnnotatedChunks(text, annotator, config, split, own, processes, columns)
    return chunks if isinstance(text.src, StoredLines) else list(chunks)


@dataclass(eq=False)
class AnnotatedChunks(Sequence[WordColumns]):
    """An annotated text in chunks of `CHUNK_LINES`, each made when it is requested."""

    text: ParallelText
    annotator: Annotator
    config: CorpusConfig
    split: str
    user_columns: Sequence[str]
    processes: int
    columns: Collection[str]

    def __len__(self) -> int:
        return -(-len(self.text) // CHUNK_LINES)

    def __getitem__(self, index: Any) -> Any:
        if not 0 <= index < len(self):
            raise IndexError(f"chunk: expected 0 to {len(self) - 1}, got {index}.")
        start = index * CHUNK_LINES
        lines = self.text.src[start : start + CHUNK_LINES]
        chunk = WordColumns.from_corpus(self._corpus, lines, start, self.columns)
        words = slice(*self._borders[index : index + 2]) if self.user_columns else slice(0)
        for name, values in self._user_values.items():
            chunk = chunk.with_user_column(name, values[words])
        return chunk

    @cached_property
    def _corpus(self) -> AnnotatedCorpus:
        from syntaxformer.annotate import annotate_cached, annotator_for

        annotator = annotator_for(self.annotator, self.split)
        return annotate_cached(
            self.text.src, annotator, self.config.cache, n_processes=self.processes, progress=True
        )

    @cached_property
    def _borders(self) -> list[int]:
        """Number of words before each chunk."""
        starts = range(0, len(self.text), CHUNK_LINES)
        found = (self._corpus.columns(start, start + CHUNK_LINES, ()) for start in starts)
        return np.cumsum([0, *(len(chunk.starts) for chunk in found)]).tolist()

    @cached_property
    def _user_values(self) -> dict[str, CodedColumn]:
        """The user's own columns for the whole text."""
        text, found = self.text, {}
        for name in self.user_columns:
            path = find_file(self.config.dir or Path(), self.split, self.config.factor_files[name])
            if (n_lines := count_lines(path)) != text.n_file_lines:
                raise AlignmentError(
                    f"factor file: expected {text.n_file_lines} lines, one for each line of "
                    f"{text.src_path}, got {n_lines}.",
                    path,
                )
            found[name] = read_user_column(path, self._corpus, text.src_path, text.rows)
        return found


def encode_pairs(
    text: ParallelText,
    encoder: SourceEncoder,
    columns: Sequence[WordColumns] | None,
    max_pieces: int | None,
    target: SourceEncoder | None = None,
    target_columns: Sequence[WordColumns] | None = None,
    cut: Cutter = encode_pieces,
) -> EncodedPairs:
    """Encode both sides in memory, without the pairs that have a side longer than `max_pieces`.

    Raises:
        DataError: No pair is left.
        ConfigError: Tags make most of the pairs too long.
    """
    sides = {"src": encoder, "tgt": target or SourceEncoder(encoder.target_tokenizer)}
    chunks = encoded_chunks(text, encoder, columns, max_pieces, sides["tgt"], target_columns, cut)
    return _pairs_of(joined_arrays(_arrays(chunk, sides) for chunk in chunks), sides)


def stored_pairs(
    cache: Path | None,
    text: ParallelText,
    encoder: SourceEncoder,
    columns: Sequence[WordColumns] | None,
    max_pieces: int | None,
    target: SourceEncoder,
    target_columns: Sequence[WordColumns] | None = None,
    annotators: Sequence[str] = (),
) -> EncodedPairs:
    """The result of `encode_pairs` on disk; pairs are encoded only if the cache does not have them.

    `annotators` identifies the annotations: names, versions, hashes of the user's own files.

    Raises:
        DataError: As `encode_pairs`, or the cache cannot be written.
        ConfigError: As `encode_pairs`.
    """
    sides = {"src": encoder, "tgt": target}
    made_from = {
        "text": [text.sha256, text.n_synthetic] if text.tag else text.sha256,
        "encoders": [_identity(one) for one in sides.values()],
        "max_pieces": max_pieces,
        "annotators": list(annotators),
    }

    def build(folder: Path) -> None:
        chunks = encoded_chunks(text, encoder, columns, max_pieces, target, target_columns)
        write_arrays(folder, (_arrays(chunk, sides) for chunk in chunks))
        del chunks
        give_memory_back()

    return _pairs_of(map_arrays(stored_folder(cache, "pairs", made_from, build)), sides)


def _pairs_of(arrays: dict[str, NDArray[Any]], sides: dict[str, SourceEncoder]) -> EncodedPairs:
    return EncodedPairs(*(_text_of(arrays, f"{side}.", one.syntax) for side, one in sides.items()))


def _identity(encoder: SourceEncoder) -> dict[str, Any]:
    """All parts of an encoder that decide how it encodes annotated lines."""
    tokenizer = encoder.tokenizer.backend_tokenizer.to_str()
    return {
        "tokenizer": hashlib.sha256(tokenizer.encode()).hexdigest(),
        "vocabularies": [vocabulary.to_dict() for vocabulary in encoder.vocabularies.values()],
        "preparation": asdict(encoder.preparation),
        "prepend": encoder.prepend,
        "syntax": repr(encoder.syntax),
    }


def _arrays(
    chunk: tuple[EncodedText, EncodedText], sides: dict[str, SourceEncoder]
) -> dict[str, NDArray[Any]]:
    """All arrays of both sides by name, in the narrowest type that holds their vocabulary."""
    found: dict[str, NDArray[Any] | None] = {}
    for (side, encoder), text in zip(sides.items(), chunk, strict=True):
        phrases = None if text.syntax is None else text.syntax.phrases
        for owner, names in (
            (text, ("pieces", "splits", "factors", "n_tags")),
            (text.syntax, ("owners", "word_splits", "governors")),
            (phrases, PHRASES),
        ):
            found |= {f"{side}.{name}": getattr(owner, name, None) for name in names}
        for name, field in _OF_LINES.items():
            if (rows := getattr(text.syntax, field, None)) is not None:
                found |= {f"{side}.{name}s": rows.values, f"{side}.{name}_splits": rows.splits}
        sizes = [len(vocabulary) for vocabulary in encoder.vocabularies.values()]
        highest = {"pieces": len(encoder.tokenizer) + sum(sizes), "factors": max(sizes, default=0)}
        for name, number in highest.items():
            found[f"{side}.{name}"] = getattr(text, name).astype(np.min_scalar_type(number))
    return {name: values for name, values in found.items() if values is not None}


def _text_of(arrays: dict[str, NDArray[Any]], side: str, syntax: SyntaxInputs) -> EncodedText:
    """Rebuild one side from the arrays of `_arrays`."""
    own: dict[str, Any] = {name.removeprefix(side): a for name, a in arrays.items() if name.startswith(side)}
    text = EncodedText(own["pieces"], own["splits"], own["factors"], n_tags=own.get("n_tags"))
    if "owners" not in own:
        return text
    phrases = PhraseColumns(*(own[name] for name in PHRASES)) if PHRASES[0] in own else None
    parts = (own["owners"], own["word_splits"], own.get("governors"), phrases)
    of_lines = [
        Ragged(own[f"{name}s"], own[f"{name}_splits"]) if f"{name}s" in own else None for name in _OF_LINES
    ]
    return replace(text, syntax=LineSyntax(syntax, *parts, *of_lines))


def encoded_chunks(
    text: ParallelText,
    encoder: SourceEncoder,
    columns: Sequence[WordColumns] | None,
    max_pieces: int | None,
    target: SourceEncoder,
    target_columns: Sequence[WordColumns] | None = None,
    cut: Cutter = encode_pieces,
) -> Iterator[tuple[EncodedText, EncodedText]]:
    """Encode both sides, `CHUNK_LINES` lines at a time; arguments and errors are those of `encode_pairs`.

    Errors that concern all pairs together are raised after the last chunk.
    """
    limit = max_pieces or np.iinfo(np.int64).max
    tally, n_plain = _Tally(), len(text) - (text.n_synthetic if text.tag else 0)
    for place, start in enumerate(range(0, len(text), CHUNK_LINES)):
        lines = (text.src[start : start + CHUNK_LINES], text.tgt[start : start + CHUNK_LINES])
        tagging = partial(_tagged, cut, text.tag, max(0, n_plain - start))
        src = encoder.encode(lines[0], columns[place] if columns else None, cut=tagging)
        tgt = target.encode(lines[1], target_columns[place] if target_columns else None, cut=cut)
        filled = np.array([bool(one.strip() and other.strip()) for one, other in zip(*lines, strict=True)])
        kept = tally.judge(src, tgt, filled, limit)
        yield (src, tgt) if len(kept) == len(filled) else (src.select(kept), tgt.select(kept))
    if cut is encode_pieces:  # the same pairs were checked so before
        tally.check(text, max_pieces)


def _tagged(cut: Cutter, tag: str | None, n_plain: int, tokenizer: Any, lines: Sequence[str]) -> list[Any]:
    """Cut lines; behind the first `n_plain`, a tag comes first, which covers no text and so has no syntax."""
    cuts, piece = cut(tokenizer, lines), tag and tokenizer.convert_tokens_to_ids(tag)
    return cuts[:n_plain] + [Cut([piece, *one.ids], [(0, 0), *one.offsets]) for one in cuts[n_plain:]]


@dataclass
class _Tally:
    """Counts the pairs that are kept, and those that are left out, by reason."""

    n_kept: int = 0
    n_empty: int = 0  # with an empty side
    n_long: int = 0  # with too many pieces
    n_bare: int = 0  # short enough without tags
    n_tagged_out: int = 0  # short enough without tags, too long with them
    longest: int = 0  # most pieces of a source that is short enough without tags, counted with tags

    def judge(
        self, src: EncodedText, tgt: EncodedText, filled: NDArray[np.bool_], limit: int
    ) -> NDArray[np.int64]:
        """Count the rows of a chunk and return those that are kept."""
        fitting = np.maximum(src.lengths, tgt.lengths) <= limit
        bare = src.lengths[filled & (np.maximum(src.text_lengths, tgt.lengths) <= limit)]
        self.n_bare += len(bare)
        self.n_tagged_out += int((bare > limit).sum())
        self.longest = max(self.longest, int(bare.max(initial=0)))
        kept = np.flatnonzero(filled & fitting)
        self.n_kept += len(kept)
        self.n_empty += int((~filled).sum())
        self.n_long += int((filled & ~fitting).sum())
        return kept

    def check(self, text: ParallelText, max_pieces: int | None) -> None:
        """Log what was left out, and check that enough pairs are kept.

        Raises:
            ConfigError: Tags make most of the pairs too long.
            DataError: No pair is left.
        """
        if 2 * self.n_tagged_out > self.n_bare:
            raise ConfigError(
                f"data.max_pieces: expected room for the tags of infusion.kind=prepend, got {max_pieces}, "
                f"which makes {self.n_tagged_out} of {self.n_bare} pairs too long. Raise it, to "
                f"{self.longest} to keep all of them."
            )
        if not self.n_kept:
            raise DataError(
                f"expected at least one pair of at most {max_pieces} pieces, got none. "
                "Raise data.max_pieces.",
                text.src_path,
            )
        if self.n_empty or self.n_long:
            for_tags = f", {self.n_tagged_out} of them for their tags alone" if self.n_tagged_out else ""
            of_long = f" and {self.n_long} of more than {max_pieces} pieces" if max_pieces else ""
            _log.info("%s: left out %d empty pairs%s%s", text.src_path, self.n_empty, of_long, for_tags)


# The target side of training; translating needs neither its annotator nor its tags.

AT_ONCE = 2**20
"""Number of pieces that are checked at a time, because a large text is on disk."""
TAG_FACTOR = "pos"
"""The factor that the decoder predicts for each piece."""


class TargetPosConfig(Section):
    """Training the decoder to predict the part of speech of each target piece as well."""

    annotator: str = Field(description="who tags the target side: en, de, spacy:NAME, conllu:PATH, …")
    weight: float = Field(default=0.1, gt=0, description="weight of its loss; that of translation has 1")


class ParseTaskConfig(Section):
    """Training the decoder to write the parse of its source as well (Currey & Heafield 2019)."""

    weight: float = Field(default=1.0, ge=0, description="weight of its loss; that of translation has 1")
    share: float = Field(default=1.0, gt=0, le=1, description="share of the batches in which it is learned")


def parse_labels(columns: Sequence[WordColumns]) -> tuple[str, ...]:
    """The labels of the linearised trees of a text, the most frequent first."""
    counts: Counter[str] = Counter()
    for chunk in columns:
        for tree in chunk.constituency or ():
            counts.update(linearised(tree) if tree else ())
    return FactorVocabulary.from_counts("parse_task", counts).values


def target_annotator(name: str, tokenized: bool) -> Annotator:
    """The annotator of the target language.

    Raises:
        ConfigError: There is no such annotator, or it gives no tags.
        BackendMissingError: It is not installed.
    """
    from syntaxformer import annotate

    annotator = annotate.prepare(name, words_given=tokenized)
    if "upos" not in annotator.provides:
        raise ConfigError(
            f"predict_target_pos.annotator: expected one that gives parts of speech, got {annotator.name}, "
            f"which gives {', '.join(sorted(annotator.provides)) or 'none'}. "
            "The target side would have no tags."
        )
    return annotator


def target_columns(
    text: ParallelText, annotator: Annotator, config: CorpusConfig, split: str, processes: int = 1
) -> Sequence[WordColumns]:
    """Annotate the target side in chunks, as `annotated_columns` does the source side.

    Raises:
        ConfigError: The annotation holds no tags.
    """
    turned = ParallelText(text.tgt, text.src, text.tgt_path, text.src_path, n_file_lines=text.n_file_lines)
    columns = annotated_columns(turned, annotator, config, split, (), processes)
    at_hand = columns if isinstance(columns, list) else ()  # a text on disk is checked when it is encoded
    if bare := sum(part.upos is None for part in at_hand):
        raise ConfigError(
            f"predict_target_pos: expected tags on the target side, {text.tgt_path}, got none in {bare} of "
            f"{len(columns)} parts of it. Choose another predict_target_pos.annotator."
        )
    return columns


def check_tags(text: EncodedText, target: SourceEncoder) -> None:
    """Warn of tags that are not in Universal Dependencies, and check that some tags are.

    Raises:
        ConfigError: No piece has a known tag.
    """
    if not target.vocabularies:
        return
    unknown, tags = target.unseen.message(), text.factors[:, 0]
    target.unseen.warn()
    if not any((tags[start : start + AT_ONCE] > UNKNOWN_TAG).any() for start in range(0, len(tags), AT_ONCE)):
        raise ConfigError(
            "predict_target_pos: expected tags of Universal Dependencies on the target side, got "
            f"{unknown or 'none'}. Choose another predict_target_pos.annotator."
        )


def target_tags() -> tuple[str, ...]:
    """The tags that the decoder can predict, in the order of their ids."""
    return build_vocabularies([], (TAG_FACTOR,), 1)[TAG_FACTOR].entries


def target_encoder(encoder: SourceEncoder, config: CorpusConfig, tagged: bool) -> SourceEncoder:
    """The encoder of target lines; if `tagged`, their pieces have the factor `pos`."""
    vocabularies = build_vocabularies([], (TAG_FACTOR,), 1) if tagged else {}
    return SourceEncoder(encoder.target_tokenizer, vocabularies, preparation=config.preparation(config.tgt))


def compare_annotators(parent: FolderInfo, child: FolderInfo) -> None:
    """Warn if a model's text is annotated by another annotator, or version of spaCy's, than its parent's."""
    told: list[str] = []
    for info in (parent, child):
        name = (info.annotator or "").replace(AND_PHRASES, "")
        version = (info.annotator_version or "").partition(AND_PHRASES)[0]
        told.append(f"{name} {version}" if name.startswith("spacy:") else name)
    if all(told) and told[0] != told[1]:
        _log.warning(
            "annotation.annotator: model.init_from was trained with %s, this run annotates with %s, whose "
            "tags and trees may differ. Set annotation.annotator to keep it.",
            *told,
        )
