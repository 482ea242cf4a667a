"""Where punctuation hangs in a phrase-structure tree: as high as it can, but pairs close where they opened.

A mark between two words goes to the lowest phrase over both. A comma, dash, bracket or quote that ends what
an earlier one began goes into the phrase of the earlier one: (NP (NP ...) , (NP ...) ,).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from syntaxformer.trees.phrase_skeleton import Phrase, after_word, first_word

__all__ = ["insert_punctuation"]

_BRACKETS = {"(": ")", "[": "]", "{": "}"}
_CLOSING_BRACKETS = frozenset(_BRACKETS.values())
_DASHES = frozenset({"--", "-", "–", "—"})
_OPENING_QUOTES = frozenset({"``", "“", "„", "«", "‘", "‚", "‹"})
_CLOSING_QUOTES = frozenset({"''", "”", "»", "’", "›"})
_EITHER_QUOTE = '"'
_SENTENCE_END = frozenset({".", "!", "?", "…", "..."}) | _CLOSING_QUOTES | _CLOSING_BRACKETS
_PAIRED_COMMA_IN = frozenset({"NP", "PP", "ADJP", "ADVP"})


@dataclass(slots=True)
class _Gap:
    """Punctuation `start` to `end` before the part at `place` of a phrase, or after its last part."""

    start: int
    end: int
    phrase: Phrase
    place: int
    ending: list[Phrase]
    """Phrases that end before the gap and not after it, the highest first."""


@dataclass(slots=True)
class _Marks:
    """Marks given to phrases so far: before a part, or after the last."""

    before: dict[tuple[int, int], list[int]] = field(default_factory=dict[tuple[int, int], list[int]])
    last: dict[int, list[int]] = field(default_factory=dict[int, list[int]])

    def before_last_part(self, phrase: Phrase) -> list[int]:
        return self.before.get((id(phrase), len(phrase.parts) - 1), [])


def insert_punctuation(tops: list[Phrase | int], words: Sequence[str]) -> Phrase:
    """Put all words that are in no phrase yet into a tree.

    Args:
        tops: Phrases side by side, of a subset of the words; changed in place.
        words: All words, `[words]`.

    Returns:
        One phrase over all words.
    """
    if not tops:
        return Phrase("FRAG", list(range(len(words))))
    top = _one_top(tops)
    phrases, gaps = _survey(top)
    gaps.append(_Gap(top.end, len(words), top, len(top.parts), _ending_with(top.parts[-1])))
    marks = _Marks()
    openings: dict[str, Phrase] = {}
    for gap in sorted(gaps, key=lambda gap: gap.start):
        for mark in range(gap.start, gap.end):
            _place(mark, gap, marks, openings, words, gap.phrase is top and len(tops) > 1)
    for phrase in phrases:
        _fill(phrase, marks)
    top.parts = [*range(top.start), *top.parts]
    for phrase in phrases:
        _make_parentheticals(phrase, words)
    return top


def _one_top(tops: list[Phrase | int]) -> Phrase:
    only = tops[0]
    if len(tops) > 1:
        return Phrase("S", [_as_clause(part) for part in tops])
    clause = _as_clause(only)
    return clause if isinstance(clause, Phrase) else Phrase("FRAG", [clause])


def _as_clause(part: Phrase | int) -> Phrase | int:
    return Phrase("S", [part]) if isinstance(part, Phrase) and part.label == "VP" else part


def _survey(top: Phrase) -> tuple[list[Phrase], list[_Gap]]:
    """All phrases, and all gaps between their parts."""
    phrases, gaps = [top], list[_Gap]()
    for phrase in phrases:  # grows while it is walked
        for place, part in enumerate(phrase.parts):
            if isinstance(part, Phrase):
                phrases.append(part)
            start = after_word(phrase.parts[place - 1])
            if place and start < first_word(part):
                ending = _ending_with(phrase.parts[place - 1])
                gaps.append(_Gap(start, first_word(part), phrase, place, ending))
    return phrases, gaps


def _ending_with(part: Phrase | int) -> list[Phrase]:
    """A part and its last parts, down to the word."""
    chain: list[Phrase] = []
    while isinstance(part, Phrase):
        chain.append(part)
        part = part.parts[-1]
    return chain


def _place(
    mark: int,
    gap: _Gap,
    marks: _Marks,
    openings: dict[str, Phrase],
    words: Sequence[str],
    is_between_sentences: bool,
) -> None:
    """Give a mark to the phrase where its pair stands, or else to the lowest phrase over its neighbours."""
    word = words[mark]
    phrase = _phrase_of_pair(word, gap, marks, openings, words)
    if phrase is None and is_between_sentences and word in _SENTENCE_END and gap.ending:
        phrase = gap.ending[0]
    if phrase is not None:
        marks.last.setdefault(id(phrase), []).append(mark)
        # What follows in this gap may not go below this phrase: order is kept.
        gap.ending = gap.ending[: 1 + [id(ending) for ending in gap.ending].index(id(phrase))]
        return
    gap.ending = []
    marks.before.setdefault((id(gap.phrase), gap.place), []).append(mark)
    if word in _BRACKETS:
        openings[_BRACKETS[word]] = gap.phrase
    elif word in _OPENING_QUOTES or word == _EITHER_QUOTE:
        openings["quote"] = gap.phrase


def _phrase_of_pair(
    word: str, gap: _Gap, marks: _Marks, openings: dict[str, Phrase], words: Sequence[str]
) -> Phrase | None:
    """The phrase that ends here and holds the mark that began what this one ends."""
    if word in _CLOSING_BRACKETS or word in _CLOSING_QUOTES or word == _EITHER_QUOTE:
        opened = openings.pop(word if word in _CLOSING_BRACKETS else "quote", None)
        return opened if any(phrase is opened for phrase in gap.ending) else None
    for phrase in gap.ending:
        begun = [words[mark] for mark in marks.before_last_part(phrase)]
        if word == "," and "," in begun and phrase.label in _PAIRED_COMMA_IN and not phrase.is_coordination:
            return phrase
        if word in _DASHES and not _DASHES.isdisjoint(begun):
            return phrase
    return None


def _fill(phrase: Phrase, marks: _Marks) -> None:
    """Put the marks that a phrase was given between its parts."""
    parts: list[Phrase | int] = []
    for place, part in enumerate(phrase.parts):
        parts.extend(marks.before.get((id(phrase), place), ()))
        parts.append(part)
    at_end = marks.before.get((id(phrase), len(phrase.parts)), ())
    phrase.parts = [*parts, *marks.last.get(id(phrase), ()), *at_end]


def _make_parentheticals(phrase: Phrase, words: Sequence[str]) -> None:
    """Bundle what stands between brackets or dashes, and a clause between commas ("… , he said , …")."""
    place = 0
    while place < len(phrase.parts):
        end = _parenthetical_end(phrase.parts, place, words)
        if end and (place, end) != (0, len(phrase.parts)):
            phrase.parts[place:end] = [Phrase("PRN", phrase.parts[place:end])]
        place += 1


def _parenthetical_end(parts: list[Phrase | int], place: int, words: Sequence[str]) -> int | None:
    """Where the parenthetical ends that begins at a place, exclusive."""
    mark = parts[place]
    if isinstance(mark, Phrase):
        return None
    word = words[mark]
    closing = {_BRACKETS[word]} if word in _BRACKETS else _DASHES if word in _DASHES else None
    if closing is not None:
        ends = (end for end in range(place + 2, len(parts)) if _is_word(parts[end], closing, words))
        return next((end + 1 for end in ends), None)
    inside = parts[place + 1 : place + 3]
    is_clause = len(inside) == 2 and isinstance(inside[0], Phrase) and inside[0].is_parenthetical
    is_between = 0 < place < len(parts) - 3
    if word == "," and is_clause and is_between and _is_word(inside[1], {","}, words):
        return place + 3
    return None


def _is_word(part: Phrase | int, wanted: frozenset[str] | set[str], words: Sequence[str]) -> bool:
    return not isinstance(part, Phrase) and words[part] in wanted
