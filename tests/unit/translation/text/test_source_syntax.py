"""Trees of a batch of lines, by hand and against the functions for one sentence."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from syntaxformer.base.errors import ConfigError
from syntaxformer.syntax import (
    SyntaxInputs,
    TreeOptions,
    WordColumns,
    build_vocabularies,
    constituency_relations,
    dependency_relations,
)
from syntaxformer.syntax import inputs as syntax_inputs
from syntaxformer.syntax.inputs import check_syntax
from syntaxformer.translation.source import EncodedText, SourceEncoder, source_batch
from syntaxformer.translation.subwords import SubwordConfig, train_subwords
from syntaxformer.trees import Sentence

LINES = ["the cats purrs", "", "the cat"]
GOVERNORS = [(1, 2, -1), (), (1, -1)]
BRACKETS = ["(S (NP (DT the) (NNS cats)) (VP (VBZ purrs)))", None, "(NP (DT the) (NN cat))"]
BOTH = SyntaxInputs(trees=TreeOptions(max_distance=3), governors=True)


@pytest.fixture(scope="module")
def tokenizer():
    return train_subwords(["the cat sat .", "The cat"] * 5, SubwordConfig(vocab_size=301))


def _sentence(line: str, governors: tuple[int, ...], brackets: str | None) -> Sentence:
    words = line.split()
    starts = [line.index(word) for word in words]
    return Sentence(
        line, tuple(words), tuple((start, start + len(word)) for start, word in zip(starts, words, strict=True)),
        upos=("X",) * len(words), governors=governors, constituency=brackets,
    )  # fmt: skip


def _columns() -> WordColumns:
    sentences = map(_sentence, LINES, GOVERNORS, BRACKETS)
    return WordColumns.from_sentences(list(sentences))


def _encode(tokenizer, inputs: SyntaxInputs, **settings) -> EncodedText:
    return SourceEncoder(tokenizer, syntax=inputs, **settings).encode(LINES, _columns())


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
    for place, of_words in enumerate(trees):
        found = batch["syntax"][1, place].numpy()
        for row, one in enumerate(owners):
            for column, other in enumerate(owners):
                expected = 0 if one is None or other is None else of_words[one, other]
                assert found[row, column] == expected
    depths = {0: 3, 1: 2, 2: 1}  # edges below the end piece, in the dependency tree
    assert [batch["syntax"][1, 0, 9, place].item() for place in (0, 1, 4)] == [
        depths[0],
        depths[1],
        depths[2],
    ]
    assert batch["syntax"][0, :, 3:].eq(0).all()


@pytest.mark.parametrize("trees", [("dependency",), ("constituency",)])
def test_one_tree(tokenizer, trees):
    one = source_batch(
        _encode(tokenizer, SyntaxInputs(trees=TreeOptions(max_distance=3, trees=trees))), [0], 0
    )
    both = source_batch(_encode(tokenizer, BOTH), [0], 0)
    place = ("dependency", "constituency").index(trees[0])
    assert one["syntax"][:, 0].equal(both["syntax"][:, place])


def test_selecting_lines(tokenizer):
    encoded = _encode(tokenizer, BOTH)
    picked = encoded.select(np.array([2, 0, 1, 2, 0, 1]))
    expected, found = source_batch(encoded, [2, 0, 1, 2, 0, 1], 0), source_batch(picked, range(6), 0)
    for name, tensor in expected.items():
        assert found[name].equal(tensor), name


def test_a_tag_is_the_first_piece_of_its_word(tokenizer):
    vocabularies = build_vocabularies([_columns()], ("pos",))
    encoder = SourceEncoder(tokenizer, vocabularies, prepend="interleaved", syntax=BOTH)
    encoded = encoder.encode(LINES, _columns())
    assert encoder.piece_names(encoded.pieces[:5]) == ["<X>", "▁the", "<X>", "▁cat", "s"]
    assert encoded.factors.shape[1] == 0
    assert encoded.n_tags.tolist() == [3, 0, 2]
    assert encoded.text_lengths.tolist() == [10, 1, 3]
    batch = source_batch(encoded, [2], 0)  # <X> ▁the <X> ▁cat </s>
    assert batch["governors"].tolist() == [[2, 0, 2, 2, -100]]
    assert batch["syntax"][0, 0, :4, :4].tolist() == [[0, 0, 4, 4], [0, 0, 4, 4], [1, 1, 0, 0], [1, 1, 0, 0]]


def test_cut_lines_keep_their_end_and_point_at_nothing_that_is_gone(tokenizer):
    encoder = SourceEncoder(tokenizer, syntax=BOTH)
    encoded = encoder.encode(LINES, _columns(), longest=4)
    assert encoded.lengths.tolist() == [4, 1, 3]
    assert encoded.n_cut == 1
    batch = source_batch(encoded, [0], 0)  # ▁the ▁cat s </s>, without the root
    assert batch["governors"].tolist() == [[1, -100, 1, -100]]
    whole = source_batch(_encode(tokenizer, BOTH), [0], 0)
    assert batch["syntax"][0, :, :3, :3].equal(whole["syntax"][0, :, :3, :3])


def _one_line(tokenizer, inputs, governors, longest=None):
    words = ("cat",) * len(governors)
    spans = tuple((4 * place, 4 * place + 3) for place in range(len(words)))
    sentence = Sentence(" ".join(words), words, spans, upos=("X",) * len(words), governors=tuple(governors))
    encoder = SourceEncoder(tokenizer, syntax=inputs)
    return encoder.encode([sentence.text], WordColumns.from_sentences([sentence]), longest=longest)


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
    bare = replace(_columns(), governors=None)
    with pytest.raises(ConfigError, match="expected governors from the annotator, got none from the"):
        SourceEncoder(tokenizer, syntax=BOTH).encode(LINES, bare)
