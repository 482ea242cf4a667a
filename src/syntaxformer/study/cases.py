"""Compares two systems on one test set, sentence by sentence and by kinds of sentences.

It works on outputs of any origin. Scores are chrF of sentences. A word is right if the reference has it; each
occurrence in the reference counts once.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from sacrebleu.metrics import CHRF

from syntaxformer.annotate import WordsAsGiven
from syntaxformer.base.statistics import Interval, bootstrap_interval
from syntaxformer.study.document import Block, Heading, Marked, Paragraph, Table
from syntaxformer.translation.scoring import scoring
from syntaxformer.translation.translator import FolderInfo
from syntaxformer.trees import Sentence, depths_of

if TYPE_CHECKING:
    from syntaxformer.annotate import Annotator

MANY = 10**6

LENGTHS = {
    "1 to 5": range(1, 6),
    "6 to 10": range(6, 11),
    "11 to 15": range(11, 16),
    "16 to 20": range(16, 21),
    "21 to 30": range(21, 31),
    "31 and more": range(31, MANY),
}
"""Groups by the number of source words."""

DEPTHS = {"0 to 2": range(3), "3": [3], "4": [4], "5": [5], "6 and more": range(6, MANY)}
"""Groups by the number of edges from the root to the deepest source word."""

RARITIES = {"never seen": [0], "1 to 3 times": range(1, 4), "more often": range(4, 1 << 62)}
"""Groups by how often the rarest source word occurs."""

MIN_SENTENCES = 10
"""Smaller groups get no interval: resampling a few sentences makes them look more certain than they are."""


@dataclass(frozen=True)
class Case:
    """One sentence.

    Args:
        source: The source line, annotated.
        reference: The reference, annotated; its words decide which words are right.
        outputs: Outputs of the first and the second system, split into words like the reference.
        scores: chrF of both, 0 to 100.
        only_first: Positions of reference words that only the first system has.
        only_second: Likewise for the second system.
        rarest: How often the rarest source word occurs in the counted text; None without counts or words.
        lowercase: Whether case is ignored.
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
        """The chrF of the second system minus that of the first."""
        return self.scores[1] - self.scores[0]

    def comparable(self, word: str) -> str:
        """The form of a word in which it is compared."""
        return word.lower() if self.lowercase else word


@dataclass(frozen=True)
class CaseGroup:
    """Sentences of one kind: their number, mean scores, and the mean gain with its 95 % interval.

    The ends of the interval are NaN below `MIN_SENTENCES`.
    """

    name: str
    n: int
    first: float
    second: float
    gain: Interval


@dataclass(frozen=True)
class TagRow:
    """Reference words of one part of speech: their number, and how many only one system has."""

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
        first: Output of the first system, the baseline, split into words by the annotator of the references,
            because words that are split differently are never right.
        second: Output of the second system, likewise.
        counts: How often lower-cased source words occur in some text, preferably the training text.
        lowercase: Ignore case, in chrF and in words.

    Raises:
        ValueError: The numbers of lines differ, or there are no lines.
    """
    sizes = {len(sources), len(references), len(first), len(second)}
    if len(sizes) > 1 or not len(sources):
        raise ValueError(
            f"lines: expected equal numbers of sources, references and outputs, at least one, got "
            f"{len(sources)}, {len(references)}, {len(first)} and {len(second)}."
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
    """Groups by length and, if known, by depth of the tree and by rare words.

    Empty groups are left out, and so are sentences without a tree or words in the groups that need these.
    """
    kinds = {"words of the source": (LENGTHS, [len(case.source) for case in cases])}
    if any(case.source.governors is not None for case in cases):
        depths = [max(depths_of(case.source.governors or ()), default=-1) for case in cases]
        kinds["depth of its tree"] = DEPTHS, depths
    if any(case.rarest is not None for case in cases):
        rarest = [-1 if case.rarest is None else case.rarest for case in cases]
        kinds["rarest source word"] = RARITIES, rarest
    found: dict[str, list[CaseGroup]] = {}
    for kind, (parts, measured) in kinds.items():
        measures = list(zip(cases, measured, strict=True))
        chosen = {name: [case for case, one in measures if one in part] for name, part in parts.items()}
        found[kind] = [_group(name, members) for name, members in chosen.items() if members]
    return found


def tag_rows(cases: Sequence[Case]) -> list[TagRow]:
    """Words that only one system gets right, by part of speech; the tag with the most comes first."""
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
    """Positions of the reference words that an output has; each occurrence in the output counts once."""
    texts = [[word.lower() for word in one.words] if lowercase else one.words for one in (reference, output)]
    left = Counter(texts[1])
    right = set()
    for place, word in enumerate(texts[0]):
        if left[word] > 0:
            left[word] -= 1
            right.add(place)
    return right


def _group(name: str, cases: Sequence[Case]) -> CaseGroup:
    means = [sum(case.scores[place] for case in cases) / len(cases) for place in (0, 1)]
    return CaseGroup(name, len(cases), *means, interval_of([case.gain for case in cases]))


def interval_of(values: Sequence[float] | NDArray[np.float64]) -> Interval:
    """The mean of one value for each sentence, and its 95 % interval over resampled test sets.

    NaN values are left out. The ends are NaN below `MIN_SENTENCES`, and the mean is NaN without any value.
    """
    kept = np.asarray(values, float)
    kept = kept[~np.isnan(kept)]
    if len(kept) < MIN_SENTENCES:
        return Interval(float(kept.mean()) if len(kept) else math.nan, math.nan, math.nan)
    return bootstrap_interval(kept.tolist())


def cases_of_lines(
    sources: Sequence[str],
    references: Sequence[str],
    outputs: tuple[Sequence[str], Sequence[str]],
    parser: Annotator,
    tagger: Annotator,
    infos: Sequence[FolderInfo] = (),
    train: Iterable[str] = (),
) -> list[Case]:
    """Annotate lines and compare two systems on them.

    Args:
        sources: Source lines.
        references: Reference translations.
        outputs: Outputs of the first system, the baseline, and of the second.
        parser: Annotator of the source.
        tagger: Annotator of the target, which splits references and outputs into words by one rule.
        infos: Records of the models that made the outputs, if models did. Lines are cleaned, split and
            compared as `evaluate` does for them; case is ignored if it is for one of them.
        train: Source lines in which to count words; empty to skip rare words.

    Raises:
        ValueError: The numbers of lines differ, or there are no lines.
    """
    if any(info.tokenized for info in infos):
        parser, tagger = WordsAsGiven(parser), WordsAsGiven(tagger)
    for preparation in dict.fromkeys(info.preparation(info.src) for info in infos):
        sources, train = [preparation.clean(one) for one in sources], map(preparation.clean, train)
    for preparation in dict.fromkeys(info.preparation(info.tgt) for info in infos):
        references = [preparation.clean(one) for one in references]
    n_lines, n_first = len(references), len(references) + len(outputs[0])
    tagged = tagger.annotate([*references, *outputs[0], *outputs[1]])
    counts = word_counts(one.words for one in parser.stream(train))
    lowercase = any(scoring(info)["lowercase"] for info in infos)
    parts = tagged[:n_lines], tagged[n_lines:n_first], tagged[n_first:]
    return compare_cases(parser.annotate(sources), *parts, counts or None, lowercase)


def case_blocks(cases: Sequence[Case], names: tuple[str, str], n_examples: int = 10) -> list[Block]:
    """A report of `compare_cases` for `document.to_markdown`, with examples where either system is better.

    Source: Sundararaman et al. (2019), table 3.
    """
    better = sorted((case for case in cases if case.gain > 0), key=lambda case: -case.gain)
    worse = sorted((case for case in cases if case.gain < 0), key=lambda case: case.gain)
    n_equal = len(cases) - len(better) - len(worse)
    groups = group_cases(cases)
    is_small = any(one.n < MIN_SENTENCES for of_kind in groups.values() for one in of_kind)
    exception = f"; groups of fewer than {MIN_SENTENCES} sentences have none (–)" if is_small else ""
    blocks: list[Block] = [
        Heading(f"{names[0]} and {names[1]}, sentence by sentence", 1),
        Paragraph(
            f"{len(cases)} sentences; chrF of a sentence is higher with {names[1]} in {len(better)}, with "
            f"{names[0]} in {len(worse)}, equal in {n_equal}. Gains are {names[1]} minus {names[0]}, with "
            f"95 % bootstrap intervals{exception}."
        ),
    ]
    for kind, of_kind in groups.items():
        blocks += [Heading(f"By {kind}"), _group_table(kind, of_kind, names)]
    blocks += _tag_blocks(cases, names)
    for title, chosen in ((names[1], better), (names[0], worse)):
        blocks += [Heading(f"Where {title} is better")]
        blocks += [_example(case, names) for case in chosen[:n_examples]]
    return blocks


def _group_table(kind: str, groups: Sequence[CaseGroup], names: tuple[str, str]) -> Table:
    rows = []
    for one in groups:
        interval = f"{one.gain.low:+.2f} to {one.gain.high:+.2f}" if one.n >= MIN_SENTENCES else "–"
        means = [f"{one.first:.2f}", f"{one.second:.2f}", f"{one.gain.mean:+.2f}"]
        rows.append([one.name, str(one.n), *means, interval])
    return Table([kind, "sentences", *(f"chrF {name}" for name in names), "gain", "95 %"], rows)


def _tag_blocks(cases: Sequence[Case], names: tuple[str, str]) -> list[Block]:
    rows = [
        [
            one.tag,
            *map(str, (one.n, one.only_first, one.only_second)),
            f"{one.only_second - one.only_first:+d}",
        ]
        for one in tag_rows(cases)
    ]
    header = ["part of speech", "reference words", *(f"only {name}" for name in names), "difference"]
    return [Heading("Reference words that only one system has"), Table(header, rows)] if rows else []


def _example(case: Case, names: tuple[str, str]) -> Table:
    """A case as a small table, in which words that only one system has are bold."""
    right = case.only_first, case.only_second
    rows: list[list[str | Marked]] = [["source", case.source.text], ["reference", case.reference.text]]
    for name, output, score, places in zip(names, case.outputs, case.scores, right, strict=True):
        words = [case.comparable(case.reference.words[place]) for place in places]
        rows.append([f"{name}, {score:.1f}", _marked(case, output, words)])
    return Table([f"gain {case.gain:+.1f}", ""], rows)


def _marked(case: Case, output: Sentence, words: Sequence[str]) -> Marked:
    """Mark the first occurrences of words, as many of each as are given."""
    left, bold = Counter(words), []
    for word, place in zip(output.words, output.offsets, strict=True):
        if left[case.comparable(word)] > 0:
            left[case.comparable(word)] -= 1
            bold.append(place)
    return Marked(output.text, bold)
