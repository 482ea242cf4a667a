import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from syntaxformer.annotate import WordsAsGiven, load_annotator
from syntaxformer.annotate import annotator as parsers
from syntaxformer.annotate.annotator import chunks_of, short_enough
from syntaxformer.base.errors import DataError, SyntaxformerError


def _load_a_killer(name):
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.slow
def test_ctrl_c_is_the_parents_to_answer():
    script = """
import os, signal
from syntaxformer.annotate import annotator as parsers, registry
registry.load_annotator = lambda name: os.kill(os.getpid(), signal.SIGINT)
parsers._load("any")
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_chunks_cover_the_lines_in_order():
    assert list(chunks_of(["a", "b", "c"], 2)) == [["a", "b"], ["c"]]
    assert list(chunks_of([], 2)) == []
    lines = ["ab", "cd", "e", "fghijklm", "n", "", "", ""]
    assert list(chunks_of(lines, 3, 5)) == [["ab", "cd", "e"], ["fghijklm"], ["n", "", ""], [""]]


@pytest.mark.parametrize(
    ("line", "n_words"), [("x " * 100_001, 100_001), ("!" * 100_002, 100_002), ("it's " * 40_000, 120_000)]
)
@pytest.mark.slow
def test_a_line_of_too_many_words_is_refused_by_its_number_before_it_is_parsed(annotator, line, n_words):
    class Parser:
        def parse_lines(self, lines):
            return [annotator.annotate([text])[0] for text in lines]

    other = parsers.BatchedAnnotator(Parser(), "other", "1", annotator.provides, batch_lines=1)
    for backend, n_processes in ((annotator, 1), (annotator, 2), (other, 1)):
        sentences = backend.stream(["a b", line, "c"], n_processes=n_processes)
        with pytest.raises(DataError, match=rf"^line 2: .* 100,000 words in a line, got {n_words:,}"):
            list(sentences)


def test_a_line_of_as_many_words_as_there_may_be_or_of_one_long_word_is_taken():
    lines = ["x " * 100_000, "x" * 3_000_000, "it's " * 33_333]
    assert list(short_enough(lines)) == lines


@pytest.mark.slow
def test_given_words_in_processes(annotator):
    lines = [f"a  dog-{number} ." for number in range(1200)]
    words_annotator = WordsAsGiven(annotator)
    sentences = list(words_annotator.stream(lines, n_processes=2))
    assert [sentence.text for sentence in sentences] == [" ".join(line.split()) for line in lines]
    assert sentences[:3] == words_annotator.annotate(lines[:3])


@pytest.mark.slow
def test_a_dead_worker_is_one_clear_error(monkeypatch):
    monkeypatch.setattr(parsers, "_load", _load_a_killer)
    with pytest.raises(SyntaxformerError, match=r"2 processes: .* a dead one"):
        list(load_annotator("en").stream(["a"], n_processes=2))


@pytest.mark.slow
def test_workers_end_with_a_parent_that_is_killed(tmp_path):
    script = tmp_path / "script.py"
    script.write_text("""
import os, signal, sys
from syntaxformer.annotate import annotator as parsers

def work(annotator, item):
    return os.getpid()

if __name__ == "__main__":
    pids = set(parsers.map_in_processes("en", work, range(40), 2))
    print(*pids, flush=True)
    results = parsers.map_in_processes("en", work, range(10**9), 2)
    print(next(results), next(results), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
""")
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    workers = {int(pid) for pid in done.stdout.split()}
    end = time.monotonic() + 30
    while any(Path(f"/proc/{pid}").exists() for pid in workers) and time.monotonic() < end:
        time.sleep(0.1)
    assert not [pid for pid in workers if Path(f"/proc/{pid}").exists()]
