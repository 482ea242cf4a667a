"""Edges of the dependency tree told apart by their labels: relations that `trees` name `labelled_edges`."""

from __future__ import annotations

import numpy as np

from syntaxformer.syntax.own_relations import register_relations
from syntaxformer.syntax.relations import RelationArray
from syntaxformer.trees import ROOT, Sentence

LABELS = (
    "acl", "advcl", "advmod", "amod", "appos", "aux", "case", "cc", "ccomp", "clf", "compound", "conj", "cop",
    "csubj", "dep", "det", "discourse", "dislocated", "expl", "fixed", "flat", "goeswith", "iobj", "list",
    "mark", "nmod", "nsubj", "nummod", "obj", "obl", "orphan", "parataxis", "punct", "reparandum", "vocative",
    "xcomp",
)  # fmt: skip
"""Labels of edges in Universal Dependencies, without subtypes; any other label counts as `dep`."""

_PLACES = {label: place for place, label in enumerate(LABELS, start=1)}


def labelled_edges(sentence: Sentence) -> RelationArray:
    """Relations by label: p for a word's governor over an edge of label p, p + 36 for its dependent; else 0.

    Labels count from 1 in the order of `LABELS`. Beside a `dependency` tree, whose relations do not know
    labels, it needs `max_distance` of 24 or more.

    Returns:
        uint8 `[words, words]`, 0 to 72; row i sees column j.

    Source: Shaw et al. (2018), "Self-Attention with Relative Position Representations", with edges of a parse
    in place of positions.
    """
    relations = np.zeros((len(sentence),) * 2, np.uint8)
    edges = zip(sentence.governors or (), sentence.deprels or (), strict=True)
    for word, (governor, deprel) in enumerate(edges):
        if governor != ROOT:
            number = _PLACES.get(deprel.partition(":")[0], _PLACES["dep"])
            relations[word, governor], relations[governor, word] = number, number + len(LABELS)
    return relations


register_relations("labelled_edges", labelled_edges, 2 * len(LABELS) + 1, ("governors", "deprels"))
