"""Settings that every run has, whatever it trains: the base of a translator's recipe and of fine-tuning's."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field

from syntaxformer.base.config import MAX_SEED

FRACTION_SEED = 20190919
"""Of the order in which a share of the data is taken: smaller shares lie within larger ones, in every run."""


class Section(BaseModel):
    """Unknown keys are errors."""

    model_config = ConfigDict(extra="forbid")


class RunTraining(Section):
    """How a network is trained, whatever it is."""

    precision: Literal["auto", "fp32", "bf16"] = Field(
        default="auto", description="auto: bf16 where that is faster"
    )
    activation_checkpointing: bool = Field(
        default=False, description="make states inside layers anew: half the memory, slower by a quarter"
    )
    sharded: bool = Field(
        default=False, description="several processes: each keeps a part of weights and optimizer (FSDP)"
    )
    log_every: int = Field(default=50, ge=1, description="updates between log lines")


class RunConfig(Section):
    """A run; its folder holds it as `recipe.yaml`. Each product adds sections, `data` and `training` too."""

    if TYPE_CHECKING:
        data: Any
        training: Any

    output: Path = Field(description="folder of the finished model, its checkpoints and logs")
    seed: int = Field(default=1, ge=0, le=MAX_SEED, description="of initialisation, dropout and data order")

    def to_yaml(self) -> str:
        """The settings with all defaults, as written beside checkpoints and the model."""
        content: dict[str, Any] = self.model_dump(mode="json")
        return yaml.safe_dump(content, sort_keys=False, allow_unicode=True)
