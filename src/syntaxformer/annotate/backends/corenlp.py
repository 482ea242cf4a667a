"""Annotation by a running Stanford CoreNLP server, the parser of Bai et al. (2021): `corenlp:http://localhost:9000`.

Each line is one request. The path, user and password of the address appear in no name, message or log.
"""

# pyright: basic
# (A server's JSON has no types.)

from __future__ import annotations

import json
import logging
import os
import re
import time
import weakref
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import quote

import httpx

from syntaxformer.annotate.annotator import (
    BatchedAnnotator,
    ParsedSentence,
    encodable,
    hash_lines,
    join_parsed,
)
from syntaxformer.annotate.backends import positive_int, positive_number, split_options
from syntaxformer.base.errors import BackendMissingError, ConfigError, DataError, SyntaxformerError, TreeError
from syntaxformer.trees import ROOT, Sentence, parse_tree
from syntaxformer.trees.constituency import tree_over_words

ADDRESS_VARIABLE = "SYNTAXFORMER_CORENLP"
"""Environment variable for the full address of a server, for passwords and secret paths."""
PAUSE_S = 0.5  # before the first retry; each further one waits twice as long
OPTIONS = {"language": str, "annotators": str, "timeout": positive_number}
OPTIONS |= dict.fromkeys(("retries", "threads"), positive_int)
_START = "java -mx4g -cp '*' edu.stanford.nlp.pipeline.StanfordCoreNLPServer -port {port} -timeout 60000"
_ENGLISH, _OTHERS = "tokenize,ssplit,pos,lemma,depparse,parse", "tokenize,ssplit,mwt,pos,depparse,parse"
_HEADERS = {"Content-Type": "application/x-www-form-urlencoded;charset=UTF-8"}
_CUTS = re.compile(r"[^\S ]|[\0\u200b\ufeff]")  # within a given word, for the server's whitespace tokenizer
_log = logging.getLogger(__name__)
# httpx logs the whole address of a request; ours are recognised by the property outputFormat.
logging.getLogger("httpx").addFilter(lambda record: "outputFormat" not in record.getMessage())

_PENN_TAGS = {
    "ADJ": "JJ JJR JJS",
    "ADP": "IN RP",
    "ADV": "RB RBR RBS WRB",
    "AUX": "MD",
    "CCONJ": "CC",
    "DET": "DT PDT WDT",
    "INTJ": "UH",
    "NOUN": "NN NNS",
    "NUM": "CD",
    "PART": "POS TO",
    "PRON": "EX PRP PRP$ WP WP$",
    "PROPN": "NNP NNPS",
    "PUNCT": "'' `` , . : -LRB- -RRB- HYPH NFP",
    "SYM": "# $ SYM",
    "VERB": "VB VBD VBG VBN VBP VBZ",
    "X": "ADD AFX FW GW LS XX",
}
PENN_TO_UPOS = {tag: upos for upos, tags in _PENN_TAGS.items() for tag in tags.split()}
"""UD's conversion table for English, for servers that give Penn tags; any other tag becomes X."""

_WITH_RELATION = {
    **{(tag, deprel): "AUX" for tag in _PENN_TAGS["VERB"].split() for deprel in ("aux", "cop")},
    **{(tag, deprel): "PRON" for tag in ("DT", "WDT") for deprel in ("nsubj", "obj", "obl")},
    ("IN", "mark"): "SCONJ",
    ("TO", "case"): "ADP",
    ("RB", "neg"): "PART",
}
"""Parts of speech that depend on both the tag and the relation (without its subtype)."""

_NEGATIONS = frozenset({"not", "n't", "n’t"})


class CoreNLPParser:
    """A server as a parser; the options are those of `load_corenlp`."""

    def __init__(self, address: httpx.URL, origin: str, options: dict[str, Any]) -> None:
        self.address, self.origin = address, origin
        self.timeout_s, self.retries = options.get("timeout", 120.0), options.get("retries", 2)
        self.language = {"pipelineLanguage": options["language"]} if "language" in options else {}
        self.english, self.universal = options.get("language") in (None, "en", "english"), False
        self.annotators: str = options.get("annotators", _ENGLISH if self.english else _OTHERS)
        self.n_skipped, self.provides = 0, frozenset[str]()
        self.client = httpx.Client(timeout=self.timeout_s)  # no redirects: they could leak the password
        weakref.finalize(self, self.client.close)
        self.example = example = self._read("The quick dogs (two) can't bark, I said.")
        tags = {tag for sentence in example for tag in sentence.tags["xpos"] if tag}
        self.universal = bool(tags) and tags <= {*PENN_TO_UPOS.values(), "SCONJ"}
        columns = {name for name in ("xpos", "lemmas") if any(any(each.tags[name]) for each in example)}
        columns |= {"upos"} if tags and (self.universal or self.english) else set()
        columns |= {"governors", "deprels"} if any(sentence.governors for sentence in example) else set()
        columns |= {"constituency"} if any(sentence.tree for sentence in example) else set()
        self.provides = frozenset(columns)

    def parse_lines(self, lines: Sequence[str]) -> list[Sentence]:
        """Return one sentence for each line."""
        return [self._join(line, self._read(line)) for line in lines]

    def parse_words(self, sentences: Sequence[tuple[str, ...]]) -> list[Sentence]:
        """Return one sentence for each list of words, with exactly these words."""
        annotated: list[Sentence] = []
        for bare in map(Sentence.from_words, sentences):
            annotated.append(self._join(bare.text, self._read(bare.text, as_words=True)))
            if annotated[-1].offsets != bare.offsets:
                raise DataError(
                    f"corenlp: expected the {len(bare)} words of {bare.text[:60]!r}, got "
                    f"{len(annotated[-1])} others. The server does not honour tokenize.whitespace."
                )
        return annotated

    def _join(self, line: str, sentences: Sequence[ParsedSentence]) -> Sentence:
        try:
            return join_parsed(line, sentences, self.provides)
        except TreeError as error:
            raise DataError(f"corenlp: analysis of {line[:60]!r}: {error}") from error

    def _read(self, text: str, as_words: bool = False) -> list[ParsedSentence]:
        # The server counts UTF-16 code units; this is the character of each.
        units = [at for at, character in enumerate(f"{text} ") for _ in range(1 + (ord(character) > 0xFFFF))]
        try:
            sentences = [self._sentence(raw, text, units) for raw in self._ask(text, as_words)]
        except (KeyError, TypeError, ValueError, TreeError, AttributeError) as error:
            raise DataError(
                f"corenlp: expected tokens, dependencies and trees of {text[:60]!r}, "
                f"got {type(error).__name__}: {' '.join(str(error).split()).rstrip('.')[:160]}."
            ) from error
        return [sentence for sentence in sentences if sentence.words]

    def _sentence(self, raw: dict[str, Any], text: str, units: Sequence[int]) -> ParsedSentence:
        tokens, spans = raw["tokens"], []
        for token in tokens:
            begin, end = int(token["characterOffsetBegin"]), int(token["characterOffsetEnd"])
            if not 0 <= begin <= end < len(units):
                raise ValueError(f"offsets within the text, got {begin} to {end}")
            spans.append((units[begin], units[end]))
        shared = Counter(spans)
        # "word" may be respelled (-LRB-, American spelling); the text is right unless several words share it.
        words = [
            str(token["word"]) if shared[span] > 1 or span[0] == span[1] else text[slice(*span)]
            for token, span in zip(tokens, spans, strict=True)
        ]
        tags = {
            "xpos": [token.get("pos") for token in tokens],
            "lemmas": [token.get("lemma") for token in tokens],
        }
        governors, tags["deprels"] = _dependencies(raw.get("basicDependencies"), len(words))
        penn = self.english and not self.universal
        tags["upos"] = upos_of_penn(words, tags["xpos"], tags["deprels"]) if penn else tags["xpos"]
        brackets = str(raw.get("parse") or "SENTENCE_SKIPPED")  # too long for the server's parser
        tree = None if "SENTENCE_SKIPPED" in brackets else tree_over_words(parse_tree(brackets), words)
        if tree is None and "constituency" in self.provides:
            self.n_skipped += 1
            if self.n_skipped in {10**power for power in range(9)}:
                message = "corenlp parsed no tree of %d sentence(s), which get flat trees; the last began %r"
                _log.warning(message, self.n_skipped, " ".join(words[:8]))
        return ParsedSentence(words, spans, tags, governors, tree)

    def _ask(self, text: str, as_words: bool) -> list[dict[str, Any]]:
        properties = {"annotators": self.annotators, "outputFormat": "json"}
        if as_words:
            text, properties["annotators"] = _CUTS.sub("_", text), self.annotators.replace("mwt,", "")
            properties |= {"tokenize.whitespace": "true", "ssplit.eolonly": "true"}
        query = {"properties": json.dumps(properties)} | self.language
        # Percent-encoding is the only form in which all versions of the server read "+" and "%" alike.
        body = quote(encodable(text), safe="")
        for attempt in range(self.retries + 1):
            time.sleep(PAUSE_S * 2 ** (attempt - 1) if attempt else 0)
            try:
                response = self.client.post(self.address, params=query, content=body, headers=_HEADERS)
            except httpx.HTTPError as error:
                response = error
            if not (isinstance(response, httpx.HTTPError) or response.status_code in (429, 502, 503, 504)):
                break
        if isinstance(response, httpx.HTTPError) or not response.is_success:
            raise self._problem(response, text)
        try:
            # Not strict: older servers leave control characters in strings.
            content = json.loads(response.content.decode("utf-8", "replace"), strict=False)
            return [dict(sentence) for sentence in content["sentences"]]
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise SyntaxformerError(
                f"corenlp: expected JSON with a list of sentences from {self.origin}, got "
                f"{response.content[:60]!r}. Is it a CoreNLP server?"
            ) from error

    def _problem(self, got: httpx.Response | httpx.HTTPError, text: str) -> SyntaxformerError:
        if isinstance(got, httpx.TimeoutException):
            return SyntaxformerError(
                f"corenlp: expected an answer from {self.origin} in {self.timeout_s:g} s, got none in "
                f"{self.retries + 1} attempt(s). Wait longer (+timeout=300)."
            )
        if isinstance(got, httpx.HTTPError):
            why = re.sub(r"^\[Errno -?\d+\] |\.$", "", str(got)) or type(got).__name__
            start = _START.format(port=self.address.port or (443 if self.address.scheme == "https" else 80))
            what = f"a CoreNLP server at {self.origin} ({why})"
            return BackendMissingError(what, f"in the folder of CoreNLP, {start}")
        remedy = f"The text: {text[:60]!r}."
        if got.status_code in (401, 403):
            remedy = f"Give user and password in the address, or the whole address in ${ADDRESS_VARIABLE}."
        status = f"HTTP {got.status_code}: {' '.join(got.text.split())[:200] or got.reason_phrase}"
        return SyntaxformerError(f"corenlp: expected an analysis from {self.origin}, got {status}. {remedy}")


def _dependencies(arcs: Any, n_words: int) -> tuple[list[int] | None, list[str | None]]:
    """Governors and relations; the root governs words that the graph leaves out."""
    arc_of_word: dict[int, tuple[int, str]] = {}
    for arc in arcs or ():
        governor, dependent = int(arc["governor"]), int(arc["dependent"])
        if not (0 <= governor <= n_words and 1 <= dependent <= n_words):
            raise ValueError(f"a dependency from {governor} to {dependent}")
        arc_of_word[dependent - 1] = governor - 1, str(arc["dep"]).lower()
    root = next((word for word in sorted(arc_of_word) if arc_of_word[word][0] == ROOT), ROOT)
    pairs = [arc_of_word.get(word, (root, "dep")) for word in range(n_words)]
    return None if arcs is None else [value for value, _ in pairs], [value for _, value in pairs]


def _address(text: str) -> tuple[httpx.URL, str]:
    with suppress(httpx.InvalidURL):
        url = httpx.URL(text)
        if url.scheme in ("http", "https") and url.host and 0 < (url.port or 80) < 65536:
            path = url.raw_path.partition(b"?")[0].rstrip(b"/") + b"/"
            return url.copy_with(raw_path=path), f"{url.scheme}://{url.netloc.decode()}"
    raise ConfigError("annotator corenlp: expected an address like http://localhost:9000, got another.")


def server_address(url: str) -> tuple[httpx.URL, str, bool]:
    """The address of a server, the part that may be shown, and whether its password is from the variable."""
    (address, origin), (full, same) = _address(url), _address(os.environ.get(ADDRESS_VARIABLE) or url)
    takes_variable = same == origin and not address.userinfo and address.path == "/"
    return (full if takes_variable else address), origin, takes_variable and bool(full.userinfo)


def load_corenlp(argument: str) -> BatchedAnnotator:
    """Use a running server: "http://localhost:9000", "https://user:password@host/path+language=german".

    Options: `language` (CoreNLP's name; by default the server's own), `annotators`, `timeout` (seconds),
    `retries`, `threads` (requests at a time). `$SYNTAXFORMER_CORENLP` may hold the whole address.

    Raises:
        ConfigError: The address or an option is wrong.
        BackendMissingError: No server answers; the message gives the command that starts one.
        SyntaxformerError: The server refuses, answers too late, or is not CoreNLP.
    """
    url, options = split_options("corenlp", argument, OPTIONS)
    address, origin, _ = server_address(url)
    parser = CoreNLPParser(address, origin, options)
    settings = "".join(f"+{key}={options[key]}" for key in ("language", "annotators") if key in options)
    # A server does not tell its version, so this hashes the request and the answer for an example.
    asked = repr([address.path, parser.language, parser.annotators, parser.example])
    name, version = f"corenlp:{origin}{settings}", f"corenlp+{hash_lines([asked])[:12]}"
    threads = options.get("threads", 1)
    return BatchedAnnotator(parser, name, version, parser.provides, batch_lines=8, threads=threads)


def upos_of_penn(
    words: Sequence[str], tags: Sequence[str | None], deprels: Sequence[str | None]
) -> list[str | None]:
    """Return the universal part of speech of each word by its Penn tag and universal relation, `[words]`."""
    universal: list[str | None] = []
    for word, tag, deprel in zip(words, tags, deprels, strict=True):
        relation = (deprel or "").partition(":")[0]
        upos = _WITH_RELATION.get((tag or "", relation), PENN_TO_UPOS.get(tag or "", "X"))
        universal.append("PART" if tag == "RB" and word.lower() in _NEGATIONS else upos)
    return universal
