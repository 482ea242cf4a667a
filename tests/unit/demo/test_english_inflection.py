"""English forms, by hand."""

from __future__ import annotations

import pytest

from syntaxformer.demo.generated.english_inflection import EnglishVerb, article, plural


@pytest.mark.parametrize(
    ("verb", "expected"),
    [
        ("watch", "watches watched watched watching"),
        ("fly/flew/flown", "flies flew flown flying"),
        ("lie/lay/lain", "lies lay lain lying"),
        ("iron", "irons ironed ironed ironing"),
        ("man", "mans manned manned manning"),
        ("free", "frees freed freed freeing"),
        ("dry", "dries dried dried drying"),
        ("go/went/gone", "goes went gone going"),
        ("play", "plays played played playing"),
        ("judge", "judges judged judged judging"),
        ("have/had/had", "has had had having"),
    ],
)
def test_verb_forms(verb, expected):
    parsed = EnglishVerb.parse(verb)
    assert [parsed.third_person, parsed.past, parsed.participle, parsed.ing] == expected.split()


def test_particle():
    verb = EnglishVerb.parse("throw/threw/thrown away")
    assert (verb.base, verb.particle, verb.participle) == ("throw", "away", "thrown")


@pytest.mark.parametrize(
    ("noun", "expected"),
    [("box", "boxes"), ("city", "cities"), ("play", "plays"), ("bus", "buses"), ("duck", "ducks")],
)
def test_plural(noun, expected):
    assert plural(noun) == expected


def test_article():
    assert [article(word) for word in ("apple", "old", "book")] == ["an", "an", "a"]
