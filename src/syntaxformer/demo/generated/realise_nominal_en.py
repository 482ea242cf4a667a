"""English nominals and adverbials: noun phrases, pronouns, prepositional phrases, adverbs.

Agreement and case are English's; German's are in `realise_nominal_de`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from syntaxformer.demo.generated import meaning
from syntaxformer.demo.generated.english_inflection import OBJECT, POSSESSIVE, SUBJECT, article
from syntaxformer.demo.generated.features import Number, Person
from syntaxformer.demo.generated.lexicon.entries import Determiner, Name
from syntaxformer.demo.generated.surface import Part, Phrase, Word

__all__ = ["RelativeClauseBuilder", "adverbial", "agreement", "nominal", "prep_phrase"]

EnglishCase = Literal["subject", "object"]
RelativeClauseBuilder = Callable[[meaning.Relative], Phrase]
"""How a relative clause is built; clauses contain nominals and nominals clauses, so it is passed in."""


_WH_TAGS = ("ADV", "WRB", "advmod")
_ADVERB_LABELS = {"WRB": "WHADVP", "NN": "NP"}


def agreement(subject: meaning.Nominal) -> tuple[Person, Number]:
    """Person and number of the verb that has this subject."""
    match subject:
        case meaning.Pronoun():
            return subject.person, subject.number
        case meaning.NounPhrase() | meaning.RelativePronoun() | meaning.Expletive():
            return 3, subject.number
        case meaning.Coordinated() | meaning.NominalAdjective():
            return 3, "pl"
        case _:
            return 3, "sg"


def nominal(node: meaning.Nominal, case: EnglishCase, relative_clause: RelativeClauseBuilder) -> Phrase:
    """Realise any nominal."""
    match node:
        case meaning.NounPhrase():
            return _noun_phrase(node, relative_clause)
        case meaning.Coordinated():
            return _coordination(node, relative_clause)
        case meaning.NominalAdjective():
            head = Word(node.adjective.en, "ADJ", "JJ", node.adjective.en)
            return Phrase("NP", [Word("the", "DET", "DT", "the").attach(head, "det"), head], head)
        case _:
            word = _single_word(node, case)
            label = "WHNP" if isinstance(node, meaning.RelativePronoun | meaning.Interrogative) else "NP"
            return Phrase(label, [word], word)


def prep_phrase(node: meaning.PrepPhrase, relative_clause: RelativeClauseBuilder) -> Phrase:
    """Realise a prepositional phrase; its head is the noun, as Universal Dependencies have it."""
    inner = nominal(node.nominal, "object", relative_clause)
    label = "WHPP" if inner.label == "WHNP" else "PP"
    return Phrase(label, [preposition(node.preposition.en).attach(inner, "case"), inner], inner.head)


def adverbial(node: meaning.Adverbial, head: Part, relative_clause: RelativeClauseBuilder) -> Phrase:
    """Realise a free adverbial and attach it."""
    content = node.content
    if isinstance(content, meaning.PrepPhrase):
        return prep_phrase(content, relative_clause).attach(head, "obl")
    if isinstance(content, meaning.NounPhrase):
        return nominal(content, "object", relative_clause).attach(head, "obl:unmarked")
    tags = _WH_TAGS if isinstance(content, meaning.WhAdverb) else content.en_tags
    word = Word(content.en, *tags[:2], content.en).attach(head, tags[2])
    return Phrase(_ADVERB_LABELS.get(word.xpos, "ADVP"), [word], word)


def preposition(form: str) -> Word:
    """A preposition as a word."""
    return Word(form, "ADP", "IN", form)


def _single_word(node: meaning.Nominal, case: EnglishCase) -> Word:
    match node:
        case meaning.Pronoun():
            key = (node.person, node.number, node.gender)
            return Word((SUBJECT if case == "subject" else OBJECT)[key], "PRON", "PRP", SUBJECT[key])
        case meaning.RelativePronoun(en="who"):
            return Word("who" if case == "subject" else "whom", "PRON", "WP", "who")
        case meaning.RelativePronoun(en=form):
            return Word(form, "PRON", "WDT", form)
        case meaning.Interrogative(en=form):
            return Word(form, "PRON", "WP", form)
        case Name(form=form):
            return Word(form, "PROPN", "NNP", form)
        case _:
            return Word("there", "PRON", "EX", "there")


def _coordination(node: meaning.Coordinated, relative_clause: RelativeClauseBuilder) -> Phrase:
    first, second = (nominal(member, "object", relative_clause) for member in (node.first, node.second))
    second.attach(first, "conj")
    return Phrase("NP", [first, Word("and", "CCONJ", "CC", "and").attach(second, "cc"), second], first.head)


def _noun_phrase(node: meaning.NounPhrase, relative_clause: RelativeClauseBuilder) -> Phrase:
    plural = node.number == "pl"
    noun = Word(
        node.noun.en_plural if plural else node.noun.en, "NOUN", "NNS" if plural else "NN", node.noun.en
    )
    adjectives: list[Part] = [
        Word(adjective.en, "ADJ", "JJ", adjective.en).attach(noun, "amod") for adjective in node.adjectives
    ]
    core = [*adjectives, noun]
    parts = [*_determination(node, noun, core[0].head.form, relative_clause), *core]
    if node.possessor is not None and _said_with_of(node):
        parts = [_of(node.possessor, noun, relative_clause, Phrase("NP", parts, noun))]
    if node.modifier is not None:
        modifier = prep_phrase(node.modifier, relative_clause).attach(noun, "nmod")
        parts = [Phrase("NP", parts, noun), modifier]
    if node.relative is not None:
        relative = relative_clause(node.relative).attach(noun, "acl:relcl")
        parts = [Phrase("NP", parts, noun), relative]
    return Phrase("NP", parts, noun)


def _said_with_of(node: meaning.NounPhrase) -> bool:
    """Whether the possessor is a thing: "the end of the film", but "the man's car"."""
    owner = node.possessor
    return isinstance(owner, meaning.NounPhrase) and not owner.noun.kind_set & {"person", "animal"}


def _of(owner: meaning.Nominal, noun: Word, relative_clause: RelativeClauseBuilder, core: Phrase) -> Phrase:
    inner = nominal(owner, "object", relative_clause)
    inner.attach(noun, "nmod")
    of_phrase = Phrase("PP", [preposition("of").attach(inner, "case"), inner], inner.head)
    return Phrase("NP", [core, of_phrase], noun)


def _determination(
    node: meaning.NounPhrase, noun: Word, next_form: str, relative_clause: RelativeClauseBuilder
) -> list[Part]:
    owner = node.possessor
    if isinstance(owner, meaning.Pronoun):
        form = POSSESSIVE[owner.person, owner.number, owner.gender]
        return [Word(form, "PRON", "PRP$", form).attach(noun, "nmod:poss")]
    if owner is not None and _said_with_of(node):
        return [Word("the", "DET", "DT", "the").attach(noun, "det")]
    if owner is not None:
        phrase = nominal(owner, "object", relative_clause).attach(noun, "nmod:poss")
        clitic = "'" if _ends_in_plural_s(phrase) else "'s"
        phrase.parts.append(Word(clitic, "PART", "POS", "'s", glued=True).attach(phrase, "case"))
        return [phrase]
    return (
        []
        if node.determiner is None
        else [_determiner(node.determiner, node.number, next_form).attach(noun, node.determiner.en_tags[2])]
    )


def _ends_in_plural_s(phrase: Phrase) -> bool:
    last = list(phrase.words())[-1]
    return last.xpos == "NNS" and last.form.endswith("s")


def _determiner(determiner: Determiner, number: Number, next_form: str) -> Word:
    upos, xpos, _ = determiner.en_tags
    form = determiner.en_plural if number == "pl" and determiner.en_plural else determiner.en
    if determiner.en == "a":
        form = article(next_form)
    return Word(form, upos, xpos, determiner.en)
