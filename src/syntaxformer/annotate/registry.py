"""Annotators by name. Their modules are imported only when they are loaded."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import Any, cast
from uuid import uuid4

from syntaxformer.annotate.annotator import (
    SHORT_HASH,
    Annotator,
    SpacedWords,
    bundled_folder,
    check_words,
    chunks_of,
    pipeline_version,
)
from syntaxformer.annotate.backends import BACKENDS
from syntaxformer.annotate.controls import Control
from syntaxformer.annotate.store import AnnotatedBefore
from syntaxformer.annotate.wrappers import WordsAsGiven, with_constituency
from syntaxformer.base.errors import ConfigError, DataError
from syntaxformer.base.languages import (
    BUNDLED,
    CONTROL,
    CONTROLS,
    LANGUAGE_NAMES,
    PHRASES,
    SPACES,
    language_of,
)
from syntaxformer.trees import Sentence
from syntaxformer.trees.sentence import COLUMNS


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
    limit = getattr(annotator, "limited_to", None)
    if isinstance(name, str) and only is not None and limit is not None:  # the user's own object stays whole
        annotator = cast("Annotator", limit(only))
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

    def __init__(self, given: Any) -> None:
        if not (hasattr(given, "name") and hasattr(given, "annotate")):
            expected = "a name, or an object with `name` and `annotate`"
            raise TypeError(f"annotator: expected {expected}, got {type(given).__name__}.")
        self.given, self.name = given, str(given.name)
        self.version = str(getattr(given, "version", f"unversioned-{uuid4().hex[:SHORT_HASH]}"))
        if (provides := getattr(given, "provides", None)) is None:
            (tried,) = given.annotate(["A dog barks ."])
            provides = [column for column in COLUMNS if getattr(tried, column) is not None]
        self.provides = frozenset(provides)

    def annotate_words(self, sentences: Iterable[Sequence[str]]) -> list[Sentence]:
        """As every annotator does; DataError if the object, without such a method, splits words further."""
        words = check_words(sentences)
        if (method := getattr(self.given, "annotate_words", None)) is not None:
            return list(method(words))
        annotated = super().annotate_words(words)
        for expected_words, sentence in zip(words, annotated, strict=True):
            if sentence.words != expected_words:
                expected, got = (repr(" ".join(side)[:40]) for side in (expected_words, sentence.words))
                message = (
                    f"expected exactly the words {expected}, got {got}. Give it a method `annotate_words`."
                )
                raise DataError(f"annotator {self.name}: {message}")
        return annotated

    def stream(self, lines: Iterable[str], *, n_processes: int = 1) -> Iterator[Sentence]:
        """Yield one sentence for each line, in this process; DataError if the object gives others."""
        for chunk in chunks_of(lines, 1000):
            sentences = list(self.given.annotate(chunk))
            if [sentence.text for sentence in sentences] != chunk:
                expected = f"{len(chunk)} sentences with the texts of their lines, got {len(sentences)}"
                raise DataError(f"annotator {self.name}: expected {expected} or others.")
            yield from sentences
