"""What every annotator can do, whatever library it uses, and checks of what it is given.

Each line gives one `Sentence`, in order, even if it is empty, holds several sentences or has 5,000 words.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set, Sized
from importlib.resources import files
from pathlib import Path
from typing import Any, Protocol, TypeVar, cast, runtime_checkable

from syntaxformer.base.errors import BackendMissingError, DataError
from syntaxformer.base.files import hash_file
from syntaxformer.base.languages import SPACES
from syntaxformer.base.progress import track
from syntaxformer.trees import Sentence
from syntaxformer.trees.locate import given_words, spans_of_given_words
from syntaxformer.trees.sentence import PER_WORD

_CUTS = frozenset(" \t\n\r\v\f")


_SURROGATE = re.compile("[\ud800-\udfff]")


SHORT_HASH = 12
"""Hexadecimal digits of a version: 48 bits, enough to tell versions of one model apart."""


MAX_WORDS, _WORD = 100_000, re.compile(r"\w+|[^\w\s]")


S = TypeVar("S", bound=Sized)


SPLIT = "{split}"
"""Stands for "train", "dev" … in the path of a parsed file."""


@runtime_checkable
class Annotator(Protocol):
    """Turns text into sentences; a subclass that defines `stream` inherits the rest."""

    name: str
    """What `load_annotator` takes: "en", "spacy:de_core_news_sm", "conllu:train.conllu"."""
    version: str
    """Changes whenever the same line could be annotated differently."""
    provides: frozenset[str]
    """The columns that sentences will have, of `trees.sentence.COLUMNS`."""

    def stream(self, lines: Iterable[str], *, n_processes: int = 1) -> Iterator[Sentence]:
        """Yield one sentence for each line, in order, in constant memory."""
        ...

    def annotate(
        self, lines: Iterable[str], *, n_processes: int = 1, progress: bool = False
    ) -> list[Sentence]:
        """Return one sentence for each line, in order; arguments as in `stream`, `progress` shows a bar.

        Raises:
            TypeError: The lines are one string, which would be read as a list of characters, or no lines.
            DataError: A line is no string; with its number.
        """
        check_lines(lines)
        total = len(lines) if isinstance(lines, Sized) else None
        sentences = self.stream(_strings(lines), n_processes=n_processes)
        return list(track(sentences, f"annotating ({self.name})", total, enabled=progress))

    def annotate_words(self, sentences: Iterable[Sequence[str]]) -> list[Sentence]:
        """Return one sentence for each list of words, with exactly these words, joined by spaces.

        Raises:
            ValueError: A word is empty or holds white space.
        """
        return list(self.stream(" ".join(words) for words in check_words(sentences)))


class SpacedWords(Annotator):
    """Words that stand between spaces, without annotation: enough for factors of the text or of a file."""

    name, version, provides = SPACES, "1", frozenset[str]()

    def stream(self, lines: Iterable[str], *, n_processes: int = 1) -> Iterator[Sentence]:
        """Yield one sentence for each line; `n_processes` is ignored."""
        for line in lines:
            yield Sentence(line, tuple(given_words(line)), tuple(spans_of_given_words(line)))


def annotator_for(annotator: Annotator, split: str) -> Annotator:
    """Return the annotator of a split: its own if each split has a parsed file, or else the same for all.

    Raises:
        DataError: The file of the split is missing.
    """
    choose = cast("Callable[[str], Annotator] | None", getattr(annotator, "for_split", None))
    return annotator if choose is None else choose(split)


def check_lines(lines: object, what: str = "lines") -> None:
    """Check that lines are several; `what` is their name in the message.

    Raises:
        TypeError: They are one string, which would be read as a list of characters, or no lines at all.
    """
    shown = ""
    if isinstance(lines, str):
        shown = f"the string {lines[:40]!r}. Put it into a list"
    elif isinstance(lines, bytes | Mapping | Set) or not isinstance(lines, Iterable):
        shown = "a mapping" if isinstance(lines, Mapping) else type(cast("object", lines)).__name__
    if shown:
        raise TypeError(f"{what}: expected a list of strings, got {shown}.")


def _strings(lines: Iterable[object]) -> Iterator[str]:
    for number, line in enumerate(lines, 1):
        if not isinstance(line, str):
            raise DataError(f"text: expected a string, got {type(line).__name__}.", line=number)
        yield line


def check_words(sentences: Iterable[Sequence[str]]) -> list[tuple[str, ...]]:
    """Check words given by a user, and return them as tuples.

    Raises:
        ValueError: A word is empty, blank, or holds white space (a no-break space inside a word is allowed).
        TypeError: A sentence is one string, which would be read as a list of characters.
    """
    checked: list[tuple[str, ...]] = []
    for number, words in enumerate(sentences):
        if isinstance(words, str):
            raise TypeError(f"sentence {number}: expected a list of words, got the string {words[:40]!r}.")
        for word in words:
            if not word or word.isspace() or not _CUTS.isdisjoint(word):
                raise ValueError(
                    f"sentence {number}: expected words without white space and not empty, got {word!r}."
                )
        checked.append(tuple(words))
    return checked


def short_enough(lines: Iterable[str], path: str | None = None, first: int = 0) -> Iterator[str]:
    """Check the length of each line and yield it; the lines are those of `path` from line `first` on.

    Raises:
        DataError: A line has more words and marks than a parser should be given.
    """
    for number, line in enumerate(lines, first + 1):
        if len(line) > MAX_WORDS and (n_words := sum(1 for _ in _WORD.finditer(line))) > MAX_WORDS:
            message = f"expected at most {MAX_WORDS:,} words in a line, got {n_words:,}. Split the line."
            raise DataError(message, path, number)
        yield line


def encodable(text: str) -> str:
    """Replace lone surrogates, which no library stores or sends, one character for one."""
    return text if text.isascii() else _SURROGATE.sub("\ufffd", text)


def blank_sentence(line: str, provides: frozenset[str]) -> Sentence:
    """Return the sentence of a line without words: all its columns are present but empty."""
    return Sentence(line, (), (), **dict.fromkeys(provides.intersection(PER_WORD), ()))  # type: ignore[arg-type]


def chunks_of(items: Iterable[S], size: int, max_length: float = math.inf) -> Iterator[list[S]]:
    """Cut items into lists of `size`, or of fewer where several together would exceed `max_length`."""
    chunk, length = list[S](), 0
    for item in items:
        if chunk and (len(chunk) == size or length + len(item) > max_length):
            yield chunk
            chunk, length = [], 0
        chunk.append(item)
        length += len(item)
    if chunk:
        yield chunk


def bundled_folder(language: str) -> Path:
    """Return the folder of a pipeline that comes with the package.

    Raises:
        BackendMissingError: The package was installed without it.
    """
    folder = Path(str(files("syntaxformer.annotate"))) / "pipelines" / language
    if not (folder / "meta.json").is_file():
        raise BackendMissingError(f"the bundled pipeline {language!r} ({folder})", "make annotators")
    return folder


def pipeline_version(meta: Mapping[str, Any], folder: Path) -> str:
    """Return what changes with a pipeline: its own name and version, and a hash of its files."""
    return f"{meta['lang']}_{meta['name']}-{meta['version']}+{short_hash(folder)}"


def hash_lines(lines: Iterable[str]) -> str:
    """Return the SHA-256 of lines; each ends in a line feed, so that moving a break changes it."""
    digest = hashlib.sha256()
    for line in lines:
        digest.update(hashed_line(line))
    return digest.hexdigest()


def hashed_line(line: str) -> bytes:
    """A line as it enters a hash of lines: in it, a break is a byte that UTF-8 does not have."""
    return line.encode("utf-8", "surrogatepass").replace(b"\n", b"\xff") + b"\n"


def short_hash(place: Path) -> str:
    """Return 12 digits of the SHA-256 of a file, or over names and contents of all files below a folder."""
    if place.is_file():
        return hash_file(place)[:SHORT_HASH]
    digest = hashlib.sha256()
    for path in sorted(place.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            name = path.relative_to(place).as_posix()
            digest.update(f"{name}\0{path.stat().st_size}\0".encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()[:SHORT_HASH]
