"""The German verb group: the finite verb and what stands in the right bracket.

The chain grows upwards from the main verb: participle + werden (passive), participle + haben or sein
(perfect), infinitive + werden (future), infinitive + modal. Only its top is finite.
"""

from __future__ import annotations

from dataclasses import dataclass

from syntaxformer.demo.generated.features import Number, Person, Tense
from syntaxformer.demo.generated.german_verbs import AUXILIARIES, HABEN, SEIN, WERDEN, GermanVerb, finite
from syntaxformer.demo.generated.meaning import Clause
from syntaxformer.demo.generated.surface import Word

__all__ = ["Form", "VerbGroup", "verb_group"]

Form = str
"""`second` (finite verb in the left bracket), `final`, `imperative` or `infinitive` (with zu)."""


@dataclass(slots=True)
class VerbGroup:
    """Left bracket, right bracket and the main verb among their words."""

    left: Word | None
    right: list[Word]
    main: Word
    auxiliaries: list[Word]


def verb_group(clause: Clause, person: Person, number: Number, form: Form) -> VerbGroup:
    """Conjugate the chain and distribute it over the brackets."""
    chain = _chain(clause)
    lower = [_nonfinite(verb, kind, main=index == 0) for index, (verb, kind) in enumerate(chain[:-1])]
    top, _ = chain[-1]
    upos = _upos(top, main=len(chain) == 1)
    if form == "infinitive":
        return _zu_infinitive(top, upos)
    inflected = (
        top.imperative if form == "imperative" else finite(top, person, number, past=clause.tense.is_past)
    )
    if form == "final":
        last = Word(top.prefix + inflected, upos, _tag(top, upos, "FIN"), top.lemma)
        return VerbGroup(None, [*lower, last], [*lower, last][0], [*lower, last][1:])
    left = Word(inflected, upos, _tag(top, upos, "IMP" if form == "imperative" else "FIN"), top.lemma)
    main = lower[0] if lower else left
    particle = []
    if top.prefix:
        particle = [Word(top.prefix, "ADP", "PTKVZ", top.prefix).attach(main, "compound:prt")]
    return VerbGroup(left, [*lower, *particle], main, [*lower, left][1:])


def _chain(clause: Clause) -> list[tuple[GermanVerb, str]]:
    """Verbs from the main verb upwards, each with the form that the next one asks of it."""
    verb = clause.verb.de
    chain: list[tuple[GermanVerb, str]] = [(verb, "infinitive")]
    if clause.passive:
        chain = [(verb, "participle"), (WERDEN, "infinitive")]
    if clause.tense.is_perfect:
        below = chain[-1][0]
        chain[-1] = (below, "participle")
        chain.append((SEIN if below.takes_sein else HABEN, "infinitive"))
    if clause.tense is Tense.FUTURE:
        chain.append((WERDEN, "infinitive"))
    if clause.modal is not None:
        chain.append((AUXILIARIES[clause.modal.de], "infinitive"))
    return chain


def _nonfinite(verb: GermanVerb, kind: str, *, main: bool) -> Word:
    upos = _upos(verb, main=main)
    if kind == "participle":
        return Word(verb.prefix + verb.participle, upos, _tag(verb, upos, "PP"), verb.lemma)
    return Word(verb.lemma, upos, _tag(verb, upos, "INF"), verb.lemma)


def _zu_infinitive(verb: GermanVerb, upos: str) -> VerbGroup:
    if verb.prefix:
        main = Word(f"{verb.prefix}zu{verb.infinitive}", upos, "VVIZU", verb.lemma)
        return VerbGroup(None, [main], main, [])
    main = Word(verb.infinitive, upos, _tag(verb, upos, "INF"), verb.lemma)
    zu = Word("zu", "PART", "PTKZU", "zu").attach(main, "mark")
    return VerbGroup(None, [zu, main], main, [])


def _upos(verb: GermanVerb, *, main: bool) -> str:
    return "VERB" if main and verb.infinitive != "sein" else "AUX"


def _tag(verb: GermanVerb, upos: str, suffix: str) -> str:
    """The STTS tag: VV for full verbs, VM for modals, VA for the other auxiliaries."""
    kind = "V" if upos == "VERB" else "M" if verb.infinitive in AUXILIARIES else "A"
    return f"V{kind}{suffix}"
