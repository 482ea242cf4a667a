"""Scores translations with sacreBLEU's BLEU and chrF, and compares systems by paired bootstrap.

`score_translator` scores every test set and development set.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np
from sacrebleu.metrics import BLEU, CHRF
from sacrebleu.significance import PairedTest

from syntaxformer.base.errors import ConfigError
from syntaxformer.base.languages import language_of
from syntaxformer.base.statistics import Interval

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from syntaxformer.translation.translator import FolderInfo, Translator

_TOKENIZERS = {"zh": ("zh", None), "ja": ("ja-mecab", "ipadic"), "ko": ("ko-mecab", "mecab_ko")}
"""Language → sacreBLEU's tokenizer, and the package that it needs."""


@dataclass(frozen=True)
class TranslationScores:
    """Corpus scores of one system, from 0 to 100, with sacreBLEU's signatures."""

    bleu: float
    chrf: float
    bleu_signature: str
    chrf_signature: str
    n_lines: int

    def as_dict(self) -> dict[str, float | str | int]:
        """The scores as a dictionary for JSON."""
        return asdict(self)


@dataclass(frozen=True)
class Comparison:
    """The comparison of a system with a baseline on the same lines.

    Args:
        difference: BLEU of the system minus BLEU of the baseline.
        p_value: Probability of so large a difference if the two were equally good, by paired bootstrap over
            sentences; NaN if there is none.
        no_p: Why there is none: all lines are the same, for example because there is only one, or neither
            system reaches BLEU 1.
    """

    difference: float
    p_value: float
    no_p: str | None = None


@dataclass(frozen=True)
class ScoredText:
    """Translations of a text with their references, scores, and how many of them loop (see `is_loop`)."""

    hypotheses: list[str]
    references: list[str]
    scores: TranslationScores
    n_loops: int = 0


def score_translator(
    translator: Translator,
    sources: Sequence[str],
    references: Sequence[str],
    beam_size: int | None = None,
    user_factors: Mapping[str, Iterable[Sequence[str]]] | None = None,
) -> ScoredText:
    """Translate a text and score the result, cased and detokenised unless the model's target side is not.

    Raises:
        ValueError: The sides have different numbers of lines, or there are no lines.
        ConfigError: As `Translator.translate`.
    """
    info = translator.info
    best = _best(translator, sources, beam_size, user_factors)
    hypotheses = [one.text for one in best]
    clean = info.preparation(info.tgt).clean
    written = translator.as_written([clean(line) for line in references])
    scores = score_translations(hypotheses, written, **scoring(info), note=reference_note(info))
    return ScoredText(hypotheses, written, scores, sum(one.loops for one in best))


def best_translations(
    translator: Translator,
    sources: Iterable[str],
    beam_size: int | None = None,
    user_factors: Mapping[str, Iterable[Sequence[str]]] | None = None,
) -> list[str]:
    """The best translation of each line; factors that the model does not read are ignored."""
    return [one.text for one in _best(translator, sources, beam_size, user_factors)]


def _best(translator: Translator, sources: Iterable[str], beam_size: Any, user_factors: Any) -> list[Any]:
    read = translator.encoder.factors
    own = {name: values for name, values in (user_factors or {}).items() if name in read}
    return [best[0] for best in translator.translate(sources, beam_size, user_factors=own)]


def score_translations(
    hypotheses: Sequence[str],
    references: Sequence[str],
    lowercase: bool = False,
    tokenize: str = "13a",
    note: str | None = None,
) -> TranslationScores:
    """Score detokenised, cased text, unless the arguments say otherwise; the signatures record them.

    `tokenize` is sacreBLEU's option; `note` says how the references were changed, and ends the signatures.

    Raises:
        ValueError: The sides have different numbers of lines, or there are no lines.
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

    Raises:
        ValueError: The texts have different numbers of lines, or there are no lines.

    Source: Koehn (2004); computed by sacreBLEU.
    """
    _check_lines(baseline, references)
    _check_lines(system, references)
    if len(set(zip(baseline, system, references, strict=True))) == 1:
        # Every resampled test set would be the same, and sacreBLEU would call any difference certain.
        both = [
            _bleu(lowercase, tokenize).corpus_score([*one], [[*references]]) for one in (baseline, system)
        ]
        gain = both[1].score - both[0].score
        return Comparison(gain, math.nan, "too few lines") if gain else Comparison(gain, 1.0)
    outputs = [("baseline", list(baseline)), ("system", list(system))]
    bleu = _bleu(lowercase, tokenize, references=[list(references)])
    test = PairedTest(outputs, {"BLEU": bleu}, [list(references)], "bs", n_samples)
    _, scores = test()
    first, second = scores["BLEU"]
    difference = second.score - first.score
    if difference and max(first.score, second.score) < 1:
        return Comparison(difference, math.nan, "neither system translates, both have a BLEU below 1")
    # sacreBLEU counts samples with a strictly larger difference, so two equal systems would differ.
    return Comparison(difference, float(second.p_value) if difference else 1.0)


def bootstrap_gain(
    pairs: Sequence[tuple[Sequence[str], Sequence[str]]],
    references: Sequence[str],
    n_samples: int = 2000,
    lowercase: bool = False,
    tokenize: str = "13a",
) -> Interval:
    """Mean gain in BLEU over pairs of runs, with the 95 % interval over both seeds and sentences.

    Each sample draws seeds and sentences with replacement; the drawn sentences are the same for all seeds.

    Args:
        pairs: For each seed the lines of the baseline and of the system.
        references: Lines, as many as each system has.
        n_samples: Number of samples.
        lowercase: As in `scoring`.
        tokenize: As in `scoring`.

    Raises:
        ValueError: The texts have different numbers of lines, or there are no lines.

    Source: Koehn (2004); the draw of seeds as in Davison and Hinkley (1997), section 3.8.
    """
    bleu = _bleu(lowercase, tokenize, effective_order=True)
    counts = []
    for lines in (lines for pair in pairs for lines in pair):
        _check_lines(lines, references)
        scores = (bleu.sentence_score(one, [other]) for one, other in zip(lines, references, strict=True))
        counts.append([[*one.counts, *one.totals, one.sys_len, one.ref_len] for one in scores])
    table = np.asarray(counts)  # [2 · seeds, sentences, 10]
    rng = np.random.default_rng(12345)
    n_seeds, n_lines = len(pairs), len(references)

    def gains(weights: np.ndarray) -> np.ndarray:
        sums = np.tensordot(table, weights, (1, 0)).tolist()
        scores = [BLEU.compute_bleu(one[:4], one[4:8], one[8], one[9]).score for one in sums]
        return np.asarray(scores[1::2]) - scores[::2]

    found = [
        gains(np.bincount(rng.integers(0, n_lines, n_lines), minlength=n_lines))[
            rng.integers(0, n_seeds, n_seeds)
        ].mean()
        for _ in range(n_samples)
    ]
    low, high = np.percentile(found, [2.5, 97.5])
    return Interval(float(gains(np.ones(n_lines, int)).mean()), float(low), float(high))


def scoring(info: FolderInfo) -> dict[str, Any]:
    """Options with which sacreBLEU scores a model's output, as its target side was prepared.

    Lower-cased text is compared in lower case, and text that stays tokenised is not tokenised again. Chinese,
    Japanese and Korean have their own tokenizers, as in sacreBLEU's command; if the package that splits them
    into words is not installed, characters are scored.
    """
    tokenize, package = _TOKENIZERS.get(info.languages[1], ("13a", None))
    if package is not None and find_spec(package) is None:
        tokenize = "char"
    return {"lowercase": info.lowercase, "tokenize": "none" if info.tokenized else tokenize}


def check_directions(infos: Sequence[FolderInfo], option: str) -> None:
    """Check that the models to compare translate between the same languages.

    Raises:
        ConfigError: They do not. A side of unknown language fits any known language.
    """
    for other in infos[1:]:
        sides = zip(infos[0].languages, other.languages, strict=True)
        if any(a != b and (language_of(a) is None) == (language_of(b) is None) for a, b in sides):
            ways = " and ".join(" → ".join(one.languages) for one in (infos[0], other))
            raise ConfigError(f"{option}: expected models of the same direction, got {ways}.")


def reference_note(info: FolderInfo) -> str | None:
    """The note in the signature of a score if `Translator.as_written` changed the references."""
    return "refs:through_target_pieces" if info.rewrites_target else None


def common_scoring(infos: Sequence[FolderInfo], option: str) -> dict[str, Any]:
    """Options with which models are compared: in lower case if one of them writes lower case.

    Raises:
        ConfigError: Their directions differ, or only one of them writes tokenised text.
    """
    check_directions(infos, option)
    found = [scoring(info) for info in infos]
    if len({one["tokenize"] for one in found}) > 1:
        ways = " and ".join(dict.fromkeys(one["tokenize"] for one in found))
        raise ConfigError(
            f"{option}: expected models whose output BLEU tokenises in the same way, got {ways}."
        )
    return {**found[0], "lowercase": any(one["lowercase"] for one in found)}


def _bleu(lowercase: bool, tokenize: str, **further: Any) -> BLEU:
    """BLEU; `force` stops sacreBLEU from warning of text that stays tokenised on purpose."""
    return BLEU(lowercase=lowercase, tokenize=tokenize, force=tokenize == "none", **further)


def _check_lines(hypotheses: Sequence[str], references: Sequence[str]) -> None:
    if len(hypotheses) != len(references) or not references:
        raise ValueError(
            f"references: expected {len(hypotheses)}, one for each hypothesis, got {len(references)}."
        )
