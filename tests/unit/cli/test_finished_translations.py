"""`evaluate` of finished translations, as sacreBLEU's own command does it, and of any metric's scores of lines."""

from __future__ import annotations

import gzip
import json
import random

import numpy as np
import pytest
from sacrebleu.dataset import DATASETS
from sacrebleu.metrics import BLEU, CHRF, TER
from sacrebleu.significance import PairedTest
from typer.testing import CliRunner

from syntaxformer.cli.compare import _score_blocks
from syntaxformer.cli.evaluate import score_rows
from syntaxformer.cli.main import app
from syntaxformer.translation.model_folder import FolderInfo
from syntaxformer.translation.scoring import paired_bootstrap, score_table

SENTENCES = ["Ein Mann steht auf einer Leiter.", "Zwei Hunde spielen im Schnee.", "Die Katze schläft.", "Ja!"]
REFERENCE = [f"{sentence} Und {number}." for number in range(7) for sentence in SENTENCES]


def _noisy(share, seed):
    chosen = random.Random(seed)
    return [" ".join(word for word in line.split() if chosen.random() > share) or "x" for line in REFERENCE]


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    texts = {"a.de": _noisy(0.1, 1), "b.de": _noisy(0.4, 2), "r1.de": REFERENCE, "r2.de": _noisy(0.2, 3)}
    for name, lines in texts.items():
        (tmp_path / name).write_text("\n".join(lines) + "\n", "utf-8")
    (tmp_path / "b.de.gz").write_bytes(gzip.compress("\r\n".join(texts["b.de"]).encode()))
    (tmp_path / "origin").write_text("".join(f"{'en' if row % 3 else 'de'}\n" for row in range(28)))
    return texts


def _evaluate(*arguments):
    return CliRunner().invoke(app, ["evaluate", *arguments])


def _metrics():
    return {"BLEU": BLEU(), "chrF2++": CHRF(word_order=2), "TER": TER(case_sensitive=True)}


@pytest.mark.parametrize("test", ["bs", pytest.param("ar", marks=pytest.mark.slow)])
def test_two_files_against_two_references_are_sacrebleus(files, test):
    more = ("--paired-ar",) if test == "ar" else ()
    done = _evaluate("--hyp", "a.de", "--hyp", "b.de.gz", "--ref", "r1.de", "--ref", "r2.de", "--json", *more)
    report = json.loads(done.stdout)
    references = [files["r1.de"], files["r2.de"]]
    named = [("a.de", files["a.de"]), ("b.de.gz", files["b.de"])]
    signatures, results = PairedTest(named, _metrics(), references, test, n_ar_confidence=0)()
    for name, theirs in zip(("BLEU", "chrF++", "TER"), _metrics(), strict=True):
        for system, result in zip(("a.de", "b.de.gz"), results[theirs], strict=True):
            assert report["systems"][system][name] == pytest.approx(result.score, abs=1e-4)
        against = report["systems"]["b.de.gz"]["against"][name]
        assert against["p_value"] == pytest.approx(results[theirs][1].p_value)
        method = "approximate randomisation" if test == "ar" else "one-sided paired bootstrap"
        assert against["test"] == method
        if test == "bs":
            widths = [report["systems"][system]["half_widths"][name] for system in ("a.de", "b.de.gz")]
            assert widths == pytest.approx([result.ci for result in results[theirs]], abs=1e-4)
        assert "nrefs:2" in report["signatures"][name]
        assert ("|ar:10000" in report["signatures"][name]) == (test == "ar")
        assert ("|ar:10000" in str(signatures[theirs])) == (test == "ar")
    assert (report["model"], report["baseline"], report["n_lines"]) == ("a.de", "b.de.gz", 28)


@pytest.mark.slow
def test_a_file_against_itself_is_no_different(files, tmp_path):
    (tmp_path / "same.de").write_bytes((tmp_path / "a.de").read_bytes())
    done = _evaluate("--hyp", "a.de", "--hyp", "same.de", "--ref", "r1.de", "--paired-ar", "--json")
    assert json.loads(done.stdout)["p_value"] == 1.0


def test_the_printed_table_has_intervals_and_origins(files):
    done = _evaluate("--hyp", "a.de", "--hyp", "b.de", "--ref", "r1.de", "--origin", "origin")
    lines = done.stdout.splitlines()
    assert lines[0].split() == ["BLEU", "chrF++", "TER", "length"]
    assert [line.split()[0] for line in lines[1:3]] == ["a.de", "b.de"]
    assert lines[1].count(" ± ") == 3
    rows = [row for row in range(28) if row % 3]
    bleu = BLEU().corpus_score([files["a.de"][row] for row in rows], [[REFERENCE[row] for row in rows]])
    (english,) = [line.split() for line in lines if line.startswith("en ")]
    assert english[1:3] == ["18", f"{bleu.score:.2f}"]


@pytest.fixture
def wmt19(files, tmp_path, monkeypatch):
    """A made-up cache of sacreBLEU."""
    monkeypatch.setattr(DATASETS["wmt19"], "_outdir", str(tmp_path))
    for field, lines in {
        "src": range(28),
        "ref": REFERENCE,
        "docid": [row // 14 for row in range(28)],
    }.items():
        (tmp_path / f"wmt19.en-de.{field}").write_text("".join(f"{line}\n" for line in lines), "utf-8")


def test_a_test_set_of_sacrebleus_cache(wmt19, files):
    named = ("--test-set", "wmt19", "--pair", "en-de")
    report = json.loads(_evaluate("--hyp", "a.de", *named, "--origin", "docid", "--json").stdout)
    assert report["bleu"] == pytest.approx(BLEU().corpus_score(files["a.de"], [REFERENCE]).score)
    assert report["origin_lines"] == {"0": 14, "1": 14}
    done = _evaluate("--hyp", "a.de", *named, "--origin", "origlang")
    assert str(done.exception) == "--origin: expected docid, got origlang."


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--hyp a.de --test-set wmt19 --pair de-en", "--test-set: expected wmt19 de-en in sacreBLEU's cache, found no"),
        ("--hyp a.de --test-set wmt91 --pair de-en", "--test-set: expected a name of sacreBLEU, got wmt91. Nearest: "),
        ("--hyp a.de --test-set wmt19 --pair de-xx", "--pair: expected a name of sacreBLEU, got de-xx. Nearest: "),
        ("--hyp a.de --test-set wmt19", "--test-set: expected --pair with it and no files of text, got one"),
        ("--hyp a.de --ref r1.de --pair en-de", "--test-set: expected --pair with it and no files of text, got also"),
        ("--hyp a.de --ref r1.de --beam-size 3", "evaluate: expected MODEL with its options, got finished"),
        ("--hyp a.de --ref r1.de -o out", "evaluate: expected MODEL with its options, got finished"),
        ("--hyp a.de --ref r1.de --paired-ar", "--paired-ar: expected two systems or more, got one."),
        ("--hyp a.de --hyp a.de --ref r1.de", "--hyp: expected different files, got one twice."),
        ("--hyp a.de", "evaluate: expected MODEL, --src and --ref, or --hyp and --ref, or --scores, got fewer."),
        ("--ref r1.de", "evaluate: expected MODEL, --src and --ref, or --hyp and --ref, or --scores, got fewer."),
        ("--hyp short --ref r1.de", "short: expected as many lines as r1.de, at least one; got 1 and 28."),
        ("--hyp a.de --ref r1.de --origin short", "short: expected as many lines as r1.de"),
        ("--scores a.de --baseline-scores b.de --hyp a.de", "--scores: expected --baseline-scores with it"),
        ("--scores a.txt", "--scores: expected --baseline-scores with it and no option but --json, got one of the two"),
        ("--baseline-scores b.txt", "--scores: expected --baseline-scores with it and no option but --json, got one of"),
        ("--scores a.txt --baseline-scores b.txt --src a.txt", "--scores: expected --baseline-scores with it and no"),
        ("m --scores a.txt --baseline-scores b.txt", "--scores: expected --baseline-scores with it and no option"),
        ("--scores a.txt --baseline-scores b.txt --device cpu", "--scores: expected --baseline-scores with it and no"),
        ("m --src a.de --ref r1.de --split test", "evaluate: expected MODEL, --src and --ref, or --hyp and --ref, or --scores, got --split without --data"),
        ("m --src a.de", "evaluate: expected MODEL, --src and --ref, or --hyp and --ref, or --scores, got fewer."),
        ("", "evaluate: expected MODEL, --src and --ref, or --hyp and --ref, or --scores, got fewer."),
        ("m table.csv --hyp a.de", "evaluate: expected a classifier and its table or --data only, got more."),
    ],
)  # fmt: skip
def test_what_does_not_go_together_is_refused(files, tmp_path, arguments, message):
    (tmp_path / "short").write_text("one\n")
    assert str(_evaluate(*arguments.split()).exception).startswith(message)


def test_compare_begins_with_the_same_table(files):
    systems = {name: files[f"{name}.de"] for name in ("a", "b")}
    table, *words = _score_blocks(("a", "b"), [*systems.values()], REFERENCE, [], "de")
    rows, differences = score_rows(score_table(systems, REFERENCE, intervals=True))
    assert [table.header, *table.rows] == rows
    assert [block.text for block in words[:3]] == [f"a: {line}" for line in differences]
    assert words[3].text.startswith("BLEU nrefs:1|")
    infos = [
        FolderInfo(src="en", tgt="de", annotator=None, annotator_version=None, factors=[], tokenized=each)
        for each in (True, False)
    ]
    (refusal,) = _score_blocks(("a", "b"), [*systems.values()], REFERENCE, infos, "de")
    assert refusal.text.startswith("No scores of whole texts: SYSTEMS: expected models whose output")


@pytest.fixture
def scores(tmp_path):
    rng = np.random.default_rng(3)
    base = rng.normal(-0.2, 0.3, 83)
    for name, values in (("b.txt", base), ("a.txt", base + rng.normal(0.1, 0.3, 83))):
        (tmp_path / name).write_text("".join(f"{score}\n" for score in values.tolist()))
    return tmp_path / "a.txt", tmp_path / "b.txt"


def test_files_of_scores_are_tested_like_bleu(scores):
    system, base = (np.loadtxt(file) for file in scores)
    expected = paired_bootstrap(base[:, None], system[:, None], lambda sums: sums[0] / 83)
    done = _evaluate("--scores", scores[0], "--baseline-scores", scores[1])
    assert done.stdout.splitlines() == [
        f"{system.mean():.4f}  {scores[0]}",
        f"{base.mean():.4f}  {scores[1]}",
        f"{expected.difference:+.4f} against {scores[1]}, 95 % {expected.low:+.4f} to {expected.high:+.4f}, "
        f"p = {expected.p_value:.3f} (one-sided paired bootstrap)",
    ]
    assert expected.low > 0 > base.mean()
    report = json.loads(_evaluate("--scores", scores[0], "--baseline-scores", scores[1], "--json").stdout)
    assert report["mean"] == pytest.approx(system.mean())
    assert report["p_value"] == expected.p_value
    last = _evaluate("--scores", scores[0], "--baseline-scores", scores[0]).stdout.splitlines()[-1]
    assert last.startswith(f"+0.0000 against {scores[0]}, 95 % +0.0000 to +0.0000, p = 1")


def test_files_that_have_no_number_for_each_line(scores):
    for line in ("", "good", "nan", "inf", "Segment 3 score: 0.8", None):
        scores[1].write_text("0.5\n" if line is None else f"0.5\n{line}\n")
        problem = f":2: score: expected a number, got {line!r}. Write one a line."
        problem = (
            f": expected as many lines as {scores[0]}, at least one; got 1 and 83."
            if line is None
            else problem
        )
        done = _evaluate("--scores", scores[0], "--baseline-scores", scores[1])
        assert str(done.exception) == f"{scores[1]}{problem}"
