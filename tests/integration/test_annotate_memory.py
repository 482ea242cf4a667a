"""Annotation takes no more memory for long lines than for short ones, and no line that is a whole file."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from itertools import pairwise

import pytest

from syntaxformer.annotate import load_annotator, read_annotations

WORDS = """a the two three dog dogs man woman girl boy street ball water dress shirt red blue white young old runs
plays is are sitting standing walking looking jumps rides with on in at near through of and while , . !"""
IN_A_NEW_PROCESS = """
import resource, sys
from syntaxformer.annotate import load_annotator

def peak_mb():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

annotator = load_annotator("en")
annotator.annotate(["A first line ."])
before = peak_mb()
for sentence in annotator.stream(sys.stdin.read().splitlines()):
    pass
print(peak_mb() - before)
"""


def _words(n_words, seed=0):
    return random.Random(seed).choices(WORDS.split(), k=n_words)


def _lines(n_words, n_lines):
    words = _words(n_words)
    places = [round(n_words * line / n_lines) for line in range(n_lines + 1)]
    return "".join(" ".join(words[start:stop]) + "\n" for start, stop in pairwise(places))


@pytest.mark.slow
@pytest.mark.parametrize("n_lines", [45, 1])
def test_long_lines_take_little_memory(n_lines):
    """9,000 words took 210 MB: 24 KB each while all vectors were made. The parser has 13 KB for each of one line."""
    done = subprocess.run(
        [sys.executable, "-c", IN_A_NEW_PROCESS],
        input=_lines(9000, n_lines), capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert float(done.stdout) < 160


@pytest.mark.slow
def test_a_line_of_thousands_of_words_has_the_tags_and_the_tree_of_spacy_itself():
    """Their vectors are made in parts, and those of spaCy at once: that must make no difference."""
    import spacy

    from syntaxformer.annotate.annotator import bundled_folder

    text = " ".join(_words(4507, seed=1))
    (found,) = load_annotator("en").annotate([text])
    doc = spacy.load(bundled_folder("en"))(text)
    assert found.words == tuple(token.text for token in doc)
    assert found.upos == tuple(token.pos_ for token in doc)
    assert found.governors == tuple(-1 if token.head.i == token.i else token.head.i for token in doc)
    together = load_annotator("en").annotate([text, "Two dogs run .", text[:300]] * 2)
    assert together[:3] == together[3:]
    assert together[0] == found


def test_a_line_of_over_100_000_words_is_refused_by_its_number(cli, tmp_path):
    lines = ["A dog runs ."] * 30
    lines[22] = "x " * 100_001
    source = tmp_path / "long.txt"
    source.write_text("\n".join(lines) + "\n")
    done = cli("annotate", source, "-o", tmp_path / "out.parquet", "--annotator", "en").refused()
    assert (
        f"lines 1 to 30: {source}:23: expected at most 100,000 words in a line, got 100,001. Split the line."
        in done.err
    )


LONG = pytest.mark.skipif(
    "SYNTAXFORMER_EXHAUSTIVE" not in os.environ, reason="a minute; set SYNTAXFORMER_EXHAUSTIVE=1"
)


@LONG
@pytest.mark.parametrize(
    ("n_words", "n_lines"), [(58_944, 2560), (58_944, 256), (58_944, 3), (28_000, 1), (600_000, 1)]
)  # fmt: skip
def test_annotate_takes_300_megabytes_at_most(tmp_path, n_words, n_lines):
    """Beyond what it takes for a single word; the last one is a line of 3 MB, and is refused."""
    peaks = []
    for text in ("Word\n", _lines(n_words, n_lines)):
        source, target = tmp_path / "text.txt", tmp_path / "text.parquet"
        source.write_text(text)
        command = [
            sys.executable,
            "-m",
            "syntaxformer",
            "annotate",
            source,
            "-o",
            target,
            "--annotator",
            "en",
        ]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        peaks.append(usage.ru_maxrss / 1024)
    assert process.returncode == (2 if n_words > 100_000 else 0)
    if process.returncode == 0:
        assert read_annotations(target).header.n_lines == n_lines
    assert peaks[1] - peaks[0] < 300
