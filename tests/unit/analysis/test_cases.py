"""Case comparison on three sentences that can be counted by hand."""

from __future__ import annotations

import pytest
from sacrebleu.metrics import CHRF

from syntaxformer.analysis.case_report import case_blocks
from syntaxformer.analysis.cases import compare_cases, group_cases, tag_rows, word_counts
from syntaxformer.analysis.document import to_markdown
from syntaxformer.trees import Sentence


def _sentence(words, governors=None, upos=None):
    return Sentence.from_words(
        words.split(), governors=governors, upos=None if upos is None else tuple(upos.split())
    )


SOURCES = [
    _sentence("a dog sleeps", (1, 2, -1)),
    _sentence("two women laugh very very loudly", (1, 2, -1, 4, 5, 2)),
    _sentence("yes", (-1,)),
]
REFERENCES = [
    _sentence("ein Hund schläft .", upos="DET NOUN VERB PUNCT"),
    _sentence("zwei Frauen lachen sehr sehr laut .", upos="NUM NOUN VERB ADV ADV ADV PUNCT"),
    _sentence("ja", upos="INTJ"),
]
FIRST = ["ein Hund läuft.", "zwei Frauen lachen sehr laut.", "ja"]
SECOND = ["eine Katze schläft lang und tief.", "zwei Frauen lachen sehr sehr laut.", "ja"]


@pytest.fixture
def cases():
    return compare_cases(
        SOURCES, REFERENCES, FIRST, SECOND, word_counts([["A", "dog", "yes", "yes", "yes", "yes"]])
    )


def test_words_that_only_one_has(cases):
    assert [case.only_first for case in cases] == [(0, 1), (), ()]  # ein Hund
    assert [case.only_second for case in cases] == [(2,), (4,), ()]  # schläft; the second "sehr"
    assert cases[0].scores[0] == CHRF().sentence_score(FIRST[0], [REFERENCES[0].text]).score
    assert cases[1].gain > 0
    assert cases[2].gain == 0
    assert [case.rarest for case in cases] == [0, 0, 4]  # sleeps; two; yes


def test_groups(cases):
    groups = group_cases(cases)
    assert [(one.name, one.n) for one in groups["words of the source"]] == [("1 to 5", 2), ("6 to 10", 1)]
    # deepest words: a below dog below sleeps; very below very below loudly below laugh; none
    assert [(one.name, one.n) for one in groups["depth of its tree"]] == [("0 to 2", 2), ("3", 1)]
    assert [(one.name, one.n) for one in groups["rarest source word"]] == [
        ("never seen", 2),
        ("more often", 1),
    ]
    one = groups["words of the source"][1]
    assert one.gain.mean == pytest.approx(cases[1].gain)
    assert one.second - one.first == pytest.approx(cases[1].gain)
    assert "rarest source word" not in group_cases(compare_cases(SOURCES, REFERENCES, FIRST, SECOND))


def test_parts_of_speech(cases):
    rows = {one.tag: (one.n, one.only_first, one.only_second) for one in tag_rows(cases)}
    assert rows["NOUN"] == (2, 1, 0)
    assert rows["ADV"] == (3, 0, 1)
    assert rows["VERB"] == (2, 0, 1)
    assert rows["PUNCT"] == (2, 0, 0)
    untagged = [Sentence.from_words(one.words) for one in REFERENCES]
    assert tag_rows(compare_cases(SOURCES, untagged, FIRST, SECOND)) == []


def test_the_report(cases):
    text = to_markdown(case_blocks(cases, ("base", "sit")))
    assert "3 sentences; chrF of a sentence is higher with sit in 1, with base in 1, equal in 1." in text
    assert "| base, " in text
    assert (
        "zwei Frauen lachen sehr **sehr** laut." in text or "zwei Frauen lachen **sehr** sehr laut." in text
    )
    assert "| NOUN | 2 | 1 | 0 | -1 |" in text
    assert text.index("Where sit is better") < text.index("Where base is better")


def test_lines_that_do_not_fit():
    with pytest.raises(
        ValueError,
        match=r"^lines: expected as many sources, references and outputs, and not none, got 3, 3, 3 and 2\.$",
    ):
        compare_cases(SOURCES, REFERENCES, FIRST, SECOND[:2])


def test_the_command(tmp_path):
    from typer.testing import CliRunner

    from syntaxformer.cli.main import app

    files = {}
    for name, lines in (
        ("src", [one.text for one in SOURCES]),
        ("ref", [one.text for one in REFERENCES]),
        ("a", FIRST),
        ("b", SECOND),
    ):
        files[name] = tmp_path / name
        files[name].write_text("".join(f"{line}\n" for line in lines))
    arguments = [
        "compare",
        str(files["a"]),
        str(files["b"]),
        "--src",
        str(files["src"]),
        "--ref",
        str(files["ref"]),
    ]
    done = CliRunner().invoke(app, [*arguments, "--names", "base,sit", "-o", str(tmp_path / "out.html")])
    assert done.exit_code == 0, done.exception
    page = (tmp_path / "out.html").read_text()
    assert "<h1>base and sit, sentence by sentence</h1>" in page
    files["b"].write_text("one line\n")
    done = CliRunner().invoke(app, arguments)
    assert (
        str(done.exception)
        == f"{files['b']}: expected as many lines as {files['src']}, at least one; got 1 and 3."
    )
    done = CliRunner().invoke(app, [*arguments, "--names", "a,b,c"])
    assert str(done.exception) == "--names: expected two with a comma between, got a,b,c."
