import pytest

from syntaxformer.base.errors import TreeError
from syntaxformer.trees import Sentence, format_conllu, parse_conllu, read_conllu, write_conllu


def row(word_id, form, upos="_", head="_", deprel="_", misc="_"):
    return f"{word_id}\t{form}\t_\t{upos}\t_\t_\t{head}\t{deprel}\t_\t{misc}"


GERMAN = [
    "# sent_id = 1",
    "# text = Er geht zum Haus.",
    row(1, "Er", "PRON", 2, "nsubj"),
    row(2, "geht", "VERB", 0, "root"),
    row("3-4", "zum"),
    row(3, "zu", "ADP", 5, "case"),
    row(4, "dem", "DET", 5, "det"),
    row(5, "Haus", "NOUN", 2, "obl", "SpaceAfter=No"),
    row("5.1", "leer"),
    row(6, ".", "PUNCT", 2, "punct"),
    "",
]


def test_multiword_tokens_and_empty_nodes():
    (sentence,) = parse_conllu(GERMAN)
    assert sentence.words == ("Er", "geht", "zu", "dem", "Haus", ".")
    assert sentence.offsets == ((0, 2), (3, 7), (8, 11), (8, 11), (12, 16), (16, 17))
    assert sentence.governors == (1, -1, 4, 4, 1, 1)
    assert sentence.upos == ("PRON", "VERB", "ADP", "DET", "NOUN", "PUNCT")
    assert sentence.xpos is None
    assert sentence.lemmas is None
    (sentence,) = parse_conllu([line for line in GERMAN if not line.startswith("#")])
    assert sentence.text == "Er geht zum Haus."


def test_written_block():
    (sentence,) = parse_conllu(GERMAN)
    lines = format_conllu(sentence).split("\n")
    assert lines[0] == "# text = Er geht zum Haus."
    assert lines[3] == row("3-4", "zum")
    assert lines[6] == row(5, "Haus", "NOUN", 2, "obl", "SpaceAfter=No")
    assert lines[-2:] == ["", ""]


@pytest.mark.parametrize(
    "sentence",
    [
        Sentence("", (), ()),
        Sentence("  \t", (), ()),
        Sentence("a b", ("a b",), ((0, 3),), constituency="(X a b)"),
        Sentence("abc", ("c", "a"), ((2, 3), (0, 1))),
        Sentence("uncovered a", ("a",), ((10, 11),)),
        Sentence("x", ("y", "z"), ((0, 1), (0, 1)), lemmas=("_", "l")),
        Sentence("x", ("y", "z"), ((1, 1), (1, 1))),
        Sentence("# a\u2028b\x85", ("#", "a\u2028b"), ((0, 1), (2, 5)), governors=(1, -1)),
    ],
)
def test_unusual_sentences_survive_writing_and_reading(sentence, tmp_path):
    path = tmp_path / "out.conllu"
    write_conllu(path, [sentence, sentence])
    assert list(read_conllu(path)) == [sentence, sentence]


def test_comments_without_text_or_words_are_no_sentence():
    assert list(parse_conllu(["# newdoc id = x", "", "", "# end"])) == []


@pytest.mark.parametrize(
    ("lines", "where"),
    [
        (["1\ta"], "t.conllu:1: CoNLL-U: expected 10 columns"),
        ([row(1, "a"), row(3, "b")], "t.conllu:2: CoNLL-U: expected word 2, got ID '3'"),
        ([row("2-1", "a")], "t.conllu:1: CoNLL-U: expected word 1, got ID '2-1'"),
        ([row(1, "")], "t.conllu:1: CoNLL-U: .* column 2"),
        (["", row("1-2", "ab"), row(1, "a")], "t.conllu:2: CoNLL-U: expected word 2, got the end"),
        ([row(1, "a", head=2)], "t.conllu:1: HEAD of 'a': expected 0 to 1, got '2'"),
        ([row(1, "a", head="x")], "t.conllu:1: HEAD of 'a': expected 0 to 1, got 'x'"),
        (["", row(1, "a", head=2), row(2, "b", head=1)], "t.conllu:2: governors: .*'a' → 'b' → 'a'"),
        (["# text = a c", row(1, "a"), row(2, "b")], "t.conllu:1: word 2: expected 'b' at character 2 .*'c'"),
        ([row(1, "a", misc="TextRange=x")], "t.conllu:1: MISC of 'a': .*'TextRange=x'"),
    ],
)
def test_errors_name_file_and_line(lines, where):
    with pytest.raises(TreeError, match=f"^{where}"):
        list(parse_conllu(lines, "t.conllu"))


@pytest.mark.parametrize(
    ("sentence", "what"),
    [(Sentence("a\nb", (), ()), "text"), (Sentence("a\tb", ("a\tb",), ((0, 3),)), "words")],
)
def test_what_the_format_cannot_hold_is_refused(sentence, what, tmp_path):
    with pytest.raises(TreeError, match=f"^{what}: "):
        write_conllu(tmp_path / "out.conllu", [sentence])
    assert list(tmp_path.iterdir()) == []
