"""Annotation with spaCy: the bundled pipelines and any installed one.

Wrapped so that one line gives one `Sentence`: several sentences on a line are several roots, white space is
no word, blank lines do not reach the pipeline, very long lines go through it in parts.
"""

# pyright: basic
# (spaCy has no complete types.)

from __future__ import annotations

import re
import threading
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import spacy
from spacy.language import Language
from spacy.tokens import Doc

from syntaxformer.annotate.annotator import (
    ListsSentences,
    blank_sentence,
    check_words,
    encodable,
    short_enough,
)
from syntaxformer.annotate.bundled import bundled_folder, pipeline_version
from syntaxformer.annotate.parallel import chunks_of, stream_in_processes
from syntaxformer.annotate.segments import segments_of
from syntaxformer.annotate.spacy_docs import DocReader, Part
from syntaxformer.errors import BackendMissingError, DataError
from syntaxformer.trees import Sentence

__all__ = ["SpacyAnnotator", "load_bundled", "load_spacy"]

BATCH_SIZE, BATCH_WORDS = 256, 4000
"""Documents that a pipeline works on at once, and their words, each of which costs 37 KB meanwhile."""

MAX_WORDS = 20_000
"""Words of a document; the parser alone holds 13 KB for each."""

LINES_PER_ZONE, CHARACTERS_PER_ZONE = 2000, 2_000_000
"""Lines after which spaCy forgets the words that it met, so that memory stays constant over millions."""

_LOCAL = re.compile(r"spacy\.\w+WindowEncoder\.v\d spacy\.\w+Embed\.v\d")
"""Encoder and embedding of vectors that depend on a few words to each side."""

# Components that no column of `Sentence` comes from.
_UNUSED = {
    *("ner", "beam_ner", "entity_linker", "entity_ruler", "senter", "textcat", "textcat_multilabel"),
    *("spancat", "spancat_singlelabel", "span_finder", "span_ruler"),
}
_PROVIDED_BY = {
    "morphologizer": {"upos"},
    "attribute_ruler": {"upos"},
    "tagger": {"xpos"},
    "parser": {"governors", "deprels"},
    "beam_parser": {"governors", "deprels"},
    "experimental_biaffine_parser": {"governors", "deprels"},
    "lemmatizer": {"lemmas"},
    "trainable_lemmatizer": {"lemmas"},
    "experimental_edit_tree_lemmatizer": {"lemmas"},
}
_SEPARATE = {"governors", "deprels", "lemmas"}
"""Columns whose components no other one builds on."""


class SpacyAnnotator(ListsSentences):
    """A spaCy pipeline as an annotator; safe to share between threads, which then wait for each other.

    Args:
        nlp: The pipeline. Components that no column needs are switched off.
        name: The name that `load_annotator` loads it by, in this and in worker processes.
        version: Changes with the pipeline.
    """

    def __init__(self, nlp: Language, name: str, version: str) -> None:
        factories = [(pipe, nlp.get_pipe_meta(pipe).factory) for pipe in nlp.pipe_names]
        for pipe, factory in factories:
            if factory in _UNUSED:
                nlp.disable_pipe(pipe)
        self.nlp = nlp
        self.name = name
        self.version = version
        self.provides = frozenset(
            column for _, factory in factories for column in _PROVIDED_BY.get(factory, ())
        )
        self._reader = DocReader(nlp.vocab.strings, self.provides)
        self._reach = _reach(nlp)
        self._lock = threading.Lock()

    def limited_to(self, columns: Collection[str]) -> SpacyAnnotator:
        """Switch off parser and lemmatizer where no column of theirs is wanted; tags stay the same.

        Args:
            columns: What will be read: "upos", "governors", …

        Returns:
            This annotator, which from now on provides less.
        """
        unwanted: set[str] = set()
        for pipe in self.nlp.pipe_names:
            given = _PROVIDED_BY.get(self.nlp.get_pipe_meta(pipe).factory, set())
            if given and given <= _SEPARATE and given.isdisjoint(columns):
                self.nlp.disable_pipe(pipe)
                unwanted |= given
        self.provides = self.provides - unwanted
        self._reader = DocReader(self.nlp.vocab.strings, self.provides)
        return self

    def stream(self, lines: Iterable[str], *, n_processes: int = 1) -> Iterator[Sentence]:
        """Yield one sentence for each line, in order, in constant memory.

        Args:
            lines: Any text, without its line end.
            n_processes: Worker processes; 1 works in this one.

        Raises:
            SyntaxformerError: A worker process died, or a line has over 100,000 words.
        """
        lines = short_enough(lines)
        if n_processes > 1:
            yield from stream_in_processes(self.name, lines, n_processes)
            return
        for chunk in chunks_of(lines, LINES_PER_ZONE, CHARACTERS_PER_ZONE):
            yield from self._annotate_chunk(chunk)

    def annotate_words(self, sentences: Iterable[Sequence[str]]) -> list[Sentence]:
        """Return one sentence for each list of words, with exactly these words; the text is them with spaces.

        Raises:
            ValueError: A word is empty or holds white space.
        """
        checked = check_words(sentences)
        with self._zone():
            docs = (
                Doc(self.nlp.vocab, words=[encodable(word) for word in words]) for words in checked if words
            )
            parts = iter([self._reader.read(doc) for doc in self._parsed(docs)])
        return [self._sentence(" ".join(words), [next(parts)] if words else []) for words in checked]

    def _annotate_chunk(self, lines: Sequence[str]) -> list[Sentence]:
        parts: list[list[Part]] = [[] for _ in lines]
        places: deque[tuple[int, int]] = deque()
        with self._zone():
            for doc in self._parsed(self._docs(lines, places)):
                number, start = places.popleft()
                parts[number].append(self._reader.read(doc, start))
        return [self._sentence(line, found) for line, found in zip(lines, parts, strict=True)]

    def _docs(self, lines: Sequence[str], places: deque[tuple[int, int]]) -> Iterator[Doc]:
        """Documents of lines; the number of its line and its first character there go to `places`."""
        for number, line in enumerate(lines):
            for start, segment in segments_of(line):
                if segment and not segment.isspace():
                    doc = self.nlp.make_doc(encodable(segment))
                    for first in range(0, len(doc), MAX_WORDS):
                        places.append((number, start + doc[first].idx))
                        yield doc if len(doc) <= MAX_WORDS else doc[first : first + MAX_WORDS].as_doc()

    def _parsed(self, docs: Iterable[Doc]) -> Iterator[Doc]:
        """Documents with their tags and trees, some at a time; a very long one gets its vectors before."""
        for batch in chunks_of(docs, BATCH_SIZE, BATCH_WORDS):
            before = []
            if self._reach is not None and len(batch[0]) > BATCH_WORDS:
                batch[0].tensor = self._vectors(batch[0], self._reach)
                before = ["tok2vec"]
            yield from self.nlp.pipe(batch, batch_size=BATCH_SIZE, disable=before)

    def _vectors(self, doc: Doc, reach: int) -> Any:
        """Vectors of the words, made a thousand at a time with all words beside these that they depend on."""
        model, parts = self.nlp.get_pipe("tok2vec").model, []
        for first in range(0, len(doc), 1000):
            start = max(0, first - reach)
            (found,) = model.predict([doc[start : first + 1000 + reach].as_doc()])
            parts.append(found[first - start :][:1000])
        return model.ops.xp.concatenate(parts)

    def _sentence(self, line: str, parts: list[Part]) -> Sentence:
        return self._reader.sentence(line, parts) if parts else blank_sentence(line, self.provides)

    def _zone(self) -> AbstractContextManager[Any]:
        return _LockedZone(self._lock, self.nlp.memory_zone())


def _reach(nlp: Language) -> int | None:
    """On how many words to each side the vector of a word depends; None where it may be on all."""
    config = nlp.config["components"].get("tok2vec", {}).get("model", {})
    encoder = config.get("encode", {})
    kinds = f"{encoder.get('@architectures')} {config.get('embed', {}).get('@architectures')}"
    is_known = nlp.pipe_names[:1] == ["tok2vec"] and _LOCAL.match(kinds)
    return encoder["window_size"] * encoder["depth"] if is_known else None


class _LockedZone(AbstractContextManager[None]):
    """spaCy's memory zone is one for the whole pipeline: one thread at a time."""

    def __init__(self, lock: threading.Lock, zone: AbstractContextManager[Any]) -> None:
        self.lock = lock
        self.zone = zone

    def __enter__(self) -> None:
        self.lock.acquire()
        self.zone.__enter__()

    def __exit__(self, *error: Any) -> None:
        try:
            self.zone.__exit__(*error)
        finally:
            self.lock.release()


def load_bundled(language: str) -> SpacyAnnotator:
    """Load a pipeline that comes with the package.

    Raises:
        BackendMissingError: The package was installed without it.
    """
    return _from_folder(bundled_folder(language), language)


def load_spacy(name: str) -> SpacyAnnotator:
    """Load an installed pipeline by its package name, or one in a folder by its path.

    Raises:
        BackendMissingError: No such package is installed.
        DataError: The folder holds no pipeline that spaCy can load.
    """
    if Path(name).exists() or "/" in name:
        return _from_folder(Path(name), f"spacy:{name}")
    if not spacy.util.is_package(name):
        raise BackendMissingError(f"the spaCy pipeline {name!r}", f"python -m spacy download {name}")
    nlp = spacy.load(name)
    package = spacy.util.get_package_path(name)
    return SpacyAnnotator(nlp, f"spacy:{name}", pipeline_version(nlp.meta, package))


def _from_folder(folder: Path, name: str) -> SpacyAnnotator:
    try:
        nlp = spacy.load(folder)
    except (OSError, ValueError) as error:
        reason = str(error).split("\n")[0]
        raise DataError(
            f"annotator: expected a folder with a spaCy pipeline, got: {reason}", folder
        ) from error
    return SpacyAnnotator(nlp, name, pipeline_version(nlp.meta, folder))
