"""English-German pairs with gold trees on the English side, for tests that compare with what is right.

    NP VERB NP [with NP] [ADV]    NP: the [ADJ] NOUN [in NP]

A sentence is drawn from the grammar once; the German one says the same with its own genders and cases.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from syntaxformer.trees import ROOT, Sentence, write_conllu

NOUNS = {
    "dog": ("m", "Hund"), "man": ("m", "Mann"), "table": ("m", "Tisch"), "garden": ("m", "Garten"),
    "woman": ("f", "Frau"), "cat": ("f", "Katze"), "rose": ("f", "Rose"), "street": ("f", "Straße"),
    "child": ("n", "Kind"), "house": ("n", "Haus"), "book": ("n", "Buch"), "plant": ("f", "Pflanze"),
}  # fmt: skip
VERBS = {
    "sees": "sieht", "finds": "findet", "buys": "kauft", "seeks": "sucht", "paints": "malt", "loves": "liebt",
    "watches": "beobachtet", "plants": "pflanzt", "books": "bucht",
}  # fmt: skip
ADJECTIVES = {
    "red": "rot", "old": "alt", "small": "klein", "new": "neu", "light": "leicht", "quiet": "ruhig", "warm": "warm",
}  # fmt: skip
ADVERBS = {"today": "heute", "often": "oft", "now": "jetzt", "here": "hier"}
CASES = {
    "nom": {"m": "er", "f": "ie", "n": "as"},
    "acc": {"m": "en", "f": "ie", "n": "as"},
    "dat": {"m": "em", "f": "er", "n": "em"},
}
"""What follows "d" in the article, by case and gender."""


@dataclass(eq=False)
class Word:
    """An English word and its place in the tree."""

    form: str
    upos: str
    governor: Word | None = None
    deprel: str = "root"


class Pair(NamedTuple):
    """The English sentence with its tree, and the German text."""

    en: Sentence
    de: str


def toy_pairs(n_pairs: int, seed: int = 1) -> list[Pair]:
    """Pairs with distinct English sides, in an order that depends on the seed alone."""
    rng = random.Random(seed)
    pairs: dict[str, Pair] = {}
    while len(pairs) < n_pairs:
        pair = _pair(rng)
        pairs.setdefault(pair.en.text, pair)
    return list(pairs.values())


def write_pairs(folder: Path, parts: dict[str, list[Pair]]) -> None:
    """SPLIT.en, SPLIT.de and the gold trees, SPLIT.en.conllu."""
    folder.mkdir(parents=True, exist_ok=True)
    for split, pairs in parts.items():
        (folder / f"{split}.en").write_text("".join(f"{pair.en.text}\n" for pair in pairs), "utf-8")
        (folder / f"{split}.de").write_text("".join(f"{pair.de}\n" for pair in pairs), "utf-8")
        write_conllu(folder / f"{split}.en.conllu", [pair.en for pair in pairs])


def _pair(rng: random.Random) -> Pair:
    form, german_verb = rng.choice(list(VERBS.items()))
    verb = Word(form, "VERB")
    subject, german_subject = _noun_phrase(rng, "nom", verb, "nsubj")
    object_, german_object = _noun_phrase(rng, "acc", verb, "obj")
    words, german = [*subject, verb, *object_], [german_subject, german_verb, german_object]
    if rng.random() < 0.4:
        companion, german_companion = _noun_phrase(rng, "dat", verb, "obl", ("with", "mit"))
        words, german = [*words, *companion], [*german, german_companion]
    if rng.random() < 0.4:
        adverb, german_adverb = rng.choice(list(ADVERBS.items()))
        words.append(Word(adverb, "ADV", verb, "advmod"))
        german.insert(2, german_adverb)
    words.append(Word(".", "PUNCT", verb, "punct"))
    places = {None: ROOT, **{word: place for place, word in enumerate(words)}}
    sentence = Sentence.from_words(
        (words[0].form.capitalize(), *(word.form for word in words[1:])),
        upos=tuple(word.upos for word in words),
        governors=tuple(places[word.governor] for word in words),
        deprels=tuple(word.deprel for word in words),
    )
    text = " ".join(german)
    return Pair(sentence, f"{text[0].upper()}{text[1:]} .")


def _noun_phrase(
    rng: random.Random, case: str, governor: Word, deprel: str, preposition: tuple[str, str] | None = None
) -> tuple[list[Word], str]:
    """[ADP] DET [ADJ] NOUN [in NP], and the same in German."""
    form, (gender, german_noun) = rng.choice(list(NOUNS.items()))
    noun = Word(form, "NOUN", governor, deprel)
    words, german = [Word("the", "DET", noun, "det")], [f"d{CASES[case][gender]}"]
    if preposition:
        words.insert(0, Word(preposition[0], "ADP", noun, "case"))
        german.insert(0, preposition[1])
    if rng.random() < 0.4:
        adjective, german_adjective = rng.choice(list(ADJECTIVES.items()))
        words.append(Word(adjective, "ADJ", noun, "amod"))
        weak = "en" if case == "dat" or (case, gender) == ("acc", "m") else "e"
        german.append(german_adjective + weak)
    words, german = [*words, noun], [*german, german_noun]
    if preposition is None and rng.random() < 0.3:
        place, german_place = _noun_phrase(rng, "dat", noun, "nmod", ("in", "in"))
        words, german = [*words, *place], [*german, german_place]
    return words, " ".join(german)
