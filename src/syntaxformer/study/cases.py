"""Two systems on one test set, sentence by sentence: where they differ, and in what kind of sentence.

Works on outputs, whoever made them. Scores are chrF of sentences; a word is right when the reference has it,
each occurrence once.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean

from sacrebleu.metrics import CHRF

from syntaxformer.base.statistics import Interval, bootstrap_interval
from syntaxformer.trees import Sentence, depths_of

__all__ = [
    "MIN_SENTENCES",
    "Case",
    "CaseGroup",
    "TagRow",
    "compare_cases",
    "group_cases",
    "tag_rows",
    "word_counts",
]

LENGTHS = ((1, 5), (6, 10), (11, 15), (16, 20), (21, 30), (31, 10**6))
"""Words of the source."""

DEPTHS = ((0, 2), (3, 3), (4, 4), (5, 5), (6, 10**6))
"""Edges from the root to the deepest word of the source."""

MIN_SENTENCES = 10
"""Fewer sentences have no interval: resampled, one or two of them look surer than they are."""

RARE_COUNT = 3
"""A word is rare that occurs no more often than this."""


@dataclass(frozen=True)
class Case:
    """One sentence.

    Args:
        source: The source line, annotated.
        reference: The reference, annotated; its words decide what is right.
        outputs: Of the first and the second system, in words as the reference is.
        scores: chrF of both, 0 to 100.
        only_first: Places of reference words that only the first system has.
        only_second: The same of the second.
        rarest: How often the rarest source word occurs in the counted text; None without counts or words.
        lowercase: Whether case does not count.
    """

    source: Sentence
    reference: Sentence
    outputs: tuple[Sentence, Sentence]
    scores: tuple[float, float]
    only_first: tuple[int, ...]
    only_second: tuple[int, ...]
    rarest: int | None
    lowercase: bool = False

    @property
    def gain(self) -> float:
        """Score (chrF) of the second system minus that of the first."""
        return self.scores[1] - self.scores[0]

    def comparable(self, word: str) -> str:
        """A word as it is compared with others."""
        return word.lower() if self.lowercase else word


@dataclass(frozen=True)
class CaseGroup:
    """Sentences of one kind: how many, mean scores, and the mean gain with its 95 % interval.

    The interval's ends are NaN below `MIN_SENTENCES`.
    """

    name: str
    n: int
    first: float
    second: float
    gain: Interval


@dataclass(frozen=True)
class TagRow:
    """Reference words of one part of speech: how many, and how many only one system has."""

    tag: str
    n: int
    only_first: int
    only_second: int


def compare_cases(
    sources: Sequence[Sentence],
    references: Sequence[Sentence],
    first: Sequence[Sentence],
    second: Sequence[Sentence],
    counts: Counter[str] | None = None,
    lowercase: bool = False,
) -> list[Case]:
    """Score every sentence of both systems.

    Args:
        sources: Annotated source lines.
        references: Annotated references.
        first: Output of the first system, the baseline, split into words by the annotator of the references:
            words that are split in another way are never right.
        second: Output of the second, likewise.
        counts: How often lower-cased source words occur in some text, the training text best.
        lowercase: Case does not count, neither in chrF nor in words.

    Raises:
        ValueError: Other numbers of lines, or none.
    """
    sizes = {len(sources), len(references), len(first), len(second)}
    if len(sizes) > 1 or not len(sources):
        raise ValueError(
            f"lines: expected as many sources, references and outputs, and not none, got {len(sources)}, "
            f"{len(references)}, {len(first)} and {len(second)}."
        )
    chrf = CHRF(lowercase=lowercase)
    cases = []
    for source, reference, one, other in zip(sources, references, first, second, strict=True):
        scores = [chrf.sentence_score(output.text, [reference.text]).score for output in (one, other)]
        right = [_right_words(reference, output, lowercase) for output in (one, other)]
        only = [tuple(sorted(own - others)) for own, others in (right, right[::-1])]
        rarest = min((counts[word.lower()] for word in source.words), default=None) if counts else None
        both = scores[0], scores[1]
        cases.append(Case(source, reference, (one, other), both, *only, rarest, lowercase))
    return cases


def group_cases(cases: Sequence[Case]) -> dict[str, list[CaseGroup]]:
    """Groups by length, and by depth of the tree and by rare words where these are known.

    Empty groups are left out, as is a sentence without a tree, or without words, where these count.
    """
    kinds: dict[str, list[tuple[str, Callable[[Case], bool]]]] = {
        "words of the source": [(_range(*ends), _between(_length, *ends)) for ends in LENGTHS],
    }
    if any(case.source.governors is not None for case in cases):
        kinds["depth of its tree"] = [(_range(*ends), _between(_depth, *ends)) for ends in DEPTHS]
    if any(case.rarest is not None for case in cases):
        kinds["rarest source word"] = [
            ("never seen", lambda case: case.rarest == 0),
            (f"1 to {RARE_COUNT} times", lambda case: 1 <= (case.rarest or 0) <= RARE_COUNT),
            ("more often", lambda case: (case.rarest or 0) > RARE_COUNT),
        ]
    return {
        kind: [
            group
            for name, belongs in parts
            if (group := _group(name, [one for one in cases if belongs(one)]))
        ]
        for kind, parts in kinds.items()
    }


def tag_rows(cases: Sequence[Case]) -> list[TagRow]:
    """Words that only one system gets right, by part of speech; the tag with most of them first."""
    total, first, second = Counter[str](), Counter[str](), Counter[str]()
    for case in cases:
        tags = case.reference.upos
        if tags is None:
            continue
        total.update(tags)
        first.update(tags[place] for place in case.only_first)
        second.update(tags[place] for place in case.only_second)
    order = sorted(total, key=lambda tag: (-(first[tag] + second[tag]), tag))
    return [TagRow(tag, total[tag], first[tag], second[tag]) for tag in order]


def word_counts(sentences: Iterable[Sequence[str]]) -> Counter[str]:
    """How often each lower-cased word occurs."""
    return Counter(word.lower() for words in sentences for word in words)


def _right_words(reference: Sentence, output: Sentence, lowercase: bool) -> set[int]:
    """Places of reference words that an output has, each occurrence once."""
    texts = [[word.lower() for word in one.words] if lowercase else one.words for one in (reference, output)]
    left = Counter(texts[1])
    right = set()
    for place, word in enumerate(texts[0]):
        if left[word] > 0:
            left[word] -= 1
            right.add(place)
    return right


def _group(name: str, cases: Sequence[Case]) -> CaseGroup | None:
    if not cases:
        return None
    means = [sum(case.scores[place] for case in cases) / len(cases) for place in (0, 1)]
    gains = [case.gain for case in cases]
    if len(gains) < MIN_SENTENCES:
        return CaseGroup(name, len(cases), *means, Interval(fmean(gains), math.nan, math.nan))
    return CaseGroup(name, len(cases), *means, bootstrap_interval(gains))


def _length(case: Case) -> int:
    return len(case.source)


def _depth(case: Case) -> int:
    governors = case.source.governors
    return max(depths_of(governors), default=-1) if governors is not None else -1


def _between(measure: Callable[[Case], int], low: int, high: int) -> Callable[[Case], bool]:
    return lambda case: low <= measure(case) <= high


def _range(low: int, high: int) -> str:
    if high >= 10**6:
        return f"{low} and more"
    return str(low) if low == high else f"{low} to {high}"
