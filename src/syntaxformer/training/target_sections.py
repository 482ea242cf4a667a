"""Recipe sections beside the encoder's: what the decoder learns besides, and tables that begin pretrained."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

__all__ = ["PretrainedConfig", "PretrainedTable", "TargetPosConfig"]


class TargetPosConfig(BaseModel):
    """The decoder also predicts the part of speech of each target piece; in training only."""

    model_config = ConfigDict(extra="forbid")

    annotator: str = Field(description="who tags the target side: en, de, spacy:NAME, conllu:PATH, …")
    weight: float = Field(default=0.1, gt=0, description="of its loss beside that of translation")


class PretrainedTable(BaseModel):
    """An embedding table that begins as vectors of a Hugging Face encoder, on that encoder's pieces."""

    model_config = ConfigDict(extra="forbid")

    model: Path = Field(description="folder of the encoder and its fast tokenizer")
    vectors: Literal["input", "contextual"] = Field(
        default="input",
        description="its input embeddings, or its last states averaged over each piece's places in the "
        "training text",
    )
    width: int | None = Field(
        default=None,
        ge=1,
        description="columns left by PCA; fewer than the model's word width are mapped up to it by a learned "
        "map; null: the word width (paper 004: 512, 256, 128)",
    )
    max_lines: int = Field(
        default=50_000, ge=1, description="training lines that contextual vectors are averaged over"
    )
    freeze: bool = Field(default=False, description="leave the table as it begins")


class PretrainedConfig(BaseModel):
    """Which tables begin pretrained."""

    model_config = ConfigDict(extra="forbid")

    source: PretrainedTable | None = Field(default=None, description="the encoder's table")
    target: PretrainedTable | None = Field(
        default=None, description="the decoder's table, which is also its output; its width is d_model"
    )
