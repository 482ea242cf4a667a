"""From parallel text to encoded pairs: learn subwords, annotate both sides, carry factors to pieces."""

from __future__ import annotations

import hashlib
import json
import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from transformers import PreTrainedTokenizerFast

from syntaxformer.annotate.registry import stored_name
from syntaxformer.base.errors import AlignmentError, ConfigError, DataError
from syntaxformer.base.files import count_lines, hash_file
from syntaxformer.base.languages import PHRASES as AND_PHRASES
from syntaxformer.base.languages import language_of_side, scripts_of
from syntaxformer.runs.config import FRACTION_SEED, Section
from syntaxformer.runs.loading import TRANSLATOR, verify_folder
from syntaxformer.runs.run_folder import same_data
from syntaxformer.syntax import (
    FACTORS,
    SHAPES,
    CodedColumn,
    FactorVocabulary,
    PhraseColumns,
    UnseenValues,
    WordColumns,
    build_vocabularies,
    check_factors,
    read_user_column,
)
from syntaxformer.syntax.columns import DEFAULT_COLUMNS
from syntaxformer.syntax.inputs import LineSyntax, SyntaxInputs, check_syntax
from syntaxformer.syntax.ragged import Ragged
from syntaxformer.translation.augmentation import Altered, Augmentation, with_lines, with_words
from syntaxformer.translation.batches import UNKNOWN_TAG, EncodedPairs, Shares
from syntaxformer.translation.checkpoint import (
    N_COMPARED,
    Checkpoint,
    add_symbols,
    compare,
    of_own_folder,
    open_checkpoint,
    special_pieces,
    stored_infusion,
)
from syntaxformer.translation.corpora import (
    CorpusConfig,
    ParallelText,
    find_file,
    keeps_on_disk,
    read_dev,
    read_train,
)
from syntaxformer.translation.data_report import UNKNOWN, UNSHARED, DataReport, add_long, report_train
from syntaxformer.translation.model_folder import FolderInfo, load_source_encoder, read_info
from syntaxformer.translation.protection import SYMBOLS
from syntaxformer.translation.sentences import usual_sentences
from syntaxformer.translation.source import Cutter, EncodedText, SourceEncoder, encode_pieces, tagged
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
    BpeDropout,
    SubwordConfig,
    encoder_tokenizer,
    given_tokenizer,
    size_for,
    stored_subwords,
    train_subwords,
    without_symbols,
)
from syntaxformer.translation.terms import read_terms, teach
from syntaxformer.translation.translator import sentence_parser
from syntaxformer.trees.phrase_structure import linearised

if TYPE_CHECKING:
    from syntaxformer.annotate import AnnotatedCorpus, Annotator
    from syntaxformer.translation.recipe import Recipe

_log = logging.getLogger("syntaxformer.data")

SIDES = ("src", "tgt")
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
    symbols = (*config.symbols, *(SYMBOLS if corpus.protect else ()))

    def learn(*names: str) -> PreTrainedTokenizerFast:
        key = "target_vocab_size" if names == ("tgt",) and config.target_vocab_size else "vocab_size"
        size = getattr(config, key)
        if size is None:
            lines = chain.from_iterable(getattr(text, name) for name in names)
            chosen_for = len(text), len(set(chain.from_iterable(lines)))
            size = size_for(*chosen_for)
            _log.info("subwords.vocab_size: %d, chosen for %d pairs and %d characters", size, *chosen_for)
        settings = config.model_copy(update={"vocab_size": size})

        def train() -> PreTrainedTokenizerFast:
            parts = (lines for name in names for lines in prepared_parts(text, corpus, name))
            lines = without_symbols(chain.from_iterable(parts), symbols)
            return train_subwords(lines, settings, raw, key)

        if not isinstance(text.src, StoredLines):
            return add_symbols(train(), symbols)
        prepared = {name: asdict(corpus.preparation(getattr(corpus, name))) for name in names}
        made_from = {"text": text.sha256, "raw": raw, "sides": prepared}
        made_from |= settings.model_dump(mode="json", exclude={"dropout"})
        return add_symbols(stored_subwords(corpus.cache, made_from, train), symbols)

    if any(pretrained):
        of_source, of_target = pretrained
        return (
            encoder_tokenizer(of_source, target=False) if of_source else learn("src"),
            encoder_tokenizer(of_target, target=True) if of_target else learn("tgt"),
        )
    if config.tokenizer is None:
        return (learn("src", "tgt"), None) if config.joint else (learn("src"), learn("tgt"))
    tokenizer = add_symbols(given_tokenizer(config.tokenizer), symbols)
    for side in SIDES:
        n_lines, n_lost, example = 0, 0, ""
        for lines in prepared_parts(text, corpus, side):
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


def prepared_parts(text: ParallelText, corpus: CorpusConfig, side: str) -> Iterator[list[str]]:
    """The lines of a side, "src" or "tgt", as subwords see them, `CHUNK_LINES` at a time."""
    preparation, spans = corpus.preparation(getattr(corpus, side)), None
    for start in range(0, len(text), CHUNK_LINES):
        rows = slice(start, start + CHUNK_LINES)
        if preparation.protect:
            spans = preparation.shared_spans(text.src[rows], text.tgt[rows])[SIDES.index(side)]
        yield preparation.prepare(getattr(text, side)[rows], spans).texts


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
    from syntaxformer.annotate.annotator import SPLIT

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
        if self.user_columns:
            words = slice(*self._borders[index : index + 2])
            for name, values in self._user_values.items():
                chunk = chunk.with_user_column(name, values[words])
        return chunk

    @cached_property
    def _corpus(self) -> AnnotatedCorpus:
        from syntaxformer.annotate import annotate_cached, annotator_for

        annotator = annotator_for(self.annotator, self.split, self.text.rows)
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


@dataclass(frozen=True)
class PairEncoding:
    """The pairs of a text, and all that their encoding depends on.

    Args:
        columns: The annotated sources, `CHUNK_LINES` in a chunk, if the encoder reads any annotation.
        max_pieces: Pairs with a longer side are left out; None for any length.
        target: Encodes the targets; None to do so with the encoder's target tokenizer alone.
        target_columns: The annotated targets, if the decoder learns their tags.
    """

    text: ParallelText
    encoder: SourceEncoder
    columns: Sequence[WordColumns] | None = None
    max_pieces: int | None = None
    target: SourceEncoder | None = None
    target_columns: Sequence[WordColumns] | None = None

    @cached_property
    def sides(self) -> dict[str, SourceEncoder]:
        """What encodes each side."""
        return {"src": self.encoder, "tgt": self.target or SourceEncoder(self.encoder.target_tokenizer)}

    def in_memory(self, cut: Cutter = encode_pieces) -> EncodedPairs:
        """Encode both sides.

        Raises:
            DataError: No pair is left.
            ConfigError: Tags make most of the pairs too long.
        """
        return self._pairs_of(joined_arrays(self._arrays(chunk) for chunk in self.chunks(cut)))

    def on_disk(self, cache: Path | None, annotators: Sequence[str]) -> EncodedPairs:
        """The result of `in_memory` on disk; pairs are encoded only if the cache does not have them.

        `annotators` identifies the annotations: names, versions, hashes of the user's own files. Errors are
        those of `in_memory`, and DataError if the cache cannot be written.
        """
        text = self.text
        made_from = {
            "text": [text.sha256, text.sizes, text.tags] if text.corpora_matter else text.sha256,
            "encoders": [
                {
                    "tokenizer": hashlib.sha256(
                        side.tokenizer.backend_tokenizer.to_str().encode()
                    ).hexdigest(),
                    "vocabularies": [vocabulary.to_dict() for vocabulary in side.vocabularies.values()],
                    "preparation": asdict(side.preparation),
                    "prepend": side.prepend,
                    "syntax": repr(side.syntax),
                }
                for side in self.sides.values()
            ],
            "max_pieces": self.max_pieces,
            "annotators": list(annotators),
        }

        def build(folder: Path) -> None:
            write_arrays(folder, (self._arrays(chunk) for chunk in self.chunks()))
            give_memory_back()

        return self._pairs_of(map_arrays(stored_folder(cache, "pairs", made_from, build)))

    def _pairs_of(self, arrays: dict[str, NDArray[Any]]) -> EncodedPairs:
        """Rebuild both sides from the arrays of `_arrays`."""
        texts = []
        for side, encoder in self.sides.items():
            prefix = f"{side}."
            of_side = {name[len(prefix) :]: a for name, a in arrays.items() if name.startswith(prefix)}
            flat = (of_side[name] for name in ("pieces", "splits", "factors"))
            text = EncodedText(*flat, n_tags=of_side.get("n_tags"))
            if "owners" in of_side:
                phrases = PhraseColumns(*map(of_side.get, PHRASES)) if PHRASES[0] in of_side else None
                of_words = (of_side["owners"], of_side["word_splits"], of_side.get("governors"), phrases)
                of_lines = [
                    Ragged(of_side[f"{name}s"], of_side[f"{name}_splits"]) if f"{name}s" in of_side else None
                    for name in _OF_LINES
                ]
                text = replace(text, syntax=LineSyntax(encoder.syntax, *of_words, *of_lines))
            texts.append(text)
        return EncodedPairs(*texts, arrays.get("corpora"))

    def _arrays(self, chunk: EncodedPairs) -> dict[str, NDArray[Any]]:
        """All arrays of both sides by name, in the narrowest type that holds their vocabulary."""
        arrays: dict[str, NDArray[Any] | None] = {"corpora": chunk.corpora}
        for side, encoder in self.sides.items():
            text: EncodedText = getattr(chunk, side)
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

    def chunks(self, cut: Cutter = encode_pieces) -> Iterator[EncodedPairs]:
        """Encode both sides, `CHUNK_LINES` lines at a time; errors are those of `in_memory`.

        Errors that concern all pairs together are raised after the last chunk.
        """
        text, (encoder, target), max_pieces = self.text, self.sides.values(), self.max_pieces
        limit = max_pieces or np.iinfo(np.int64).max
        counts, longest = Counter[str](), 0
        for number, start in enumerate(range(0, len(text), CHUNK_LINES)):
            lines = (text.src[start : start + CHUNK_LINES], text.tgt[start : start + CHUNK_LINES])
            corpora = (
                text.corpora_of(np.arange(start, start + len(lines[0]))) if text.corpora_matter else None
            )
            tagging = cut
            if corpora is not None and any(text.tags):
                tagging = partial(tagged, cut, [text.tags[corpus] for corpus in corpora])
            spans = [None, None]
            if encoder.preparation.protect:
                *spans, _ = encoder.preparation.shared_spans(*lines)
            words, tgt_words = (
                columns[number] if columns else None for columns in (self.columns, self.target_columns)
            )
            src = encoder.encode(lines[0], words, cut=tagging, spans=spans[0])
            tgt = target.encode(lines[1], tgt_words, cut=cut, spans=spans[1])
            filled = np.array([bool(a.strip() and b.strip()) for a, b in zip(*lines, strict=True)])
            fitting = np.maximum(src.lengths, tgt.lengths) <= limit
            bare = src.lengths[filled & (np.maximum(src.text_lengths, tgt.lengths) <= limit)]
            longest = max(longest, int(bare.max(initial=0)))
            rows = np.flatnonzero(filled & fitting)
            counts.update(pairs=len(rows), empty=int((~filled).sum()), long=int((filled & ~fitting).sum()))
            counts.update(fit_untagged=len(bare), too_long_by_tags=int((bare > limit).sum()))
            if len(rows) < len(filled):
                src, tgt = src.select(rows), tgt.select(rows)
                corpora = None if corpora is None else corpora[rows]
            yield EncodedPairs(src, tgt, corpora)
        if cut is not encode_pieces:  # the same pairs were checked before
            return
        n_by_tags, n_untagged = counts["too_long_by_tags"], counts["fit_untagged"]
        if 2 * n_by_tags > n_untagged:
            raise ConfigError(
                f"data.max_pieces: expected room for the tags of infusion.kind=prepend, got {max_pieces}, "
                f"which makes {n_by_tags} of {n_untagged} pairs too long. Raise it, to {longest} for all."
            )
        if not counts["pairs"]:
            raise DataError(
                f"expected at least one pair of up to {max_pieces} pieces, got none. Raise data.max_pieces.",
                text.src_path,
            )
        if counts["empty"] or counts["long"]:
            for_tags = f", {n_by_tags} of them for their tags alone" if n_by_tags else ""
            of_long = f" and {counts['long']} of more than {max_pieces} pieces" if max_pieces else ""
            _log.info("%s: left out %d empty pairs%s%s", text.src_path, counts["empty"], of_long, for_tags)


# The target side of training; translating needs neither its annotator nor its tags.

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


def target_columns(
    text: ParallelText, annotator: Annotator, config: CorpusConfig, split: str, processes: int = 1
) -> Sequence[WordColumns]:
    """Annotate the target side in chunks, as `annotated_columns` does the source side.

    Raises:
        ConfigError: The annotation holds no tags.
    """
    turned = replace(text, src=text.tgt, tgt=text.src, src_path=text.tgt_path, tgt_path=text.src_path)
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
    unknown = target.unseen.message()
    target.unseen.warn()
    if target.vocabularies and text.factors[:, 0].max(initial=0) <= UNKNOWN_TAG:
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
        names.append((info.annotator or "").replace(AND_PHRASES, ""))
        if names[-1].startswith("spacy:"):
            names[-1] += f" {(info.annotator_version or '').partition(AND_PHRASES)[0]}"
    if all(names) and names[0] != names[1]:
        _log.warning(
            "annotation.annotator: model.init_from was trained with %s, this run annotates with %s, whose "
            "tags and trees may differ. Set annotation.annotator to keep it.",
            *names,
        )


# All the data of a run.


@dataclass(frozen=True)
class Prepared:
    """Data of a run: the encoders of both sides, the encoded pairs, and their text."""

    encoder: SourceEncoder
    info: FolderInfo
    train: EncodedPairs
    dev: EncodedPairs
    train_text: ParallelText
    dev_text: ParallelText
    annotator: Annotator | None
    target: SourceEncoder
    report: DataReport
    start: Checkpoint | None = None


def prepare(recipe: Recipe, resume: bool = False) -> Prepared:
    """Read, annotate and encode the data; this writes only to the cache.

    Raises:
        ConfigError: A file is missing, the annotator lacks what a factor needs, or a resumed run had other
            data.
        DataError: The data cannot be used.
    """
    data = recipe.data
    if resume:  # an older run's lines are read as it began
        info = read_info(recipe.output)
        data = data.model_copy(update={"normalize": info.normalize})
        recipe = recipe.model_copy(update={"data": data})
    if (terms := None if data.terms is None else read_terms(data.terms)) is not None:
        if keeps_on_disk(data):
            raise ConfigError(
                "data.terms: expected a training text in memory, into which they are put, got one on disk. "
                "Set data.on_disk=false."
            )
        terms = terms.cleaned(*(data.preparation(side).clean for side in (data.src, data.tgt)))
    dev_text, all_pairs = read_dev(data), read_train(data)
    train_text, report = report_train(data, nested_fraction(all_pairs, data.fraction), dev_text)
    annotation = _annotate(recipe, train_text, dev_text)
    hashes = {"train": train_text.sha256, "dev": dev_text.sha256, "annotation": annotation.sha256}
    scripts = scripts_of(train_text.src)
    if terms is not None:
        chosen = data.term_share, recipe.seed, data.term_style
        train_text, taught = teach(train_text, annotation.train or (), terms, *chosen)
        annotation = replace(annotation, train=taught)
    start, parent, parent_info = _open_start(recipe)
    if resume:
        same_data(hashes, info.data_sha256)
        encoder = load_source_encoder(recipe.output, info)
        start = start and replace(start, source=encoder.tokenizer, target=encoder.target_tokenizer)
    else:
        of_subwords = all_pairs if recipe.subwords.of_all_pairs else train_text
        encoder, start = _new_encoder(recipe, of_subwords, annotation, start, parent, report)
        info = _info(recipe, encoder, annotation.annotator, parent_info)
    encoder.syntax = annotation.syntax
    target = target_encoder(encoder, data, recipe.predict_target_pos is not None)
    pairs = PairEncoding(
        train_text, encoder, annotation.train, data.max_pieces, target, annotation.train_tags
    )
    too_long = _report_pieces(report, recipe, pairs)
    if not resume:
        lines, parser = train_text.src, sentence_parser(info, annotation.annotator)
        facts = {"data_sha256": hashes, "scripts": scripts, "usual_sentences": usual_sentences(lines, parser)}
        if not recipe.is_hosted:  # a pretrained translator has read others
            n_words = (len(line.split()) for row, line in enumerate(lines) if row not in too_long)
            facts["longest_line"] = max([(parent_info and parent_info.longest_line) or 1, *n_words])
        info = info.model_copy(update=facts)
    on_disk = keeps_on_disk(data)
    train = pairs.on_disk(data.cache, annotation.identity) if on_disk else pairs.in_memory()
    report.corpora = _share(train, train_text, recipe)
    if recipe.subwords.dropout or data.augment is not None:
        train.again = _encodes_anew(recipe, pairs)
    # A pretrained translator has no positions for longer lines.
    longest = start.longest if start is not None else None
    dev = PairEncoding(dev_text, encoder, annotation.dev, longest, target, annotation.dev_tags).in_memory()
    encoder.unseen.warn()
    check_tags(train.tgt, target)
    annotator = annotation.annotator
    return Prepared(encoder, info, train, dev, train_text, dev_text, annotator, target, report, start)


def _share(train: EncodedPairs, text: ParallelText, recipe: Recipe) -> list[dict[str, Any]]:
    """Give each corpus its share of an epoch, and return what it gave; nothing if there is but one."""
    weights = [corpus.weight for corpus in recipe.data.corpora]
    if not text.corpora_matter and weights == [1.0]:
        return []
    corpora = np.zeros(len(train), np.int16) if train.corpora is None else train.corpora
    shares = Shares(corpora, weights, train.tgt.lengths, recipe.seed)
    if {*weights} != {1.0}:
        train.shares = shares
    sizes = zip(recipe.data.corpora, text.sizes, shares.sizes, strict=True)
    return [
        {**corpus.model_dump(include={"name", "tag", "weight"}), "pairs": n_pairs, "pairs_in_epoch": n_rows}
        for corpus, n_pairs, n_rows in sizes
    ]


@dataclass(frozen=True)
class _Annotation:
    """Who annotates the text of a run, what its encoder reads of that, and the annotated words.

    Args:
        identity: All that the annotation of the training text depends on, except that text.
        sha256: Hash of this, and of the same for dev.
    """

    annotator: Annotator | None
    factors: tuple[str, ...]
    syntax: SyntaxInputs
    identity: list[str]
    sha256: str
    train: Sequence[WordColumns] | None = None
    dev: Sequence[WordColumns] | None = None
    train_tags: Sequence[WordColumns] | None = None
    dev_tags: Sequence[WordColumns] | None = None


def _annotate(recipe: Recipe, train_text: ParallelText, dev_text: ParallelText) -> _Annotation:
    """Annotate the source for factors and trees, and the target if the decoder learns its tags."""
    from syntaxformer import annotate

    data, section, tags = recipe.data, recipe.annotation, recipe.predict_target_pos
    texts = (train_text, data.train_splits[0]), (dev_text, data.dev)
    factors = tuple(name for name, _ in recipe.width_plan().factors)
    syntax, annotator = recipe.syntax_inputs(training=True), None
    words: list[Sequence[WordColumns] | None] = [None, None]
    if factors or syntax.needs:
        needs, name = syntax.needs, section.annotator or ""
        annotator = annotate.prepare(
            name, needs=needs, words_given=data.tokenized, annotated=section.annotated
        )
        check_syntax(syntax, annotator.provides, annotator.name)
        check_factors(factors, annotator.provides, data.factor_files, annotator=annotator.name)
        columns = {need for name in factors if name in FACTORS for need in FACTORS[name].needs}
        columns |= {"lemmas"} if data.terms is not None else set()
        if syntax.needs:  # phrases take their heads from the parse, as they do when a line is translated
            columns |= {*syntax.needs, "governors"}
        words = [
            annotated_columns(text, annotator, data, split, factors, section.processes, columns)
            for text, split in texts
        ]
        if syntax.brackets is not None:
            syntax = syntax.model_copy(update={"brackets": parse_labels(words[0] or [])})
    tagger = tags and annotate.prepare(tags.annotator, words_given=data.tokenized)
    if tagger is not None and "upos" not in tagger.provides:
        raise ConfigError(
            f"predict_target_pos.annotator: expected one that gives parts of speech, got {tagger.name}, "
            f"which gives {', '.join(sorted(tagger.provides)) or 'none'}. "
            "The target side would have no tags."
        )
    identities: list[list[str]] = []
    for _, split in texts:
        facts: list[str] = []
        for reader in filter(None, (annotator, tagger)):
            facts += reader.name, annotate.annotator_for(reader, split).version
        if data.terms is not None:
            facts.append(f"terms {hash_file(data.terms)}")
        for name in (name for name in factors if name in data.factor_files):
            file = find_file(data.dir or Path(), split, data.factor_files[name])
            facts.append(f"{name} {hash_file(file)}")
        identities.append(facts)
    target_words: list[Sequence[WordColumns] | None] = [None, None]
    if tagger is not None:
        target_words = [target_columns(text, tagger, data, split, section.processes) for text, split in texts]
    sha256 = hashlib.sha256(json.dumps(identities).encode()).hexdigest()
    return _Annotation(annotator, factors, syntax, identities[0], sha256, *words, *target_words)


def _report_pieces(report: DataReport, recipe: Recipe, pairs: PairEncoding) -> set[int]:
    """Add pairs that are too long, and return them, or have characters that a tokenizer does not know."""
    data, text = recipe.data, pairs.text
    tokenizers = [side.tokenizer for side in pairs.sides.values()]
    sides = [prepared_parts(text, data, side) for side in SIDES]
    too_long = add_long(report, zip(tokenizers, sides, strict=True), data.max_pieces)
    if recipe.subwords.tokenizer or recipe.pretrained_embeddings:
        sides = [prepared_parts(text, data, side) for side in SIDES]
        rows_of_unknown = Checkpoint("", *tokenizers, 0, 0).missing_characters(sides, spelled=False)[1]
        report.add(UNKNOWN, {*rows_of_unknown})
    if data.protect:
        chunks = [slice(start, start + CHUNK_LINES) for start in range(0, len(text), CHUNK_LINES)]
        shared = [pairs.encoder.preparation.shared_spans(text.src[rows], text.tgt[rows]) for rows in chunks]
        n_shared = sum(symbol in SYMBOLS for src, *_ in shared for spans in src for *_, symbol in spans)
        report.add(UNSHARED, np.flatnonzero([n for *_, unlike in shared for n in unlike]).tolist())
        report.notes.append(f"data.protect: {n_shared:,} values of both sides are written as symbols.")
    return too_long


def _encodes_anew(recipe: Recipe, pairs: PairEncoding) -> Callable[[int], EncodedPairs]:
    """What encodes the training pairs for an epoch, cut at random or altered."""
    dropout, augmentation = recipe.subwords.dropout, _augmentation(recipe)
    if keeps_on_disk(recipe.data):
        key, off = ("subwords.dropout", 0) if dropout else ("data.augment", "null")
        raise ConfigError(
            f"{key}: expected a training text in memory, which is cut anew in each epoch, got one "
            f"on disk. Set data.on_disk=false, or {key}={off}."
        )
    text = pairs.text
    # Unseen values were counted already.
    encoder, target = (replace(side, unseen=UnseenValues()) for side in pairs.sides.values())
    pairs = replace(pairs, encoder=encoder, target=target)
    longest = recipe.data.max_pieces // (1 + len(encoder.factors) * (encoder.prepend is not None))
    longest -= max(map(len, text.tags), default=0)

    def again(epoch: int) -> EncodedPairs:
        cut: Cutter = partial(encode_pieces)  # with itself, what is left out would be said again
        if dropout:
            cut = BpeDropout(dropout, (recipe.seed, epoch), longest)
        if augmentation is None:
            return pairs.in_memory(cut)
        altered = augmentation.draw(text, epoch)
        rows = _fitting(text, altered, (encoder, target), longest)
        src, tgt = ({row: side[row] for row in rows} for side in altered)
        return replace(
            pairs,
            text=with_lines(text, src, tgt),
            columns=with_words(pairs.columns, src, CHUNK_LINES),
            target_columns=with_words(pairs.target_columns, tgt, CHUNK_LINES),
        ).in_memory(cut)

    for side in (encoder, target) if dropout else ():
        BpeDropout(dropout, 0, longest)(side.tokenizer, [])  # whether it can
    return again


def _augmentation(recipe: Recipe) -> Augmentation | None:
    """What alters the training pairs."""
    data = recipe.data
    sides = data.preparation(data.src).language, data.preparation(data.tgt).language
    return None if data.augment is None else Augmentation(data.augment, recipe.seed, sides)


def _fitting(
    text: ParallelText,
    altered: tuple[Altered, Altered],
    encoders: tuple[SourceEncoder, SourceEncoder],
    longest: int,
) -> list[int]:
    """The rows that an epoch may alter: not too long before or after, and with no more unknown pieces."""
    fits = np.ones(len(altered[0]), bool)
    for encoder, lines, letters in zip(encoders, (text.src, text.tgt), altered, strict=True):
        n_unknown = []
        for texts in ([lines[row] for row in letters], ["".join(line) for line in letters.values()]):
            encoded = encode_pieces(encoder.tokenizer, encoder.preparation.prepare(texts).texts)
            fits &= np.array([len(line.ids) <= longest for line in encoded], bool)
            unknown = encoder.tokenizer.unk_token_id
            n_unknown.append(np.array([line.ids.count(unknown) for line in encoded], int))
        fits &= n_unknown[1] <= n_unknown[0]
    return [row for row, does_fit in zip(altered[0], fits.tolist(), strict=True) if does_fit]


def _new_encoder(
    recipe: Recipe,
    text: ParallelText,
    annotation: _Annotation,
    start: Checkpoint | None,
    parent: SourceEncoder | None,
    report: DataReport,
) -> tuple[SourceEncoder, Checkpoint | None]:
    """Pieces and factors of a run: learned on its text, or those of the translator that it starts from."""
    data, symbols = recipe.data, (*recipe.subwords.symbols, *(SYMBOLS if recipe.data.protect else ()))
    if start is None:
        if (augmentation := _augmentation(recipe)) is not None and not keeps_on_disk(data):
            cases = augmentation.config.model_copy(update={"typo": 0.0, "noise": 0.0})
            altered = replace(augmentation, config=cases).draw(text, 0)
            text = with_lines(text, *altered)  # so that words in capitals have pieces
        tokenizer, own_target = get_tokenizers(text, recipe.subwords, data, _pretrained_encoders(recipe))
        tokenizer.backend_tokenizer.add_special_tokens(data.symbols)
    else:
        specials = {token.content for token in start.source.added_tokens_decoder.values()}
        if unknown := [symbol for symbol in data.symbols if symbol not in specials]:
            raise ConfigError(
                f"data.train: expected tags that model.init_from was trained with, got {', '.join(unknown)}. "
                "Leave them out, data.synthetic's with data.synthetic_tag=false."
            )
        symbols = [name for name in symbols if name not in start.source.get_vocab()]
        adds = {
            "model.add_characters": recipe.model.add_characters,
            "subwords.symbols, data.protect": symbols,
        }
        if parent is not None and parent.own_target and not recipe.is_hosted and any(adds.values()):
            key = next(key for key in adds if adds[key])
            raise ConfigError(
                f"{key}: expected no new pieces, as the sides of model.init_from have two vocabularies."
            )
        start = _fit_characters(recipe, start, text, report, symbols)
        tokenizer, own_target = start.source, start.target
    vocabularies = build_vocabularies(annotation.train or [], annotation.factors, recipe.embedding.min_count)
    if data.lowercase == "source" and "case" in vocabularies:
        vocabularies["case"] = FactorVocabulary("case", SHAPES)
    if parent is not None:
        vocabularies = parent.vocabularies or vocabularies
        own_target = None if parent.own_target is None else own_target
    encoder = SourceEncoder(
        tokenizer,
        vocabularies,
        preparation=data.preparation(data.src),
        own_target=own_target,
        prepend=recipe.embedding.tag_place,
    )
    return encoder, start


def _open_start(recipe: Recipe) -> tuple[Checkpoint | None, SourceEncoder | None, FolderInfo | None]:
    """The translator that training starts from, and how it encodes its source if `train` wrote it."""
    model, data = recipe.model, recipe.data
    if (path := recipe.start) is None:
        return None, None, None
    languages = tuple(language_of_side(data, side).code for side in (data.src, data.tgt))
    sides = tuple(code or side for code, side in zip(languages, (data.src, data.tgt), strict=True))
    if not (Path(path) / TRANSLATOR).is_file():
        codes = model.src_code, model.tgt_code
        start = open_checkpoint(path, languages, codes, model.add_codes, model.prompt)
        infusion = stored_infusion(path)
        known = infusion.vocabularies if infusion is not None else {}
        return start, SourceEncoder(start.source, known, own_target=start.target), None
    verify_folder(Path(path), TRANSLATOR)
    info = read_info(Path(path))
    encoder = load_source_encoder(Path(path), info)
    problems = [
        f"data.{key}: expected {value}, as model.init_from was trained with it, got {getattr(data, key)}."
        for key in (*_PREPARATION_KEYS, *(["protect"] if info.protect else []))
        if (value := getattr(info, key)) != getattr(data, key)
    ]
    if info.terms != (style := data.term_style if data.terms is not None else None):
        problems.append(
            f"data.terms: expected {info.terms or 'none'}, as model.init_from was trained with it, got "
            f"{style or 'none'}."
        )
    start = of_own_folder(path, encoder.tokenizer, encoder.target_tokenizer)
    if sides != info.languages and recipe.is_hosted and start.has_codes:
        problems.append(
            f"model.init_from: expected the languages {' and '.join(info.languages)}, whose codes or prompt "
            f"are in its pieces, got {' and '.join(sides)}. Start from the checkpoint that it came from."
        )
    elif sides == (*reversed(info.languages),):
        problems.append(
            f"model.init_from: expected a translator of {data.src} to {data.tgt}, got one of "
            f"{' to '.join(info.languages)}: the other direction."
        )
    if problems:
        raise ConfigError(problems)
    return start, encoder, info


def _fit_characters(
    recipe: Recipe, start: Checkpoint, text: ParallelText, report: DataReport, symbols: Collection[str]
) -> Checkpoint:
    """Count the characters of the training text that a tokenizer does not know; add them if that is asked.

    This also compares a tokenizer that had to be rebuilt with the original, and adds the `symbols`.
    """
    data = recipe.data
    sides = (text.src, data.preparation(data.src)), (text.tgt, data.preparation(data.tgt))
    plain = [replace(side, symbols=(), protect=()).prepare(lines[:N_COMPARED]) for lines, side in sides]
    compare(start, [lines.texts for lines in plain])
    start = start.with_characters(symbols, are_symbols=True) if symbols else start
    counts, rows = start.missing_characters([prepared_parts(text, data, side) for side in SIDES])
    report.add(UNKNOWN, set(rows))
    if not counts:
        return start
    shown = " ".join(f"{character!r} ({count})" for character, count in counts.most_common(10))
    unknown = f"{counts.total()} character{'s' * (counts.total() > 1)}, {len(counts)} different"
    unknown += f", in {len(rows)} line{'s' * (len(rows) > 1)}: {shown}"
    if recipe.model.add_characters:
        _log.info("model.add_characters: pieces are added for %s", unknown)
        return start.with_characters(counts)
    _log.warning(
        "model.init_from: the checkpoint's tokenizer does not know %s. The model %s; "
        "model.add_characters=true learns them.",
        unknown,
        "spells them by their bytes" if start.spells_bytes else "cannot read or write them",
    )
    return start


def _pretrained_encoders(recipe: Recipe) -> tuple[str | None, str | None]:
    if (section := recipe.pretrained_embeddings) is None:
        return None, None
    return section.source and section.source.model, section.target and section.target.model


_PREPARATION_KEYS = ("tokenized", "lowercase", "unescape", "moses", "normalize_punctuation", "normalize")
_DATA_KEYS = {"src", "tgt", "src_language", "tgt_language", "protect", "all_caps", *_PREPARATION_KEYS}


def _info(
    recipe: Recipe, encoder: SourceEncoder, annotator: Annotator | None, parent: FolderInfo | None
) -> FolderInfo:
    info = FolderInfo(
        **recipe.data.model_dump(include=_DATA_KEYS, exclude_none=True),
        symbols=recipe.subwords.symbols,
        forced=recipe.annotation.force,
        annotator=None if annotator is None else stored_name(annotator.name),
        annotator_version=None if annotator is None else annotator.version,
        target_specials=None if encoder.own_target is None else special_pieces(encoder.own_target),
        rewrites_target=_pretrained_encoders(recipe)[1] is not None,
        factors=list(encoder.vocabularies.values()),
        prepend=encoder.prepend,
        terms=recipe.data.term_style if recipe.data.terms is not None else None,
        syntax=recipe.syntax_inputs(training=False),
        decoding=recipe.decoding,
        directions={tgt: corpus.src or recipe.data.src for tgt, corpus in recipe.data.directions.items()},
    )
    if parent is not None:
        info.rewrites_target = parent.rewrites_target
        compare_annotators(parent, info)
    return info
