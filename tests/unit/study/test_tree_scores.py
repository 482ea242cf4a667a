"""UUAS, Spearman, root accuracy and probes on examples that fit on paper; which sentences a probe cannot use."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr

from syntaxformer.base.errors import DataError
from syntaxformer.study.probing import (
    Probe,
    attachment_score,
    probe_loss,
    probe_treebank,
    read_probe_treebank,
    root_accuracy,
    spanning_edges,
    spearman_by_length,
    spearman_score,
)
from syntaxformer.trees import Sentence


def _sentence(words: str, governors: tuple[int, ...] | None, upos: tuple[str, ...] | None = None) -> Sentence:
    return Sentence.from_words(words.split(), governors=governors, upos=upos)


READS = _sentence("She reads old books .", (1, -1, 3, 1, 1), ("PRON", "VERB", "ADJ", "NOUN", "PUNCT"))
GOLD = np.array([[0, 1, 3, 2, 2], [1, 0, 2, 1, 1], [3, 2, 0, 1, 3], [2, 1, 1, 0, 2], [2, 1, 3, 2, 0]])
"""Its distances: reads governs She, books and "."; books governs old."""
DEPTHS = np.array([1, 0, 2, 1, 1])
WORDS = np.array([True, True, True, True, False])
CHAIN = np.abs(np.arange(5)[:, None] - np.arange(5)[None, :])


def test_the_tree_comes_out_of_its_own_distances():
    assert spanning_edges(GOLD) == {(0, 1), (1, 3), (1, 4), (2, 3)}
    assert spanning_edges(np.zeros((1, 1))) == spanning_edges(np.zeros((0, 0))) == set()
    assert len(spanning_edges(np.zeros((3, 3)))) == 2  # distances of zero are edges


def test_punctuation_is_left_out_of_both_sides_and_all_edges_count_alike():
    # Without ".", gold edges are She-reads, reads-books, old-books; a chain has She-reads, reads-old, old-books.
    assert attachment_score([CHAIN], [GOLD], [WORDS]) == pytest.approx(2 / 3)
    # With it: the chain's books-. is wrong, reads-. is missing.
    assert attachment_score([CHAIN], [GOLD], [np.ones(5, bool)]) == pytest.approx(2 / 4)
    assert attachment_score([GOLD * 7.5], [GOLD], [WORDS]) == 1.0
    near = (GOLD + CHAIN * 1e-3).astype(np.float32)  # no ties: the tree is that of GOLD at any scale
    assert attachment_score([near * np.float32(1e-7)], [GOLD], [WORDS]) == 1.0
    two = np.array([[0, 1], [1, 0]])
    score = attachment_score([CHAIN, two], [GOLD, two], [WORDS, np.ones(2, bool)])
    assert score == pytest.approx((2 + 1) / (3 + 1))
    assert np.isnan(attachment_score([two], [two], [np.array([True, False])]))


def test_the_root_is_the_scored_word_of_least_depth():
    right, wrong = np.array([0.9, 0.2, 3, 1, 0.1]), np.array([0.1, 0.2, 3, 1, 9.0])
    assert root_accuracy([right], [DEPTHS], [WORDS]) == 1.0
    assert root_accuracy([right, wrong], [DEPTHS, DEPTHS], [WORDS, WORDS]) == 0.5
    assert root_accuracy([np.zeros(2)], [np.zeros(2)], [np.zeros(2, bool)]) == 0.0
    assert np.isnan(root_accuracy([], [], []))
    bracket = np.array([False, True, True])  # a root that is not scored is not found
    assert root_accuracy([np.array([0.1, 0.5, 2.0])], [np.array([0, 1, 2])], [bracket]) == 0.0


def test_spearman_is_scipys_row_by_row():
    rng = np.random.default_rng(3)
    gold = [GOLD, GOLD[:3, :3], GOLD.T]
    predicted = [rng.random(distances.shape) for distances in gold]
    by_length = spearman_by_length(predicted, gold)
    assert sorted(by_length) == [3, 5]
    for length, score in by_length.items():
        sides = zip(predicted, gold, strict=True)
        pairs = [pair for rows in sides if len(rows[1]) == length for pair in zip(*rows, strict=True)]
        assert score == pytest.approx(np.mean([spearmanr(*pair).statistic for pair in pairs]))
    assert spearman_score({3: 0.0, 5: 0.2, 50: 0.4, 51: 1.0}) == pytest.approx(0.3)
    assert np.isnan(spearman_score({4: 1.0}))
    # Depths are one row, and rows without spread say nothing.
    assert spearman_by_length([DEPTHS * 2.0], [DEPTHS]) == {5: pytest.approx(1.0)}
    assert spearman_by_length([np.ones(5)], [DEPTHS]) == {}
    assert spearman_by_length([np.ones(5), DEPTHS * 2.0], [DEPTHS, DEPTHS]) == {5: pytest.approx(1.0)}


def test_distances_depths_and_punctuation():
    treebank = probe_treebank([_sentence("Go !", (-1, 0)), READS])
    assert treebank.splits.tolist() == [0, 2, 7]
    assert treebank.distances[0].tolist() == [[0, 1], [1, 0]]
    assert treebank.distances[1].tolist() == GOLD.tolist()
    assert [depths.tolist() for depths in treebank.depths] == [[0, 1], DEPTHS.tolist()]
    assert treebank.is_scored[1].tolist() == WORDS.tolist()
    # Without tags a word has a letter or a digit.
    treebank = probe_treebank([_sentence("x 42 §4 … ß —", (-1, 0, 0, 0, 0, 0))])
    assert treebank.is_scored[0].tolist() == [True, True, True, False, True, False]


def test_what_has_not_one_tree_is_counted():
    sentences = [READS, _sentence("Yes No", (-1, -1)), _sentence("Hm", (-1,)), _sentence("a b", None)]
    treebank = probe_treebank(sentences)
    assert len(treebank) == 1
    assert treebank.left_out == {"of several trees": 1, "shorter than two words": 1, "without a tree": 1}
    assert treebank.select([], "too odd").left_out["too odd"] == 1
    assert "too odd" not in treebank.select([0], "too odd").left_out
    train, held = probe_treebank([READS] * 23 + [_sentence("Hm", (-1,))]).hold_out()  # every tenth
    assert (len(train), len(held)) == (21, 2)
    assert (train.left_out, held.left_out) == ({"shorter than two words": 1}, {})


def test_words_that_share_characters_or_have_spaces_get_their_own_place():
    shared = Sentence("don't", ("do", "n't"), ((0, 5), (0, 5)), governors=(-1, 0))
    number = Sentence("1 000 km", ("1 000", "km"), ((0, 5), (6, 8)), governors=(1, -1))
    first, second = probe_treebank([shared, number]).sentences
    assert (first.text, first.offsets) == ("do n't", ((0, 2), (3, 6)))
    assert second.words == ("1_000", "km")


def test_a_file_without_trees(tmp_path):
    path = tmp_path / "one.conllu"
    path.write_text("1\tHm\t_\tINTJ\t_\t_\t0\troot\t_\t_\n\n")
    with pytest.raises(DataError) as error:
        read_probe_treebank(path)
    assert str(error.value).startswith(f"{path}: ")


# Three words in two dimensions; B keeps the first and doubles the second: B h = (0,0), (1,0), (1,1).
VECTORS = torch.tensor([[[0.0, 0.0], [1.0, 0.0], [1.0, 0.5]]])


@pytest.mark.parametrize(
    ("finds", "expected"),
    [
        # Squared distances 1, 2 and 1, those of the tree 0 - 1 - 2.
        ("distances", [[[0.0, 1.0, 2.0], [1.0, 0.0, 1.0], [2.0, 1.0, 0.0]]]),
        ("depths", [[0.0, 1.0, 2.0]]),
    ],
)
def test_probes_predict_squares_of_mapped_vectors(finds, expected):
    probe = Probe(2, 2, finds)
    with torch.no_grad():
        probe.map.copy_(torch.tensor([[1.0, 0.0], [0.0, 2.0]]))
    torch.testing.assert_close(probe(VECTORS), torch.tensor(expected))
    assert [tuple(weights.shape) for weights in Probe(11, 3, finds).parameters()] == [(11, 3)]


def test_a_shift_of_all_vectors_changes_no_distance():
    torch.manual_seed(3)
    probe, vectors = Probe(11, 7, "distances"), torch.randn(2, 5, 11)
    torch.testing.assert_close(probe(vectors + 30), probe(vectors), atol=1e-4, rtol=1e-4)


def test_losses_by_hand():
    is_word = torch.tensor([[True, True, True], [True, True, False]])
    gold, predicted = torch.zeros(2, 3, 3), torch.ones(2, 3, 3)
    predicted[1] = 9.0  # over 4 pairs of words, 9 each; what is padded does not count
    assert float(probe_loss(predicted, gold, is_word)) == pytest.approx((9 / 9 + 36 / 4) / 2)
    assert float(probe_loss(predicted[:, 0], gold[:, 0], is_word)) == pytest.approx((3 / 3 + 18 / 2) / 2)
