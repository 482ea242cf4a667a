"""Contrastive pairs of agreement, from German sentences with gold parses."""

from __future__ import annotations

import pytest
from structure import agreement

from syntaxformer.trees import parse_conllu

NOUN = "Case=Nom|Number={}"
VERB = "Mood=Ind|Number={}|Person=3|Tense=Pres"


def sentence(*rows):
    """From rows of form, lemma, part of speech, morphology, governor and relation."""
    lines = [
        f"{number}\t{form}\t{lemma}\t{upos}\t_\t{feats}\t{governor}\t{deprel}\t_\t_"
        for number, (form, lemma, upos, feats, governor, deprel) in enumerate(rows, 1)
    ]
    return next(parse_conllu([f"# text = {' '.join(row[0] for row in rows)}", *lines, ""]))


FORMS = agreement.finite_forms(
    sentence((form, lemma, upos, VERB.format(number), 0, "root"))
    for lemma, upos, forms in (
        ("bellen", "VERB", ("bellt", "bellen")),
        ("sein", "AUX", ("ist", "sind")),
        ("müssen", "AUX", ("muss", "muss")),
    )
    for form, number in zip(forms, ("Sing", "Plur"), strict=True)
)
DOG = [
    ("Der", "der", "DET", "Number=Sing", 2, "det"),
    ("Hund", "Hund", "NOUN", NOUN.format("Sing"), 5, "nsubj"),
]
OF_CATS = [
    ("der", "der", "DET", "Number=Plur", 4, "det"),
    ("Katzen", "Katze", "NOUN", "Number=Plur", 2, "nmod"),
]
BARKS = ("bellt", "bellen", "VERB", VERB.format("Sing"), 0, "root")


def rows(*parsed):
    return list(agreement.contrastive_rows(["The line."] * len(parsed), parsed, FORMS))


def test_a_verb_takes_the_other_number():
    expected = ("The line.", "Der Hund der Katzen bellt", "Der Hund der Katzen bellen", 3, 1, "bellt", "Hund")
    assert rows(sentence(*DOG, *OF_CATS, BARKS)) == [expected]
    first = [
        ("Sind", "sein", "AUX", VERB.format("Plur"), 4, "cop"),
        ("die", "der", "DET", "Number=Plur", 3, "det"),
    ]
    first += [("Hunde", "Hund", "NOUN", NOUN.format("Plur"), 4, "nsubj"), ("da", "da", "ADV", "_", 0, "root")]
    assert rows(sentence(*first))[0][1:] == ("Sind die Hunde da", "Ist die Hunde da", 2, 0, "Sind", "Hunde")


@pytest.mark.parametrize(
    ("word", "column", "value"),
    [
        (1, 1, "Anzahl"),
        (1, 3, "_"),
        (0, 3, "Number=Plur"),
        (1, 5, "obj"),
        (3, 5, "conj"),
        (4, 1, "schlafen"),
        (4, 1, "müssen"),
        (4, 3, "Mood=Ind|Number=Sing|Person=1|Tense=Pres"),
    ],
    ids=["lemma", "number", "determiner", "subject", "coordination", "unknown", "one_form", "person"],
)
def test_what_may_be_right_in_both_numbers_is_left_out(word, column, value):
    parsed = [list(row) for row in (*DOG, *OF_CATS, BARKS)]
    parsed[word][column] = value
    assert rows(sentence(*parsed)) == []


@pytest.mark.parametrize(("form", "n_pairs"), [("er", 1), ("sie", 0)])
def test_a_pronoun_of_one_number_counts(form, n_pairs):
    pronoun = (form, form, "PRON", NOUN.format("Sing"), 2, "nsubj")
    assert len(rows(sentence(pronoun, BARKS))) == n_pairs
