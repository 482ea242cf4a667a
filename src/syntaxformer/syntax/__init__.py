"""A sentence and its pieces as arrays: factors of pieces, relations of trees. NumPy only."""

from syntaxformer.syntax.columns import CodedColumn, WordColumns
from syntaxformer.syntax.constituency_relations import batch_constituency_relations, constituency_relations
from syntaxformer.syntax.dependency_relations import (
    NO_PATH,
    batch_dependency_distances,
    batch_dependency_relations,
    dependency_depths,
    dependency_relations,
)
from syntaxformer.syntax.encodings import encoding_offsets, segment_offsets
from syntaxformer.syntax.factors import (
    FACTORS,
    Factor,
    build_vocabularies,
    check_factors,
    piece_factors,
    word_factor,
)
from syntaxformer.syntax.head_rules import head_child
from syntaxformer.syntax.phrase_columns import NO_PHRASE, PhraseColumns, phrase_columns
from syntaxformer.syntax.piece_relations import pair_words_of_pieces, piece_relations
from syntaxformer.syntax.pieces import (
    NO_WORD,
    batch_word_of_piece,
    row_of_item,
    uncovered_words,
    word_of_piece,
)
from syntaxformer.syntax.relation_ids import (
    MAX_DISTANCE,
    RELATIONS_VERSION,
    n_relations,
    pair_relation,
    relation_name,
)
from syntaxformer.syntax.subword import SUBWORD_POSITIONS, subword_codes
from syntaxformer.syntax.user_columns import read_user_column, read_user_values
from syntaxformer.syntax.vocabulary import FactorVocabulary, UnseenFactorValueWarning, UnseenValues
from syntaxformer.syntax.word_relations import WordTrees, word_relations
from syntaxformer.syntax.word_values import word_depths

__all__ = [
    "FACTORS",
    "MAX_DISTANCE",
    "NO_PATH",
    "NO_PHRASE",
    "NO_WORD",
    "RELATIONS_VERSION",
    "SUBWORD_POSITIONS",
    "CodedColumn",
    "Factor",
    "FactorVocabulary",
    "PhraseColumns",
    "UnseenFactorValueWarning",
    "UnseenValues",
    "WordColumns",
    "WordTrees",
    "batch_constituency_relations",
    "batch_dependency_distances",
    "batch_dependency_relations",
    "batch_word_of_piece",
    "build_vocabularies",
    "check_factors",
    "constituency_relations",
    "dependency_depths",
    "dependency_relations",
    "encoding_offsets",
    "head_child",
    "n_relations",
    "pair_relation",
    "pair_words_of_pieces",
    "phrase_columns",
    "piece_factors",
    "piece_relations",
    "read_user_column",
    "read_user_values",
    "relation_name",
    "row_of_item",
    "segment_offsets",
    "subword_codes",
    "uncovered_words",
    "word_depths",
    "word_factor",
    "word_of_piece",
    "word_relations",
]
