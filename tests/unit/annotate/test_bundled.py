"""Which bundled pipeline is for which language, and the warning where one annotates another's."""

from __future__ import annotations

import logging

import pytest

from syntaxformer.annotate import bundled_for, warn_of_language


def test_the_pipeline_of_a_language():
    assert bundled_for("de", "en") == "de"
    assert bundled_for("fr", "en") == "en"
    assert bundled_for(None, "de") == "de"


@pytest.mark.parametrize(
    ("annotator", "language", "advice"),
    [
        ("en", "de", "de"),
        ("en+phrases", "de", "de+phrases"),
        ("de_lower", "en", "en"),
        ("en", "en", None),
        ("de_lower", "de", None),
        ("en", "fr", "stanza:fr"),  # nothing better is bundled
        ("en", "src", None),  # the ending of a file, and no language
        ("spacy:en_core_web_sm", "de", None),
        ("conllu:en.conllu", "de", None),
    ],
)
def test_a_pipeline_for_another_language_is_warned_of(caplog, annotator, language, advice):
    with caplog.at_level(logging.WARNING, "syntaxformer"):
        warn_of_language(annotator, language, "annotation.annotator")
    expected = (
        f"annotation.annotator: expected an annotator for {language}, the language of the text, "
        f"got {annotator}. Set annotation.annotator={advice}."
    )
    assert [record.getMessage() for record in caplog.records] == ([] if advice is None else [expected])
