"""Words and subword pieces: which piece belongs to which word, and the factors it inherits."""

from syntaxformer.align.columns import CodedColumn, WordColumns
from syntaxformer.align.encodings import encoding_offsets, segment_offsets
from syntaxformer.align.factors import (
    FACTORS,
    Factor,
    build_vocabularies,
    check_factors,
    piece_factors,
    word_factor,
)
from syntaxformer.align.pieces import (
    NO_WORD,
    batch_word_of_piece,
    row_of_item,
    uncovered_words,
    word_of_piece,
)
from syntaxformer.align.subword import SUBWORD_POSITIONS, subword_codes
from syntaxformer.align.user_columns import read_user_column, read_user_values
from syntaxformer.align.vocabulary import FactorVocabulary, UnseenFactorValueWarning, UnseenValues
from syntaxformer.align.word_values import word_depths

__all__ = [
    "FACTORS",
    "NO_WORD",
    "SUBWORD_POSITIONS",
    "CodedColumn",
    "Factor",
    "FactorVocabulary",
    "UnseenFactorValueWarning",
    "UnseenValues",
    "WordColumns",
    "batch_word_of_piece",
    "build_vocabularies",
    "check_factors",
    "encoding_offsets",
    "piece_factors",
    "read_user_column",
    "read_user_values",
    "row_of_item",
    "segment_offsets",
    "subword_codes",
    "uncovered_words",
    "word_depths",
    "word_factor",
    "word_of_piece",
]
