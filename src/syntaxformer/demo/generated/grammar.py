"""Samples meanings of whole sentences: statements, questions, commands, and clauses joined to them.

Weights and small tables say how often what happens; the lexicon says what goes together. No word order and no
inflection is decided here.
"""

from __future__ import annotations

import random
from dataclasses import replace
from functools import cache

from syntaxformer.demo.generated import meaning
from syntaxformer.demo.generated.features import Number, Tense
from syntaxformer.demo.generated.grammar_clause import (
    ACTIONS,
    SAME_TIME,
    SIMPLE_VERBS,
    STATE_TENSES,
    ClauseSampler,
    can_be,
)
from syntaxformer.demo.generated.grammar_nominal import Style, nouns_of
from syntaxformer.demo.generated.lexicon import BE, CONJUNCTIONS, DETERMINERS, THERE_IS, VERBS
from syntaxformer.demo.generated.lexicon.entries import Adjective, Conjunction, Noun, Verb
from syntaxformer.demo.generated.meaning import Adverbial, Clause, Complement, Subordinate, Utterance

__all__ = ["Focus", "Grammar"]

Focus = Noun | Verb | Adjective | None

_SHAPES = {"plain": 56, "coordinated": 7, "yes/no": 8, "wh": 10, "command": 6, "there is": 4, "copula": 9}
_SUBORDINATE = 0.17
_FRAMES = {"clause": 26, "no complement": 22, "other": 52}
_VERBS_BY_FRAME = {
    "clause": tuple(verb for verb in VERBS if verb not in SIMPLE_VERBS),
    "no complement": tuple(verb for verb in SIMPLE_VERBS if not verb.slots),
    "other": tuple(verb for verb in SIMPLE_VERBS if verb.slots),
}
_CONJUNCTIONS: dict[Tense, str] = {
    Tense.PRESENT: "because although when if while before",
    Tense.PROGRESSIVE: "because although while",
    Tense.PAST: "because although when while before until after",
    Tense.PAST_PROGRESSIVE: "because although when while",
    Tense.PERFECT: "because although",
    Tense.FUTURE: "because if when before after",
}
"""Which conjunctions go with which tense of the main clause."""

_STATES = frozenset({"because", "although", "if"})
"""Conjunctions whose clause may be a state, in any tense of its time."""


class Grammar:
    """A seeded source of meanings.

    Args:
        seed: Two grammars of one seed yield the same meanings in the same order.
    """

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self._clauses = ClauseSampler(self.rng)
        self._nominals = self._clauses.nominals

    def utterance(self, focus: Focus = None) -> Utterance:
        """Draw one sentence; it is about `focus` where that can be arranged."""
        self._nominals.wanted_noun = self._nominals.wanted_adjective = None
        shape = self._nominals.weighted(_SHAPES)
        if isinstance(focus, Adjective):
            self._nominals.wanted_adjective = focus
        if shape == "copula" and not isinstance(focus, Noun | Verb):
            return Utterance(self._with_subordinate(self._clauses.copula(None, 0)))
        if shape == "there is" and focus is None:
            return Utterance(self._there_is())
        verb = self._aim(focus)
        if shape == "command" and verb in ACTIONS:
            return self._command(verb)
        if shape == "yes/no":
            return self._yes_no(verb)
        if shape == "wh":
            return self._wh(verb)
        main = self._finished(self._clauses.clause(verb))
        if shape == "coordinated" and verb in ACTIONS:
            return self._coordinated(main)
        return Utterance(self._with_subordinate(main))

    def _aim(self, focus: Focus) -> Verb:
        """Note the noun that the sentence should hold, and pick a verb that can hold it."""
        if isinstance(focus, Verb):
            return focus
        if focus is None:
            return self.rng.choice(_VERBS_BY_FRAME[self._nominals.weighted(_FRAMES)])
        noun = focus if isinstance(focus, Noun) else self.rng.choice(nouns_of(focus.kinds))
        self._nominals.wanted_noun = noun
        return self.rng.choice(_holders(noun))

    def _finished(self, clause: Clause) -> Clause:
        return self._clauses.adverbials.complete(clause)

    def _there_is(self) -> Clause:
        noun = self._nominals.noun(THERE_IS.slots[0].kinds)
        number: Number = noun.number or self._nominals.weighted({"sg": 6, "pl": 4})
        options = ("a", "no") if number == "sg" else ("some", "many", "two", "three", "no")
        determiner = DETERMINERS[self.rng.choice(options)]
        what = meaning.NounPhrase(noun, number, determiner, self._nominals.adjectives(noun))
        place = Adverbial("place", self._nominals.place())
        tense = self._nominals.weighted(STATE_TENSES)
        front = self._nominals.chance(0.4)
        return Clause(THERE_IS, meaning.Expletive(number), (what,), tense, adverbials=(place,), fronted=front)

    def _command(self, verb: Verb) -> Utterance:
        taken = meaning.Pronoun(2, "sg")
        negated = self._nominals.chance(0.15)
        style = Style(plain=negated, taken=taken)
        arguments = tuple(self._clauses.argument(slot, style, Tense.PRESENT) for slot in verb.slots)
        clause = Clause(verb, None, arguments, Tense.INFINITIVE, negated=negated)
        clause = replace(self._finished(clause), tense=Tense.PRESENT, contracted=negated)
        return Utterance(clause, "command")

    def _yes_no(self, verb: Verb) -> Utterance:
        clause = self._finished(self._clauses.clause(verb))
        return Utterance(_asked(clause), "question")

    def _wh(self, verb: Verb) -> Utterance:
        clause = _asked(self._finished(self._clauses.clause(verb, active=True)))
        options = [self._wh_subject, self._wh_object, self._wh_object, self._wh_adverb]
        self.rng.shuffle(options)
        asked = next((question for make in options if (question := make(clause)) is not None), clause)
        return Utterance(asked, "question")

    def _wh_subject(self, clause: Clause) -> Clause | None:
        """Ask for the subject: "Who waters the plants?", "Which dog sleeps?"."""
        noun = clause.subject.noun if isinstance(clause.subject, meaning.NounPhrase) else None
        if noun is None or "person" in noun.kind_set:
            if "person" not in clause.verb.subject.split():
                return None
            return replace(clause, subject=meaning.Interrogative("who"))
        return replace(clause, subject=self._which(noun))

    def _wh_object(self, clause: Clause) -> Clause | None:
        """Ask for an object: "Who does he help?", "What does she buy?", "Which book did you read?"."""
        for index, slot in enumerate(clause.verb.slots):
            argument = clause.arguments[index]
            if (
                slot.kind == "nominal"
                and not slot.en
                and not slot.de
                and isinstance(argument, meaning.NounPhrase)
            ):
                person = bool(argument.noun.kind_set & {"person"})
                word: meaning.Nominal = meaning.Interrogative("who" if person else "what")
                if self._nominals.chance(0.5) or (slot.case == "dat" and not person):
                    word = self._which(argument.noun)
                arguments = (*clause.arguments[:index], word, *clause.arguments[index + 1 :])
                modal = None if clause.modal is not None and clause.modal.linked else clause.modal
                return replace(clause, arguments=arguments, modal=modal, shifted=False, particle_last=False)
        return None

    def _wh_adverb(self, clause: Clause) -> Clause | None:
        used = {adverbial.role for adverbial in clause.adverbials}
        placed = "place" in used or any(slot.kind in ("place", "goal") for slot in clause.verb.slots)
        options = (
            ["why"] + ["when"] * ("time" not in used) + ["where"] * (not placed and not clause.verb.stative)
        )
        wh = Adverbial("time", meaning.WhAdverb(self.rng.choice(options)))  # type: ignore[arg-type]
        return replace(clause, adverbials=(*clause.adverbials, wh))

    def _which(self, noun: Noun) -> meaning.NounPhrase:
        number: Number = noun.number or (
            "sg" if noun.is_mass else self._nominals.weighted({"sg": 7, "pl": 3})
        )
        return meaning.NounPhrase(noun, number, DETERMINERS["which"], self._nominals.adjectives(noun))

    def _coordinated(self, main: Clause) -> Utterance:
        """Two clauses: "The man closes the door and leaves.", "Anna sings, but Paul sleeps."."""
        if not _is_person(main):
            return Utterance(main)
        verb = self.rng.choice(
            [option for option in ACTIONS if option is not main.verb and "person" in option.subject]
        )
        if main.modal is None and not main.passive and self._nominals.chance(0.6):
            style = Style(taken=main.subject, depth=1)
            arguments = tuple(self._clauses.argument(slot, style, main.tense) for slot in verb.slots)
            return Utterance(main, also=Clause(verb, None, arguments, main.tense))
        second = self._clauses.clause(verb, tense=main.tense, depth=1)
        return Utterance(main, also=second, linker=self.rng.choice(("and", "but")))

    def _with_subordinate(self, main: Clause) -> Clause:
        """Sometimes an adverbial clause, before or after the main clause."""
        if any(isinstance(argument, Complement) for argument in main.arguments) or main.passive:
            return main
        if (
            main.verb.de.infinitive in ("gehen", "laufen", "fahren")
            and _is_person(main)
            and self._nominals.chance(0.4)
        ):
            return replace(main, subordinate=Subordinate(None, self._clauses.infinitive(1, main.subject)))
        if not self._nominals.chance(_SUBORDINATE):
            return main
        names = ["because", "although"] if main.verb is BE else _CONJUNCTIONS[main.tense].split()
        conjunction = self.rng.choice([c for c in CONJUNCTIONS if c.en in names])
        first = conjunction.en != "until" and not main.fronted and self._nominals.chance(0.4)
        return replace(
            main, subordinate=Subordinate(conjunction, self._circumstance(conjunction, main), first)
        )

    def _circumstance(self, conjunction: Conjunction, main: Clause) -> Clause:
        tense = SAME_TIME.get(main.tense, main.tense)
        if conjunction.en == "after":
            tense = Tense.PLUPERFECT if tense is Tense.PAST else Tense.PERFECT
        return self._clauses.embedded(tense, 1, main.subject, event=conjunction.en not in _STATES)


@cache
def _holders(noun: Noun) -> tuple[Verb, ...]:
    """Verbs that can have the noun as subject or complement; all, if none can."""
    kinds = {verb: " ".join((verb.subject, *(slot.kinds for slot in verb.slots))) for verb in SIMPLE_VERBS}
    return tuple(verb for verb, wanted in kinds.items() if can_be(noun, wanted)) or SIMPLE_VERBS


def _asked(clause: Clause) -> Clause:
    """The clause as a question asks it: not negated, and what was fronted is back at the end."""
    fronted = int(clause.fronted)
    kept = clause.adverbials[fronted:] + clause.adverbials[:fronted]
    return replace(clause, adverbials=kept, fronted=False, negated=False, contracted=False)


def _is_person(clause: Clause) -> bool:
    return not isinstance(clause.subject, meaning.NounPhrase) or "person" in clause.subject.noun.kind_set
