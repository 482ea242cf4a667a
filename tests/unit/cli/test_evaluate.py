"""`evaluate --scores`: files with any metric's score of each line."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
from typer.testing import CliRunner

from syntaxformer.cli.main import app
from syntaxformer.translation.scoring import paired_bootstrap


@pytest.fixture
def files(tmp_path):
    rng = np.random.default_rng(3)
    base = rng.normal(-0.2, 0.3, 83)
    for name, values in (("b.txt", base), ("a.txt", base + rng.normal(0.1, 0.3, 83))):
        (tmp_path / name).write_text("".join(f"{one}\n" for one in values.tolist()))
    return tmp_path / "a.txt", tmp_path / "b.txt"


def _evaluate(*arguments):
    return CliRunner().invoke(app, ["evaluate", *map(str, arguments)])


def test_files_of_scores_are_tested_like_bleu(files):
    system, base = (np.loadtxt(one) for one in files)
    expected = paired_bootstrap(base[:, None], system[:, None], lambda sums: sums[0] / 83)
    done = _evaluate("--scores", files[0], "--baseline-scores", files[1])
    assert done.stdout.splitlines() == [
        f"{system.mean():.4f}  {files[0]}",
        f"{base.mean():.4f}  {files[1]}",
        f"{expected.difference:+.4f} against {files[1]}, 95 % {expected.low:+.4f} to {expected.high:+.4f}, "
        f"p = {expected.p_value:.3f} (one-sided paired bootstrap)",
    ]
    assert expected.low > 0 > base.mean()
    report = json.loads(_evaluate("--scores", files[0], "--baseline-scores", files[1], "--json").stdout)
    assert report["mean"] == pytest.approx(system.mean())
    assert report["p_value"] == expected.p_value
    same = _evaluate("--scores", files[0], "--baseline-scores", files[0])
    assert same.stdout.splitlines()[-1].startswith(
        f"+0.0000 against {files[0]}, 95 % +0.0000 to +0.0000, p = 1"
    )


@pytest.mark.parametrize("line", ["", "good", "nan", "inf", "Segment 3 score: 0.8"])
def test_a_line_that_is_no_number(files, line):
    files[1].write_text(f"0.5\n{line}\n")
    done = _evaluate("--scores", files[0], "--baseline-scores", files[1])
    assert str(done.exception) == (f"{files[1]}:2: score: expected a number, got {line!r}. Write one a line.")


def test_numbers_of_lines_differ(files):
    files[1].write_text("0.5\n")
    done = _evaluate("--scores", files[0], "--baseline-scores", files[1])
    assert str(done.exception) == (
        f"{files[1]}: expected as many lines as {files[0]}, at least one; got 1 and 83."
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--scores a.txt", "--scores: .*got one of the two alone"),
        ("--baseline-scores b.txt", "--scores: .*got one of the two alone"),
        ("--scores a.txt --baseline-scores b.txt --src a.txt", "--scores: .*got other options"),
        ("runs/sit --scores a.txt --baseline-scores b.txt", "--scores: .*got other options"),
        ("--scores a.txt --baseline-scores b.txt --device cpu", "--scores: .*got other options"),
        ("runs/sit --src a.txt --ref b.txt --split test", "evaluate: .*--split without --data"),
        ("", "evaluate: .*got fewer"),
        ("runs/sit --src a.txt", "evaluate: .*got fewer"),
    ],
)
def test_options_that_do_not_go_together(arguments, message):
    assert re.match(message, str(_evaluate(*arguments.split()).exception))
