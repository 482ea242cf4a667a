"""Pieces of lines with their factors, tags and trees, by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parallel_files import tiny_recipe, write_sides
from syntaxformer.base.errors import AlignmentError, ConfigError
from syntaxformer.syntax import (
    FactorVocabulary,
    SyntaxInputs,
    TreeOptions,
    UnseenFactorValueWarning,
    WordColumns,
    build_vocabularies,
    constituency_relations,
    dependency_relations,
)
from syntaxformer.syntax import inputs as syntax_inputs
from syntaxformer.syntax.inputs import check_syntax
from syntaxformer.translation.source import (
    EncodedText,
    SourceEncoder,
    first_of_words,
    fitting_pieces,
    source_batch,
    with_tags,
)
from syntaxformer.translation.subwords import SubwordConfig, train_subwords
from syntaxformer.translation.training import prepare
from syntaxformer.trees import Sentence

FACTORS = ("pos", "case", "subword")


@pytest.fixture(scope="module")
def tokenizer():
    return train_subwords(["the cat sat .", "The cat"] * 5, SubwordConfig(vocab_size=301))


def _columns(annotator, lines):
    return WordColumns.from_sentences(annotator.annotate(lines))


def _encoder(tokenizer, annotator, lines, factors=FACTORS):
    return SourceEncoder(tokenizer, build_vocabularies([_columns(annotator, lines)], factors))


def test_factors_of_each_piece_by_hand(tokenizer, annotator):
    lines = ["The cats purrs", "", "cat"]
    encoder = _encoder(tokenizer, annotator, lines)
    encoded = encoder.encode(lines, _columns(annotator, lines))
    pieces = tokenizer.convert_ids_to_tokens(encoded.pieces.tolist())
    values = [
        encoder.vocabularies[name].decode(encoded.factors[:, column]) for column, name in enumerate(FACTORS)
    ]
    no_word = ("<none>", "<none>", "<none>")
    verb = ("VERB", "0")
    assert list(zip(pieces, *values, strict=True)) == [
        ("▁The", "DET", "1", "O"),
        ("▁cat", "NOUN", "0", "B"),
        ("s", "NOUN", "0", "E"),
        ("▁", *no_word),  # the space alone: no letter of any word
        ("<0x70>", *verb, "B"),  # "p" was not in the text that the subwords were learned on
        ("<0x75>", *verb, "M"),
        ("<0x72>", *verb, "M"),
        ("<0x72>", *verb, "M"),
        ("s", *verb, "E"),
        ("</s>", *no_word),
        ("</s>", *no_word),
        ("▁cat", "NOUN", "0", "O"),
        ("</s>", *no_word),
    ]
    assert encoded.lengths.tolist() == [10, 1, 2]
    assert len(encoded) == 3
    assert encoded.factors.dtype == encoded.pieces.dtype == np.int32


def test_unseen_values_are_counted_in_one_warning(tokenizer, annotator):
    encoder = SourceEncoder(tokenizer, {"deprel": FactorVocabulary("deprel", ("root",))})
    lines = ["the cat sat .", "cats purrs"]
    encoded = encoder.encode(lines, _columns(annotator, lines))
    assert 1 in encoded.factors  # <unk>
    message = r"^factor deprel: 4 values rare or unseen in training read as <unk>: 'dep' 4x$"
    with pytest.warns(UnseenFactorValueWarning, match=message):
        encoder.unseen.warn()


def test_words_of_other_lines_or_without_tags_are_refused(tokenizer, annotator):
    encoder, words = _encoder(tokenizer, annotator, ["the cat"]), _columns(annotator, ["the cat"])
    with pytest.raises(AlignmentError):
        encoder.encode(["the cat", "sat"], words)
    with pytest.raises(ConfigError, match="factor 'pos': expected upos, got none"):
        encoder.encode(["the cat"], replace(words, upos=None))


LINES = ["the cats purrs", "", "the cat"]
GOVERNORS = [(1, 2, -1), (), (1, -1)]
BRACKETS = ["(S (NP (DT the) (NNS cats)) (VP (VBZ purrs)))", None, "(NP (DT the) (NN cat))"]
BOTH = SyntaxInputs(trees=TreeOptions(max_distance=3), governors=True)


def _sentence(line: str, governors: Sequence[int], brackets: str | None = None) -> Sentence:
    words, upos = line.split(), ("X",) * len(governors)
    return Sentence.from_words(words, upos=upos, governors=tuple(governors), constituency=brackets)


def _tree_columns() -> WordColumns:
    return WordColumns.from_sentences([*map(_sentence, LINES, GOVERNORS, BRACKETS)])


def _encode(tokenizer, inputs: SyntaxInputs, **settings) -> EncodedText:
    return SourceEncoder(tokenizer, syntax=inputs, **settings).encode(LINES, _tree_columns())


def test_relations_and_governors_of_pieces_by_hand(tokenizer):
    """ "▁the ▁cat s ▁ p u r r s </s>": words 0, 1, 1, none, 2 five times; the end is over the root."""
    encoded = _encode(tokenizer, BOTH)
    names = tokenizer.convert_ids_to_tokens(encoded.pieces[:10].tolist())
    assert names == ["▁the", "▁cat", "s", "▁", "<0x70>", "<0x75>", "<0x72>", "<0x72>", "s", "</s>"]
    batch = source_batch(encoded, [2, 0], 0)
    assert batch["governors"].tolist() == [
        [1, 1, -100, -100, -100, -100, -100, -100, -100, -100],
        [1, 4, 1, -100, 4, 4, 4, 4, 4, -100],
    ]
    assert batch["first_pieces"].nonzero().tolist() == [[0, 0], [0, 1], [1, 0], [1, 1], [1, 4]]
    owners = [0, 1, 1, None, 2, 2, 2, 2, 2]
    trees = (
        dependency_relations(GOVERNORS[0], 3),
        constituency_relations(BRACKETS[0], 3, governors=GOVERNORS[0]),
    )
    for number, of_words in enumerate(trees):
        relations = batch["syntax"][1, number].numpy()
        for row, row_word in enumerate(owners):
            for column, word in enumerate(owners):
                expected = 0 if row_word is None or word is None else of_words[row_word, word]
                assert relations[row, column] == expected
    # Edges below the end piece in the dependency tree, of the first pieces of its three words.
    assert batch["syntax"][1, 0, 9, [0, 1, 4]].tolist() == [3, 2, 1]
    assert batch["syntax"][0, :, 3:].eq(0).all()


@pytest.mark.parametrize("trees", [("dependency",), ("constituency",)])
def test_one_tree(tokenizer, trees):
    inputs = SyntaxInputs(trees=TreeOptions(max_distance=3, trees=trees))
    alone, both = (source_batch(_encode(tokenizer, read), [0], 0) for read in (inputs, BOTH))
    number = ("dependency", "constituency").index(trees[0])
    assert alone["syntax"][:, 0].equal(both["syntax"][:, number])


def test_selecting_lines(tokenizer):
    encoded = _encode(tokenizer, BOTH)
    rows = [2, 0, 1, 2, 0, 1]
    selected = source_batch(encoded.select(np.array(rows)), range(6), 0)
    for name, tensor in source_batch(encoded, rows, 0).items():
        assert selected[name].equal(tensor), name


def test_a_tag_is_the_first_piece_of_its_word(tokenizer):
    vocabularies = build_vocabularies([_tree_columns()], ("pos",))
    encoder = SourceEncoder(tokenizer, vocabularies, prepend="interleaved", syntax=BOTH)
    encoded = encoder.encode(LINES, _tree_columns())
    assert encoder.piece_names(encoded.pieces[:5]) == ["<X>", "▁the", "<X>", "▁cat", "s"]
    assert encoded.factors.shape[1] == 0
    assert encoded.n_tags.tolist() == [3, 0, 2]
    assert encoded.text_lengths.tolist() == [10, 1, 3]
    batch = source_batch(encoded, [2], 0)  # <X> ▁the <X> ▁cat </s>
    assert batch["governors"].tolist() == [[2, 0, 2, 2, -100]]
    assert batch["syntax"][0, 0, :4, :4].tolist() == [[0, 0, 4, 4], [0, 0, 4, 4], [1, 1, 0, 0], [1, 1, 0, 0]]


def test_cut_lines_keep_their_end_and_point_at_nothing_that_is_gone(tokenizer):
    encoder = SourceEncoder(tokenizer, syntax=BOTH)
    encoded = encoder.encode(LINES, _tree_columns(), longest=4)
    assert encoded.lengths.tolist() == [4, 1, 3]
    assert encoded.n_cut == 1
    batch = source_batch(encoded, [0], 0)  # ▁the ▁cat s </s>, without the root
    assert batch["governors"].tolist() == [[1, -100, 1, -100]]
    whole = source_batch(_encode(tokenizer, BOTH), [0], 0)
    assert batch["syntax"][0, :, :3, :3].equal(whole["syntax"][0, :, :3, :3])


def _one_line(tokenizer, inputs, governors, longest=None):
    line = " ".join(["cat"] * len(governors))
    words = WordColumns.from_sentences([_sentence(line, governors)])
    return SourceEncoder(tokenizer, syntax=inputs).encode([line], words, longest=longest)


def test_of_a_cut_line_only_its_words_take_part_with_the_relations_they_had(tokenizer, monkeypatch):
    inputs = SyntaxInputs(trees=TreeOptions(max_distance=4, trees=("dependency",)), governors=True)
    rng = np.random.default_rng(3)
    order = rng.permutation(60)
    governors = np.full(60, -1)
    governors[order[1:]] = [order[rng.integers(place)] for place in range(1, 60)]
    whole = source_batch(_one_line(tokenizer, inputs, governors.tolist()), [0], 0)["syntax"]
    n_words, word_relations = [], syntax_inputs.word_relations
    monkeypatch.setattr(
        syntax_inputs,
        "word_relations",
        lambda lines, *rest, **more: n_words.extend(map(len, lines)) or word_relations(lines, *rest, **more),
    )
    cut = source_batch(_one_line(tokenizer, inputs, governors.tolist(), longest=9), [0], 0)["syntax"]
    assert cut.shape == (1, 1, 9, 9)
    assert cut[..., :8, :8].equal(whole[..., :8, :8])
    assert 8 < n_words[0] < 30  # with those above them, as far as a relation reaches


def test_a_line_of_more_words_than_two_bytes_can_count(tokenizer):
    inputs = SyntaxInputs(trees=TreeOptions(max_distance=4, trees=("dependency",)), governors=True)
    n_words = 40_000
    governors = [n_words - 1, 0, n_words - 1, *([n_words - 1] * (n_words - 4)), -1]
    batch = source_batch(_one_line(tokenizer, inputs, governors, longest=4), [0], 0)
    assert batch["governors"].tolist() == [[-100, 0, -100, -100]]
    short = source_batch(_one_line(tokenizer, inputs, [4, 0, 4, 4, -1]), [0], 0)
    assert batch["syntax"][0, 0, :3, :3].equal(short["syntax"][0, 0, :3, :3])


def test_an_annotator_without_trees_is_refused(tokenizer):
    message = (
        r"^masks, relation_bias, lisa, parse_task: expected governors and constituency from the annotator, got none from tagger\. "
        r"Use one that parses, or leave these sections out\.$"
    )
    with pytest.raises(ConfigError, match=message):
        check_syntax(BOTH, frozenset({"upos"}), "tagger")
    bare = replace(_tree_columns(), governors=None)
    with pytest.raises(ConfigError, match="expected governors from the annotator, got none from the"):
        SourceEncoder(tokenizer, syntax=BOTH).encode(LINES, bare)


# "▁The ▁cat s </s>" | "</s>" | "▁a ▁ </s>": words 0, 1, 1; none; 0 and a piece of no word.
PIECES = np.array([10, 11, 12, 2, 2, 13, 14, 2], np.int32)
SPLITS = np.array([0, 4, 5, 8])
OWNERS = np.array([0, 1, 1, -1, -1, 0, -1, -1], np.int32)
TAGS = np.array([[70], [71], [71], [99], [99], [72], [99], [99]], np.int32)


def _lines(flat, splits):
    return [flat[start:stop].tolist() for start, stop in pairwise(splits)]


@pytest.mark.parametrize(
    ("place", "first_pieces", "first_owners"),
    [
        ("interleaved", [70, 10, 71, 11, 12, 2], [0, 0, 1, 1, 1, -1]),
        ("prefix", [70, 71, 10, 11, 12, 2], [0, 1, 0, 1, 1, -1]),
    ],
)
def test_tags_stand_before_their_word_or_before_all(place, first_pieces, first_owners):
    pieces, splits, owners = with_tags(PIECES, SPLITS, OWNERS, TAGS, place)
    assert _lines(pieces, splits) == [first_pieces, [2], [72, 13, 14, 2]]
    assert _lines(owners, splits) == [first_owners, [-1], [0, 0, -1, -1]]


def test_the_limit_counts_tags():
    is_first = first_of_words(OWNERS, SPLITS)
    assert is_first.tolist() == [True, True, False, False, False, True, False, False]
    assert fitting_pieces(SPLITS, 3).tolist() == [0, 1, 3, 4, 5, 6, 7]
    assert fitting_pieces(SPLITS, 3, is_first, 1).tolist() == [0, 3, 4, 5, 7]
    assert fitting_pieces(SPLITS, 1, is_first, 1).tolist() == [3, 4, 7]


@st.composite
def _texts(draw):
    """Lines whose words have one to three pieces, with pieces of no word between, each line with its end."""
    owners, splits = [], [0]
    for _ in range(draw(st.integers(1, 5))):
        for word in range(draw(st.integers(0, 6))):
            n_pieces = draw(st.integers(0, 3))
            owners += [word] * n_pieces + [-1] * draw(st.integers(0, 1))
        owners.append(-1)
        splits.append(len(owners))
    return np.arange(len(owners), dtype=np.int32), np.array(splits), np.array(owners, np.int32)


@given(_texts(), st.sampled_from(["interleaved", "prefix"]), st.integers(1, 2), st.integers(1, 12))
def test_without_its_tags_a_line_is_what_it_was_and_no_line_is_too_long(text, place, n_tags, longest):
    pieces, splits, owners = text
    rows = fitting_pieces(splits, longest, first_of_words(owners, splits), n_tags)
    bare, row_splits, owners = pieces[rows], np.searchsorted(rows, splits), owners[rows]
    tags = 1000 + 10 * owners[:, None] + np.arange(n_tags)
    tagged_pieces, new_splits, new_owners = with_tags(bare, row_splits, owners, tags, place)
    assert np.diff(new_splits).max() <= longest
    lines = _lines(tagged_pieces, new_splits), _lines(new_owners, new_splits), _lines(bare, row_splits)
    for line, words, before in zip(*lines, strict=True):
        assert [piece for piece in line if piece < 1000] == before
        tagged = [(tag, word) for tag, word in zip(line, words, strict=True) if tag >= 1000]
        assert all((tag - 1000) // 10 == word for tag, word in tagged)
        owned = {word for word in words if word >= 0}
        assert len(tagged) == n_tags * len(owned)
        for place_of, (tag, word) in enumerate(zip(line, words, strict=True)):
            if tag >= 1000:
                assert words.index(word) <= place_of
                assert place == "prefix" or words[place_of + 1] == word


PHRASED = ("She was happy to see him .", "The dog that I saw sleeps .", "He gave her a small book .")


def test_of_one_tree_alone(tmp_path):
    write_sides(tmp_path, PHRASED, [f"{line} de" for line in PHRASED])
    trees = ("annotation.annotator=en+phrases", "masks.trees=[constituency]", "subwords.vocab_size=301")
    data = prepare(tiny_recipe(tmp_path, *trees))
    lines = list(data.train_text.src)
    translated = data.encoder.encode(lines, WordColumns.from_sentences(data.annotator.annotate(lines)))
    arrays = (encoded.syntax.phrases.arrays for encoded in (data.train.src, translated))
    for trained, in_use in zip(*arrays, strict=True):
        np.testing.assert_array_equal(trained, in_use)
