"""Scores translations with sacreBLEU's metrics, and compares systems by paired bootstrap.

`score_translator` scores every test set and development set.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sacrebleu.metrics import BLEU, CHRF, TER
from sacrebleu.significance import PairedTest, estimate_ci

from syntaxformer.base.config import nearest
from syntaxformer.base.errors import ConfigError
from syntaxformer.base.languages import BUNDLED, SPACES, language_of, language_of_side
from syntaxformer.base.progress import track
from syntaxformer.base.statistics import FEWEST_ROWS, Comparison, Interval
from syntaxformer.syntax import WordColumns
from syntaxformer.translation.terms import kept_terms

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from syntaxformer.annotate import Annotator
    from syntaxformer.translation.model_folder import FolderInfo
    from syntaxformer.translation.terms import Terms
    from syntaxformer.translation.translator import Translator

N_SAMPLES = 1000
"""Test sets that are drawn for a p, as in sacreBLEU; twice as many where seeds are drawn, too."""

_TOKENIZERS = {"zh": ("zh", None), "ja": ("ja-mecab", "ipadic"), "ko": ("ko-mecab", "mecab_ko")}
"""Language → sacreBLEU's tokenizer, and the package that it needs."""

References = Sequence[str] | Sequence[Sequence[str]]
"""The reference of each line; or several texts of references, as sacreBLEU takes them."""


@dataclass(frozen=True)
class TranslationScores:
    """Corpus scores of one system, from 0 to 100, with sacreBLEU's signatures."""

    bleu: float
    chrf: float
    bleu_signature: str
    chrf_signature: str
    n_lines: int


@dataclass(frozen=True)
class ScoredText:
    """Translations of a text with their references, scores, and how many of them loop (see `is_loop`)."""

    hypotheses: list[str]
    references: References
    scores: TranslationScores
    n_loops: int = 0


def score_translator(
    translator: Translator,
    sources: Sequence[str],
    references: References,
    beam_size: int | None = None,
    user_factors: Mapping[str, Iterable[Sequence[str]]] | None = None,
    progress: str | None = None,
    **search: Any,
) -> ScoredText:
    """Translate a text and score the result, cased and detokenised unless the model's target side is not.

    Factors that the model does not read are ignored. `progress` says what is done where progress is shown.
    `search` are other settings of `Translator.translate`.

    Raises:
        ValueError: The sides have different numbers of lines, or there are no lines.
        ConfigError: As `Translator.translate`.
    """
    checked_texts(sources, references)  # before the work
    info, factor_names = translator.info, translator.encoder.factors
    factors = {name: values for name, values in (user_factors or {}).items() if name in factor_names}
    translations = translator.translate(sources, beam_size, user_factors=factors, **search)
    shown = track(translations, progress or "", len(sources), enabled=progress is not None)
    best = [n_best[0] for n_best in shown]
    hypotheses = [hypothesis.text for hypothesis in best]
    written = written_references([translator], references)
    scores = score_translations(hypotheses, written, **scoring(info), note=reference_note(info))
    return ScoredText(hypotheses, written, scores, sum(hypothesis.loops for hypothesis in best))


def written_references(translators: Sequence[Translator], references: References) -> References:
    """References prepared as the first model's output, and as each of the models can write them."""
    if not isinstance(references[0], str):
        return [written_references(translators, text) for text in references]  # type: ignore[misc]
    info = translators[0].info
    lines: Any = list(map(info.preparation(info.tgt).clean, references))  # type: ignore[arg-type]
    for translator in translators:
        lines = translator.as_written(lines)
    return lines


def score_translations(
    hypotheses: Sequence[str],
    references: References,
    lowercase: bool = False,
    tokenize: str = "13a",
    note: str | None = None,
) -> TranslationScores:
    """Score detokenised, cased text, unless the arguments say otherwise; the signatures record them.

    `tokenize` is sacreBLEU's option; `note` says how the references were changed, and ends the signatures.

    Raises:
        ValueError: The sides have different numbers of lines, or there are no lines.
    """
    texts = checked_texts(hypotheses, references)
    bleu, chrf = _bleu(lowercase, tokenize), CHRF(lowercase=lowercase)
    bleu_score = bleu.corpus_score(list(hypotheses), texts)
    chrf_score = chrf.corpus_score(list(hypotheses), texts)
    ending = f"|{note}" if note else ""
    signatures = f"{bleu.get_signature()}{ending}", f"{chrf.get_signature()}{ending}"
    return TranslationScores(bleu_score.score, chrf_score.score, *signatures, len(hypotheses))


def compare_translations(
    baseline: Sequence[str],
    system: Sequence[str],
    references: References,
    lowercase: bool = False,
    tokenize: str = "13a",
) -> Comparison:
    """Paired bootstrap resampling of BLEU over sentences; ValueError for texts of other lengths.

    Source: Koehn (2004); the numbers are sacreBLEU's.
    """
    bleu = _bleu(lowercase, tokenize)
    tables = (_statistics(bleu, lines, references) for lines in (baseline, system))
    return paired_bootstrap(*tables, _score_of(bleu), least=1)


def _statistics(metric: Any, lines: Sequence[str], references: References) -> NDArray[np.float32]:
    """What sacreBLEU counts on each line, `[lines, statistics]`, of the type in which it adds it."""
    texts = checked_texts(lines, references)
    return np.asarray(metric._extract_corpus_statistics(list(lines), texts), np.float32)


def _score_of(metric: Any) -> Callable[[Any], float]:
    return lambda sums: float(metric._compute_score_from_stats(sums).score)


def paired_bootstrap(
    baseline: NDArray[Any],
    system: NDArray[Any],
    score: Callable[[NDArray[Any]], float],
    least: float = -math.inf,
) -> Comparison:
    """Compare two systems, by statistics of each line, `[lines, statistics]`, on resampled test sets.

    `score` gives the score of a text of at least one line from the sums of its statistics, `[statistics]`.
    There is no p where both score below `least`, a BLEU.

    Source: Koehn (2004); p as in sacreBLEU, with its seed.
    """
    whole = [score(table.sum(0, dtype=np.float64)) for table in (baseline, system)]
    gain = whole[1] - whole[0]
    if np.array_equal(baseline, system):
        return Comparison(0.0, 1.0, None, 0.0, 0.0)
    n_kinds = len(np.unique(np.hstack([baseline, system]), axis=0))
    if len(baseline) < FEWEST_ROWS or n_kinds == 1:
        # Resampled test sets would be nearly the same, and sacreBLEU would call any difference certain.
        return Comparison(gain, math.nan, "too few lines")
    if max(whole) < least:
        return Comparison(gain, math.nan, f"neither system translates, both have a BLEU below {least:g}")
    gains = _resampled(system, score) - _resampled(baseline, score)
    n_larger = int((np.abs(gains) - np.abs(gains).mean() > abs(gain)).sum())
    low, high = np.percentile(gains, [2.5, 97.5]).tolist()
    if not gain:  # sacreBLEU's p, which centres sizes, would be some 0.4
        n_larger = N_SAMPLES
    return Comparison(gain, (n_larger + 1) / (N_SAMPLES + 1), None, low, high)


def _resampled(table: NDArray[Any], score: Callable[[NDArray[Any]], float]) -> NDArray[Any]:
    """Scores of test sets that are drawn as sacreBLEU draws them, the same for all systems."""
    rng, n_lines = np.random.default_rng(12345), len(table)
    drawn = (rng.choice(n_lines, n_lines) for _ in range(N_SAMPLES))
    return np.array([score(table[rows].sum(0)) for rows in drawn])


def score_table(
    systems: Mapping[str, Sequence[str]],
    references: References,
    lowercase: bool = False,
    tokenize: str = "13a",
    note: str | None = None,
    intervals: bool = False,
    paired_ar: bool = False,
    origins: Sequence[str] | None = None,
) -> dict[str, Any]:
    """BLEU, chrF++ and TER of several systems, and the first one's difference from each of the others.

    Args as in `score_translations`; TER takes text apart into characters where words have no spaces. Also:
        intervals: Give the half widths of each score's 95 % interval, as sacreBLEU estimates them.
        paired_ar: Take p from sacreBLEU's approximate randomisation instead of the paired bootstrap.
        origins: The document or origin of each line: score the lines of each alone, too.

    Returns:
        For JSON: `signatures` by metric, and `systems` by name. A system has a score for each metric, its
        `length_ratio` (words to the reference's), and in `against` the fields of a `Comparison` by metric;
        by metric also in `half_widths` and, by origin, in `origins`, with `origin_lines`.

    Raises:
        ValueError: The texts have different numbers of lines, or there are no lines.
    """
    by_characters = tokenize not in ("13a", "none")
    metrics: dict[str, Any] = {
        "BLEU": _bleu(lowercase, tokenize),
        "chrF++": CHRF(word_order=2, lowercase=lowercase),
        "TER": TER(normalized=by_characters, asian_support=by_characters, case_sensitive=not lowercase),
    }
    score_of = {key: _score_of(metric) for key, metric in metrics.items()}
    rows, first, signed, randomised = (dict[str, Any]() for _ in range(4))
    if paired_ar and len(systems) > 1:
        texts = checked_texts(next(iter(systems.values())), references)
        named = [(name, list(lines)) for name, lines in systems.items()]
        signatures, results = PairedTest(named, metrics, texts, "ar")()
        signed = dict(zip(metrics, signatures.values(), strict=True))
        for key, of_systems in zip(metrics, [*results.values()][1:], strict=True):
            randomised[key] = dict(zip(systems, of_systems, strict=True))
    lines_of = np.array(origins or ())
    groups = {origin: lines_of == origin for origin in dict.fromkeys(origins or ())}
    for name, lines in systems.items():
        tables = {key: _statistics(metric, lines, references) for key, metric in metrics.items()}
        sums = {key: table.sum(0, dtype=np.float64) for key, table in tables.items()}
        n_words, reference = sums["BLEU"][:2].tolist()
        row: dict[str, Any] = {key: score_of[key](table) for key, table in sums.items()}
        row["length_ratio"] = n_words / reference if reference else None
        if intervals and len(lines) >= FEWEST_ROWS:
            samples = {key: _resampled(table, score_of[key]) for key, table in tables.items()}
            row["half_widths"] = {key: float(estimate_ci(scores)[1]) for key, scores in samples.items()}
        if groups:
            row["origins"] = {
                origin: {key: score_of[key](table[chosen].sum(0)) for key, table in tables.items()}
                for origin, chosen in groups.items()
            }
        if first:
            tests: dict[str, Comparison] = {}
            for key, table in tables.items():
                least = 1.0 if key == "BLEU" else -math.inf
                tests[key] = paired_bootstrap(table, first[key], score_of[key], least=least)
                if paired_ar and tests[key].p_value < 1:  # sacreBLEU would call equal systems different
                    by = {"p_value": randomised[key][name].p_value, "test": "approximate randomisation"}
                    tests[key] = replace(tests[key], **by)
                if (no_p := tests["BLEU"].no_p) is not None:  # no metric is surer than BLEU of no translation
                    tests[key] = replace(tests[key], p_value=math.nan, no_p=no_p)
            row["against"] = {key: test.as_dict() for key, test in tests.items()}
        rows[name], first = row, first or tables
    ending = f"|{note}" if note else ""
    signed = {key: signed.get(key) or metric.get_signature() for key, metric in metrics.items()}
    signatures = {key: f"{signature}{ending}" for key, signature in signed.items()}
    report: dict[str, Any] = {"signatures": signatures, "systems": rows}
    if groups:
        report["origin_lines"] = {origin: int(chosen.sum()) for origin, chosen in groups.items()}
    return report


def bootstrap_gain(
    pairs: Sequence[tuple[Sequence[str], Sequence[str]]],
    references: References,
    lowercase: bool = False,
    tokenize: str = "13a",
) -> Interval:
    """Mean gain in BLEU over pairs of runs, with the 95 % interval over both seeds and sentences.

    Each sample draws seeds and sentences with replacement; the drawn sentences are the same for all seeds.
    `pairs` are for each seed the lines of the baseline and of the system; options are as in `scoring`.

    Source: Koehn (2004); the draw of seeds as in Davison and Hinkley (1997), section 3.8.

    Raises:
        ValueError: The texts have different numbers of lines, or there are no lines.
    """
    bleu = _bleu(lowercase, tokenize)
    table = np.stack([_statistics(bleu, lines, references) for pair in pairs for lines in pair])
    rng = np.random.default_rng(12345)
    n_seeds, n_lines = len(pairs), table.shape[1]

    def gains(weights: np.ndarray) -> np.ndarray:
        scores = [*map(_score_of(bleu), np.tensordot(table, weights, (1, 0)).tolist())]
        return np.asarray(scores[1::2]) - scores[::2]

    means = []
    for _ in range(2 * N_SAMPLES):
        weights = np.bincount(rng.integers(0, n_lines, n_lines), minlength=n_lines)
        means.append(gains(weights)[rng.integers(0, n_seeds, n_seeds)].mean())
    low, high = np.percentile(means, [2.5, 97.5])
    return Interval(float(gains(np.ones(n_lines, int)).mean()), float(low), float(high))


def scoring(info: FolderInfo) -> dict[str, Any]:
    """Options with which sacreBLEU scores a model's output, as its target side was prepared.

    Lower-cased text is compared in lower case, and text that stays tokenised is not tokenised again. Chinese,
    Japanese and Korean have their own tokenizers, as in sacreBLEU's command; if the package that splits them
    into words is not installed, characters are scored.
    """
    return scoring_of(info.languages[1], info.lowercase is True, info.tokenized)


def scoring_of(language: str | None, lowercase: bool = False, tokenized: bool = False) -> dict[str, Any]:
    """The options of `scoring` for text in a language."""
    tokenize, package = _TOKENIZERS.get(language or "", ("13a", None))
    if package is not None and find_spec(package) is None:
        tokenize = "char"
    return {"lowercase": lowercase, "tokenize": "none" if tokenized else tokenize}


def cached_test_set(name: str, pair: str) -> dict[str, Path]:
    """The files of a test set in sacreBLEU's cache by field: src, ref, docid and others.

    Raises:
        ConfigError: sacreBLEU has no such test set or pair, or it is not in the cache.
    """
    from sacrebleu.dataset import DATASETS

    pairs = getattr(DATASETS.get(name), "langpairs", {})
    for option, value, known in (("--test-set", name, DATASETS), ("--pair", pair, pairs)):
        if value not in known:
            raise ConfigError(
                f"{option}: expected a name of sacreBLEU, got {value}. {nearest(value, [*known])}"
            )
    dataset: Any = DATASETS[name]
    refs = getattr(dataset, "_get_langpair_allowed_refs", dataset.fieldnames)(pair)
    texts = ["src", *(field for field in refs if field.startswith("ref"))]
    fields = [*texts, "docid", "origlang", "genre", "domain"]
    files = {field: Path(dataset._get_txt_file_path(pair, field)) for field in fields}
    if missing := [files[field] for field in texts if not files[field].is_file()]:
        raise ConfigError(
            f"--test-set: expected {name} {pair} in sacreBLEU's cache, found no {missing[0]}. "
            f"Download it: sacrebleu -t {name} -l {pair} --echo src"
        )
    return {field: path for field, path in files.items() if path.is_file()}


def kept_terms_of(
    systems: Mapping[str, Translator],
    terms: Terms,
    sources: Sequence[str],
    texts: Mapping[str, Sequence[str]],
) -> dict[str, dict[str, Any]]:
    """For each system's translations, whether it was given the terms, and the counts of `kept_terms`.

    Terms are found with the annotator of a model that was given them, or else of the source's language.
    """
    from syntaxformer import annotate

    def bundled(side: str) -> Annotator | None:
        code = language_of_side(info, side).code
        return annotate.load_annotator(code) if code in BUNDLED else None

    trained = [system for system in systems.values() if system.info.terms is not None]
    info = next(iter(trained or systems.values())).info
    reader = trained[0].annotator if trained else bundled(info.src)
    prepare, tidy = info.preparation(info.src).clean, info.preparation(info.tgt).clean
    sentences = (reader or annotate.load_annotator(SPACES)).annotate([prepare(line) for line in sources])
    matches = terms.cleaned(prepare, tidy).find(WordColumns.from_sentences(sentences, only={"lemmas"}))
    settings = bundled(info.tgt), any(system.info.lowercase for system in systems.values())
    counts = {name: kept_terms(matches, texts[name], *settings) for name in systems}
    return {name: {"given": systems[name].info.terms is not None, **counts[name]} for name in systems}


def check_directions(infos: Sequence[FolderInfo], option: str) -> None:
    """Check that the models to compare translate between the same languages; an unknown one fits any.

    Raises:
        ConfigError: They do not. A side of unknown language fits any known language.
    """
    for other in infos[1:]:
        sides = zip(infos[0].languages, other.languages, strict=True)
        if any(a != b and (language_of(a) is None) == (language_of(b) is None) for a, b in sides):
            ways = " and ".join(" → ".join(info.languages) for info in (infos[0], other))
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
    options = [scoring(info) for info in infos]
    ways = list(dict.fromkeys(of_model["tokenize"] for of_model in options))
    if len(ways) > 1:
        expected = "expected models whose output BLEU tokenises in the same way"
        raise ConfigError(f"{option}: {expected}, got {' and '.join(ways)}.")
    return {"lowercase": any(of_model["lowercase"] for of_model in options), "tokenize": ways[0]}


def _bleu(lowercase: bool, tokenize: str) -> BLEU:
    """BLEU; `force` stops sacreBLEU from warning of text that stays tokenised on purpose."""
    return BLEU(lowercase=lowercase, tokenize=tokenize, force=tokenize == "none")


def checked_texts(hypotheses: Sequence[str], references: References) -> list[list[str]]:
    """The texts of references; ValueError for one without a line for each hypothesis, or without lines."""
    texts: Any = [references] if not references or isinstance(references[0], str) else references
    for text in texts:
        if len(hypotheses) != len(text) or not text:
            raise ValueError(
                f"references: expected {len(hypotheses)}, one for each hypothesis, got {len(text)}."
            )
    return [list(text) for text in texts]
