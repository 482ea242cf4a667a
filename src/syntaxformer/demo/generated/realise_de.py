"""German clauses by topological fields: Vorfeld, left bracket, Mittelfeld, right bracket, Nachfeld.

Main clauses have the finite verb second, questions and commands first, subordinate clauses last. One table
sorts the complements in the Mittelfeld; clauses, and relative clauses at its end, follow the right bracket.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from syntaxformer.demo.generated import meaning
from syntaxformer.demo.generated.features import Number, Person
from syntaxformer.demo.generated.german_inflection import REFLEXIVES
from syntaxformer.demo.generated.lexicon.entries import Adverb, Slot
from syntaxformer.demo.generated.meaning import Clause, Complement, Subordinate, Utterance
from syntaxformer.demo.generated.realise_nominal_de import (
    COMMA_TAG,
    agreement,
    is_indefinite,
    nominal,
    prep_phrase,
    with_preposition,
)
from syntaxformer.demo.generated.surface import Part, Phrase, Word, comma
from syntaxformer.demo.generated.verb_group_de import Form, VerbGroup, verb_group

__all__ = ["MITTELFELD", "german"]

MITTELFELD = (
    "subject pronoun",
    "subject",
    "reflexive",
    "accusative pronoun",
    "dative pronoun",
    "time",
    "dative",
    "accusative definite",
    "frequency",
    "negation",
    "manner",
    "accusative indefinite",
    "agent",
    "place",
    "prepositional",
    "goal",
    "predicate",
)
"""Order of the Mittelfeld."""

_WH = {"where": "wo", "when": "wann", "why": "warum"}
_MARKS = {"statement": ".", "question": "?", "command": "!"}
_LINKERS = {"and": "und", "but": "aber"}


@dataclass(slots=True)
class _Fields:
    """A clause being filled: the front constituent, the Mittelfeld by rank, and the Nachfeld."""

    head: Word
    front: Part | None = None
    middle: list[tuple[str, Part]] = field(default_factory=list)
    after: list[Part] = field(default_factory=list)

    def in_order(self) -> list[Part]:
        """The Mittelfeld, sorted."""
        return [part for _, part in sorted(self.middle, key=lambda entry: MITTELFELD.index(entry[0]))]


def german(utterance: Utterance) -> Phrase:
    """The German side of a meaning."""
    clause = utterance.clause
    controller = (2, "sg") if clause.grammatical_subject is None else agreement(clause.grammatical_subject)
    form = "imperative" if utterance.mood == "command" else "second"
    phrase = _clause(clause, form, controller, verb_first=utterance.mood != "statement")
    head = phrase.head
    if utterance.also is not None:
        phrase = Phrase("S", [phrase, *_second_clause(utterance, utterance.also, controller, head)], head)
    mark = "." if utterance.mood == "command" else _MARKS[utterance.mood]
    phrase.parts.append(Word(mark, "PUNCT", "$.", mark, glued=True).attach(head, "punct"))
    return phrase


def _second_clause(
    utterance: Utterance, also: Clause, controller: tuple[Person, Number], head: Word
) -> list[Part]:
    subject = also.grammatical_subject
    second = _clause(also, "second", controller if subject is None else agreement(subject)).attach(
        head, "conj"
    )
    linker = _LINKERS[utterance.linker]
    word = Word(linker, "CCONJ", "KON", linker).attach(second, "cc")
    return [comma(second, COMMA_TAG), word, second] if linker == "aber" else [word, second]


def relative_clause(node: meaning.Relative) -> Phrase:
    """A verb-final clause that its relative pronoun opens, with its preposition if it has one."""
    return _finite_clause(None, node.clause)


def _finite_clause(mark: Word | None, clause: Clause) -> Phrase:
    subject = clause.grammatical_subject
    phrase = _clause(clause, "final", (3, "sg") if subject is None else agreement(subject))
    if mark is not None:
        phrase.parts.insert(0, mark.attach(phrase, "mark"))
    return phrase


def _clause(
    clause: Clause, form: Form, controller: tuple[Person, Number], *, verb_first: bool = False
) -> Phrase:
    """Fill the fields and lay them out.

    Args:
        clause: What to say.
        form: Where the verb goes, see `verb_group_de.Form`.
        controller: Person and number of the subject, or of the silent subject of an infinitive.
        verb_first: Nothing but a question word may stand before the finite verb.
    """
    verbs = verb_group(clause, *controller, form)
    fields = _fill(clause, verbs, controller)
    middle = fields.in_order()
    vorfeld = fields.front
    if vorfeld is None and form == "second" and not verb_first and clause.grammatical_subject is not None:
        vorfeld = middle.pop(0)
    if verbs.right:
        fields.after[:0] = _extraposed(middle)
    left = [part for part in (vorfeld, verbs.left) if part is not None]
    return Phrase("S", [*left, *middle, *verbs.right, *fields.after], fields.head)


def _fill(clause: Clause, verbs: VerbGroup, controller: tuple[Person, Number]) -> _Fields:
    fields = _Fields(_head(clause, verbs))
    head = fields.head
    subject = clause.grammatical_subject
    if subject is not None:
        _place_subject(fields, subject, "nsubj:pass" if clause.passive else "nsubj")
    if clause.verb.de.reflexive:
        word = Word(REFLEXIVES[controller], "PRON", "PRF", "sich").attach(head, "expl:pv")
        fields.middle.append(("reflexive", word))
    kein = clause.negated and any(is_indefinite(node) for node in _accusatives(clause))
    for slot, argument in clause.complements:
        _place_complement(fields, slot, argument, negative=kein, controller=controller)
    if clause.passive and clause.subject is not None:
        agent = with_preposition("von", nominal(clause.subject, "dat", relative_clause))
        fields.middle.append(("agent", agent.attach(head, "obl:agent")))
    if clause.negated and not kein:
        fields.middle.append(("negation", Word("nicht", "PART", "PTKNEG", "nicht").attach(head, "advmod")))
    _place_adverbials(fields, clause, controller)
    return fields


def _head(clause: Clause, verbs: VerbGroup) -> Word:
    """The main verb, or the predicate adjective with the verbs as its copula and auxiliaries."""
    argument = clause.arguments[0] if clause.arguments else None
    head = verbs.main
    if isinstance(argument, meaning.Adjectival):
        form = argument.adjective.de
        head = Word(form, "ADJ", "ADJD", form)
        verbs.main.attach(head, "cop")
    for auxiliary in verbs.auxiliaries:
        passive = clause.passive and auxiliary is verbs.auxiliaries[0]
        auxiliary.attach(head, "aux:pass" if passive else "aux")
    return head


def _accusatives(clause: Clause) -> list[meaning.Argument]:
    return [
        argument
        for slot, argument in clause.complements
        if slot.kind == "nominal" and not slot.de and slot.case == "acc"
    ]


def _place_subject(fields: _Fields, subject: meaning.Nominal, relation: str) -> None:
    phrase = nominal(subject, "nom", relative_clause)
    phrase.attach(fields.head, "expl" if isinstance(subject, meaning.Expletive) else relation)
    if _opens(subject):
        fields.front = phrase
        return
    pronoun = isinstance(subject, meaning.Pronoun | meaning.Expletive)
    fields.middle.append(("subject pronoun" if pronoun else "subject", phrase))


def _opens(node: meaning.Argument) -> bool:
    """Whether a question word or relative pronoun must open the clause."""
    if isinstance(node, meaning.NounPhrase):
        return node.determiner is not None and node.determiner.en == "which"
    return isinstance(node, meaning.Interrogative | meaning.RelativePronoun)


def _place_complement(
    fields: _Fields,
    slot: Slot,
    argument: meaning.Argument,
    *,
    negative: bool,
    controller: tuple[Person, Number],
) -> None:
    head = fields.head
    match argument:
        case meaning.Adjectival():
            fields.middle.append(("predicate", head))
        case Complement():
            relation = "xcomp" if argument.kind == "infinitive" else "ccomp"
            phrase = _complement_clause(argument, controller).attach(head, relation)
            fields.after.append(_set_off(phrase))
        case meaning.PrepPhrase():
            phrase = prep_phrase(argument, relative_clause).attach(head, "obl")
            fields.middle.append(("goal", phrase))
        case _:
            _place_nominal(fields, slot, argument, negative=negative and slot.case == "acc")


def _place_nominal(fields: _Fields, slot: Slot, node: meaning.Nominal, *, negative: bool) -> None:
    phrase = nominal(node, slot.case, relative_clause, negative=negative)
    if slot.de:
        rank, relation = "prepositional", "obl"
        phrase = with_preposition(slot.de, phrase)
    else:
        case, relation = ("dative", "obl:arg") if slot.case == "dat" else ("accusative", "obj")
        rank = f"{case}{_weight(node, case)}"
    phrase.attach(fields.head, relation)
    if _opens(node):
        fields.front = phrase
    else:
        fields.middle.append((rank, phrase))


def _weight(node: meaning.Nominal, case: str) -> str:
    if isinstance(node, meaning.Pronoun):
        return " pronoun"
    if case == "dative":
        return ""
    return " indefinite" if is_indefinite(node) else " definite"


def _complement_clause(node: Complement, controller: tuple[Person, Number]) -> Phrase:
    if node.kind == "infinitive":
        return _clause(node.clause, "infinitive", controller)
    forms = {"that": "dass", "whether": "ob"}
    mark = Word(forms[node.kind], "SCONJ", "KOUS", forms[node.kind]) if node.kind in forms else None
    return _finite_clause(mark, node.clause)


def _place_adverbials(fields: _Fields, clause: Clause, controller: tuple[Person, Number]) -> None:
    for index, adverbial in enumerate(clause.adverbials):
        part = _adverbial(adverbial, fields.head)
        if (clause.fronted and index == 0) or isinstance(adverbial.content, meaning.WhAdverb):
            fields.front = part
        else:
            fields.middle.append((adverbial.role, part))
    if clause.subordinate is not None:
        phrase = _subordinate(clause.subordinate, controller).attach(fields.head, "advcl")
        if clause.subordinate.first:
            fields.front = Phrase("SBAR", [phrase, comma(phrase, COMMA_TAG)], phrase.head)
        else:
            fields.after.append(_set_off(phrase))


def _adverbial(adverbial: meaning.Adverbial, head: Word) -> Part:
    content = adverbial.content
    match content:
        case meaning.PrepPhrase():
            return prep_phrase(content, relative_clause).attach(head, "obl")
        case meaning.NounPhrase():
            return nominal(content, "acc", relative_clause).attach(head, "obl")
        case Adverb():
            return Word(content.de, "ADV", "ADV", content.de).attach(head, "advmod")
        case meaning.WhAdverb():
            return Word(_WH[content.en], "ADV", "PWAV", _WH[content.en]).attach(head, "advmod")


def _subordinate(node: Subordinate, controller: tuple[Person, Number]) -> Phrase:
    if node.conjunction is None:
        phrase = _clause(node.clause, "infinitive", controller)
        phrase.parts.insert(0, Word("um", "SCONJ", "KOUI", "um").attach(phrase, "mark"))
        return phrase
    past = node.clause.tense.is_past and node.conjunction.de_past
    form = node.conjunction.de_past if past else node.conjunction.de
    return _finite_clause(Word(form, "SCONJ", "KOUS", form), node.clause)


def _set_off(phrase: Phrase) -> Phrase:
    return Phrase("SBAR", [comma(phrase, COMMA_TAG), phrase, comma(phrase, COMMA_TAG)], phrase.head)


def _extraposed(middle: list[Part]) -> list[Part]:
    """Cut a relative clause off the end of the Mittelfeld, to stand after the right bracket."""
    owner = middle[-1] if middle else None
    while isinstance(owner, Phrase) and isinstance(owner.parts[-1], Phrase):
        if owner.parts[-1].label == "RC":
            return [owner.parts.pop()]
        owner = owner.parts[-1]
    return []
