"""Sentences of a line, for models that were trained on lines of fewer: where to cut, how to join again.

A cut line is `[sentence, white space, sentence, …]`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from syntaxformer.translation.decoding import Hypothesis, normalised
from syntaxformer.trees import ROOT, Sentence

if TYPE_CHECKING:
    from syntaxformer.annotate import Annotator

_END = re.compile(
    r"""(?<![.!?…؟।])(?P<mark>[.!?…؟।]++)["'»”’)\]]*+\s++(?=[^.!?…؟।])"""
    r"""|(?<![。！？])[。！？]++["'»”’」』）)\]]*+\s*+(?=.)"""
)
_NO_END = re.compile(
    "abb|abs|art|bd|bspw|bzw|ca|cf|col|dr|fig|fr|gen|geb|ggf|gov|hr|jr|lt|mio|mlle|mme|mr|mrd|mrs|ms|mt|no|nr"
    "|pp|prof|rep|rev|sen|sr|sra|st|str|usf|usw|vgl|vol|vs",
    re.IGNORECASE,
)
"""Abbreviations before capitals and numbers; those of one letter, or with a stop inside, need no entry."""

N_COUNTED, USUAL = 2000, 0.99
"""Training lines whose sentences are counted, and the share of them that has at most the usual number."""


def sentence_starts(line: str) -> list[int]:
    """Where sentences after the first start in a line, by rules: after marks, before no small letter."""
    starts: list[int] = []
    for end in _END.finditer(line):
        if (mark := end["mark"]) is not None:
            before = line[max(0, end.start() - 30) : end.start()]
            word = before[before.rfind(" ") + 1 :].strip("\"'«“‘(")
            if not word and end.start():  # a mark between spaces, in text that is tokenised
                starts.append(end.end())
                continue
            is_short = len(word) == 1 or (len(word) == 2 and word.isdigit())  # an initial or an ordinal
            if mark == "." and (is_short or "." in word or _NO_END.fullmatch(word)):
                continue
            if line[end.end()].islower():
                continue
        starts.append(end.end())
    return starts


def parsed_starts(sentence: Sentence) -> set[int]:
    """Where sentences after the first start in a parsed line: at a word under another root than the last."""
    governors = np.array(sentence.governors, np.int64)
    roots = np.where(governors == ROOT, np.arange(len(governors)), governors)
    for _ in range(len(governors).bit_length()):
        roots = roots[roots]
    return {sentence.offsets[word][0] for word in (np.flatnonzero(np.diff(roots)) + 1).tolist()}


def cut_lines(lines: Sequence[str], most: int, parser: Annotator | None) -> list[list[str]]:
    """Cut each line of more than `most` sentences; a parser, if there is one, must agree with the rules."""
    starts = [sentence_starts(line) for line in lines]
    if parser is not None:
        rows = [row for row, of_line in enumerate(starts) if len(of_line) >= most]
        for row, sentence in zip(rows, parser.annotate([lines[row] for row in rows]), strict=True):
            known = parsed_starts(sentence)
            starts[row] = [start for start in starts[row] if start in known]
    return [
        _cut(line, of_line) if len(of_line) >= most else [line]
        for line, of_line in zip(lines, starts, strict=True)
    ]


def _cut(line: str, starts: Sequence[int]) -> list[str]:
    cut: list[str] = []
    for start, end in zip([0, *starts], [*starts, len(line)], strict=True):
        text = line[start:end].rstrip()
        cut += [text, line[start + len(text) : end] or " "]
    return cut[:-1]


def usual_sentences(lines: Sequence[str], parser: Annotator | None) -> int:
    """The number of sentences that 99 % of lines do not exceed, counted in evenly spread ones."""
    spread = lines[:: 1 + len(lines) // N_COUNTED]
    counts = [len(line[::2]) for line in cut_lines(list(spread), 1, parser)]
    return int(np.quantile(counts or [1], USUAL, method="inverted_cdf"))


def joined(
    sentences: Sequence[Sequence[Hypothesis]], spaces: Sequence[str], length_penalty: float, end_id: int
) -> list[Hypothesis]:
    """Translations of a cut line: the best of all its sentences, their second ones, … by falling score.

    A score is that of one translation with all pieces of the sentences, whose log-probabilities are summed.
    """
    if len(sentences) == 1:
        return list(sentences[0])
    translations: list[Hypothesis] = []
    for alternatives in zip(*sentences, strict=True):
        text = "".join(f"{best.text}{space}" for best, space in zip(alternatives, [*spaces, ""], strict=True))
        lengths = [len(best.pieces) + (list(best.pieces[-1:]) != [end_id]) for best in alternatives]
        scores = [best.score for best in alternatives if best.score is not None]
        log_probs = [score * n**length_penalty for score, n in zip(scores, lengths, strict=False)]
        score = normalised(sum(log_probs), sum(lengths), length_penalty) if scores else None
        pieces = [piece for best in alternatives for piece in best.pieces]
        repairs = tuple(repair for best in alternatives for repair in best.repairs)
        loops = any(best.loops for best in alternatives)
        translations.append(Hypothesis(text.strip(), score, pieces, loops, repairs=repairs))
    return sorted(translations, key=lambda best: -(best.score or 0.0))
