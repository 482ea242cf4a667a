"""German declension: articles, determiners, adjectives, nouns and pronouns as tables.

The four values of every row are nominative, accusative, dative, genitive. Verbs are in `german_verbs`.
"""

from __future__ import annotations

from typing import Literal

from syntaxformer.demo.generated.features import Agreement, Case, Gender, Number, Person

__all__ = [
    "ADJECTIVE_ENDINGS",
    "CASES",
    "CONTRACTIONS",
    "DEFINITE",
    "PRONOUNS",
    "REFLEXIVES",
    "RELATIVE",
    "WHO",
    "Declension",
    "adjective_form",
    "agreement",
    "determiner_form",
    "noun_form",
]

CASES: tuple[Case, ...] = ("nom", "acc", "dat", "gen")
Declension = Literal["strong", "weak", "mixed"]
Series = Literal["definite", "der", "ein", "strong", "bare"]
_Table = dict[Agreement, tuple[str, str, str, str]]

DEFINITE: _Table = {
    "m": ("der", "den", "dem", "des"),
    "f": ("die", "die", "der", "der"),
    "n": ("das", "das", "dem", "des"),
    "pl": ("die", "die", "den", "der"),
}
RELATIVE: _Table = {
    "m": ("der", "den", "dem", "dessen"),
    "f": ("die", "die", "der", "deren"),
    "n": ("das", "das", "dem", "dessen"),
    "pl": ("die", "die", "denen", "deren"),
}
_DER_WORDS: _Table = {  # dieser, jener, jeder, welcher, alle
    "m": ("er", "en", "em", "es"),
    "f": ("e", "e", "er", "er"),
    "n": ("es", "es", "em", "es"),
    "pl": ("e", "e", "en", "er"),
}
_EIN_WORDS: _Table = {  # ein, kein, mein, unser
    "m": ("", "en", "em", "es"),
    "f": ("e", "e", "er", "er"),
    "n": ("", "", "em", "es"),
    "pl": ("e", "e", "en", "er"),
}
ADJECTIVE_ENDINGS: dict[Declension, _Table] = {
    "strong": {
        "m": ("er", "en", "em", "en"),
        "f": ("e", "e", "er", "er"),
        "n": ("es", "es", "em", "en"),
        "pl": ("e", "e", "en", "er"),
    },
    "weak": {
        "m": ("e", "en", "en", "en"),
        "f": ("e", "e", "en", "en"),
        "n": ("e", "e", "en", "en"),
        "pl": ("en", "en", "en", "en"),
    },
    "mixed": {
        "m": ("er", "en", "en", "en"),
        "f": ("e", "e", "en", "en"),
        "n": ("es", "es", "en", "en"),
        "pl": ("en", "en", "en", "en"),
    },
}
_SERIES_ENDINGS: dict[str, _Table] = {
    "der": _DER_WORDS,
    "ein": _EIN_WORDS,
    "strong": ADJECTIVE_ENDINGS["strong"],
}

PRONOUNS: dict[tuple[Person, Number, str], tuple[str, str, str]] = {
    (1, "sg", ""): ("ich", "mich", "mir"),
    (2, "sg", ""): ("du", "dich", "dir"),
    (3, "sg", "m"): ("er", "ihn", "ihm"),
    (3, "sg", "f"): ("sie", "sie", "ihr"),
    (1, "pl", ""): ("wir", "uns", "uns"),
    (3, "pl", ""): ("sie", "sie", "ihnen"),
}
REFLEXIVES: dict[tuple[Person, Number], str] = {
    (1, "sg"): "mich",
    (2, "sg"): "dich",
    (3, "sg"): "sich",
    (1, "pl"): "uns",
    (3, "pl"): "sich",
}
WHO: dict[Case, str] = {"nom": "wer", "acc": "wen", "dat": "wem"}
CONTRACTIONS: dict[tuple[str, str], str] = {
    ("in", "dem"): "im",
    ("an", "dem"): "am",
    ("zu", "dem"): "zum",
    ("zu", "der"): "zur",
    ("von", "dem"): "vom",
    ("bei", "dem"): "beim",
    ("in", "das"): "ins",
    ("an", "das"): "ans",
}


def agreement(gender: Gender, number: Number) -> Agreement:
    """The row of every table that a noun of this gender and number selects."""
    return "pl" if number == "pl" else gender


def determiner_form(stem: str, series: Series, row: Agreement, case: Case) -> str:
    """Inflect a determiner; the definite article is a table of its own and numerals do not inflect."""
    column = CASES.index(case)
    if series == "definite":
        return DEFINITE[row][column]
    return stem if series == "bare" else stem + _SERIES_ENDINGS[series][row][column]


def adjective_form(stem: str, declension: Declension, row: Agreement, case: Case) -> str:
    """Inflect an attributive adjective."""
    return stem + ADJECTIVE_ENDINGS[declension][row][CASES.index(case)]


def noun_form(singular: str, plural: str, genitive: str, *, weak: bool, number: Number, case: Case) -> str:
    """Inflect a noun: dative plural -n, genitive -s, and -n throughout for weak masculines."""
    if number == "pl":
        return plural + "n" if case == "dat" and not plural.endswith(("n", "s")) else plural
    if weak:
        return singular if case == "nom" else genitive
    return genitive if case == "gen" else singular
