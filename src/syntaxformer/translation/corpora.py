"""Training and development text of a recipe: several splits in one, the sentences of test sets kept out.

Splits come from files or a Hugging Face dataset. One split of two files is read by `parallel`, one of a
dataset by `hub`.
"""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

from syntaxformer.base.errors import ConfigError, DataError
from syntaxformer.base.files import hash_file, read_json
from syntaxformer.translation.parallel import (
    CorpusConfig,
    ParallelText,
    hash_lines,
    parallel_files,
    parallel_lines,
    read_parallel,
)
from syntaxformer.translation.source import detokenize, unescape
from syntaxformer.translation.stored import StoredLines, stored_folder

__all__ = [
    "keeps_on_disk",
    "read_dataset",
    "read_dev",
    "read_split",
    "read_train",
]


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


_log = logging.getLogger("syntaxformer.data")

LOST = "\ufffd"
LARGE_BYTES = 200 * 2**20
_TEXT_SETTINGS = {
    "src", "tgt", "src_language", "tgt_language", "train", "exclude", "detokenize", "drop_unreadable", "tabs",
    "tokenized", "unescape", "moses", "lowercase",
}  # fmt: skip
"""What of the data section decides the training text."""


def read_split(config: CorpusConfig, split: str) -> ParallelText:
    """One split, from wherever the recipe takes its text.

    Raises:
        ConfigError: It is not there.
        DataError: It cannot be used.
    """
    return read_parallel(config, split) if config.dataset is None else read_dataset(config, split)


def read_dev(config: CorpusConfig) -> ParallelText:
    """The development split; errors as in `read_split`."""
    return read_split(config, config.dev)


def read_train(config: CorpusConfig) -> ParallelText:
    """All training splits, detokenised where the recipe says so, without what the recipe excludes.

    Raises:
        ConfigError: A split is not there.
        DataError: A split cannot be used, or nothing is left.
    """
    if keeps_on_disk(config):
        return _stored_train(config)
    parts = [_read_part(config, split) for split in config.train_splits]
    return _without_excluded(config, parts[0] if len(parts) == 1 else _joined(parts))


def keeps_on_disk(config: CorpusConfig) -> bool:
    """Whether the training text is too large for memory: as the recipe says, else by the size of its files.

    Raises:
        ConfigError: A split is not there.
    """
    if config.on_disk is not None or config.dir is None:
        return bool(config.on_disk)
    files = [path for split in config.train_splits for path in parallel_files(config, split)]
    return sum(path.stat().st_size for path in files) > LARGE_BYTES


def _stored_train(config: CorpusConfig) -> ParallelText:
    """The training text in the cache folder, put there if the files or the settings are new."""
    splits = [*config.train_splits, *config.exclude]
    files = [path for split in splits for path in parallel_files(config, split)]
    folder = stored_folder(
        config.cache,
        "text",
        {
            "files": [hash_file(path) for path in files],
            "settings": config.model_dump(mode="json", include=_TEXT_SETTINGS),
            "names": [path.name for path in files],
        },
        lambda folder: _store_train(config, folder),
    )
    about = read_json(folder / "about.json")
    src, tgt, rows = (StoredLines(folder, column) for column in ("src", "tgt", "row"))
    return ParallelText(
        src, tgt, *files[:2], **about, rows=rows if len(src) < about["n_file_lines"] else None
    )


def _store_train(config: CorpusConfig, folder: Path) -> None:
    tabs: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    n_kept = StoredLines.write(folder, _kept_pairs(config, tabs, counts))
    n_lines = counts.pop("lines")
    path = parallel_files(config, config.train_splits[0])[0]
    if not n_kept:
        raise DataError("expected pairs that data.exclude leaves, got none.", path)
    src, tgt = StoredLines(folder, "src"), StoredLines(folder, "tgt")
    if not any(one.strip() and other.strip() for one, other in zip(src, tgt, strict=True)):
        raise DataError(f"expected at least one pair of lines with text, got {n_lines} lines without.", path)
    if n_kept < n_lines:
        _say_left_out(path, n_lines - n_kept, n_lines, counts)
    about = {"n_tabs": tabs.total(), "sha256": hash_lines(src, tgt), "n_file_lines": n_lines}
    (folder / "about.json").write_text(json.dumps(about), "utf-8")


def _kept_pairs(
    config: CorpusConfig, tabs: Counter[str], counts: Counter[str]
) -> Iterator[tuple[str, str, int]]:
    """The pairs that stay and their numbers; the others are counted by reason, and all under "lines"."""
    reasons, number = _reasons(config), 0
    for split in config.train_splits:
        raw = split in config.detokenize
        for src, tgt in parallel_lines(config, split, tabs):
            if raw:
                src, tgt = _detokenized(src, config, config.src), _detokenized(tgt, config, config.tgt)
            reason = next((name for name, holds in reasons.items() if holds(src, tgt)), None)
            if reason is None:
                yield src, tgt, number
            else:
                counts[reason] += 1
            number += 1
    counts["lines"] = number


def _read_part(config: CorpusConfig, split: str) -> ParallelText:
    text = read_split(config, split)
    if split not in config.detokenize:
        return text
    src = [_detokenized(line, config, config.src) for line in text.src]
    tgt = [_detokenized(line, config, config.tgt) for line in text.tgt]
    return replace(text, src=src, tgt=tgt, sha256=hash_lines(src, tgt))


def _detokenized(line: str, config: CorpusConfig, ending: str) -> str:
    return detokenize(unescape(line), config.preparation(ending).language)


def _joined(parts: Sequence[ParallelText]) -> ParallelText:
    """Splits as one text; it is called by the place of its first."""
    src = list(chain.from_iterable(part.src for part in parts))
    tgt = list(chain.from_iterable(part.tgt for part in parts))
    n_tabs = sum(part.n_tabs for part in parts)
    return replace(
        parts[0], src=src, tgt=tgt, n_tabs=n_tabs, sha256=hash_lines(src, tgt), n_file_lines=len(src)
    )


def _without_excluded(config: CorpusConfig, text: ParallelText) -> ParallelText:
    """Leave out and count pairs with a sentence of an excluded split, and those with lost characters."""
    reasons = _reasons(config)
    kept, counts = [], Counter(dict.fromkeys(reasons, 0))
    for row, (src, tgt) in enumerate(zip(text.src, text.tgt, strict=True)):
        reason = next((name for name, holds in reasons.items() if holds(src, tgt)), None)
        if reason is None:
            kept.append(row)
        else:
            counts[reason] += 1
    if not kept:
        raise DataError("expected pairs that data.exclude leaves, got none.", text.src_path)
    if len(kept) == len(text):
        return text
    _say_left_out(text.src_path, len(text) - len(kept), len(text), counts)
    return text.select(kept)


def _say_left_out(path: Path, n_out: int, n_all: int, counts: Counter[str]) -> None:
    shown = ", ".join(f"{count} {name}" for name, count in counts.items() if count)
    _log.info("%s: left out %d of %d pairs: %s", path, n_out, n_all, shown)


def _reasons(config: CorpusConfig) -> dict[str, Callable[[str, str], bool]]:
    """Why a pair may be left out: name → what holds of such a pair."""
    reasons: dict[str, Callable[[str, str], bool]] = {}
    for split in config.exclude:
        held_out = read_split(config, split)
        reasons[f"of {split}"] = _contains({*held_out.src} - {""}, {*held_out.tgt} - {""})
    if config.drop_unreadable:
        reasons["with U+FFFD"] = lambda src, tgt: LOST in src or LOST in tgt
    return reasons


def _contains(src_lines: set[str], tgt_lines: set[str]) -> Callable[[str, str], bool]:
    return lambda src, tgt: src in src_lines or tgt in tgt_lines
