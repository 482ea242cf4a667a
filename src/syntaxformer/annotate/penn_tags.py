"""Universal parts of speech from Penn Treebank tags, for English parsers that give no others.

A table, refined by the relation to the governor where one tag stands for several parts of speech.
"""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["PENN_TO_UPOS", "upos_of_penn"]

PENN_TO_UPOS = {
    "#": "SYM", "$": "SYM", "''": "PUNCT", "``": "PUNCT", ",": "PUNCT", ".": "PUNCT", ":": "PUNCT",
    "-LRB-": "PUNCT", "-RRB-": "PUNCT", "HYPH": "PUNCT", "NFP": "PUNCT", "ADD": "X", "AFX": "X",
    "CC": "CCONJ", "CD": "NUM", "DT": "DET", "EX": "PRON", "FW": "X", "GW": "X", "IN": "ADP", "JJ": "ADJ",
    "JJR": "ADJ", "JJS": "ADJ", "LS": "X", "MD": "AUX", "NN": "NOUN", "NNP": "PROPN",
    "NNPS": "PROPN", "NNS": "NOUN",
    "PDT": "DET", "POS": "PART", "PRP": "PRON", "PRP$": "PRON", "RB": "ADV", "RBR": "ADV", "RBS": "ADV",
    "RP": "ADP", "SYM": "SYM", "TO": "PART", "UH": "INTJ", "VB": "VERB", "VBD": "VERB", "VBG": "VERB",
    "VBN": "VERB", "VBP": "VERB", "VBZ": "VERB", "WDT": "DET", "WP": "PRON", "WP$": "PRON", "WRB": "ADV",
    "XX": "X",
}  # fmt: skip
"""UD's conversion table for English, tag by tag; what is not in it is X."""

_WITH_RELATION = {
    **{
        (tag, deprel): "AUX" for tag in ("VB", "VBD", "VBG", "VBN", "VBP", "VBZ") for deprel in ("aux", "cop")
    },
    ("IN", "mark"): "SCONJ",
    ("TO", "case"): "ADP",
    ("DT", "nsubj"): "PRON",
    ("DT", "obj"): "PRON",
    ("DT", "obl"): "PRON",
    ("WDT", "nsubj"): "PRON",
    ("WDT", "obj"): "PRON",
    ("WDT", "obl"): "PRON",
    ("RB", "neg"): "PART",
}
"""Parts of speech that follow from tag and relation (without its subtype) together."""

_NEGATIONS = frozenset({"not", "n't", "n’t"})


def upos_of_penn(
    words: Sequence[str], tags: Sequence[str | None], deprels: Sequence[str | None] | None
) -> list[str | None]:
    """Return the universal part of speech of each word.

    Args:
        words: `[words]`.
        tags: Penn Treebank tags, `[words]`.
        deprels: Universal relations, `[words]`; None where nothing was parsed.
    """
    relations = deprels or [None] * len(words)
    return [
        "PART"
        if tag == "RB" and word.lower() in _NEGATIONS
        else _WITH_RELATION.get(
            (tag or "", (deprel or "").partition(":")[0]), PENN_TO_UPOS.get(tag or "", "X")
        )
        for word, tag, deprel in zip(words, tags, relations, strict=True)
    ]
