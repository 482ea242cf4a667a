"""Inputs of a fine-tuning run: texts read, parsed and measured, and the collator that makes batches."""

from __future__ import annotations

import hashlib
import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from syntaxformer.encoders.annotated_examples import (
    annotate_examples,
    annotator_name,
    load_for,
    needed_columns,
)
from syntaxformer.encoders.classifier_folder import ClassifierInfo
from syntaxformer.encoders.collator import SyntaxCollator, SyntaxExample
from syntaxformer.encoders.finetune_config import FinetuneConfig
from syntaxformer.encoders.finetune_data import FinetuneData, read_finetune_data
from syntaxformer.encoders.pretrained import load_tokenizer, writes_labels
from syntaxformer.encoders.text_labels import TextLabels, label_words
from syntaxformer.encoders.text_sets import TextSet, hash_examples

if TYPE_CHECKING:
    from syntaxformer.annotate import Annotator

__all__ = ["FinetuneInputs", "prepare_inputs"]

_log = logging.getLogger("syntaxformer.finetune")


@dataclass(frozen=True)
class FinetuneInputs:
    """Everything that the trials of a run share.

    Args:
        data: Task and texts.
        train: Training examples with their syntax.
        dev: Development examples.
        lengths: Pieces of each training example, at most `training.max_length`.
        collator: Examples to batches.
        info: What is stored of them beside the model.
        text_labels: Scores labels as texts, for a model that writes them.
        n_truncated: Split → examples that are cut.
        annotators: Name and version of who annotated each split.
    """

    data: FinetuneData
    train: list[SyntaxExample]
    dev: list[SyntaxExample]
    lengths: list[int]
    collator: SyntaxCollator
    info: ClassifierInfo
    text_labels: TextLabels | None
    n_truncated: dict[str, int]
    annotators: tuple[str, ...]

    @property
    def sha256(self) -> dict[str, str]:
        """Hashes of texts, trees and labels, and of who annotates."""
        return {
            "train": hash_examples(self.data.train.examples),
            "dev": hash_examples(self.data.dev.examples),
            "annotation": hashlib.sha256("\0".join(self.annotators).encode()).hexdigest(),
        }


def prepare_inputs(config: FinetuneConfig) -> FinetuneInputs:
    """Read, parse and measure the data; writes nothing but the annotation cache.

    Raises:
        ConfigError: A file is missing, the annotator lacks what the infusion needs, or the checkpoint's
            tokenizer cannot be used.
        DataError: The data cannot be used.
    """
    from syntaxformer.annotate import annotator_for

    tokenizer = load_tokenizer(config.model, config.training.max_length)
    data = read_finetune_data(config)
    needed = needed_columns(config.infusion)
    trees = "constituency" in needed and config.annotation.gold_trees
    use_trees = trees and data.train.has_trees and data.dev.has_trees
    annotator = load_for(annotator_name(needed, config.annotation.annotator), needed)
    train, dev = (_annotate(texts, annotator, use_trees, config) for texts in (data.train, data.dev))
    chosen = [annotator_for(annotator, texts.name) for texts in (data.train, data.dev)] if annotator else []
    labels = data.task.labels
    words = label_words(labels) if writes_labels(config.model, config.head, labels) else None
    if words is not None:
        train = [replace(one, label=words[one.label]) for one in train]
    text_labels = None if words is None else TextLabels(tokenizer, words)
    scale = _score_scale(data)
    if scale is not None:
        train = [replace(one, label=(float(one.label or 0) - scale[0]) / scale[1]) for one in train]
    collator = SyntaxCollator(tokenizer, config.infusion, max_length=config.training.max_length)
    lengths = {texts.name: _piece_lengths(tokenizer, texts) for texts in (data.train, data.dev)}
    n_truncated = {
        texts.name: _report_long(texts, lengths[texts.name], config.training.max_length)
        for texts in (data.train, data.dev)
    }
    info = _info(config, data, needed, annotator, use_trees).model_copy(
        update={"words": words, "score_scale": scale}
    )
    cut = [min(length, config.training.max_length) for length in lengths[data.train.name]]
    annotators = tuple(f"{one.name} {one.version}" for one in chosen)
    return FinetuneInputs(data, train, dev, cut, collator, info, text_labels, n_truncated, annotators)


def _score_scale(data: FinetuneData) -> tuple[float, float] | None:
    """Mean and standard deviation of scores of any range: no head gets to 50 ± 30 by itself."""
    if data.task.labels is not None or data.task.score_range is not None:
        return None
    scores = np.array([one.label for one in data.train.examples], np.float64)
    return float(scores.mean()), float(scores.std()) or 1.0


def _annotate(
    texts: TextSet, annotator: Annotator | None, use_trees: bool, config: FinetuneConfig
) -> list[SyntaxExample]:
    """Parse a split, by its own file where each split has one (`conllu:parsed/{split}.conllu`)."""
    from syntaxformer.annotate import annotator_for

    chosen = annotator and annotator_for(annotator, texts.name)
    return annotate_examples(
        texts.examples, chosen, use_trees, config.data.cache, config.annotation.processes
    )


def _report_long(texts: TextSet, lengths: list[int], max_length: int) -> int:
    """Count, and say, what is cut."""
    n_long = sum(length > max_length for length in lengths)
    if n_long:
        _log.warning(
            "%s: %d of %d examples are longer than %d pieces and are cut to that (longest: %d). Raise "
            "training.max_length to keep more of them.",
            *(texts.source, n_long, len(texts), max_length, max(lengths)),
        )
    return n_long


def _piece_lengths(tokenizer: Any, texts: TextSet) -> list[int]:
    """Pieces of each example, uncut."""
    firsts = [one.texts[0] for one in texts.examples]
    seconds = [one.texts[1] for one in texts.examples] if len(texts.examples[0].texts) > 1 else None
    encoded = tokenizer(firsts, seconds, add_special_tokens=True, split_special_tokens=True, verbose=False)
    return [len(pieces) for pieces in encoded["input_ids"]]


def _info(
    config: FinetuneConfig,
    data: FinetuneData,
    needed: frozenset[str],
    annotator: Annotator | None,
    use_trees: bool,
) -> ClassifierInfo:
    return ClassifierInfo(
        task=data.task.name,
        labels=data.task.labels,
        metrics=data.task.metrics,
        n_texts=len(data.task.texts),
        score_range=data.task.score_range,
        annotator=None if annotator is None else annotator.name,
        annotator_version=None if annotator is None else annotator.version,
        needs=tuple(sorted(needed)),
        gold_trees=use_trees,
        text_column=data.columns.text,
        text_pair_column=data.columns.pair,
        label_column=data.columns.label,
        quotes=data.columns.quotes,
        eval_batch_size=config.training.eval_batch_size,
    )
