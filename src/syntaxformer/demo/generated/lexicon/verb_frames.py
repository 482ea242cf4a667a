"""Constructors for the verb tables: one for a verb, one for each kind of complement."""

from __future__ import annotations

from syntaxformer.demo.generated.english_inflection import EnglishVerb
from syntaxformer.demo.generated.features import Case
from syntaxformer.demo.generated.german_verbs import GermanVerb
from syntaxformer.demo.generated.lexicon.entries import Slot, Verb

__all__ = [
    "CARE",
    "INFINITIVE",
    "MOTION",
    "THAT",
    "WHETHER",
    "acc",
    "at",
    "dat",
    "into",
    "prep",
    "to",
    "verb",
]

CARE = "quickly slowly carefully"
MOTION = "quickly slowly quietly alone"
"""Manner adverbs of most actions, and of most movements."""

THAT, WHETHER, INFINITIVE = Slot("that"), Slot("whether"), Slot("infinitive")


def verb(
    en: str,
    de: str,
    subject: str,
    *slots: Slot,
    stative: bool = False,
    progressive: bool = True,
    manner: str = CARE,
) -> Verb:
    """A verb from its principal parts, the kinds of its subject, and its complements."""
    parsed = EnglishVerb.parse(en), GermanVerb.parse(de)
    return Verb(*parsed, subject, slots, stative, progressive and not stative, manner)


def acc(kinds: str, en: str = "") -> Slot:
    """A German accusative object; English may need a preposition ("look for")."""
    return Slot("nominal", kinds, en=en)


def dat(kinds: str, en: str = "") -> Slot:
    """A German dative object: "helps him", hilft ihm."""
    return Slot("nominal", kinds, en=en, case="dat")


def to(kinds: str = "person") -> Slot:
    """A recipient: "gives her the book", "gives the book to her", gibt ihr das Buch."""
    return Slot("nominal", kinds, en="to", case="dat", shifts=True)


def prep(en: str, de: str, case: Case, kinds: str) -> Slot:
    """A prepositional object: "waits for him", wartet auf ihn."""
    return Slot("nominal", kinds, en=en, de=de, case=case)


def at(kinds: str) -> Slot:
    """A place that the verb needs: "lies on the table", liegt auf dem Tisch."""
    return Slot("place", kinds)


def into(kinds: str) -> Slot:
    """A goal that the verb needs: "puts … onto the table", legt … auf den Tisch."""
    return Slot("goal", kinds)
