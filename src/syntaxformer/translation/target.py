"""The target side of training: subwords, and the part of speech of each piece where the decoder predicts it.

For training only: a translation needs neither the target's annotator nor its tags.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict, Field

from syntaxformer.base.errors import ConfigError
from syntaxformer.syntax import WordColumns, build_vocabularies
from syntaxformer.translation.batches import UNKNOWN_TAG
from syntaxformer.translation.corpora import CorpusConfig, ParallelText
from syntaxformer.translation.prepare import annotated_columns
from syntaxformer.translation.source import EncodedText, SourceEncoder

if TYPE_CHECKING:
    from syntaxformer.annotate import Annotator

__all__ = [
    "TAG_FACTOR",
    "TargetPosConfig",
    "check_tags",
    "target_annotator",
    "target_columns",
    "target_encoder",
    "target_tags",
]

AT_ONCE = 2**20
"""Pieces that are looked at together: a large text is on disk."""
TAG_FACTOR = "pos"
"""What the decoder predicts beside each piece."""


class TargetPosConfig(BaseModel):
    """The decoder also predicts the part of speech of each target piece; in training only."""

    model_config = ConfigDict(extra="forbid")

    annotator: str = Field(description="who tags the target side: en, de, spacy:NAME, conllu:PATH, …")
    weight: float = Field(default=0.1, gt=0, description="of its loss beside that of translation")


def target_annotator(name: str, tokenized: bool) -> Annotator:
    """The annotator of the target language.

    Args:
        name: As `load_annotator` takes it.
        tokenized: Lines are words already.

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
    """The annotated target side, chunk by chunk as `annotated_columns` gives the source.

    Raises:
        ConfigError: The annotation holds no tags.
    """
    turned = ParallelText(text.tgt, text.src, text.tgt_path, text.src_path, n_file_lines=text.n_file_lines)
    columns = annotated_columns(turned, annotator, config, split, (), processes)
    at_hand = columns if isinstance(columns, list) else ()  # one on the disk is held when it is encoded
    if bare := sum(part.upos is None for part in at_hand):
        raise ConfigError(
            f"predict_target_pos: expected tags on the target side, {text.tgt_path}, got none in {bare} of "
            f"{len(columns)} parts of it. Choose another predict_target_pos.annotator."
        )
    return columns


def check_tags(text: EncodedText, target: SourceEncoder) -> None:
    """Warn of tags that are none of Universal Dependencies', and hold that a tagged text has others.

    Args:
        text: The target side of training.
        target: What encoded it; it counts such tags.

    Raises:
        ConfigError: No piece has a tag that is known.
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
    """The tags that the decoder chooses from, in the order of their ids."""
    return build_vocabularies([], (TAG_FACTOR,), 1)[TAG_FACTOR].entries


def target_encoder(encoder: SourceEncoder, config: CorpusConfig, tagged: bool) -> SourceEncoder:
    """How target lines become pieces and, where it is asked for, tags: a factor `pos` of the pieces."""
    vocabularies = build_vocabularies([], (TAG_FACTOR,), 1) if tagged else {}
    return SourceEncoder(encoder.target_tokenizer, vocabularies, preparation=config.preparation(config.tgt))
