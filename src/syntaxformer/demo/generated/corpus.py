"""The demo corpus: distinct English-German pairs with gold trees, split so that no sentence is in two parts.

The test part holds two kinds of pairs: ordinary ones, and ones in which two ambiguous words meet that never
meet in training ("plant" the verb with "rose" the noun), though each is trained in both readings.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path

from syntaxformer.demo.generated.grammar import Focus, Grammar
from syntaxformer.demo.generated.lexicon import AMBIGUOUS_ENTRIES, READINGS, Reading
from syntaxformer.demo.generated.realise_de import german
from syntaxformer.demo.generated.realise_en import english
from syntaxformer.demo.generated.surface import to_sentence
from syntaxformer.trees import Sentence, write_conllu

__all__ = ["DemoPair", "DemoSplits", "demo_corpus", "split", "write_demo"]

MIN_WORDS, MAX_WORDS = 4, 20
_FOCUSED_FRAC = 0.5
_HELD_OUT_FRAC = 0.3
_CONTENT = frozenset({"NOUN", "VERB", "ADJ", "PROPN"})
_READINGS = frozenset(reading for readings in READINGS.values() for reading in readings)

Combination = frozenset[Reading]
"""Two ambiguous words, each in one reading, of which one governs the other."""


@dataclass(frozen=True, slots=True)
class DemoPair:
    """A sentence in both languages, each with its gold tree; the English one also has a bracketed tree."""

    en: Sentence
    de: Sentence

    @property
    def readings(self) -> frozenset[Reading]:
        """Lemma and part of speech of every ambiguous English word in the sentence."""
        return frozenset(
            reading
            for form, reading in zip(self.en.words, _lemma_tags(self.en), strict=True)
            if reading in READINGS.get(form.lower(), ())
        )

    @property
    def combinations(self) -> frozenset[Combination]:
        """Pairs of ambiguous words that depend on each other."""
        tags = _lemma_tags(self.en)
        edges = enumerate(self.en.governors or ())
        linked = (frozenset((tags[word], tags[governor])) for word, governor in edges if governor >= 0)
        return frozenset(
            pair for pair in linked if len(pair) == 2 and pair <= self.readings & _CONTENT_READINGS
        )


_CONTENT_READINGS = frozenset(reading for reading in _READINGS if reading[1] in _CONTENT)


@dataclass(frozen=True, slots=True)
class DemoSplits:
    """The three parts; `held_out` names the combinations that only the test part holds."""

    train: list[DemoPair]
    valid: list[DemoPair]
    test: list[DemoPair]
    held_out: frozenset[Combination]

    def parts(self) -> Iterator[tuple[str, list[DemoPair]]]:
        """Name and pairs of each part."""
        yield from (("train", self.train), ("valid", self.valid), ("test", self.test))


def demo_corpus(n_pairs: int = 8000, seed: int = 1) -> list[DemoPair]:
    """Generate pairs with distinct English sides, in an order that depends on the seed alone.

    Args:
        n_pairs: How many, at least 1.
        seed: Seed of every choice.

    Returns:
        The pairs; every second one is about an ambiguous word, all of them in turn.

    Raises:
        ValueError: `n_pairs` is not positive.
    """
    if n_pairs < 1:
        raise ValueError(f"n_pairs: expected an integer >= 1, got {n_pairs}.")
    pairs: dict[str, DemoPair] = {}
    grammar = Grammar(seed)
    for focus in _focuses(random.Random(seed)):
        pair = _draw(grammar, focus)
        if pair is not None:
            pairs.setdefault(pair.en.text, pair)
        if len(pairs) == n_pairs:
            break
    return list(pairs.values())


def split(pairs: Sequence[DemoPair], n_valid: int = 300, n_test: int = 500, seed: int = 1) -> DemoSplits:
    """Split pairs into train, valid and test.

    Three tenths of the test part are pairs with a held-out combination; every reading of every ambiguous word
    that the corpus has is in the test part at least once, if there is room.

    Args:
        pairs: Pairs with distinct English sides.
        n_valid: Size of the validation part.
        n_test: Size of the test part.
        seed: Seed of the shuffle.

    Returns:
        The parts. Pairs with a held-out combination that do not fit into the test part are left out.

    Raises:
        ValueError: There are not more pairs than `n_valid + n_test`.
    """
    if len(pairs) <= n_valid + n_test:
        raise ValueError(
            f"pairs: expected more than n_valid + n_test = {n_valid + n_test}, got {len(pairs)}. "
            "Generate more pairs or ask for smaller parts."
        )
    rng = random.Random(seed)
    shuffled = list(pairs)
    rng.shuffle(shuffled)
    held_out = _held_out_combinations(shuffled, int(_HELD_OUT_FRAC * n_test), rng)
    novel = [pair for pair in shuffled if pair.combinations & held_out]
    rest = [pair for pair in shuffled if not pair.combinations & held_out]
    test = novel[:n_test] + _covering(rest, n_test - len(novel[:n_test]))
    chosen = {pair.en.text for pair in test}
    rest = [pair for pair in rest if pair.en.text not in chosen]
    return DemoSplits(rest[n_valid:], rest[:n_valid], test, held_out)


def write_demo(folder: str | Path, n_pairs: int = 8000, seed: int = 1) -> DemoSplits:
    """Write train, valid and test as text (.en, .de) and as gold trees (.en.conllu, .de.conllu).

    Args:
        folder: Where to; made if missing.
        n_pairs: Pairs to generate before splitting.
        seed: Seed of the corpus and of the split.

    Returns:
        What was written.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    splits = split(demo_corpus(n_pairs, seed), seed=seed)
    for name, pairs in splits.parts():
        for language in ("en", "de"):
            sentences = [pair.en if language == "en" else pair.de for pair in pairs]
            text = "".join(sentence.text + "\n" for sentence in sentences)
            (folder / f"{name}.{language}").write_text(text, encoding="utf-8")
            write_conllu(folder / f"{name}.{language}.conllu", sentences)
    return splits


def _focuses(rng: random.Random) -> Iterator[Focus]:
    """Ambiguous entries in turn, with sentences about nothing in particular between them."""
    entries = list(AMBIGUOUS_ENTRIES)
    rng.shuffle(entries)
    for entry in cycle(entries):
        if rng.random() < _FOCUSED_FRAC:
            yield entry
        else:
            yield None


def _draw(grammar: Grammar, focus: Focus) -> DemoPair | None:
    """One pair, unless it is too short, too long or uses a content word twice."""
    utterance = grammar.utterance(focus)
    source = to_sentence(english(utterance))
    content = Counter(reading for reading in _lemma_tags(source) if reading[1] in _CONTENT)
    if not MIN_WORDS <= len(source) <= MAX_WORDS or max(content.values(), default=0) > 1:
        return None
    return DemoPair(source, to_sentence(german(utterance), bracketed=False))


def _lemma_tags(sentence: Sentence) -> list[Reading]:
    return list(zip(sentence.lemmas or (), sentence.upos or (), strict=True))


def _held_out_combinations(
    pairs: Iterable[DemoPair], n_wanted: int, rng: random.Random
) -> frozenset[Combination]:
    """Draw combinations until about `n_wanted` pairs hold one."""
    counts = Counter(combination for pair in pairs for combination in pair.combinations)
    options = sorted(counts, key=sorted)
    rng.shuffle(options)
    held_out: set[Combination] = set()
    total = 0
    for combination in options:
        if total + counts[combination] <= n_wanted:
            held_out.add(combination)
            total += counts[combination]
    return frozenset(held_out)


def _covering(pairs: Sequence[DemoPair], n_wanted: int) -> list[DemoPair]:
    """The first pairs, but with those brought forward that hold a reading for the first time."""
    first: defaultdict[Reading, DemoPair | None] = defaultdict(lambda: None)
    for pair in pairs:
        for reading in pair.readings:
            first[reading] = first[reading] or pair
    needed = {pair.en.text: pair for pair in first.values() if pair is not None}
    ordered = [*needed.values(), *(pair for pair in pairs if pair.en.text not in needed)]
    return ordered[:n_wanted]
