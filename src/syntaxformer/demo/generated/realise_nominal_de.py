"""German nominals: declined noun phrases, pronouns and prepositional phrases.

Case comes from outside, gender from the lexicon; contraction (im, zum) happens in `prep_phrase`.
"""

from __future__ import annotations

from collections.abc import Callable

from syntaxformer.demo.generated import meaning
from syntaxformer.demo.generated.features import Agreement, Case, Number, Person
from syntaxformer.demo.generated.german_inflection import (
    CASES,
    CONTRACTIONS,
    DEFINITE,
    PRONOUNS,
    RELATIVE,
    WHO,
    Declension,
    adjective_form,
    determiner_form,
    noun_form,
)
from syntaxformer.demo.generated.german_inflection import agreement as table_row
from syntaxformer.demo.generated.lexicon.entries import Adjective, Determiner, Name
from syntaxformer.demo.generated.lexicon.modifiers import DETERMINERS, POSSESSIVE_STEMS
from syntaxformer.demo.generated.surface import Part, Phrase, Word, comma

__all__ = ["COMMA_TAG", "RelativeClauseBuilder", "agreement", "is_indefinite", "nominal", "prep_phrase"]

COMMA_TAG = "$,"
RelativeClauseBuilder = Callable[[meaning.Relative], Phrase]


def agreement(subject: meaning.Nominal) -> tuple[Person, Number]:
    """Person and number of the verb that has this subject."""
    match subject:
        case meaning.Pronoun():
            return subject.person, subject.number
        case meaning.NounPhrase() | meaning.RelativePronoun():
            return 3, subject.number
        case meaning.Coordinated() | meaning.NominalAdjective():
            return 3, "pl"
        case _:
            return 3, "sg"


def is_indefinite(node: meaning.Argument) -> bool:
    """Whether negation turns this phrase's article into kein."""
    return (
        isinstance(node, meaning.NounPhrase)
        and node.possessor is None
        and (node.determiner is None or node.determiner.en == "a")
    )


def nominal(
    node: meaning.Nominal, case: Case, relative_clause: RelativeClauseBuilder, *, negative: bool = False
) -> Phrase:
    """Realise any nominal in a case; `negative` makes an indefinite article kein."""
    match node:
        case meaning.NounPhrase():
            return _noun_phrase(node, case, relative_clause, negative=negative)
        case meaning.Coordinated():
            return _coordination(node, case, relative_clause)
        case meaning.NominalAdjective(adjective=adjective):
            form = adjective_form(adjective.stem, "weak", "pl", case)
            head = Word(form.capitalize(), "NOUN", "NN", adjective.stem.capitalize() + "e")
            article = Word(DEFINITE["pl"][CASES.index(case)], "DET", "ART", "der")
            return Phrase("NP", [article.attach(head, "det"), head], head)
        case _:
            word = _single_word(node, case)
            return Phrase("NP", [word], word)


def prep_phrase(
    node: meaning.PrepPhrase, relative_clause: RelativeClauseBuilder, *, case: Case | None = None
) -> Phrase:
    """Realise a prepositional phrase, contracting "in dem" to "im" unless a relative clause follows."""
    inner = nominal(node.nominal, case or node.preposition.case, relative_clause)
    return with_preposition(node.preposition.de, inner)


def with_preposition(form: str, inner: Phrase) -> Phrase:
    """Put a preposition before a nominal, contracted with its article where German does so."""
    first = inner.parts[0]
    has_relative = isinstance(inner.parts[-1], Phrase) and inner.parts[-1].label == "RC"
    if isinstance(first, Word) and first.xpos == "ART" and not has_relative:
        contracted = CONTRACTIONS.get((form, first.form))
        if contracted is not None:
            del inner.parts[0]
            word = Word(contracted, "ADP", "APPRART", form)
            return Phrase("PP", [word.attach(inner, "case"), inner], inner.head)
    xpos = "KOKOM" if form == "wie" else "APPR"
    return Phrase("PP", [Word(form, "ADP", xpos, form).attach(inner, "case"), inner], inner.head)


def _single_word(node: meaning.Nominal, case: Case) -> Word:
    match node:
        case meaning.Pronoun():
            forms = PRONOUNS[node.person, node.number, node.gender]
            return Word(forms[CASES.index(case)], "PRON", "PPER", forms[0])
        case meaning.RelativePronoun():
            row = table_row(node.noun.gender, node.number)
            return Word(RELATIVE[row][CASES.index(case)], "PRON", "PRELS", "der")
        case meaning.Interrogative(en=form):
            return Word(
                "was" if form == "what" else WHO[case], "PRON", "PWS", "was" if form == "what" else "wer"
            )
        case Name(form=form):
            return Word(form + "s" if case == "gen" else form, "PROPN", "NE", form)
        case _:
            return Word("es", "PRON", "PPER", "es")


def _coordination(node: meaning.Coordinated, case: Case, relative_clause: RelativeClauseBuilder) -> Phrase:
    first, second = (nominal(member, case, relative_clause) for member in (node.first, node.second))
    second.attach(first, "conj")
    return Phrase("NP", [first, Word("und", "CCONJ", "KON", "und").attach(second, "cc"), second], first.head)


def _noun_phrase(
    node: meaning.NounPhrase, case: Case, relative_clause: RelativeClauseBuilder, *, negative: bool
) -> Phrase:
    entry = node.noun
    row = table_row(entry.gender, node.number)
    form = noun_form(
        entry.de, entry.de_plural, entry.genitive, weak=entry.weak, number=node.number, case=case
    )
    noun = Word(form, "NOUN", "NN", entry.de)
    determination, declension = _determination(node, row, case, negative=negative)
    parts: list[Part] = [part.attach(noun, relation) for part, relation in determination]
    parts += [_adjective(a, declension, row, case).attach(noun, "amod") for a in node.adjectives]
    parts.append(noun)
    if _follows(node.possessor):
        parts.append(nominal(node.possessor, "gen", relative_clause).attach(noun, "nmod"))  # type: ignore[arg-type]
    if node.modifier is not None:
        parts.append(prep_phrase(node.modifier, relative_clause).attach(noun, "nmod"))
    if node.relative is not None:
        parts.append(_between_commas(relative_clause(node.relative).attach(noun, "acl:relcl"), "RC"))
    return Phrase("NP", parts, noun)


def _between_commas(phrase: Phrase, label: str) -> Phrase:
    return Phrase(label, [comma(phrase, COMMA_TAG), phrase, comma(phrase, COMMA_TAG)], phrase.head)


def _follows(possessor: meaning.Nominal | None) -> bool:
    """Whether the possessor is a genitive after the noun; names and pronouns stand before it."""
    return possessor is not None and not isinstance(possessor, meaning.Pronoun | Name)


def _adjective(adjective: Adjective, declension: Declension, row: Agreement, case: Case) -> Word:
    return Word(adjective_form(adjective.stem, declension, row, case), "ADJ", "ADJA", adjective.de)


def _determination(
    node: meaning.NounPhrase, row: Agreement, case: Case, *, negative: bool
) -> tuple[list[tuple[Word, str]], Declension]:
    """What stands before the adjectives, with its relation, and the declension that it asks of them."""
    owner = node.possessor
    if isinstance(owner, Name):
        return [(_single_word(owner, "gen"), "nmod")], "strong"
    if isinstance(owner, meaning.Pronoun):
        stem = POSSESSIVE_STEMS[owner.person, owner.number, owner.gender]
        return [(Word(determiner_form(stem, "ein", row, case), "DET", "PPOSAT", stem), "det:poss")], "mixed"
    determiner = DETERMINERS["the"] if owner is not None else node.determiner
    if negative and is_indefinite(node):
        determiner = DETERMINERS["no"]
    if determiner is None:
        return [], "strong"
    return [(_determiner(determiner, row, case), determiner.de_tags[2])], determiner.declension


def _determiner(determiner: Determiner, row: Agreement, case: Case) -> Word:
    upos, xpos, _ = determiner.de_tags
    lemma = determiner.de if determiner.series in ("definite", "ein", "bare") else determiner.de + "er"
    return Word(determiner_form(determiner.de, determiner.series, row, case), upos, xpos, lemma)
