"""A sentence and its pieces as arrays: factors of pieces, relations of trees. NumPy only."""

import os

from syntaxformer.syntax.columns import CodedColumn, WordColumns, read_user_column, read_user_values
from syntaxformer.syntax.factors import (
    FACTORS,
    SHAPES,
    FactorVocabulary,
    UnseenFactorValueWarning,
    UnseenValues,
    build_vocabularies,
    check_factors,
    piece_factors,
)
from syntaxformer.syntax.inputs import (
    LineSyntax,
    SyntaxInputs,
    TreeOptions,
    first_pieces,
    governor_targets,
)
from syntaxformer.syntax.own_relations import labelled_edges, register_file, register_relations
from syntaxformer.syntax.piece_relations import (
    WordTrees,
    pair_words_of_pieces,
    piece_relations,
    word_relations,
)
from syntaxformer.syntax.pieces import (
    NO_WORD,
    SUBWORD_POSITIONS,
    batch_word_of_piece,
    encoding_offsets,
    segment_offsets,
    subword_codes,
    word_of_piece,
)
from syntaxformer.syntax.relations import (
    MAX_DISTANCE,
    NO_PATH,
    RELATIONS_VERSION,
    PhraseColumns,
    batch_dependency_distances,
    batch_dependency_relations,
    constituency_relations,
    dependency_depths,
    dependency_relations,
    n_relations,
    pair_relation,
    relation_name,
)

__all__ = [
    "FACTORS",
    "MAX_DISTANCE",
    "NO_PATH",
    "NO_WORD",
    "RELATIONS_VERSION",
    "SHAPES",
    "SUBWORD_POSITIONS",
    "CodedColumn",
    "FactorVocabulary",
    "LineSyntax",
    "PhraseColumns",
    "SyntaxInputs",
    "TreeOptions",
    "UnseenFactorValueWarning",
    "UnseenValues",
    "WordColumns",
    "WordTrees",
    "batch_dependency_distances",
    "batch_dependency_relations",
    "batch_word_of_piece",
    "build_vocabularies",
    "check_factors",
    "constituency_relations",
    "dependency_depths",
    "dependency_relations",
    "encoding_offsets",
    "first_pieces",
    "governor_targets",
    "labelled_edges",
    "n_relations",
    "pair_relation",
    "pair_words_of_pieces",
    "piece_factors",
    "piece_relations",
    "read_user_column",
    "read_user_values",
    "register_file",
    "register_relations",
    "relation_name",
    "segment_offsets",
    "subword_codes",
    "word_of_piece",
    "word_relations",
]

for _file in filter(None, os.environ.get("SYNTAXFORMER_RELATIONS", "").split(os.pathsep)):
    register_file(_file)  # in a process that another one has started
