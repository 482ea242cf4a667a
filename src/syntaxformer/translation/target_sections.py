"""Recipe sections beside the encoder's: what the decoder learns besides, and tables that begin pretrained."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

__all__ = ["PretrainedConfig", "PretrainedTable", "TargetPosConfig", "pretrained_problems"]


class TargetPosConfig(BaseModel):
    """The decoder also predicts the part of speech of each target piece; in training only."""

    model_config = ConfigDict(extra="forbid")

    annotator: str = Field(description="who tags the target side: en, de, spacy:NAME, conllu:PATH, …")
    weight: float = Field(default=0.1, gt=0, description="of its loss beside that of translation")


class PretrainedTable(BaseModel):
    """An embedding table that begins as vectors of a Hugging Face encoder, on that encoder's pieces."""

    model_config = ConfigDict(extra="forbid")

    model: str = Field(description="folder or hub name of the encoder, which has a fast tokenizer")
    vectors: Literal["input", "contextual"] = Field(
        default="input",
        description="its input embeddings, or its last states averaged over each piece's places in the "
        "training text",
    )
    width: int | None = Field(
        default=None,
        ge=1,
        description="columns left by PCA; fewer than the model's word width are mapped up to it by a learned "
        "map; null: the word width (paper 004: 512, 256, 128). Of the source only",
    )
    max_lines: int = Field(
        default=50_000,
        ge=1,
        description="training lines, drawn once for all, that contextual vectors are averaged over",
    )
    freeze: bool = Field(default=False, description="leave the table as it begins")


class PretrainedConfig(BaseModel):
    """Which tables begin pretrained."""

    model_config = ConfigDict(extra="forbid")

    source: PretrainedTable | None = Field(default=None, description="the encoder's table")
    target: PretrainedTable | None = Field(
        default=None, description="the decoder's table, which is also its output; its width is d_model"
    )


def pretrained_problems(
    config: PretrainedConfig | None, word_width: int, d_model: int, tokenizer: str | None
) -> list[str]:
    """What does not fit in a recipe.

    Args:
        config: The section.
        word_width: Columns of the source's words.
        d_model: Columns of the target's.
        tokenizer: `subwords.tokenizer`.
    """
    if config is None:
        return []
    problems = []
    if config.source is None and config.target is None:
        problems.append("pretrained_embeddings: expected source, target or both, got neither.")
    if tokenizer is not None:
        problems.append(
            "subwords.tokenizer: expected none beside pretrained_embeddings, whose encoder has a tokenizer "
            f"of its own, got {tokenizer}. Leave it out."
        )
    if config.source is not None and (config.source.width or 0) > word_width:
        problems.append(
            f"pretrained_embeddings.source.width: expected at most the word width, {word_width}, "
            f"got {config.source.width}."
        )
    if config.target is not None and config.target.width not in (None, d_model):
        problems.append(
            f"pretrained_embeddings.target.width: expected d_model = {d_model}, as the decoder's table is "
            f"also its output, got {config.target.width}. Leave it out."
        )
    return problems
