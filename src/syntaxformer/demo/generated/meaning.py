"""What a sentence says, before either language says it.

A small tree of typed nodes. `grammar` samples it, `realise_en` and `realise_de` each read it; neither sees
the other's words, so a pair is a translation because both sides say the same thing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from syntaxformer.demo.generated.features import Number, Person, Tense
from syntaxformer.demo.generated.lexicon.entries import (
    Adjective,
    Adverb,
    Conjunction,
    Determiner,
    Modal,
    Name,
    Noun,
    Preposition,
    Slot,
    Verb,
)

__all__ = [
    "Adjectival",
    "Adverbial",
    "Argument",
    "Clause",
    "Complement",
    "Coordinated",
    "Expletive",
    "Interrogative",
    "Nominal",
    "NominalAdjective",
    "NounPhrase",
    "PrepPhrase",
    "Pronoun",
    "Relative",
    "RelativePronoun",
    "Subordinate",
    "Utterance",
    "WhAdverb",
]


@dataclass(frozen=True, slots=True)
class Pronoun:
    """A personal pronoun; `gender` only in the third person singular."""

    person: Person
    number: Number
    gender: Literal["m", "f", ""] = ""


@dataclass(frozen=True, slots=True)
class NounPhrase:
    """A noun with its dependents.

    Args:
        noun: The head.
        number: Singular or plural.
        determiner: None for bare nouns and where a possessor stands instead.
        adjectives: At most two, in the order of both languages.
        possessor: "my", "Anna's", "the man's"; a thing's possessor is said with "of".
        modifier: A prepositional phrase that says which one.
        relative: A relative clause.
    """

    noun: Noun
    number: Number = "sg"
    determiner: Determiner | None = None
    adjectives: tuple[Adjective, ...] = ()
    possessor: Nominal | None = None
    modifier: PrepPhrase | None = None
    relative: Relative | None = None


@dataclass(frozen=True, slots=True)
class NominalAdjective:
    """Those who are so: "the old", die Alten."""

    adjective: Adjective


@dataclass(frozen=True, slots=True)
class Coordinated:
    """Two nominals joined by "and"."""

    first: NounPhrase | Name
    second: NounPhrase | Name


@dataclass(frozen=True, slots=True)
class RelativePronoun:
    """The gap of a relative clause, with what German agrees with; `en` is empty for a zero relative."""

    noun: Noun
    number: Number
    en: Literal["that", "who", "which", ""]


@dataclass(frozen=True, slots=True)
class Interrogative:
    """The question words "who" and "what" as an argument."""

    en: Literal["who", "what"]


@dataclass(frozen=True, slots=True)
class Expletive:
    """The empty subject of "there is" and es gibt; English agrees with what there is."""

    number: Number


Nominal = (
    Pronoun | Name | NounPhrase | NominalAdjective | Coordinated | RelativePronoun | Interrogative | Expletive
)


@dataclass(frozen=True, slots=True)
class Adjectival:
    """A predicate adjective."""

    adjective: Adjective


@dataclass(frozen=True, slots=True)
class PrepPhrase:
    """A preposition with its nominal."""

    preposition: Preposition
    nominal: Nominal


@dataclass(frozen=True, slots=True)
class WhAdverb:
    """The question words "where", "when" and "why"."""

    en: Literal["where", "when", "why"]


@dataclass(frozen=True, slots=True)
class Adverbial:
    """A free adverbial; a bare noun phrase is a stretch of time ("every evening", jeden Abend)."""

    role: Literal["time", "frequency", "manner", "place"]
    content: Adverb | PrepPhrase | NounPhrase | WhAdverb


@dataclass(frozen=True, slots=True)
class Complement:
    """A clause as a complement.

    Args:
        kind: "that" and "whether" clauses are finite, "infinitive" has no subject; "wh" opens with its own
            question word.
        clause: The clause.
        silent: English leaves "that" out.
    """

    kind: Literal["that", "whether", "infinitive", "wh"]
    clause: Clause
    silent: bool = False


@dataclass(frozen=True, slots=True)
class Relative:
    """A relative clause; one of its arguments is a `RelativePronoun`."""

    clause: Clause


@dataclass(frozen=True, slots=True)
class Subordinate:
    """An adverbial clause; with no conjunction, the clause is an infinitive of purpose ("to", um … zu)."""

    conjunction: Conjunction | None
    clause: Clause
    first: bool = False


Argument = Nominal | PrepPhrase | Complement | Adjectival


@dataclass(frozen=True, slots=True)
class Clause:
    """A predicate with its arguments.

    Args:
        verb: What happens.
        subject: Who does it; None in imperatives, infinitives and after "and" with the subject of before.
        arguments: One for each of the verb's slots.
        tense: Tense and aspect.
        modal: A modal, with the present or past tense.
        negated: Sentence negation ("not", nicht or kein).
        passive: The direct object is the grammatical subject; the subject, if any, is the agent.
        shifted: English puts the recipient before the object.
        particle_last: English puts the particle after the object.
        adverbials: Free adverbials, in English order.
        fronted: The first adverbial opens the sentence.
        subordinate: An adverbial clause.
        contracted: English writes "n't".
    """

    verb: Verb
    subject: Nominal | None
    arguments: tuple[Argument, ...] = ()
    tense: Tense = Tense.PRESENT
    modal: Modal | None = None
    negated: bool = False
    passive: bool = False
    shifted: bool = False
    particle_last: bool = False
    adverbials: tuple[Adverbial, ...] = ()
    fronted: bool = False
    subordinate: Subordinate | None = None
    contracted: bool = False

    @property
    def grammatical_subject(self) -> Nominal | None:
        """What the verb agrees with: the direct object in the passive."""
        index = self.verb.direct_object
        return self.arguments[index] if self.passive and index is not None else self.subject  # type: ignore[return-value]

    @property
    def complements(self) -> tuple[tuple[Slot, Argument], ...]:
        """Slots and arguments other than the grammatical subject, in English order."""
        pairs = list(zip(self.verb.slots, self.arguments, strict=True))
        if self.passive and self.verb.direct_object is not None:
            del pairs[self.verb.direct_object]
        return tuple(reversed(pairs)) if self.shifted else tuple(pairs)


@dataclass(frozen=True, slots=True)
class Utterance:
    """A whole sentence.

    Args:
        clause: The main clause.
        mood: A question is a yes/no question unless something in the clause asks.
        also: A second main clause after "and" or "but"; it may leave out its subject.
        linker: English conjunction before `also`.
    """

    clause: Clause
    mood: Literal["statement", "question", "command"] = "statement"
    also: Clause | None = None
    linker: Literal["and", "but"] = field(default="and")
