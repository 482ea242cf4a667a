"""The demo's lexicon: data tables of nouns, verbs and the rest, English beside German.

`READINGS` lists the English forms that are several parts of speech ("watch", "left", "after"): the words
whose translation syntax decides.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from syntaxformer.demo.generated.lexicon.entries import Adjective, Noun, Verb
from syntaxformer.demo.generated.lexicon.modifiers import (
    ADJECTIVES,
    ADVERBS,
    CONJUNCTIONS,
    DETERMINERS,
    MODALS,
    PREPOSITIONS,
)
from syntaxformer.demo.generated.lexicon.nouns import NAMES, NOUNS
from syntaxformer.demo.generated.lexicon.verbs import BE, THERE_IS, VERBS

__all__ = [
    "ADJECTIVES",
    "ADVERBS",
    "AMBIGUOUS_ENTRIES",
    "BE",
    "CONJUNCTIONS",
    "DETERMINERS",
    "MODALS",
    "NAMES",
    "NOUNS",
    "PREPOSITIONS",
    "READINGS",
    "THERE_IS",
    "VERBS",
    "Reading",
]

Reading = tuple[str, str]
"""Lemma and universal part of speech."""


def forms(entry: Noun | Verb | Adjective) -> Iterator[str]:
    """The English forms of a content word."""
    match entry:
        case Noun():
            yield entry.en
            if not entry.is_mass and entry.number is None:
                yield entry.en_plural
        case Verb(en=verb):
            yield from (verb.base, verb.third_person, verb.past, verb.participle, verb.ing)
        case Adjective():
            yield entry.en


def _all_readings() -> Iterator[tuple[str, Reading]]:
    for entry in (*NOUNS, *VERBS, *ADJECTIVES):
        upos = {Noun: "NOUN", Verb: "VERB", Adjective: "ADJ"}[type(entry)]
        lemma = entry.en.base if isinstance(entry, Verb) else entry.en
        for form in forms(entry):
            yield form, (lemma, upos)
    for adverb in ADVERBS:
        yield adverb.en, (adverb.en, adverb.en_tags[0])
    for preposition in PREPOSITIONS:
        yield preposition, (preposition, "ADP")
    for conjunction in CONJUNCTIONS:
        yield conjunction.en, (conjunction.en, conjunction.en_tags[0])
    for modal in MODALS:
        yield modal.en_present.base, (modal.en_present.base, "VERB" if modal.linked else "AUX")
    for reading in (("that", "DET"), ("that", "SCONJ"), ("that", "PRON")):
        yield "that", reading


def _ambiguous() -> dict[str, frozenset[Reading]]:
    readings: defaultdict[str, set[Reading]] = defaultdict(set)
    for form, reading in _all_readings():
        readings[form].add(reading)
    return {
        form: frozenset(found) for form, found in readings.items() if len({upos for _, upos in found}) > 1
    }


READINGS: dict[str, frozenset[Reading]] = _ambiguous()
AMBIGUOUS_ENTRIES: tuple[Noun | Verb | Adjective, ...] = tuple(
    entry for entry in (*NOUNS, *VERBS, *ADJECTIVES) if any(form in READINGS for form in forms(entry))
)
