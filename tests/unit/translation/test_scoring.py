"""Scores are sacreBLEU's own, and so is the test of significance."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
import sacrebleu
from sacrebleu.metrics import BLEU, CHRF, TER
from sacrebleu.significance import PairedTest

from syntaxformer.base.errors import ConfigError
from syntaxformer.translation.model_folder import FolderInfo
from syntaxformer.translation.scoring import (
    bootstrap_gain,
    common_scoring,
    compare_translations,
    paired_bootstrap,
    score_table,
    score_translations,
    score_translator,
)

REFERENCES = [
    "Ein Mann in einem blauen Hemd steht auf einer Leiter.",
    "Zwei Hunde spielen im Schnee.",
    "Die Katze saß auf der Matte und schlief.",
    "Ein Kind läuft über die Straße.",
    "",
] * 11


def _noisy(share: float, seed: int) -> list[str]:
    chosen = random.Random(seed)
    return [" ".join(word for word in line.split() if chosen.random() > share) for line in REFERENCES]


def test_scores_are_sacrebleus():
    hypotheses = _noisy(0.2, 1)
    scores = score_translations(hypotheses, REFERENCES)
    assert scores.bleu == sacrebleu.corpus_bleu(hypotheses, [REFERENCES]).score
    assert scores.chrf == sacrebleu.corpus_chrf(hypotheses, [REFERENCES]).score
    assert 0 < scores.bleu < 100
    assert scores.n_lines == 55
    version = sacrebleu.__version__
    assert scores.bleu_signature == f"nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:{version}"
    assert scores.chrf_signature == f"nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|version:{version}"


@pytest.mark.parametrize("n_lines", [1, 3])
def test_lines_that_are_all_the_same_make_nothing_sure(n_lines):
    system, worse = REFERENCES[:1] * n_lines, [REFERENCES[0].rsplit(" ", 2)[0]] * n_lines
    comparison = compare_translations(worse, system, system)
    assert comparison.difference == pytest.approx(100 - score_translations(worse, system).bleu)
    assert math.isnan(comparison.p_value)
    assert comparison.no_p == "too few lines"
    assert compare_translations(system, system, system).p_value == 1.0


def test_two_systems_that_do_not_translate_have_no_p():
    nothing, little = ["x"] * len(REFERENCES), ["Ein x y z Mann a b c."] * len(REFERENCES)
    comparison = compare_translations(nothing, little, REFERENCES)
    assert 0 < comparison.difference < 1
    assert math.isnan(comparison.p_value)
    assert comparison.no_p == "neither system translates, both have a BLEU below 1"
    assert compare_translations(nothing, REFERENCES, REFERENCES).no_p is None


@pytest.mark.parametrize(("hypotheses", "references"), [(["a"], ["a", "b"]), (["a", "b"], ["a"]), ([], [])])
def test_line_counts(hypotheses, references):
    message = f"references: expected {len(hypotheses)}, one for each hypothesis, got {len(references)}."
    for call in (
        lambda: score_translations(hypotheses, references),
        lambda: compare_translations(hypotheses, hypotheses, references),
        lambda: score_translator(None, hypotheses, references),  # before anything is translated
    ):
        with pytest.raises(ValueError) as caught:
            call()
        assert str(caught.value) == message


def _info(**more) -> FolderInfo:
    return FolderInfo(src="en", tgt="de", annotator=None, annotator_version=None, factors=[], **more)


def test_a_cased_and_a_lower_case_model_are_compared_in_lower_case():
    for infos in ((_info(), _info(lowercase=True)), (_info(lowercase=True), _info())):
        assert common_scoring(infos, "--baseline") == {"lowercase": True, "tokenize": "13a"}
    assert common_scoring([_info()], "--baseline") == {"lowercase": False, "tokenize": "13a"}


def test_tokenised_output_is_not_compared_with_text():
    with pytest.raises(ConfigError, match="--baseline:"):
        common_scoring([_info(tokenized=True), _info()], "--baseline")


def test_the_interval_over_seeds_and_sentences():
    """Its centre is sacreBLEU's mean gain; it holds 0 where systems are equal, and is wider for fewer lines."""
    references = [f"der Hund {n} schläft im hohen Gras neben dem alten Haus ." for n in range(60)]
    poor = [line.replace("hohen ", "" if n % 2 else "hohen ") for n, line in enumerate(references)]
    worse = [line.replace("alten ", "") if n % 3 else line for n, line in enumerate(poor)]
    found = bootstrap_gain([(poor, references), (worse, poor)], references)
    gains = [
        score_translations(system, references).bleu - score_translations(baseline, references).bleu
        for baseline, system in ((poor, references), (worse, poor))
    ]
    assert found.mean == pytest.approx(sum(gains) / 2)
    assert min(gains) - 3 < found.low < found.mean < found.high < max(gains) + 3
    equal = bootstrap_gain([(poor, poor), (worse, worse)], references)
    assert (equal.low, equal.mean, equal.high) == (0.0, 0.0, 0.0)
    few = bootstrap_gain([(poor[:12], references[:12])], references[:12])
    many = bootstrap_gain([(poor, references)], references)
    assert few.high - few.low > many.high - many.low > 0
    with pytest.raises(ValueError, match="expected 60"):
        bootstrap_gain([(poor, references)], references[:12])


@pytest.mark.slow
def test_the_table_is_sacrebleus():
    """Scores, signatures and p of each metric; the interval is that of a loop over the same samples."""
    system, base, other = _noisy(0.1, 1), _noisy(0.2, 2), _noisy(0.4, 3)
    table = score_table({"sit": system, "base": base, "other": other}, REFERENCES)
    metrics = {"BLEU": BLEU(), "chrF++": CHRF(word_order=2), "TER": TER(case_sensitive=True)}
    assert list(table["signatures"]) == list(metrics)
    for name, lines in (("sit", system), ("base", base), ("other", other)):
        row = table["systems"][name]
        for key, metric in metrics.items():
            assert row[key] == pytest.approx(metric.corpus_score(lines, [REFERENCES]).score)
            assert table["signatures"][key] == str(metric.get_signature())
        bleu = metrics["BLEU"].corpus_score(lines, [REFERENCES])
        assert row["length_ratio"] == pytest.approx(bleu.sys_len / bleu.ref_len)
    assert "against" not in table["systems"]["sit"]
    for name, lines in (("base", base), ("other", other)):
        _, expected = PairedTest([("b", lines), ("s", system)], metrics, [REFERENCES], "bs", 1000)()
        for key, found in table["systems"][name]["against"].items():
            assert found["p_value"] == expected["chrF2++" if key == "chrF++" else key][1].p_value
            assert found["low"] < found["difference"] < found["high"]
            assert (found["difference"] > 0) == (key != "TER")
    drawn = np.random.default_rng(12345).choice(55, size=(1000, 55), replace=True)
    gains = [
        CHRF(word_order=2).corpus_score([system[n] for n in one], [[REFERENCES[n] for n in one]]).score
        - CHRF(word_order=2).corpus_score([base[n] for n in one], [[REFERENCES[n] for n in one]]).score
        for one in drawn[:200]
    ]
    again = score_table({"sit": system, "base": base}, REFERENCES)["systems"]["base"]["against"]["chrF++"]
    assert again == table["systems"]["base"]["against"]["chrF++"]
    assert np.percentile(gains, 2.5) == pytest.approx(again["low"], abs=0.5)
    assert np.percentile(gains, 97.5) == pytest.approx(again["high"], abs=0.5)


def test_several_references_are_scored_as_sacrebleu_does():
    """Each score, signature and p, on the whole text; a table and the single functions agree."""
    system, base, others = _noisy(0.1, 1), _noisy(0.3, 2), [REFERENCES, _noisy(0.2, 3)]
    metrics = {"BLEU": BLEU(), "chrF++": CHRF(word_order=2), "TER": TER(case_sensitive=True)}
    table = score_table({"sit": system, "base": base}, others)
    _, tests = PairedTest([("b", base), ("s", system)], metrics, others, "bs", 1000)()
    for key, metric in metrics.items():
        assert table["systems"]["sit"][key] == pytest.approx(metric.corpus_score(system, others).score)
        assert table["signatures"][key] == str(metric.get_signature())
        assert table["signatures"][key].startswith("nrefs:2|")
        p_value = tests["chrF2++" if key == "chrF++" else key][1].p_value
        assert table["systems"]["base"]["against"][key]["p_value"] == p_value
    scores = score_translations(system, others)
    assert (scores.bleu, scores.bleu_signature) == (
        BLEU().corpus_score(system, others).score,
        table["signatures"]["BLEU"],
    )
    assert compare_translations(base, system, others).p_value == tests["BLEU"][1].p_value
    assert bootstrap_gain([(base, system)], others).mean == pytest.approx(
        scores.bleu - score_translations(base, others).bleu
    )
    with pytest.raises(ValueError, match="expected 55, one for each hypothesis, got 54"):
        score_table({"sit": system}, [REFERENCES, REFERENCES[1:]])


def test_the_table_of_text_without_spaces_and_of_lower_case():
    table = score_table(
        {"a": ["今日は良い天気"]}, ["今日は悪い天気"], lowercase=True, tokenize="char", note="n"
    )
    assert table["systems"]["a"]["TER"] == pytest.approx(100 / 7)  # one of seven characters
    assert table["systems"]["a"]["length_ratio"] == 1
    assert all("case:lc" in one and one.endswith("|n") for one in table["signatures"].values())


def test_scores_of_lines_are_compared_by_their_means():
    """Any metric, also below zero; p and interval by a loop over the same samples."""
    rng = np.random.default_rng(7)
    base = rng.normal(-0.3, 0.2, 97)
    system = base + rng.normal(0.05, 0.2, 97)
    found = paired_bootstrap(base[:, None], system[:, None], lambda sums: sums[0] / 97)
    draws = np.random.default_rng(12345).choice(97, size=(1000, 97), replace=True)
    gains = (system - base)[draws].mean(1)
    assert found.difference == pytest.approx((system - base).mean())
    assert (found.low, found.high) == pytest.approx(tuple(np.percentile(gains, [2.5, 97.5])))
    larger = (abs(gains) - abs(gains).mean() > abs(found.difference)).sum()
    assert found.p_value == pytest.approx((larger + 1) / 1001)
    assert paired_bootstrap(base[:, None], base[:, None], lambda sums: sums[0] / 97).p_value == 1
    turned = paired_bootstrap(base[:, None], base[::-1, None], lambda sums: round(sums[0] / 97, 9))
    assert (turned.difference, turned.p_value) == (0, 1), "equal scores of lines that differ"
    assert turned.low < -0.01 < 0.01 < turned.high
    ones = np.ones((5, 1))
    assert paired_bootstrap(ones, 2 * ones, lambda sums: sums[0] / 5).no_p == "too few lines"
    few = paired_bootstrap(base[:9, None], system[:9, None], lambda sums: sums[0] / 9)
    assert few.no_p == "too few lines"
    assert math.isnan(few.low)
