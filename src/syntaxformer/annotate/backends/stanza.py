"""Annotation with Stanza's pipelines, for the 60 and more languages that have one.

Its tokenizer and sentence splitter run first, then all other processors on the sentences of many lines
together. Models must be installed: nothing is downloaded without the user's knowledge.
"""

# pyright: basic
# (Stanza has no complete types.)

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from syntaxformer.annotate.annotator import (
    SHORT_HASH,
    BatchedAnnotator,
    ParsedSentence,
    encodable,
    join_parsed,
    segments_of,
    short_hash,
)
from syntaxformer.annotate.backends import positive_int, split_options
from syntaxformer.base.config import nearest
from syntaxformer.base.downloads import MODEL_SIZES
from syntaxformer.base.errors import BackendMissingError, ConfigError, SyntaxformerError, one_line
from syntaxformer.trees import ROOT, Sentence, Tree
from syntaxformer.trees.constituency import tree_over_words

OPTIONS = {"package": str, "dir": str, "device": str, "batch": positive_int, "max_words": positive_int}
BATCH_LINES = 200
MAX_WORDS = 500
"""Words beyond which a sentence is parsed in parts: the parser's memory grows with their square."""

_TOKENIZERS = "tokenize,mwt"
_OTHERS = "pos,lemma,depparse,constituency"
_PROVIDED_BY = {
    "pos": ("upos", "xpos", "feats"),
    "lemma": ("lemmas",),
    "depparse": ("governors", "deprels"),
    "constituency": ("constituency",),
}
_TAGS = {"upos": "upos", "xpos": "xpos", "lemmas": "lemma", "feats": "feats", "deprels": "deprel"}


class StanzaParser:
    """A Stanza pipeline that takes batches of lines.

    Args:
        pipeline: `stanza.Pipeline`, or an object with its `bulk_process`, `process` and `processors`.
        new_document: `stanza.Document`, or a function that takes the same lists of words.
    """

    def __init__(self, pipeline: Any, new_document: Any, max_words: int = MAX_WORDS) -> None:
        self.pipeline = pipeline
        self.new_document = new_document
        self.max_words = max_words
        self.provides = frozenset(
            column for processor in pipeline.processors for column in _PROVIDED_BY.get(processor, ())
        )

    def parse_lines(self, lines: Sequence[str]) -> list[Sentence]:
        """Return one sentence for each line; SyntaxformerError if Stanza failed."""
        segments = [
            (number, start, segment)
            for number, line in enumerate(lines)
            for start, segment in segments_of(line)
            if segment.strip()
        ]
        texts = [encodable(segment) for _, _, segment in segments]
        documents = self._run(self.pipeline.bulk_process, texts, _TOKENIZERS)
        parsed: list[list[ParsedSentence]] = [[] for _ in lines]
        for (number, start, _), document in zip(segments, documents, strict=True):
            for sentence in document.sentences:
                words, spans = _words_of(sentence, lines[number], start)
                parsed[number].extend(self._parts(words, spans))
        return self._parse(lines, parsed)

    def parse_words(self, sentences: Sequence[tuple[str, ...]]) -> list[Sentence]:
        """Return one sentence for each list of words; SyntaxformerError if Stanza failed."""
        bare = [Sentence.from_words(words) for words in sentences]
        parsed = [list(self._parts(list(line.words), list(line.offsets))) for line in bare]
        return self._parse([line.text for line in bare], parsed)

    def _parts(self, words: list[str], spans: list[tuple[int, int]]) -> Iterator[ParsedSentence]:
        for start in range(0, len(words), self.max_words):
            stop = start + self.max_words
            yield ParsedSentence(words[start:stop], spans[start:stop], {})

    def _parse(self, lines: Sequence[str], parsed: Sequence[Sequence[ParsedSentence]]) -> list[Sentence]:
        """Tag and parse the sentences of all lines together, and join those of each."""
        if sentences := list(chain.from_iterable(parsed)):
            content = [
                [{"id": (number,), "text": encodable(word)} for number, word in enumerate(sentence.words, 1)]
                for sentence in sentences
            ]
            document = self._run(self.pipeline.process, self.new_document(content), _OTHERS)
            for sentence, analysis in zip(sentences, document.sentences, strict=True):
                _fill(sentence, analysis, self.provides)
        return [join_parsed(line, parts, self.provides) for line, parts in zip(lines, parsed, strict=True)]

    def _run(self, function: Any, argument: Any, processors: str) -> Any:
        try:
            return function(argument, processors=processors)
        except (RuntimeError, ValueError, IndexError, KeyError, AssertionError) as error:
            raise SyntaxformerError(
                f"stanza: expected an analysis, got {type(error).__name__}: {one_line(error)}. "
                "Use fewer lines at once (+batch=20) or shorter parts (+max_words=100) if memory ran out."
            ) from error


def _words_of(sentence: Any, line: str, start: int) -> tuple[list[str], list[tuple[int, int]]]:
    """Words and their spans; words of a multiword token that have no span of their own get the token's."""
    words: list[str] = []
    spans: list[tuple[int, int]] = []
    for token in sentence.tokens:
        for word in token.words:
            first, last = word.start_char, word.end_char
            if first is None or last is None:
                first, last = token.start_char, token.end_char
            span = (start + first, start + last)
            # Stanza shortens very long tokens to "<UNK>" and cleans white space, so the text is used.
            words.append(" ".join(line[slice(*span)].split()) if len(token.words) == 1 else word.text)
            spans.append(span)
    return words, spans


def _fill(sentence: ParsedSentence, parse: Any, provides: frozenset[str]) -> None:
    sentence.tags = {name: [getattr(word, tag) for word in parse.words] for name, tag in _TAGS.items()}
    if "governors" in provides:
        sentence.governors = [ROOT if not word.head else int(word.head) - 1 for word in parse.words]
    if "constituency" in provides and parse.constituency is not None:
        sentence.tree = tree_over_words(copy_tree(parse.constituency), sentence.words)


def copy_tree(top: Any) -> Tree:
    """Copy a tree of Stanza's, whose leaves are the nodes without children."""
    copies, order = dict[int, Tree | str](), [top]
    for node in order:  # grows while it is walked, parents before children
        order.extend(node.children)
    for node in reversed(order):
        label, parts = str(node.label or ""), tuple(copies[id(child)] for child in node.children)
        copies[id(node)] = Tree(label, parts) if parts else label
    tree = copies[id(top)]
    return tree if isinstance(tree, Tree) else Tree("", (tree,))


def load_stanza(argument: str) -> BatchedAnnotator:
    """Load the models of a language: "en", "de+package=gsd", "en+dir=/models+device=cuda".

    Options: `package` (a treebank's models), `dir` (where models are), `device`, `batch` (lines at once),
    `max_words` (longer sentences are parsed in parts).

    Raises:
        ConfigError: Stanza has no such language or package, or an option is wrong.
        BackendMissingError: The package or the models are not installed.
    """
    language, options = split_options("stanza", argument, OPTIONS)
    try:
        import stanza
    except ImportError as error:
        raise BackendMissingError("the package stanza", "python -m pip install stanza") from error
    pipeline = _pipeline(stanza, language, options)
    parser = StanzaParser(pipeline, stanza.Document, options.get("max_words", MAX_WORDS))
    models = {Path(value) for value in pipeline.config.values() if str(value).endswith(".pt")}
    hashes = sorted(f"{path.parent.name}/{path.name}:{short_hash(path)}" for path in models if path.is_file())
    digest = hashlib.sha256("\n".join(hashes).encode()).hexdigest()[:SHORT_HASH]
    version = f"stanza-{stanza.__version__}+{language}-{digest}+w{parser.max_words}"
    batch_lines = options.get("batch", BATCH_LINES)
    return BatchedAnnotator(parser, f"stanza:{argument}", version, parser.provides, batch_lines=batch_lines)


def _pipeline(stanza: Any, language: str, options: dict[str, Any]) -> Any:
    package, folder = options.get("package", "default"), options.get("dir")
    keywords = {key: options[key] for key in ("dir", "device") if key in options}
    listed = _listed(folder)
    try:
        return stanza.Pipeline(
            language,
            processors=",".join(_offered(listed, language, package)),
            package=package,
            download_method=None,
            verbose=False,
            **keywords,
        )
    except (FileNotFoundError, ValueError, KeyError, TypeError) as error:
        if listed and language not in listed:
            raise ConfigError(
                f"annotator stanza: expected a language of Stanza {stanza.__version__}, got {language!r}. "
                f"{nearest(language, list(listed))}"
            ) from error
        settings = f", package={package!r}" if "package" in options else ""
        settings += f", model_dir={folder!r}" if "dir" in options else ""
        reason = f" ({one_line(error, 160)})" if isinstance(error, ValueError | TypeError) else ""
        raise BackendMissingError(
            f"the Stanza models of {language!r}{reason}",
            f'python -c "import stanza; stanza.download({language!r}{settings})"  # {MODEL_SIZES["stanza"]}',
        ) from error


def _listed(folder: str | None) -> dict[str, Any]:
    """Stanza's own list of languages and their models, if it was downloaded; it also names its address."""
    from stanza.resources.common import DEFAULT_MODEL_DIR

    try:
        listed = json.loads((Path(folder or DEFAULT_MODEL_DIR) / "resources.json").read_text("utf-8"))
        return {language: models for language, models in listed.items() if isinstance(models, dict)}
    except (OSError, ValueError, RecursionError, AttributeError):
        return {}


def _offered(listed: dict[str, Any], language: str, package: str) -> list[str]:
    """The processors that a language has, since Stanza looks for the files of every one that is requested."""
    models = listed.get(language, {})
    models = listed.get(models.get("alias", ""), models)
    names = ["tokenize", *_OTHERS.split(",")]
    of_package = models.get("packages", {}).get(package, {})
    return [name for name in names if name in of_package or package in models.get(name, {})] or names
