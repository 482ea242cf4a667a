"""Meanings and what a German grammarian says they are in English and in German.

Every expected sentence was written by hand from the meaning beside it.
"""

from __future__ import annotations

import pytest

from syntaxformer.demo.generated import meaning as m
from syntaxformer.demo.generated.features import Tense
from syntaxformer.demo.generated.lexicon import (
    ADJECTIVES,
    ADVERBS,
    BE,
    CONJUNCTIONS,
    DETERMINERS,
    MODALS,
    NAMES,
    NOUNS,
    PREPOSITIONS,
    THERE_IS,
    VERBS,
)
from syntaxformer.demo.generated.lexicon.entries import Preposition, Verb
from syntaxformer.demo.generated.realise_de import german
from syntaxformer.demo.generated.realise_en import english
from syntaxformer.demo.generated.surface import to_sentence

NOUN = {noun.en: noun for noun in NOUNS}
ADJECTIVE = {adjective.en: adjective for adjective in ADJECTIVES}
MODAL = {modal.en_present.base: modal for modal in MODALS}
CONJUNCTION = {conjunction.en: conjunction for conjunction in CONJUNCTIONS}

ME, YOU, HE, SHE, WE, THEY = (
    m.Pronoun(1, "sg"), m.Pronoun(2, "sg"), m.Pronoun(3, "sg", "m"), m.Pronoun(3, "sg", "f"),
    m.Pronoun(1, "pl"), m.Pronoun(3, "pl"),
)  # fmt: skip
ANNA, PAUL = NAMES[0], NAMES[4]
PAST, PERFECT, FUTURE = Tense.PAST, Tense.PERFECT, Tense.FUTURE


KIND = {m.PrepPhrase: ("place", "goal"), m.Complement: ("that", "whether", "infinitive")}


def the(noun: str, *adjectives: str, **more) -> m.NounPhrase:
    return np(noun, "the", *adjectives, **more)


def a(noun: str, *adjectives: str, **more) -> m.NounPhrase:
    return np(noun, "a", *adjectives, **more)


def np(noun: str, determiner: str | None, *adjectives: str, number="sg", **more) -> m.NounPhrase:
    chosen = tuple(ADJECTIVE[adjective] for adjective in adjectives)
    return m.NounPhrase(NOUN[noun], number, DETERMINERS.get(determiner), chosen, **more)


def does(subject, verb: str, *arguments, tense=Tense.PRESENT, **more) -> m.Clause:
    return m.Clause(frame(verb, *arguments), subject, arguments, tense, **more)


def frame(lemma: str, *arguments) -> Verb:
    """The entry of a German verb that takes such arguments; "lemma:english" where two have the same."""
    lemma, _, base = lemma.partition(":")
    return next(
        verb
        for verb in VERBS
        if verb.de.lemma == lemma and base in ("", verb.en.base) and fits(verb, arguments)
    )


def fits(verb: Verb, arguments) -> bool:
    kinds = [KIND.get(type(argument), ("nominal",)) for argument in arguments]
    return len(kinds) == len(verb.slots) and all(
        slot.kind in kind for slot, kind in zip(verb.slots, kinds, strict=True)
    )


def when(adverb: str) -> m.Adverbial:
    entry = next(entry for entry in ADVERBS if entry.en == adverb)
    return m.Adverbial(entry.role, entry)


def where(en: str, de: str, nominal, case="dat") -> m.Adverbial:
    return m.Adverbial("place", m.PrepPhrase(Preposition(en, de, case), nominal))


def during(preposition: str, nominal) -> m.Adverbial:
    return m.Adverbial("time", m.PrepPhrase(PREPOSITIONS[preposition], nominal))


def that(noun: str, number="sg", en="that") -> m.RelativePronoun:
    return m.RelativePronoun(NOUN[noun], number, en)


def is_(subject, adjective: str, **more) -> m.Clause:
    return m.Clause(BE, subject, (m.Adjectival(ADJECTIVE[adjective]),), **more)


STATEMENTS = {
    "verb second after the subject": (
        does(the("man"), "sehen", the("dog"), tense=PAST),
        "The man saw the dog.",
        "Der Mann sah den Hund.",
    ),
    "verb second after an adverb": (
        does(the("man"), "sehen", the("dog"), tense=PAST, adverbials=(when("yesterday"),), fronted=True),
        "Yesterday the man saw the dog.",
        "Gestern sah der Mann den Hund.",
    ),
    "verb second after a prepositional phrase": (
        does(SHE, "lesen", a("book"), adverbials=(where("in", "in", the("garden")),), fronted=True),
        "In the garden, she reads a book.",
        "Im Garten liest sie ein Buch.",
    ),
    "both readings of watch": (
        does(the("guard", number="pl"), "beobachten", the("watch")),
        "The guards watch the watch.",
        "Die Wächter beobachten die Uhr.",
    ),
    "the old man the boats": (
        does(m.NominalAdjective(ADJECTIVE["old"]), "bemannen", the("boat", number="pl")),
        "The old man the boats.",
        "Die Alten bemannen die Boote.",
    ),
    "bare plurals": (
        does(np("cook", None, number="pl"), "gießen", np("plant", None, number="pl")),
        "Cooks water plants.",
        "Köche gießen Pflanzen.",
    ),
    "perfect with haben": (
        does(the("boy"), "bügeln", a("shirt", "red"), tense=PERFECT),
        "The boy has ironed a red shirt.",
        "Der Junge hat ein rotes Hemd gebügelt.",
    ),
    "perfect with sein": (
        does(ME, "schwimmen", tense=PERFECT, adverbials=(where("at", "an", the("lake")),)),
        "I have swum at the lake.",
        "Ich bin am See geschwommen.",
    ),
    "progressive is no form of its own": (
        does(the("child", number="pl"), "pflanzen", a("tree"), tense=Tense.PROGRESSIVE),
        "The children are planting a tree.",
        "Die Kinder pflanzen einen Baum.",
    ),
    "future": (
        does(HE, "buchen", a("room"), tense=FUTURE, adverbials=(when("tomorrow"),)),
        "He will book a room tomorrow.",
        "Er wird morgen ein Zimmer buchen.",
    ),
    "modal": (
        does(YOU, "öffnen", np("can", "this"), modal=MODAL["can"]),
        "You can open this can.",
        "Du kannst diese Dose öffnen.",
    ),
    "a modal that English says with to": (
        does(SHE, "kaufen", a("dress", "blue"), modal=MODAL["want"]),
        "She wants to buy a blue dress.",
        "Sie will ein blaues Kleid kaufen.",
    ),
    "separable verb, present": (
        does(HE, "anrufen", the("doctor")), "He calls the doctor.", "Er ruft den Arzt an."
    ),
    "separable verb, perfect": (
        does(HE, "anrufen", the("doctor"), tense=PERFECT),
        "He has called the doctor.",
        "Er hat den Arzt angerufen.",
    ),
    "separable verb, particle on both sides": (
        does(SHE, "einschalten", the("light"), tense=PAST, particle_last=True),
        "She turned the light on.",
        "Sie schaltete das Licht ein.",
    ),
    "dative verb": (
        does(the("student"), "helfen", the("neighbour", "old")),
        "The student helps the old neighbour.",
        "Der Student hilft dem alten Nachbarn.",
    ),
    "two objects, recipient first": (
        does(the("woman"), "geben", a("apple"), the("child"), tense=PAST, shifted=True),
        "The woman gave the child an apple.",
        "Die Frau gab dem Kind einen Apfel.",
    ),
    "pronouns come before noun phrases": (
        does(PAUL, "zeigen", the("picture"), SHE, tense=PAST, adverbials=(when("today"),)),
        "Paul showed the picture to her today.",
        "Paul zeigte ihr heute das Bild.",
    ),
    "accusative pronoun before dative noun": (
        does(the("judge"), "schicken", m.Pronoun(3, "pl"), the("king"), tense=FUTURE),
        "The judge will send them to the king.",
        "Der Richter wird sie dem König schicken.",
    ),
    "often": (
        does(the("teacher"), "vorstellen", the("plan"), adverbials=(when("often"),)),
        "The teacher often presents the plan.",
        "Der Lehrer stellt den Plan oft vor.",
    ),
    "prepositional object": (
        does(WE, "warten", the("train"), tense=PAST), "We waited for the train.", "Wir warteten auf den Zug."
    ),
    "where to: accusative": (
        does(the("dog"), "laufen", m.PrepPhrase(Preposition("into", "in", "acc"), the("garden")), tense=PAST),
        "The dog ran into the garden.",
        "Der Hund lief in den Garten.",
    ),
    "where: dative": (
        does(the("watch"), "liegen", m.PrepPhrase(Preposition("on", "auf", "dat"), the("table"))),
        "The watch lies on the table.",
        "Die Uhr liegt auf dem Tisch.",
    ),
    "genitive preposition": (
        does(THEY, "schlafen", tense=PAST, adverbials=(during("during", the("play")),)),
        "They slept during the play.",
        "Sie schliefen während des Stücks.",
    ),
    "kein": (
        does(the("judge"), "brauchen", a("saw"), negated=True),
        "The judge does not need a saw.",
        "Der Richter braucht keine Säge.",
    ),
    "nicht after a definite object": (
        does(the("cow"), "sehen", the("fly"), negated=True, contracted=True),
        "The cow doesn't see the fly.",
        "Die Kuh sieht die Fliege nicht.",
    ),
    "nicht before a prepositional object": (
        does(ME, "warten", YOU, tense=FUTURE, negated=True, contracted=True),
        "I won't wait for you.",
        "Ich werde nicht auf dich warten.",
    ),
    "cannot": (
        does(the("bear"), "ertragen", the("heat"), modal=MODAL["can"], negated=True),
        "The bear cannot bear the heat.",
        "Der Bär kann die Hitze nicht ertragen.",
    ),
    "nicht before a predicate": (
        is_(the("box"), "light", negated=True), "The box is not light.", "Die Kiste ist nicht leicht."
    ),
    "reflexive": (does(the("duck"), "ducken", tense=PAST), "The duck ducked.", "Die Ente duckte sich."),
    "reflexive of the first person": (
        does(ME, "erinnern", the("walk")),
        "I remember the walk.",
        "Ich erinnere mich an den Spaziergang.",
    ),
    "names in the genitive": (
        does(np("friend", None, possessor=ANNA), "verlassen", the("city"), tense=PAST),
        "Anna's friend left the city.",
        "Annas Freund verließ die Stadt.",
    ),
    "genitive after the noun": (
        does(np("sister", None, possessor=the("farmer")), "melken", the("cow")),
        "The farmer's sister milks the cow.",
        "Die Schwester des Bauern melkt die Kuh.",
    ),
    "possessive": (
        does(ME, "sehen", np("duck", None, possessor=SHE), tense=PAST), "I saw her duck.", "Ich sah ihre Ente."
    ),
    "passive": (
        does(the("farmer", number="pl"), "gießen", the("rose", number="pl"), tense=PAST, passive=True),
        "The roses were watered by the farmers.",
        "Die Rosen wurden von den Bauern gegossen.",
    ),
    "passive perfect without agent": (
        does(None, "unterschreiben", the("letter"), tense=PERFECT, passive=True),
        "The letter has been signed.",
        "Der Brief ist unterschrieben worden.",
    ),
    "there is": (
        m.Clause(
            THERE_IS, m.Expletive("sg"), (a("bear"),), adverbials=(where("in", "in", the("forest")),), fronted=True
        ),
        "In the forest, there is a bear.",
        "Im Wald gibt es einen Bären.",
    ),
    "coordination": (
        does(m.Coordinated(PAUL, the("king")), "spielen", the("game")),
        "Paul and the king play the game.",
        "Paul und der König spielen das Spiel.",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", STATEMENTS)
def test_statement(name):
    clause, source, target = STATEMENTS[name]
    assert said(m.Utterance(clause)) == (source, target)


def said(utterance: m.Utterance) -> tuple[str, str]:
    return to_sentence(english(utterance)).text, to_sentence(german(utterance)).text


RELATIVES = {
    "subject": (
        does(
            the("woman", relative=m.Relative(does(that("woman", en="who"), "gießen", the("plant")))), "lachen"
        ),
        "The woman who waters the plant laughs.",
        "Die Frau, die die Pflanze gießt, lacht.",
    ),
    "object without pronoun": (
        does(the("plant", relative=m.Relative(does(SHE, "gießen", that("plant", en="")))), "gehören", HE),
        "The plant she waters belongs to him.",
        "Die Pflanze, die sie gießt, gehört ihm.",
    ),
    "dative": (
        does(the("man", relative=m.Relative(does(WE, "helfen", that("man"), tense=PAST))), "lachen"),
        "The man that we helped laughs.",
        "Der Mann, dem wir halfen, lacht.",
    ),
    "stranded preposition": (
        does(
            the("guest", number="pl", relative=m.Relative(does(SHE, "warten", that("guest", "pl", "")))),
            "singen",
        ),
        "The guests she waits for sing.",
        "Die Gäste, auf die sie wartet, singen.",
    ),
    "preposition with its pronoun": (
        does(the("king", relative=m.Relative(does(ME, "träumen", that("king", en="who")))), "schlafen"),
        "The king of whom I dream sleeps.",
        "Der König, von dem ich träume, schläft.",
    ),
    "behind the right bracket": (
        does(
            HE,
            "verlieren",
            the("watch", relative=m.Relative(does(ANNA, "kaufen", that("watch"), tense=PAST))),
            tense=PERFECT,
        ),
        "He has lost the watch that Anna bought.",
        "Er hat die Uhr verloren, die Anna kaufte.",
    ),
}


@pytest.mark.parametrize("name", RELATIVES)
def test_relative_clause(name):
    clause, source, target = RELATIVES[name]
    assert said(m.Utterance(clause)) == (source, target)


def because(conjunction: str, clause: m.Clause, *, first: bool = False) -> m.Subordinate:
    return m.Subordinate(CONJUNCTION[conjunction], clause, first)


def says(subject, verb: str, kind: str, clause: m.Clause, *, silent: bool = False) -> m.Clause:
    entry = next(v for v in VERBS if v.de.lemma == verb and v.slots and v.slots[0].kind == kind)
    return m.Clause(entry, subject, (m.Complement(kind, clause, silent),))


EMBEDDED = {
    "weil with a separable verb": (
        does(the("nurse"), "lachen", subordinate=because("because", does(HE, "anrufen", the("man")))),
        "The nurse laughs because he calls the man.",
        "Die Krankenschwester lacht, weil er den Mann anruft.",
    ),
    "clause first, verb second": (
        does(PAUL, "schlafen", tense=PAST, subordinate=because("although", is_(HE, "hungry", tense=PAST), first=True)),
        "Although he was hungry, Paul slept.",
        "Obwohl er hungrig war, schlief Paul.",
    ),
    "when in the past is als": (
        does(ME, "lachen", tense=PAST, subordinate=because("when", does(the("duck"), "ducken", tense=PAST))),
        "I laughed when the duck ducked.",
        "Ich lachte, als die Ente sich duckte.",
    ),
    "when in the present is wenn": (
        does(ME, "lachen", subordinate=because("when", does(the("phone"), "klingeln"))),
        "I laugh when the phone rings.",
        "Ich lache, wenn das Telefon klingelt.",
    ),
    "after with the pluperfect": (
        does(WE, "tanzen", tense=PAST, subordinate=because("after", does(SHE, "essen", the("cake"), tense=Tense.PLUPERFECT))),
        "We danced after she had eaten the cake.",
        "Wir tanzten, nachdem sie den Kuchen gegessen hatte.",
    ),
    "dass with a modal": (
        says(SHE, "hoffen", "that", does(THEY, "reparieren", the("bus"), modal=MODAL["can"])),
        "She hopes that they can repair the bus.",
        "Sie hofft, dass sie den Bus reparieren können.",
    ),
    "silent that": (
        says(HE, "hoffen", "that", does(the("duck", number="pl"), "fliegen"), silent=True),
        "He hopes the ducks fly.",
        "Er hofft, dass die Enten fliegen.",
    ),
    "ob, and the passive at the end": (
        says(ME, "wissen", "whether", does(None, "buchen", the("trip"), tense=PERFECT, passive=True)),
        "I know whether the trip has been booked.",
        "Ich weiß, ob die Reise gebucht worden ist.",
    ),
    "zu inside a separable verb": (
        says(HE, "versuchen", "infinitive", does(None, "anzünden", the("candle"), tense=Tense.INFINITIVE)),
        "He tries to light the candle.",
        "Er versucht, die Kerze anzuzünden.",
    ),
    "um ... zu": (
        does(
            SHE, "gehen:go", m.PrepPhrase(Preposition("into", "in", "acc"), the("shop")),
            subordinate=m.Subordinate(None, does(None, "kaufen", np("bread", None), tense=Tense.INFINITIVE)),
        ),
        "She goes into the shop to buy bread.",
        "Sie geht in den Laden, um Brot zu kaufen.",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", EMBEDDED)
def test_embedded_clause(name):
    clause, source, target = EMBEDDED[name]
    assert said(m.Utterance(clause)) == (source, target)


def test_two_levels_of_embedding():
    innermost = does(the("cook"), "schlafen", tense=PAST)
    outer = says(SHE, "hoffen", "that", says(HE, "glauben", "that", innermost))
    assert said(m.Utterance(outer)) == (
        "She hopes that he believes that the cook slept.",
        "Sie hofft, dass er glaubt, dass der Koch schlief.",
    )


QUESTIONS = {
    "yes or no": (does(YOU, "sehen", the("saw"), tense=PAST), "Did you see the saw?", "Sahst du die Säge?"),
    "who": (does(m.Interrogative("who"), "gießen", the("rose", number="pl")), "Who waters the roses?", "Wer gießt die Rosen?"),
    "whom, accusative": (does(the("king"), "entlassen", m.Interrogative("who"), tense=PAST), "Who did the king fire?", "Wen entließ der König?"),
    "whom, dative": (does(the("king"), "helfen", m.Interrogative("who")), "Who does the king help?", "Wem hilft der König?"),
    "what": (does(SHE, "kochen", m.Interrogative("what"), tense=PERFECT), "What has she cooked?", "Was hat sie gekocht?"),
    "which": (does(HE, "lesen", np("book", "which"), tense=FUTURE), "Which book will he read?", "Welches Buch wird er lesen?"),
    "where": (
        does(the("train"), "anhalten", adverbials=(m.Adverbial("time", m.WhAdverb("where")),)),
        "Where does the train stop?",
        "Wo hält der Zug an?",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", QUESTIONS)
def test_question(name):
    clause, source, target = QUESTIONS[name]
    assert said(m.Utterance(clause, "question")) == (source, target)


@pytest.mark.parametrize(
    ("clause", "source", "target"),
    [
        (does(None, "gießen", the("plant", number="pl")), "Water the plants.", "Gieß die Pflanzen."),
        (does(None, "ausschalten", the("lamp")), "Turn off the lamp.", "Schalte die Lampe aus."),
        (does(None, "helfen", HE), "Help him.", "Hilf ihm."),
        (does(None, "öffnen", the("door"), negated=True, contracted=True), "Don't open the door.", "Öffne die Tür nicht."),
    ],
)  # fmt: skip
def test_command(clause, source, target):
    assert said(m.Utterance(clause, "command")) == (source, target)


def test_two_main_clauses():
    first = does(the("man"), "schließen", the("door"))
    assert said(m.Utterance(first, also=does(None, "verlassen", the("house")))) == (
        "The man closes the door and leaves the house.",
        "Der Mann schließt die Tür und verlässt das Haus.",
    )
    second = does(PAUL, "schlafen", tense=PAST)
    assert said(m.Utterance(does(ANNA, "singen", tense=PAST), also=second, linker="but")) == (
        "Anna sang, but Paul slept.",
        "Anna sang, aber Paul schlief.",
    )


def test_trees_of_both_sides():
    clause = does(
        the("guard"), "anrufen", the("doctor"), tense=PAST, adverbials=(when("yesterday"),), fronted=True
    )
    source, target = (to_sentence(side(m.Utterance(clause))) for side in (english, german))
    assert source.upos == ("NOUN", "DET", "NOUN", "VERB", "DET", "NOUN", "PUNCT")
    assert source.governors == (3, 2, 3, -1, 5, 3, 3)
    assert source.deprels == ("obl:unmarked", "det", "nsubj", "root", "det", "obj", "punct")
    assert source.constituency == (
        "(S (NP (NN Yesterday)) (NP (DT the) (NN guard)) (VP (VBD called) (NP (DT the) (NN doctor))) (. .))"
    )
    assert target.words == ("Gestern", "rief", "der", "Wächter", "den", "Arzt", "an", ".")
    assert target.upos == ("ADV", "VERB", "DET", "NOUN", "DET", "NOUN", "ADP", "PUNCT")
    assert target.governors == (1, -1, 3, 1, 5, 1, 1, 1)
    assert target.deprels == ("advmod", "root", "det", "nsubj", "det", "obj", "compound:prt", "punct")
