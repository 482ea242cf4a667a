"""A contrastive test of agreement from German references: a verb with its own number or the other.

    python experiments/structure/agreement.py test.en test.de out.tsv --treebank de_gsd-ud-dev.conllu.gz
    syntaxformer score MODEL --contrast out.tsv --by distance

Forms come from treebanks alone (`--treebank`, repeatable): the other number of a verb is the most frequent
form of the same lemma, mood, tense and person. Lines are parsed by the bundled `de`, or read from a parsed
file (`--annotator conllu:FILE`). A line gives at most one pair. Left out are subjects whose form does not
show their number, or that may take both.

Source: Sennrich (2017), "How Grammatical is Character-level Neural Machine Translation?", for the kind of
test; differs: numbers are exchanged by a treebank's own forms.
"""

from __future__ import annotations

import argparse
import csv
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from syntaxformer.annotate import load_annotator
from syntaxformer.base.files import atomic_text, read_lines
from syntaxformer.trees import Sentence, read_conllu

OTHER = {"Sing": "Plur", "Plur": "Sing"}
COLUMNS = ("source", "reference", "contrastive", "distance", "attractors", "verb", "subject")
"""`distance`: words from the head of the subject to the verb; `attractors`: nouns of the other number between
them."""

AMBIGUOUS = {"anzahl", "reihe", "gruppe", "teil", "großteil", "mehrheit", "hälfte", "menge", "vielzahl"}
AMBIGUOUS |= {"paar", "prozent"}
"""Lemmas of subjects with which both numbers are right: eine Reihe von Leuten steht, stehen."""

Forms = Mapping[tuple[str, str, str, str], Counter[str]]
"""Lemma, mood, tense and number of the third person → its forms."""


@dataclass(frozen=True)
class Exchange:
    """A verb, its form in the other number, and where its subject stands."""

    verb: int
    form: str
    subject: int
    attractors: int


def features(sentence: Sentence, word: int) -> dict[str, str]:
    """The morphology of a word."""
    cell = (sentence.feats or ())[word] if sentence.feats else "_"
    return dict(item.split("=", 1) for item in cell.split("|") if "=" in item)


def finite_forms(sentences: Iterable[Sentence]) -> Forms:
    """The forms of the third person in treebanks."""
    forms: defaultdict[tuple[str, str, str, str], Counter[str]] = defaultdict(Counter)
    for sentence in sentences:
        for word, form in enumerate(sentence.words):
            if (key := _key(sentence, word)) is not None:
                forms[key][form.lower()] += 1
    return forms


def _key(sentence: Sentence, word: int) -> tuple[str, str, str, str] | None:
    """Lemma, mood, tense and number of a finite verb of the third person."""
    values = features(sentence, word)
    names = [values.get(name) for name in ("Mood", "Tense", "Number")]
    if (sentence.upos or ())[word] not in ("VERB", "AUX") or values.get("Person") != "3" or None in names:
        return None
    lemma = (sentence.lemmas or ())[word].lower()
    return (lemma, *map(str, names))  # type: ignore[return-value]


def exchange(sentence: Sentence, forms: Forms) -> Exchange | None:
    """The first verb of a sentence whose number can be exchanged so that only its agreement is wrong."""
    governors, deprels = sentence.governors or (), sentence.deprels or ()
    children = [[c for c, governor in enumerate(governors) if governor == w] for w in range(len(governors))]
    for subject, deprel in enumerate(deprels):
        head = governors[subject]
        if not deprel.startswith("nsubj") or head < 0 or not _shows_number(sentence, subject, children):
            continue
        number = features(sentence, subject)["Number"]
        subjects = [c for c in children[head] if deprels[c].startswith(("nsubj", "csubj"))]
        verbs = [w for w in (head, *children[head]) if w == head or deprels[w].startswith(("aux", "cop"))]
        finite = [w for w in verbs if _key(sentence, w) is not None]
        if len(subjects) != 1 or len(finite) != 1:
            continue
        verb = finite[0]
        lemma, mood, tense, verb_number = _key(sentence, verb) or ("", "", "", "")
        known = forms.get((lemma, mood, tense, OTHER[number]), Counter())
        if verb_number != number or not known:
            continue
        form = known.most_common(1)[0][0]
        if form in forms.get((lemma, mood, tense, number), ()) or form == sentence.words[verb].lower():
            continue  # one form for both numbers
        between = range(min(subject, verb) + 1, max(subject, verb))
        is_noun = [(sentence.upos or ())[w] in ("NOUN", "PROPN") for w in between]
        others = [features(sentence, w).get("Number") == OTHER[number] for w in between]
        return Exchange(verb, form, subject, sum(a and b for a, b in zip(is_noun, others, strict=True)))
    return None


def _shows_number(sentence: Sentence, subject: int, children: list[list[int]]) -> bool:
    """Whether a subject's number can be seen: of a noun by a determiner, or of a pronoun of one number."""
    deprels = sentence.deprels or ()
    word, lemma = sentence.words[subject].lower(), (sentence.lemmas or ())[subject].lower()
    number = features(sentence, subject).get("Number")
    if number is None or lemma in AMBIGUOUS:
        return False
    if any(deprels[child] in ("conj", "nummod", "appos", "flat") for child in children[subject]):
        return False
    if (sentence.upos or ())[subject] == "PRON":
        return word in ("er", "man", "jemand", "niemand", "jeder")
    determiners = [child for child in children[subject] if deprels[child] == "det"]
    agree = any(features(sentence, child).get("Number") == number for child in determiners)
    return (sentence.upos or ())[subject] == "NOUN" and agree


def contrastive_rows(
    sources: Iterable[str], references: Iterable[Sentence], forms: Forms
) -> Iterator[tuple[str | int, ...]]:
    """Rows of the test, with the values of `COLUMNS`."""
    for source, sentence in zip(sources, references, strict=True):
        if (exchanged := exchange(sentence, forms)) is None:
            continue
        start, end = sentence.offsets[exchanged.verb]
        form = exchanged.form.capitalize() if sentence.text[start].isupper() else exchanged.form
        wrong = sentence.text[:start] + form + sentence.text[end:]
        distance = abs(exchanged.verb - exchanged.subject)
        subject, verb = sentence.words[exchanged.subject], sentence.words[exchanged.verb]
        yield source, sentence.text, wrong, distance, exchanged.attractors, verb, subject


def main() -> None:
    """Write the test."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("source", type=Path)
    parser.add_argument("reference", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("--treebank", type=Path, action="append", required=True, help="CoNLL-U with forms")
    parser.add_argument("--annotator", default="de", help="of the references")
    options = parser.parse_args()
    forms = finite_forms(sentence for path in options.treebank for sentence in read_conllu(path))
    references = load_annotator(options.annotator).annotate(list(read_lines(options.reference)))
    rows = list(contrastive_rows(read_lines(options.source), references, forms))
    with atomic_text(options.output) as file:
        csv.writer(file, delimiter="\t", lineterminator="\n").writerows([COLUMNS, *rows])
    print(f"{options.output}: {len(rows)} pairs")


if __name__ == "__main__":
    main()
