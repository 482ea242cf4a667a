"""Sentences in which a linear and a structural rule part: question formation and tense reinflection.

    python experiments/structure/generate.py question data/question --seed 1
    python experiments/structure/generate.py tense data/tense --seed 1

Written are train, dev, test, general and deep, each as SPLIT.src and SPLIT.tgt, with gold dependency and
constituency trees in SPLIT.conllu and a table of each line's properties in SPLIT.tsv. Pairs of `train`, `dev`
and `test` obey both rules. Those of `general` obey the structural one alone: the auxiliary that moves is not
the first (question), or the noun before the verb has another number than its subject (tense). Those of `deep`
are like `general`, with more embedding than training has ever shown. No source stands in two files.

Source: McCoy, Frank and Linzen (2020), "Does Syntax Need to Grow on Trees?", for the two tasks; differs:
grammar and words are our own, and each sentence has its trees.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from syntaxformer.base.files import atomic_text
from syntaxformer.trees import ROOT, Sentence
from syntaxformer.trees.conllu import write_conllu

NOUNS = ("painter", "sailor", "teacher", "farmer", "singer", "baker", "lawyer", "driver", "dancer", "miner")
NOUNS += ("robot", "tiger", "parrot", "rabbit", "beaver", "donkey", "spider", "turtle", "badger", "monkey")
DETERMINERS = ("the", "my", "our", "your", "some")
ADJECTIVES = ("old", "young", "happy", "quiet", "tall", "small", "clever", "lazy")
N_ADJECTIVES = (0, 0, 0, 1, 1, 2)
"""Before a noun, one of these numbers: so the place of a word does not say which auxiliary is the first."""

PREPOSITIONS = ("near", "behind", "above", "below", "beside")
TRANSITIVE = ("admire", "follow", "greet", "annoy", "call", "help", "remember", "visit")
INTRANSITIVE = ("smile", "sleep", "wait", "cough", "dance", "laugh", "yawn", "travel")
AUXILIARIES = ("can", "could", "will", "would", "should", "must")

COLUMNS = ("construction", "depth", "distance", "attractors", "main", "position")
"""Of the tables. `distance`: words between the head of the subject and the word that agrees with it, `main`;
`attractors`: auxiliaries (question) or nouns of the other number (tense) between the two; `position`: that of
`main` in the target, from 0."""

SPLITS = {"train": 12_000, "dev": 500, "test": 500, "general": 500, "deep": 500}
"""Pairs of each file."""

TRAINING_DEPTH, LARGEST_DEPTH = 2, 4
"""Modifiers inside each other, in training and at most."""


@dataclass(eq=False)
class Word:
    """A word of a tree in the making; `governor` is None for the root."""

    form: str
    upos: str
    tag: str
    deprel: str = "root"
    governor: Word | None = None
    is_plural: bool = False

    @property
    def bracket(self) -> str:
        """Its leaf in a constituency tree."""
        return f"({self.tag} {self.form})"


@dataclass
class Phrase:
    """Words in their order, the one that governs the others, and the brackets around them."""

    words: list[Word]
    head: Word
    brackets: str
    depth: int = 0
    construction: str = "plain"

    def attach(self, governor: Word, deprel: str) -> Phrase:
        """Hang the phrase below a word."""
        self.head.governor, self.head.deprel = governor, deprel
        return self


@dataclass
class Example:
    """A pair with the tree of its source; `properties` are the values of `COLUMNS`."""

    words: list[Word]
    target: list[str]
    brackets: str
    properties: dict[str, str | int] = field(default_factory=dict)

    @property
    def sentence(self) -> Sentence:
        """The source with its trees."""
        places = {id(word): place for place, word in enumerate(self.words)}
        return Sentence.from_words(
            [word.form for word in self.words],
            upos=tuple(word.upos for word in self.words),
            governors=tuple(ROOT if w.governor is None else places[id(w.governor)] for w in self.words),
            deprels=tuple(word.deprel for word in self.words),
            constituency=self.brackets,
        )


class Grammar:
    """Draws phrases. With auxiliaries, each verb has one, as questions need it; otherwise it is inflected."""

    def __init__(self, draw: random.Random, has_auxiliaries: bool) -> None:
        self.draw, self.has_auxiliaries = draw, has_auxiliaries

    def noun_phrase(self, depth: int, clauses: bool = True, is_plural: bool | None = None) -> Phrase:
        """A noun with `depth` modifiers inside each other: prepositional phrases and, if allowed, clauses."""
        plural = self.draw.random() < 0.5 if is_plural is None else is_plural
        noun = Word(self.draw.choice(NOUNS) + "s" * plural, "NOUN", "NNS" if plural else "NN")
        noun.is_plural = plural
        determiner = Word(self.draw.choice(DETERMINERS), "DET", "DT", "det", noun)
        adjectives = [
            Word(self.draw.choice(ADJECTIVES), "ADJ", "JJ", "amod", noun)
            for _ in range(self.draw.choice(N_ADJECTIVES))
        ]
        words = [determiner, *adjectives, noun]
        phrase = Phrase(words, noun, f"(NP {' '.join(word.bracket for word in words)})")
        if not depth:
            return phrase
        modifier = self.draw.choice([self.prepositional, self.relative] if clauses else [self.prepositional])
        inner = modifier(noun, depth, clauses)
        inner.words[:0], inner.head = phrase.words, noun
        inner.brackets = f"(NP {phrase.brackets} {inner.brackets})"
        return inner

    def prepositional(self, noun: Word, depth: int, clauses: bool) -> Phrase:
        """`near the sailors`, below a noun."""
        inner = self.noun_phrase(depth - 1, clauses).attach(noun, "nmod")
        preposition = Word(self.draw.choice(PREPOSITIONS), "ADP", "IN", "case", inner.head)
        brackets = f"(PP {preposition.bracket} {inner.brackets})"
        return Phrase([preposition, *inner.words], inner.head, brackets, depth, "prepositional phrase")

    def relative(self, noun: Word, depth: int, clauses: bool) -> Phrase:
        """`who can follow the sailors` or `who the sailors can follow`, below a noun."""
        if self.draw.random() < 0.5:
            is_transitive = depth > 1 or self.draw.random() < 0.5
            verb = self.verb_phrase(noun.is_plural, depth - 1 if is_transitive else None, clauses)
            who = Word("who", "PRON", "WP", "nsubj", verb.head)
            words, brackets = [who, *verb.words], f"(SBAR (WHNP {who.bracket}) (S {verb.brackets}))"
            construction = "subject clause"
        else:
            subject = self.noun_phrase(depth - 1, clauses)
            verb = self.verb_phrase(subject.head.is_plural, None, clauses, TRANSITIVE)
            subject.attach(verb.head, "nsubj")
            who = Word("who", "PRON", "WP", "obj", verb.head)
            words = [who, *subject.words, *verb.words]
            brackets = f"(SBAR (WHNP {who.bracket}) (S {subject.brackets} {verb.brackets}))"
            construction = "object clause"
        verb.attach(noun, "acl:relcl")
        return Phrase(words, verb.head, brackets, depth, construction)

    def verb_phrase(
        self, plural: bool, depth: int | None, clauses: bool, verbs: tuple[str, ...] | None = None
    ) -> Phrase:
        """A verb with its auxiliary, and an object of a depth; None: without an object."""
        form = self.draw.choice(verbs or (INTRANSITIVE if depth is None else TRANSITIVE))
        verb = Word(
            form if self.has_auxiliaries else past(form), "VERB", "VB" if self.has_auxiliaries else "VBD"
        )
        verb.is_plural, words, brackets = plural, [verb], verb.bracket
        if self.has_auxiliaries:
            auxiliary = Word(self.draw.choice(AUXILIARIES), "AUX", "MD", "aux", verb)
            words, brackets = [auxiliary, verb], f"{auxiliary.bracket} {brackets}"
        if depth is not None:
            item = self.noun_phrase(depth, clauses).attach(verb, "obj")
            words, brackets = [*words, *item.words], f"{brackets} {item.brackets}"
        return Phrase(words, verb, f"(VP {brackets})")

    def clause(
        self, depths: tuple[int, int | None], clauses: tuple[bool, bool], symbol: str
    ) -> tuple[Phrase, Phrase]:
        """Subject and verb phrase of a sentence that ends in a full stop and a symbol.

        `depths` and `clauses` are those of subject and object. The words of the verb phrase have the end.
        """
        subject = self.noun_phrase(depths[0], clauses[0])
        verb = self.verb_phrase(subject.head.is_plural, depths[1], clauses[1])
        subject.attach(verb.head, "nsubj")
        end = [Word(".", "PUNCT", ".", "punct", verb.head), Word(symbol, "SYM", "SYM", "dep", verb.head)]
        verb.words += end
        verb.brackets += f" {end[0].bracket} {end[1].bracket}"
        return subject, verb


def past(verb: str) -> str:
    """The past tense of a regular verb."""
    return f"{verb}d" if verb.endswith("e") else f"{verb}ed"


def present(verb: Word) -> str:
    """The present tense of a verb in the past."""
    stem = next(form for form in (*TRANSITIVE, *INTRANSITIVE) if past(form) == verb.form)
    return stem if verb.is_plural else f"{stem}es" if stem.endswith("ch") else f"{stem}s"


def _properties(subject: Phrase, main: str, position: int, attractors: int) -> dict[str, str | int]:
    start = subject.words.index(subject.head)
    distance = len(subject.words) - start - 1
    values = (subject.construction, subject.depth, distance, attractors, main, position)
    return dict(zip(COLUMNS, values, strict=True))


def _draw_form(draw: random.Random, split: str) -> tuple[bool, bool, int]:
    """Whether only the structural rule is right, whether the sentence changes, and its subject's depth."""
    is_new = split in ("general", "deep")
    is_transformed = is_new or draw.random() < 0.5
    first, last = (TRAINING_DEPTH + 1, LARGEST_DEPTH) if split == "deep" else (0, TRAINING_DEPTH)
    return is_new, is_transformed, draw.randint(first, last)


def question(draw: random.Random, split: str) -> Example | None:
    """A statement that is copied (`decl`) or asked (`quest`): the main verb's auxiliary comes first.

    In training no asked subject has a clause, so the main auxiliary is also the first.
    """
    is_new, is_asked, depth = _draw_form(draw, split)
    in_object = draw.choice([None, 0, 1])
    grammar, symbol = Grammar(draw, has_auxiliaries=True), "quest" if is_asked else "decl"
    subject, verb = grammar.clause((depth, in_object), (is_new or not is_asked, True), symbol)
    words, main = [*subject.words, *verb.words], verb.words[0]
    before = [word.form for word in subject.words if word.upos == "AUX"]
    if is_new and (not before or before[0] == main.form):
        return None  # both rules move the same word
    target = [word.form for word in words[:-2] if word is not main or not is_asked]
    target = [main.form, *target, "?"] if is_asked else [*target, "."]
    brackets = f"(S {subject.brackets} {verb.brackets})"
    position = 0 if is_asked else len(subject.words)
    return Example(words, target, brackets, _properties(subject, main.form, position, len(before)))


def tense(draw: random.Random, split: str) -> Example | None:
    """A sentence in the past that is copied (`past`) or put into the present tense (`present`).

    In training, the noun before the main verb of a sentence to change has the number of its subject.
    """
    is_new, is_changed, depth = _draw_form(draw, split)
    grammar, symbol = Grammar(draw, has_auxiliaries=False), "present" if is_changed else "past"
    subject, verb = grammar.clause((depth, draw.choice([None, 0, 1])), (True, True), symbol)
    nouns = [word for word in subject.words if word.upos == "NOUN"]
    if is_changed and (nouns[-1].is_plural != subject.head.is_plural) != is_new:
        return None
    words = [*subject.words, *verb.words]
    is_verb = {id(word) for word in words if word.upos == "VERB"} if is_changed else set()
    target = [present(word) if id(word) in is_verb else word.form for word in words[:-2]]
    others = sum(noun.is_plural != subject.head.is_plural for noun in nouns[1:])
    position = len(subject.words)
    properties = _properties(subject, target[position], position, others)
    return Example(words, [*target, "."], f"(S {subject.brackets} {verb.brackets})", properties)


TASKS: dict[str, Callable[[random.Random, str], Example | None]] = {"question": question, "tense": tense}


def generate(task: str, seed: int, sizes: dict[str, int] = SPLITS) -> dict[str, list[Example]]:
    """All files of a task; the same for the same seed."""
    sources: set[str] = set()
    files: dict[str, list[Example]] = {}
    for split in sorted(
        sizes, key=lambda name: name == "train"
    ):  # the small ones get the short sentences, too
        draw, examples = random.Random(f"{task} {seed} {split}"), list[Example]()
        while len(examples) < sizes[split]:
            example = TASKS[task](draw, split)
            if example is not None and example.sentence.text not in sources:
                sources.add(example.sentence.text)
                examples.append(example)
        files[split] = examples
    return files


def write(folder: Path, files: dict[str, list[Example]]) -> None:
    """Write text, trees and tables of each split."""
    folder.mkdir(parents=True, exist_ok=True)
    for split, examples in files.items():
        sentences = [example.sentence for example in examples]
        write_conllu(folder / f"{split}.conllu", sentences)
        rows = ["\t".join(COLUMNS), *("\t".join(map(str, e.properties.values())) for e in examples)]
        texts = {
            "src": [s.text for s in sentences],
            "tgt": [" ".join(e.target) for e in examples],
            "tsv": rows,
        }
        for ending, lines in texts.items():
            with atomic_text(folder / f"{split}.{ending}") as file:
                file.writelines(f"{line}\n" for line in lines)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("task", choices=TASKS)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--pairs", type=int, default=SPLITS["train"], help="training pairs")
    chosen = parser.parse_args()
    write(chosen.folder, generate(chosen.task, chosen.seed, {**SPLITS, "train": chosen.pairs}))
