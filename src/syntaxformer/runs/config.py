"""Settings of every run: the base of a translator's recipe and of a fine-tuning config."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

import yaml
from pydantic import BaseModel, ConfigDict, Field

from syntaxformer.base.config import MAX_SEED

FRACTION_SEED = 20190919
"""Seed of the order in which a share of the data is taken, so that smaller shares lie in larger ones."""


class Section(BaseModel):
    """A section of settings, in which unknown keys, NaN and infinity are errors."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


class RunTraining(Section):
    """Settings of training that all networks share."""

    precision: Literal["auto", "fp32", "bf16"] = Field("auto", description="auto: bf16 if that is faster")
    activation_checkpointing: bool = Field(
        False, description="recompute states inside layers: half the memory, slower by a quarter"
    )
    sharded: bool = Field(
        False, description="each of several processes keeps a part of weights and optimizer (FSDP)"
    )
    compile: bool = Field(
        False,
        description="train through torch.compile: needs a C++ compiler, and a minute before the first update",
    )
    cuda_graphs: bool = Field(
        False, description="on a GPU, record the step of each shape of batch and replay it: faster in bf16"
    )
    workers: int = Field(
        0, ge=0, le=1024, description="processes that prepare batches beside training; pays on a GPU"
    )
    log_every: int = Field(50, ge=1, description="updates between log lines")
    patience: int | None = Field(
        None, ge=1, description="stop after so many evaluations without a gain by best_by"
    )


class RunConfig(Section):
    """A run, stored in its folder as `recipe.yaml`. Each product adds sections such as `data`."""

    if TYPE_CHECKING:
        data: Any
        training: Any

    output: Path = Field(description="folder of the finished model, its checkpoints and logs")
    seed: int = Field(1, ge=0, le=MAX_SEED, description="seed of initialisation, dropout, data order")

    def completed(self) -> Self:
        """The settings with those that other settings decide."""
        return self

    def to_yaml(self) -> str:
        """The settings with all defaults, as they are stored with checkpoints and the model."""
        content: dict[str, Any] = self.model_dump(mode="json")
        return yaml.safe_dump(content, sort_keys=False, allow_unicode=True)
