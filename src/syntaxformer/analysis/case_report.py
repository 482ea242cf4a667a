"""Cases written down: tables by kind of sentence, words that one system gets right, the sentences."""

from __future__ import annotations

from collections.abc import Sequence

from syntaxformer.analysis.cases import Case, CaseGroup, group_cases, tag_rows
from syntaxformer.analysis.document import Block, Heading, Paragraph, Table

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
    blocks: list[Block] = [
        Heading(f"{names[0]} and {names[1]}, sentence by sentence", 1),
        Paragraph(
            f"{len(cases)} sentences; chrF of a sentence is higher with {names[1]} in {len(better)}, with "
            f"{names[0]} in {len(worse)}, equal in {n_equal}. Gains are {names[1]} minus {names[0]}, with "
            "95 % bootstrap intervals."
        ),
    ]
    for kind, groups in group_cases(cases).items():
        blocks += [Heading(f"By {kind}"), _group_table(kind, groups, names)]
    blocks += _tag_blocks(cases, names)
    for title, chosen in ((names[1], better), (names[0], worse)):
        blocks += [Heading(f"Where {title} is better")]
        blocks += [_example(case, names) for case in chosen[:n_examples]]
    return blocks


def _group_table(kind: str, groups: Sequence[CaseGroup], names: tuple[str, str]) -> Table:
    rows = [
        [
            one.name,
            str(one.n),
            f"{one.first:.2f}",
            f"{one.second:.2f}",
            f"{one.gain.mean:+.2f}",
            f"{one.gain.low:+.2f} to {one.gain.high:+.2f}",
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
    rows = [["source", case.source.text], ["reference", case.reference.text]]
    for name, output, score, places in zip(names, case.outputs, case.scores, right, strict=True):
        words = [case.reference.words[place] for place in places]
        rows.append([f"{name}, {score:.1f}", _marked(output, words)])
    return Table([f"gain {case.gain:+.1f}", ""], rows)


def _marked(text: str, words: Sequence[str]) -> str:
    """The first free occurrence of each word between asterisks."""
    parts = text.split(" ")
    for word in words:
        for place, part in enumerate(parts):
            if part.strip(".,;:!?\"'()") == word:
                parts[place] = part.replace(word, f"**{word}**")
                break
    return " ".join(parts)
