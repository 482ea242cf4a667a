"""Samples free adverbials: when, how often, how, where and with whom.

What fits depends on the tense ("yesterday"), on the verb's manner list and on whether a place is named.
"""

from __future__ import annotations

from dataclasses import replace

from syntaxformer.demo.generated import meaning
from syntaxformer.demo.generated.features import Tense
from syntaxformer.demo.generated.grammar_nominal import NominalSampler, Style, nouns_of
from syntaxformer.demo.generated.lexicon import ADVERBS, DETERMINERS, PREPOSITIONS
from syntaxformer.demo.generated.lexicon.entries import Adverb, Noun, Preposition
from syntaxformer.demo.generated.meaning import Adverbial, Clause

__all__ = ["AdverbialSampler"]

_HOW_MANY = ({0: 42, 1: 44, 2: 14}, {0: 78, 1: 22})
"""Weights of the number of adverbials in main and in embedded clauses."""

_ROLES = {"manner": 24, "place": 30, "time": 34, "frequency": 12}
_ENGLISH_ORDER = ("frequency", "manner", "place", "time")
_SIMPLE_TENSES = (Tense.PRESENT, Tense.PAST)
_AT_NO_EVENT = (Tense.PERFECT, Tense.PLUPERFECT, Tense.INFINITIVE, Tense.PROGRESSIVE)
_LIKENESSES = "bear bird fish horse duck king cat"
_COMPARABLE = frozenset({"swim", "sing", "sleep", "dance", "work", "smoke", "play"})
_LACKING = "help"


class AdverbialSampler:
    """Draws adverbials for a clause.

    Args:
        nominals: Source of the noun phrases in them, and of every choice.
    """

    def __init__(self, nominals: NominalSampler) -> None:
        self._nominals = nominals
        self._rng = nominals.rng

    def complete(self, clause: Clause, depth: int = 0) -> Clause:
        """Add adverbials to a clause; in a main clause, one of them may open it."""
        count = self._nominals.weighted(_HOW_MANY[min(depth, 1)])
        drawn: dict[str, Adverbial] = {}
        for _ in range(count):
            role = self._nominals.weighted(_ROLES)
            adverbial = self._draw(role, clause, depth)
            if adverbial is not None:
                drawn[role] = adverbial
        if "frequency" in drawn and "time" in drawn and isinstance(drawn["time"].content, meaning.NounPhrase):
            del drawn["frequency"]
        ordered = [drawn[role] for role in _ENGLISH_ORDER if role in drawn]
        frontable = [a for a in ordered if a.role == "time" or _is_place_phrase(a)]
        fronted = depth == 0 and clause.subject is not None and bool(frontable) and self._nominals.chance(0.5)
        if fronted:
            first = frontable[-1]
            ordered = [first, *(a for a in ordered if a is not first)]
        if _ends_in_clause(clause):
            ordered = [a for i, a in enumerate(ordered) if a.role == "frequency" or (fronted and i == 0)]
        return replace(clause, adverbials=tuple(ordered), fronted=fronted)

    def _draw(self, role: str, clause: Clause, depth: int) -> Adverbial | None:
        if role == "place":
            return self._place(clause)
        if role == "manner":
            return self._manner(clause, depth)
        if role == "time" and clause.tense not in _AT_NO_EVENT and self._nominals.chance(0.6):
            return self._occasion(clause)
        options = [adverb for adverb in ADVERBS if adverb.role == role and _suits(adverb, clause)]
        if not options:
            return None
        adverb = self._rng.choice(options)
        return Adverbial(adverb.role, adverb)

    def _occasion(self, clause: Clause) -> Adverbial:
        """A time phrase: "after the concert", "despite the storm", "in the evening", "every morning"."""
        if clause.tense in _SIMPLE_TENSES and not clause.negated and self._nominals.chance(0.25):
            noun = self._rng.choice(nouns_of("daytime"))
            return Adverbial("time", meaning.NounPhrase(noun, "sg", DETERMINERS["every"]))
        if self._nominals.chance(0.25):
            noun = self._rng.choice(nouns_of("daytime"))
            return Adverbial("time", meaning.PrepPhrase(Preposition("in", "an", "dat"), _the(noun)))
        if self._nominals.chance(0.15):
            phrase = _the(self._rng.choice(nouns_of("storm noise heat war smoke")))
            return Adverbial("time", meaning.PrepPhrase(PREPOSITIONS["despite"], phrase))
        noun = self._nominals.noun("event")
        phrase = replace(_the(noun), adjectives=self._nominals.adjectives(noun))
        preposition = PREPOSITIONS[self._rng.choice(("after", "before", "during"))]
        return Adverbial("time", meaning.PrepPhrase(preposition, phrase))

    def _place(self, clause: Clause) -> Adverbial | None:
        if clause.verb.stative or not _is_animate(clause) or _names_place(clause):
            return None
        if self._nominals.chance(0.2):
            return Adverbial("place", self._rng.choice([a for a in ADVERBS if a.role == "place"]))
        return Adverbial("place", self._nominals.place())

    def _manner(self, clause: Clause, depth: int) -> Adverbial | None:
        fitting = [adverb for adverb in ADVERBS if adverb.en in clause.verb.manner.split()]
        person = _is_animate(clause) and "person" in _kinds(clause)
        draw = self._rng.random()
        if (
            clause.verb.en.base in _COMPARABLE
            and not clause.verb.slots
            and not clause.passive
            and not clause.negated
            and draw < 0.6
        ):
            phrase = meaning.NounPhrase(self._rng.choice(nouns_of(_LIKENESSES)), "sg", DETERMINERS["a"])
            return Adverbial("manner", meaning.PrepPhrase(PREPOSITIONS["like"], phrase))
        if person and not clause.verb.stative and not clause.passive and draw < 0.45:
            return self._company(depth)
        if not fitting:
            return None
        again = next(a for a in ADVERBS if a.en == "again")
        return Adverbial("manner", again if draw > 0.93 else self._rng.choice(fitting))

    def _company(self, depth: int) -> Adverbial:
        if self._nominals.chance(0.2):
            phrase: meaning.Nominal = meaning.NounPhrase(self._rng.choice(nouns_of(_LACKING)))
            return Adverbial("manner", meaning.PrepPhrase(PREPOSITIONS["without"], phrase))
        style = Style(definite=True, depth=max(depth, 1) + 1)
        phrase = self._nominals.noun_phrase(self._nominals.noun("kin friend neighbour guest pet"), style)
        return Adverbial("manner", meaning.PrepPhrase(PREPOSITIONS["with"], phrase))


def _the(noun: Noun) -> meaning.NounPhrase:
    return meaning.NounPhrase(noun, "sg", DETERMINERS["the"])


def _suits(adverb: Adverb, clause: Clause) -> bool:
    tense = clause.tense.value.split()[0]
    if adverb.role == "frequency" and (clause.negated or clause.tense.is_progressive):
        return False
    return tense in adverb.tenses.split()


def _is_place_phrase(adverbial: Adverbial) -> bool:
    return adverbial.role == "place" and isinstance(adverbial.content, meaning.PrepPhrase)


def _kinds(clause: Clause) -> frozenset[str]:
    """Kinds of the subject, "person" where it is no noun."""
    subject = clause.subject
    return subject.noun.kind_set if isinstance(subject, meaning.NounPhrase) else frozenset({"person"})


def _is_animate(clause: Clause) -> bool:
    return bool(_kinds(clause) & {"person", "animal"})


def _names_place(clause: Clause) -> bool:
    """Whether an argument is a place already."""
    for slot, argument in zip(clause.verb.slots, clause.arguments, strict=True):
        if slot.kind in ("place", "goal"):
            return True
        if isinstance(argument, meaning.NounPhrase) and argument.noun.kind_set & {
            "place",
            "vehicle",
            "opening",
        }:
            return True
    return False


def _ends_in_clause(clause: Clause) -> bool:
    """Whether an adverbial at the end would seem to belong to a clause inside the last argument."""
    last = clause.arguments[-1] if clause.arguments else None
    if isinstance(last, meaning.NounPhrase):
        return last.relative is not None or last.modifier is not None
    return isinstance(last, meaning.Complement)
