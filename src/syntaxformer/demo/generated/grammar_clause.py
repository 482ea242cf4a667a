"""Samples clauses: a verb with its arguments, tense, modal and voice, and the clauses inside it.

Main clauses, complements and relative clauses come from the same functions; `depth` counts the clauses above.
"""

from __future__ import annotations

import random
from dataclasses import replace

from syntaxformer.demo.generated import meaning
from syntaxformer.demo.generated.features import Number, Tense
from syntaxformer.demo.generated.grammar_adverbial import AdverbialSampler
from syntaxformer.demo.generated.grammar_nominal import NominalSampler, Style
from syntaxformer.demo.generated.lexicon import ADJECTIVES, BE, MODALS, VERBS
from syntaxformer.demo.generated.lexicon.entries import Name, Noun, Slot, Verb
from syntaxformer.demo.generated.meaning import Clause, Complement

__all__ = ["ACTIONS", "SAME_TIME", "SIMPLE_VERBS", "STATE_TENSES", "ClauseSampler", "can_be", "pronoun_for"]

_EVENT_TENSES = {
    Tense.PRESENT: 22,
    Tense.PROGRESSIVE: 18,
    Tense.PAST: 32,
    Tense.PAST_PROGRESSIVE: 6,
    Tense.PERFECT: 14,
    Tense.FUTURE: 8,
}
STATE_TENSES = {Tense.PRESENT: 55, Tense.PAST: 45}
SAME_TIME = {
    Tense.PROGRESSIVE: Tense.PRESENT,
    Tense.PAST_PROGRESSIVE: Tense.PAST,
    Tense.PERFECT: Tense.PRESENT,
    Tense.FUTURE: Tense.PRESENT,
    Tense.PLUPERFECT: Tense.PAST,
}
"""Tense of a clause that belongs to another one."""

_NEAR_PRESENT = {Tense.PRESENT: 55, Tense.PROGRESSIVE: 20, Tense.PERFECT: 15, Tense.FUTURE: 10}
_NEAR_PAST = {Tense.PAST: 75, Tense.PAST_PROGRESSIVE: 10, Tense.PLUPERFECT: 15}
_CLAUSAL = frozenset({"that", "whether", "infinitive"})
_PEOPLE = frozenset({"person", "adult"})
SIMPLE_VERBS = tuple(v for v in VERBS if not any(slot.kind in _CLAUSAL for slot in v.slots))
ACTIONS = tuple(v for v in SIMPLE_VERBS if not v.stative and _PEOPLE & frozenset(v.subject.split()))
"""Verbs that people can try, promise or be told to do."""


class ClauseSampler:
    """Draws clauses from a seeded generator."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.nominals = NominalSampler(rng, relative=self.relative)
        self.adverbials = AdverbialSampler(self.nominals)

    def clause(
        self,
        verb: Verb,
        *,
        tense: Tense | None = None,
        depth: int = 0,
        subject: meaning.Nominal | None = None,
        active: bool = False,
    ) -> Clause:
        """A finite clause around a verb, without adverbials.

        Args:
            verb: Its verb.
            tense: Drawn if None.
            depth: How many clauses are above.
            subject: Drawn if None.
            active: Never in the passive.
        """
        tense = tense or self.nominals.weighted(STATE_TENSES if verb.stative else _EVENT_TENSES)
        if tense.is_progressive and not verb.progressive:
            tense = SAME_TIME[tense]
        negated = self.nominals.chance(0.13) and not _reports(verb)
        if subject is None:
            style = Style(plain=negated, subject=True, depth=depth, pronouns=0.3 if depth else 0.18)
            subject = self.nominals.nominal(verb.subject, style)
        negated = negated and not _quantified(subject)
        style = Style(plain=negated, depth=depth, taken=subject)
        arguments = tuple(self.argument(slot, style, tense) for slot in verb.slots)
        return self._voiced(
            self._modal(Clause(verb, subject, arguments, tense, negated=negated)), active=active
        )

    def argument(self, slot: Slot, style: Style, tense: Tense) -> meaning.Argument:
        """What fills a verb's slot."""
        if slot.kind in ("place", "goal"):
            return self.nominals.located(self.nominals.noun(slot.kinds), goal=slot.kind == "goal")
        if slot.kind in _CLAUSAL:
            return self._complement(slot, style, tense)
        return self.nominals.nominal(slot.kinds, style)

    def _complement(self, slot: Slot, style: Style, tense: Tense) -> Complement:
        depth = style.depth + 1
        if slot.kind == "infinitive":
            return Complement("infinitive", self.infinitive(depth, style.taken))
        clause = self.embedded(self._varied(SAME_TIME.get(tense, tense)), depth, style.taken)
        if slot.kind == "that":
            return Complement("that", clause, silent=self.nominals.chance(0.3))
        if self.nominals.chance(0.45) and clause.verb is not BE:
            wh = meaning.Adverbial("time", meaning.WhAdverb(self.rng.choice(("why", "when"))))
            return Complement("wh", replace(clause, adverbials=(wh,)))
        return Complement("whether", clause)

    def infinitive(self, depth: int, above: meaning.Nominal | None) -> Clause:
        """A subjectless clause: "to buy bread"."""
        verb = self.rng.choice(ACTIONS)
        style = Style(plain=True, depth=depth, taken=above)
        arguments = tuple(self.argument(slot, style, Tense.INFINITIVE) for slot in verb.slots)
        clause = Clause(verb, None, arguments, Tense.INFINITIVE)
        return self.adverbials.complete(self._voiced(clause, active=True), depth)

    def embedded(
        self, tense: Tense, depth: int, above: meaning.Nominal | None, *, event: bool = False
    ) -> Clause:
        """A finite clause inside another one, often about the same person.

        Args:
            tense: Its tense.
            depth: How many clauses are above.
            above: Subject of the clause above.
            event: Something must happen in it; no states.
        """
        subject = pronoun_for(above) if self.nominals.chance(0.45) else None
        if not event and self.nominals.chance(0.2):
            return self.copula(tense, depth, subject)
        verbs = VERBS if depth < 2 and self.nominals.chance(0.15) else SIMPLE_VERBS
        fitting = [v for v in verbs if not (event and v.stative) and (subject is None or _takes_people(v))]
        verb = self.rng.choice(fitting)
        if verb.stative and tense not in STATE_TENSES:
            tense = Tense.PAST if tense.is_past else Tense.PRESENT
        clause = self.clause(verb, tense=tense, depth=depth, subject=subject)
        return self.adverbials.complete(clause, depth)

    def _varied(self, tense: Tense) -> Tense:
        return self.nominals.weighted(_NEAR_PAST if tense is Tense.PAST else _NEAR_PRESENT)

    def copula(self, tense: Tense | None, depth: int, subject: meaning.Nominal | None = None) -> Clause:
        """A predicate adjective: "The box is light.", "because he is tired"."""
        tense = tense if tense in STATE_TENSES else self.nominals.weighted(STATE_TENSES)
        wanted = self.nominals.wanted_adjective
        options = (
            [wanted]
            if wanted is not None and wanted.predicative
            else [a for a in ADJECTIVES if a.predicative]
        )
        negated = self.nominals.chance(0.12)
        if subject is not None:
            options = [a for a in ADJECTIVES if a.predicative and "person" in a.kinds.split()]
        adjective = self.rng.choice(options)
        if subject is None:
            style = Style(plain=negated, definite=True, depth=depth)
            phrase = self.nominals.noun_phrase(self.nominals.noun(adjective.kinds), style)
            coloured = tuple(a for a in phrase.adjectives if a.rank >= 2 and adjective.rank < 2)
            subject = replace(phrase, adjectives=coloured)
        return Clause(BE, subject, (meaning.Adjectival(adjective),), tense, negated=negated)

    def relative(self, noun: Noun, number: Number, depth: int) -> meaning.Relative | None:
        """A relative clause about a noun, as its subject or as one of the objects; None if no verb fits."""
        tense = self.nominals.weighted({Tense.PRESENT: 35, Tense.PAST: 45, Tense.PERFECT: 20})
        verbs = [v for v in SIMPLE_VERBS if not (v.stative and tense is Tense.PERFECT)]
        if self.nominals.chance(0.5):
            subjects = [verb for verb in verbs if can_be(noun, verb.subject)]
            if not subjects:
                return None
            person = "person" in noun.kind_set
            form = self.rng.choice(("who", "who", "that") if person else ("that", "which"))
            pronoun = meaning.RelativePronoun(noun, number, form)
            clause = self.clause(
                self.rng.choice(subjects), tense=tense, depth=depth, subject=pronoun, active=True
            )
            return meaning.Relative(self.adverbials.complete(clause, depth))
        return self._object_relative(noun, number, tense, depth, verbs)

    def _object_relative(
        self, noun: Noun, number: Number, tense: Tense, depth: int, verbs: list[Verb]
    ) -> meaning.Relative | None:
        options = [
            (verb, index)
            for verb in verbs
            for index, slot in enumerate(verb.slots)
            if slot.kind == "nominal" and can_be(noun, slot.kinds)
        ]
        if not options:
            return None
        verb, index = self.rng.choice(options)
        piped = "who" if "person" in noun.kind_set else "which"
        form = self.rng.choice(("", piped) if verb.slots[index].en else ("", "that"))
        clause = self.clause(verb, tense=tense, depth=depth, active=True)
        modal = None if clause.modal is not None and clause.modal.linked else clause.modal
        arguments = list(clause.arguments)
        arguments[index] = meaning.RelativePronoun(noun, number, form)
        return meaning.Relative(replace(clause, arguments=tuple(arguments), modal=modal, shifted=False))

    def _modal(self, clause: Clause) -> Clause:
        """Sometimes a modal, where its subject can want or be able to."""
        simple = clause.tense in STATE_TENSES
        if (
            clause.verb.stative
            or not simple
            or not _animate(clause.subject)
            or not self.nominals.chance(0.28)
        ):
            return clause
        fitting = [modal for modal in MODALS if clause.tense is Tense.PRESENT or modal.en_past]
        if clause.negated:
            fitting = [modal for modal in fitting if modal.en_present.base not in ("must", "may")]
        return replace(clause, modal=self.rng.choice(fitting))

    def _voiced(self, clause: Clause, *, active: bool) -> Clause:
        """Sometimes the passive; and the English variants that German does not have."""
        if not active and _can_be_passive(clause) and self.nominals.chance(0.14):
            named = isinstance(clause.subject, meaning.NounPhrase | Name) and self.nominals.chance(0.6)
            clause = replace(clause, passive=True, subject=clause.subject if named else None)
        else:
            shifted, last = self._shifts(clause), self._particle_last(clause)
            clause = replace(clause, shifted=shifted, particle_last=last)
        return replace(clause, contracted=_can_contract(clause) and self.nominals.chance(0.5))

    def _shifts(self, clause: Clause) -> bool:
        slots = clause.verb.slots
        if not slots or not slots[-1].shifts or isinstance(clause.arguments[0], meaning.Pronoun):
            return False
        return isinstance(clause.arguments[-1], meaning.Pronoun) or self.nominals.chance(0.5)

    def _particle_last(self, clause: Clause) -> bool:
        if not clause.verb.en.particle or clause.verb.direct_object is None:
            return False
        argument = clause.arguments[0]
        if isinstance(argument, meaning.NounPhrase):
            return argument.relative is None and argument.modifier is None and self.nominals.chance(0.4)
        return True


def can_be(noun: Noun, kinds: str) -> bool:
    """Whether the noun is of one of these kinds."""
    return bool(noun.kind_set & frozenset(kinds.split()))


def pronoun_for(nominal: meaning.Nominal | None) -> meaning.Pronoun | None:
    """The pronoun that takes up a nominal, if it denotes people."""
    match nominal:
        case meaning.Pronoun():
            return nominal
        case Name(gender=gender):
            return meaning.Pronoun(3, "sg", "m" if gender == "m" else "f")
        case meaning.Coordinated() | meaning.NominalAdjective():
            return meaning.Pronoun(3, "pl")
        case meaning.NounPhrase(noun=noun, number=number) if "person" in noun.kind_set and noun.en != "child":
            return (
                meaning.Pronoun(3, "pl")
                if number == "pl"
                else meaning.Pronoun(3, "sg", "m" if noun.gender == "m" else "f")
            )
        case _:
            return None


def _takes_people(verb: Verb) -> bool:
    return bool(_PEOPLE & frozenset(verb.subject.split()))


def _reports(verb: Verb) -> bool:
    """Whether negating the verb would leave open what happened in the clause below."""
    return any(slot.kind in ("that", "infinitive") for slot in verb.slots) and not verb.stative


def _quantified(subject: meaning.Nominal) -> bool:
    determiner = subject.determiner if isinstance(subject, meaning.NounPhrase) else None
    return determiner is not None and determiner.en in ("every", "no", "all", "some", "many")


def _animate(subject: meaning.Nominal | None) -> bool:
    if isinstance(subject, meaning.NounPhrase | meaning.RelativePronoun):
        return bool(subject.noun.kind_set & {"person", "animal"})
    return True


def _can_be_passive(clause: Clause) -> bool:
    index = clause.verb.direct_object
    return (
        index is not None
        and not clause.verb.stative
        and not clause.tense.is_progressive
        and (clause.modal is None or not clause.modal.linked)
        and isinstance(clause.arguments[index], meaning.NounPhrase)
    )


def _can_contract(clause: Clause) -> bool:
    """Whether "n't" may be written: not after "am"."""
    return clause.negated and clause.subject != meaning.Pronoun(1, "sg")
