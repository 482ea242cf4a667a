"""One text as a model reads it: words and trees, relations of the words, pieces with their factors.

The trees are those of a parser of the text's language, even if the model reads none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from syntaxformer.base.errors import SyntaxformerError
from syntaxformer.base.languages import TextLanguage, choose_annotator, language_of
from syntaxformer.encoders.examples import in_place
from syntaxformer.syntax import (
    FACTORS,
    MAX_DISTANCE,
    UnseenValues,
    WordColumns,
    WordTrees,
    batch_word_of_piece,
    pair_words_of_pieces,
    piece_factors,
    segment_offsets,
    word_relations,
)
from syntaxformer.syntax.inputs import SyntaxInputs
from syntaxformer.syntax.piece_relations import TREES, columns_of_trees, sentence_trees
from syntaxformer.trees import Sentence
from syntaxformer.trees.phrase_structure import NEEDED_COLUMNS

if TYPE_CHECKING:
    from syntaxformer.annotate import Annotator
    from syntaxformer.encoders.classifier import Classifier
    from syntaxformer.translation.translator import Translator


@dataclass(frozen=True)
class TextView:
    """A sentence or a pair, with its pieces.

    Args:
        sentences: One or two, with the annotation that the parser gives.
        relations: Kind of tree → ids of relations, `[words, words]`, over the words of both sentences; only
            for trees that exist.
        max_distance: Largest distance D of these ids.
        pieces: `[pieces]`.
        words_of_pieces: `[pieces]`, numbered through both sentences, -1 for none.
        factors: Factor name → its value for each piece.
    """

    sentences: tuple[Sentence, ...]
    relations: dict[str, NDArray[np.uint8]]
    max_distance: int
    pieces: list[str]
    words_of_pieces: list[int]
    factors: dict[str, list[str]]


@dataclass(frozen=True)
class Parser:
    """The annotator that finds words and trees for a view, and the reason if there are no trees."""

    annotator: Annotator
    lacks: str | None = None


def parser_for(
    annotator: Annotator | None, name: str | None, language: str | None, tokenized: bool
) -> Parser:
    """The parser whose trees are shown with a model: its own annotator if that parses.

    Loaded anew by its name, it may parse even if the model has switched that off. The bundled parser of the
    text's language is the next choice. In `tokenized` text, spaces separate the words.
    """
    from syntaxformer.annotate import WordsAsGiven, with_constituency
    from syntaxformer.annotate.annotator import SpacedWords

    if annotator is not None and set(NEEDED_COLUMNS) <= annotator.provides:
        return Parser(with_constituency(annotator))
    origin = f"source_language={language}" if language else "the text"
    text, lacks = TextLanguage(language_of(language or ""), origin), None
    for named in (name, None) if name else (None,):
        try:
            parser = _loaded(choose_annotator(named, text, "--annotator"))
            return Parser(WordsAsGiven(parser) if tokenized else parser)
        except SyntaxformerError as error:
            lacks = str(error)
    return Parser(annotator or SpacedWords(), lacks)


def translator_text(
    translator: Translator, line: str, parser: Parser, max_distance: int = MAX_DISTANCE
) -> TextView:
    """A line with at least one word as a translator, exported or not, reads it.

    Raises:
        ConfigError: The model reads factors of the user's own, or no target language was chosen.
        ValueError: `max_distance` is not between 1 and 84.
    """
    (sentence,) = parser.annotator.annotate([translator.clean(line)])
    encoder = replace(translator.encoder, syntax=SyntaxInputs(words=True), unseen=UnseenValues())
    words = WordColumns.from_sentences([sentence])
    cut = translator.cutter(1)
    encoded = encoder.encode([sentence.text], words, translator.longest, cut)
    assert encoded.syntax is not None, "it was asked for the words"
    read = encoded
    if encoder.factors and translator.annotator is not None:  # which may give other tags than the parser
        (tagged,) = translator.annotator.annotate([sentence.text])
        words = WordColumns.from_sentences([tagged])
        read = encoder.encode([sentence.text], words, translator.longest, cut)
        if tagged.words == sentence.words:  # its pieces are, too, of which `prepend` makes tags
            encoded = read
    factors = encoder.factor_values(read.factors)
    relations = _relations((sentence,), max_distance)
    names = encoder.piece_names(encoded.pieces)
    owners = encoded.syntax.owners.tolist()
    return TextView((sentence,), relations, max_distance, names, owners, factors)


def classifier_text(
    classifier: Classifier, texts: Sequence[str], parser: Parser, max_distance: int = MAX_DISTANCE
) -> TextView:
    """A text or a pair of texts, none of them empty, as a classifier reads it.

    Raises:
        ValueError: `max_distance` is not between 1 and 84.
    """
    collator, keeps_places = classifier.collator, classifier.task_type.parts
    lines = [in_place(text) if keeps_places else " ".join(text.split()) for text in texts]
    sentences = tuple(map(collator.read, parser.annotator.annotate(lines)))
    read = {"truncation": True, "max_length": collator.max_length}  # as the collator reads
    read |= {"split_special_tokens": collator.split_special_tokens}
    encoded: Any = collator.tokenizer(*([sentence.text] for sentence in sentences), **read)
    offsets, piece_splits = segment_offsets(encoded)
    padded = [*sentences, Sentence("", (), ())][:2]
    vocabularies = collator.config.vocabularies
    needs = {need for name in vocabularies for need in FACTORS[name].needs}
    tagged = [replace(sentence, upos=sentence.upos or ("X",) * len(sentence)) for sentence in padded]
    words = WordColumns.from_sentences(tagged, only=needs)
    owners = batch_word_of_piece(offsets, piece_splits, words.offsets, words.row_splits)
    numbered, _ = pair_words_of_pieces(owners, piece_splits, words.row_splits)
    pieces = collator.tokenizer.convert_ids_to_tokens(encoded["input_ids"][0])
    relations = _relations(sentences, max_distance)
    known = {name: v for name, v in vocabularies.items() if {*FACTORS[name].needs} <= words.provides}
    ids = piece_factors(words, owners, piece_splits, known)
    factors = {name: known[name].decode(ids[:, column]) for column, name in enumerate(known)}
    return TextView(sentences, relations, max_distance, pieces, numbered.tolist(), factors)


def _relations(sentences: Sequence[Sentence], max_distance: int) -> dict[str, NDArray[np.uint8]]:
    """The relations of each tree that all sentences have."""
    relations = {}
    for kind in (name for name, tree in TREES.items() if tree.function is None):
        columns = columns_of_trees([kind])
        with_words = [sentence for sentence in sentences if sentence.words]
        if all(getattr(sentence, column) is not None for sentence in with_words for column in columns):
            trees = [sentence_trees(sentence, (kind,)) for sentence in sentences]
            joined = trees[0] if len(trees) == 1 else WordTrees.of_pair(*trees)
            matrix = word_relations([joined], max_distance, trees=(kind,))[0, 0]
            relations[kind] = matrix[: len(joined), : len(joined)]
    return relations


@lru_cache(maxsize=8)
def _loaded(name: str) -> Annotator:
    """Load a parser once, so that models of one language share it."""
    from syntaxformer.annotate import prepare, with_constituency

    return with_constituency(prepare(name))
