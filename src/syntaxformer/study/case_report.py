"""Cases written down: tables by kind of sentence, words that one system gets right, the sentences."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from syntaxformer.study.cases import MIN_SENTENCES, Case, CaseGroup, group_cases, tag_rows
from syntaxformer.study.document import Block, Heading, Marked, Paragraph, Table
from syntaxformer.trees import Sentence

__all__ = ["case_blocks"]


def case_blocks(cases: Sequence[Case], names: tuple[str, str], n_examples: int = 10) -> list[Block]:
    """A report as blocks for `document.to_markdown`.

    Args:
        cases: From `compare_cases`.
        names: Of the two systems.
        n_examples: Sentences shown on each side.

    Source: Sundararaman et al. (2019), table 3.
    """
    better = sorted((case for case in cases if case.gain > 0), key=lambda case: -case.gain)
    worse = sorted((case for case in cases if case.gain < 0), key=lambda case: case.gain)
    n_equal = len(cases) - len(better) - len(worse)
    groups = group_cases(cases)
    blocks: list[Block] = [
        Heading(f"{names[0]} and {names[1]}, sentence by sentence", 1),
        Paragraph(
            f"{len(cases)} sentences; chrF of a sentence is higher with {names[1]} in {len(better)}, with "
            f"{names[0]} in {len(worse)}, equal in {n_equal}. Gains are {names[1]} minus {names[0]}, with "
            f"95 % bootstrap intervals{_exception(groups)}."
        ),
    ]
    for kind, of_kind in groups.items():
        blocks += [Heading(f"By {kind}"), _group_table(kind, of_kind, names)]
    blocks += _tag_blocks(cases, names)
    for title, chosen in ((names[1], better), (names[0], worse)):
        blocks += [Heading(f"Where {title} is better")]
        blocks += [_example(case, names) for case in chosen[:n_examples]]
    return blocks


def _exception(groups: Mapping[str, Sequence[CaseGroup]]) -> str:
    """What the report says where a group is too small for an interval."""
    if all(one.n >= MIN_SENTENCES for of_kind in groups.values() for one in of_kind):
        return ""
    return f"; groups of fewer than {MIN_SENTENCES} sentences have none (–)"


def _group_table(kind: str, groups: Sequence[CaseGroup], names: tuple[str, str]) -> Table:
    rows = [
        [
            one.name,
            str(one.n),
            f"{one.first:.2f}",
            f"{one.second:.2f}",
            f"{one.gain.mean:+.2f}",
            f"{one.gain.low:+.2f} to {one.gain.high:+.2f}" if one.n >= MIN_SENTENCES else "–",
        ]
        for one in groups
    ]
    return Table([kind, "sentences", *(f"chrF {name}" for name in names), "gain", "95 %"], rows)


def _tag_blocks(cases: Sequence[Case], names: tuple[str, str]) -> list[Block]:
    rows = tag_rows(cases)
    if not rows:
        return []
    table = [
        [
            one.tag,
            str(one.n),
            str(one.only_first),
            str(one.only_second),
            f"{one.only_second - one.only_first:+d}",
        ]
        for one in rows
    ]
    header = ["part of speech", "reference words", *(f"only {name}" for name in names), "difference"]
    return [Heading("Reference words that only one system has"), Table(header, table)]


def _example(case: Case, names: tuple[str, str]) -> Table:
    """A case as a small table; words that only one system has are in bold."""
    right = case.only_first, case.only_second
    rows: list[list[str | Marked]] = [["source", case.source.text], ["reference", case.reference.text]]
    for name, output, score, places in zip(names, case.outputs, case.scores, right, strict=True):
        words = [case.comparable(case.reference.words[place]) for place in places]
        rows.append([f"{name}, {score:.1f}", _marked(case, output, words)])
    return Table([f"gain {case.gain:+.1f}", ""], rows)


def _marked(case: Case, output: Sentence, words: Sequence[str]) -> Marked:
    """The first occurrences of words, as many of each as are given."""
    left, bold = Counter(words), []
    for word, place in zip(output.words, output.offsets, strict=True):
        if left[case.comparable(word)] > 0:
            left[case.comparable(word)] -= 1
            bold.append(place)
    return Marked(output.text, bold)
