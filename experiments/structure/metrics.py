"""Metrics of the experiments on structure: which rule a translation follows."""

from __future__ import annotations

from collections.abc import Mapping


def main_word(source: str, hypothesis: str, reference: str, row: Mapping[str, str]) -> float:
    """Whether the word that only the structural rule gives stands where it has to.

    In a question it is the auxiliary of the main verb, at the beginning; otherwise the main verb, after its
    subject.
    """
    words, position = hypothesis.split(), int(row["position"])
    return float(len(words) > position and words[position] == row["main"])
