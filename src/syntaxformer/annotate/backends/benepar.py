"""Phrase structure by the Berkeley neural parser: `benepar:NAME` adds constituency to another annotator.

benepar parses words but has no tokenizer and no tagger. Words, tags and dependencies come from the annotator
given as `+words=`, by default the bundled one of the model's language.
"""

# pyright: basic
# (benepar has no types.)

from __future__ import annotations

import logging
import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from importlib import import_module
from importlib.metadata import version
from itertools import accumulate
from pathlib import Path
from typing import Any

from syntaxformer.annotate.annotator import (
    Annotator,
    BatchedAnnotator,
    encodable,
    flat_tree,
    join_trees,
    load_annotator,
    read_tree,
    short_hash,
)
from syntaxformer.annotate.backends.options import positive_int, split_options
from syntaxformer.base.downloads import MODEL_SIZES
from syntaxformer.base.errors import BackendMissingError, ConfigError, DataError, one_line
from syntaxformer.base.languages import BUNDLED
from syntaxformer.trees import ROOT, Sentence, Tree, format_tree
from syntaxformer.trees.constituency import tree_over_words

OPTIONS = {"words": str, "batch": positive_int, "max_words": positive_int}
BATCH_LINES = 200
MAX_WORDS = 150
"""Words beyond which a sentence is parsed in parts; benepar's encoders take at most 512 pieces."""

_LANGUAGE = re.compile(r"benepar_([a-z]{2})")
_FAILED = (ValueError, IndexError, AssertionError, StopIteration, RuntimeError)

_log = logging.getLogger(__name__)


class BeneparParser:
    """A benepar model over the words of another annotator.

    Args:
        parser: `benepar.Parser`, or an object with its `parse_sents`.
        new_input: `benepar.InputSentence`, or a function that takes its `words` and `space_after`.
    """

    def __init__(self, parser: Any, new_input: Any, base: Annotator, max_words: int = MAX_WORDS) -> None:
        self.parser = parser
        self.new_input = new_input
        self.base = base
        self.max_words = max_words
        self.n_failed = 0

    def parse_lines(self, lines: Sequence[str]) -> list[Sentence]:
        """Return the base annotator's sentence of each line, with its phrases."""
        return self._with_trees(list(self.base.stream(lines)))

    def parse_words(self, sentences: Sequence[tuple[str, ...]]) -> list[Sentence]:
        """Return the base annotator's sentence of each list of words, with its phrases."""
        return self._with_trees(self.base.annotate_words(sentences))

    def _with_trees(self, sentences: Sequence[Sentence]) -> list[Sentence]:
        parts = [
            (number, start, stop)
            for number, sentence in enumerate(sentences)
            for start, stop in grammatical_sentences(sentence, self.max_words)
        ]
        trees: list[list[Tree]] = [[] for _ in sentences]
        for (number, start, stop), tree in zip(parts, self._trees(sentences, parts), strict=True):
            words = sentences[number].words[start:stop]
            trees[number].append(flat_tree(words) if tree is None else tree_over_words(tree, words))
        return [
            replace(sentence, constituency=format_tree(join_trees(found))) if found else sentence
            for sentence, found in zip(sentences, trees, strict=True)
        ]

    def _trees(
        self, sentences: Sequence[Sentence], parts: Sequence[tuple[int, int, int]]
    ) -> Iterator[Tree | None]:
        """Parse all parts together or, if that fails, one by one, so that only the bad ones have no tree."""
        inputs = [self._input(sentences[number], start, stop) for number, start, stop in parts]
        try:
            yield from self._parse(inputs)
        except _FAILED:
            for place, given in enumerate(inputs):
                try:
                    yield self._parse([given])[0]
                except _FAILED as error:
                    self.n_failed += 1
                    number, start, _ = parts[place]
                    _log.warning(
                        "benepar failed on %d sentence(s), which get flat trees; the last began %r: %s",
                        self.n_failed,
                        " ".join(sentences[number].words[start : start + 8]),
                        one_line(error, 120),
                    )
                    yield None

    def _parse(self, inputs: Sequence[Any]) -> list[Tree]:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", category=UserWarning, module="torch_struct")
            found = list(self.parser.parse_sents(inputs)) if inputs else []
        return [
            read_tree(tree, _label_of, lambda node: () if isinstance(node, str) else list(node))
            for tree in found
        ]

    def _input(self, sentence: Sentence, start: int, stop: int) -> Any:
        ends = [end for _, end in sentence.offsets[start:stop]]
        begins = [begin for begin, _ in sentence.offsets[start + 1 : stop]]
        words = [encodable(word) for word in sentence.words[start:stop]]
        return self.new_input(
            words=words,
            space_after=[end < begin for end, begin in zip(ends, begins, strict=False)] + [False],
            escaped_words=words,
        )


def grammatical_sentences(sentence: Sentence, max_words: int) -> Iterator[tuple[int, int]]:
    """Cut a line into grammatical sentences by its dependency trees, and long sentences into parts.

    A line without governors is one sentence.

    Yields:
        Start and end (exclusive) of each part, in words.
    """
    n_words = len(sentence)
    arcs = list(enumerate(sentence.governors or range(-1, n_words - 1)))
    reach = [0] * n_words
    for word, governor in arcs:
        if governor != ROOT:
            left, right = sorted((word, governor))
            reach[left] = max(reach[left], right)
    start = 0
    for word, furthest in enumerate(accumulate(reach, max)):
        # Every arc that begins here or before has ended: none spans the gap after this word.
        if furthest <= word:
            for first in range(start, word + 1, max_words):
                yield first, min(first + max_words, word + 1)
            start = word + 1


def _label_of(node: Any) -> str:
    return node if isinstance(node, str) else str(node.label())


def load_benepar(argument: str) -> BatchedAnnotator:
    """Load a model: "benepar_en3", "benepar_de2+words=spacy:de_core_news_sm", "/models/my_parser+words=en".

    Options: `words` (the annotator that gives words, tags and dependencies), `batch` (lines at once),
    `max_words` (longer sentences are parsed in parts).

    Raises:
        ConfigError: An option is wrong, or `words` is missing and no bundled annotator fits the model.
        BackendMissingError: The package or the model is not installed.
        DataError: The file or folder is no model.
    """
    name, options = split_options("benepar", argument, OPTIONS)
    try:
        import benepar
    except ImportError as error:
        raise BackendMissingError("the package benepar", "python -m pip install benepar") from error
    with _special_pieces():
        parser = _load(benepar, name)
    base = load_annotator(options.get("words") or _language_of(name))
    batched = BeneparParser(parser, benepar.InputSentence, base, options.get("max_words", MAX_WORDS))
    return BatchedAnnotator(
        batched,
        f"benepar:{argument}",
        f"benepar-{version('benepar')}+{_hash(name)}+w{batched.max_words}+{base.version}",
        base.provides | {"constituency"},
        batch_lines=options.get("batch", BATCH_LINES),
    )


def _load(benepar: Any, name: str) -> Any:
    is_path = "/" in name or Path(name).exists()
    if is_path and not Path(name).exists():
        raise DataError("annotator: expected a benepar model, found none.", name)
    try:
        return benepar.Parser(name)
    except LookupError as error:
        if is_path:
            raise DataError(f"annotator: expected a benepar model, got: {error!r}.", name) from error
        command = f'python -c "import benepar; benepar.download({name!r})"  # {MODEL_SIZES["benepar"]}'
        raise BackendMissingError(f"the benepar model {name!r}", command) from error
    except (OSError, RuntimeError, ValueError, AttributeError, TypeError) as error:
        raise DataError(f"annotator: expected a benepar model, got: {one_line(error)}.", name) from error


def _language_of(name: str) -> str:
    found = _LANGUAGE.search(Path(name).name)
    if found is None or found[1] not in BUNDLED:
        raise ConfigError(
            f"annotator benepar: expected +words=ANNOTATOR after {name!r}, got none, and no pipeline for its "
            "language is bundled. Give one that tokenizes it, such as +words=spacy:NAME."
        )
    return found[1]


def _hash(name: str) -> str:
    if "/" not in name and not Path(name).exists():
        import nltk.data

        name = str(nltk.data.find(f"models/{name}").path)  # type: ignore[attr-defined]
    return short_hash(Path(name))


@contextmanager
def _special_pieces() -> Iterator[None]:
    """Give tokenizers, while a model is loaded, a method that benepar 0.2 calls and transformers 5 lacks."""
    tokenizers = import_module("benepar.retokenization").transformers.PreTrainedTokenizerBase
    name = "build_inputs_with_special_tokens"
    if hasattr(tokenizers, name):
        yield
        return
    setattr(tokenizers, name, _between_specials)
    try:
        yield
    finally:
        delattr(tokenizers, name)


def _between_specials(tokenizer: Any, ids: list[int], _: list[int] | None = None) -> list[int]:
    """Put ids between the tokenizer's special pieces, as it does with the pieces of a text."""
    encoded = tokenizer("a", return_special_tokens_mask=True)
    mask = encoded["special_tokens_mask"]
    first, last = mask.index(0), len(mask) - mask[::-1].index(0)
    return [*encoded["input_ids"][:first], *ids, *encoded["input_ids"][last:]]
