"""Samples nominals: who and what a sentence is about.

A verb names the kinds of its arguments; this module picks a noun of such a kind and dresses it with a
determiner, adjectives, possessor, modifier or relative clause.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import TypeVar

from syntaxformer.demo.generated import meaning
from syntaxformer.demo.generated.features import Number
from syntaxformer.demo.generated.lexicon import (
    ADJECTIVES,
    AMBIGUOUS_ENTRIES,
    DETERMINERS,
    NAMES,
    NOUNS,
    PREPOSITIONS,
)
from syntaxformer.demo.generated.lexicon.entries import Adjective, Noun, Preposition

__all__ = ["PRONOUNS", "NominalSampler", "Style", "nouns_of"]

Item = TypeVar("Item")

PRONOUNS = (
    meaning.Pronoun(1, "sg"),
    meaning.Pronoun(2, "sg"),
    meaning.Pronoun(3, "sg", "m"),
    meaning.Pronoun(3, "sg", "f"),
    meaning.Pronoun(1, "pl"),
    meaning.Pronoun(3, "pl"),
)
_PEOPLE = frozenset({"person", "adult", "child", "worker", "kin"})
_UNIQUE = frozenset({"sky", "known", "part", "land"})
"""Kinds that only take "the"."""

_NOT_OWNED = frozenset({"person", "event", "sky", "wild", "insect", "sight", "wide", "wet", "crossed"})
"""Kinds that are seldom anybody's."""

_SINGULAR = {"the": 44, "a": 24, "this": 5, "that": 5, "every": 3, "own": 16}
_PLURAL = {
    "the": 36,
    "": 24,
    "this": 4,
    "that": 5,
    "some": 7,
    "many": 5,
    "two": 5,
    "three": 3,
    "all": 3,
    "own": 9,
}
_MASS = {"the": 45, "": 40, "own": 10, "this": 5}
_QUANTIFIED = frozenset({"every", "all", "some", "many", "no"})
_COMPANIONS = "hat coat bag camera dog cat ring watch"
_REACHED = frozenset(
    ("street", "bridge", "field", "school", "theatre", "museum", "hospital", "church", "office")
)
"""Places that one goes to rather than into."""
_POSITIONS = {
    "behind": "house church door tree sofa station",
    "under": "table bed tree bridge sofa",
    "beside": "table bed house tree door lake",
}


@dataclass(frozen=True, slots=True)
class Style:
    """What a nominal may look like where it stands.

    Args:
        plain: No quantifiers; next to a negation they would be ambiguous.
        definite: "the", "this" or a possessive only.
        subject: Seldom "a": subjects are mostly known.
        pronouns: Probability of a pronoun, if people fit.
        depth: How many clauses are above; deeper nominals are simpler.
        taken: A pronoun that is in use in the same clause.
    """

    plain: bool = False
    definite: bool = False
    subject: bool = False
    pronouns: float = 0.15
    depth: int = 0
    taken: meaning.Nominal | None = None


@cache
def nouns_of(kinds: str) -> tuple[Noun, ...]:
    """All nouns of any of these space-separated kinds; a noun's own English form is a kind, too."""
    wanted = frozenset(kinds.split())
    return tuple(noun for noun in NOUNS if noun.kind_set & wanted)


@cache
def adjectives_of(noun: Noun) -> tuple[Adjective, ...]:
    """All adjectives that suit a noun."""
    return tuple(adjective for adjective in ADJECTIVES if noun.kind_set & frozenset(adjective.kinds.split()))


@dataclass
class NominalSampler:
    """Draws nominals from a seeded generator.

    Args:
        rng: Source of every choice.
        relative: Draws a relative clause about a noun; clauses contain nominals, so it is passed in.
        wanted_noun: A noun to use as soon as it fits, then None.
        wanted_adjective: The same for an adjective.
    """

    rng: random.Random
    relative: Callable[[Noun, Number, int], meaning.Relative | None] = lambda noun, number, depth: None
    wanted_noun: Noun | None = None
    wanted_adjective: Adjective | None = None
    _places: tuple[Noun, ...] = field(default=tuple(noun for noun in NOUNS if "place" in noun.kind_set))

    def weighted(self, weights: dict[Item, int]) -> Item:
        """One key, drawn by its weight."""
        return self.rng.choices(list(weights), list(weights.values()))[0]

    def chance(self, probability: float) -> bool:
        """Whether an event of this probability happens."""
        return self.rng.random() < probability

    def noun(self, kinds: str) -> Noun:
        """A noun of one of these kinds; words with several readings are drawn more often."""
        if self.wanted_noun is not None and self.wanted_noun.kind_set & frozenset(kinds.split()):
            noun, self.wanted_noun = self.wanted_noun, None
            return noun
        options = nouns_of(kinds)
        return self.rng.choices(options, [2 if noun in _AMBIGUOUS else 1 for noun in options])[0]

    def nominal(self, kinds: str, style: Style) -> meaning.Nominal:
        """A pronoun, name, pair, "the old" or noun phrase."""
        wanted = self.wanted_noun
        fits = wanted is not None and bool(wanted.kind_set & frozenset(kinds.split()))
        if _PEOPLE & frozenset(kinds.split()) and not fits:
            special = self._special_nominal(kinds, style)
            if special is not None:
                return special
        return self.noun_phrase(self.noun(kinds), style)

    def _special_nominal(self, kinds: str, style: Style) -> meaning.Nominal | None:
        if self.chance(style.pronouns) and not style.definite:
            return self.pronoun(style.taken)
        if self.chance(0.08):
            return self.rng.choice([name for name in NAMES if name != style.taken])
        if self.chance(0.04) and style.depth == 0:
            simple = Style(plain=True, definite=True, depth=2)
            names = self.rng.choice(NAMES), self.noun_phrase(self.noun("kin friend neighbour"), simple)
            return meaning.Coordinated(*names)
        if self.chance(0.03):
            people = [a for a in ADJECTIVES if a.en in ("old", "young", "rich", "poor", "sick")]
            return meaning.NominalAdjective(self.rng.choice(people))
        return None

    def pronoun(self, taken: meaning.Nominal | None) -> meaning.Pronoun:
        """A pronoun of another person than `taken`, or at least not the same one."""
        person = taken.person if isinstance(taken, meaning.Pronoun) else 0
        return self.rng.choice([p for p in PRONOUNS if p != taken and (p.person == 3 or p.person != person)])

    def noun_phrase(self, noun: Noun, style: Style) -> meaning.NounPhrase:
        """A noun phrase around a given noun."""
        number = noun.number or ("sg" if noun.is_mass or self.chance(0.68) else "pl")
        choice = self._determiner(noun, number, style)
        owner = self._owner(noun, style) if choice == "own" else None
        return meaning.NounPhrase(
            noun,
            number,
            DETERMINERS.get(choice),
            self.adjectives(noun),
            owner,
            *self._tail(noun, number, owner, style),
        )

    def _determiner(self, noun: Noun, number: Number, style: Style) -> str:
        if "part" in noun.kind_set:
            return "own"
        if noun.kind_set & _UNIQUE:
            return "the"
        weights = dict(_MASS if noun.is_mass else _SINGULAR if number == "sg" else _PLURAL)
        if noun.number is not None:
            weights = {"the": 60, "a": 25, "own": 15}
        if "feeling" in noun.kind_set:
            weights = {"the": 40, "own": 60}
        if style.plain:
            weights = {key: weight for key, weight in weights.items() if key not in _QUANTIFIED}
        if style.definite:
            weights = {
                key: weight for key, weight in weights.items() if key in ("the", "this", "that", "own")
            }
        if style.subject and "a" in weights:
            weights["a"] = 8
        if noun.kind_set & {"kin", "body"}:
            weights = {"own": 85, "the": 10, "that": 5}
        elif noun.kind_set & _NOT_OWNED and "own" in weights:
            weights["own"] = 2
        return self.weighted(weights)

    def _owner(self, noun: Noun, style: Style) -> meaning.Nominal:
        if "part" in noun.kind_set:
            whole = self.rng.choice(nouns_of("story play film song"))
            return meaning.NounPhrase(whole, "sg", DETERMINERS["the"])
        if self.chance(0.6) or style.depth > 1:
            return self.rng.choice(PRONOUNS)
        if self.chance(0.4):
            return self.rng.choice(NAMES)
        person = self.rng.choice([option for option in nouns_of("person") if option != noun])
        return meaning.NounPhrase(person, self.weighted({"sg": 4, "pl": 1}), DETERMINERS["the"])

    def adjectives(self, noun: Noun) -> tuple[meaning.Adjective, ...]:
        """None, one or two adjectives that suit the noun, in order of their rank."""
        suited = adjectives_of(noun)
        if self.wanted_adjective in suited:
            chosen, self.wanted_adjective = [self.wanted_adjective], None
            return tuple(chosen)  # type: ignore[arg-type]
        count = min(len(suited), self.weighted({0: 68, 1: 27, 2: 5}))
        drawn = sorted(self.rng.sample(suited, count), key=lambda adjective: adjective.rank)
        if count == 2 and (drawn[0].rank == drawn[1].rank):
            del drawn[1]
        return tuple(drawn)

    def _tail(
        self, noun: Noun, number: Number, owner: meaning.Nominal | None, style: Style
    ) -> tuple[meaning.PrepPhrase | None, meaning.Relative | None]:
        """A modifier or a relative clause, seldom, and never below two clauses."""
        if owner is not None or style.depth > 1:
            return None, None
        if self.chance(0.1 if style.depth == 0 else 0.05):
            relative = self.relative(noun, number, style.depth + 1)
            return None, relative
        if self.chance(0.06):
            return self._modifier(noun), None
        return None, None

    def _modifier(self, noun: Noun) -> meaning.PrepPhrase | None:
        if "person" in noun.kind_set:
            companion = self.rng.choice(nouns_of(_COMPANIONS))
            phrase = meaning.NounPhrase(companion, "sg", DETERMINERS["the"], self.adjectives(companion))
            return meaning.PrepPhrase(PREPOSITIONS["with"], phrase)
        if noun.kind_set & {"thing", "flora", "animal"} and "furniture" not in noun.kind_set:
            return self.place(definite=True)
        return None

    def place(self, *, definite: bool = False) -> meaning.PrepPhrase:
        """Where something is: "in the garden", "under the table"."""
        if self.chance(0.2):
            position = self.rng.choice(list(_POSITIONS))
            noun = self.rng.choice(nouns_of(_POSITIONS[position]))
            return meaning.PrepPhrase(PREPOSITIONS[position], self._landmark(noun))
        return self.located(self.rng.choice(self._places), goal=False)

    def located(self, noun: Noun, *, goal: bool) -> meaning.PrepPhrase:
        """A place with its own preposition, as where (dative) or where to (accusative, or zu)."""
        en, de = noun.at.split(":")
        if not goal:
            return meaning.PrepPhrase(Preposition(en, de, "dat"), self._landmark(noun))
        to = {"in": ("into", de, "acc"), "on": ("onto", de, "acc"), "at": ("to", "zu", "dat")}
        if noun.en in _REACHED:
            to = dict.fromkeys(to, ("to", "zu", "dat"))
        return meaning.PrepPhrase(Preposition(*to[en]), self._landmark(noun))  # type: ignore[arg-type]

    def _landmark(self, noun: Noun) -> meaning.NounPhrase:
        choice = self.weighted({"the": 84, "this": 6, "own": 10})
        adjectives = self.adjectives(noun) if self.chance(0.4) else ()
        owner = self.rng.choice(PRONOUNS) if choice == "own" else None
        return meaning.NounPhrase(noun, "sg", DETERMINERS.get(choice), adjectives, owner)


_AMBIGUOUS = frozenset(entry for entry in AMBIGUOUS_ENTRIES if isinstance(entry, Noun))
