"""Training and development text of a recipe: several splits in one, the sentences of test sets kept out.

Splits come from files or a Hugging Face dataset. One split of two files is read by `parallel`, one of a
dataset by `hub`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import chain

from syntaxformer.data.hub import read_dataset
from syntaxformer.data.parallel import CorpusConfig, ParallelText, hash_lines, read_parallel
from syntaxformer.data.preparation import detokenize, unescape
from syntaxformer.errors import DataError

__all__ = ["read_dev", "read_split", "read_train"]

_log = logging.getLogger("syntaxformer.data")

LOST = "\ufffd"


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
    parts = [_read_part(config, split) for split in config.train_splits]
    return _without_excluded(config, parts[0] if len(parts) == 1 else _joined(parts))


def _read_part(config: CorpusConfig, split: str) -> ParallelText:
    text = read_split(config, split)
    if split not in config.detokenize:
        return text
    src = [detokenize(unescape(line), config.src) for line in text.src]
    tgt = [detokenize(unescape(line), config.tgt) for line in text.tgt]
    return replace(text, src=src, tgt=tgt, sha256=hash_lines(src, tgt))


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
    reasons: dict[str, Callable[[str, str], bool]] = {}
    for split in config.exclude:
        held_out = read_split(config, split)
        reasons[f"of {split}"] = _contains({*held_out.src} - {""}, {*held_out.tgt} - {""})
    if config.drop_unreadable:
        reasons["with U+FFFD"] = lambda src, tgt: LOST in src or LOST in tgt
    kept, counts = [], dict.fromkeys(reasons, 0)
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
    shown = ", ".join(f"{count} {name}" for name, count in counts.items() if count)
    _log.info("%s: left out %d of %d pairs: %s", text.src_path, len(text) - len(kept), len(text), shown)
    return text.select(kept)


def _contains(src_lines: set[str], tgt_lines: set[str]) -> Callable[[str, str], bool]:
    return lambda src, tgt: src in src_lines or tgt in tgt_lines
