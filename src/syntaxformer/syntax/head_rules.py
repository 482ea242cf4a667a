"""Which child is the head of a phrase: Collins's rules for Penn Treebank labels.

The rules choose one child at a time; `relations` carries the head word up the tree. Universal tags are read
as the Penn tag that they mostly stand for, so the rules also serve trees converted from UD.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

# label: (side from which the children are searched, labels from the best to the worst)
_RULES: dict[str, tuple[str, str]] = {
    "ADJP": ("left", "NNS QP NN $ ADVP JJ VBN VBG ADJP JJR NP JJS DT FW RBR RBS SBAR RB"),
    "ADVP": ("right", "RB RBR RBS FW ADVP TO CD JJR JJ IN NP JJS NN"),
    "CONJP": ("right", "CC RB IN"),
    "FRAG": ("right", ""),
    "INTJ": ("left", ""),
    "LST": ("right", "LS :"),
    "NAC": ("left", "NN NNS NNP NNPS NP NAC EX $ CD QP PRP VBG JJ JJS JJR ADJP FW"),
    "PP": ("right", "IN TO VBG VBN RP FW"),
    "PRN": ("left", ""),
    "PRT": ("right", "RP"),
    "QP": ("left", "$ IN NNS NN JJ RB DT CD NCD QP JJR JJS"),
    "RRC": ("right", "VP NP ADVP ADJP PP"),
    "S": ("left", "TO IN VP S SBAR ADJP UCP NP"),
    "SBAR": ("left", "WHNP WHPP WHADVP WHADJP IN DT S SQ SINV SBAR FRAG"),
    "SBARQ": ("left", "SQ S SINV SBARQ FRAG"),
    "SINV": ("left", "VBZ VBD VBP VB MD VP S SINV ADJP NP"),
    "SQ": ("left", "VBZ VBD VBP VB MD VP SQ"),
    "UCP": ("right", ""),
    "VP": ("left", "TO VBD VBN MD VBZ VB VBG VBP VP ADJP NN NNS NP"),
    "WHADJP": ("left", "CC WRB JJ ADJP"),
    "WHADVP": ("right", "CC WRB"),
    "WHNP": ("left", "WDT WP WP$ WHADJP WHPP WHNP"),
    "WHPP": ("right", "IN TO FW"),
}
_PREFERENCES = {label: (side, labels.split()) for label, (side, labels) in _RULES.items()}

# Noun phrases: one search after the other, each for any of its labels.
_NOUN_PHRASES = frozenset({"NP", "NX"})
_NOUN_SEARCHES = (
    ("right", frozenset({"NN", "NNP", "NNPS", "NNS", "NX", "POS", "JJR"})),
    ("left", frozenset({"NP"})),
    ("right", frozenset({"$", "ADJP", "PRN"})),
    ("right", frozenset({"CD"})),
    ("right", frozenset({"JJ", "JJS", "RB", "QP"})),
)

_PENN_OF_UNIVERSAL = {
    "ADJ": "JJ", "ADP": "IN", "ADV": "RB", "AUX": "MD", "CCONJ": "CC", "DET": "DT", "INTJ": "UH",
    "NOUN": "NN", "NUM": "CD", "PART": "RB", "PRON": "PRP", "PROPN": "NNP", "PUNCT": ".", "SCONJ": "IN",
    "SYM": "$", "VERB": "VB",
}  # fmt: skip
_PUNCTUATION = frozenset({",", ":", ".", "``", "''", "-LRB-", "-RRB-", "HYPH", "#"})
_CONJUNCTIONS = frozenset({"CC", "CONJP"})
_FUNCTION = re.compile(r"(?<=.)[-=|].*")


def head_child(label: str, children: Sequence[str]) -> int:
    """Return the position of the child that holds the head word of a phrase.

    A label without rules (a number or an empty one) takes its last child whose label is not punctuation.
    Function tags ("NP-SBJ") are ignored. `children` are the labels of the children, including the tags of
    words; "" stands for a bare word.

    Source: Collins (1999), appendix A; the coordination rule makes the first conjunct the head.
    """
    labels = [_plain(child) for child in children]
    head, in_coordination = _search(_plain(label), labels), False
    while head >= 2:  # step back over "X and", and from there over "X ," of the same kind
        is_joined = labels[head - 1] in _CONJUNCTIONS
        is_listed = in_coordination and labels[head - 1] == "," and labels[head - 2] == labels[head]
        before = [position for position in range(head - 1) if labels[position] not in _PUNCTUATION]
        if not before or not (is_joined or is_listed):
            break
        in_coordination, head = True, before[-1]
    return head


def _plain(label: str) -> str:
    plain = label if label.startswith("-") else _FUNCTION.sub("", label)
    return _PENN_OF_UNIVERSAL.get(plain, plain)


def _search(label: str, children: Sequence[str]) -> int:
    side, preferences = _PREFERENCES.get(label, ("right", []))
    searches = [(side, {preference}) for preference in preferences]
    if label in _NOUN_PHRASES:
        if children[-1] == "POS":
            return len(children) - 1
        searches = _NOUN_SEARCHES
    for direction, labels in searches:
        for position in _places(direction, len(children)):
            if children[position] in labels:
                return position
    plain = (position for position in _places(side, len(children)) if children[position] not in _PUNCTUATION)
    return next(plain, _places(side, len(children))[0])


def _places(side: str, n_children: int) -> range:
    return range(n_children) if side == "left" else range(n_children - 1, -1, -1)
