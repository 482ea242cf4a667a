"""Lists of terms, terms in lines, training pairs with terms, and terms that were kept."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from syntaxformer.base.errors import ConfigError, DataError
from syntaxformer.syntax import WordColumns
from syntaxformer.translation.corpora import ParallelText
from syntaxformer.translation.terms import TermMatch, Terms, kept_terms, read_terms, teach
from syntaxformer.trees import Sentence


def annotated(*lines: str, lemmas: bool = True) -> WordColumns:
    """Words between spaces; the lemma of a word has no s at its end."""

    def sentence(words: list[str]) -> Sentence:
        of_words = tuple(word.lower().rstrip("s") for word in words)
        return Sentence.from_words(words, lemmas=of_words if lemmas else None)

    return WordColumns.from_sentences([sentence(line.split()) for line in lines])


TERMS = Terms.of({"cat": ["Katze", "Kater"], "ice cream": "Eis", "cream cake soup": "Suppe", "US": "USA"})


@pytest.mark.parametrize(
    ("line", "places"),
    [
        ("two Cats sleep", [(1, 2)]), ("ICE CREAMS melt", [(0, 2)]), ("let us go", []), ("the US is big", [(1, 2)]),
        ("ice cream cake soup cat", [(0, 2), (4, 5)]), ("cream", []), ("", []),
    ],
)  # fmt: skip
def test_terms_are_found_by_form_or_lemma(line, places):
    assert [(match.first, match.stop) for match in TERMS.find(annotated(line))] == places


def test_without_lemmas_forms_count():
    assert [match.row for match in TERMS.find(annotated("cats", "a cat", lemmas=False))] == [1]


def test_forms_come_before_lemmas_and_the_longest_counts():
    terms = Terms.of({"glass": "Glas", "glasses": "Brille", "old glasses": "alte Brille"})
    assert [match.targets for match in terms.find(annotated("glasses and old glasses"))] == [
        ("Brille",), ("alte Brille",)
    ]  # fmt: skip


def test_of_overlapping_terms_the_first_counts_and_says_so():
    (match,) = TERMS.find(annotated("an ice cream cake soup"))
    assert (match.source, match.overlapping) == ("ice cream", "cream cake soup")


def test_no_term_ends_inside_a_word_of_two():
    zum = Sentence("geht zum Arzt", ("geht", "zu", "dem", "Arzt"), ((0, 4), (5, 8), (5, 8), (9, 13)),
                   lemmas=("gehen", "zu", "der", "Arzt"))  # fmt: skip
    terms = Terms.of({"der Arzt": "doctor", "zu": "to", "gehen": "go"})
    assert [match.source for match in terms.find(WordColumns.from_sentences([zum]))] == ["gehen"]


def test_a_list_in_its_file(tmp_path, caplog):
    path = tmp_path / "terms.tsv"
    path.write_bytes(
        "\ufeffcat\tKatze|Kater\r\n\r\nice cream\tEis\tcold\r\ncat\tKatze | Mieze\r\ncream\tSahne".encode()
    )
    terms = read_terms(path)
    assert terms.entries["cat"] == ("cat", ("Katze", "Kater", "Mieze"))
    assert [record.message.removeprefix(str(path)) for record in caplog.records] == [
        ":2: 1 rows are empty",
        ":4: 1 rows have the term of an earlier row",
        ":5: 1 rows have a term that is a part of another, such as 'ice cream'",
    ]


@pytest.mark.parametrize(
    ("text", "place"), [("cat\n", ":1: expected a term, a tab"), ("a\tb\ncat\t \n", ":2: "), ("a\tb|\n", ":1: "),
                        ("a\tb\tc\td\n", ":1: "), ("\n\n", ": expected at least one term")]
)  # fmt: skip
def test_a_list_that_is_none(tmp_path, text, place):
    (path := tmp_path / "terms.tsv").write_text(text)
    with pytest.raises(DataError) as error:
        read_terms(path)
    assert str(error.value).startswith(f"{path}{place}")


@pytest.mark.parametrize("terms", [{}, {" ": "x"}, {"cat": ""}, {"cat": []}])
def test_blank_terms(terms):
    with pytest.raises(ConfigError, match=r"^terms: expected (at least one|a) term"):
        Terms.of(terms)


def text_of(src: list[str], tgt: list[str]) -> ParallelText:
    return ParallelText(src, tgt, Path("a"), Path("b"), "", n_file_lines=len(src))


def test_pairs_that_have_a_term_on_both_sides_teach_it(caplog):
    caplog.set_level(logging.INFO)
    src = ["a cat", "a dog", "two cats", "cat", "ice cream"] * 2
    tgt = ["ein Kater", "Katze", "zwei Katzen", "Katze!", "Eis"] * 2
    halves = [annotated(*src[:5]), annotated(*src[5:])]
    text, chunks = teach(text_of(src, tgt), halves, TERMS, 1.0, 1, "append")
    expected = ["a cat Kater", "a dog", "two cats", "cat Katze", "ice cream Eis"] * 2
    assert text.src == expected == [line for chunk in chunks for line in chunk.texts]
    assert "6 of 10 pairs have a term on both sides, 6 teach it" in caplog.text
    settings = text_of(src, tgt), [annotated(*src)], TERMS, 0.2
    draws = [teach(*settings, seed, "replace")[0].src for seed in (1, 1, 2, 3)]
    assert draws[0] == draws[1]
    assert len({*map(tuple, draws)}) > 1
    assert all(sum(a != b for a, b in zip(src, draw, strict=True)) == 2 for draw in draws)


def test_no_pair_with_a_term():
    with pytest.raises(DataError, match=r"^terms: expected terms that training pairs have on both sides"):
        teach(text_of(["a cat"], ["ein Hund"]), [annotated("a cat")], TERMS, 0.1, 1, "append")


class Lemmas:
    """The lemma of a word has no n at its end."""

    def annotate(self, lines):
        return [Sentence.from_words(words := tuple(line.split()), lemmas=tuple(word.rstrip("n") for word in words))
                for line in lines]  # fmt: skip


@pytest.mark.parametrize(
    ("annotator", "lowercase", "counts"),
    [(Lemmas(), False, (2, 4)), (None, False, (2, None)), (None, True, (3, None))],
)
def test_terms_that_were_kept(annotator, lowercase, counts):
    matches = [TermMatch(row, 0, 1, "cat", ("Katze",)) for row in (0, 0, 1, 2, 3, 4)]
    translations = ["Katze und Katze", "zwei Katzen", "katze", "Katzenklo", "Hund"]
    report = kept_terms(matches, translations, annotator, lowercase)
    assert report == {"n_terms": 6, "exact": counts[0], "by_lemma": counts[1]}


def test_scripts_without_spaces_have_no_borders_of_words():
    assert kept_terms([TermMatch(0, 0, 1, "cat", ("猫",))], ["小猫在睡觉"], None, False)["exact"] == 1
