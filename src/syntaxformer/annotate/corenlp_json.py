"""CoreNLP's JSON as sentences, with a check of everything that is read from it.

Its offsets count UTF-16 code units; ours count characters, which differ behind every emoji.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from typing import Any, cast

from syntaxformer.annotate.parsed import ParsedSentence, tree_over_words
from syntaxformer.annotate.penn_tags import upos_of_penn
from syntaxformer.errors import DataError, TreeError
from syntaxformer.trees import ROOT, Tree, parse_tree

__all__ = ["CharacterOffsets", "TagSet", "read_sentences", "tag_set_of"]

UPOS = frozenset(
    {
        *("ADJ", "ADP", "ADV", "AUX", "CCONJ", "DET", "INTJ", "NOUN", "NUM"),
        *("PART", "PRON", "PROPN", "PUNCT", "SCONJ", "SYM", "VERB", "X"),
    }
)

TagSet = str
"""What the server's tags are: "universal", "penn" or "other"."""


class CharacterOffsets:
    """Characters of UTF-16 code units in one text."""

    def __init__(self, text: str) -> None:
        before = 0
        self._starts: list[int] = []
        for position, character in enumerate(text):
            if ord(character) > 0xFFFF:
                self._starts.append(position + before)
                before += 1

    def __getitem__(self, unit: int) -> int:
        """The character that begins at a code unit; inside a pair, the character of that pair."""
        return unit - bisect_left(self._starts, unit)


def tag_set_of(tags: Sequence[str | None], language: str | None) -> TagSet:
    """Tell from the tags of an example text, and the language asked for, what a server's tags are."""
    known = [tag for tag in tags if tag]
    if known and UPOS.issuperset(known):
        return "universal"
    return "penn" if language in (None, "en", "english") else "other"


def read_sentences(
    content: dict[str, Any], text: str, line_starts: Sequence[int], tag_set: TagSet
) -> list[list[ParsedSentence]]:
    """Return the sentences of each line of a text that was analysed at once.

    Args:
        content: The server's answer.
        text: The lines as they were sent.
        line_starts: Where each line begins in the text, ascending.
        tag_set: As `tag_set_of` told.

    Returns:
        For each line its sentences; offsets count from the start of the line.

    Raises:
        DataError: The answer lacks something or does not fit the text.
    """
    characters = CharacterOffsets(text)
    lines: list[list[ParsedSentence]] = [[] for _ in line_starts]
    for number, raw in enumerate(_list(content, "sentences"), 1):
        try:
            sentence = _read_sentence(raw, text, characters, tag_set)
        except (KeyError, TypeError, ValueError, TreeError, AttributeError) as error:
            reason = " ".join(str(error).split()).rstrip(".")[:160]
            raise DataError(
                f"corenlp: sentence {number} of the answer: expected tokens, dependencies and a tree, got "
                f"{type(error).__name__}: {reason}."
            ) from error
        if not sentence.words:
            continue
        line = _line_at(line_starts, sentence.spans[0][0])
        start = line_starts[line]
        stop = line_starts[line + 1] if line + 1 < len(line_starts) else len(text) + 1
        if not sentence.spans[-1][1] < stop:
            raise DataError(
                "corenlp: expected sentences within their lines, got one over two: "
                f"{' '.join(sentence.words)[:60]!r}."
            )
        sentence.spans = [(first - start, last - start) for first, last in sentence.spans]
        lines[line].append(sentence)
    return lines


def _line_at(line_starts: Sequence[int], position: int) -> int:
    place = bisect_left(line_starts, position + 1) - 1
    if place < 0:
        raise DataError("corenlp: expected offsets within the text, got one before it.")
    return place


def _list(content: dict[str, Any], key: str) -> list[dict[str, Any]]:
    value = content.get(key)
    if not isinstance(value, list):
        raise DataError(f"corenlp: expected a list of {key}, got {type(value).__name__}.")
    return cast("list[dict[str, Any]]", value)


def _read_sentence(
    raw: dict[str, Any], text: str, characters: CharacterOffsets, tag_set: TagSet
) -> ParsedSentence:
    tokens = _list(raw, "tokens")
    spans = [
        (characters[int(token["characterOffsetBegin"])], characters[int(token["characterOffsetEnd"])])
        for token in tokens
    ]
    for start, end in spans:
        if not 0 <= start <= end <= len(text):
            raise DataError(f"corenlp: expected offsets within the text, got {start} to {end}.")
    shared = Counter(spans)
    # A token's "word" is respelled (-LRB-, British to American): the text is right, but where words share it.
    words = [
        str(token["word"]) if shared[span] > 1 or span[0] == span[1] else text[slice(*span)]
        for token, span in zip(tokens, spans, strict=True)
    ]
    governors, deprels = _dependencies(raw.get("basicDependencies"), len(words))
    pos = [_tag(token.get("pos")) for token in tokens]
    if tag_set == "universal":
        upos: list[str | None] = list(pos)
    else:
        upos = upos_of_penn(words, pos, deprels) if tag_set == "penn" else [None] * len(words)
    tags = {"upos": upos, "xpos": pos, "lemmas": [_tag(token.get("lemma")) for token in tokens]}
    return ParsedSentence(
        words, spans, {**tags, "deprels": deprels}, governors, _tree(raw.get("parse"), words)
    )


def _tag(value: Any) -> str | None:
    return str(value) if value is not None else None


def _dependencies(arcs: Any, n_words: int) -> tuple[list[int] | None, list[str | None]]:
    """Governors and relations; a word that the graph leaves out hangs from the root."""
    deprels: list[str | None] = [None] * n_words
    if arcs is None:
        return None, deprels
    governors: list[int | None] = [None] * n_words
    for arc in cast("list[dict[str, Any]]", arcs):
        dependent = int(arc["dependent"]) - 1
        if not 0 <= dependent < n_words or not 0 <= int(arc["governor"]) <= n_words:
            raise ValueError(f"a dependency from {arc['governor']!r} to {arc['dependent']!r}")
        governors[dependent] = int(arc["governor"]) - 1
        deprels[dependent] = str(arc["dep"]).lower()
    root = next((word for word, governor in enumerate(governors) if governor == ROOT), None)
    for word, governor in enumerate(governors):
        if governor is None:
            governors[word] = ROOT if root is None else root
            deprels[word] = "dep"
    return [cast(int, governor) for governor in governors], deprels


def _tree(brackets: Any, words: Sequence[str]) -> Tree | None:
    """The tree, or None where the parser skipped the sentence."""
    if not brackets or "SENTENCE_SKIPPED" in str(brackets):
        return None
    return tree_over_words(parse_tree(str(brackets)), words)
