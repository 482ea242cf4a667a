"""English word forms: noun plurals, verb forms, pronouns, the article before a vowel.

Regular forms are spelt by rule; irregular ones come from the lexicon entry.
"""

from __future__ import annotations

from dataclasses import dataclass

from syntaxformer.demo.generated.features import Number, Person

__all__ = ["BE_PAST", "BE_PRESENT", "OBJECT", "POSSESSIVE", "SUBJECT", "EnglishVerb", "article", "plural"]

PronounKey = tuple[Person, Number, str]
"""Person, number and, in the third person singular, gender (else an empty string)."""

SUBJECT: dict[PronounKey, str] = {
    (1, "sg", ""): "I",
    (2, "sg", ""): "you",
    (3, "sg", "m"): "he",
    (3, "sg", "f"): "she",
    (1, "pl", ""): "we",
    (3, "pl", ""): "they",
}
OBJECT: dict[PronounKey, str] = {
    (1, "sg", ""): "me",
    (2, "sg", ""): "you",
    (3, "sg", "m"): "him",
    (3, "sg", "f"): "her",
    (1, "pl", ""): "us",
    (3, "pl", ""): "them",
}
POSSESSIVE: dict[PronounKey, str] = {
    (1, "sg", ""): "my",
    (2, "sg", ""): "your",
    (3, "sg", "m"): "his",
    (3, "sg", "f"): "her",
    (1, "pl", ""): "our",
    (3, "pl", ""): "their",
}
BE_PRESENT: dict[tuple[Person, Number], str] = {(1, "sg"): "am", (3, "sg"): "is"}
BE_PAST: dict[tuple[Person, Number], str] = {(1, "sg"): "was", (3, "sg"): "was"}
"""Forms of "be" that are not "are" and "were"."""

_DOUBLING = frozenset(("begin", "cut", "forget", "man", "plan", "put", "run", "sit", "stop", "swim"))
_SIBILANTS = ("s", "x", "z", "ch", "sh")


def plural(noun: str) -> str:
    """The regular plural of a noun."""
    if noun.endswith(_SIBILANTS):
        return noun + "es"
    if noun.endswith("y") and noun[-2] not in "aeiou":
        return noun[:-1] + "ies"
    return noun + "s"


def article(next_word: str) -> str:
    """The indefinite article before `next_word`."""
    return "an" if next_word[0].lower() in "aeiou" else "a"


@dataclass(frozen=True, slots=True)
class EnglishVerb:
    """A verb's forms, from "see/saw/seen", "walk" or, with a particle, "pick up".

    Args:
        base: Infinitive without the particle.
        past: Preterite.
        participle: Past participle.
        particle: "up" in "pick up", or an empty string.
    """

    base: str
    past: str
    participle: str
    particle: str = ""

    @classmethod
    def parse(cls, parts: str) -> EnglishVerb:
        """Read one to three principal parts separated by slashes, a particle after a space."""
        verb, _, particle = parts.partition(" ")
        forms = verb.split("/")
        past = forms[1] if len(forms) > 1 else _regular_past(forms[0])
        return cls(forms[0], past, forms[2] if len(forms) > 2 else past, particle)

    @property
    def third_person(self) -> str:
        """Third person singular of the present."""
        if self.base == "have":
            return "has"
        return plural(self.base) if not self.base.endswith("o") else self.base + "es"

    @property
    def ing(self) -> str:
        """Present participle."""
        if self.base.endswith("ie"):
            return self.base[:-2] + "ying"
        if self.base.endswith("e") and not self.base.endswith("ee"):
            return self.base[:-1] + "ing"
        return self.base + (self.base[-1] if self.base in _DOUBLING else "") + "ing"


def _regular_past(base: str) -> str:
    if base.endswith("e"):
        return base + "d"
    if base.endswith("y") and base[-2] not in "aeiou":
        return base[:-1] + "ied"
    return base + (base[-1] if base in _DOUBLING else "") + "ed"
