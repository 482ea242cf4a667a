"""Adjectives, adverbs and the small words of both languages: what is neither noun nor full verb."""

from __future__ import annotations

from syntaxformer.demo.generated.english_inflection import EnglishVerb
from syntaxformer.demo.generated.lexicon.entries import (
    Adjective,
    Adverb,
    Conjunction,
    Determiner,
    Modal,
    Preposition,
)

__all__ = [
    "ADJECTIVES",
    "ADVERBS",
    "AFTER",
    "CONJUNCTIONS",
    "DETERMINERS",
    "MODALS",
    "POSSESSIVE_STEMS",
    "PREPOSITIONS",
]

ADJECTIVES = (
    # size and age come before quality, colour and side: rank orders two adjectives alike in both languages
    Adjective("light", "leicht", "thing clothes meal", 1),
    Adjective("left", "linke", "sided opening", 3, predicative=False),
    Adjective("back", "hintere", "opening room seat", 3, predicative=False),
    Adjective("open", "offen", "opening container", 1),
    Adjective("close", "eng", "friend", 1, predicative=False),
    Adjective("clean", "sauber", "dish clothes washed indoor", 1),
    Adjective("dry", "trocken", "clothes bread field leafy", 1),
    Adjective("warm", "warm", "drink soup meal clothes indoor bread", 1),
    Adjective("empty", "leer", "container indoor street bus seat plate cup", 1),
    Adjective("free", "frei", "seat prisoner", 1),
    Adjective("old", "alt", "person animal thing place vehicle flora song story play film", 0),
    Adjective("young", "jung", "person animal", 0),
    Adjective("big", "groß", "animal thing building vehicle flora city garden lake", 0),
    Adjective("small", "klein", "animal thing building vehicle flora town child room garden", 0),
    Adjective("new", "neu", "thing vehicle building text idea song film plan", 0),
    Adjective("long", "lang", "text trip film walk coat dress street bridge train", 0),
    Adjective("short", "kurz", "text trip film walk visit meeting", 0),
    Adjective("good", "gut", "food drink show_like walk trip party idea answer text friend worker", 1),
    Adjective("bad", "schlecht", "idea answer film news dream show", 1),
    Adjective("beautiful", "schön", "flora clothes sight town artwork song dance garden lake", 1),
    Adjective("famous", "berühmt", "singer doctor king queen city museum artwork song", 1),
    Adjective("strange", "seltsam", "person told idea sign dream noise", 1),
    Adjective("boring", "langweilig", "text show_like meeting story", 1),
    Adjective("secret", "geheim", "plan report letter meeting love", 1),
    Adjective("dangerous", "gefährlich", "wild storm plan trip street river tool", 1),
    Adjective("expensive", "teuer", "thing vehicle clothes hotel trip meal", 1, "teur"),
    Adjective("cheap", "billig", "thing clothes hotel trip", 1),
    Adjective("heavy", "schwer", "thing container furniture", 1),
    Adjective("broken", "kaputt", "device dish furniture vehicle opening", 1),
    Adjective("dirty", "schmutzig", "dish clothes washed road tool pet", 1),
    Adjective("cold", "kalt", "drink soup water evening morning meal", 1),
    Adjective("fresh", "frisch", "bread milk cheese fish egg paint", 1),
    Adjective("sweet", "süß", "cake apple tea drink", 1),
    Adjective("dark", "dunkel", "indoor forest street lake", 1, "dunkl"),
    Adjective("quiet", "ruhig", "outdoor child town evening", 1),
    Adjective("loud", "laut", "party street child noise radio", 1),
    Adjective("deep", "tief", "lake river deep", 1),
    Adjective("high", "hoch", "tall wall bridge bill rent", 1, "hoh"),
    Adjective("kind", "freundlich", "adult", 1),
    Adjective("clever", "klug", "person animal idea plan", 1),
    Adjective("brave", "mutig", "person", 1),
    Adjective("lazy", "faul", "person pet", 1),
    Adjective("rich", "reich", "adult", 1),
    Adjective("poor", "arm", "person", 1),
    Adjective("tired", "müde", "person animal", 1),
    Adjective("sick", "krank", "person animal", 1),
    Adjective("happy", "glücklich", "person", 1),
    Adjective("sad", "traurig", "person story song film", 1),
    Adjective("hungry", "hungrig", "person animal", 1),
    Adjective("strong", "stark", "adult mount storm wind coffee tea", 1),
    Adjective("red", "rot", "coloured vehicle opening wine", 2),
    Adjective("blue", "blau", "coloured road opening dish", 2),
    Adjective("green", "grün", "coloured road opening leafy", 2),
    Adjective("white", "weiß", "coloured mount wall wine", 2),
    Adjective("black", "schwarz", "pet mount clothes road bird", 2),
)

_NOUN_TIME = ("NOUN", "NN", "obl:unmarked")
ADVERBS = (
    Adverb("yesterday", "gestern", "time", "past", _NOUN_TIME),
    Adverb("today", "heute", "time", "past present future", _NOUN_TIME),
    Adverb("tomorrow", "morgen", "time", "future", _NOUN_TIME),
    Adverb("now", "jetzt", "time", "present"),
    Adverb("soon", "bald", "time", "future"),
    Adverb("again", "wieder", "manner"),
    Adverb("often", "oft", "frequency", "present past perfect"),
    Adverb("always", "immer", "frequency", "present past"),
    Adverb("never", "nie", "frequency", "present past perfect"),
    Adverb("sometimes", "manchmal", "frequency", "present past"),
    Adverb("already", "schon", "frequency", "perfect"),
    Adverb("quickly", "schnell", "manner"),
    Adverb("slowly", "langsam", "manner"),
    Adverb("carefully", "vorsichtig", "manner"),
    Adverb("quietly", "leise", "manner"),
    Adverb("well", "gut", "manner"),
    Adverb("alone", "allein", "manner"),
    Adverb("here", "hier", "place"),
    Adverb("there", "dort", "place"),
    Adverb("outside", "draußen", "place"),
)

PREPOSITIONS = {
    preposition.en: preposition
    for preposition in (
        Preposition("with", "mit", "dat"),
        Preposition("without", "ohne", "acc"),
        Preposition("for", "für", "acc"),
        Preposition("from", "aus", "dat"),
        Preposition("by", "von", "dat"),
        Preposition("after", "nach", "dat"),
        Preposition("before", "vor", "dat"),
        Preposition("during", "während", "gen"),
        Preposition("despite", "trotz", "gen"),
        Preposition("behind", "hinter", "dat"),
        Preposition("under", "unter", "dat"),
        Preposition("beside", "neben", "dat"),
        Preposition("through", "durch", "acc"),
        Preposition("like", "wie", "nom"),
    )
}

AFTER = Conjunction("after", "nachdem")
CONJUNCTIONS = (
    Conjunction("because", "weil"),
    Conjunction("when", "wenn", "als", ("ADV", "WRB", "advmod")),
    Conjunction("if", "wenn"),
    Conjunction("although", "obwohl"),
    Conjunction("while", "während"),
    Conjunction("before", "bevor"),
    Conjunction("until", "bis"),
    AFTER,
)

POSSESSIVE_STEMS = {
    (1, "sg", ""): "mein",
    (2, "sg", ""): "dein",
    (3, "sg", "m"): "sein",
    (3, "sg", "f"): "ihr",
    (1, "pl", ""): "unser",
    (3, "pl", ""): "ihr",
}

_DEMONSTRATIVE = ("DET", "PDAT", "det")
DETERMINERS = {
    determiner.en: determiner
    for determiner in (
        Determiner("the", "der", "definite", "weak", de_tags=("DET", "ART", "det")),
        Determiner("a", "ein", "ein", "mixed", ("sg",), de_tags=("DET", "ART", "det")),
        Determiner("this", "dies", "der", "weak", de_tags=_DEMONSTRATIVE, en_plural="these"),
        Determiner("that", "jen", "der", "weak", de_tags=_DEMONSTRATIVE, en_plural="those"),
        Determiner("every", "jed", "der", "weak", ("sg",)),
        Determiner(
            "which", "welch", "der", "weak", en_tags=("DET", "WDT", "det"), de_tags=("DET", "PWAT", "det")
        ),
        Determiner("no", "kein", "ein", "mixed"),
        Determiner("all", "all", "der", "weak", ("pl",)),
        Determiner("some", "einig", "strong", "strong", ("pl",)),
        Determiner("many", "viel", "strong", "strong", ("pl",), ("ADJ", "JJ", "amod")),
        Determiner(
            "two", "zwei", "bare", "strong", ("pl",), ("NUM", "CD", "nummod"), ("NUM", "CARD", "nummod")
        ),
        Determiner(
            "three", "drei", "bare", "strong", ("pl",), ("NUM", "CD", "nummod"), ("NUM", "CARD", "nummod")
        ),
    )
}

MODALS = (
    Modal(EnglishVerb("can", "could", ""), "could", "können"),
    Modal(EnglishVerb("must", "", ""), "", "müssen"),
    Modal(EnglishVerb("should", "", ""), "", "sollen"),
    Modal(EnglishVerb("may", "", ""), "", "dürfen"),
    Modal(EnglishVerb.parse("want"), "wanted", "wollen", linked=True),
    Modal(EnglishVerb.parse("have/had/had"), "had", "müssen", linked=True),
)
