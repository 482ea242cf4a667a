"""The English verb group: auxiliaries, do-support and the main verb, from the highest to the lowest.

Each element fixes the form of the next one: modals and do a base form, have a participle, be an -ing or
passive participle.
"""

from __future__ import annotations

from syntaxformer.demo.generated.english_inflection import BE_PAST, BE_PRESENT, EnglishVerb
from syntaxformer.demo.generated.features import Number, Person, Tense
from syntaxformer.demo.generated.meaning import Clause
from syntaxformer.demo.generated.surface import Word

__all__ = ["verb_group"]

_BE = EnglishVerb("be", "was", "been")
_HAVE = EnglishVerb("have", "had", "had")
_DO = EnglishVerb("do", "did", "done")
_WILL = EnglishVerb("will", "would", "")

_NEXT_FORM = {
    "modal": "base",
    "will": "base",
    "do": "base",
    "have": "participle",
    "be -ing": "ing",
    "be -en": "participle",
}
_FORM_TAGS = {"base": "VB", "participle": "VBN", "ing": "VBG", "past": "VBD"}


def verb_group(
    clause: Clause, person: Person, number: Number, *, inverted: bool, finite: bool = True
) -> list[Word]:
    """The words of the verb group, finite verb first, main verb last.

    Args:
        clause: The clause, without a linked modal ("want to"); its arguments are not looked at.
        person: Person of the subject.
        number: Number of the subject.
        inverted: A subject comes after the finite verb, so that there must be an auxiliary.
        finite: False for infinitives and commands: the first element is a base form.
    """
    elements = _elements(clause, inverted=inverted)
    form = "finite" if finite else "base"
    words: list[Word] = []
    for kind, verb in elements:
        words.append(_word(kind, verb, form, person, number, past=clause.tense.is_past))
        form = _NEXT_FORM.get(kind, "base")
    return words


def _elements(clause: Clause, *, inverted: bool) -> list[tuple[str, EnglishVerb]]:
    main_kind = "copula" if clause.verb.slots and clause.verb.slots[0].kind == "adjective" else "main"
    elements: list[tuple[str, EnglishVerb]] = []
    if clause.modal is not None:
        elements.append(("modal", clause.modal.en_present))
    if clause.tense is Tense.FUTURE:
        elements.append(("will", _WILL))
    if clause.tense.is_perfect:
        elements.append(("have", _HAVE))
    if clause.tense.is_progressive:
        elements.append(("be -ing", _BE))
    if clause.passive:
        elements.append(("be -en", _BE))
    elements.append((main_kind, clause.verb.en))
    needs_do = len(elements) == 1 and elements[0][1].base != "be" and (clause.negated or inverted)
    return [("do", _DO), *elements] if needs_do else elements


def _word(kind: str, verb: EnglishVerb, form: str, person: Person, number: Number, *, past: bool) -> Word:
    upos = "VERB" if kind == "main" else "AUX"
    if kind in ("modal", "will"):
        return Word(verb.past if past else verb.base, upos, "MD", verb.base)
    if form == "finite":
        surface, xpos = _finite(verb, person, number, past=past)
        return Word(surface, upos, xpos, verb.base)
    return Word(getattr(verb, form), upos, _FORM_TAGS[form], verb.base)


def _finite(verb: EnglishVerb, person: Person, number: Number, *, past: bool) -> tuple[str, str]:
    third = person == 3 and number == "sg"
    if verb.base == "be":
        forms, rest = (BE_PAST, "were") if past else (BE_PRESENT, "are")
        return forms.get((person, number), rest), "VBD" if past else ("VBZ" if third else "VBP")
    if past:
        return verb.past, "VBD"
    return (verb.third_person, "VBZ") if third else (verb.base, "VBP")
