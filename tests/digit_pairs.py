"""Digit reversal: the smallest task that a translator must be able to learn ("3 1 7" becomes "7 1 3")."""

from __future__ import annotations

import random
from typing import NamedTuple


class DigitPair(NamedTuple):
    """Source and target, digits with single spaces between them."""

    source: str
    target: str


def digit_pairs(n_pairs: int, seed: int = 1, min_digits: int = 3, max_digits: int = 8) -> list[DigitPair]:
    """Distinct random digit strings with their reversals, in an order that depends on the seed alone."""
    rng = random.Random(seed)
    sources: dict[str, None] = {}
    while len(sources) < n_pairs:
        length = rng.randint(min_digits, max_digits)
        sources[" ".join(rng.choice("0123456789") for _ in range(length))] = None
    return [DigitPair(source, source[::-1]) for source in sources]
