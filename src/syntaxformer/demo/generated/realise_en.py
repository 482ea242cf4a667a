"""English clauses: subject, verb group, complements and adverbials in English order.

Reads a meaning and returns a `Phrase`; German order is in `realise_de`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from syntaxformer.demo.generated import meaning
from syntaxformer.demo.generated.features import Tense
from syntaxformer.demo.generated.lexicon.entries import Slot, Verb
from syntaxformer.demo.generated.meaning import Clause, Complement, Subordinate, Utterance
from syntaxformer.demo.generated.realise_nominal_en import (
    adverbial,
    agreement,
    nominal,
    prep_phrase,
    preposition,
)
from syntaxformer.demo.generated.surface import Part, Phrase, Word, comma
from syntaxformer.demo.generated.verb_group_en import verb_group

__all__ = ["english"]

_MARKS = {"statement": ".", "question": "?", "command": "."}


@dataclass(slots=True)
class _Pieces:
    """A clause taken apart: `front` is a question word or relative pronoun, `rest` follows the main verb."""

    head: Word
    verbs: list[Word]
    subject: Phrase | None
    after_first: list[Part]
    rest: list[Part]
    front: Part | None


def english(utterance: Utterance) -> Phrase:
    """The English side of a meaning."""
    phrase = _clause(
        utterance.clause, inverted=utterance.mood == "question", finite=utterance.mood != "command"
    )
    head = phrase.head
    if utterance.also is not None:
        phrase = Phrase("S", [phrase, *_second_clause(utterance, utterance.also, head)], head)
    mark = _MARKS[utterance.mood]
    phrase.parts.append(Word(mark, "PUNCT", ".", mark, glued=True).attach(head, "punct"))
    return phrase


def _second_clause(utterance: Utterance, also: Clause, head: Word) -> list[Part]:
    silent = also.grammatical_subject is None
    agreeing = replace(also, subject=utterance.clause.grammatical_subject) if silent else also
    second = _clause(agreeing, silent_subject=silent).attach(head, "conj")
    linker = Word(utterance.linker, "CCONJ", "CC", utterance.linker).attach(second, "cc")
    return [linker, second] if silent else [comma(second, ","), linker, second]


def relative_clause(node: meaning.Relative) -> Phrase:
    """A relative clause: "that she saw", "who sleeps", "for whom he waits", "she waits for"."""
    return _wrapped(None, node.clause)


def _clause(
    clause: Clause, *, inverted: bool = False, finite: bool = True, silent_subject: bool = False
) -> Phrase:
    """A clause with everything but its complementiser; question words and relative pronouns come first."""
    clause = _unlink(clause)
    subject_opens = _opens(clause.grammatical_subject)
    inverted = inverted and not subject_opens
    pieces = _take_apart(clause, inverted=inverted, finite=finite)
    front = pieces.subject if subject_opens else pieces.front
    subject = None if silent_subject or subject_opens else pieces.subject
    parts = _in_order(pieces, subject, inverted=inverted)
    label = "SQ" if inverted else "S"
    if front is not None:
        return Phrase(
            "SBARQ" if inverted else "SBAR", [front, Phrase(label, parts, pieces.head)], pieces.head
        )
    return Phrase(label, [*_opening(clause, pieces.head), *parts], pieces.head)


def _unlink(clause: Clause) -> Clause:
    """Turn a linked modal into a verb with an infinitive: "wants" + "to read"."""
    if clause.modal is None or not clause.modal.linked:
        return clause
    kept = ("frequency",)
    outer = tuple(a for i, a in enumerate(clause.adverbials) if a.role in kept or (clause.fronted and i == 0))
    outer += tuple(a for a in clause.adverbials if isinstance(a.content, meaning.WhAdverb))
    inner = replace(
        clause,
        modal=None,
        subject=None,
        negated=False,
        tense=Tense.INFINITIVE,
        fronted=False,
        subordinate=None,
        adverbials=tuple(a for a in clause.adverbials if a not in outer),
    )
    verb = Verb(clause.modal.en_present, clause.verb.de, "", (Slot("infinitive"),))
    return replace(
        clause,
        verb=verb,
        modal=None,
        arguments=(Complement("infinitive", inner),),
        adverbials=outer,
        shifted=False,
        particle_last=False,
    )


def _take_apart(clause: Clause, *, inverted: bool, finite: bool) -> _Pieces:
    subject = clause.grammatical_subject
    person, number = (3, "pl") if subject is None else agreement(subject)
    verbs = verb_group(clause, person, number, inverted=inverted, finite=finite)
    head, rest, front = _complements(clause, verbs[-1])
    for verb in verbs[:-1]:
        verb.attach(head, "aux:pass" if clause.passive and verb is verbs[-2] else "aux")
    adverbials = _adverbials(clause, head)
    if front is None:
        front = next((part for part in adverbials if part.head.xpos == "WRB"), None)
    rest += [part for part in adverbials if part is not front]
    rest += _closing(clause, head)
    return _Pieces(
        head, verbs, _subject(clause, head), _after_first_verb(clause, verbs[0], head), rest, front
    )


def _in_order(pieces: _Pieces, subject: Part | None, *, inverted: bool) -> list[Part]:
    """Subject and nested verb phrase; with inversion the first verb stands before the subject."""
    first, *others = pieces.verbs
    before: list[Part] = [] if subject is None else [subject]
    if not others and first.lemma != "be":
        return [*before, Phrase("VP", [*pieces.after_first, first, *pieces.rest], pieces.head)]
    below = [*pieces.after_first, *_nested(others, pieces.rest, pieces.head)]
    if inverted:
        return [first, *before, *below]
    return [*before, Phrase("VP", [first, *below], pieces.head)]


def _nested(verbs: list[Word], rest: list[Part], head: Word) -> list[Part]:
    return [Phrase("VP", [verbs[0], *_nested(verbs[1:], rest, head)], head)] if verbs else rest


def _subject(clause: Clause, head: Word) -> Phrase | None:
    subject = clause.grammatical_subject
    if subject is None:
        return None
    phrase = nominal(subject, "subject", relative_clause)
    if isinstance(subject, meaning.Expletive):
        return phrase.attach(head, "expl")
    return phrase.attach(head, "nsubj:pass" if clause.passive else "nsubj")


def _after_first_verb(clause: Clause, first: Word, head: Word) -> list[Part]:
    """Negation, then adverbs of frequency."""
    words: list[Part] = []
    if clause.negated:
        words.append(_negation(clause, first).attach(head, "advmod"))
    for node in clause.adverbials:
        if node.role == "frequency":
            words.append(adverbial(node, head, relative_clause))
    return words


def _negation(clause: Clause, first: Word) -> Word:
    """The word "not" or "n't"; "can" joins either ("cannot", "can't") and "will" changes ("won't")."""
    contracted = clause.contracted and first.form not in ("must", "may", "am")
    if contracted:
        first.form = {"can": "ca", "will": "wo"}.get(first.form, first.form)
    return Word("n't" if contracted else "not", "PART", "RB", "not", glued=contracted or first.form == "can")


def _complements(clause: Clause, main: Word) -> tuple[Word, list[Part], Part | None]:
    """The clause's head, its complements in place, and the one that moves to the front."""
    pairs = clause.complements
    if pairs and isinstance(pairs[0][1], meaning.Adjectival):
        form = pairs[0][1].adjective.en
        head = Word(form, "ADJ", "JJ", form)
        main.attach(head, "cop")
        return head, [Phrase("ADJP", [head], head)], None
    rest: list[Part] = []
    front: Part | None = None
    for slot, argument in pairs:
        part = _complement(clause, slot, argument, main)
        if _opens(argument) and part.head.upos != "ADP":
            front = part
        else:
            rest.append(part)
    if clause.passive and clause.subject is not None:
        agent = nominal(clause.subject, "object", relative_clause).attach(main, "obl:agent")
        rest.append(Phrase("PP", [preposition("by").attach(agent, "case"), agent], agent.head))
    return main, _with_particle(clause, main, rest), front


def _opens(node: meaning.Argument | None) -> bool:
    """Whether a question word or relative pronoun must open the clause."""
    if isinstance(node, meaning.NounPhrase):
        return node.determiner is not None and node.determiner.en == "which"
    return isinstance(node, meaning.Interrogative | meaning.RelativePronoun)


def _with_particle(clause: Clause, main: Word, rest: list[Part]) -> list[Part]:
    form = clause.verb.en.particle
    if not form:
        return rest
    tags = ("ADV", "RB", "advmod") if form in ("away", "back", "down") else ("ADP", "RP", "compound:prt")
    particle: Part = Phrase("PRT", [word := Word(form, *tags[:2], form)], word).attach(main, tags[2])
    return [*rest[:1], particle, *rest[1:]] if clause.particle_last else [particle, *rest]


def _complement(clause: Clause, slot: Slot, argument: meaning.Argument, main: Word) -> Part:
    match argument:
        case Complement():
            relation = "xcomp" if argument.kind == "infinitive" else "ccomp"
            return _complement_clause(argument).attach(main, relation)
        case meaning.PrepPhrase():
            return prep_phrase(argument, relative_clause).attach(main, "obl")
        case meaning.Adjectival():
            raise TypeError("complement: expected a nominal, phrase or clause, got a predicate adjective.")
        case meaning.RelativePronoun(en="") if slot.en:
            return preposition(slot.en).attach(main, "obl")
        case meaning.RelativePronoun(en=""):
            return Phrase("WHNP", [], main)
        case _:
            return _object(clause, slot, argument, main)


def _object(clause: Clause, slot: Slot, argument: meaning.Nominal, main: Word) -> Part:
    phrase = nominal(argument, "object", relative_clause)
    bare = not slot.en or (clause.shifted and slot.shifts)
    if bare:
        return phrase.attach(main, "iobj" if slot.shifts else "obj")
    phrase.attach(main, "obl")
    label = "WHPP" if phrase.label == "WHNP" else "PP"
    return Phrase(label, [preposition(slot.en).attach(phrase, "case"), phrase], phrase.head)


def _complement_clause(node: Complement) -> Phrase:
    if node.kind == "infinitive":
        return _infinitive(node.clause)
    if node.kind == "wh":
        return _wrapped(None, node.clause)
    form = {"that": "that", "whether": "whether"}[node.kind]
    return _wrapped(None if node.silent else Word(form, "SCONJ", "IN", form), node.clause)


def _wrapped(mark: Word | None, clause: Clause, relation: str = "mark") -> Phrase:
    """A finite clause as SBAR, after its complementiser if it has one."""
    inner = _clause(clause)
    if inner.label == "SBAR":
        return inner
    return Phrase("SBAR", [inner] if mark is None else [mark.attach(inner, relation), inner], inner.head)


def _infinitive(clause: Clause) -> Phrase:
    inner = _clause(clause, finite=False)
    predicate = inner.parts[-1]
    to = Word("to", "PART", "TO", "to").attach(inner, "mark")
    return Phrase("S", [*inner.parts[:-1], Phrase("VP", [to, predicate], inner.head)], inner.head)


def _adverbials(clause: Clause, head: Word) -> list[Part]:
    """Adverbials after the complements, the manner before the place and the place before the time."""
    rest = [
        a
        for i, a in enumerate(clause.adverbials)
        if a.role != "frequency" and not (clause.fronted and i == 0)
    ]
    return [adverbial(node, head, relative_clause) for node in rest]


def _opening(clause: Clause, head: Word) -> list[Part]:
    """A fronted clause or adverbial with its comma; single adverbs have none."""
    opening: list[Part] = []
    if clause.subordinate is not None and clause.subordinate.first:
        phrase = _subordinate(clause.subordinate).attach(head, "advcl")
        phrase.parts.append(comma(phrase, ","))
        opening.append(phrase)
    if clause.fronted:
        part = adverbial(clause.adverbials[0], head, relative_clause)
        opening.append(part)
        if isinstance(clause.adverbials[0].content, meaning.PrepPhrase):
            opening.append(comma(part, ","))
    return opening


def _closing(clause: Clause, head: Word) -> list[Part]:
    if clause.subordinate is None or clause.subordinate.first:
        return []
    return [_subordinate(clause.subordinate).attach(head, "advcl")]


def _subordinate(node: Subordinate) -> Phrase:
    if node.conjunction is None:
        return _infinitive(node.clause)
    upos, xpos, relation = node.conjunction.en_tags
    return _wrapped(Word(node.conjunction.en, upos, xpos, node.conjunction.en), node.clause, relation)
