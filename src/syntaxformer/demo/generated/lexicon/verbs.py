"""All verbs; here are those without an object and those with a clause, and "be" and "there is"."""

from __future__ import annotations

from syntaxformer.demo.generated.lexicon.entries import Slot
from syntaxformer.demo.generated.lexicon.verb_frames import (
    INFINITIVE,
    MOTION,
    THAT,
    WHETHER,
    acc,
    at,
    into,
    verb,
)
from syntaxformer.demo.generated.lexicon.verbs_two_readings import TWO_READINGS
from syntaxformer.demo.generated.lexicon.verbs_with_object import WITH_OBJECT

__all__ = ["BE", "THERE_IS", "VERBS"]

BE = verb("be/was/been", "sein/ist/war/gewesen+sein", "", Slot("adjective"), stative=True)
THERE_IS = verb(
    "be/was/been", "geben/gibt/gab/gegeben", "", acc("person animal thing flora vehicle"), stative=True
)

_WITHOUT_OBJECT = (
    verb("sleep/slept/slept", "schlafen/schläft/schlief/geschlafen", "person animal", manner="well quietly"),
    verb("wake/woke/woken up", "auf|wachen+sein", "person animal", manner=""),
    verb("arrive", "an|kommen/kommt/kam/gekommen+sein", "person line", manner=""),
    verb("come/came/come back", "zurück|kommen/kommt/kam/gekommen+sein", "person animal", manner=""),
    verb(
        "run/ran/run away", "weg|laufen/läuft/lief/gelaufen+sein", "walker child prisoner", manner="quickly"
    ),
    verb("stop", "an|halten/hält/hielt/gehalten", "road line", manner="quickly slowly"),
    verb("start", "beginnen/beginnt/begann/begonnen", "event", manner=""),
    verb("laugh", "lachen", "person", manner="quietly"),
    verb("cry", "weinen", "child adult", manner="quietly alone"),
    verb("sing/sang/sung", "singen/singt/sang/gesungen", "person bird", manner="well quietly"),
    verb(
        "swim/swam/swum",
        "schwimmen/schwimmt/schwamm/geschwommen+sein",
        "person swimmer pet",
        manner="well quickly slowly",
    ),
    verb("hurry", "sich beeilen", "person", manner=""),
    verb("go/went/gone", "gehen/geht/ging/gegangen+sein", "person", into("place"), manner=""),
    verb("run/ran/run", "laufen/läuft/lief/gelaufen+sein", "person walker", into("place"), manner=MOTION),
    verb(
        "drive/drove/driven",
        "fahren/fährt/fuhr/gefahren+sein",
        "adult",
        into("town building station"),
        manner="slowly quickly alone",
    ),
    verb(
        "stand/stood/stood",
        "stehen/steht/stand/gestanden",
        "person mount vehicle",
        at("place opening"),
        manner="quietly alone",
    ),
    verb(
        "sit/sat/sat",
        "sitzen/sitzt/saß/gesessen",
        "person pet bird",
        at("seat outdoor roof opening"),
        manner="quietly alone",
    ),
    verb("live", "wohnen", "person", at("town house hotel forest lake"), manner="alone"),
)

_WITH_CLAUSE = (
    verb("say/said/said", "sagen", "person", THAT, manner=""),
    verb("think/thought/thought", "denken/denkt/dachte/gedacht", "person", THAT, stative=True, manner=""),
    verb("believe", "glauben", "person", THAT, stative=True, manner=""),
    verb("know/knew/known", "wissen/weiß/wusste/gewusst", "person", THAT, stative=True, manner=""),
    verb("hope", "hoffen", "person", THAT, stative=True, manner=""),
    verb("notice", "bemerken", "person", THAT, stative=True, manner=""),
    verb("hear/heard/heard", "hören", "person", THAT, stative=True, manner=""),
    verb("dream", "träumen", "person", THAT, manner=""),
    verb("know/knew/known", "wissen/weiß/wusste/gewusst", "person", WHETHER, stative=True, manner=""),
    verb("ask", "fragen", "person", WHETHER, manner=""),
    verb("wonder", "sich fragen", "person", WHETHER, stative=True, manner=""),
    verb("try", "versuchen", "person", INFINITIVE, manner=""),
    verb(
        "forget/forgot/forgotten",
        "vergessen/vergisst/vergaß/vergessen",
        "person",
        INFINITIVE,
        stative=True,
        manner="",
    ),
    verb("begin/began/begun", "an|fangen/fängt/fing/gefangen", "person", INFINITIVE, manner=""),
    verb("decide", "beschließen/beschließt/beschloss/beschlossen", "adult", INFINITIVE, manner=""),
)

VERBS = TWO_READINGS + WITH_OBJECT + _WITHOUT_OBJECT + _WITH_CLAUSE
