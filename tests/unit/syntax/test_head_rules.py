"""Heads read off Collins (1999), appendix A, by hand."""

from __future__ import annotations

import pytest

from syntaxformer.syntax.head_rules import head_child


@pytest.mark.parametrize(
    ("label", "children", "head"),
    [
        ("S", "NP VP .", 1), ("S", "NP-SBJ-1 VP .", 1), ("VP", "VBD NP PP", 0), ("VP", "MD VP", 0),
        ("VP", "ADVP VBN NP", 1), ("NP", "DT JJ NN", 2), ("NP", "DT NN NN", 2), ("NP", "NP PP", 0),
        ("NP", "NP POS", 1), ("NP", "DT CD", 1), ("NP", "DT JJ", 1), ("NP", "PRP", 0),
        ("PP", "IN NP", 0), ("SBAR", "WHNP S", 0), ("SBAR", "IN S", 0), ("ADJP", "RB JJ", 1),
        ("WHNP", "WDT NN", 0), ("SINV", "VP VBZ NP", 1),
        # from which side a label is searched
        ("ADJP", "JJ PP JJ", 0), ("ADVP", "RB RB", 1), ("NP", "CD CD", 1), ("NP", "JJ JJ", 1),
        ("NP", "$ DT $", 2), ("NP", "NP PP NP", 0), ("PP", "IN ADVP IN NP", 2), ("QP", "IN CD IN", 0),
        ("S", "VP , VP", 0), ("SBAR", "IN S IN S", 0), ("SINV", "VBD NP VBD", 0),
        ("SQ", "VBZ NP VBZ", 0), ("VP", "VBD NP VBD", 0), ("WHNP", "WP NN WP", 0),
        # which label is looked for first
        ("NP", "$ CD", 0), ("NX", "DT NN JJ", 1), ("S", "S VP", 1),
        # coordination: the first conjunct
        ("NP", "NN CC NN", 0), ("NP", "NN , NN , CC NN", 0), ("NP", "DT NN CC NN", 1),
        ("NP", "NN , NN", 2), ("NP", "NN CONJP NN", 0), ("VP", "VBD CC VBD", 0),
        # universal tags
        ("NP", "DET ADJ NOUN", 2), ("PP", "ADP NP", 0), ("VP", "AUX VERB", 0), ("VP", "ADV VERB NP", 1),
        ("VP", "PART VERB", 1), ("NP", "NUM NP", 1), ("NP", "NN SCONJ NN", 2), ("ADVP", "ADV ADJ", 0),
        # unknown labels and none: the last that is no punctuation
        ("3", "2 4", 1), ("", "X . ''", 0), ("X", ", .", 1), ("FRAG", "NP .", 0),
        # signs that are tags themselves are not cut
        ("PRN", "-LRB- NP -RRB-", 1),
    ],
)  # fmt: skip
def test_head_child(label, children, head):
    assert head_child(label, children.split()) == head
