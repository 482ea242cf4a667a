"""Parallel text: two files, line by line translations of each other, checked before anything else."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from syntaxformer.errors import ConfigError, DataError
from syntaxformer.textfile import count_lines, read_lines

__all__ = ["CorpusConfig", "ParallelText", "find_file", "read_parallel"]

_log = logging.getLogger("syntaxformer.data")


class CorpusConfig(BaseModel):
    """Data section of a recipe. Files are DIR/SPLIT.LANGUAGE, plain or with .gz."""

    model_config = ConfigDict(extra="forbid")

    dir: Path = Field(description="folder of the parallel files")
    src: str = Field(default="en", description="source language, the ending of its files")
    tgt: str = Field(default="de", description="target language")
    train: str = Field(default="train", description="name of the training split")
    dev: str = Field(default="dev", description="name of the development split")
    fraction: float = Field(
        default=1.0, gt=0, le=1, description="share of the training pairs to use; smaller ones are nested"
    )
    max_pieces: int = Field(
        256,
        ge=8,
        description="pairs with more pieces than this on a side are left out of training, and counted",
    )
    tabs: Literal["refuse", "space"] = Field(
        default="refuse",
        description="a tab in a line: an error (a TSV by mistake?), or read as a space and counted",
    )
    tokenized: bool = Field(
        default=False, description="the source is words separated by single spaces, taken as they are"
    )
    lowercase: bool = Field(default=False, description="lower-case both sides (paper 004's preprocessing)")
    factor_files: dict[str, str] = Field(
        default_factory=dict,
        description="your own factors: name → file ending; DIR/SPLIT.ENDING has one value a source word",
    )
    cache: Path | None = Field(
        default=None, description="folder for tagged and encoded text; null: the user's cache folder"
    )


@dataclass(frozen=True)
class ParallelText:
    """Parallel lines in memory.

    Args:
        src: Source lines.
        tgt: Target lines, as many.
        src_path: Where the source came from.
        tgt_path: Where the target came from.
        n_tabs: Lines whose tabs were read as spaces.
        sha256: Hash of both sides.
        rows: The lines of the files that these are, ascending, where they are only some; None for all.
        n_file_lines: Lines of each file.
    """

    src: list[str]
    tgt: list[str]
    src_path: Path
    tgt_path: Path
    n_tabs: int = 0
    sha256: str = field(default="", repr=False)
    rows: Sequence[int] | None = field(default=None, repr=False)
    n_file_lines: int = 0

    def __len__(self) -> int:
        return len(self.src)

    def select(self, rows: Sequence[int]) -> ParallelText:
        """The pairs of some rows, in that order."""
        src, tgt = [self.src[row] for row in rows], [self.tgt[row] for row in rows]
        return replace(self, src=src, tgt=tgt, sha256=hash_lines(src, tgt), rows=rows)


def find_file(folder: Path, split: str, ending: str) -> Path:
    """The file of a split and a language, plain or packed.

    Raises:
        ConfigError: Neither is there; names both.
    """
    plain = folder / f"{split}.{ending}"
    for path in (plain, plain.with_name(plain.name + ".gz")):
        if path.is_file():
            return path
    raise ConfigError(
        f"data: expected the file {plain} or {plain}.gz, found neither. Check data.dir and the names of the "
        "split and the languages."
    )


def read_parallel(config: CorpusConfig, split: str) -> ParallelText:
    """Read one split.

    Raises:
        ConfigError: A file is missing.
        DataError: The files have different numbers of lines (both named), a line has a tab or is not UTF-8
            text, or there is no pair with words on both sides.
    """
    src_path = find_file(config.dir, split, config.src)
    tgt_path = find_file(config.dir, split, config.tgt)
    src: list[str] = []
    tgt: list[str] = []
    n_tabs = 0
    for number, (src_line, tgt_line) in enumerate(zip_longest(read_lines(src_path), read_lines(tgt_path)), 1):
        if src_line is None or tgt_line is None:
            n_src, n_tgt = count_lines(src_path), count_lines(tgt_path)
            raise DataError(
                f"expected as many lines as {tgt_path}, got {n_src} and {n_tgt}. "
                "Line n of one file must translate line n of the other.",
                src_path,
            )
        for path, line in ((src_path, src_line), (tgt_path, tgt_line)):
            n_tabs += _check_tab(line, path, number, config.tabs)
        src.append(_clean(src_line, config))
        tgt.append(_clean(tgt_line, config))
    if not any(one.strip() and other.strip() for one, other in zip(src, tgt, strict=True)):
        raise DataError(
            f"expected at least one pair of lines with text, got {len(src)} lines without.", src_path
        )
    if n_tabs:
        _log.info("%s, %s: %d lines with tabs, read as spaces", src_path, tgt_path, n_tabs)
    return ParallelText(src, tgt, src_path, tgt_path, n_tabs, hash_lines(src, tgt), n_file_lines=len(src))


def hash_lines(*sides: Sequence[str]) -> str:
    """sha256 over lines; tells apart where one line ends and the next begins."""
    digest = hashlib.sha256()
    for side in sides:
        digest.update(f"{len(side)}\n".encode())
        for chunk in _chunks(side, 10_000):
            digest.update("\n".join(chunk).encode())
    return digest.hexdigest()


def _chunks(lines: Sequence[str], size: int) -> Iterator[Sequence[str]]:
    for start in range(0, len(lines), size):
        yield lines[start : start + size]


def _check_tab(line: str, path: Path, number: int, tabs: str) -> bool:
    if "\t" not in line:
        return False
    if tabs == "refuse":
        raise DataError(
            f"expected one sentence, got a tab at character {line.index(chr(9)) + 1}: is it a table? "
            "Set data.tabs=space to read tabs as spaces.",
            path,
            number,
        )
    return True


def _clean(line: str, config: CorpusConfig) -> str:
    line = " ".join(line.split()) if config.tokenized else line.replace("\t", " ")
    return line.lower() if config.lowercase else line
