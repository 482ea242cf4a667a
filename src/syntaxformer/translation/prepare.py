"""From parallel text to encoded pairs: learn subwords, annotate both sides, carry factors to pieces."""

from __future__ import annotations

import hashlib
import logging
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
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
from syntaxformer.syntax.inputs import LineSyntax
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
        settings = config.model_copy(update={"vocab_size": size})

        def train() -> PreTrainedTokenizerFast:
            parts = (lines for name in names for lines in prepared_parts(*sides[name]))
            return train_subwords(chain.from_iterable(parts), settings, raw, key)

        if not isinstance(text.src, StoredLines):
            return train()
        prepared = {name: asdict(sides[name][1]) for name in names}
        made_from = {"text": text.sha256, "raw": raw, "sides": prepared}
        made_from |= settings.model_dump(mode="json", exclude={"dropout"})
        return stored_subwords(corpus.cache, made_from, train)

    if any(pretrained):
        of_source, of_target = pretrained
        return (
            encoder_tokenizer(of_source, target=False) if of_source else learn("src"),
            encoder_tokenizer(of_target, target=True) if of_target else learn("tgt"),
        )
    if config.tokenizer is None:
        return (learn("src", "tgt"), None) if config.joint else (learn("src"), learn("tgt"))
    tokenizer = given_tokenizer(config.tokenizer)
    for side in sides.values():
        n_lines, n_lost, example = 0, 0, ""
        for lines in prepared_parts(*side):
            ids = [encoding.ids for encoding in encode_pieces(tokenizer, lines)]
            again = tokenizer.batch_decode(ids, skip_special_tokens=True)
            n_lines += len(lines)
            lost = [line for line, other in zip(lines, again, strict=True) if line.strip() != other.strip()]
            n_lost, example = n_lost + len(lost), example or "".join(lost[:1])
        if n_lost:
            _log.warning(
                "subwords.tokenizer: %d of %d lines come back changed from their pieces, and would be "
                "translated so, such as: %s",
                *(n_lost, n_lines, example[:80]),
            )
    return tokenizer, None


def prepared_parts(lines: Sequence[str], preparation: TextPreparation) -> Iterator[list[str]]:
    """Lines as subwords see them, `CHUNK_LINES` at a time."""
    for start in range(0, len(lines), CHUNK_LINES):
        yield preparation.prepare(lines[start : start + CHUNK_LINES]).texts


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
    user_columns = [name for name in factors if name in config.factor_files]
    chunks = AnnotatedChunks(text, annotator, config, split, user_columns, processes, columns)
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
        chunks = (self._corpus.columns(start, start + CHUNK_LINES, ()) for start in starts)
        return np.cumsum([0, *(len(chunk.starts) for chunk in chunks)]).tolist()

    @cached_property
    def _user_values(self) -> dict[str, CodedColumn]:
        """The user's own columns for the whole text."""
        text, columns = self.text, {}
        for name in self.user_columns:
            path = find_file(self.config.dir or Path(), self.split, self.config.factor_files[name])
            if (n_lines := count_lines(path)) != text.n_file_lines:
                raise AlignmentError(
                    f"factor file: expected {text.n_file_lines} lines, one for each line of "
                    f"{text.src_path}, got {n_lines}.",
                    path,
                )
            columns[name] = read_user_column(path, self._corpus, text.src_path, text.rows)
        return columns


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
        "encoders": [
            {
                "tokenizer": hashlib.sha256(side.tokenizer.backend_tokenizer.to_str().encode()).hexdigest(),
                "vocabularies": [vocabulary.to_dict() for vocabulary in side.vocabularies.values()],
                "preparation": asdict(side.preparation),
                "prepend": side.prepend,
                "syntax": repr(side.syntax),
            }
            for side in sides.values()
        ],
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
    """Rebuild both sides from the arrays of `_arrays`."""
    texts = []
    for side, encoder in sides.items():
        prefix = f"{side}."
        of_side = {name[len(prefix) :]: a for name, a in arrays.items() if name.startswith(prefix)}
        flat = (of_side[name] for name in ("pieces", "splits", "factors"))
        text = EncodedText(*flat, n_tags=of_side.get("n_tags"))
        if "owners" in of_side:
            phrases = PhraseColumns(*(of_side[name] for name in PHRASES)) if PHRASES[0] in of_side else None
            of_words = (of_side["owners"], of_side["word_splits"], of_side.get("governors"), phrases)
            of_lines = [
                Ragged(of_side[f"{name}s"], of_side[f"{name}_splits"]) if f"{name}s" in of_side else None
                for name in _OF_LINES
            ]
            text = replace(text, syntax=LineSyntax(encoder.syntax, *of_words, *of_lines))
        texts.append(text)
    return EncodedPairs(*texts)


def _arrays(
    chunk: tuple[EncodedText, EncodedText], sides: dict[str, SourceEncoder]
) -> dict[str, NDArray[Any]]:
    """All arrays of both sides by name, in the narrowest type that holds their vocabulary."""
    arrays: dict[str, NDArray[Any] | None] = {}
    for (side, encoder), text in zip(sides.items(), chunk, strict=True):
        phrases = None if text.syntax is None else text.syntax.phrases
        for owner, names in (
            (text, ("pieces", "splits", "factors", "n_tags")),
            (text.syntax, ("owners", "word_splits", "governors")),
            (phrases, PHRASES),
        ):
            arrays |= {f"{side}.{name}": getattr(owner, name, None) for name in names}
        for name, field in _OF_LINES.items():
            if (rows := getattr(text.syntax, field, None)) is not None:
                arrays |= {f"{side}.{name}s": rows.values, f"{side}.{name}_splits": rows.splits}
        sizes = [len(vocabulary) for vocabulary in encoder.vocabularies.values()]
        highest = {"pieces": len(encoder.tokenizer) + sum(sizes), "factors": max(sizes, default=0)}
        for name, number in highest.items():
            arrays[f"{side}.{name}"] = getattr(text, name).astype(np.min_scalar_type(number))
    return {name: values for name, values in arrays.items() if values is not None}


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
    n_plain = len(text) - (text.n_synthetic if text.tag else 0)
    # Pairs that stay, have an empty side, are too long; are short enough without tags, too long with them.
    n_pairs = n_empty = n_long = n_bare = n_tagged_out = longest = 0
    for number, start in enumerate(range(0, len(text), CHUNK_LINES)):
        lines = (text.src[start : start + CHUNK_LINES], text.tgt[start : start + CHUNK_LINES])
        tagging = partial(_tagged, cut, text.tag, max(0, n_plain - start))
        src = encoder.encode(lines[0], columns[number] if columns else None, cut=tagging)
        tgt = target.encode(lines[1], target_columns[number] if target_columns else None, cut=cut)
        filled = np.array([bool(a.strip() and b.strip()) for a, b in zip(*lines, strict=True)])
        fitting = np.maximum(src.lengths, tgt.lengths) <= limit
        bare = src.lengths[filled & (np.maximum(src.text_lengths, tgt.lengths) <= limit)]
        n_bare, n_tagged_out = n_bare + len(bare), n_tagged_out + int((bare > limit).sum())
        longest = max(longest, int(bare.max(initial=0)))
        rows = np.flatnonzero(filled & fitting)
        n_pairs, n_empty = n_pairs + len(rows), n_empty + int((~filled).sum())
        n_long += int((filled & ~fitting).sum())
        yield (src, tgt) if len(rows) == len(filled) else (src.select(rows), tgt.select(rows))
    if cut is not encode_pieces:  # the same pairs were checked before
        return
    if 2 * n_tagged_out > n_bare:
        raise ConfigError(
            f"data.max_pieces: expected room for the tags of infusion.kind=prepend, got {max_pieces}, which "
            f"makes {n_tagged_out} of {n_bare} pairs too long. Raise it, to {longest} to keep all of them."
        )
    if not n_pairs:
        raise DataError(
            f"expected at least one pair of at most {max_pieces} pieces, got none. Raise data.max_pieces.",
            text.src_path,
        )
    if n_empty or n_long:
        for_tags = f", {n_tagged_out} of them for their tags alone" if n_tagged_out else ""
        of_long = f" and {n_long} of more than {max_pieces} pieces" if max_pieces else ""
        _log.info("%s: left out %d empty pairs%s%s", text.src_path, n_empty, of_long, for_tags)


def _tagged(cut: Cutter, tag: str | None, n_plain: int, tokenizer: Any, lines: Sequence[str]) -> list[Any]:
    """Cut lines; behind the first `n_plain`, a tag comes first, which covers no text and so has no syntax."""
    cuts, piece = cut(tokenizer, lines), tag and tokenizer.convert_tokens_to_ids(tag)
    return cuts[:n_plain] + [Cut([piece, *line.ids], [(0, 0), *line.offsets]) for line in cuts[n_plain:]]


# The target side of training; translating needs neither its annotator nor its tags.

AT_ONCE = 2**20
"""Number of pieces that are checked at a time, because a large text is on disk."""
TAG_FACTOR = "pos"
"""The factor that the decoder predicts for each piece."""


class TargetPosConfig(Section):
    """Training the decoder to predict the part of speech of each target piece as well."""

    annotator: str = Field(description="who tags the target side: en, de, spacy:NAME, conllu:PATH, …")
    weight: float = Field(0.1, gt=0, description="weight of its loss; that of translation has 1")


class ParseTaskConfig(Section):
    """Training the decoder to write the parse of its source as well (Currey & Heafield 2019)."""

    weight: float = Field(1.0, ge=0, description="weight of its loss; that of translation has 1")
    share: float = Field(1.0, gt=0, le=1, description="share of the batches in which it is learned")


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
    in_memory = columns if isinstance(columns, list) else ()  # a text on disk is checked when it is encoded
    if bare := sum(chunk.upos is None for chunk in in_memory):
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
    names: list[str] = []
    for info in (parent, child):
        name = (info.annotator or "").replace(AND_PHRASES, "")
        version = (info.annotator_version or "").partition(AND_PHRASES)[0]
        names.append(f"{name} {version}" if name.startswith("spacy:") else name)
    if all(names) and names[0] != names[1]:
        _log.warning(
            "annotation.annotator: model.init_from was trained with %s, this run annotates with %s, whose "
            "tags and trees may differ. Set annotation.annotator to keep it.",
            *names,
        )
