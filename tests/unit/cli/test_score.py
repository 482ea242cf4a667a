"""`score` and `compare --contrast` on the command line: tables, tests, and what does not go together."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from syntaxformer.cli.main import app
from syntaxformer.translation.decoding import Score
from syntaxformer.translation.translator import Translator

SOURCES = [f"line {number}" for number in range(12)]
RIGHT = [f"Zeile {number}" for number in range(12)]
WRONG = [f"Zeile {number} {number}" for number in range(12)]


class Model:
    """Scores a translation by its length; its name says which lines it gets wrong."""

    def __init__(self, name):
        sides = {"src": "en", "tgt": "de", "src_language": None, "tgt_language": None}
        self.info = SimpleNamespace(**sides, languages=("en", "de"))
        self.others, self.encoder, self.bad = (), SimpleNamespace(factors=()), int(name[-1])

    def to(self, language):
        return self

    def score(self, lines, translations, batch_size, factors):
        for line, texts in zip(lines, translations, strict=True):
            sign = 1 if int(line.split()[1]) < self.bad else -1
            yield [Score(("x", "</s>"), (sign * len(text) - 50.0, -0.5)) for text in texts]


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Translator, "load", lambda path, *_: Model(str(path)))
    monkeypatch.setattr(Translator, "load_ensemble", lambda paths, *_: Model(str(paths[0])))
    monkeypatch.setattr("syntaxformer.cli.options.spare_torch", lambda *_: None)
    for name, lines in {"s.en": SOURCES, "r.de": RIGHT, "w.de": WRONG}.items():
        (tmp_path / name).write_text("\n".join(lines) + "\n")
    entries = zip(SOURCES, RIGHT, WRONG, strict=True)
    (tmp_path / "t.json").write_text(
        json.dumps([{"source": s, "reference": r, "errors": [{"contrastive": w, "distance": int(s[5:]) % 2}]} for s, r, w in entries])
    )  # fmt: skip
    return tmp_path


def _run(*arguments):
    return CliRunner().invoke(app, [*map(str, arguments)])


def test_one_translation_of_each_line_gives_a_table(files):
    done = _run("score", "m0", "--src", "s.en", "--tgt", "r.de", "--pieces")
    header, first, *_ = done.stdout.splitlines()
    assert header == "line\ttranslation\tlog_prob\tpieces\tmean\tpiece_log_probs"
    assert first == "1\t1\t-57.500000\t2\t-28.750000\tx=-57.000000 </s>=-0.500000"
    assert len(done.stdout.splitlines()) == 13
    _run("score", "m0", "--src", "s.en", "--tgt", "r.de", "-o", "out.tsv")
    assert (files / "out.tsv").read_text().splitlines()[1] == "1\t1\t-57.500000\t2\t-28.750000"


def test_several_translations_are_a_contrastive_test(files):
    """The right ones are shorter: `m0` prefers all, `m3` all but three, a difference of 25 points."""
    files_of_lines = ("--src", "s.en", "--tgt", "r.de", "--tgt", "w.de")
    done = _run("score", "m0", *files_of_lines, "--baseline", "m3", "-o", "out.tsv")
    assert done.stdout.splitlines()[0].split() == ["n", "m0", "95", "%", "m3", "95", "%"]
    cells = "pairs 12 100.0 75.8 to 100.0 75.0 46.8 to 91.1"
    assert " ".join(done.stdout.splitlines()[1].split()) == cells
    assert done.stdout.splitlines()[-1].startswith("m0 +25.00 against m3, 95 % +")
    assert len((files / "out.tsv").read_text().splitlines()) == 25
    report = json.loads(_run("score", "m0", *files_of_lines, "--json").stdout)
    assert [group["n"] for group in report["groups"]] == [12, 12]


def test_a_model_that_is_named_again_stands_there_again(files):
    test = ("--contrast", "t.json", "--json")
    report = json.loads(_run("score", "m0", *("--baseline", "m0") * 2, *test).stdout)
    assert list(report["groups"][0]["systems"]) == ["m0", "m0 (again)", "m0 (again) (again)"]


@pytest.mark.parametrize(
    "test",
    [("--contrast", "t.json", "--by", "distance"), ("--src", "s.en", "--tgt", "r.de", "--tgt", "w.de")],
)
def test_compare_takes_the_same(files, test):
    lines = _run("compare", "m3", "m0", *test).stdout.splitlines()
    assert lines[2] == "|  | n | m3 | 95 % | m0 | 95 % |"
    assert lines[4].startswith("| pairs | 12 | 75.0 | 46.8 to 91.1 | 100.0 |")
    assert lines[-2].startswith("m3 -25.00 against m0, 95 % -")
    assert ("| distance 1 | 6 | 83.3 |" in "\n".join(lines)) == ("--by" in test)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("score m0", "score: expected --src and --tgt, or --contrast alone, got fewer."),
        ("score m0 --src s.en", "score: expected --src and --tgt, or --contrast alone, got fewer."),
        ("score m0 --src s.en --tgt r.de --contrast t.json", "score: expected --src and --tgt, or --contrast alone, got more."),
        ("score m0 --src s.en --contrast t.json", "score: expected --src and --tgt, or --contrast alone, got more."),
        ("score m0 --src s.en --tgt r.de --by distance", "--by: expected a contrastive test, several --tgt or"),
        ("score m0 --src s.en --tgt r.de --baseline m1", "--baseline: expected a contrastive test, several"),
        ("score m0 --src s.en --tgt r.de --json", "--json: expected a contrastive test, several --tgt or"),
        ("score m0 --contrast t.json --pieces", "--pieces: expected -o with it, for the scores of a contrastive"),
        ("score m0 --contrast t.json --by type", "--by: expected a key of the contrastive test, got type. Known: distance."),
        ("score m0 --src s.en --tgt r.de --tgt w.de --by x", "--by: expected a key of the contrastive test, got x. This test has none."),
        ("score m0 --contrast t.json --factor tone=s.en", "--factor: expected --src and several --tgt with it"),
        ("score m0 --src s.en --tgt r.de -o r.de", "-o: expected another file than the input, got r.de."),
        ("compare m0 m1 --src s.en --tgt r.de", "compare: expected --contrast, or --src with several --tgt, alone, got fewer."),
        ("compare m0 m1 --by distance --src s.en --ref r.de", "compare: expected --contrast, or --src with several"),
        ("compare m0 m1 --contrast t.json --ref r.de", "compare: expected --contrast, or --src with several --tgt, alone, got other"),
        ("compare m0 m1 --contrast t.json --examples 3", "compare: expected --contrast, or --src with several --tgt, alone, got other"),
    ],
)  # fmt: skip
def test_what_does_not_go_together_is_refused(files, arguments, message):
    assert str(_run(*arguments.split()).exception).startswith(message)
