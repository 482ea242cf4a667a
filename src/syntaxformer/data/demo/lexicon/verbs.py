"""Verbs: English and German principal parts, the kinds of their subject, and their complements.

Separable prefixes are marked with a bar ("an|rufen"); verbs not spelt out are weak. See `entries.Verb`.
"""

from __future__ import annotations

from syntaxformer.data.demo.english_inflection import EnglishVerb
from syntaxformer.data.demo.features import Case
from syntaxformer.data.demo.german_verbs import GermanVerb
from syntaxformer.data.demo.lexicon.entries import Slot, Verb

__all__ = ["BE", "THERE_IS", "VERBS"]

THAT, WHETHER, INFINITIVE, PLACE, GOAL = (
    Slot(kind) for kind in ("that", "whether", "infinitive", "place", "goal")
)

_CARE = "quickly slowly carefully"
_MOTION = "quickly slowly quietly alone"


def _verb(en: str, de: str, subject: str, *slots: Slot, stative: bool = False, manner: str = _CARE) -> Verb:
    return Verb(EnglishVerb.parse(en), GermanVerb.parse(de), subject, slots, stative, manner)


def _acc(kinds: str, en: str = "") -> Slot:
    return Slot("nominal", kinds, en=en)


def _dat(kinds: str, en: str = "") -> Slot:
    return Slot("nominal", kinds, en=en, case="dat")


def _to(kinds: str = "person") -> Slot:
    """A recipient: "gives her the book", "gives the book to her", "gibt ihr das Buch"."""
    return Slot("nominal", kinds, en="to", case="dat", shifts=True)


def _prep(en: str, de: str, case: Case, kinds: str) -> Slot:
    return Slot("nominal", kinds, en=en, de=de, case=case)


BE = _verb("be/was/been", "sein/ist/war/gewesen+sein", "", Slot("adjective"), stative=True)
THERE_IS = _verb(
    "be/was/been", "geben/gibt/gab/gegeben", "", _acc("person animal thing flora vehicle"), stative=True
)

_TWO_READINGS = (
    _verb("watch", "beobachten", "person animal", _acc("person animal vehicle watch sky"), manner="quietly carefully"),
    _verb("book", "buchen", "adult", _acc("bookable"), manner=""),
    _verb("play", "spielen", "person", _acc("played"), manner="well alone"),
    _verb("play", "spielen", "child pet", manner="quietly alone"),
    _verb("water", "gießen/gießt/goss/gegossen", "person", _acc("flora")),
    _verb("plant", "pflanzen", "person", _acc("flora")),
    _verb("light/lit/lit", "an|zünden", "person", _acc("flammable")),
    _verb(
        "see/saw/seen",
        "sehen/sieht/sah/gesehen",
        "person animal",
        _acc("person animal thing vehicle flora visual building"),
        stative=True,
        manner="",
    ),
    _verb("see/saw/seen", "sehen/sieht/sah/gesehen", "person", THAT, stative=True, manner=""),
    _verb("duck", "sich ducken", "person walker", manner="quickly"),
    _verb("rise/rose/risen", "auf|stehen/steht/stand/gestanden+sein", "person", manner="quickly slowly"),
    _verb("rise/rose/risen", "auf|gehen/geht/ging/gegangen+sein", "sky", manner="slowly"),
    _verb("sink/sank/sunk", "sinken/sinkt/sank/gesunken+sein", "vessel", manner="quickly slowly"),
    _verb("bear/bore/borne", "ertragen/erträgt/ertrug/ertragen", "person animal", _acc("burden"), manner="quietly"),
    _verb("fly/flew/flown", "fliegen/fliegt/flog/geflogen+sein", "bird aircraft", GOAL, manner="slowly quickly"),
    _verb("fly/flew/flown", "fliegen/fliegt/flog/geflogen+sein", "bird aircraft", manner="slowly quickly"),
    _verb("iron", "bügeln", "person", _acc("clothes")),
    _verb(
        "leave/left/left", "verlassen/verlässt/verließ/verlassen", "person animal", _acc("place person land")
    ),
    _verb("hand", "reichen", "person", _acc("small"), _to(), manner="quickly quietly"),
    _verb("train", "trainieren", "adult", _acc("pet mount student"), manner="well carefully"),
    _verb("park", "parken", "adult", _acc("parked")),
    _verb("fish", "angeln", "person", PLACE, manner="alone quietly"),
    _verb("answer", "beantworten", "person", _acc("asked letter call")),
    _verb("answer", "antworten", "person", _dat("person"), manner="quickly quietly"),
    _verb("paint", "streichen/streicht/strich/gestrichen", "adult", _acc("painted")),
    _verb("paint", "malen", "person", _acc("artwork motif")),
    _verb("help", "helfen/hilft/half/geholfen", "person", _dat("person animal"), manner="quickly"),
    _verb("love", "lieben", "person", _acc("person animal art drink flora town"), stative=True, manner=""),
    _verb("cook", "kochen", "adult", _acc("cooked"), manner="well slowly carefully"),
    _verb("guard", "bewachen", "adult pet", _acc("building prisoner precious opening valuable")),
    _verb("fire", "entlassen/entlässt/entließ/entlassen", "adult", _acc("worker"), manner=""),
    _verb("ring/rang/rung", "klingeln", "ringer", manner=""),
    _verb("drink/drank/drunk", "trinken/trinkt/trank/getrunken", "person", _acc("drink"), manner="quickly slowly"),
    _verb("visit", "besuchen", "person", _acc("person sight town"), manner=""),
    _verb("walk", "gehen/geht/ging/gegangen+sein", "person walker", GOAL, manner=_MOTION),
    _verb("call", "an|rufen/ruft/rief/gerufen", "person", _acc("person"), manner=""),
    _verb("change", "ändern", "adult", _acc("plan text")),
    _verb("order", "bestellen", "person", _acc("food drink ordered"), manner="quickly"),
    _verb("man", "bemannen", "adult", _acc("vessel"), manner=""),
    _verb("open", "öffnen", "person", _acc("opening container letter")),
    _verb("close", "schließen/schließt/schloss/geschlossen", "person", _acc("opening container shop")),
    _verb("clean", "putzen", "person", _acc("washed kitchen")),
    _verb("dry", "ab|trocknen", "person", _acc("dish knife")),
    _verb("warm", "auf|wärmen", "person", _acc("warmed")),
    _verb("empty", "leeren", "person", _acc("container")),
    _verb("free", "befreien", "person", _acc("animal prisoner"), manner="quickly carefully"),
    _verb("present", "vor|stellen", "adult", _acc("idea report"), manner="well quickly"),
    _verb("lie/lay/lain", "liegen/liegt/lag/gelegen", "thing pet child", PLACE, manner=""),
    _verb("cross", "überqueren", "person walker", _acc("crossed")),
    _verb("swallow", "schlucken", "person", _acc("swallowed")),
    _verb("smoke", "rauchen", "adult", _acc("smoked"), manner="quietly slowly"),
    _verb("smoke", "rauchen", "adult", manner="quietly slowly"),
    _verb("sign", "unterschreiben/unterschreibt/unterschrieb/unterschrieben", "adult", _acc("paper")),
    _verb("milk", "melken/melkt/melkte/gemolken", "farmer boy girl woman man", _acc("cattle")),
    _verb("rent", "mieten", "adult", _acc("rented"), manner=""),
    _verb(
        "dream", "träumen", "person", _prep("of", "von", "dat", "person trip sun flora town"), manner=""
    ),
    _verb("question", "befragen", "adult", _acc("person"), manner="carefully quietly"),
    _verb("show", "zeigen", "person", _acc("small visual clothes"), _to(), manner=""),
    _verb("judge", "beurteilen", "adult", _acc("judged art"), manner="carefully"),
    _verb(
        "like",
        "mögen/mag/mochte/gemocht",
        "person",
        _acc("person animal food drink art"),
        stative=True,
        manner="",
    ),
    _verb("work", "arbeiten", "adult", manner="alone well quickly carefully"),
    _verb("report", "berichten", "adult", THAT, manner=""),
    _verb("end", "enden", "event", manner=""),
    _verb("land", "landen+sein", "aircraft bird", manner="quickly slowly"),
    _verb("brush", "bürsten", "person", _acc("pet mount coat")),
    _verb("dance", "tanzen", "person", manner="well slowly alone"),
    _verb("fear", "fürchten", "person animal", _acc("wild feared judge king"), stative=True, manner=""),
    _verb("promise", "versprechen/verspricht/versprach/versprochen", "person", INFINITIVE, manner=""),
    _verb("plan", "planen", "adult", _acc("planned"), manner="carefully"),
    _verb("attack", "an|greifen/greift/griff/gegriffen", "wild person pet", _acc("person walker"), manner="quickly"),
    _verb("kiss", "küssen", "person", _acc("person"), manner="quietly"),
    _verb("hunt", "jagen", "adult wild pet", _acc("walker duck"), manner="quietly alone"),
    _verb("film", "filmen", "person", _acc("person animal vehicle event"), manner="quietly carefully"),
    _verb(
        "back", "unterstützen/unterstützt/unterstützte/unterstützt", "adult", _acc("plan idea"), manner=""
    ),
    _verb("heat", "erhitzen", "person", _acc("water warmed")),
)

_WITH_OBJECT = (
    _verb("eat/ate/eaten", "essen/isst/aß/gegessen", "person", _acc("food"), manner="quickly slowly"),
    _verb("buy/bought/bought", "kaufen", "person", _acc("small thing food clothes bought"), manner=""),
    _verb("sell/sold/sold", "verkaufen", "adult", _acc("thing vehicle building flora land"), manner=""),
    _verb("read/read/read", "lesen/liest/las/gelesen", "person", _acc("text sign")),
    _verb(
        "write/wrote/written", "schreiben/schreibt/schrieb/geschrieben", "person", _acc("text song answer")
    ),
    _verb(
        "write/wrote/written down",
        "auf|schreiben/schreibt/schrieb/geschrieben",
        "person",
        _acc("told message idea"),
    ),
    _verb(
        "find/found/found",
        "finden/findet/fand/gefunden",
        "person animal",
        _acc("thing small animal person error"),
    ),
    _verb(
        "hear/heard/heard", "hören", "person animal", _acc("heard sung animal person aircraft"), stative=True
    ),
    _verb(
        "know/knew/known",
        "kennen/kennt/kannte/gekannt",
        "person",
        _acc("person place known art"),
        stative=True,
        manner="",
    ),
    _verb("need", "brauchen", "person", _acc("need tool drink money thing"), stative=True, manner=""),
    _verb("look", "suchen", "person animal", _acc("small person animal", "for"), manner=""),
    _verb("look", "an|sehen/sieht/sah/gesehen", "person", _acc("visual person artwork", "at"), manner=""),
    _verb("invite", "ein|laden/lädt/lud/geladen", "adult", _acc("person"), manner=""),
    _verb("pick up", "ab|holen", "adult", _acc("child guest kin paper"), manner=""),
    _verb("throw/threw/thrown away", "weg|werfen/wirft/warf/geworfen", "person", _acc("small food leafy")),
    _verb("turn on", "ein|schalten", "person", _acc("device lamp"), manner="quickly"),
    _verb("turn off", "aus|schalten", "person", _acc("device lamp"), manner="quickly"),
    _verb("tidy up", "auf|räumen", "person", _acc("indoor")),
    _verb("put/put/put on", "an|ziehen/zieht/zog/gezogen", "person", _acc("clothes")),
    _verb("take/took/taken off", "aus|ziehen/zieht/zog/gezogen", "person", _acc("coat dress shirt")),
    _verb("prepare", "vor|bereiten", "adult", _acc("event meal")),
    _verb("reject", "ab|lehnen", "adult", _acc("plan idea report"), manner=""),
    _verb("repair", "reparieren", "adult", _acc("device vehicle furniture opening roof")),
    _verb("build/built/built", "bauen", "adult", _acc("building vessel bridge furniture")),
    _verb("lose/lost/lost", "verlieren/verliert/verlor/verloren", "person", _acc("small game money"), manner="quickly"),
    _verb(
        "steal/stole/stolen", "stehlen/stiehlt/stahl/gestohlen", "adult", _acc("precious money mount vehicle")
    ),
    _verb("pay", "bezahlen", "adult", _acc("owed worker"), manner=""),
    _verb(
        "forget/forgot/forgotten",
        "vergessen/vergisst/vergaß/vergessen",
        "person",
        _acc("small person told message gesture part"),
        manner="",
    ),
    _verb("carry", "tragen/trägt/trug/getragen", "person", _acc("thing container child")),
    _verb("wash", "waschen/wäscht/wusch/gewaschen", "person", _acc("clothes pet body road")),
    _verb("touch", "berühren", "person", _acc("body animal precious")),
    _verb("meet/met/met", "treffen/trifft/traf/getroffen", "person", _acc("person"), manner=""),
    _verb(
        "understand/understood/understood",
        "verstehen/versteht/verstand/verstanden",
        "person",
        _acc("message told plan film person part"),
        stative=True,
        manner="",
    ),
    _verb("bring/brought/brought", "mit|bringen/bringt/brachte/gebracht", "person", _acc("small food drink"), manner=""),
    _verb("follow", "folgen+sein", "person walker", _dat("person walker vehicle"), manner="quietly slowly quickly"),
    _verb("trust", "vertrauen", "person", _dat("person"), stative=True, manner=""),
    _verb("thank", "danken", "person", _dat("person"), manner=""),
    _verb("believe", "glauben", "person", _dat("person"), stative=True, manner=""),
    _verb("belong", "gehören", "thing vehicle building", _dat("person", "to"), stative=True, manner=""),
    _verb("listen", "zu|hören", "person", _dat("person", "to"), manner="quietly carefully"),
    _verb(
        "give/gave/given",
        "geben/gibt/gab/gegeben",
        "person",
        _acc("small food money need"),
        _to("person animal"),
    ),
    _verb("send/sent/sent", "schicken", "adult", _acc("small text"), _to(), manner=""),
    _verb("tell/told/told", "erzählen", "person", _acc("told"), _to(), manner="quietly slowly"),
    _verb("explain", "erklären", "adult", _acc("plan idea error"), _dat("person", "to"), manner="slowly well"),
    _verb(
        "return",
        "zurück|geben/gibt/gab/gegeben",
        "person",
        _acc("small money"),
        _dat("person", "to"),
        manner="",
    ),
    _verb("wait", "warten", "person pet", _prep("for", "auf", "acc", "person line answer help letter"), manner="quietly alone"),
    _verb(
        "think/thought/thought",
        "denken/denkt/dachte/gedacht",
        "person",
        _prep("of", "an", "acc", "person trip sun event"),
        manner="",
    ),
    _verb(
        "talk",
        "sprechen/spricht/sprach/gesprochen",
        "person",
        _prep("about", "über", "acc", "event plan person art"),
    ),
    _verb("talk", "sprechen/spricht/sprach/gesprochen", "person", _prep("to", "mit", "dat", "person"), manner="quietly"),
    _verb("laugh", "lachen", "person", _prep("about", "über", "acc", "story error idea person"), manner="quietly"),
    _verb(
        "remember",
        "sich erinnern",
        "person",
        _prep("", "an", "acc", "person event told gesture part"),
        stative=True,
        manner="",
    ),
    _verb("put/put/put", "legen", "person", _acc("small clothes"), GOAL),
)

_WITHOUT_OBJECT = (
    _verb("sleep/slept/slept", "schlafen/schläft/schlief/geschlafen", "person animal", manner="well quietly"),
    _verb("wake/woke/woken up", "auf|wachen+sein", "person animal", manner=""),
    _verb("arrive", "an|kommen/kommt/kam/gekommen+sein", "person line", manner=""),
    _verb("come/came/come back", "zurück|kommen/kommt/kam/gekommen+sein", "person animal", manner=""),
    _verb("run/ran/run away", "weg|laufen/läuft/lief/gelaufen+sein", "walker child prisoner", manner="quickly"),
    _verb("stop", "an|halten/hält/hielt/gehalten", "road line", manner="quickly slowly"),
    _verb("start", "beginnen/beginnt/begann/begonnen", "event", manner=""),
    _verb("laugh", "lachen", "person", manner="quietly"),
    _verb("cry", "weinen", "child adult", manner="quietly alone"),
    _verb("sing/sang/sung", "singen/singt/sang/gesungen", "person bird", manner="well quietly"),
    _verb("swim/swam/swum", "schwimmen/schwimmt/schwamm/geschwommen+sein", "person swimmer pet", manner="well quickly slowly"),
    _verb("hurry", "sich beeilen", "person", manner=""),
    _verb("go/went/gone", "gehen/geht/ging/gegangen+sein", "person", GOAL, manner=""),
    _verb("run/ran/run", "laufen/läuft/lief/gelaufen+sein", "person walker", GOAL, manner=_MOTION),
    _verb("drive/drove/driven", "fahren/fährt/fuhr/gefahren+sein", "adult", GOAL, manner="slowly quickly alone"),
    _verb("stand/stood/stood", "stehen/steht/stand/gestanden", "person mount vehicle", PLACE, manner="quietly alone"),
    _verb("sit/sat/sat", "sitzen/sitzt/saß/gesessen", "person pet bird", PLACE, manner="quietly alone"),
    _verb("live", "wohnen", "person", PLACE, manner="alone"),
)

_WITH_CLAUSE = (
    _verb("say/said/said", "sagen", "person", THAT, manner=""),
    _verb("think/thought/thought", "denken/denkt/dachte/gedacht", "person", THAT, stative=True, manner=""),
    _verb("believe", "glauben", "person", THAT, stative=True, manner=""),
    _verb("know/knew/known", "wissen/weiß/wusste/gewusst", "person", THAT, stative=True, manner=""),
    _verb("hope", "hoffen", "person", THAT, stative=True, manner=""),
    _verb("notice", "bemerken", "person", THAT, stative=True, manner=""),
    _verb("hear/heard/heard", "hören", "person", THAT, stative=True, manner=""),
    _verb("dream", "träumen", "person", THAT, manner=""),
    _verb("know/knew/known", "wissen/weiß/wusste/gewusst", "person", WHETHER, stative=True, manner=""),
    _verb("ask", "fragen", "person", WHETHER, manner=""),
    _verb("wonder", "sich fragen", "person", WHETHER, stative=True, manner=""),
    _verb("try", "versuchen", "person", INFINITIVE, manner=""),
    _verb(
        "forget/forgot/forgotten",
        "vergessen/vergisst/vergaß/vergessen",
        "person",
        INFINITIVE,
        stative=True,
        manner="",
    ),
    _verb("begin/began/begun", "an|fangen/fängt/fing/gefangen", "person", INFINITIVE, manner=""),
    _verb("decide", "beschließen/beschließt/beschloss/beschlossen", "adult", INFINITIVE, manner=""),
)

VERBS = _TWO_READINGS + _WITH_OBJECT + _WITHOUT_OBJECT + _WITH_CLAUSE
