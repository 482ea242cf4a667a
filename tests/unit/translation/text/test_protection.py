"""What must not be translated: symbols of one's own, and values that are replaced and put back."""

from __future__ import annotations

import json
import random
import time
from pathlib import Path

import numpy as np
import pytest
from pydantic import TypeAdapter, ValidationError

from odd_input import ODD_CASES, ODD_KINDS, odd_line
from parallel_files import tiny_recipe, write_sides
from pretrained_translators import KINDS as HOSTS
from pretrained_translators import make_translator
from syntaxformer.base.errors import ConfigError
from syntaxformer.syntax import WordColumns, build_vocabularies
from syntaxformer.translation.checkpoint import add_symbols, open_checkpoint
from syntaxformer.translation.data_report import MARKUP, UNSHARED
from syntaxformer.translation.model_folder import write_side_files
from syntaxformer.translation.prepare import prepare
from syntaxformer.translation.protection import (
    KINDS,
    SYMBOLS,
    Protected,
    numbered,
    put_back,
    shared_spans,
    values_of,
)
from syntaxformer.translation.recipe import load_recipe
from syntaxformer.translation.source import PlainTokenizer, SourceEncoder, TextPreparation, encode_pieces
from syntaxformer.translation.subwords import BpeDropout, SubwordConfig, given_tokenizer, train_subwords

LINES = ["the cat sat on the mat.", "cats sit (here), a dog runs", "<b> 12 see it"]
SYMBOL_LINES = ["a <NUM> cat.", "<NUM> b, <NUM>,<NUM> c", "a<NUM>b", "(<NUM>) <NUM>", "<NUM><NUM> <NUM>!"]


def _texts(line: str, protect=tuple(KINDS), symbols=()) -> list[str]:
    return [line[start:end] for start, end, _ in values_of([line], protect, symbols)[0]]


@pytest.mark.parametrize("case", ODD_CASES)
def test_each_odd_case_is_one_value_wherever_it_stands(case):
    assert len(ODD_CASES) == 26
    for line in (case, f"see {case}.", f"({case}), he said", f"{case}\u00a0and {case}"):
        assert _texts(line, ODD_KINDS) == [case] * line.count(case)


@pytest.mark.parametrize(
    ("line", "values"),
    [
        ("100%ig, 20 %ige, 5km, v2, a < b > c, US$", ["100", "20"]),
        ("共12个，见http://a.org。", ["12", "http://a.org"]),
        ("at 10 %1$s, 5 %s", ["10", "%1$s", "5", "%s"]),
        ("he said 5% of 3.14.", ["5", "3.14"]),
        ("see http://a.org/x_(y).", ["http://a.org/x_(y"]),
        ("<jane@x.org> <http://x.org>", ["jane@x.org", "http://x.org"]),
        ("⟦3⟧ and 7", ["⟦3⟧", "7"]),
        ("", []),
    ],
)
def test_what_is_no_value_stays_text(line, values):
    assert _texts(line) == values


def test_patterns_of_ones_own_and_symbols_win_where_they_are_longer_or_equal():
    pattern = r"[A-Z]{2,4}-\d{1,8}"
    assert _texts("Größe AB-12 ⟨7⟩ and 12", ("number", pattern)) == ["AB-12", "7", "12"]
    assert _texts("abcdefghij", ("a.{4}", "d.{5}", "h.")) == ["abcde", "hi"]  # what overlaps hides nothing
    (values,) = values_of(["{0} <b> <b"], ("placeholder", "markup"), ("{0}", "<b"))
    assert values == [(0, 3, True), (4, 7, False), (8, 10, True)]


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("urls", "Nearest: url."), ("", "expected url"), ("(", "a regular expression of RE2"),
        (r"(a)\1", "RE2"), (r"x\C", "is a byte"), ("(?=a)b", "RE2"), ("a{0,41}", "at most 40 times"), ("x*", "needs a character"),
        ("a" * 101, "at most 100 characters"),
    ],
)  # fmt: skip
def test_a_pattern_that_is_refused(pattern, message):
    with pytest.raises(ValidationError) as caught:
        TypeAdapter(Protected).validate_python([pattern])
    assert message in str(caught.value)


HANGING = ["(a+)+b", "(a|aa)+$", "(.*a){12}b", ".{0,40}" * 14 + "b", r"(\pL{0,40})+b"]


@pytest.mark.parametrize("pattern", [*KINDS, *HANGING])
def test_no_pattern_takes_longer_than_the_line_is_long(pattern):
    TypeAdapter(Protected).validate_python([pattern])
    hostile = ["a" * 9, "1.1", "a@", "<a ", "{{", "%a", "http://a.", "👍\u200d", "#a", "$a", "&a"]
    start = time.process_time()
    for run in hostile if pattern in KINDS else hostile[:1]:
        values_of([run * (20_000 // len(run))], [pattern])
    assert time.process_time() - start < 3


def test_values_of_both_sides_get_one_symbol_and_others_stay():
    source, target = "{0} has 2 of {0} at 3", "zwei von {0} um 3 {0} %s"
    (src,), (tgt,), (n_unlike,) = shared_spans([source], [target], ["placeholder", "number"])
    first = SYMBOLS.index(src[0][2])
    of_line = [SYMBOLS[(first + number) % 20] for number in range(4)]  # {0}, 2, {0}, 3
    assert [(source[a:b], symbol) for a, b, symbol in src] == [
        ("{0}", of_line[0]), ("{0}", of_line[2]), ("3", of_line[3])
    ]  # fmt: skip
    assert [(target[a:b], symbol) for a, b, symbol in tgt] == [
        ("{0}", of_line[0]), ("3", of_line[3]), ("{0}", of_line[2])
    ]  # fmt: skip
    assert n_unlike == 2  # "2" and "%s"
    every = numbered(source, values_of([source], ["placeholder", "number"])[0])
    assert [symbol for *_, symbol in every] == of_line  # as a line alone is numbered


def test_symbols_are_used_alike_and_at_most_twenty():
    lines = [f"line {number} {{0}}" for number in range(2000)]
    rows = zip(lines, values_of(lines, ["placeholder"]), strict=True)
    used = [numbered(line, values)[-1][2] for line, values in rows]
    assert {*used} == {*SYMBOLS}
    assert max(map(used.count, SYMBOLS)) < 2 * 2000 / 20
    long = " ".join(map(str, range(23)))
    spans = numbered(long, values_of([long], ["number"])[0])
    assert len({symbol for *_, symbol in spans}) == len(spans) == 20


@pytest.mark.parametrize(
    ("text", "mended", "repairs"),
    [
        ("x ⟦2⟧ y ⟦1⟧.", "x %s y {0}.", ()),
        ("⟦1⟧ ⟦1⟧ x", "{0} x %s", (("doubled", "{0}"), ("lost", "%s"))),
        ("x ⟦9⟧⟦1⟧.", "x{0}. %s", (("invented", "⟦9⟧"), ("lost", "%s"))),
        ("", "{0} %s", (("lost", "{0}"), ("lost", "%s"))),
    ],
)  # fmt: skip
def test_what_is_lost_or_doubled_is_mended_and_said(text, mended, repairs):
    assert put_back(text, [("⟦1⟧", "{0}"), ("⟦2⟧", "%s")]) == (mended, repairs)


def test_equal_values_stand_for_each_other_and_a_cut_line_gets_none_back():
    values = [("⟦1⟧", "7"), ("⟦2⟧", "7")]
    assert put_back("⟦2⟧ ⟦2⟧", values) == ("7 7", ())
    assert put_back("a ⟦2⟧", values, appends=False) == ("a 7", (("lost", "7"),))


ALL = {"moses": True, "lowercase": True, "punctuation": True}
PREPARATIONS = [{}, {"lowercase": True}, {"moses": True}, ALL]


@pytest.mark.parametrize("settings", PREPARATIONS, ids=str)
def test_pieces_of_symbols_cover_what_they_stand_for(settings):
    preparation = TextPreparation("en", symbols=("<NUM>",), protect=("number", "markup"), **settings)
    assert preparation.prepare(["⟦3⟧"], [[]]).texts == ["[3⟧" if "moses" not in settings else "[ 3 ⟧"]
    rng = random.Random(2)
    lines = [odd_line(rng, ("The <NUM> “cat” sat on 3 mats.", ""))[0] for _ in range(20)]
    lines += ["", "Plain line."]
    prepared = preparation.prepare(lines)
    for line, text, (starts, ends) in zip(lines, prepared.texts, prepared.places, strict=True):
        assert len(text) == len(starts) == len(ends)
        (values,) = values_of([line], preparation.protect, preparation.symbols)
        for start, end, symbol in numbered(line, values):
            at = text.index(symbol) if symbol in SYMBOLS else text.index("<NUM>")
            assert (starts[at], ends[at + len(symbol) - 1]) == (start, end)
        for at, (start, end) in enumerate(zip(starts, ends, strict=True)):
            if text[at].isalpha() and end - start == 1:
                assert line[start].lower() == text[at].lower()


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
@pytest.mark.parametrize("settings", PREPARATIONS, ids=str)
def test_a_symbol_is_one_piece_in_training_and_in_use(tmp_path, kind, settings):
    tokenizer = add_symbols(train_subwords(LINES * 9, SubwordConfig(kind=kind, vocab_size=320)), ["<NUM>"])
    tokenizer.save_pretrained(tmp_path)
    assert PlainTokenizer.reads(tmp_path)
    plain = PlainTokenizer.from_pretrained(tmp_path)
    symbol = tokenizer.convert_tokens_to_ids("<NUM>")
    preparation = TextPreparation("en", symbols=("<NUM>",), **settings)
    texts = preparation.prepare(SYMBOL_LINES).texts
    cutters = [encode_pieces] + [BpeDropout(0.5, 1, 99)] * (kind == "bpe")
    for cut in cutters:
        for line, text, coded in zip(SYMBOL_LINES, texts, cut(tokenizer, texts), strict=True):
            assert coded.ids.count(symbol) == line.count("<NUM>"), line
            assert tokenizer.decode(coded.ids, skip_special_tokens=True) == text
            assert plain.batch_decode([coded.ids], skip_special_tokens=True) == [text]
    assert [c.ids for c in encode_pieces(plain, texts)] == [c.ids for c in encode_pieces(tokenizer, texts)]


@pytest.mark.parametrize("is_special", [True, False])
def test_added_tokens_of_a_folder_are_one_piece(tmp_path, is_special):
    tokenizer = train_subwords(LINES * 9, SubwordConfig(vocab_size=320))
    tokenizer.add_tokens(["<NUM>"], special_tokens=is_special)
    tokenizer.save_pretrained(tmp_path)
    for path in (tmp_path, *([] if is_special else [tmp_path / "tokenizer.json"])):
        loaded = given_tokenizer(str(path))
        for line, coded in zip(SYMBOL_LINES, encode_pieces(loaded, SYMBOL_LINES), strict=True):
            assert coded.ids.count(loaded.convert_tokens_to_ids("<NUM>")) == line.count("<NUM>")
            assert loaded.decode(coded.ids, skip_special_tokens=True) == line


@pytest.mark.slow
@pytest.mark.parametrize("kind", HOSTS)
def test_a_pretrained_translator_gets_rows_for_symbols_and_keeps_its_pieces(tmp_path, kind):
    start = open_checkpoint(str(make_translator(kind, tmp_path)), ("en", "de"), (None, None), False, "")
    more = start.with_characters(["<NUM>", *SYMBOLS], are_symbols=True)
    assert more.n_pieces == start.n_pieces + 21
    lines = ["a⟦1⟧b", "a ⟦12⟧.<NUM> b", "<NUM><NUM> a"]
    for before, after in ((start.source, more.source), (start.target, more.target)):
        for old, new in zip(encode_pieces(before, LINES), encode_pieces(after, LINES), strict=True):
            assert old.ids == new.ids
        for line, coded in zip(lines, encode_pieces(after, lines), strict=True):
            texts = after.convert_ids_to_tokens(coded.ids)
            assert [text for text in texts if text in ("<NUM>", *SYMBOLS)] == _texts(
                line, ["number"], ["<NUM>"]
            )
            assert after.decode(coded.ids, skip_special_tokens=True) == line


@pytest.mark.slow
def test_a_run_from_a_pretrained_translator_adds_rows_and_its_child_keeps_them(tmp_path):
    host = make_translator("marian", tmp_path / "host")
    _recipe(tmp_path)
    data = f"data: {{dir: {tmp_path}, src: en, tgt: de, dev: train}}"
    (tmp_path / "start.yaml").write_text(f"{data}\noutput: {tmp_path / 'run'}\n")
    settings = [f"model.init_from={host}", "data.protect=[placeholder,number]", "subwords.symbols=[<NUM>]"]
    data = prepare(load_recipe(tmp_path / "start.yaml", settings))
    assert data.start.n_pieces == data.start.n_known + 21
    src, tgt = (side.pieces[side.pieces >= data.start.n_known] for side in (data.train.src, data.train.tgt))
    assert src.tolist() == tgt.tolist()
    assert len(src) == 3 * 2  # {0} and 3; "2" is "zwei"
    write_side_files(host, data.info, data.encoder.tokenizer)
    child = load_recipe(tmp_path / "start.yaml", settings[:1])
    assert (child.data.protect, child.subwords.symbols) == (("placeholder", "number"), ("<NUM>",))


@pytest.mark.slow
def test_additional_special_tokens_of_a_pretrained_translator_are_text(tmp_path):
    folder = make_translator("nllb", tmp_path)
    config = json.loads((folder / "tokenizer_config.json").read_text())
    config["extra_special_tokens"] = [*config["extra_special_tokens"], "<NUM>", "<extra_id_0>"]
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    source = open_checkpoint(str(folder), ("en", "de"), (None, None), False, "").source
    ids = [source.convert_tokens_to_ids(name) for name in ("<NUM>", "<extra_id_0>", "eng_Latn")]
    (coded,) = encode_pieces(source, ["a<NUM>, <extra_id_0> eng_Latn"])
    assert [coded.ids[1:].count(number) for number in ids] == [1, 0, 0]
    assert "a<NUM>," in source.decode(coded.ids, skip_special_tokens=True)


def test_the_words_tags_go_to_its_symbol(annotator):
    line = "the 12 cats sat"
    tokenizer = add_symbols(train_subwords(LINES * 9, SubwordConfig(vocab_size=320)), SYMBOLS)
    words = WordColumns.from_sentences(annotator.annotate([line]))
    vocabularies = build_vocabularies([words], ["pos"])
    plain = SourceEncoder(tokenizer, vocabularies)
    protected = SourceEncoder(tokenizer, vocabularies, preparation=TextPreparation(protect=("number",)))
    tags = {}
    for name, encoder in (("plain", plain), ("protected", protected)):
        encoded = encoder.encode([line], words)
        values = encoder.factor_values(encoded.factors)["pos"]
        tags[name] = dict(zip(encoder.piece_names(encoded.pieces), values, strict=True))
    (symbol,) = {*SYMBOLS} & tags["protected"].keys()
    assert tags["protected"][symbol] == next(tag for piece, tag in tags["plain"].items() if "1" in piece)
    assert tags["protected"]["▁the"] == tags["plain"]["▁the"]


def _recipe(folder: Path, *settings: str):
    src = ["the cat {0} sat", "see <b>it</b> 2", "a dog 3"]
    write_sides(folder, src * 3, ["die Katze {0} saß", "<b>es</b> zwei", "ein Hund 3"] * 3)
    return tiny_recipe(folder, "subwords.vocab_size=320", *settings)


@pytest.mark.parametrize(
    "settings", [(), ("data.on_disk=true",), ("subwords.joint=false",), ("subwords.kind=unigram",), ("data.lowercase=true", "data.moses=true")]
)  # fmt: skip
def test_training_pairs_have_the_symbols_of_both_sides(tmp_path, settings):
    protect = "data.protect=[placeholder,markup,number]"
    data = prepare(_recipe(tmp_path, protect, "subwords.symbols=[cat]", *settings))
    sides = (data.encoder.tokenizer, data.train.src), (data.target.tokenizer, data.train.tgt)
    texts = [tokenizer.convert_ids_to_tokens(side.pieces) for tokenizer, side in sides]
    symbols = [[text for text in of_side if text in SYMBOLS] for of_side in texts]
    assert symbols[0] == symbols[1]
    assert len(symbols[0]) == 3 * 4  # {0}, <b>, </b>, 3
    first = data.train.tgt.pieces[: data.train.tgt.splits[1]]
    words = data.target.tokenizer.decode(first, skip_special_tokens=True).split()
    assert [word.lower() for word in words if word not in SYMBOLS] == ["die", "katze", "saß"]
    assert data.report.faults[UNSHARED] == [1, 4, 7]  # "2" is "zwei"
    assert MARKUP not in data.report.faults
    assert data.report.notes[-1] == "data.protect: 12 values of both sides are written as symbols."
    names = data.encoder.tokenizer.get_vocab()
    assert not any("⟦" in name for name in names.keys() - {*SYMBOLS})
    cats = np.flatnonzero(data.train.src.pieces == names["cat"])
    assert len(cats) == 3
    assert (data.info.protect, data.info.symbols) == (("placeholder", "markup", "number"), ("cat",))


def test_symbols_are_given_as_lines_have_them(tmp_path):
    with pytest.raises(ConfigError, match="Give 'Käse'"):
        _recipe(tmp_path, "subwords.symbols=[Ka\u0308se]")
