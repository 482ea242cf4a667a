"""What happens to a line before its pieces: entities, forms, Moses, case and its shapes."""

from __future__ import annotations

import json
from dataclasses import replace
from random import Random
from unicodedata import normalize

import numpy as np
import pytest

from parallel_files import tiny_recipe, write_sides
from syntaxformer.syntax import SHAPES, FactorVocabulary, WordColumns, build_vocabularies
from syntaxformer.syntax.factors import word_shapes
from syntaxformer.translation.model_folder import FolderInfo
from syntaxformer.translation.prepare import prepare
from syntaxformer.translation.scoring import scoring
from syntaxformer.translation.source import SourceEncoder, TextPreparation, detokenize, lower_case, unescape
from syntaxformer.translation.subwords import SubwordConfig, train_subwords


@pytest.mark.parametrize(
    ("line", "offsets", "clean", "settings"),
    [
        ("a\tb", [(0, 1), (2, 3)], [(0, 1), (2, 3)], {}),
        ("&apos;a &amp;lt; b", [(0, 7), (8, 16), (17, 18)], ["'a", "&lt;", "b"], {"unescape": True}),
        ("  a  &lt;b \u2003 c ", [(2, 3), (5, 10), (13, 14)], ["a", "<b", "c"], {"unescape": True, "tokenized": True}),
        ("a &quot;", [(0, 1), (2, 3), (3, 7), (7, 8)], [(0, 1), (2, 3), (3, 3), (3, 3)], {"unescape": True}),
        ("", [], [], {"tokenized": True}),
        (" 10\u00a0000 \u00a0  a ", [(1, 7), (11, 12)], ["10\u00a0000", "a"], {"tokenized": True}),
        ("Ka\u0308se  ist\u00a0gut\u200b .", [(0, 5), (7, 10), (11, 14), (16, 17)], ["Käse", "ist", "gut", "."], {"nfc": True}),
        (" Ka\u0308&amp;  \u200b 1\u00a00", [(1, 9), (11, 12), (13, 16)], ["Kä&", "\u200b", "1\u00a00"], {"nfc": True, "unescape": True, "tokenized": True}),
    ],
)  # fmt: skip
def test_words_of_a_raw_line_in_the_clean_one(line, offsets, clean, settings):
    preparation = TextPreparation("en", **settings)
    spans = preparation.clean_offsets(line, offsets)
    text = preparation.clean(line)
    if clean and isinstance(clean[0], str):
        spans = [text[start:end] for start, end in spans]
    assert spans == clean


def test_entities_are_read_once():
    assert unescape("&quot; he &apos;s &amp; &#91;her&#93; &#124; &lt;b&gt;") == "\" he 's & [her] | <b>"
    assert unescape("&amp;apos;") == "&apos;"
    assert unescape("AT&T") == "AT&T"


def test_lower_case_keeps_characters_in_place():
    assert lower_case("ÄPFEL Straße") == "äpfel straße"
    assert lower_case("İzmir A") == "izmir a"  # "İ".lower() has two characters


@pytest.mark.parametrize(
    ("line", "plain"),
    [
        ("Gro\u0308\u00dfe", "Größe"),
        ("\ufeffa\u00a0b\u2009c\u202fd\u3000e\tf  g ", "a b c d e f g"),
        ("foo\u200bbar so\u00adft Auf\u200clage", "foobar soft Auflage"),
        ("\u0645\u06cc\u200c\u062e\u0648", "\u0645\u06cc\u200c\u062e\u0648"),  # Persian "mi-kho"
        ("PDF\u200c\u0647\u0627", "PDF\u200c\u0647\u0627"),  # and its plural of a Latin word
        ("\u0995\u09cd\u200d a", "\u0995\u09cd\u200d a"),  # a Bengali half form, at the end of a word
        ("\U0001f468\u200d\U0001f469\u200d\U0001f467", "\U0001f468\u200d\U0001f469\u200d\U0001f467"),
    ],
)
def test_the_plain_form(line, plain):
    preparation = TextPreparation("de", nfc=True)
    assert preparation.clean(line) == preparation.clean(plain) == plain
    assert TextPreparation("de").clean(line) == line.replace("\t", " "), "as in older folders"


def test_the_plain_form_is_the_same_of_any_form_and_a_second_time():
    marks = "ae\u0301\u0308\xe4 \xa0\u200b\u200c\u200d\xad\u3000\u0645\u1100\u1161\u11a8\u0958\u2126\t."
    chosen, preparation = Random(3), TextPreparation(nfc=True)
    words = TextPreparation(tokenized=True, nfc=True)
    for _ in range(3000):
        line = "".join(chosen.choices(marks, k=7))
        plain = preparation.clean(line)
        assert preparation.clean(plain) == plain == preparation.clean(normalize("NFD", line)), line
        assert words.clean(words.clean(line)) == words.clean(line)
        n_words = len(TextPreparation(tokenized=True).clean(line).split(" "))
        assert len(words.clean(line).split(" ")) == n_words, "the user's own factors still fit"


def test_moses_words_point_at_the_raw_line():
    raw, words = ['He said, "don\'t".', "", "U.S. law"], ["said", ",", "don", "'t", ""]
    prepared = TextPreparation("en", moses=True, lowercase=True).prepare(raw)
    assert prepared.texts == ['he said , " don \'t " .', "", "u.s. law"]
    starts = map(prepared.texts[0].index, words)
    spans = [(start, start + len(word)) for start, word in zip(starts, words, strict=True)]
    offsets = np.array([*spans, (0, 4), (4, 8)], np.int32)  # and of the last line "u.s." and " law"
    in_raw = prepared.to_raw(offsets, np.array([0, 5, 5, 7])).tolist()
    assert [raw[0][start:stop] for start, stop in in_raw[:5]] == words
    assert [raw[2][start:stop] for start, stop in in_raw[5:]] == ["U.S.", " law"]


def test_output_is_joined_again():
    assert TextPreparation("en", moses=True).restore('he said , " do n\'t " .') == 'he said, "do n\'t".'
    assert detokenize("das ist gut , oder ?", "de") == "das ist gut, oder?"
    assert TextPreparation("en").restore("a .") == "a ."


@pytest.mark.parametrize("moses", [False, True])
def test_case_comes_from_the_raw_line_while_pieces_are_lower_case(annotator, moses):
    lines = ["The Cat sat ."]
    preparation = TextPreparation("en", moses=moses, lowercase=True)
    tokenizer = train_subwords(["the cat sat ."] * 3, SubwordConfig(vocab_size=305), False)
    words = WordColumns.from_sentences(annotator.annotate(lines))
    encoder = SourceEncoder(tokenizer, build_vocabularies([words], ["case", "pos"]), preparation=preparation)
    encoded = encoder.encode(lines, words)
    pieces = tokenizer.convert_ids_to_tokens(encoded.pieces.tolist())
    assert "".join(pieces) == "▁the▁cat▁sat▁.</s>"
    words = np.cumsum([piece.startswith("▁") for piece in pieces[:-1]]) - 1
    values = encoder.factor_values(encoded.factors[:-1])
    assert values["case"] == [["1", "1", "0", "0"][word] for word in words]
    assert values["pos"] == [["DET", "NOUN", "VERB", "PUNCT"][word] for word in words]


def test_words_of_tokenised_text_are_pieces_with_their_space():
    lines = ["a , b ."] * 5
    as_words = train_subwords(lines, SubwordConfig(vocab_size=305), False)
    as_raw = train_subwords(lines, SubwordConfig(vocab_size=305))
    assert as_words.tokenize("a .") == ["▁a", "▁."]
    assert as_raw.tokenize("a .") == ["▁a", "▁", "."]


SHAPE_OF = {
    "lower": "dog straße 日 3 ... ʼn",
    "capital": "Dog I 3D Straße Ǆ ǅ",
    "upper": "DOG U.S. STRAßE STRASSE ÄÖ İZMİR",
    "mixed": "iPhone McDonald dOG ΑλΦα",
}


@pytest.mark.parametrize("shape", SHAPES)
def test_shapes_by_hand(annotator, shape):
    columns = WordColumns.from_sentences(annotator.annotate(["", SHAPE_OF[shape]]))
    assert {*word_shapes(columns).decode()} == {shape}


def test_pieces_of_dog_are_one_and_their_shapes_are_told(annotator):
    tokenizer = train_subwords(["the dog sat"] * 3, SubwordConfig(vocab_size=301))
    shapes, preparation = {"case": FactorVocabulary("case", SHAPES)}, TextPreparation(lowercase=True)
    encoder = SourceEncoder(tokenizer, shapes, preparation=preparation)
    lines = ["the DOG sat", "The dog sat", "the Dog saT"]
    encoded = encoder.encode(lines, WordColumns.from_sentences(annotator.annotate(lines)))
    pieces = np.split(encoded.pieces, encoded.splits[1:-1])
    assert pieces[0].tolist() == pieces[1].tolist() == pieces[2].tolist()
    values = encoder.factor_values(encoded.factors)["case"]
    rows = [values[start:stop] for start, stop in zip(encoded.splits, encoded.splits[1:], strict=False)]
    assert [list(dict.fromkeys(row)) for row in rows] == [
        ["lower", "upper", "<none>"], ["capital", "lower", "<none>"], ["lower", "capital", "mixed", "<none>"],
    ]  # fmt: skip
    old = replace(encoder, vocabularies={"case": FactorVocabulary("case", ("0", "1"))})
    words = WordColumns.from_sentences(annotator.annotate(["The DOG"]))
    assert {*old.factor_values(old.encode(["The DOG"], words).factors)["case"]} == {"1", "<none>"}


def test_a_run_lowers_the_source_alone(tmp_path):
    write_sides(tmp_path, ["The CAT sat", "a Dog"], ["Die KATZE saß", "ein Hund"])
    settings = "data.lowercase=source", "infusion.kind=add", "infusion.factors=[case]"
    recipe = tiny_recipe(tmp_path, *settings)
    data = prepare(recipe)
    assert data.encoder.vocabularies["case"].values == SHAPES
    sides = [data.info.preparation(ending).lowercase for ending in ("en", "de")]
    assert sides == [True, False]
    assert scoring(data.info)["lowercase"] is False
    texts = [
        side.tokenizer.batch_decode([text.pieces.tolist()], skip_special_tokens=True)[0]
        for side, text in ((data.encoder, data.train.src), (data.target, data.train.tgt))
    ]
    assert ("the cat sat" in texts[0], "Die KATZE saß" in texts[1]) == (True, True)
    again = FolderInfo.model_validate_json(data.info.model_dump_json())
    assert (again.lowercase, again.factors[0].values) == ("source", SHAPES)
    assert recipe.data.model_dump()["lowercase"] == "source"
    for value in (True, False):  # older folders
        stored = json.loads(data.info.model_dump_json()) | {"lowercase": value}
        assert FolderInfo.model_validate(stored).preparation("de").lowercase is value
