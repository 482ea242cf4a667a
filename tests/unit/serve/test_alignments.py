"""Alignments and markup by HTTP: spans in JSON, tags that come back, and what is refused."""

from __future__ import annotations

import pytest
from fastapi.testclient import TestClient

from syntaxformer.serve.engines import TranslatorEngine
from syntaxformer.translation.alignment import AlignmentHead
from syntaxformer.translation.translator import Translator


@pytest.fixture
def aligning(tiny_engines, make_app):
    translator = tiny_engines["base"].translator
    info = translator.info.model_copy(update={"alignment": AlignmentHead(layer=0, head=1)})
    aligned = Translator(translator.model, translator.encoder, info, translator.annotator)
    engine = TranslatorEngine("aligning", aligned)
    with TestClient(make_app(engine, tiny_engines["sit"])) as client:
        yield lambda **body: client.post("/v1/translate", json=body)


def test_words_and_links(aligning):
    answer = aligning(texts=["The cat\nruns", ""], alignments=True).json()["translations"]
    plain = aligning(texts=["The cat\nruns", ""]).json()["translations"]
    assert [each["text"] for each in answer] == [each["text"] for each in plain]
    assert "words" not in answer[1]
    assert "words" not in plain[0]
    words = answer[0]["words"]
    assert words["source"] == [[0, 3], [4, 7], [8, 12]]
    target = "".join(answer[0]["text"][start:end] for start, end in words["target"])
    assert target == "".join(answer[0]["text"].split())
    assert all(src < 3 and tgt < len(words["target"]) for src, tgt in words["links"])


def test_tags_come_back(aligning):
    text = 'The <b>cat</b> &amp; a <a href="?x&amp;y">dog</a><br>'
    (answer,) = aligning(texts=[text], format="html", n_best=2).json()["translations"]
    for hypothesis in answer["hypotheses"]:
        for tag in ("<b>", "</b>", '<a href="?x&amp;y">', "</a>", "<br>"):
            assert hypothesis["text"].count(tag) == 1
    assert answer["text"] == answer["hypotheses"][0]["text"]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"texts": ["a", "<b>x"], "format": "html"}, "texts.1: markup: expected </b>"),
        ({"texts": ["a"], "format": "html", "alignments": True}, "alignments: expected none with format=html"),
        ({"texts": ["a"], "format": "html", "show": ["tags"]}, "show: expected none with format=html"),
        ({"texts": ["a"], "format": "xml"}, "format"),
        ({"texts": ["a"], "terms": {"a": "b"}, "format": "html"}, "terms: expected none with format=html"),
        ({"texts": ["a"], "terms": {"a": "b"}, "alignments": True}, "terms: expected none with format=html"),
        ({"texts": ["a"], "terms": {"a": "b"}, "show": ["attention"]}, "terms: expected none with format=html"),
        ({"texts": ["a"], "alignments": True, "model": "sit"}, "alignments: expected a model with a head"),
        ({"texts": ["a"], "format": "html", "model": "sit"}, "alignments: expected a model with a head"),
    ],
)  # fmt: skip
def test_what_is_refused(aligning, error_of, body, message):
    response = aligning(**body)
    assert message in error_of(response, 422, response.json()["error"]["code"])
