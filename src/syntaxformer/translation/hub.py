"""Parallel text out of a Hugging Face dataset: a name on the hub, or a folder of Parquet, JSON or CSV."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from syntaxformer.base.errors import ConfigError, DataError
from syntaxformer.translation.parallel import CorpusConfig, ParallelText, hash_lines

__all__ = ["read_dataset"]


def read_dataset(config: CorpusConfig, split: str) -> ParallelText:
    """Read one split of the recipe's dataset. Line ends inside a text become spaces: a row is a line.

    Raises:
        ConfigError: There is no such dataset, configuration, split or column; names those there are.
        DataError: A row holds no text.
    """
    dataset = _load(config, split)
    sides = {}
    for ending in (config.src, config.tgt):
        clean = config.preparation(ending).clean
        texts = _column(dataset, config, ending)
        sides[ending] = [
            clean(" ".join(_checked(text, config, split, row).splitlines()))
            for row, text in enumerate(texts, 1)
        ]
    src, tgt = sides[config.src], sides[config.tgt]
    name = Path(f"{config.dataset}/{split}")
    if not src:
        raise DataError("expected at least one pair, got none.", name)
    if src == tgt:
        raise DataError("expected another text as target, got the source's. Check data.columns.", name)
    return ParallelText(src, tgt, name, name, 0, hash_lines(src, tgt), n_file_lines=len(src))


def _load(config: CorpusConfig, split: str) -> Any:
    from datasets import load_dataset
    from datasets.exceptions import DatasetsError
    from datasets.utils.logging import disable_progress_bar

    disable_progress_bar()
    try:
        return load_dataset(config.dataset, config.dataset_config, split=split)
    except (DatasetsError, OSError, ValueError, KeyError) as error:
        reason = " ".join(str(error).split())[:200]
        raise ConfigError(
            f"data.dataset: expected the split {split} of {config.dataset}, got: {reason}. "
            "Check data.dataset, data.dataset_config and the names of the splits; offline, give a folder."
        ) from error


def _column(dataset: Any, config: CorpusConfig, language: str) -> Any:
    """The texts of one language: a column, or a field of a column of mappings."""
    names = dataset.column_names
    default = f"translation.{language}" if "translation" in names else language
    wanted = (config.columns or {}).get(language, default)
    column, _, entry = wanted.partition(".")
    if wanted in names:
        return dataset[wanted]
    feature = dataset.features.get(column)
    fields = list(getattr(feature, "languages", None) or (feature if isinstance(feature, dict) else ()))
    if column in names and entry in fields:
        return (row[entry] for row in dataset[column])
    known = [*names, *(f"{column}.{one}" for one in fields)]
    raise ConfigError(
        f"data.columns: expected a column of {config.dataset} for {language}, got {wanted}. "
        f"Known: {', '.join(known)}."
    )


def _checked(text: Any, config: CorpusConfig, split: str, row: int) -> str:
    if not isinstance(text, str):
        raise DataError(f"expected text, got {type(text).__name__}.", f"{config.dataset}/{split}", row)
    return text
