"""Grammatical features that both realisers and the lexicon speak of.

Plain string literals: the tables in the lexicon stay readable, and a type checker still catches a typo.
"""

from __future__ import annotations

from enum import Enum
from typing import Literal

__all__ = ["Agreement", "Case", "Gender", "Number", "Person", "Tense"]

Gender = Literal["m", "f", "n"]
Number = Literal["sg", "pl"]
Person = Literal[1, 2, 3]
Case = Literal["nom", "acc", "dat", "gen"]
Agreement = Literal["m", "f", "n", "pl"]
"""What a German determiner or adjective agrees with: the gender in the singular, `pl` in the plural."""


class Tense(Enum):
    """Tense and aspect of a clause, named after the English form.

    German has no progressive: both presents become the Präsens, both pasts the Präteritum.
    """

    PRESENT = "present"
    PROGRESSIVE = "present progressive"
    PAST = "past"
    PAST_PROGRESSIVE = "past progressive"
    PERFECT = "perfect"
    PLUPERFECT = "pluperfect"
    FUTURE = "future"
    INFINITIVE = "infinitive"

    @property
    def is_past(self) -> bool:
        """Whether the finite verb is in the past (English preterite, German Präteritum)."""
        return self in (Tense.PAST, Tense.PAST_PROGRESSIVE, Tense.PLUPERFECT)

    @property
    def is_progressive(self) -> bool:
        """Whether English uses be + -ing."""
        return self in (Tense.PROGRESSIVE, Tense.PAST_PROGRESSIVE)

    @property
    def is_perfect(self) -> bool:
        """Whether English uses have, and German haben or sein, with a participle."""
        return self in (Tense.PERFECT, Tense.PLUPERFECT)
