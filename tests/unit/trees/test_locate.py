import pytest

from syntaxformer.base.errors import TreeError
from syntaxformer.trees import locate_words
from syntaxformer.trees.locate import given_words, spans_of_given_words


def test_words_are_found_left_to_right_over_any_white_space():
    assert locate_words("\ta\u00a0 b,a ", ["a", "b", ",", "a"]) == ((1, 2), (4, 5), (5, 6), (6, 7))


@pytest.mark.parametrize(
    ("word", "message"),
    [("dog", r"^word 2: .*got 'cat sat'\."), ("cat", r"^text: .*got 'sat' at character 8\.")],
)
def test_a_word_that_is_not_there_and_text_left_over_are_refused(word, message):
    with pytest.raises(TreeError, match=message):
        locate_words("the cat sat", ["the", word])


def test_treebank_spellings_are_found_when_asked_for():
    text = 'He said "yes/no" in the U.S.'
    words = ["He", "said", "``", "yes\\/no", "''", "in", "the", "U.S.", "."]
    assert locate_words(text, words, respelled=True)[2:5] == ((8, 9), (9, 15), (15, 16))
    assert locate_words(text, words, respelled=True)[7:] == ((24, 28), (27, 28))
    with pytest.raises(TreeError, match="word 3: expected '``'"):
        locate_words(text, words)


@pytest.mark.parametrize(
    ("texts", "opening", "closing"),
    [('„so“ »so« «so» “so” "so"', "``", "''"), ("‚so‘ ›so‹ ‹so› ‘so’ 'so'", "`", "'")],
)
def test_quotes_of_a_treebank_are_those_of_any_language(texts, opening, closing):
    for text in texts.split():
        assert locate_words(text, [opening, "so", closing], respelled=True) == ((0, 1), (1, 3), (3, 4))


def test_text_in_the_treebanks_own_spelling_is_found_when_asked_for():
    text = r"-LRB- 11\/16 , \* :-RRB- -RRB-"
    words = ["(", "11/16", ",", "*", ":)", ")"]
    spans = locate_words(text, words, respelled=True)
    assert [text[start:end] for start, end in spans] == text.split()
    with pytest.raises(TreeError, match=r"word 1: expected '\('"):
        locate_words(text, words)


def test_given_words_are_cut_at_ascii_white_space_only():
    line = " Das\tkostet  10\u00a0000 \u00a0 \u2003 Euro\r"
    assert given_words(line) == ["Das", "kostet", "10\u00a0000", "Euro"]
    assert [line[start:end] for start, end in spans_of_given_words(line)] == given_words(line)
