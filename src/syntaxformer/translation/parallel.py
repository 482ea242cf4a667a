"""Parallel text: two files, line by line translations of each other, checked before anything else."""

from __future__ import annotations

import hashlib
import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from syntaxformer.base.errors import ConfigError, DataError
from syntaxformer.base.files import count_lines, read_lines
from syntaxformer.base.languages import given_language, language_of_side
from syntaxformer.translation.source import TextPreparation
from syntaxformer.translation.stored import StoredLines

__all__ = ["CorpusConfig", "ParallelText", "find_file", "parallel_files", "parallel_lines", "read_parallel"]

_log = logging.getLogger("syntaxformer.data")


class CorpusConfig(BaseModel):
    """Data section of a recipe: files DIR/SPLIT.ENDING, plain or with .gz, or a Hugging Face dataset."""

    model_config = ConfigDict(extra="forbid")

    dir: Path | None = Field(default=None, description="folder of the parallel files")
    dataset: str | None = Field(
        default=None, description="instead of dir: a Hugging Face dataset, its name on the hub or a folder"
    )
    dataset_config: str | None = Field(default=None, description="configuration of the dataset: de-en")
    columns: dict[str, str] | None = Field(
        default=None,
        description="language → column of the dataset, translation.en for a field of a column; "
        "null: translation.LANGUAGE, or LANGUAGE",
    )
    src: str = Field(default="en", description="ending of the source's files, most often its language")
    tgt: str = Field(default="de", description="ending of the target's files")
    src_language: Annotated[str, AfterValidator(given_language)] | None = Field(
        default=None, description="code of the source's language; null: told by data.src"
    )
    tgt_language: Annotated[str, AfterValidator(given_language)] | None = Field(
        default=None, description="code of the target's language; null: told by data.tgt"
    )
    train: str | list[str] = Field(
        default="train", description="name of the training split, or a list of them, one after the other"
    )
    dev: str = Field(default="dev", description="name of the development split")
    exclude: list[str] = Field(
        default_factory=list,
        description="splits whose sentences may not stand in training, on either side; pairs that do are "
        "left out, and counted",
    )
    detokenize: list[str] = Field(
        default_factory=list,
        description="training splits that were split by Moses' tokenizer: entities and spaces are undone",
    )
    drop_unreadable: bool = Field(
        default=False, description="leave out training pairs with U+FFFD, the sign of lost characters"
    )
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
        default=False, description="both sides are words separated by single spaces, taken as they are"
    )
    unescape: bool = Field(
        default=False, description="read &apos; &quot; &amp; … as the characters that they stand for"
    )
    moses: bool = Field(
        default=False,
        description="Moses' tokenizer splits lines before subwords and joins output; the annotator sees "
        "the raw text",
    )
    lowercase: bool = Field(
        default=False,
        description="subwords in lower case; the annotator and the factor `case` see the original",
    )
    factor_files: dict[str, str] = Field(
        default_factory=dict,
        description="your own factors: name → file ending; DIR/SPLIT.ENDING has one value a source word",
    )
    on_disk: bool | None = Field(
        default=None,
        description="training text and encoded pairs are kept in the cache folder and read from the disk, "
        "not held in memory; null: where the training files are larger than 200 MB",
    )
    cache: Path | None = Field(
        default=None, description="folder for tagged and encoded text; null: the user's cache folder"
    )

    @model_validator(mode="after")
    def _consistent(self) -> CorpusConfig:
        problems = []
        if (self.dir is None) == (self.dataset is None):
            both = "neither" if self.dir is None else "both"
            problems.append(f"expected one of dir and dataset, got {both}.")
        if self.src == self.tgt:
            problems.append(
                f"tgt: expected another ending than src (src.en, tgt.en), got {self.tgt} for both."
            )
        for key, ending in (("src", self.src), ("tgt", self.tgt)):
            if (self.moses or self.detokenize) and language_of_side(self, ending).code is None:
                problems.append(f"{key}_language: expected a code, for Moses' rules of it, got none.")
        if self.moses and self.tokenized:
            problems.append("moses: expected raw text, got tokenized=true. Set one of them to false.")
        if self.factor_files and (self.dataset or not isinstance(self.train, str)):
            problems.append("factor_files: expected data.dir and one training split beside them, got others.")
        if self.on_disk and self.dir is None:
            problems.append("on_disk: expected data.dir, got a dataset, whose text is read into memory.")
        if extra := set(self.detokenize) - set(self.train_splits):
            problems.append(f"detokenize: expected training splits, got {', '.join(sorted(extra))}.")
        if problems:
            raise ValueError(" ".join(problems))
        return self

    @property
    def train_splits(self) -> list[str]:
        """The training splits as a list."""
        return [self.train] if isinstance(self.train, str) else list(self.train)

    def preparation(self, ending: str) -> TextPreparation:
        """What happens to the lines of one side."""
        language = language_of_side(self, ending).code or ending
        return TextPreparation(language, self.tokenized, self.unescape, self.moses, self.lowercase)


@dataclass(frozen=True)
class ParallelText:
    """Parallel lines: lists, or, where they are many, `StoredLines`.

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

    src: Sequence[str]
    tgt: Sequence[str]
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
        src, tgt = _taken(self.src, rows), _taken(self.tgt, rows)
        of_file = rows if self.rows is None else [self.rows[row] for row in rows]
        return replace(self, src=src, tgt=tgt, sha256=hash_lines(src, tgt), rows=of_file)


def _taken(lines: Sequence[str], rows: Sequence[int]) -> Sequence[str]:
    return lines.take(rows) if isinstance(lines, StoredLines) else [lines[row] for row in rows]


def find_file(folder: Path, split: str, ending: str) -> Path:
    """The file of a split with an ending, plain or packed.

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
    src_path, tgt_path = parallel_files(config, split)
    tabs: Counter[str] = Counter()
    src: list[str] = []
    tgt: list[str] = []
    for src_line, tgt_line in parallel_lines(config, split, tabs):
        src.append(src_line)
        tgt.append(tgt_line)
    if not any(one.strip() and other.strip() for one, other in zip(src, tgt, strict=True)):
        raise DataError(
            f"expected at least one pair of lines with text, got {len(src)} lines without.", src_path
        )
    sha256, n_tabs = hash_lines(src, tgt), tabs.total()
    return ParallelText(src, tgt, src_path, tgt_path, n_tabs, sha256, n_file_lines=len(src))


def parallel_files(config: CorpusConfig, split: str) -> tuple[Path, Path]:
    """Source and target file of a split.

    Raises:
        ConfigError: One is missing, or the recipe names no folder.
    """
    if config.dir is None:
        raise ConfigError("data.dir: expected the folder of the parallel files, got none.")
    return find_file(config.dir, split, config.src), find_file(config.dir, split, config.tgt)


def parallel_lines(config: CorpusConfig, split: str, tabs: Counter[str]) -> Iterator[tuple[str, str]]:
    """The pairs of a split, clean, one at a time; tabs are counted. Errors as in `read_parallel`."""
    src_path, tgt_path = parallel_files(config, split)
    clean_src, clean_tgt = config.preparation(config.src).clean, config.preparation(config.tgt).clean
    n_tabs = n_alike = n_other = 0
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
        n_alike, n_other = n_alike + bool(src_line.strip()), n_other + (src_line != tgt_line)
        yield clean_src(src_line), clean_tgt(tgt_line)
    if n_alike and not n_other:
        raise DataError(f"expected another text than {tgt_path}, got the same. Check data.tgt.", src_path)
    tabs[split] = n_tabs
    if n_tabs:
        _log.info("%s, %s: %d lines with tabs, read as spaces", src_path, tgt_path, n_tabs)


def hash_lines(*sides: Sequence[str]) -> str:
    """sha256 over lines; tells apart where one line ends and the next begins."""
    digest = hashlib.sha256()
    for side in sides:
        digest.update(f"{len(side)}\n".encode())
        for start in range(0, len(side), 10_000):
            digest.update("\n".join(side[start : start + 10_000]).encode())
    return digest.hexdigest()


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
