"""BLEU and chrF by sacreBLEU, with their signatures, and the paired bootstrap between two systems."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from sacrebleu.metrics import BLEU, CHRF
from sacrebleu.significance import PairedTest

__all__ = ["Comparison", "TranslationScores", "compare_translations", "score_translations"]


@dataclass(frozen=True)
class TranslationScores:
    """Corpus scores of one system.

    Args:
        bleu: 0 to 100.
        chrf: 0 to 100.
        bleu_signature: sacreBLEU's signature: tokenizer, case, smoothing, version.
        chrf_signature: The same for chrF.
        n_lines: Scored lines.
    """

    bleu: float
    chrf: float
    bleu_signature: str
    chrf_signature: str
    n_lines: int

    def as_dict(self) -> dict[str, float | str | int]:
        """For JSON."""
        return asdict(self)


@dataclass(frozen=True)
class Comparison:
    """A system against a baseline on the same lines.

    Args:
        difference: BLEU of the system minus BLEU of the baseline.
        p_value: Chance of so large a difference if the two were equal, by paired bootstrap over sentences;
            NaN where all lines are the same, one for instance.
    """

    difference: float
    p_value: float


def score_translations(
    hypotheses: Sequence[str],
    references: Sequence[str],
    lowercase: bool = False,
    tokenize: str = "13a",
    note: str | None = None,
) -> TranslationScores:
    """Score detokenised, cased text, unless told otherwise; the signatures say how it was done.

    Args:
        hypotheses: Output of a system.
        references: Reference translations.
        lowercase: Compare in lower case.
        tokenize: sacreBLEU's tokenizer; "none" for text that is split into words already.
        note: What was done to the references before; it ends the signatures.

    Raises:
        ValueError: Other numbers of lines on the two sides, or none.
    """
    _check_lines(hypotheses, references)
    bleu, chrf = _bleu(lowercase, tokenize), CHRF(lowercase=lowercase)
    bleu_score = bleu.corpus_score(list(hypotheses), [list(references)])
    chrf_score = chrf.corpus_score(list(hypotheses), [list(references)])
    ending = f"|{note}" if note else ""
    signatures = f"{bleu.get_signature()}{ending}", f"{chrf.get_signature()}{ending}"
    return TranslationScores(bleu_score.score, chrf_score.score, *signatures, len(hypotheses))


def compare_translations(
    baseline: Sequence[str],
    system: Sequence[str],
    references: Sequence[str],
    n_samples: int = 1000,
    lowercase: bool = False,
    tokenize: str = "13a",
) -> Comparison:
    """Paired bootstrap resampling over sentences.

    Args:
        baseline: Output of the baseline.
        system: Output of the other system.
        references: Reference translations.
        n_samples: Resampled test sets.
        lowercase: As in `score_translations`.
        tokenize: As in `score_translations`.

    Raises:
        ValueError: Other numbers of lines, or none.

    Source: Koehn (2004); computed by sacreBLEU.
    """
    _check_lines(baseline, references)
    _check_lines(system, references)
    if len(set(zip(baseline, system, references, strict=True))) == 1:
        # Every resampled test set is the same, and sacreBLEU would call any difference sure.
        both = [
            _bleu(lowercase, tokenize).corpus_score([*one], [[*references]]) for one in (baseline, system)
        ]
        gain = both[1].score - both[0].score
        return Comparison(gain, math.nan if gain else 1.0)
    outputs = [("baseline", list(baseline)), ("system", list(system))]
    bleu = _bleu(lowercase, tokenize, references=[list(references)])
    test = PairedTest(outputs, {"BLEU": bleu}, [list(references)], "bs", n_samples)
    _, scores = test()
    first, second = scores["BLEU"]
    difference = second.score - first.score
    # sacreBLEU counts samples with a strictly larger difference: two equal systems would look significant.
    return Comparison(difference, float(second.p_value) if difference else 1.0)


def _bleu(lowercase: bool, tokenize: str, **further: Any) -> BLEU:
    """`force` where text stays tokenised: sacreBLEU would warn of exactly that."""
    return BLEU(lowercase=lowercase, tokenize=tokenize, force=tokenize == "none", **further)


def _check_lines(hypotheses: Sequence[str], references: Sequence[str]) -> None:
    if len(hypotheses) != len(references) or not references:
        raise ValueError(
            f"references: expected {len(hypotheses)}, one a hypothesis and not none, got {len(references)}."
        )
