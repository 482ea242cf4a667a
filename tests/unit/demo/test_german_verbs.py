"""Conjugation, by hand."""

from __future__ import annotations

import pytest

from syntaxformer.demo.generated.german_verbs import SEIN, GermanVerb, finite
from syntaxformer.demo.generated.lexicon import VERBS

SLOTS = ((1, "sg"), (2, "sg"), (3, "sg"), (1, "pl"), (3, "pl"))


def forms(verb: GermanVerb, *, past: bool) -> str:
    return " ".join(finite(verb, *slot, past=past) for slot in SLOTS)


@pytest.mark.parametrize(
    ("parts", "present", "past"),
    [
        ("spielen", "spiele spielst spielt spielen spielen", "spielte spieltest spielte spielten spielten"),
        ("warten", "warte wartest wartet warten warten", "wartete wartetest wartete warteten warteten"),
        ("öffnen", "öffne öffnest öffnet öffnen öffnen", "öffnete öffnetest öffnete öffneten öffneten"),
        ("bügeln", "bügle bügelst bügelt bügeln bügeln", "bügelte bügeltest bügelte bügelten bügelten"),
        ("putzen", "putze putzt putzt putzen putzen", "putzte putztest putzte putzten putzten"),
        ("sehen/sieht/sah/gesehen", "sehe siehst sieht sehen sehen", "sah sahst sah sahen sahen"),
        ("lesen/liest/las/gelesen", "lese liest liest lesen lesen", "las lasest las lasen lasen"),
        (
            "an|halten/hält/hielt/gehalten",
            "halte hältst hält halten halten",
            "hielt hieltest hielt hielten hielten",
        ),
        ("ein|laden/lädt/lud/geladen", "lade lädst lädt laden laden", "lud ludest lud luden luden"),
        (
            "finden/findet/fand/gefunden",
            "finde findest findet finden finden",
            "fand fandest fand fanden fanden",
        ),
    ],
)
def test_finite_forms(parts, present, past):
    verb = GermanVerb.parse(parts)
    assert forms(verb, past=False) == present
    assert forms(verb, past=True) == past


def test_sein():
    assert forms(SEIN, past=False) == "bin bist ist sind sind"
    assert forms(SEIN, past=True) == "war warst war waren waren"


@pytest.mark.parametrize(
    ("infinitive", "participle"),
    [
        ("kaufen", "gekauft"),
        ("arbeiten", "gearbeitet"),
        ("besuchen", "besucht"),
        ("erzählen", "erzählt"),
        ("reparieren", "repariert"),
        ("überqueren", "überquert"),
        ("öffnen", "geöffnet"),
        ("gehören", "gehört"),
    ],
)
def test_weak_participles(infinitive, participle):
    assert GermanVerb.parse(infinitive).participle == participle


@pytest.mark.parametrize(
    ("infinitive", "imperative"),
    [
        ("nehmen/nimmt/nahm/genommen", "nimm"),
        ("helfen/hilft/half/geholfen", "hilf"),
        ("lesen/liest/las/gelesen", "lies"),
        ("fahren/fährt/fuhr/gefahren+sein", "fahr"),
        ("gießen/gießt/goss/gegossen", "gieß"),
        ("waschen/wäscht/wusch/gewaschen", "wasch"),
        ("warten", "warte"),
        ("bügeln", "bügle"),
        ("kaufen", "kaufe"),
        ("finden/findet/fand/gefunden", "finde"),
    ],
)
def test_imperative(infinitive, imperative):
    assert GermanVerb.parse(infinitive).imperative == imperative


def test_flags_of_the_notation():
    verb = GermanVerb.parse("auf|stehen/steht/stand/gestanden+sein")
    assert (verb.prefix, verb.infinitive, verb.takes_sein, verb.lemma) == ("auf", "stehen", True, "aufstehen")
    assert GermanVerb.parse("sich ducken").reflexive


def test_lexicon_auxiliaries_are_sein_only_for_motion_and_change():
    with_sein = {verb.de.lemma for verb in VERBS if verb.de.takes_sein}
    assert with_sein == {
        "ankommen", "aufgehen", "aufstehen", "aufwachen", "fahren", "fliegen", "folgen", "gehen", "landen",
        "laufen", "schwimmen", "sinken", "weglaufen", "zurückkommen",
    }  # fmt: skip
