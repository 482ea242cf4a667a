"""Declension against the tables of a school grammar, written out by hand."""

from __future__ import annotations

import pytest

from syntaxformer.demo.generated.german_inflection import CASES, adjective_form, determiner_form, noun_form
from syntaxformer.demo.generated.lexicon import ADJECTIVES, DETERMINERS, NOUNS
from syntaxformer.demo.generated.meaning import NounPhrase, Pronoun
from syntaxformer.demo.generated.realise_nominal_de import nominal

NOUN = {noun.en: noun for noun in NOUNS}
ADJECTIVE = {adjective.en: adjective for adjective in ADJECTIVES}


def declined(node) -> list[str]:
    """The four cases of a noun phrase."""
    return [" ".join(word.form for word in nominal(node, case, lambda _: None).words()) for case in CASES]


@pytest.mark.parametrize(
    ("determiner", "expected"),
    [
        ("the", "der alte Hund|den alten Hund|dem alten Hund|des alten Hundes"),
        ("a", "ein alter Hund|einen alten Hund|einem alten Hund|eines alten Hundes"),
        ("this", "dieser alte Hund|diesen alten Hund|diesem alten Hund|dieses alten Hundes"),
        ("no", "kein alter Hund|keinen alten Hund|keinem alten Hund|keines alten Hundes"),
        ("every", "jeder alte Hund|jeden alten Hund|jedem alten Hund|jedes alten Hundes"),
    ],
)
def test_masculine_singular(determiner, expected):
    node = NounPhrase(NOUN["dog"], "sg", DETERMINERS[determiner], (ADJECTIVE["old"],))
    assert declined(node) == expected.split("|")


@pytest.mark.parametrize(
    ("determiner", "expected"),
    [
        ("the", "die kleine Katze|die kleine Katze|der kleinen Katze|der kleinen Katze"),
        ("a", "eine kleine Katze|eine kleine Katze|einer kleinen Katze|einer kleinen Katze"),
        ("that", "jene kleine Katze|jene kleine Katze|jener kleinen Katze|jener kleinen Katze"),
    ],
)
def test_feminine_singular(determiner, expected):
    node = NounPhrase(NOUN["cat"], "sg", DETERMINERS[determiner], (ADJECTIVE["small"],))
    assert declined(node) == expected.split("|")


@pytest.mark.parametrize(
    ("determiner", "expected"),
    [
        ("the", "das teure Buch|das teure Buch|dem teuren Buch|des teuren Buches"),
        ("a", "ein teures Buch|ein teures Buch|einem teuren Buch|eines teuren Buches"),
        ("which", "welches teure Buch|welches teure Buch|welchem teuren Buch|welches teuren Buches"),
    ],
)
def test_neuter_singular(determiner, expected):
    node = NounPhrase(NOUN["book"], "sg", DETERMINERS[determiner], (ADJECTIVE["expensive"],))
    assert declined(node) == expected.split("|")


@pytest.mark.parametrize(
    ("determiner", "expected"),
    [
        ("the", "die roten Äpfel|die roten Äpfel|den roten Äpfeln|der roten Äpfel"),
        ("some", "einige rote Äpfel|einige rote Äpfel|einigen roten Äpfeln|einiger roter Äpfel"),
        ("many", "viele rote Äpfel|viele rote Äpfel|vielen roten Äpfeln|vieler roter Äpfel"),
        ("two", "zwei rote Äpfel|zwei rote Äpfel|zwei roten Äpfeln|zwei roter Äpfel"),
        ("all", "alle roten Äpfel|alle roten Äpfel|allen roten Äpfeln|aller roten Äpfel"),
        ("no", "keine roten Äpfel|keine roten Äpfel|keinen roten Äpfeln|keiner roten Äpfel"),
        (None, "rote Äpfel|rote Äpfel|roten Äpfeln|roter Äpfel"),
    ],
)
def test_plural(determiner, expected):
    node = NounPhrase(NOUN["apple"], "pl", DETERMINERS.get(determiner), (ADJECTIVE["red"],))
    assert declined(node) == expected.split("|")


@pytest.mark.parametrize(
    ("noun", "adjective", "expected"),
    [
        ("milk", "fresh", "frische Milch|frische Milch|frischer Milch|frischer Milch"),
        ("water", "cold", "kaltes Wasser|kaltes Wasser|kaltem Wasser|kalten Wassers"),
        ("coffee", "strong", "starker Kaffee|starken Kaffee|starkem Kaffee|starken Kaffees"),
    ],
)
def test_strong_singular_without_article(noun, adjective, expected):
    assert declined(NounPhrase(NOUN[noun], "sg", None, (ADJECTIVE[adjective],))) == expected.split("|")


def test_possessive_is_an_ein_word():
    node = NounPhrase(NOUN["brother"], "sg", None, (ADJECTIVE["young"],), Pronoun(1, "pl"))
    expected = "unser junger Bruder|unseren jungen Bruder|unserem jungen Bruder|unseres jungen Bruders"
    assert declined(node) == expected.split("|")


@pytest.mark.parametrize(
    ("noun", "expected"),
    [
        ("bear", "der Bär|den Bären|dem Bären|des Bären"),
        ("boy", "der Junge|den Jungen|dem Jungen|des Jungen"),
        ("student", "der Student|den Studenten|dem Studenten|des Studenten"),
        ("neighbour", "der Nachbar|den Nachbarn|dem Nachbarn|des Nachbarn"),
        ("garden", "der Garten|den Garten|dem Garten|des Gartens"),
        ("bus", "der Bus|den Bus|dem Bus|des Busses"),
        ("doctor", "der Arzt|den Arzt|dem Arzt|des Arztes"),
    ],
)
def test_weak_and_strong_masculines(noun, expected):
    assert declined(NounPhrase(NOUN[noun], "sg", DETERMINERS["the"])) == expected.split("|")


def test_dative_plural_takes_n_unless_it_has_one_or_ends_in_s():
    def dative(noun: str) -> str:
        return declined(NounPhrase(NOUN[noun], "pl", DETERMINERS["the"]))[2]

    assert [dative(noun) for noun in ("child", "woman", "park", "table")] == [
        "den Kindern",
        "den Frauen",
        "den Parks",
        "den Tischen",
    ]


@pytest.mark.parametrize(("adjective", "form"), [("high", "hohe"), ("dark", "dunkle"), ("tired", "müde")])
def test_adjective_stems(adjective, form):
    assert adjective_form(ADJECTIVE[adjective].stem, "weak", "f", "nom") == form


def test_plain_functions():
    assert determiner_form("dies", "der", "n", "nom") == "dieses"
    assert noun_form("Haus", "Häuser", "Hauses", weak=False, number="pl", case="dat") == "Häusern"
