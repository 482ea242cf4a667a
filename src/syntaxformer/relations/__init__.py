"""Trees to relation matrices: one small integer for each pair of words. NumPy only, no parameters."""

from syntaxformer.relations.constituency import batch_constituency_relations, constituency_relations
from syntaxformer.relations.dependency import (
    NO_PATH,
    batch_dependency_distances,
    batch_dependency_relations,
    dependency_depths,
    dependency_relations,
)
from syntaxformer.relations.head_rules import head_child
from syntaxformer.relations.ids import (
    MAX_DISTANCE,
    RELATIONS_VERSION,
    n_relations,
    pair_relation,
    relation_name,
)
from syntaxformer.relations.phrases import NO_PHRASE, PhraseColumns, phrase_columns
from syntaxformer.relations.pieces import pair_words_of_pieces, piece_relations
from syntaxformer.relations.words import WordTrees, word_relations

__all__ = [
    "MAX_DISTANCE",
    "NO_PATH",
    "NO_PHRASE",
    "RELATIONS_VERSION",
    "PhraseColumns",
    "WordTrees",
    "batch_constituency_relations",
    "batch_dependency_distances",
    "batch_dependency_relations",
    "constituency_relations",
    "dependency_depths",
    "dependency_relations",
    "head_child",
    "n_relations",
    "pair_relation",
    "pair_words_of_pieces",
    "phrase_columns",
    "piece_relations",
    "relation_name",
    "word_relations",
]
