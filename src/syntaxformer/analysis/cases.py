"""Two systems on one test set, sentence by sentence: where they differ, and in what kind of sentence.

Works on outputs, whoever made them. Scores are chrF of sentences; a word is right when the reference has it,
each occurrence once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sacrebleu.metrics import CHRF

from syntaxformer.evaluation.significance import Interval, bootstrap_interval
from syntaxformer.trees import Sentence, depths_of

__all__ = ["Case", "CaseGroup", "TagRow", "compare_cases", "group_cases", "tag_rows", "word_counts"]

LENGTHS = ((1, 5), (6, 10), (11, 15), (16, 20), (21, 30), (31, 10**6))
"""Words of the source."""

DEPTHS = ((0, 2), (3, 3), (4, 4), (5, 5), (6, 10**6))
"""Edges from the root to the deepest word of the source."""

RARE_COUNT = 3
"""A word is rare that occurs no more often than this."""


@dataclass(frozen=True)
class Case:
    """One sentence.

    Args:
        source: The source line, annotated.
        reference: The reference, annotated; its words decide what is right.
        outputs: Of the first and the second system.
        scores: chrF of both, 0 to 100.
        only_first: Places of reference words that only the first system has.
        only_second: The same of the second.
        rarest: How often the rarest source word occurs in the counted text; None without counts.
    """

    source: Sentence
    reference: Sentence
    outputs: tuple[str, str]
    scores: tuple[float, float]
    only_first: tuple[int, ...]
    only_second: tuple[int, ...]
    rarest: int | None

    @property
    def gain(self) -> float:
        """Score (chrF) of the second system minus that of the first."""
        return self.scores[1] - self.scores[0]


@dataclass(frozen=True)
class CaseGroup:
    """Sentences of one kind: how many, mean scores, and the mean gain with its 95 % interval."""

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
    first: Sequence[str],
    second: Sequence[str],
    counts: Counter[str] | None = None,
) -> list[Case]:
    """Score every sentence of both systems.

    Args:
        sources: Annotated source lines.
        references: Annotated references.
        first: Output of the first system, the baseline.
        second: Output of the second.
        counts: How often lower-cased source words occur in some text, the training text best.

    Raises:
        ValueError: Other numbers of lines, or none.
    """
    sizes = {len(sources), len(references), len(first), len(second)}
    if len(sizes) > 1 or not len(sources):
        raise ValueError(
            f"lines: expected as many sources, references and outputs, and not none, got {len(sources)}, "
            f"{len(references)}, {len(first)} and {len(second)}."
        )
    chrf = CHRF()
    cases = []
    for source, reference, *outputs in zip(sources, references, first, second, strict=True):
        scores = [chrf.sentence_score(output, [reference.text]).score for output in outputs]
        right = [_right_words(reference, output) for output in outputs]
        only = [tuple(sorted(one - other)) for one, other in (right, right[::-1])]
        rarest = min((counts[word.lower()] for word in source.words), default=0) if counts else None
        cases.append(Case(source, reference, (outputs[0], outputs[1]), (scores[0], scores[1]), *only, rarest))
    return cases


def group_cases(cases: Sequence[Case]) -> dict[str, list[CaseGroup]]:
    """Groups by length, by depth of the tree, and by rare words; empty groups are left out."""
    kinds: dict[str, list[tuple[str, Callable[[Case], bool]]]] = {
        "words of the source": [(_range(*ends), _between(_length, *ends)) for ends in LENGTHS],
        "depth of its tree": [(_range(*ends), _between(_depth, *ends)) for ends in DEPTHS],
    }
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


def word_counts(sentences: Sequence[Sequence[str]]) -> Counter[str]:
    """How often each lower-cased word occurs."""
    return Counter(word.lower() for words in sentences for word in words)


def _right_words(reference: Sentence, output: str) -> set[int]:
    """Places of reference words that an output has, each occurrence once, case counts."""
    left = Counter(_words(output))
    right = set()
    for place, word in enumerate(reference.words):
        if left[word] > 0:
            left[word] -= 1
            right.add(place)
    return right


def _words(text: str) -> list[str]:
    """Words of raw text, punctuation apart."""
    spaced = "".join(f" {one} " if not (one.isalnum() or one in "-'’") else one for one in text)
    return spaced.split()


def _group(name: str, cases: Sequence[Case]) -> CaseGroup | None:
    if not cases:
        return None
    means = [sum(case.scores[place] for case in cases) / len(cases) for place in (0, 1)]
    return CaseGroup(name, len(cases), *means, bootstrap_interval([case.gain for case in cases]))


def _length(case: Case) -> int:
    return len(case.source)


def _depth(case: Case) -> int:
    governors = case.source.governors
    return max(depths_of(governors), default=0) if governors is not None else 0


def _between(measure: Callable[[Case], int], low: int, high: int) -> Callable[[Case], bool]:
    return lambda case: low <= measure(case) <= high


def _range(low: int, high: int) -> str:
    if high >= 10**6:
        return f"{low} and more"
    return str(low) if low == high else f"{low} to {high}"
