import pytest

from syntaxformer.errors import TreeError
from syntaxformer.trees import locate_words


def test_words_are_found_left_to_right_over_any_white_space():
    assert locate_words("\ta\u00a0 b,a ", ["a", "b", ",", "a"]) == ((1, 2), (4, 5), (5, 6), (6, 7))


def test_a_word_that_is_not_there_is_refused():
    with pytest.raises(TreeError) as caught:
        locate_words("the cat sat", ["the", "dog"])
    assert str(caught.value) == "word 2: expected 'dog' at character 4 of the text, got 'cat sat'."


def test_left_over_text_is_refused():
    with pytest.raises(TreeError) as caught:
        locate_words("the cat sat", ["the", "cat"])
    assert str(caught.value) == "text: expected its end after 2 words, got 'sat' at character 8."


def test_treebank_spellings_are_found_when_asked_for():
    text = 'He said "yes/no" in the U.S.'
    words = ["He", "said", "``", "yes\\/no", "''", "in", "the", "U.S.", "."]
    assert locate_words(text, words, respelled=True)[2:5] == ((8, 9), (9, 15), (15, 16))
    assert locate_words(text, words, respelled=True)[7:] == ((24, 28), (27, 28))
    with pytest.raises(TreeError, match="word 3: expected '``'"):
        locate_words(text, words)
