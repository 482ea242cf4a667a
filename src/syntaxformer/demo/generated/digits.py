"""Digit reversal: the smallest task that a translator must be able to learn ("3 1 7" becomes "7 1 3")."""

from __future__ import annotations

import random
from typing import NamedTuple

__all__ = ["DigitPair", "digit_pairs"]


class DigitPair(NamedTuple):
    """Source and target, digits with single spaces between them."""

    source: str
    target: str


def digit_pairs(n_pairs: int, seed: int = 1, min_digits: int = 3, max_digits: int = 8) -> list[DigitPair]:
    """Distinct random digit strings with their reversals.

    Args:
        n_pairs: How many.
        seed: Seed of every choice.
        min_digits: Length of the shortest string, at least 1.
        max_digits: Length of the longest string.

    Returns:
        The pairs, in an order that depends on the seed alone.

    Raises:
        ValueError: The lengths are not in order, or there are fewer strings of these lengths than asked for.
    """
    if not 1 <= min_digits <= max_digits:
        raise ValueError(f"min_digits: expected 1 <= min_digits <= {max_digits}, got {min_digits}.")
    available = sum(10**length for length in range(min_digits, max_digits + 1))
    if not 0 <= n_pairs <= available:
        raise ValueError(
            f"n_pairs: expected 0 to {available} distinct strings, got {n_pairs}. Allow more digits."
        )
    rng = random.Random(seed)
    sources: dict[str, None] = {}
    while len(sources) < n_pairs:
        length = rng.randint(min_digits, max_digits)
        sources[" ".join(rng.choice("0123456789") for _ in range(length))] = None
    return [DigitPair(source, source[::-1]) for source in sources]
