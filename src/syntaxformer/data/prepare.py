"""Parallel text to encoded pairs: subwords learned, source annotated, factors carried to pieces."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain, pairwise
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from syntaxformer.align import CodedColumn, WordColumns, build_vocabularies, read_user_column
from syntaxformer.data.collator import EncodedPairs
from syntaxformer.data.encoder_tokenizer import encoder_tokenizer
from syntaxformer.data.parallel import CorpusConfig, ParallelText, find_file
from syntaxformer.data.preparation import TextPreparation
from syntaxformer.data.source import EncodedText, SourceEncoder
from syntaxformer.data.source_syntax import SyntaxInputs
from syntaxformer.data.subwords import SubwordConfig, train_subwords
from syntaxformer.errors import AlignmentError, ConfigError, DataError
from syntaxformer.textfile import count_lines

if TYPE_CHECKING:
    from syntaxformer.annotate import Annotator

__all__ = [
    "annotated_columns",
    "encode_pairs",
    "get_tokenizer",
    "get_tokenizers",
    "needs_annotator",
    "nested_fraction",
    "source_encoder",
]

_log = logging.getLogger("syntaxformer.data")

CHUNK_LINES = 10_000
FRACTION_SEED = 20190919
"""Fixed: the 1 % of every run is the same, and inside the 5 %."""


def nested_fraction(text: ParallelText, fraction: float) -> ParallelText:
    """A random share of the pairs, in corpus order; a smaller share is part of a larger one."""
    if fraction == 1.0:
        return text
    n_kept = max(1, round(len(text) * fraction))
    rows = np.random.default_rng(FRACTION_SEED).permutation(len(text))[:n_kept]
    return text.select(sorted(rows.tolist()))


def get_tokenizers(
    text: ParallelText,
    config: SubwordConfig,
    corpus: CorpusConfig,
    pretrained: tuple[str | None, str | None] = (None, None),
) -> tuple[PreTrainedTokenizerFast, PreTrainedTokenizerFast | None]:
    """The tokenizer of the source, and that of the target where it is another; learned on prepared text.

    Args:
        text: Training text.
        config: Subword section of the recipe.
        corpus: Data section.
        pretrained: For source and target, the encoder whose own tokenizer is wanted; None learns one.

    Raises:
        ConfigError: As `get_tokenizer` and `encoder_tokenizer`.
    """
    raw = not (corpus.tokenized or corpus.moses)
    src = _prepared(text.src, corpus.preparation(corpus.src))
    tgt = _prepared(text.tgt, corpus.preparation(corpus.tgt))
    if any(pretrained):
        of_source, of_target = pretrained
        return (
            encoder_tokenizer(of_source, target=False) if of_source else train_subwords(src, config, raw),
            encoder_tokenizer(of_target, target=True) if of_target else train_subwords(tgt, config, raw),
        )
    if config.joint or config.tokenizer is not None:
        return get_tokenizer(replace(text, src=src, tgt=tgt), config, raw), None
    return train_subwords(src, config, raw), train_subwords(tgt, config, raw)


def _prepared(lines: list[str], preparation: TextPreparation) -> list[str]:
    return preparation.prepare(lines).texts


def get_tokenizer(text: ParallelText, config: SubwordConfig, raw: bool = True) -> PreTrainedTokenizerFast:
    """The tokenizer that the recipe names, or one learned on both sides of the training text.

    Args:
        text: Training text, prepared.
        config: Subword section of the recipe.
        raw: False for text that is split into words.

    Raises:
        ConfigError: The named tokenizer cannot be loaded, is not a fast one, or has no end piece.
    """
    if config.tokenizer is None:
        return train_subwords(chain(text.src, text.tgt), config, raw)
    try:
        tokenizer = AutoTokenizer.from_pretrained(config.tokenizer, use_fast=True)
    except (OSError, ValueError) as error:
        raise ConfigError(f"subwords.tokenizer: expected a tokenizer folder, got: {error}") from error
    if not tokenizer.is_fast or tokenizer.eos_token_id is None or tokenizer.pad_token_id is None:
        raise ConfigError(
            "subwords.tokenizer: expected a fast tokenizer with end and padding pieces, "
            f"got {config.tokenizer}."
        )
    return tokenizer


def needs_annotator(factors: Sequence[str], syntax: SyntaxInputs | None = None) -> bool:
    """Whether the words of a line must be known: for every factor, the user's own too, and for trees."""
    return bool(factors) or (syntax is not None and bool(syntax.needs))


def annotated_columns(
    text: ParallelText,
    annotator: Annotator,
    config: CorpusConfig,
    split: str,
    factors: Sequence[str],
    processes: int = 1,
    constituency: bool = False,
) -> list[WordColumns]:
    """Annotate the source side, or take it from the cache; chunks of `CHUNK_LINES`, with user columns.

    Raises:
        ConfigError: The file of a user column is missing.
        AlignmentError: A user column does not fit the words; names file, line and word.
        DataError: The cache cannot be written, or the parsed file of the split is missing.
    """
    from syntaxformer.annotate import annotate_cached, annotator_for

    lines = text.src
    corpus = annotate_cached(
        lines, annotator_for(annotator, split), config.cache, n_processes=processes, progress=True
    )
    starts = range(0, len(lines), CHUNK_LINES)
    chunks = [
        WordColumns.from_corpus(corpus, lines[start : start + CHUNK_LINES], start, constituency=constituency)
        for start in starts
    ]
    for name in factors:
        if name in config.factor_files:
            path = find_file(config.dir, split, config.factor_files[name])
            if (n_lines := count_lines(path)) != text.n_file_lines:
                raise AlignmentError(
                    f"factor file: expected {text.n_file_lines} lines, one for each line of "
                    f"{text.src_path}, got {n_lines}.",
                    path,
                )
            values = read_user_column(path, corpus, text.src_path, text.rows)
            chunks = _with_user_column(chunks, name, values)
    return chunks


def _with_user_column(chunks: Sequence[WordColumns], name: str, values: CodedColumn) -> list[WordColumns]:
    borders = np.cumsum([0, *(chunk.n_words for chunk in chunks)]).tolist()
    parts = [values[start:stop] for start, stop in pairwise(borders)]
    return [chunk.with_user_column(name, part) for chunk, part in zip(chunks, parts, strict=True)]


def source_encoder(
    tokenizer: PreTrainedTokenizerFast, columns: Sequence[WordColumns], factors: Sequence[str], min_count: int
) -> SourceEncoder:
    """Tokenizer plus the vocabulary of each factor, open ones built from the training columns."""
    return SourceEncoder(tokenizer, build_vocabularies(columns, factors, min_count) if factors else {})


def encode_pairs(
    text: ParallelText,
    encoder: SourceEncoder,
    columns: Sequence[WordColumns] | None,
    max_pieces: int | None,
    target: SourceEncoder | None = None,
    target_columns: Sequence[WordColumns] | None = None,
) -> EncodedPairs:
    """Encode both sides.

    Args:
        text: Parallel lines.
        encoder: For the source.
        columns: Annotation in chunks of `CHUNK_LINES`; None where there are no factors.
        max_pieces: Leave out pairs that are longer on a side; None keeps all.
        target: For the target; None: the source's tokenizer on target lines as they are.
        target_columns: Annotation of the target, where the target's encoder has factors.

    Raises:
        DataError: No pair is left.
    """
    sources, targets = [], []
    target = target or SourceEncoder(encoder.target_tokenizer)
    for place, start in enumerate(range(0, len(text), CHUNK_LINES)):
        stop = start + CHUNK_LINES
        sources.append(encoder.encode(text.src[start:stop], columns[place] if columns else None))
        targets.append(target.encode(text.tgt[start:stop], target_columns[place] if target_columns else None))
    src, tgt = EncodedText.join(sources), EncodedText.join(targets)
    filled = np.array(
        [bool(one.strip() and other.strip()) for one, other in zip(text.src, text.tgt, strict=True)]
    )
    limit = max_pieces or np.iinfo(np.int64).max
    fitting = np.maximum(src.lengths, tgt.lengths) <= limit
    _check_room_for_tags(src, filled & (np.maximum(src.text_lengths, tgt.lengths) <= limit), limit)
    kept = np.flatnonzero(filled & fitting)
    if not len(kept):
        raise DataError(
            f"expected at least one pair of at most {max_pieces} pieces, got none. Raise data.max_pieces.",
            text.src_path,
        )
    if len(kept) < len(text):
        n_empty, n_long = int((~filled).sum()), int((filled & ~fitting).sum())
        _log.info(
            "%s: left out %d empty pairs and %d of more than %s pieces",
            text.src_path,
            n_empty,
            n_long,
            max_pieces,
        )
        src, tgt = src.select(kept), tgt.select(kept)
    return EncodedPairs(src, tgt)


def _check_room_for_tags(src: EncodedText, fits_bare: NDArray[np.bool_], limit: int) -> None:
    """Hold that a limit leaves most of the pairs that it would leave without tags.

    Raises:
        ConfigError: It does not.
    """
    lengths = src.lengths[fits_bare]
    n_lost = int((lengths > limit).sum())
    if 2 * n_lost > len(lengths):
        raise ConfigError(
            f"data.max_pieces: expected room for the tags of infusion.kind=prepend, got {limit}: with them "
            f"{n_lost} of {len(lengths)} pairs are too long. Raise it, to {lengths.max()} to keep them."
        )
