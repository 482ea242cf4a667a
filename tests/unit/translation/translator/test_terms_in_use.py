"""Terms in translation: what the network reads, and who refuses them."""

from __future__ import annotations

import logging

import pytest

from syntaxformer.base.errors import ConfigError
from syntaxformer.serve.config import ServiceConfig
from syntaxformer.serve.engines import TranslatorEngine
from syntaxformer.serve.gate import translate_settings
from syntaxformer.serve.problems import Problem
from syntaxformer.serve.schemas import TranslateRequest
from syntaxformer.syntax.inputs import SyntaxInputs, TreeOptions
from syntaxformer.translation.decoding import Hypothesis
from syntaxformer.translation.model_folder import FolderInfo, read_info
from syntaxformer.translation.terms import Terms, n_missing_terms

TERMS = {"cat": "Katze", "sat on": ["saß auf", "sitzt auf"]}
LINE = "the cat sat on the mat ."


@pytest.fixture(scope="module")
def append(new_translator):
    return new_translator("add", ("term",), terms="append")


@pytest.fixture(scope="module")
def nfc(append):
    """The same, whose texts are normalised."""
    info = append.info.model_copy(update={"normalize": "nfc"})
    return type(append)(append.model, append.encoder, info, append.annotator)


def pieces_of(translator, source) -> list[tuple[str, str]]:
    roles = translator.encoder.factor_values(source.factors)["term"]
    texts = translator.encoder.tokenizer.convert_ids_to_tokens(source.pieces.tolist())
    return list(zip(texts, roles, strict=True))


def test_the_network_reads_term_translation_and_roles(append):
    with_terms = append.encode([LINE], terms=TERMS)
    written = append.encode(["the cat Katze sat on saß auf the mat ."])
    assert with_terms.pieces.tolist() == written.pieces.tolist()
    roles = [role for _, role in pieces_of(append, with_terms)]
    distinct = [*dict.fromkeys(roles[:-1])]
    assert distinct == ["source", "source_term", "<none>", "target_term"]  # a space has none
    assert {role for _, role in pieces_of(append, written)} == {"source", "<none>"}


def test_a_translation_replaces_its_term(new_translator):
    translator = new_translator("add", ("term",), terms="replace")
    source = translator.encode([LINE], terms=TERMS)
    assert source.pieces.tolist() == translator.encode(["the Katze saß auf the mat ."]).pieces.tolist()
    assert "source_term" not in {role for _, role in pieces_of(translator, source)}


def test_terms_change_translations_and_their_absence_changes_nothing(append):
    lines = [LINE, "", "\u00a0", "no such word", LINE]
    plain, given = (
        [best[0].text for best in append.translate(lines, terms=terms)] for terms in (None, TERMS)
    )
    assert [a == b for a, b in zip(plain, given, strict=True)] == [False, True, True, True, False]
    assert given == [best[0].text for best in append.translate(lines, terms=Terms.of(TERMS))]


def test_of_what_a_search_ends_with_the_best_that_uses_most_terms_is_chosen(append, monkeypatch):
    texts = ["der Hund", "die Katze saß", "die Katze sitzt auf"]
    pieces = append.target_pieces([LINE] * 3, texts)

    def decode(source, rows, search):
        return [[Hypothesis("", None, ids) for ids in pieces[: search.n_best]] for _ in rows]

    monkeypatch.setattr(append.decoder, "decode", decode)
    (best,) = next(append.translate([LINE], terms=TERMS))
    assert best.text == texts[2]
    (best,) = next(append.translate([LINE], terms={"cat": ["Kater", "Katze"]}))
    assert best.text == texts[1]
    for settings in ({}, {"terms": {"dogs": "Hunde"}}):  # without terms in the line, and without any
        (best,) = next(append.translate([LINE], **settings))
        assert best.text == texts[0]
    assert n_missing_terms([("Katze",), ("Katze",)], "die Katze sah", lowercase=False) == 1
    mixed = [best[0].text for best in append.translate(["dogs sit .", LINE, "", "a dog"], terms=TERMS)]
    assert mixed == [texts[0], texts[2], "", texts[0]], "lines without terms are searched as without a list"
    listed = next(append.translate([LINE], n_best=3, terms=TERMS))
    assert [best.text for best in listed] == texts


def test_terms_are_cleaned_as_lines_are(nfc):
    decomposed = nfc.encode(["the cafe\u0301 ."], terms={"caf\u00e9": "Cafe\u0301"})
    assert decomposed.pieces.tolist() == nfc.encode(["the café Café ."]).pieces.tolist()


def test_trees_and_other_factors_go_along(new_translator):
    translator = new_translator("sum_then_concat", ("pos", "case", "term"), terms="append")
    translator.encoder.syntax = SyntaxInputs(trees=TreeOptions(trees=("dependency",)), governors=True)
    translator.info = translator.info.model_copy(update={"syntax": translator.encoder.syntax})
    source = translator.encode(["the cat sat"], terms={"cat": "Katze"})
    assert source.syntax is not None
    assert source.syntax.governors.tolist() == [-1, 0, 1, 0]  # the injected word hangs on "cat"
    tags = translator.encoder.factor_values(source.factors)
    roles = zip(tags["pos"], tags["term"], strict=True)
    assert next(tag for tag, role in roles if role == "target_term") == "X"


def test_overlapping_terms_are_counted_and_the_first_is_named(append, caplog):
    caplog.set_level(logging.WARNING)
    list(append.translate(["dogs run", LINE, LINE], terms={"the cat": "x", "cat sat": "y"}, first_line=5))
    assert "2 lines with terms that overlap" in caplog.text
    assert "'the cat' before 'cat sat' in line 6" in caplog.text


@pytest.mark.parametrize("name", ["plain", "infused"])
def test_a_model_that_has_not_learned_terms_refuses_them(name, request):
    translator = request.getfixturevalue(name)
    for use in (translator.encode, lambda *args, **terms: list(translator.translate(*args, **terms))):
        with pytest.raises(
            ConfigError, match=r"^terms: expected a model that has learned to use terms, got one that has not"
        ):
            use([LINE], terms=TERMS)


def test_every_member_of_an_ensemble_reads_them(append, plain):
    lead = type(append)(append.model, append.encoder, append.info, append.annotator)
    lead.others = [append]
    source = lead.encode([LINE], terms=TERMS)
    assert source.others[0].pieces.tolist() == source.pieces.tolist()
    assert len(source.pieces) > len(lead.encode([LINE]).pieces)
    lead.others = [plain]
    with pytest.raises(ConfigError, match=r"^terms: expected a model that has learned"):
        lead.encode([LINE], terms=TERMS)


def test_the_folder_records_how_terms_are_given(append, plain, tmp_path, save_translator):
    assert read_info(save_translator(append, tmp_path / "a")).terms == "append"
    assert "terms" not in FolderInfo.model_dump(plain.info)
    assert type(append).load(tmp_path / "a", append.annotator).encode([LINE], terms=TERMS)


def test_a_request_may_give_terms(append, nfc, plain):
    config, one = ServiceConfig(models={"a": "."}), {"cat": "Katze"}
    request = TranslateRequest(texts=[LINE], terms=one, show=["tags"])
    engine = TranslatorEngine("a", append)
    (translation,) = engine.translate(translate_settings(request, engine, config), request.texts)
    assert translation.text == next(iter(append.translate([LINE], terms=one)))[0].text
    assert translation.source is not None
    assert "target_term" in translation.source.factors["term"]
    blank = TranslateRequest(texts=[LINE], terms={"cat": "\u200b"})
    with pytest.raises(Problem, match=r"terms: expected a term and its translation"):
        translate_settings(blank, TranslatorEngine("a", nfc), config)
    with pytest.raises(Problem, match=r"terms: expected a model that has learned to use terms"):
        translate_settings(request, TranslatorEngine("b", plain), config)
