"""The settings of a run as its verb reads them: the recipe or the fine-tuning that a cell comes to."""

from __future__ import annotations

import json
from pathlib import Path

from syntaxformer.encoders.finetune_config import FinetuneConfig, load_finetune
from syntaxformer.study.experiments.spec import Cell
from syntaxformer.translation.recipe import Recipe, load_recipe

__all__ = ["finetune_config", "resolve", "translator_recipe"]


def translator_recipe(cell: Cell, output: Path) -> Recipe:
    """What a cell of the verb `train` trains.

    Raises:
        ConfigError: All problems of recipe and settings together.
        DataError: The recipe cannot be read.
    """
    return load_recipe(cell.recipe or "", _settings(cell, output))


def finetune_config(cell: Cell, output: Path) -> FinetuneConfig:
    """What a cell of the verb `finetune` trains.

    Raises:
        ConfigError: All problems of its settings together.
    """
    return load_finetune({}, str(cell.settings.get("infuse", "none")), _settings(cell, output))


def resolve(cell: Cell) -> Recipe | FinetuneConfig:
    """What a cell trains, for a look at its settings.

    Raises:
        ConfigError: All problems of recipe and settings together.
        DataError: The recipe cannot be read.
    """
    make = translator_recipe if cell.verb == "train" else finetune_config
    return make(cell, Path("OUTPUT"))


def _settings(cell: Cell, output: Path) -> list[str]:
    return [*cell.overrides(), f"output={json.dumps(str(output), ensure_ascii=False)}"]
