"""Annotation by a running Stanford CoreNLP server, the parser of paper 002: `corenlp:http://localhost:9000`.

Many lines go in one request, several requests at a time; the server's sentences are led back to their lines.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from syntaxformer.annotate.annotator import encodable
from syntaxformer.annotate.backend_options import positive_int, positive_number, split_options
from syntaxformer.annotate.batched import BatchedAnnotator
from syntaxformer.annotate.corenlp_client import CoreNLPClient, ServerRefusedError
from syntaxformer.annotate.corenlp_json import TagSet, read_sentences, tag_set_of
from syntaxformer.annotate.parsed import ParsedSentence, join_parsed, tree_over_words
from syntaxformer.annotate.segments import segments_of
from syntaxformer.errors import DataError, TreeError
from syntaxformer.trees import Sentence

__all__ = ["CoreNLPParser", "load_corenlp"]

OPTIONS = {
    "language": str,
    "annotators": str,
    "timeout": positive_number,
    "retries": positive_int,
    "threads": positive_int,
    "batch": positive_int,
}
BATCH_LINES = 32
TIMEOUT_S = 120.0
RETRIES = 2
MAX_CHARACTERS = 20_000
"""Characters of a request; a server's own limit is 100,000 unless it was started with another."""

_ENGLISH = "tokenize,ssplit,pos,lemma,depparse,parse"
_OTHERS = "tokenize,ssplit,mwt,pos,depparse,parse"
_BETWEEN_LINES = "\n\n"
_TEXT = {"ssplit.newlineIsSentenceBreak": "two"}
_WORDS = {"tokenize.whitespace": "true", "ssplit.eolonly": "true"}
# What a server would take for the end of a line, or a whitespace tokenizer for the end of a word.
_LINE_ENDS = re.compile("[\0\n\r\v\f\x1c-\x1e\x85\u2028\u2029]")
_SPACES = re.compile(r"[\s\0\u200b\ufeff]")
_PROBE = "The quick dogs (two) can't bark, I said."


class CoreNLPParser:
    """A server that takes batches of lines.

    Args:
        client: Knows the server.
        language: CoreNLP's name of a language whose models to use; None for the server's own.
        annotators: CoreNLP's annotators, with commas between.

    Raises:
        SyntaxformerError: There is no server, or no usable answer to an example.
    """

    def __init__(self, client: CoreNLPClient, language: str | None, annotators: str) -> None:
        self.client = client
        self.language = language
        self.annotators = annotators
        self.tag_set: TagSet = "other"
        self.example = self._ask(_PROBE, annotators, _TEXT)
        (found,) = read_sentences(self.example, _PROBE, [0], self.tag_set)
        self.tag_set = tag_set_of([tag for one in found for tag in one.tags["xpos"]], language)
        self.provides = _provided(found, self.tag_set)

    def parse_lines(self, lines: Sequence[str]) -> list[Sentence]:
        """Return one sentence for each line, with the words and sentences that the server finds in it.

        Raises:
            SyntaxformerError: The server failed, or its answer does not fit the lines.
        """
        places = [
            (number, start, _LINE_ENDS.sub(" ", encodable(part)))
            for number, line in enumerate(lines)
            for start, part in segments_of(line, MAX_CHARACTERS)
        ]
        parsed: list[list[ParsedSentence]] = [[] for _ in lines]
        for first, last in _requests([text for _, _, text in places]):
            here = places[first:last]
            found = self._analyse([text for _, _, text in here], self.annotators, _TEXT, _BETWEEN_LINES)
            for (number, start, _), sentences in zip(here, found, strict=True):
                parsed[number].extend(_placed(sentence, lines[number], start) for sentence in sentences)
        return [self._join(line, found) for line, found in zip(lines, parsed, strict=True)]

    def parse_words(self, sentences: Sequence[tuple[str, ...]]) -> list[Sentence]:
        """Return one sentence for each list of words, with exactly these words.

        Raises:
            SyntaxformerError: The server failed, or cut the words in another way.
        """
        texts = [" ".join(_SPACES.sub("_", encodable(word)) for word in words) for words in sentences]
        annotators = ",".join(part for part in self.annotators.split(",") if part.strip() != "mwt")
        parsed: list[list[ParsedSentence]] = []
        for first, last in _requests(texts):
            parsed.extend(self._analyse(texts[first:last], annotators, _WORDS, "\n"))
        joined: list[Sentence] = []
        for words, found in zip(sentences, parsed, strict=True):
            given = Sentence.from_words(words)
            spans = tuple(span for sentence in found for span in sentence.spans)
            if spans != given.offsets:
                raise DataError(
                    f"corenlp: expected the {len(words)} words of {given.text[:60]!r}, got {len(spans)} "
                    "others. The server does not honour tokenize.whitespace."
                )
            remaining = iter(words)
            for sentence in found:
                sentence.words = [next(remaining) for _ in sentence.words]
            joined.append(self._join(given.text, found))
        return joined

    def _join(self, line: str, found: Sequence[ParsedSentence]) -> Sentence:
        try:
            return join_parsed(line, found, self.provides)
        except TreeError as error:
            raise DataError(f"corenlp: analysis of {line[:60]!r}: {error}") from error

    def _analyse(
        self, texts: Sequence[str], annotators: str, properties: dict[str, str], between: str
    ) -> list[list[ParsedSentence]]:
        """Send some texts at once; where the server refuses that, in halves, down to a single one."""
        text = between.join(texts)
        starts = [0]
        for one in texts[:-1]:
            starts.append(starts[-1] + len(one) + len(between))
        try:
            content = self._ask(text, annotators, properties)
        except ServerRefusedError as error:
            if len(texts) == 1:
                raise ServerRefusedError(f"{error} The text: {text[:60]!r}.") from error
            half = len(texts) // 2
            return [
                *self._analyse(texts[:half], annotators, properties, between),
                *self._analyse(texts[half:], annotators, properties, between),
            ]
        return read_sentences(content, text, starts, self.tag_set)

    def _ask(self, text: str, annotators: str, properties: dict[str, str]) -> dict[str, Any]:
        return self.client.analyse(text, {"annotators": annotators, **properties}, self.language)


def _placed(sentence: ParsedSentence, line: str, start: int) -> ParsedSentence:
    """Move a sentence of a part to its place in the line, with the characters that could not be sent."""
    spans = [(begin + start, end + start) for begin, end in sentence.spans]
    words = [
        line[slice(*span)] if encodable(line[slice(*span)]) == word else word
        for word, span in zip(sentence.words, spans, strict=True)
    ]
    tree = sentence.tree
    if tree is not None and words != sentence.words:
        tree = tree_over_words(tree, words)
    return replace(sentence, words=words, spans=spans, tree=tree)


def _requests(texts: Sequence[str]) -> list[tuple[int, int]]:
    """Cut texts into runs of at most `MAX_CHARACTERS`, one text at least."""
    runs: list[tuple[int, int]] = []
    first = size = 0
    for place, text in enumerate(texts):
        if place > first and size + len(text) > MAX_CHARACTERS:
            runs.append((first, place))
            first, size = place, 0
        size += len(text)
    return [*runs, (first, len(texts))]


def _provided(found: Sequence[ParsedSentence], tag_set: TagSet) -> frozenset[str]:
    def has(column: str) -> bool:
        return any(value is not None for sentence in found for value in sentence.tags[column])

    columns = {column for column in ("xpos", "lemmas") if has(column)}
    if "xpos" in columns and tag_set != "other":
        columns.add("upos")
    if any(sentence.governors is not None for sentence in found):
        columns |= {"governors", "deprels"}
    if any(sentence.tree is not None for sentence in found):
        columns.add("constituency")
    return frozenset(columns)


def load_corenlp(argument: str) -> BatchedAnnotator:
    """Use a running server: "http://localhost:9000", "https://user:password@host/path+language=german".

    Options: `language` (CoreNLP's name; by default the server's own), `annotators`, `timeout` (seconds),
    `retries`, `threads` (requests at a time), `batch` (lines in a request).

    The name that is stored and shown has no path, user and password; `$SYNTAXFORMER_CORENLP` may hold the
    whole address instead.

    Raises:
        ConfigError: The address or an option is wrong.
        BackendMissingError: No server answers; names the command that starts one.
        SyntaxformerError: The server refuses, is late, or is no CoreNLP.
    """
    url, options = split_options("corenlp", argument, OPTIONS)
    client = CoreNLPClient(url, options.get("timeout", TIMEOUT_S), options.get("retries", RETRIES))
    language: str | None = options.get("language")
    english = language in (None, "en", "english")
    parser = CoreNLPParser(client, language, options.get("annotators", _ENGLISH if english else _OTHERS))
    settings = "".join(f"+{key}={options[key]}" for key in ("language", "annotators") if key in options)
    return BatchedAnnotator(
        parser,
        f"corenlp:{client.place}{settings}",
        f"corenlp+{_fingerprint(parser)}",
        parser.provides,
        batch_lines=options.get("batch", BATCH_LINES),
        threads=options.get("threads", 1),
    )


def _fingerprint(parser: CoreNLPParser) -> str:
    """A server does not tell its version: what it was asked, where, and what it said to an example."""
    asked = [parser.client.path, parser.language, parser.annotators, parser.example]
    return hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()[:12]
