"""Annotators by name. Their modules are imported only when they are loaded."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from difflib import get_close_matches
from importlib import import_module
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from site import getsitepackages, getusersitepackages
from sysconfig import get_path
from typing import Any
from uuid import uuid4

from syntaxformer.annotate.annotator import (
    SHORT_HASH,
    Annotator,
    BatchedAnnotator,
    SpacedWords,
    annotator_for,
    bundled_folder,
    check_words,
    chunks_of,
    map_in_processes,
    pipeline_version,
)
from syntaxformer.annotate.backends import BACKENDS, OPTION_START, is_file
from syntaxformer.annotate.controls import Control
from syntaxformer.annotate.store import AnnotatedBefore
from syntaxformer.base.errors import CheckpointError, ConfigError, DataError
from syntaxformer.base.files import KEPT, disk_errors
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
from syntaxformer.trees import Sentence
from syntaxformer.trees.locate import given_words
from syntaxformer.trees.phrase_structure import NEEDED_COLUMNS, brackets_of_parse
from syntaxformer.trees.sentence import COLUMNS

_LINES_AT_A_TIME = 1000


def prepare(
    name: str | Annotator,
    *,
    needs: Collection[str] = (),
    only: Collection[str] | None = None,
    words_given: bool = False,
    annotated: Sequence[str | Path] = (),
) -> Annotator:
    """Load an annotator for a run or for a model.

    If `needs` asks for phrases and the annotator gives none, its dependency parses are converted. `only` is
    the columns that will be read; of an annotator that is loaded here, components that fill others are
    switched off if possible. With `words_given`, spaces separate the words; `annotated` names files of
    earlier annotation, where lines are looked up first.

    Raises:
        ConfigError, BackendMissingError, DataError: As `load_annotator`, `with_constituency` and
            `AnnotatedBefore`.
    """
    annotator = load_annotator(name)
    # The user's own object stays whole.
    if isinstance(name, str) and only is not None and isinstance(annotator, BatchedAnnotator):
        annotator = annotator.limited_to(only)
    if "constituency" in needs and "governors" in annotator.provides:
        annotator = with_constituency(annotator)
    annotator = WordsAsGiven(annotator) if words_given else annotator
    return AnnotatedBefore(annotator, annotated) if annotated else annotator


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


class GivenAnnotator(Annotator):
    """An object of the user's own with `name` and `annotate`; see `load_annotator`."""

    def __init__(self, user_annotator: Any) -> None:
        if not (hasattr(user_annotator, "name") and hasattr(user_annotator, "annotate")):
            expected = "a name, or an object with `name` and `annotate`"
            raise TypeError(f"annotator: expected {expected}, got {type(user_annotator).__name__}.")
        self.user_annotator, self.name = user_annotator, str(user_annotator.name)
        self.version = str(getattr(user_annotator, "version", f"unversioned-{uuid4().hex[:SHORT_HASH]}"))
        if (provides := getattr(user_annotator, "provides", None)) is None:
            trial = "A dog barks ."
            try:
                (sentence,) = self.stream([trial])
            except DataError as error:
                remedy = f"The line was {trial!r}, which tells what it gives: or give it `provides`."
                raise DataError(f"{error} {remedy}") from error
            provides = [column for column in COLUMNS if getattr(sentence, column) is not None]
        self.provides = frozenset(provides)

    def annotate_words(self, sentences: Iterable[Sequence[str]]) -> list[Sentence]:
        """As every annotator does; DataError if the object, without such a method, splits words further."""
        words = check_words(sentences)
        if (method := getattr(self.user_annotator, "annotate_words", None)) is not None:
            return list(method(words))
        annotated = super().annotate_words(words)
        for expected_words, sentence in zip(words, annotated, strict=True):
            if sentence.words != expected_words:
                expected, got = (repr(" ".join(side)[:40]) for side in (expected_words, sentence.words))
                raise DataError(
                    f"annotator {self.name}: expected exactly the words {expected}, got {got}. Give it a "
                    "method `annotate_words`."
                )
        return annotated

    def stream(self, lines: Iterable[str], *, n_processes: int = 1) -> Iterator[Sentence]:
        """Yield one sentence for each line, in this process; DataError if the object gives others."""
        for chunk in chunks_of(lines, _LINES_AT_A_TIME):
            sentences = list(self.user_annotator.annotate(chunk))
            if [sentence.text for sentence in sentences] != chunk:
                expected = f"{len(chunk)} sentences with the texts of their lines, got {len(sentences)}"
                raise DataError(f"annotator {self.name}: expected {expected} or others.")
            yield from sentences


def with_constituency(annotator: Annotator) -> Annotator:
    """Return an annotator that also provides `constituency`; the same one if it already does.

    A control changes the phrases as well: `random_tree(en)+phrases` is `random_tree(en+phrases)`.

    Raises:
        ConfigError: It lacks upos, governors or deprels.
    """
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
        self.version = f"{annotator.version}+phrases1"  # changes with the rules of the conversion
        self.provides = annotator.provides | {"constituency"}

    def for_split(self, split: str, rows: Sequence[int] | None = None) -> Annotator:
        """Return the same for one split; see `annotator_for`."""
        return WithPhrases(annotator_for(self.annotator, split, rows))

    def stream(self, lines: Iterable[str], *, n_processes: int = 1) -> Iterator[Sentence]:
        """Yield one sentence for each line; the conversion itself runs in this process."""
        return map(_with_tree, self.annotator.stream(lines, n_processes=n_processes))

    def annotate_words(self, sentences: Iterable[Sequence[str]]) -> list[Sentence]:
        """Return one sentence for each list of words."""
        return list(map(_with_tree, self.annotator.annotate_words(sentences)))


def _with_tree(sentence: Sentence) -> Sentence:
    return replace(sentence, constituency=brackets_of_parse) if sentence.words else sentence


class WordsAsGiven(Annotator):
    """An annotator that never re-tokenises: spaces separate the words of a line.

    It keeps the annotator's name, because a model folder stores the tokenisation separately.
    """

    def __init__(self, annotator: Annotator) -> None:
        self.annotator = annotator
        self.name, self.provides = annotator.name, annotator.provides
        self.version = f"{annotator.version}+words"  # a cache must tell the two apart

    def for_split(self, split: str, rows: Sequence[int] | None = None) -> Annotator:
        """Return the same for one split; see `annotator_for`."""
        return WordsAsGiven(annotator_for(self.annotator, split, rows))

    def stream(self, lines: Iterable[str], *, n_processes: int = 1) -> Iterator[Sentence]:
        """Yield one sentence for each line."""
        if isinstance(self.annotator, Control):  # whose pools of lines are larger than the chunks below
            inside = WordsAsGiven(self.annotator.annotator)
            yield from self.annotator.around(inside).stream(lines, n_processes=n_processes)
            return
        if is_file(self.name):  # which is read from its start at each call, and never splits words
            yield from self.annotator.stream(" ".join(given_words(line)) for line in lines)
            return
        chunks = chunks_of(lines, _LINES_AT_A_TIME)
        batches: Iterator[list[Sentence]] = (_of_words(self.annotator, chunk) for chunk in chunks)
        parser = getattr(self.annotator, "annotator", self.annotator)  # also below +phrases
        if not isinstance(parser, BatchedAnnotator):
            yield from chain.from_iterable(batches)
            return
        threads = parser.threads
        if threads is None and n_processes > 1:
            batches = map_in_processes(self.name, _of_words, chunks, n_processes)
        parser.threads = threads and max(threads, n_processes)  # requests at a time
        try:
            yield from chain.from_iterable(batches)
        finally:
            parser.threads = threads

    def annotate_words(self, sentences: Iterable[Sequence[str]]) -> list[Sentence]:
        """Return one sentence for each list of words."""
        return self.annotator.annotate_words(sentences)


def _of_words(annotator: Annotator, lines: Sequence[str]) -> list[Sentence]:
    return annotator.annotate_words([given_words(line) for line in lines])


def trusted_annotator(
    named: str | None, choice: str | Annotator | None, folder: Path, trust: bool = False
) -> str | Annotator | None:
    """The annotator to load for a model: the one that the user gives, or else the one that its folder names.

    The folder may name an installed annotator or a path inside itself, and with `trust` any annotator. What
    the user gives is not checked.

    Raises:
        CheckpointError: The folder's annotator would use the network or read files outside the folder.
    """
    if choice is not None or named is None:
        return choice
    before, plain, after = split_name(named)
    if plain in BUNDLED:
        return named
    if ":" not in plain and any((home / plain / "meta.json").is_file() for home in (Path(), folder)):
        plain = f"spacy:{plain}"
    scheme, _, path = plain.partition(":")
    inside = Path(os.path.realpath(folder / path))
    read = inside / "config.cfg" if scheme == "spacy" else inside
    is_inside = (is_file(plain) or scheme == "spacy") and folder.resolve() in inside.parents
    is_inside = is_inside and (read.is_file() or path == KEPT)
    expected, problem = "one that is installed or in it, got one that would", None
    if is_inside and scheme == "spacy" and not trust:
        from syntaxformer.annotate.backends.spacy import foreign_part

        expected = f"in {path} what `annotator train` writes, got"
        problem = foreign_part(inside) if path == KEPT else "a pipeline that the manifest does not list"
    elif not (is_inside or trust):
        problem = _deed(plain)
    if problem is not None:
        raise CheckpointError(
            f"{folder}: annotator: expected {expected} {problem}. "
            "Name one yourself (--annotator), or trust the folder (--trust-annotator)."
        )
    return f"{before}{scheme}:{inside}{after}" if is_inside else f"{before}{plain}{after}"


def _deed(name: str) -> str | None:
    """Say what an annotator does besides using installed packages; None for nothing."""
    scheme, _, argument = name.partition(":")
    form = BACKENDS[scheme].argument if scheme in BACKENDS else ""
    subject, *settings = OPTION_START.split(argument)
    options = dict(setting.split("=", 1) for setting in settings)
    if form == "URL":
        from syntaxformer.annotate.backends.corenlp import ADDRESS_VARIABLE, server_address

        _, address, uses_variable = server_address(subject)
        password = f", with the password of ${ADDRESS_VARIABLE}" if uses_variable else ""
        return f"send every line to {address}{password}"
    names = [subject, *(options[key] for key in ("package", "dir") if key in options)]
    is_path = form == "PATH" or (form.startswith("NAME") and Path(subject).exists())
    if is_path or "dir" in options or any(re.search(r"[/\\]|^\.", path) for path in names):
        return f"read {names[-1]!r}"
    spec = find_spec(subject) if scheme == "spacy" and subject.isidentifier() else None
    installed = {get_path("purelib"), get_path("platlib"), *getsitepackages(), getusersitepackages()}
    homes = {str(Path(home).parent) for home in (spec and spec.submodule_search_locations) or ()}
    return None if homes <= installed else f"import {subject!r} from {', '.join(sorted(homes))}"


def kept_pipeline(name: str) -> Path | None:
    """The folder of a pipeline of spaCy's own parts, of which a model keeps a copy; None for others."""
    plain = split_name(name)[1]
    folder = Path(plain.removeprefix("spacy:"))
    if plain in BUNDLED or not (folder / "config.cfg").is_file():
        return None
    from syntaxformer.annotate.backends.spacy import foreign_part

    return folder if foreign_part(folder) is None else None


def stored_name(name: str) -> str:
    """The name of an annotator in a model's folder, relative to it if `keep_annotator` copies it there."""
    before, _, after = split_name(name)
    return f"{before}spacy:{KEPT}{after}" if kept_pipeline(name) else name


def keep_annotator(name: str | None, folder: Path) -> None:
    """Copy a pipeline into a model's folder, so that the model translates with it wherever the folder goes.

    Raises:
        DataError: The folder cannot be written.
    """
    if name is not None and (pipeline := kept_pipeline(name)):
        with disk_errors(folder):
            shutil.copytree(pipeline, folder / KEPT, dirs_exist_ok=True)
