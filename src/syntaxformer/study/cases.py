"""Compares systems with the first of them on one test set, sentence by sentence and by kinds of sentences.

It works on outputs of any origin. Scores are chrF of sentences. A word is right if the reference has it; each
occurrence in the reference counts once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import TYPE_CHECKING

from sacrebleu.metrics import CHRF

from syntaxformer.annotate import WordsAsGiven
from syntaxformer.base.progress import track
from syntaxformer.base.statistics import FEWEST_ROWS, Interval, bootstrap_interval
from syntaxformer.study.document import Block, Heading, Marked, Paragraph, Table
from syntaxformer.translation.model_folder import FolderInfo
from syntaxformer.translation.scoring import References, checked_texts, scoring
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


@dataclass(frozen=True)
class Case:
    """One sentence.

    Args:
        source: The source line, annotated.
        reference: The reference, annotated; its words decide which words are right.
        outputs: Output of each system, split into words like the reference.
        scores: chrF of each, 0 to 100.
        right: For each, the positions of the reference words that it has.
        rarest: How often the rarest source word occurs in the counted text; None without counts or words.
        lowercase: Whether case is ignored.
    """

    source: Sentence
    reference: Sentence
    outputs: tuple[Sentence, ...]
    scores: tuple[float, ...]
    right: tuple[frozenset[int], ...]
    rarest: int | None
    lowercase: bool = False

    def gain(self, system: int = 1) -> float:
        """The chrF of a system minus that of the first; of the first, minus the best of the others."""
        return self.scores[system] - (self.scores[0] if system else max(self.scores[1:]))

    def only(self, system: int) -> tuple[int, ...]:
        """Positions of the reference words that no other system has."""
        others = (right for number, right in enumerate(self.right) if number != system)
        return tuple(sorted(self.right[system].difference(*others)))


@dataclass(frozen=True)
class CaseGroup:
    """Sentences of one kind: their number, each system's mean score, and the mean gains over the first.

    The ends of the 95 % intervals are NaN below `FEWEST_ROWS`.
    """

    name: str
    n: int
    scores: tuple[float, ...]
    gains: tuple[Interval, ...]


@dataclass(frozen=True)
class TagRow:
    """Reference words of one part of speech: their number, and for each system how many only it has."""

    tag: str
    n: int
    only: tuple[int, ...]


def compare_cases(
    sources: Sequence[Sentence],
    references: Sequence[Sentence],
    outputs: Sequence[Sequence[Sentence]],
    counts: Counter[str] | None = None,
    lowercase: bool = False,
    others: Sequence[Sequence[str]] = (),
) -> list[Case]:
    """Score every sentence of every system.

    Outputs, those of the baseline first, are split into words by the annotator of the references, because
    words that are split differently are never right. `counts` says how often lower-cased source words occur
    in some text, preferably the training text; `lowercase` ignores case, in chrF and in words. `others` are
    more texts of references, for chrF.

    Raises:
        ValueError: The numbers of lines differ, or there are no lines.
    """
    sizes = [len(sources), len(references), *map(len, (*others, *outputs))]
    if len(set(sizes)) > 1 or not len(sources):
        raise ValueError(
            f"lines: expected equal numbers of sources, references and outputs, at least one, got "
            f"{', '.join(map(str, sizes[:-1]))} and {sizes[-1]}."
        )
    chrf = CHRF(lowercase=lowercase)
    cases = []
    more_texts = list(zip(*others, strict=True)) or [()] * len(references)
    for source, reference, more, *of_systems in zip(sources, references, more_texts, *outputs, strict=True):
        texts = [reference.text, *more]
        scores = tuple(chrf.sentence_score(output.text, texts).score for output in of_systems)
        words = _forms(reference, lowercase)
        right = tuple(frozenset(_matched(words, _forms(output, lowercase))) for output in of_systems)
        rarest = min((counts[word.lower()] for word in source.words), default=None) if counts else None
        cases.append(Case(source, reference, tuple(of_systems), scores, right, rarest, lowercase))
    return cases


def _forms(sentence: Sentence, lowercase: bool) -> list[str]:
    """The words of a sentence as they are compared."""
    return [word.lower() if lowercase else word for word in sentence.words]


def _matched(words: Sequence[str], others: Sequence[str]) -> Iterator[int]:
    """Positions of words that are among others; each of the others counts once."""
    left = Counter(others)
    for position, word in enumerate(words):
        if left[word] > 0:
            left[word] -= 1
            yield position


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
    systems = range(len(cases[0].scores))
    groups: dict[str, list[CaseGroup]] = {kind: [] for kind in kinds}
    for kind, (ranges, sizes) in kinds.items():
        for name, of_group in ranges.items():
            members = [case for case, size in zip(cases, sizes, strict=True) if size in of_group]
            if members:
                means = tuple(sum(case.scores[i] for case in members) / len(members) for i in systems)
                gains = tuple(bootstrap_interval([case.gain(i) for case in members]) for i in systems[1:])
                groups[kind].append(CaseGroup(name, len(members), means, gains))
    return groups


def tag_rows(cases: Sequence[Case]) -> list[TagRow]:
    """Words that only one system gets right, by part of speech; the tag with the most comes first."""
    total, only = Counter[str](), [Counter[str]() for _ in cases[0].outputs]
    for case in cases:
        tags = case.reference.upos
        if tags is not None:
            total.update(tags)
            for system, counter in enumerate(only):
                counter.update(tags[position] for position in case.only(system))
    rows = [TagRow(tag, total[tag], tuple(counter[tag] for counter in only)) for tag in total]
    return sorted(rows, key=lambda row: (-sum(row.only), row.tag))


def cases_of_lines(
    sources: Sequence[str],
    references: References,
    outputs: Sequence[Sequence[str]],
    parser: Annotator,
    tagger: Annotator,
    infos: Sequence[FolderInfo] = (),
    train: Iterable[str] = (),
) -> list[Case]:
    """Annotate lines and compare systems on them, the baseline first; shows its progress.

    Of several texts of references, words and their tags are those of the first; chrF is that of all.

    `parser` annotates the source; `tagger` splits references and outputs into words by one rule. `infos` are
    the records of the models that made the outputs, if models did: lines are cleaned, split and compared as
    `evaluate` does for them, and case is ignored if it is for one of them. `train` are source lines in which
    to count words; empty to skip rare words.

    Raises:
        ValueError: The numbers of lines differ, or there are no lines.
    """
    if any(info.tokenized for info in infos):
        parser, tagger = WordsAsGiven(parser), WordsAsGiven(tagger)
    for preparation in dict.fromkeys(info.preparation(info.src) for info in infos):
        sources, train = list(map(preparation.clean, sources)), map(preparation.clean, train)
    first, *others = checked_texts(sources, references)
    for preparation in dict.fromkeys(info.preparation(info.tgt) for info in infos):
        first, *others = (list(map(preparation.clean, text)) for text in (first, *others))
    tagged = iter(tagger.annotate([*first, *chain.from_iterable(outputs)], progress=True))
    tagged_references, *tagged_outputs = ([*islice(tagged, len(text))] for text in (first, *outputs))
    sentences = track(parser.stream(train), "counting words")
    counts = Counter(word.lower() for sentence in sentences for word in sentence.words)
    lowercase = any(scoring(info)["lowercase"] for info in infos)
    parsed = parser.annotate(sources, progress=True)
    return compare_cases(parsed, tagged_references, tagged_outputs, counts or None, lowercase, others)


def case_blocks(cases: Sequence[Case], names: Sequence[str], n_examples: int = 10) -> list[Block]:
    """A report of `compare_cases` for `document.to_markdown`, with examples where each system is better.

    Source: Sundararaman et al. (2019), table 3; Kapadia et al. (2020), error analysis.
    """
    base, n = names[0], len(names)
    better = [[case for case in cases if case.gain(system) > 0] for system in range(n)]
    groups = group_cases(cases)
    is_small = any(group.n < FEWEST_ROWS for of_kind in groups.values() for group in of_kind)
    exception = f"; groups of fewer than {FEWEST_ROWS} sentences have none (–)" if is_small else ""
    order = (*range(1, n), 0)
    counted = ", ".join(f"with {names[system]} in {len(better[system])}" for system in order)
    n_equal = sum(len(set(case.scores)) == 1 for case in cases)
    blocks: list[Block] = [
        Heading(f"{', '.join(names[:-1])} and {names[-1]}, sentence by sentence", 1),
        Paragraph(
            f"{len(cases)} sentences; chrF of a sentence is higher {counted}, equal in {n_equal}. "
            f"Gains are {' and '.join(names[1:])} minus {base}, with 95 % bootstrap intervals{exception}."
        ),
    ]
    for kind, of_kind in groups.items():
        rows = []
        for group in of_kind:
            row = [group.name, str(group.n), *(f"{score:.2f}" for score in group.scores)]
            for gain in group.gains:
                interval = f"{gain.low:+.2f} to {gain.high:+.2f}" if group.n >= FEWEST_ROWS else "–"
                row += [f"{gain.mean:+.2f}", interval]
            rows.append(row)
        ends = [column for name in names[1:] for column in (f"gain {name}", "95 %")]
        header = [kind, "sentences", *(f"chrF {name}" for name in names), *ends]
        blocks += [Heading(f"By {kind}"), Table(header, rows)]
    if tags := tag_rows(cases):
        last = ["difference"] if n == 2 else []
        rows = [
            [row.tag, *map(str, (row.n, *row.only)), *(f"{row.only[1] - row.only[0]:+d}" for _ in last)]
            for row in tags
        ]
        header = ["part of speech", "reference words", *(f"only {name}" for name in names), *last]
        blocks += [Heading("Reference words that only one system has"), Table(header, rows)]
    for system in order:
        blocks += [Heading(f"Where {names[system]} is better")]
        chosen = sorted(better[system], key=lambda case: -case.gain(system))[:n_examples]
        blocks += [_example(case, names, system) for case in chosen]
    return blocks


def _example(case: Case, names: Sequence[str], system: int) -> Table:
    """A case as a small table; words of the reference that a system has and another has not are bold."""
    shared, reference = frozenset.intersection(*case.right), _forms(case.reference, case.lowercase)
    rows: list[list[str | Marked]] = [["source", case.source.text], ["reference", case.reference.text]]
    for name, output, score, right in zip(names, case.outputs, case.scores, case.right, strict=True):
        words = [reference[position] for position in sorted(right - shared)]
        positions = _matched(_forms(output, case.lowercase), words)  # as many as there are
        bold = Marked(output.text, [output.offsets[position] for position in positions])
        rows.append([f"{name}, {score:.1f}", bold])
    return Table([f"gain {case.gain(system) if system else -case.gain(0):+.1f}", ""], rows)
