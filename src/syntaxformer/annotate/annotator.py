"""What every annotator can do, whatever library it uses; the table of annotators; loading them by name.

Each line gives one `Sentence`, in order, even if it is empty, holds several sentences or has 5,000 words.
Backends are imported only when they are needed.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set, Sized
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from difflib import get_close_matches
from importlib import import_module
from importlib.resources import files
from itertools import chain
from pathlib import Path
from typing import Any, Protocol, TypeVar, cast, runtime_checkable
from uuid import uuid4

from syntaxformer.base.errors import BackendMissingError, ConfigError, DataError
from syntaxformer.base.files import hash_file
from syntaxformer.base.languages import (
    BUNDLED,
    CONTROL,
    CONTROLS,
    LANGUAGE_NAMES,
    PHRASES,
    SPACES,
    language_of,
    split_name,
)
from syntaxformer.base.progress import map_in_threads, track
from syntaxformer.trees import ROOT, Sentence, Tree, check_governors, format_tree, strip_root
from syntaxformer.trees.constituency import leaf_of
from syntaxformer.trees.dependency import join_governors
from syntaxformer.trees.locate import given_words, spans_of_given_words
from syntaxformer.trees.phrase_structure import NEEDED_COLUMNS
from syntaxformer.trees.sentence import COLUMNS, OF_PARSE, PER_WORD

_CUTS = frozenset(" \t\n\r\v\f")
_SURROGATE = re.compile("[\ud800-\udfff]")
_SHORT = 12
"""Hexadecimal digits of a version: 48 bits, enough to tell versions of one model apart."""
S = TypeVar("S", bound=Sized)

MAX_WORDS, _WORD = 100_000, re.compile(r"\w+|[^\w\s]")
LINES_PER_TASK, TASKS_AHEAD = 500, 2
"""Lines of a worker process's task, and tasks queued for each process, so that none is idle."""


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


class BatchParser(Protocol):
    """A parser as `BatchedAnnotator` needs it."""

    def parse_lines(self, lines: Sequence[str]) -> list[Sentence]:
        """Return one sentence for each line; no line is blank."""
        ...

    def parse_words(self, sentences: Sequence[tuple[str, ...]]) -> list[Sentence]:
        """Return one sentence for each list of words, with exactly these words; no list is empty."""
        ...


class BatchedAnnotator(Annotator):
    """A parser as an annotator; safe to share between threads.

    Args:
        name: The name by which `load_annotator` loads it, here and in worker processes.
        batch_chars: Characters given to the parser at once; by default 150 for each line.
        threads: Batches that the parser may work on at the same time, in threads, if it runs elsewhere.
            None: one at a time; each of several processes then loads the parser.
    """

    def __init__(
        self,
        parser: BatchParser,
        name: str,
        version: str,
        provides: frozenset[str],
        *,
        batch_lines: int,
        batch_chars: int | None = None,
        threads: int | None = None,
    ) -> None:
        self.parser = parser
        self.name, self.version, self.provides = name, version, provides
        self.batch_lines, self.batch_chars = batch_lines, batch_chars or 150 * batch_lines
        self.threads = threads
        self._lock: AbstractContextManager[object] = threading.Lock() if threads is None else nullcontext()

    def limited_to(self, columns: Collection[str]) -> BatchedAnnotator:
        """Return this annotator, with components switched off, if possible, that fill none of the columns."""
        if (limit := getattr(self.parser, "limit_to", None)) is not None:
            self.provides = limit(columns)
        return self

    def stream(self, lines: Iterable[str], *, n_processes: int = 1) -> Iterator[Sentence]:
        """Yield one sentence for each line, in order, in constant memory.

        `n_processes` counts worker processes, or requests to a server at a time; 1 works in this process.

        Raises:
            SyntaxformerError: A worker process died, the parser failed, or a line has over 100,000 words.
        """
        lines = short_enough(lines)
        if self.threads is None and n_processes > 1:
            from syntaxformer.annotate.wrappers import map_in_processes, sentences_of_lines

            tasks = chunks_of(lines, LINES_PER_TASK)
            return chain.from_iterable(map_in_processes(self.name, sentences_of_lines, tasks, n_processes))
        chunks = chunks_of(lines, self.batch_lines, self.batch_chars)
        n_threads = max(self.threads or 1, n_processes)
        return chain.from_iterable(map_in_threads(self._batch, chunks, n_threads, TASKS_AHEAD))

    def annotate_words(self, sentences: Iterable[Sequence[str]]) -> list[Sentence]:
        """As every annotator does, in batches of `batch_lines`."""
        checked = check_words(sentences)
        chunks = chunks_of(filter(None, checked), self.batch_lines)
        parsed = chain.from_iterable(map_in_threads(self._words, chunks, self.threads or 1, TASKS_AHEAD))
        return [next(parsed) if words else blank_sentence("", self.provides) for words in checked]

    def _words(self, sentences: Sequence[tuple[str, ...]]) -> Sequence[Sentence]:
        with self._lock:
            return self.parser.parse_words(sentences)

    def _batch(self, lines: Sequence[str]) -> list[Sentence]:
        filled = [line for line in lines if line.strip()]
        with self._lock:
            parsed = iter(self.parser.parse_lines(filled) if filled else [])
        return [next(parsed) if line.strip() else blank_sentence(line, self.provides) for line in lines]


MAX_RUN = 400
"""Characters without white space after which a line is cut; words and nearly all addresses are shorter."""

MAX_SEGMENT = 100_000
"""Characters of a part, about 20,000 words, after which a line is cut at the next white space."""

_STRETCH = re.compile(rf"\s*\S{{0,{MAX_RUN}}}")
_TO_LAST_MARK = re.compile(r".*[。！？；，、።။।]", re.DOTALL)


def segments_of(line: str, max_segment: int = MAX_SEGMENT) -> Iterator[tuple[int, str]]:
    """Yield the start and the text of each part of a line; together the parts are the line.

    After `max_segment` characters, it is cut at white space; text without any is cut behind marks such as 。
    """
    start = end = 0
    while len(line) > MAX_RUN and (stretch := _STRETCH.match(line, end)) and stretch[0]:
        before, end = end, stretch.end()
        inside_run = end < len(line) and not line[end].isspace()
        if inside_run and (marked := _TO_LAST_MARK.match(line, before, end)):
            end = marked.end()
        if inside_run or end - start > max_segment:
            yield start, line[start:end]
            start = end
    if start < len(line) or not line:
        yield start, line[start:]


def blank_sentence(line: str, provides: frozenset[str]) -> Sentence:
    """Return the sentence of a line without words: all its columns are present but empty."""
    return Sentence(line, (), (), **dict.fromkeys(provides.intersection(PER_WORD), ()))  # type: ignore[arg-type]


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


def encodable(text: str) -> str:
    """Replace lone surrogates, which no library stores or sends, one character for one."""
    return text if text.isascii() else _SURROGATE.sub("\ufffd", text)


class SpacedWords(Annotator):
    """Words that stand between spaces, without annotation: enough for factors of the text or of a file."""

    name, version, provides = SPACES, "1", frozenset[str]()

    def stream(self, lines: Iterable[str], *, n_processes: int = 1) -> Iterator[Sentence]:
        """Yield one sentence for each line; `n_processes` is ignored."""
        for line in lines:
            yield Sentence(line, tuple(given_words(line)), tuple(spans_of_given_words(line)))


@dataclass(frozen=True, slots=True)
class Backend:
    """A way to get annotation.

    Args:
        argument: What follows the colon in a name. PATH is a parsed file, which is read in order; URL a
            server; NAME_OR_PATH may be a folder.
        what: A description in one line.
        home: "module:function" of `backends` that takes the argument and returns an annotator.
    """

    argument: str
    what: str
    home: str


BACKENDS = {
    "spacy": Backend("NAME_OR_PATH", "any installed spaCy pipeline", "spacy:load_spacy"),
    "stanza": Backend("LANG", "Stanza's models of a language", "stanza:load_stanza"),
    "corenlp": Backend("URL", "a running Stanford CoreNLP server", "corenlp:load_corenlp"),
    "conllu": Backend("PATH", "an existing CoNLL-U file, or one for each {split}", "files:load_conllu"),
    "ptb": Backend("PATH", "a file of bracketed trees, or one for each {split}", "files:load_ptb"),
}
"""The only list of annotators besides the bundled ones; a new one needs a row here and a module."""


def is_file(name: str) -> bool:
    """Whether an annotator is a file that was parsed elsewhere, whose sentences are read in order."""
    name = split_name(name)[1]
    backend = BACKENDS.get(name.partition(":")[0])
    return ":" in name and backend is not None and backend.argument == "PATH"


def load_annotator(name: str | Annotator | Any) -> Annotator:
    """Load an annotator by name, or take an object with `name` and `annotate` as one.

    The name is a bundled one ("en", "de"), `SPACES`, one of `BACKENDS` ("spacy:de_core_news_sm",
    "conllu:x.conllu") or the folder of a spaCy pipeline, such as `annotator train` writes.
    The ending "+phrases" also converts dependency parses to phrase structure; options of a backend follow as
    "+key=value". `random_tree(NAME)`, `chain(NAME)`, `other_sentence(NAME)` and `permuted(NAME)` give wrong
    trees on purpose, others with `random_tree(NAME,seed=1)`; see `controls`.

    `annotate` of an object takes a list of lines and returns a `Sentence` for each. What else `Annotator` has
    may be missing. Without `provides`, a line is tried; without `version`, no cache is found again.

    Raises:
        TypeError: The object lacks `name` or `annotate`.
        ConfigError: There is no such annotator, or "+phrases" follows one that does not parse.
        BackendMissingError: A package or model is not installed; the message gives the command.
        DataError: The file or folder that it works with cannot be read.
    """
    if not isinstance(name, str):
        return name if isinstance(name, Annotator) else GivenAnnotator(name)
    if name.endswith(PHRASES):
        return with_constituency(load_annotator(name.removesuffix(PHRASES)))
    if control := CONTROL.fullmatch(name):
        from syntaxformer.annotate.controls import Control

        return Control(load_annotator(control["annotator"]), control["kind"], int(control["seed"] or 0))
    scheme, colon, argument = name.partition(":")
    if not colon and name in BUNDLED:
        return _function("spacy:load_bundled")(name)
    if name == SPACES:
        return SpacedWords()
    if not colon and (Path(name) / "meta.json").is_file():
        scheme, argument = "spacy", name
    if scheme in BACKENDS and argument:
        return _function(BACKENDS[scheme].home)(argument)
    raise ConfigError(_unknown(name, scheme))


class GivenAnnotator(Annotator):
    """An object of the user's own with `name` and `annotate`; see `load_annotator`."""

    def __init__(self, given: Any) -> None:
        if not (hasattr(given, "name") and hasattr(given, "annotate")):
            expected = "a name, or an object with `name` and `annotate`"
            raise TypeError(f"annotator: expected {expected}, got {type(given).__name__}.")
        self.given, self.name = given, str(given.name)
        self.version = str(getattr(given, "version", f"unversioned-{uuid4().hex[:_SHORT]}"))
        if (provides := getattr(given, "provides", None)) is None:
            (tried,) = given.annotate(["A dog barks ."])
            provides = [column for column in COLUMNS if getattr(tried, column) is not None]
        self.provides = frozenset(provides)

    def annotate_words(self, sentences: Iterable[Sequence[str]]) -> list[Sentence]:
        """As every annotator does; DataError if the object, without such a method, splits words further."""
        words = check_words(sentences)
        if (method := getattr(self.given, "annotate_words", None)) is not None:
            return list(method(words))
        found = super().annotate_words(words)
        for given, one in zip(words, found, strict=True):
            if one.words != given:
                expected, got = (repr(" ".join(side)[:40]) for side in (given, one.words))
                message = (
                    f"expected exactly the words {expected}, got {got}. Give it a method `annotate_words`."
                )
                raise DataError(f"annotator {self.name}: {message}")
        return found

    def stream(self, lines: Iterable[str], *, n_processes: int = 1) -> Iterator[Sentence]:
        """Yield one sentence for each line, in this process; DataError if the object gives others."""
        for chunk in chunks_of(lines, 1000):
            found = list(self.given.annotate(chunk))
            if [one.text for one in found] != chunk:
                expected = f"{len(chunk)} sentences with the texts of their lines, got {len(found)}"
                raise DataError(f"annotator {self.name}: expected {expected} or others.")
            yield from found


def annotator_for(annotator: Annotator, split: str) -> Annotator:
    """Return the annotator of a split: its own if each split has a parsed file, or else the same for all.

    Raises:
        DataError: The file of the split is missing.
    """
    choose = cast("Callable[[str], Annotator] | None", getattr(annotator, "for_split", None))
    return annotator if choose is None else choose(split)


_PHRASES_VERSION = "+phrases1"
"""Changes with the rules of the conversion."""


def with_constituency(annotator: Annotator) -> Annotator:
    """Return an annotator that also provides `constituency`; the same one if it already does.

    A control changes the phrases as well: `random_tree(en)+phrases` is `random_tree(en+phrases)`.

    Raises:
        ConfigError: It lacks upos, governors or deprels.
    """
    from syntaxformer.annotate.controls import Control

    if "constituency" in annotator.provides:
        return annotator
    if isinstance(annotator, Control):
        return annotator.around(with_constituency(annotator.annotator))
    missing = [column for column in NEEDED_COLUMNS if column not in annotator.provides]
    if missing:
        raise ConfigError(
            f"annotator: expected one with {', '.join(NEEDED_COLUMNS)} for phrases, got "
            f"{annotator.name!r} without {', '.join(missing)}. Use one with a dependency parser."
        )
    return WithPhrases(annotator)


class WithPhrases(Annotator):
    """An annotator whose sentences get a constituency tree from their dependency parse.

    The tree adds nothing to what the parse says. Its brackets are written only when they are needed: a corpus
    that is stored needs them, relations do not.
    """

    def __init__(self, annotator: Annotator) -> None:
        self.annotator = annotator
        self.name = annotator.name + PHRASES
        self.version = annotator.version + _PHRASES_VERSION
        self.provides = annotator.provides | {"constituency"}

    def for_split(self, split: str) -> Annotator:
        """Return the same for one split; see `annotator_for`."""
        return WithPhrases(annotator_for(self.annotator, split))

    def stream(self, lines: Iterable[str], *, n_processes: int = 1) -> Iterator[Sentence]:
        """Yield one sentence for each line; the conversion itself runs in this process."""
        return map(_with_tree, self.annotator.stream(lines, n_processes=n_processes))

    def annotate_words(self, sentences: Iterable[Sequence[str]]) -> list[Sentence]:
        """Return one sentence for each list of words."""
        return list(map(_with_tree, self.annotator.annotate_words(sentences)))


def _with_tree(sentence: Sentence) -> Sentence:
    """Add the tree to a sentence; a line without words has none."""
    return replace(sentence, constituency=OF_PARSE) if sentence.words else sentence


def annotator_identity(name: str) -> tuple[str, str]:
    """Return the name and version of an annotator, without loading a bundled one, which takes seconds.

    Raises:
        ConfigError, BackendMissingError, DataError: As `load_annotator`.
    """
    if name in BUNDLED:
        folder = bundled_folder(name)
        return name, pipeline_version(json.loads((folder / "meta.json").read_text("utf-8")), folder)
    annotator = load_annotator(name)
    return annotator.name, annotator.version


def _function(home: str) -> Callable[[str], Annotator]:
    module, _, function = home.partition(":")
    return getattr(import_module(f"syntaxformer.annotate.backends.{module}"), function)


def _unknown(name: str, scheme: str) -> str:
    # An address may hold a password.
    name = name if "://" not in name else f"{scheme}:…"
    forms = [f"{scheme}:{backend.argument}" for scheme, backend in BACKENDS.items()]
    forms = [*BUNDLED, SPACES, "FOLDER", *forms, *(f"{kind}(ANNOTATOR)" for kind in CONTROLS)]
    message = f"annotator: expected {', '.join(forms[:-1])} or {forms[-1]}, got {name!r}."
    if scheme in BACKENDS:
        return f"{message} Give {BACKENDS[scheme].argument} after the colon."
    nearest = get_close_matches(scheme, [*BUNDLED, *BACKENDS], n=1, cutoff=0.5)
    code = LANGUAGE_NAMES.get(name.lower()) or language_of(name) or ""
    meant = code if code in BUNDLED else f"stanza:{code}" if len(code) == 2 else nearest and nearest[0]
    message = f"{message} Did you mean {meant!r}?" if meant else message
    return f"{message} If it is the name of an object, give the object itself (annotator=…, in Python)."


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
        return hash_file(place)[:_SHORT]
    digest = hashlib.sha256()
    for path in sorted(place.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            name = path.relative_to(place).as_posix()
            digest.update(f"{name}\0{path.stat().st_size}\0".encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()[:_SHORT]


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


# What a parser found in a line. It splits the line into its own sentences, each with its own word numbers and
# trees; they become one sentence with several roots and, if there are trees, one tree over all words.

PHRASE = "S"
"""Label of the node over several sentences of a line, the same as in `phrase_structure`."""


@dataclass(slots=True)
class ParsedSentence:
    """A sentence as a parser found it.

    Args:
        spans: Start and end of each word in the line, in characters, `[words]`.
        tags: Values of "upos", "xpos", "lemmas" and "deprels", `[words]` each; None for an unknown value.
        governors: Governor of each word within this sentence, 0-based, -1 = root.
    """

    words: list[str]
    spans: list[tuple[int, int]]
    tags: Mapping[str, Sequence[str | None]]
    governors: list[int] | None = None
    tree: Tree | None = None


def join_parsed(line: str, parsed: Sequence[ParsedSentence], provides: frozenset[str]) -> Sentence:
    """Join the sentences that a parser found in a line, in order.

    Offsets count from the start of the line.

    Raises:
        TreeError: A governor is out of range, or there is a cycle.
    """
    columns: dict[str, Any] = {
        name: tuple(value or column.unknown for sentence in parsed for value in _column(sentence, name))
        for name, column in COLUMNS.items()
        if name in provides and column.unknown is not None
    }
    words = tuple(word for sentence in parsed for word in sentence.words)
    if "governors" in provides:
        local = [one.governors if one.governors is not None else [ROOT] * len(one.words) for one in parsed]
        columns["governors"] = join_governors(local)
        columns["deprels"] = tuple(
            "root" if governor == ROOT else deprel
            for governor, deprel in zip(columns["governors"], columns["deprels"], strict=True)
        )
        check_governors(columns["governors"], words)
    if "constituency" in provides and words:
        trees = [one.tree or flat_tree(one.words, one.tags.get("xpos")) for one in parsed]
        columns["constituency"] = format_tree(join_trees(trees))
    return Sentence(line, words, tuple(span for sentence in parsed for span in sentence.spans), **columns)


def _column(sentence: ParsedSentence, column: str) -> Sequence[str | None]:
    return sentence.tags.get(column) or [None] * len(sentence.words)


def join_trees(trees: Sequence[Tree]) -> Tree:
    """Put one or more trees under one S; a single tree stays as it is. Outer ROOT brackets are removed."""
    stripped = [strip_root(tree) for tree in trees]
    return stripped[0] if len(stripped) == 1 else Tree(PHRASE, tuple(stripped))


def flat_tree(words: Sequence[str], tags: Sequence[str | None] | None = None) -> Tree:
    """A tree for a sentence that the parser could not parse: all words under one S."""
    pairs = zip(words, tags or [None] * len(words), strict=True)
    return Tree(PHRASE, tuple(Tree(tag or "X", (leaf_of(word),)) for word, tag in pairs))


def read_tree(node: Any, label_of: Callable[[Any], str], children_of: Callable[[Any], Sequence[Any]]) -> Tree:
    """Copy a tree of another library, whose leaves are the nodes without children."""
    made, order = dict[int, Tree | str](), [node]
    for place in order:  # grows while it is walked, parents before children
        order.extend(children_of(place))
    for place in reversed(order):
        parts = tuple(made[id(child)] for child in children_of(place))
        made[id(place)] = Tree(label_of(place), parts) if parts else label_of(place)
    top = made[id(node)]
    return top if isinstance(top, Tree) else Tree("", (top,))
