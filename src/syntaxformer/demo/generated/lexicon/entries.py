"""What a lexicon entry is: one meaning with its English and its German form.

Two readings of one English word ("watch": Uhr, beobachten) are two entries that share a spelling.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from syntaxformer.demo.generated.english_inflection import EnglishVerb, plural
from syntaxformer.demo.generated.features import Case, Gender, Number
from syntaxformer.demo.generated.german_inflection import Declension, Series
from syntaxformer.demo.generated.german_verbs import GermanVerb

__all__ = [
    "Adjective",
    "Adverb",
    "Conjunction",
    "Determiner",
    "Modal",
    "Name",
    "Noun",
    "Preposition",
    "Slot",
    "Verb",
]


@dataclass(frozen=True, eq=False)
class Noun:
    """A noun of both languages.

    Args:
        en: English singular.
        de: German nominative singular.
        gender: German gender.
        de_plural: German nominative plural; empty for mass nouns, which have neither plural nor "a".
        kinds: Space-separated semantic kinds that verbs, adjectives and prepositions select.
        en_irregular: English plural where the rule fails.
        de_genitive: German genitive singular where the rule fails; weak masculines have -n there.
        at: "english:german" prepositions of "where", if the noun is a place: "in:in", "on:auf", "at:an".
        number: The only number used, for nouns whose English form does not show it ("fish").
    """

    en: str
    de: str
    gender: Gender
    de_plural: str
    kinds: str
    en_irregular: str = ""
    de_genitive: str = ""
    at: str = ""
    number: Number | None = None

    @cached_property
    def en_plural(self) -> str:
        """English plural."""
        return self.en_irregular or plural(self.en)

    @cached_property
    def weak(self) -> bool:
        """Whether this is an n-declension masculine (der Bär, den Bären)."""
        return self.gender == "m" and self.genitive.endswith("n") and not self.de.endswith("en")

    @cached_property
    def genitive(self) -> str:
        """German genitive singular."""
        if self.de_genitive or self.gender == "f":
            return self.de_genitive or self.de
        return self.de + ("es" if self.de.endswith(("s", "ß", "z", "sch", "st", "d")) else "s")

    @cached_property
    def kind_set(self) -> frozenset[str]:
        """The semantic kinds as a set; the noun itself is one, so that a verb can select single nouns."""
        return frozenset(self.kinds.split()) | {self.en}

    @property
    def is_mass(self) -> bool:
        """Whether the noun is uncountable."""
        return not self.de_plural


@dataclass(frozen=True, slots=True)
class Name:
    """A first name, the same in both languages."""

    form: str
    gender: Gender


@dataclass(frozen=True, slots=True)
class Slot:
    """One complement that a verb asks for.

    Args:
        kind: A nominal, a place ("in the garden"), a goal ("into the garden") or a clause.
        kinds: Semantic kinds of a nominal.
        en: English preposition, or empty for a bare object.
        de: German preposition, or empty for a bare case.
        case: Case that the German verb or preposition governs.
        shifts: The English recipient may stand before the object without "to".
    """

    kind: Literal["nominal", "place", "goal", "that", "whether", "infinitive", "adjective"]
    kinds: str = ""
    en: str = ""
    de: str = ""
    case: Case = "acc"
    shifts: bool = False


@dataclass(frozen=True, eq=False, slots=True)
class Verb:
    """A verb of both languages with its subject and complements.

    Args:
        en: English forms.
        de: German forms.
        subject: Semantic kinds of the subject.
        slots: Complements, in English order.
        stative: No imperative, no passive and no place adverbial.
        progressive: English may say "is -ing".
        manner: Space-separated English manner adverbs that fit.
    """

    en: EnglishVerb
    de: GermanVerb
    subject: str
    slots: tuple[Slot, ...] = ()
    stative: bool = False
    progressive: bool = True
    manner: str = ""

    @property
    def direct_object(self) -> int | None:
        """Index of the slot that is a bare object in English and accusative in German, if there is one."""
        for index, slot in enumerate(self.slots):
            if slot.kind == "nominal" and not slot.en and not slot.de and slot.case == "acc":
                return index
        return None


@dataclass(frozen=True, eq=False, slots=True)
class Adjective:
    """An adjective; `de_stem` is what attributive endings join ("teur" of "teuer")."""

    en: str
    de: str
    kinds: str
    rank: int = 1
    de_stem: str = ""
    predicative: bool = True

    @property
    def stem(self) -> str:
        """German stem for endings."""
        return self.de_stem or self.de.removesuffix("e")


@dataclass(frozen=True, slots=True)
class Determiner:
    """A determiner: how each language inflects it and what it does to the German adjective after it."""

    en: str
    de: str
    series: Series
    declension: Declension
    numbers: tuple[Number, ...] = ("sg", "pl")
    en_tags: tuple[str, str, str] = ("DET", "DT", "det")
    de_tags: tuple[str, str, str] = ("DET", "PIAT", "det")
    en_plural: str = ""
    adjective_like: bool = False


@dataclass(frozen=True, slots=True)
class Preposition:
    """A preposition of both languages and the case that German wants here."""

    en: str
    de: str
    case: Case


@dataclass(frozen=True, slots=True)
class Adverb:
    """An adverb.

    Args:
        en: English form.
        de: German form.
        role: Where it goes: time (end or front), frequency (before the verb), manner or place (end).
        tenses: Space-separated first words of the tense names it fits ("past present"); empty fits all.
        en_tags: Universal tag, treebank tag and relation in English.
    """

    en: str
    de: str
    role: Literal["time", "frequency", "manner", "place"]
    tenses: str = ""
    en_tags: tuple[str, str, str] = ("ADV", "RB", "advmod")


@dataclass(frozen=True, slots=True)
class Modal:
    """A modal; `linked` English ones are verbs with a to-infinitive ("want to", "have to")."""

    en_present: EnglishVerb
    en_past: str
    de: str
    linked: bool = False


@dataclass(frozen=True, slots=True)
class Conjunction:
    """A subordinating conjunction; `de_past` is used in the past ("when": wenn, als)."""

    en: str
    de: str
    de_past: str = ""
    en_tags: tuple[str, str, str] = ("SCONJ", "IN", "mark")
