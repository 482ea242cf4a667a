"""What a probe is to find, and which sentences it cannot use."""

from __future__ import annotations

import pytest

from syntaxformer.base.errors import DataError
from syntaxformer.study.treebank import probe_treebank, read_probe_treebank
from syntaxformer.trees import Sentence


def _sentence(words: str, governors: tuple[int, ...] | None, upos: tuple[str, ...] | None = None) -> Sentence:
    return Sentence.from_words(words.split(), governors=governors, upos=upos)


READS = _sentence("She reads old books .", (1, -1, 3, 1, 1), ("PRON", "VERB", "ADJ", "NOUN", "PUNCT"))


def test_distances_depths_and_punctuation():
    treebank = probe_treebank([_sentence("Go !", (-1, 0)), READS])
    assert treebank.splits.tolist() == [0, 2, 7]
    assert treebank.distances[0].tolist() == [[0, 1], [1, 0]]
    assert treebank.distances[1][2].tolist() == [3, 2, 0, 1, 3]
    assert [one.tolist() for one in treebank.depths] == [[0, 1], [1, 0, 2, 1, 1]]
    assert treebank.is_scored[1].tolist() == [True, True, True, True, False]
    assert treebank.is_scored[0].tolist() == [True, False]  # no tags: no letter, no digit


def test_without_tags_a_word_has_a_letter_or_a_digit():
    treebank = probe_treebank([_sentence("x 42 §4 … ß —", (-1, 0, 0, 0, 0, 0))])
    assert treebank.is_scored[0].tolist() == [True, True, True, False, True, False]


def test_what_has_not_one_tree_is_counted():
    treebank = probe_treebank(
        [READS, _sentence("Yes No", (-1, -1)), _sentence("Hm", (-1,)), _sentence("a b", None)]
    )
    assert len(treebank) == 1
    assert treebank.left_out == {"of several trees": 1, "shorter than two words": 1, "without a tree": 1}
    assert treebank.select([], "too odd").left_out["too odd"] == 1
    assert "too odd" not in treebank.select([0], "too odd").left_out


def test_words_that_share_characters_get_their_own():
    shared = Sentence("don't", ("do", "n't"), ((0, 5), (0, 5)), governors=(-1, 0))
    (spaced,) = probe_treebank([shared]).sentences
    assert (spaced.text, spaced.offsets) == ("do n't", ((0, 2), (3, 6)))


def test_spaces_inside_words():
    one = Sentence("1 000 km", ("1 000", "km"), ((0, 5), (6, 8)), governors=(1, -1))
    assert probe_treebank([one]).sentences[0].words == ("1_000", "km")


def test_every_tenth_is_held_out():
    lone = Sentence.from_words(["Hm"], governors=[-1])
    kept, held = probe_treebank([READS] * 23 + [lone]).hold_out()
    assert (len(kept), len(held)) == (21, 2)
    assert (kept.left_out, held.left_out) == ({"shorter than two words": 1}, {})


def test_a_file_without_trees(tmp_path):
    path = tmp_path / "one.conllu"
    path.write_text("1\tHm\t_\tINTJ\t_\t_\t0\troot\t_\t_\n\n")
    with pytest.raises(DataError) as error:
        read_probe_treebank(path)
    assert str(error.value) == (
        f"{path}: expected at least one sentence of two words with a dependency tree, got none."
    )
