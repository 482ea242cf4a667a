"""The parallel text of a recipe, read and checked: line n of one side translates line n of the other.

A split is two files, or a split of a Hugging Face dataset. The training text joins several splits without the
sentences of the test sets. It is held in memory, or on disk if it is large.
"""

from __future__ import annotations

import csv
import hashlib
import json
import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, zip_longest
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import AfterValidator, BeforeValidator, Field, PlainSerializer, model_validator

from syntaxformer.base.config import corpus_path
from syntaxformer.base.downloads import say_download
from syntaxformer.base.errors import CheckpointError, ConfigError, DataError
from syntaxformer.base.files import count_lines, hash_file, plain_or_packed, read_json, read_lines
from syntaxformer.base.languages import given_language, language_of, language_of_side
from syntaxformer.runs.config import Section
from syntaxformer.translation.augmentation import AugmentConfig
from syntaxformer.translation.protection import KINDS, Protected
from syntaxformer.translation.source import TextPreparation, detokenize, unescape
from syntaxformer.translation.stored import StoredLines, stored_folder
from syntaxformer.translation.terms import TermStyle

_log = logging.getLogger("syntaxformer.data")

LOST = "\ufffd"
LARGE_BYTES = 200 * 2**20
TRAIN, SYNTHETIC, TAG, MADE = "train", "data.synthetic", "<bt>", "backtranslation.json"
"""Of synthetic pairs: their split in their folder and in a recipe, the piece before sources, the report."""
_TEXT_SETTINGS = {
    "src", "tgt", "src_language", "tgt_language", "train", "exclude", "detokenize", "drop_unreadable", "tabs",
    "tokenized", "unescape", "moses", "lowercase", "normalize_punctuation",
    "normalize",
}  # fmt: skip
"""Keys of the data section that decide the training text."""


_SYMBOL = re.compile(r"<(?!/?s>|pad>|unk>|mask>|0x)[^<>\s]{1,40}>")


def _check_tag(tag: str) -> str:
    if not re.fullmatch(f"({_SYMBOL.pattern}){{1,5}}", tag):
        raise ValueError(
            f"expected symbols such as <bt> or <2de>, other than <pad>, <s> and the like, got {tag!r}."
        )
    return tag


class Corpus(Section):
    """A training corpus, for which its name may stand alone."""

    name: str = Field(description="name of its split")
    weight: float = Field(
        1.0,
        gt=0,
        le=1000,
        description="how often its pairs come in each epoch; of 2.5, half of them a third time, in turns",
    )
    tag: Annotated[str, AfterValidator(_check_tag)] | None = Field(
        None,
        description="pieces before its sources: <bt>; <2de> before all that are to be translated into de, "
        "which `translate --to de` puts there",
    )
    src: str | None = Field(None, description="ending of its sources' file; null: data.src")
    tgt: str | None = Field(None, description="ending of its targets' file; null: data.tgt")

    @property
    def symbols(self) -> list[str]:
        """The pieces of its tag."""
        return _SYMBOL.findall(self.tag or "")

    @property
    def language(self) -> str | None:
        """The language of its targets, if its tag has it."""
        return next((symbol[2:-1] for symbol in self.symbols if symbol.startswith("<2")), None)


def _as_corpora(value: Any) -> Any:
    """Names as corpora."""
    items = value if isinstance(value, list | tuple) else [value]
    return [item if isinstance(item, Mapping | Corpus) else {"name": item} for item in items]


def _as_names(corpora: list[Corpus]) -> Any:
    """The reverse of `_as_corpora`, for those of which there is nothing else to say."""
    items = [item.name if item == Corpus(name=item.name) else item.model_dump() for item in corpora]
    return items[0] if len(items) == 1 and isinstance(items[0], str) else items


class CorpusConfig(Section):
    """Data section of a recipe: files DIR/SPLIT.ENDING, plain or packed, or a Hugging Face dataset."""

    dir: Annotated[Path | None, BeforeValidator(corpus_path)] = Field(
        None, description="folder of the parallel files"
    )
    dataset: str | None = Field(
        None, description="a Hugging Face dataset instead of dir: its name on the hub, or a folder"
    )
    dataset_config: str | None = Field(None, description="configuration of the dataset: de-en")
    columns: dict[str, str] | None = Field(
        None,
        description="language → column of the dataset, translation.en for a field of a column; "
        "null: translation.LANGUAGE, or LANGUAGE",
    )
    src: str = Field("en", description="ending of the source's files, most often its language")
    tgt: str = Field("de", description="ending of the target's files")
    src_language: Annotated[str, AfterValidator(given_language)] | None = Field(
        None, description="code of the source language; null: taken from data.src"
    )
    tgt_language: Annotated[str, AfterValidator(given_language)] | None = Field(
        None, description="code of the target language; null: taken from data.tgt"
    )
    train: Annotated[
        list[Corpus], BeforeValidator(_as_corpora), PlainSerializer(_as_names, return_type=Any)
    ] = Field(
        "train",  # type: ignore[assignment]
        validate_default=True,
        description="name of the training split, or a list of names or of corpora, one after the other",
    )
    synthetic: Annotated[Path | None, BeforeValidator(corpus_path)] = Field(
        None,
        description="folder that `syntaxformer backtranslate` wrote: more pairs, untouched by data.fraction",
    )
    synthetic_tag: bool = Field(
        True, description=f"put the piece {TAG} before their sources (Caswell et al. 2019)"
    )
    augment: AugmentConfig | None = Field(
        None, description="alter training pairs, others in each epoch, so that such text is translated, too"
    )
    dev: str = Field("dev", description="name of the development split")
    exclude: list[str] = Field(
        default_factory=list,
        description="splits whose sentences must not occur in training, on either side; such pairs are "
        "left out and counted",
    )
    detokenize: list[str] = Field(
        default_factory=list,
        description="training splits that Moses' tokenizer has split; its entities and spaces are undone",
    )
    drop_unreadable: bool = Field(
        False, description="leave out training pairs with U+FFFD, which stands for lost characters"
    )
    clean: bool = Field(
        False,
        description="leave out the training pairs whose faults the data report counts, and say how many",
    )
    fraction: float = Field(
        1.0, gt=0, le=1, description="share of the training pairs to use; smaller ones are nested"
    )
    max_pieces: int = Field(
        256,
        ge=8,
        le=2**20,
        description="pairs with more pieces than this on a side are left out of training, and counted",
    )
    tabs: Literal["refuse", "space"] = Field(
        "refuse",
        description="a tab is an error (the file may be a table), or a space, if most lines have none",
    )
    tokenized: bool = Field(False, description="both sides are already split into words by single spaces")
    unescape: bool = Field(
        False, description="read &apos; &quot; &amp; … as the characters that they stand for"
    )
    moses: bool = Field(
        False,
        description="Moses' tokenizer splits lines before subwords and its rules join the output; the "
        "annotator sees the raw text",
    )
    normalize_punctuation: bool | None = Field(
        None,
        description="Moses' plain forms of quotes, dashes and spaces on both sides; null: where "
        "model.init_from was trained so (NLLB)",
    )
    normalize: Literal["nfc", "none"] = Field(
        "nfc",
        description="nfc: both sides, and every text to translate, in Unicode's form NFC with plain single "
        "spaces and without invisible characters; a run with model.init_from takes that of its start",
    )
    lowercase: Literal[False, True, "source"] = Field(
        False,
        description="subwords see lower case; the annotator and the factor `case` see the original; source: "
        "on that side alone, and `case` says of each word whether it is lower, capital, upper or mixed",
    )
    all_caps: Literal["lower", "keep"] = Field(
        "keep",
        description="lower: a line to translate that is all in capitals is read in lower case, and its "
        "translation written in capitals; keep: it is read as it stands",
    )
    protect: Protected = Field(
        (),
        description=f"what is not translated, of {', '.join(KINDS)} and your own patterns (RE2): written as "
        "numbered symbols where both sides have it, and put back; annotators see the text; in a run with "
        "model.init_from that of its start",
    )
    factor_files: dict[str, str] = Field(
        default_factory=dict,
        description="your own factors: name → file ending; DIR/SPLIT.ENDING has a value for each source word",
    )
    terms: Path | None = Field(
        None,
        description="list of terms that the model learns to use (Dinu et al. 2019): term, tab, translations "
        "with | between them, perhaps a tab and a note",
    )
    term_style: TermStyle = Field(
        "append", description="the translation of a term stands behind it in the source, or replaces it"
    )
    term_share: float = Field(
        0.1,
        gt=0,
        le=1,
        description="at most so large a share of all training pairs has terms, drawn of those with a term on "
        "both sides",
    )
    on_disk: bool | None = Field(
        None,
        description="keep the training text and encoded pairs in the cache folder and read them from disk, "
        "not from memory; null: if the training files are larger than 200 MB",
    )
    cache: Path | None = Field(
        None, description="folder for tagged and encoded text; null: the user's cache folder"
    )
    _symbols: tuple[str, ...] = ()
    """Those of `subwords.symbols`."""

    @model_validator(mode="after")
    def _consistent(self) -> CorpusConfig:
        problems = []
        if (self.dir is None) == (self.dataset is None):
            both = "neither" if self.dir is None else "both"
            problems.append(f"expected one of dir and dataset, got {both}.")
        if not (self.train or self.synthetic):
            problems.append("train: expected the name of a split, got none.")
        if self.src == self.tgt:
            problems.append(
                f"tgt: expected another ending than src (src.en, tgt.en), got {self.tgt} for both."
            )
        for key, ending in (("src", self.src), ("tgt", self.tgt)):
            if (self.moses or self.detokenize) and language_of_side(self, ending).code is None:
                problems.append(f"{key}_language: expected a code, which Moses' rules need, got none.")
        if self.moses and self.tokenized:
            problems.append("moses: expected raw text, got tokenized=true. Set one of them to false.")
        if self.factor_files and (self.dataset or len(self.train) > 1):
            problems.append("factor_files: expected data.dir and one training split with them, got others.")
        if self.factor_files and self.synthetic:
            problems.append("synthetic: expected no factor_files, got some. Join both texts in data.dir.")
        if self.on_disk and self.dir is None:
            problems.append("on_disk: expected data.dir, got a dataset, whose text is read into memory.")
        if self.terms is None:
            for key in ("term_style", "term_share"):
                if getattr(self, key) != type(self).model_fields[key].default:
                    problems.append(f"{key}: expected data.terms, a list of terms, with it, got none.")
        if extra := set(self.detokenize) - set(self.train_splits):
            problems.append(f"detokenize: expected training splits, got {', '.join(sorted(extra))}.")
        if problems := problems + self._direction_problems():
            raise ValueError(" ".join(problems))
        return self

    def _direction_problems(self) -> list[str]:
        problems = []
        languages, expected = [corpus.language for corpus in self.corpora], language_of(self.tgt)
        if any(languages) and not all(languages):
            name = self.corpora[languages.index(None)].name
            problems.append(
                f"train: expected a tag such as <2{self.tgt}> of each corpus or none, got {name}."
            )
        for corpus in self.train:
            if (corpus.src or self.src) == (corpus.tgt or self.tgt):
                problems.append(f"train: expected two endings of {corpus.name}, got one for both sides.")
            other = corpus.tgt and language_of(corpus.tgt)
            if other and other != expected and not corpus.language:
                problems.append(f"train: expected the tag <2{other}> of {corpus.name}, got {corpus.tag}.")
            if self.moses and {corpus.src, corpus.tgt} - {None, self.src, self.tgt}:
                problems.append(f"train: expected no other languages with moses, got those of {corpus.name}.")
        return problems

    @property
    def corpora(self) -> list[Corpus]:
        """The training corpora; the synthetic pairs are the last."""
        tag = TAG if self.synthetic_tag else None
        return [*self.train, *([Corpus(name=SYNTHETIC, tag=tag)] if self.synthetic else [])]

    @property
    def train_splits(self) -> list[str]:
        """The names of all training corpora."""
        return [corpus.name for corpus in self.corpora]

    @property
    def tags(self) -> tuple[tuple[str, ...], ...]:
        """The pieces of each corpus's tag."""
        return tuple(tuple(corpus.symbols) for corpus in self.corpora)

    @property
    def symbols(self) -> list[str]:
        """The pieces of all tags."""
        return list(dict.fromkeys(chain.from_iterable(self.tags)))

    @property
    def directions(self) -> dict[str, Corpus]:
        """Target language → the first corpus with its tag; empty if no tag says a language."""
        first: dict[str, Corpus] = {}
        for corpus in self.corpora:
            if corpus.language:
                first.setdefault(corpus.language, corpus)
        return first

    def of(self, corpus: Corpus) -> CorpusConfig:
        """The section with the endings of a corpus as those of both sides, and their languages if known."""
        languages = {self.src: self.src_language, self.tgt: self.tgt_language}
        sides = {"src": corpus.src or self.src, "tgt": corpus.tgt or self.tgt}
        known = {f"{side}_language": languages.get(ending) for side, ending in sides.items()}
        return self.model_copy(update=sides | known)

    def preparation(self, ending: str) -> TextPreparation:
        """How the lines of one side are prepared."""
        return TextPreparation.of_side(self, ending, self._symbols)


@dataclass(frozen=True)
class ParallelText:
    """Parallel lines: lists, or `StoredLines` if they are many.

    Args:
        sha256: Hash of both sides.
        rows: Numbers of these lines in the files, ascending; None if they are all lines.
        n_synthetic: Number of synthetic pairs, which come last.
        sizes: Number of pairs of each corpus, in order; empty if that is not known.
        tags: The pieces before the sources of each corpus.
    """

    src: Sequence[str]
    tgt: Sequence[str]
    src_path: Path
    tgt_path: Path
    sha256: str = field(default="", repr=False)
    rows: Sequence[int] | None = field(default=None, repr=False)
    n_file_lines: int = 0
    n_synthetic: int = 0
    sizes: tuple[int, ...] = ()
    tags: tuple[tuple[str, ...], ...] = ()

    def __len__(self) -> int:
        return len(self.src)

    def select(self, rows: Sequence[int]) -> ParallelText:
        """The pairs at the given rows, in that order."""
        src, tgt = _taken(self.src, rows), _taken(self.tgt, rows)
        of_file = rows if self.rows is None else [self.rows[row] for row in rows]
        n_synthetic = sum(row >= len(self) - self.n_synthetic for row in rows)
        sizes = np.bincount(self.corpora_of(rows), minlength=len(self.sizes)).tolist() if self.sizes else ()
        facts = {"rows": of_file, "n_synthetic": n_synthetic, "sizes": tuple(sizes)}
        return replace(self, src=src, tgt=tgt, sha256=hash_lines(src, tgt), **facts)

    @property
    def corpora_matter(self) -> bool:
        """Whether there are several corpora, or tags."""
        return len(self.sizes) > 1 or any(self.tags)

    def corpora_of(self, rows: Sequence[int] | NDArray[np.int64]) -> NDArray[np.int16]:
        """The number of each row's corpus."""
        return np.searchsorted(np.cumsum(self.sizes), rows, "right").astype(np.int16)


def _taken(lines: Sequence[str], rows: Sequence[int]) -> Sequence[str]:
    return lines.take(rows) if isinstance(lines, StoredLines) else [lines[row] for row in rows]


def find_file(folder: Path, split: str, ending: str, key: str = "data.dir") -> Path:
    """The file of a split with this ending, plain or compressed.

    Raises:
        ConfigError: Neither exists; the message names both.
    """
    plain = folder / f"{split}.{ending}"
    if (path := plain_or_packed(plain)) is None:
        raise ConfigError(
            f"data: expected the file {plain} or {plain}.gz, found neither. Check {key} and the names of "
            "the split and the languages."
        )
    return path


def _paths(config: CorpusConfig, split: str) -> tuple[Path, Path]:
    """The names of the two sides of a split: their files, or the dataset."""
    folder, name, key = config.dir, split, "data.dir"
    if split == SYNTHETIC:
        folder, name, key = config.synthetic, TRAIN, split
    if folder is None:
        return (whole := Path(f"{config.dataset}/{split}")), whole
    if name == TRAIN and (folder / MADE).exists() and read_json(folder / MADE).get("src") == config.tgt:
        raise ConfigError(
            f"{key}: expected translated sources, {config.src}, and real targets, got the reverse "
            f"in {folder}. Give `syntaxformer backtranslate` a model of {config.tgt} to {config.src}."
        )
    return find_file(folder, name, config.src, key), find_file(folder, name, config.tgt, key)


def read_split(config: CorpusConfig, split: str) -> ParallelText:
    """Read one split from the files or the dataset of the recipe.

    Raises:
        ConfigError: A file is missing, or there is no such dataset, split or column.
        DataError: The files have different numbers of lines, a line has a tab or is not UTF-8, a row
            holds no text, or no pair has words on both sides.
    """
    pairs = list(_pairs(config, split))
    src, tgt = [src for src, _ in pairs], [tgt for _, tgt in pairs]
    return ParallelText(src, tgt, *_paths(config, split), hash_lines(src, tgt), n_file_lines=len(src))


def read_dev(config: CorpusConfig) -> ParallelText:
    """Read the development split, in each direction that the tags of training say. Errors as `read_split`."""
    directions = list(config.directions.values())
    if not directions:
        return read_split(config, config.dev)
    texts = [read_split(config.of(corpus), config.dev) for corpus in directions]
    src, tgt = ([line for text in texts for line in getattr(text, side)] for side in ("src", "tgt"))
    sizes, tags = tuple(map(len, texts)), tuple((f"<2{language}>",) for language in config.directions)
    facts = {"sha256": hash_lines(src, tgt), "n_file_lines": len(src), "sizes": sizes, "tags": tags}
    return replace(texts[0], src=src, tgt=tgt, **facts)


def _pairs(config: CorpusConfig, split: str) -> Iterator[tuple[str, str]]:
    """The pairs of a split, clean, one at a time. Errors as in `read_split`."""
    of_files = config.dataset is None or split == SYNTHETIC
    pairs = _file_pairs(config, split) if of_files else _dataset_pairs(config, split)
    clean_src, clean_tgt = config.preparation(config.src).clean, config.preparation(config.tgt).clean
    return ((clean_src(src), clean_tgt(tgt)) for src, tgt in pairs)


def paired_lines(src_path: Path, tgt_path: Path) -> Iterator[tuple[str, str]]:
    """The lines of two files.

    Raises:
        DataError: A file cannot be read, or they have different numbers of lines.
    """
    for src, tgt in zip_longest(read_lines(src_path), read_lines(tgt_path)):
        if src is None or tgt is None:
            n_src, n_tgt = count_lines(src_path), count_lines(tgt_path)
            raise DataError(
                f"expected as many lines as {tgt_path}, got {n_src} and {n_tgt}. "
                "Line n of one file must translate line n of the other.",
                src_path,
            )
        yield src, tgt


def _file_pairs(config: CorpusConfig, split: str) -> Iterator[tuple[str, str]]:
    src_path, tgt_path = _paths(config, split)
    number = n_tabs = n_filled = n_sources = n_unlike = 0
    for number, (src, tgt) in enumerate(paired_lines(src_path, tgt_path), 1):
        for path, line in ((src_path, src), (tgt_path, tgt)):
            if "\t" in line and config.tabs == "refuse":
                raise DataError(
                    f"expected one sentence, got a tab at character {line.index(chr(9)) + 1}. If the file is "
                    "not a table, set data.tabs=space to read tabs as spaces.",
                    path,
                    number,
                )
            n_tabs += "\t" in line
        n_filled += bool(src.strip() and tgt.strip())
        n_sources, n_unlike = n_sources + bool(src.strip()), n_unlike + (src != tgt)
        yield src, tgt
    if n_sources and not n_unlike:
        raise DataError(f"expected another text than in {tgt_path}, got the same. Check data.tgt.", src_path)
    if not n_filled:
        raise DataError(
            f"expected at least one pair of lines with text, got {number} lines without text.", src_path
        )
    if n_tabs > max(10, number / 10):
        raise DataError(
            f"expected one sentence in a line, got tabs in {n_tabs} of {2 * number} lines: this looks like a "
            "table. Give each language a file of its own. If no cell is a translation, replace the tabs.",
            src_path,
        )
    if n_tabs:
        level = logging.WARNING if n_tabs > number / 100 else logging.INFO
        _log.log(level, "%s, %s: lines with tabs, which are read as spaces: %d", src_path, tgt_path, n_tabs)


def _dataset_pairs(config: CorpusConfig, split: str) -> Iterator[tuple[str, str]]:
    """Pairs of a dataset; line breaks inside a text become spaces, so that a row is one line."""
    dataset, name = _load(config, split), _paths(config, split)[0]
    columns = [_column(dataset, config, ending) for ending in (config.src, config.tgt)]
    row = n_other = n_quoted = 0
    for row, pair in enumerate(zip(*columns, strict=True), 1):
        for text in pair:
            if not isinstance(text, str):
                raise DataError(f"expected text, got {type(text).__name__}.", name, row)
            inner = text[1:-1] if text[:1] == text[-1:] == '"' else ""
            n_quoted += '""' in inner and '"' not in inner.replace('""', "")
        src, tgt = (" ".join(text.splitlines()) for text in pair)
        n_other += src != tgt
        yield src, tgt
    if not row:
        raise DataError("expected at least one pair, got none.", name)
    if n_quoted:
        _log.warning(
            "%s: %d texts are quoted as in CSV. Only there are quotes no part of the text: if they should "
            "not be, save the table as CSV.", name, n_quoted,
        )  # fmt: skip
    if not n_other:
        raise DataError("expected a target unlike the source, got the same text. Check data.columns.", name)


def _load(config: CorpusConfig, split: str) -> Any:
    from datasets import load_dataset
    from datasets.exceptions import DatasetsError
    from datasets.utils.logging import disable_progress_bar

    disable_progress_bar()
    try:
        say_download(str(config.dataset), ".*", "dataset")
        settings = _table_settings(config, split)
        return load_dataset(config.dataset, config.dataset_config, split=split, **settings)
    except (CheckpointError, DatasetsError, OSError, ValueError, KeyError) as error:
        reason = " ".join(str(error.__cause__ or error).split())[:200]
        raise ConfigError(
            f"data.dataset: expected the split {split} of {config.dataset}, got: {reason}. "
            "Check data.dataset, data.dataset_config and the names of the splits; give a folder if offline."
        ) from error


_KINDS = {"csv", "tsv", "parquet", "json", "jsonl", "arrow", "txt"}
"""Endings of files that `datasets` reads; others, such as training.md, may lie beside them."""


def _table_settings(config: CorpusConfig, split: str) -> dict[str, Any]:
    """How tables of a folder are read: a cell is a text, also NA, and the quotes of a TSV are part of it."""
    folder, name = Path(str(config.dataset)), split.partition("[")[0]
    paths = [path.relative_to(folder) for path in folder.rglob("*.*")]
    files = [path for path in paths if name in str(path)] or paths  # dev.tsv is the split validation
    kinds = {path.name.removesuffix(".gz").rpartition(".")[2] for path in files} & _KINDS
    if not kinds or kinds - {"csv", "tsv"}:
        return {}
    files = [path for path in files if {*path.suffixes} & {".csv", ".tsv"}]
    columns = [(config.columns or {}).get(side, side) for side in (config.src, config.tgt)]
    settings: dict[str, Any] = {"converters": dict.fromkeys(columns, str), "keep_default_na": False}
    settings |= {"encoding": "utf-8-sig"} | ({} if "csv" in kinds else {"quoting": csv.QUOTE_NONE})
    head = next(csv.reader(read_lines(folder / files[0]), delimiter="," if "csv" in kinds else "\t"), [])
    if {*columns} <= {*head}:  # else all are read, so that the message can name them
        settings["usecols"] = columns
    return settings


def _column(dataset: Any, config: CorpusConfig, language: str) -> Any:
    """The texts of one language: a column, or a field of a column of mappings."""
    names = dataset.column_names
    default = f"translation.{language}" if "translation" in names else language
    name = (config.columns or {}).get(language, default)
    column, _, entry = name.partition(".")
    if name in names:
        return dataset[name]
    feature = dataset.features.get(column)
    fields = list(getattr(feature, "languages", None) or (feature if isinstance(feature, dict) else ()))
    if column in names and entry in fields:
        return (row[entry] for row in dataset[column])
    known = [*names, *(f"{column}.{key}" for key in fields)]
    raise ConfigError(
        f"data.columns: expected a column of {config.dataset} for {language}, got {name}. "
        f"Known: {', '.join(known)}."
    )


def hash_lines(*sides: Sequence[str]) -> str:
    """sha256 of lines, including where each line ends."""
    digest = hashlib.sha256()
    for side in sides:
        digest.update(f"{len(side)}\n".encode())
        for start in range(0, len(side), 10_000):
            digest.update("\n".join(side[start : start + 10_000]).encode())
    return digest.hexdigest()


def read_train(config: CorpusConfig) -> ParallelText:
    """Read all training splits, detokenised and with exclusions as the recipe says.

    Raises:
        ConfigError: A split is missing.
        DataError: A split cannot be used, or no pair is left.
    """
    if not keeps_on_disk(config):
        return _joined(config, _in_memory)
    files = _train_files(config) + [path for split in config.exclude for path in _paths(config, split)]
    made_from = {
        "files": [hash_file(path) for path in files],
        "settings": config.model_dump(mode="json", include=_TEXT_SETTINGS),
        "names": [path.name for path in files],
        "equal": "without regard to spaces, on a side of the same ending or else place",
        "about": "sizes",
    }
    is_new = False

    def build(folder: Path) -> None:
        nonlocal is_new
        is_new, text = True, _joined(config, lambda pairs: StoredLines.write(folder, pairs))
        about = {name: getattr(text, name) for name in ("sha256", "n_file_lines", "n_synthetic", "sizes")}
        (folder / "about.json").write_text(json.dumps(about), "utf-8")

    folder = stored_folder(config.cache, "text", made_from, build)
    about = read_json(folder / "about.json")
    src, tgt, rows = (StoredLines(folder, column) for column in ("src", "tgt", "row"))
    n_out = about["n_file_lines"] - len(src)
    if n_out and not is_new:
        _log.info("pairs of the files that are left out: %d; the log of the first run says why", n_out)
    about |= {"sizes": tuple(about["sizes"]), "tags": config.tags, "rows": rows if n_out else None}
    return ParallelText(src, tgt, *files[:2], **about)


def _train_files(config: CorpusConfig) -> list[Path]:
    return [path for corpus in config.corpora for path in _paths(config.of(corpus), corpus.name)]


def keeps_on_disk(config: CorpusConfig) -> bool:
    """Whether the training text is kept on disk: as the recipe says, or else by the size of its files.

    Raises:
        ConfigError: A split is missing.
    """
    if config.on_disk is not None or config.dir is None:
        return bool(config.on_disk)
    return sum(path.stat().st_size for path in _train_files(config)) > LARGE_BYTES


Sides = tuple[Sequence[str], Sequence[str], Sequence[int]]


def _joined(config: CorpusConfig, keep: Callable[[Iterator[tuple[str, str, int]]], Sides]) -> ParallelText:
    """The training splits as one text with the paths of the first split; `keep` stores its pairs."""
    held_out = {split: _held_out(config, split) for split in config.exclude}
    left_out = dict.fromkeys([*(f"of {split}" for split in held_out), "with U+FFFD"], 0)
    n_lines, sizes = 0, [0] * len(config.corpora)

    def reason(src: str, tgt: str, of_corpus: CorpusConfig) -> str | None:
        """Why a pair is left out."""
        for split, sentences in held_out.items():
            for side, line in (("src", src), ("tgt", tgt)):
                ending = getattr(of_corpus, side)
                if _plain(line, config) in sentences.get(ending, sentences[getattr(config, side)]):
                    return f"of {split}"
        return "with U+FFFD" if config.drop_unreadable and LOST in src + tgt else None

    def remaining() -> Iterator[tuple[str, str, int]]:
        nonlocal n_lines
        for number, corpus in enumerate(config.corpora):
            of_corpus = config.of(corpus)
            for src, tgt in _pairs(of_corpus, corpus.name):
                if corpus.name in config.detokenize:
                    src, tgt = (
                        detokenize(unescape(line), of_corpus.preparation(ending).language)
                        for line, ending in ((src, of_corpus.src), (tgt, of_corpus.tgt))
                    )
                if fault := reason(src, tgt, of_corpus):
                    left_out[fault] += 1
                else:
                    sizes[number] += 1
                    yield src, tgt, n_lines
                n_lines += 1

    src, tgt, rows = keep(remaining())
    first, n_out = config.corpora[0], sum(left_out.values())
    paths, n_synthetic = _paths(config.of(first), first.name), sizes[-1] if config.synthetic else 0
    if not len(src):
        raise DataError("expected pairs that data.exclude does not remove, got none.", paths[0])
    if n_out:
        shown = ", ".join(f"{count} {name}" for name, count in left_out.items() if count)
        _log.info("%s: left out %d of %d pairs: %s", paths[0], n_out, n_lines, shown)
    facts = (hash_lines(src, tgt), rows if n_out else None, n_lines, n_synthetic, tuple(sizes), config.tags)
    return ParallelText(src, tgt, *paths, *facts)


def _in_memory(pairs: Iterable[tuple[str, str, int]]) -> Sides:
    sides: tuple[list, list, list] = ([], [], [])
    for pair in pairs:  # each in turn: to transpose all at once takes half as much memory again
        for side, value in zip(sides, pair, strict=True):
            side.append(value)
    return sides


def _held_out(config: CorpusConfig, split: str) -> dict[str, set[str]]:
    """Ending → the sentences of a split that must not occur in training on the side with this ending.

    A corpus whose file has another ending than the split's is compared by side.
    """
    text = read_split(config, split)
    sides = ((config.src, text.src), (config.tgt, text.tgt))
    return {ending: {_plain(line, config) for line in lines} - {""} for ending, lines in sides}


def _plain(line: str, config: CorpusConfig) -> str:
    """A line as held-out sentences are compared: with single spaces, and in lower case if the run is."""
    line = " ".join(line.split())
    return line.lower() if config.lowercase else line
