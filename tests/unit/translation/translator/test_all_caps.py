"""Lines that are all in capitals are read in lower case, and their translations are written in capitals."""

from __future__ import annotations

import logging
import time

import numpy as np
import pytest

from syntaxformer.study.text_view import Parser, translator_text
from syntaxformer.translation.all_caps import in_capitals
from syntaxformer.translation.source import offsets_in
from syntaxformer.translation.terms import Terms
from syntaxformer.translation.translator import say_once
from table_annotator import TableAnnotator
from tiny_translator import make_translator

LINES = ["The cat sat on the mat .", "Dogs sit on cat and mat .", "Tom and I run . A dog and Tom run"]
TEXT = [*LINES * 3, "Tom sat .", "I sat .", "the cat sat down , the dog sat ."]


@pytest.fixture(scope="module")
def translator():
    return make_translator("sum_then_concat", lines=TEXT, all_caps="lower")


@pytest.mark.parametrize(
    ("line", "read"),
    [
        ("THE CAT SAT ON THE MAT .", "The cat sat on the mat ."),
        ("tom".upper() + " AND I RUN . A DOG AND TOM RUN", LINES[2]),
        ("“THE CAT” (TOM’S) SAT-DOWN: I'M A DOG!", "“The cat” (Tom’s) sat-down: I'm a dog!"),
        ("THE CAT %S {NAME} WWW.X.ORG 3RD $VAR <B> x86", "The cat %S {NAME} WWW.X.ORG 3RD $VAR <B> x86"),
        ("DIE STRAßE UND DER HUND", "Die straße und der hund"),
        ("OK USA", "Ok usa"),
        ("  THE\tCAT  ", "  The cat  "),
        ("THE CAT www.example.org SAT", "The cat www.example.org sat"),
        ("www.example.org THE CAT SAT", "www.example.org the cat sat"),
    ],
)
def test_it_is_read_in_lower_case(translator, line, read):
    """Words keep the case that training wrote; what is no plain word stays; every character has its place."""
    assert translator.clean(line) == read
    assert len(read) == len(line)


OTHERS = (
    "OK", "USA 1", "THE cat SAT", "The Cat Sat", "", "12 345", "猫猫猫猫猫", "他在NASA工作", "나는 NASA 에서 일한다",
    "هو يعمل في NASA منذ عام", "वह NASA में काम करता है", "and/or his/her NATO", "<b>wichtig</b> HINWEIS",
    "cafe\u0301 NATO", "(siehe_unten) HTML",
)  # fmt: skip


@pytest.mark.parametrize("line", OTHERS)
def test_other_lines_stay(translator, line):
    assert translator.clean(line) == line


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("lösche {name} und %d Dateien", "LÖSCHE {name} UND %d DATEIEN"),
        ("siehe https://a.org/Path, a@b.org", "SIEHE https://a.org/Path, a@b.org"),
        ("<b>sehr</b> groß", "<b>SEHR</b> GROSS"),
    ],
)
def test_what_is_no_text_is_not_written_in_capitals(translator, text, written):
    assert in_capitals(text, translator.info.preparation("de")) == written


def test_alignments_of_capitals_take_no_longer():
    """Letters of another case are at their own places, which no search has to find."""
    text = "HE. " * 1000
    offsets = np.stack([np.arange(0, 4000, 4), np.arange(2, 4002, 4)], 1).astype(np.int32)
    start = time.process_time()
    assert (offsets_in(text, text.lower(), offsets) == offsets).all()
    offsets = offsets_in("GROSS HE. " * 400, "groß he. " * 400, np.array([[9, 13], [14, 16]]))
    assert offsets.tolist() == [[10, 15], [16, 18]]
    assert time.process_time() - start < 0.5


def test_each_target_language_has_its_capitals(new_translator):
    languages = {"symbols": ["<2de>", "<2tr>"], "directions": {"de": "en", "tr": "en"}}
    several = new_translator(**languages, all_caps="lower")
    assert in_capitals("iyi", several.to("tr")._output) == "İYİ"
    assert in_capitals("iyi", several.to("de")._output) == "IYI"


def test_turkish_i_keeps_its_dot():
    translator = make_translator(src="tr", lines=["Işık ve izmir"], all_caps="lower")
    assert translator.clean("IŞIK VE İZMİR") == "Işık ve izmir"


def test_it_is_translated_as_the_ordinary_line_is(translator):
    """Pieces, scores and links are those of the ordinary line, by lines and as the service calls it."""
    capitals = [line.upper() for line in LINES]
    ordinary, written = (
        [*translator.translate(lines, n_best=2, scored=True, alignments=False)] for lines in (LINES, capitals)
    )
    for as_usual, of_capitals in zip(ordinary, written, strict=True):
        assert [best.text for best in of_capitals] == [best.text.upper() for best in as_usual]
        assert [best.score for best in of_capitals] == [best.score for best in as_usual]
    assert any(best.text for row in written for best in row)
    rows = translator.search(capitals, translator.encode(capitals), translator.info.decoding)
    assert [best.text for (best,) in rows] == [best[0].text for best in written]


def test_its_translation_scores_as_the_search_did(translator):
    capitals = [line.upper() for line in LINES]
    usual = [[best.text for best in row] for row in translator.translate(LINES, n_best=2)]
    large = [[text.upper() for text in row] for row in usual]
    as_usual, of_capitals = (
        [sum(score.log_probs) for row in translator.score(lines, texts) for score in row]
        for lines, texts in ((LINES, usual), (capitals, large))
    )
    assert of_capitals == pytest.approx(as_usual)


def test_a_translation_begins_as_it_must(translator):
    (best,) = next(translator.translate(["THE CAT SAT ."], prefixes=["the dog"]))
    assert best.text.startswith("the dog")
    assert best.text[len("the dog") :].upper() == best.text[len("the dog") :]


def test_values_and_symbols_stay():
    """A pattern of the user's and a symbol are no words of the line."""
    protect, symbols = (r"\b[A-Z]{3}-[A-Z]{2}\b", "email"), ("CAT",)
    translator = make_translator(symbols=symbols, protect=protect, all_caps="lower", lines=TEXT)
    translator.info.symbols = symbols
    translator.encoder.preparation = translator.info.preparation("en")
    assert translator.clean("THE CAT ABC-DE SAT ON a@b.org MAT .") == "The CAT ABC-DE sat on a@b.org mat ."
    (best,) = next(translator.translate(["THE MAT ABC-DE SAT ON a@b.org MAT ."]))
    assert "ABC-DE" in best.text
    assert "a@b.org" in best.text


def test_terms_are_found_in_it_as_they_are_written(translator):
    """A list's own capitals are not read in lower case: "USAF" is no word of another line."""
    translator = make_translator("add", ("pos", "term"), lines=TEXT, all_caps="lower", terms="append")
    terms = translator.cleaned_terms(Terms.of({"US AIR FORCE": "US-Luftwaffe"}))
    assert [*terms.entries] == ["USAIRFORCE"]
    encoded = translator.encode(["THE US AIR FORCE SAT", "the us air force sat"], terms={"US AIR FORCE": "x"})
    assert [*map(len, encoded.terms)] == [1, 0]


def test_older_folders_and_files_of_parses_keep_it():
    """A file of parses has a parse for lines as they stand."""
    line = "THE CAT SAT ON THE MAT ."
    assert make_translator(lines=TEXT).clean(line) == line
    by_file = make_translator("sum_then_concat", lines=TEXT, all_caps="lower")
    by_file.annotator = TableAnnotator()
    by_file.annotator.name = "conllu:test.conllu"
    assert by_file.clean(line) == line


def test_it_is_said(translator, caplog):
    say_once.cache_clear()
    with caplog.at_level(logging.WARNING):
        [*translator.translate(["THE CAT SAT .", "The cat sat ."])]
    assert "1 line is in capitals, read in lower case and translated in capitals" in caplog.text


def test_a_given_translation_is_cut_into_the_pieces_that_were_written(translator):
    pieces = translator.target_pieces(["The cat sat ."], ["Dogs sit ."])
    assert translator.target_pieces(["THE CAT SAT ."], ["DOGS SIT ."]) == pieces


def test_it_is_shown_as_it_is_read(translator):
    (sentence,) = translator_text(translator, "THE CAT SAT .", Parser(TableAnnotator())).sentences
    assert sentence.words == ("The", "cat", "sat", ".")


def test_sentences_of_given_words_are_in_capitals_too():
    translator = make_translator(lines=TEXT, tokenized=True, all_caps="lower", usual_sentences=1)
    lines = ["The cat sat . The dog sat .", "THE CAT SAT . THE DOG SAT ."]
    usual, capitals = (best[0].text for best in translator.translate(lines, split_sentences="always"))
    assert usual.strip()
    assert capitals == usual.upper()
