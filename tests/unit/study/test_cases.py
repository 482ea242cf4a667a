"""Case comparison on three sentences that can be counted by hand."""

from __future__ import annotations

import math
import re
import shlex
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest
from sacrebleu.metrics import CHRF
from typer.testing import CliRunner

from syntaxformer.annotate import load_annotator
from syntaxformer.cli.compare import _names
from syntaxformer.cli.main import app
from syntaxformer.study.cases import Case, case_blocks, cases_of_lines, compare_cases, group_cases, tag_rows
from syntaxformer.study.document import Marked, Table, to_html, to_markdown
from syntaxformer.translation.model_folder import FolderInfo
from syntaxformer.trees import Sentence


def _sentence(words, governors=None, upos=None):
    upos = None if upos is None else tuple(upos.split())
    return Sentence.from_words(words.split(), governors=governors, upos=upos)


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
THIRD = ["ein Hund schläft.", "zwei laut.", "nein"]


def _split(lines):
    """Sentences whose full stop is a word of its own."""
    places = [[match.span() for match in re.finditer(r"\w+|\.", line)] for line in lines]
    words = [tuple(line[slice(*span)] for span in spans) for line, spans in zip(lines, places, strict=True)]
    return [Sentence(*columns) for columns in zip(lines, words, map(tuple, places), strict=True)]


BOTH = _split(FIRST), _split(SECOND)


def _chrf(line, *references):
    return CHRF().sentence_score(line, list(references)).score


@pytest.fixture(scope="module")
def cases():
    counts = Counter(["a", "dog", "yes", "yes", "yes", "yes"])
    return compare_cases(SOURCES, REFERENCES, BOTH, counts)


def test_words_that_only_one_has(cases):
    assert [case.only(0) for case in cases] == [(0, 1), (), ()]  # ein Hund
    assert [case.only(1) for case in cases] == [(2,), (4,), ()]  # schläft; the second "sehr"
    assert cases[0].scores[0] == _chrf(FIRST[0], REFERENCES[0].text)
    assert cases[1].gain() > 0 > cases[1].gain(0)
    assert cases[2].gain() == 0
    assert [case.rarest for case in cases] == [0, 0, 4]  # sleeps; two; yes
    others = ["ein Hund läuft.", "zwei Frauen lachen.", "ja"]  # of several references chrF counts all
    more = compare_cases(SOURCES, REFERENCES, BOTH, others=[others])
    assert more[0].scores[0] == _chrf(FIRST[0], REFERENCES[0].text, others[0]) > cases[0].scores[0]
    assert [case.right for case in more] == [case.right for case in cases], "words are those of the first"


def _sizes(cases):
    return {kind: [(group.name, group.n) for group in groups] for kind, groups in group_cases(cases).items()}


def test_groups(cases):
    length, depth, rarest = "words of the source", "depth of its tree", "rarest source word"
    assert _sizes(cases) == {
        length: [("1 to 5", 2), ("6 to 10", 1)],
        # deepest words: a below dog below sleeps; very below very below loudly below laugh; none
        depth: [("0 to 2", 2), ("3", 1)],
        rarest: [("never seen", 2), ("more often", 1)],
    }
    group = group_cases(cases)[length][1]
    assert group.gains[0].mean == pytest.approx(cases[1].gain())
    assert group.scores[1] - group.scores[0] == pytest.approx(cases[1].gain())
    bare = [_sentence(source.text) for source in SOURCES]
    assert set(_sizes(compare_cases(bare, REFERENCES, BOTH))) == {length}
    some = compare_cases([*bare[:2], SOURCES[2]], REFERENCES, BOTH)
    assert _sizes(some)[depth] == [("0 to 2", 1)]
    empty = _sentence("", ())  # a line without words is of no kind
    outputs = [[*lines, empty] for lines in BOTH]
    more = compare_cases([*SOURCES, empty], [*REFERENCES, empty], outputs, Counter(["yes"]))
    for groups in _sizes(more).values():
        assert sum(n for _, n in groups) == 3


def _case(n_words, depth, rarest):
    governors = tuple(min(word, depth) - 1 for word in range(n_words))
    source = Sentence.from_words(["w"] * n_words, governors=governors)
    return Case(source, source, (source, source), (1.0, 2.0), (frozenset(), frozenset()), rarest)


@pytest.mark.parametrize(
    ("kind", "groups", "make"),
    [
        ("words of the source", {"1 to 5": 1, "6 to 10": 6, "11 to 15": 11, "16 to 20": 16, "21 to 30": 21, "31 and more": 31}, lambda n: _case(n, 0, 0)),
        ("depth of its tree", {"0 to 2": 0, "3": 3, "4": 4, "5": 5, "6 and more": 6}, lambda n: _case(40, n, 0)),
        ("rarest source word", {"never seen": 0, "1 to 3 times": 1, "more often": 4}, lambda n: _case(3, 1, n)),
    ],
)  # fmt: skip
def test_each_size_is_in_the_group_that_its_name_says(kind, groups, make):
    """Group → its smallest size; the size before that is in the group before."""
    names = list(groups)
    for number, (name, size) in enumerate(groups.items()):
        assert [group.name for group in group_cases([make(size)])[kind]] == [name]
        if number:
            assert [group.name for group in group_cases([make(size - 1)])[kind]] == [names[number - 1]]


def test_parts_of_speech(cases):
    rows = {row.tag: (row.n, *row.only) for row in tag_rows(cases)}
    assert rows["NOUN"] == (2, 1, 0)
    assert rows["ADV"] == (3, 0, 1)
    assert rows["VERB"] == (2, 0, 1)
    assert rows["PUNCT"] == (2, 0, 0)
    untagged = [Sentence.from_words(reference.words) for reference in REFERENCES]
    assert tag_rows(compare_cases(SOURCES, untagged, BOTH)) == []


def test_the_report(cases):
    text = to_markdown(case_blocks(cases, ("base", "sit")))
    for part in (
        "3 sentences; chrF of a sentence is higher with sit in 1, with base in 1, equal in 1.",
        "zwei Frauen lachen **sehr** sehr laut.",
        "| NOUN | 2 | 1 | 0 | -1 |",
        "bootstrap intervals; groups of fewer than 10 sentences have none (–).",
    ):
        assert part in text
    assert text.index("Where sit is better") < text.index("Where base is better")
    assert re.search(r"^\| 6 to 10 \|.*\| – \|$", text, re.MULTILINE)
    page = to_html(case_blocks(cases, ("base", "sit")), Path())
    assert "<strong>ein</strong> <strong>Hund</strong> läuft." in page
    assert "**" not in page


def test_intervals_of_groups_that_are_large_enough():
    nine, ten = (
        compare_cases([SOURCES[0]] * n, [REFERENCES[0]] * n, [[lines[0]] * n for lines in BOTH])
        for n in (9, 10)
    )
    assert math.isnan(group_cases(nine)["words of the source"][0].gains[0].low)
    gain = group_cases(ten)["words of the source"][0].gains[0]
    assert gain.low == pytest.approx(gain.mean)
    assert "with 95 % bootstrap intervals." in to_markdown(case_blocks(ten, ("base", "sit")))


def test_nothing_in_a_cell_is_read_as_markup_and_bold_neighbours_are_one():
    table = Table(["a", ""], [["<b>", Marked("1 < 2 | 3", [(0, 1), (8, 9)])]])
    assert "<td><strong>1</strong> &lt; 2 | <strong>3</strong></td>" in to_html([table], Path())
    assert to_markdown([table]).endswith("| \\<b> | **1** \\< 2 \\| **3** |\n")
    table = Table(["a", ""], [["a*b `c` \\", Marked('"hi there', [(0, 1), (1, 3), (4, 9)])]])
    assert to_markdown([table]).endswith('| a\\*b \\`c\\` \\\\ | **"hi** **there** |\n')
    assert "<strong>&quot;hi</strong>" in to_html([table], Path())


@pytest.mark.parametrize(
    ("paths", "names"),
    [
        (("runs/base", "runs/sit"), ("base", "sit")),
        (("cells/a/model", "cells/b/model"), ("a", "b")),
        (("a/hypotheses.txt", "b/hypotheses.txt"), ("a", "b")),
        (("runs/a", "runs/a"), ("runs/a", "runs/a (again)")),
    ],
)
def test_what_two_systems_are_called(paths, names):
    assert _names(*map(Path, paths)) == names


def _info(**more):
    return FolderInfo(src="en", tgt="de", annotator=None, annotator_version=None, factors=[], **more)


def test_a_model_of_lower_case_is_compared_in_lower_case():
    lines = ["Yes &amp; no"], ["Der Hund &apos;bellt&apos; ."], (["der hund"], ["der hund 'bellt' ."])
    annotators = load_annotator("en"), load_annotator("de")
    (cased,) = cases_of_lines(*lines, *annotators)
    assert cased.scores[1] < 100
    infos = [_info(), _info(lowercase=True, unescape=True, tokenized=True)]
    (case,) = cases_of_lines(*lines, *annotators, infos)
    assert case.reference.words == ("Der", "Hund", "'bellt'", ".")
    assert case.source.words == ("Yes", "&", "no")
    assert case.scores[1] == pytest.approx(100)
    assert case.only(1) == (2, 3)
    assert "der hund **'bellt'** **.**" in to_markdown(case_blocks([case], ("a", "b")))


def test_the_gallery_of_the_documentation_begins_as_the_script_writes_it(gallery):
    root = Path(__file__).resolve().parents[3]
    guide = (root / "docs" / "guides" / "analysis.md").read_text()
    command = guide.split("python experiments/gallery.py ")[1]
    options = shlex.split(command.split("\n\n")[0].replace("\\\n", ""))
    note, cases = (options[options.index(name) + 1] for name in ("--note", "--cases"))
    head = to_markdown(gallery.introduction(note, cases))
    assert (root / "docs" / "results" / "gallery.md").read_text().startswith(head)
    recipe = (root / "Makefile").read_text().split("\ngallery:")[1].split("\n\n")[0]
    assert "-o demo/gallery" in recipe
    assert "docs/results" not in recipe


def test_lines_that_do_not_fit():
    with pytest.raises(ValueError, match=r"^lines: .*got 3, 3, 3 and 2"):
        compare_cases(SOURCES, REFERENCES, (BOTH[0], BOTH[1][:2]))


def test_three_systems_side_by_side():
    """Each against the first, and the first against the best of the others; words that are only one's own."""
    cases = compare_cases(SOURCES, REFERENCES, (*BOTH, _split(THIRD)))
    assert not any(case.only(2) for case in cases)  # the first has "ein Hund", too, the second "schläft"
    assert [case.only(1) for case in cases] == [(), (4,), ()]
    scores = tuple(_chrf(lines[1], REFERENCES[1].text) for lines in (FIRST, SECOND, THIRD))
    assert cases[1].scores == scores
    assert cases[1].gain(2) == scores[2] - scores[0] < 0
    assert cases[1].gain(0) == scores[0] - scores[1] < 0
    group = group_cases(cases)["words of the source"][0]
    assert group.gains[1].mean == pytest.approx((cases[0].gain(2) + cases[2].gain(2)) / 2)
    text = to_markdown(case_blocks(cases, ("base", "sit", "tags")))
    for part in (
        "# base, sit and tags, sentence by sentence",
        "higher with sit in 1, with tags in 1, with base in 0, equal in 0. Gains are sit and tags minus base",
        "| chrF base | chrF sit | chrF tags | gain sit | 95 % | gain tags | 95 % |",
        "| only base | only sit | only tags |",
    ):
        assert part in text
    assert "**ein** **Hund** schläft." not in text
    assert "**ein** **Hund** **schläft**." in text.split("## Where tags is better")[1]


def test_the_command(tmp_path):
    src, ref = ([sentence.text for sentence in side] for side in (SOURCES, REFERENCES))
    texts = {"src": src, "ref": ref, "a": FIRST, "b": SECOND}
    for name, lines in texts.items():
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines))
    a, b, src, ref = (str(tmp_path / name) for name in ("a", "b", "src", "ref"))
    arguments = ["compare", a, b, "--src", src, "--ref", ref, "--annotator", "en", "--target-annotator", "de"]
    done = CliRunner().invoke(app, [*arguments, "--names", "base,sit", "-o", str(tmp_path / "out.html")])
    assert done.exit_code == 0, done.exception
    assert "<h1>base and sit, sentence by sentence</h1>" in (tmp_path / "out.html").read_text()
    Path(b).write_text("one line\n")
    done = CliRunner().invoke(app, arguments)
    assert str(done.exception).startswith(f"{b}: expected as many lines as {src}")
    for names in ("a,b,c", "a,a"):
        done = CliRunner().invoke(app, [*arguments, "--names", names])
        assert str(done.exception).startswith("--names: ")
    done = CliRunner().invoke(app, [*arguments, "--to", "de"])
    assert str(done.exception).startswith("--to: expected a translator among SYSTEMS, got files alone.")


@pytest.mark.slow
def test_models_are_compared_as_they_read_and_write(tmp_path, monkeypatch):
    """References are unescaped before they become the model's pieces; a model's annotator may be another."""
    seen = SimpleNamespace()

    def load(folder, annotator=None, *_):
        seen.annotator = annotator
        model = SimpleNamespace(
            annotator=annotator,
            encoder=SimpleNamespace(factors=seen.factors),
            info=_info(unescape=True, rewrites_target=True),
            translate=lambda lines: [[SimpleNamespace(text="Der Hund 'bellt'.")] for _ in lines],
            as_written=lambda lines: [line.replace("&", "").replace(" .", ".") for line in lines],
        )
        model.to = lambda language: model
        return model

    def cases(sources, references, *rest):
        seen.references = references
        return cases_of_lines(sources, references, *rest)

    monkeypatch.setattr("syntaxformer.translation.translator.Translator.load", load)
    monkeypatch.setattr("syntaxformer.study.cases.cases_of_lines", cases)
    lines = {"src": "the dog barks", "ref": "Der Hund &apos;bellt&apos; .", "file": "Der Hund"}
    for name, line in lines.items():
        (tmp_path / name).write_text(f"{line}\n")
    (tmp_path / "model").mkdir()
    files = [str(tmp_path / name) for name in ("file", "model", "src", "ref")]
    command = ["compare", *files[:2], "--src", files[2], "--ref", files[3]]
    seen.factors = ()
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.exception
    assert (seen.references, seen.annotator) == ([["Der Hund 'bellt'."]], None)
    CliRunner().invoke(app, [*command, "--model-annotator", "en"])
    assert seen.annotator == "en"
    seen.factors = ("pos", "tone")
    done = CliRunner().invoke(app, command)
    assert str(done.exception).startswith(f"{tmp_path / 'model'}: ")
    assert "tone" in str(done.exception)
