"""Sentences and trees: plain Python, no torch, no model."""

from syntaxformer.trees.conllu import format_conllu, parse_conllu, read_conllu, write_conllu
from syntaxformer.trees.constituency import (
    Span,
    Tree,
    format_tree,
    leaves_of,
    parse_tree,
    parse_trees,
    read_ptb,
    remove_traces,
    sentence_from_tree,
    spans_of,
    strip_functions,
    strip_root,
    tags_of,
    tree_of_column,
)
from syntaxformer.trees.dependency import (
    check_governors,
    children_of,
    depths_of,
    projective_governors,
)
from syntaxformer.trees.locate import locate_words
from syntaxformer.trees.phrase_structure import phrase_structure
from syntaxformer.trees.sentence import ROOT, Sentence

__all__ = [
    "ROOT",
    "Sentence",
    "Span",
    "Tree",
    "check_governors",
    "children_of",
    "depths_of",
    "format_conllu",
    "format_tree",
    "leaves_of",
    "locate_words",
    "parse_conllu",
    "parse_tree",
    "parse_trees",
    "phrase_structure",
    "projective_governors",
    "read_conllu",
    "read_ptb",
    "remove_traces",
    "sentence_from_tree",
    "spans_of",
    "strip_functions",
    "strip_root",
    "tags_of",
    "tree_of_column",
    "write_conllu",
]
