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

from syntaxformer.annotate import load_annotator
from syntaxformer.cli.compare import _names
from syntaxformer.study.cases import (
    Case,
    case_blocks,
    cases_of_lines,
    compare_cases,
    group_cases,
    tag_rows,
)
from syntaxformer.study.document import Marked, Table, to_html, to_markdown
from syntaxformer.translation.translator import FolderInfo
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


def _split(lines):
    """Sentences whose full stop is a word of its own."""
    return [
        Sentence(line, words, tuple((place.start(), place.end()) for place in re.finditer(r"\w+|\.", line)))
        for line in lines
        for words in [tuple(re.findall(r"\w+|\.", line))]
    ]


BOTH = _split(FIRST), _split(SECOND)


@pytest.fixture
def cases():
    return compare_cases(
        SOURCES,
        REFERENCES,
        BOTH,
        Counter(["a", "dog", "yes", "yes", "yes", "yes"]),
    )


def test_several_references_count_in_chrf(cases):
    others = ["ein Hund läuft.", "zwei Frauen lachen.", "ja"]
    more = compare_cases(SOURCES, REFERENCES, BOTH, others=[others])
    wanted = CHRF().sentence_score(FIRST[0], [REFERENCES[0].text, others[0]]).score
    assert more[0].scores[0] == wanted > cases[0].scores[0]
    assert [one.right for one in more] == [one.right for one in cases], "words are those of the first"


def test_words_that_only_one_has(cases):
    assert [case.only(0) for case in cases] == [(0, 1), (), ()]  # ein Hund
    assert [case.only(1) for case in cases] == [(2,), (4,), ()]  # schläft; the second "sehr"
    assert cases[0].scores[0] == CHRF().sentence_score(FIRST[0], [REFERENCES[0].text]).score
    assert cases[1].gain() > 0 > cases[1].gain(0)
    assert cases[2].gain() == 0
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
    assert one.gains[0].mean == pytest.approx(cases[1].gain())
    assert one.scores[1] - one.scores[0] == pytest.approx(cases[1].gain())
    assert "rarest source word" not in group_cases(compare_cases(SOURCES, REFERENCES, BOTH))


def _case(n_words, depth, rarest):
    governors = tuple(min(word, depth) - 1 for word in range(n_words))
    source = Sentence.from_words(["w"] * n_words, governors=governors)
    return Case(source, source, (source, source), (1.0, 2.0), (frozenset(), frozenset()), rarest)


@pytest.mark.parametrize(
    ("kind", "sizes", "make"),
    [
        ("words of the source", {"1 to 5": 5, "6 to 10": 5, "11 to 15": 5, "16 to 20": 5, "21 to 30": 10, "31 and more": 9},
         lambda size: _case(1 + size, 0, 0)),
        ("depth of its tree", {"0 to 2": 3, "3": 1, "4": 1, "5": 1, "6 and more": 33}, lambda size: _case(40, size, 0)),
        ("rarest source word", {"never seen": 1, "1 to 3 times": 3, "more often": 35}, lambda size: _case(3, 1, size)),
    ],
)  # fmt: skip
def test_each_size_is_in_the_group_that_its_name_says(kind, sizes, make):
    """39 sentences, of size 0 (or a word) and more by one each."""
    groups = group_cases([make(size) for size in range(39)])[kind]
    assert {one.name: one.n for one in groups} == sizes
    for one in groups:
        alone = make(
            int(one.name.split()[0]) - (kind == "words of the source") if one.name[0].isdigit() else 0
        )
        if one.name != "more often":
            assert [found.name for found in group_cases([alone])[kind]] == [one.name]


def test_parts_of_speech(cases):
    rows = {one.tag: (one.n, *one.only) for one in tag_rows(cases)}
    assert rows["NOUN"] == (2, 1, 0)
    assert rows["ADV"] == (3, 0, 1)
    assert rows["VERB"] == (2, 0, 1)
    assert rows["PUNCT"] == (2, 0, 0)
    untagged = [Sentence.from_words(one.words) for one in REFERENCES]
    assert tag_rows(compare_cases(SOURCES, untagged, BOTH)) == []


def test_the_report(cases):
    text = to_markdown(case_blocks(cases, ("base", "sit")))
    assert "3 sentences; chrF of a sentence is higher with sit in 1, with base in 1, equal in 1." in text
    assert "| base, " in text
    assert "zwei Frauen lachen **sehr** sehr laut." in text
    assert "| NOUN | 2 | 1 | 0 | -1 |" in text
    assert text.index("Where sit is better") < text.index("Where base is better")
    assert "bootstrap intervals; groups of fewer than 10 sentences have none (–)." in text
    assert "| 6 to 10 | 1 |" in text
    assert re.search(r"^\| 6 to 10 \|.*\| – \|$", text, re.MULTILINE)
    page = to_html(case_blocks(cases, ("base", "sit")), Path())
    assert "<strong>ein</strong> <strong>Hund</strong> läuft." in page
    assert "**" not in page


def test_intervals_of_groups_that_are_large_enough():
    nine, ten = (
        compare_cases(*([one[0]] * n for one in (SOURCES, REFERENCES)), [[one[0]] * n for one in BOTH])
        for n in (9, 10)
    )
    assert math.isnan(group_cases(nine)["words of the source"][0].gains[0].low)
    gain = group_cases(ten)["words of the source"][0].gains[0]
    assert gain.low == pytest.approx(gain.mean)
    text = to_markdown(case_blocks(ten, ("base", "sit")))
    assert "with 95 % bootstrap intervals." in text


def test_no_depths_without_trees():
    bare = [_sentence(one.text) for one in SOURCES]
    groups = group_cases(compare_cases(bare, REFERENCES, BOTH))
    assert set(groups) == {"words of the source"}
    groups = group_cases(compare_cases([*bare[:2], SOURCES[2]], REFERENCES, BOTH))
    assert [(one.name, one.n) for one in groups["depth of its tree"]] == [("0 to 2", 1)]


def test_text_with_bold_parts_is_escaped():
    table = Table(["a", ""], [["<b>", Marked("1 < 2 | 3", [(0, 1), (8, 9)])]])
    assert "<td><strong>1</strong> &lt; 2 | <strong>3</strong></td>" in to_html([table], Path())
    assert to_markdown([table]).endswith("| \\<b> | **1** \\< 2 \\| **3** |\n")


def test_nothing_in_a_cell_is_read_as_markdown_and_bold_neighbours_are_one():
    table = Table(["a", ""], [["a*b `c` \\", Marked('"hi there', [(0, 1), (1, 3), (4, 9)])]])
    assert to_markdown([table]).endswith('| a\\*b \\`c\\` \\\\ | **"hi** **there** |\n')
    assert '<strong>"hi</strong>'.replace('"', "&quot;") in to_html([table], Path())


def test_a_line_without_words_is_of_no_kind():
    empty = _sentence("", ())
    found = compare_cases(
        [*SOURCES, empty], [*REFERENCES, empty], [[*one, empty] for one in BOTH], Counter(["yes"])
    )
    for groups in group_cases(found).values():
        assert sum(group.n for group in groups) == 3


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


@pytest.mark.parametrize(
    ("language", "line"),
    [
        ("de", "Es kostet 3,5 Mio. Euro, z.B. um 10:30 Uhr."),
        ("en", "They don't know that it's here."),
    ],
)
def test_a_perfect_output_has_every_word_right(language, line):
    tagger = load_annotator(language)
    (case,) = cases_of_lines(["a"], [line], (["…"], [line]), load_annotator("en"), tagger)
    assert case.only(1) == tuple(range(len(case.reference)))


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
    command = (root / "docs" / "analysis.md").read_text().split("python experiments/gallery.py ")[1]
    options = shlex.split(command.split("\n\n")[0].replace("\\\n", ""))
    note, cases = (options[options.index(name) + 1] for name in ("--note", "--cases"))
    head = to_markdown(gallery.introduction(note, cases))
    assert (root / "docs" / "results" / "gallery.md").read_text().startswith(head)
    recipe = (root / "Makefile").read_text().split("\ngallery:")[1].split("\n\n")[0]
    assert "-o demo/gallery" in recipe
    assert "docs/results" not in recipe


def test_lines_that_do_not_fit():
    with pytest.raises(
        ValueError,
        match=r"^lines: expected equal numbers of sources, references and outputs, at least one, got 3, 3, 3 and 2\.$",
    ):
        compare_cases(SOURCES, REFERENCES, (BOTH[0], BOTH[1][:2]))


THIRD = ["ein Hund schläft.", "zwei laut.", "nein"]


def test_three_systems_side_by_side():
    """Each against the first, and the first against the best of the others; words that are only one's own."""
    cases = compare_cases(SOURCES, REFERENCES, (*BOTH, _split(THIRD)))
    assert not any(case.only(2) for case in cases)  # the first has "ein Hund", too, the second "schläft"
    assert [case.only(1) for case in cases] == [(), (4,), ()]
    scores = [
        [CHRF().sentence_score(one, [two.text]).score for one in lines]
        for *lines, two in zip(FIRST, SECOND, THIRD, REFERENCES, strict=True)
    ]
    assert cases[1].scores == tuple(scores[1])
    assert cases[1].gain(2) == scores[1][2] - scores[1][0] < 0
    assert cases[1].gain(0) == scores[1][0] - scores[1][1] < 0
    group = group_cases(cases)["words of the source"][0]
    assert group.gains[1].mean == pytest.approx((cases[0].gain(2) + cases[2].gain(2)) / 2)
    text = to_markdown(case_blocks(cases, ("base", "sit", "tags")))
    assert text.startswith("# base, sit and tags, sentence by sentence")
    assert (
        "higher with sit in 1, with tags in 1, with base in 0, equal in 0. Gains are sit and tags minus base"
        in text
    )
    assert "| chrF base | chrF sit | chrF tags | gain sit | 95 % | gain tags | 95 % |" in text
    assert "| only base | only sit | only tags |" in text
    assert "**ein** **Hund** schläft." not in text
    assert "**ein** **Hund** **schläft**." in text.split("## Where tags is better")[1]


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
        "--annotator",
        "en",
        "--target-annotator",
        "de",
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
    for names in ("a,b,c", "a,a"):
        done = CliRunner().invoke(app, [*arguments, "--names", names])
        assert str(done.exception) == f"--names: expected 2 names with commas between, got {names}."


class _Model:
    """Writes one line, without spaces before full stops and without ampersands."""

    def __init__(self, annotator=None, factors=()):
        self.annotator, self.encoder = annotator, SimpleNamespace(factors=factors)
        self.info = _info(unescape=True, rewrites_target=True)

    def translate(self, lines):
        return [[SimpleNamespace(text="Der Hund 'bellt'.")] for _ in lines]

    def as_written(self, lines):
        return [line.replace("&", "").replace(" .", ".") for line in lines]


@pytest.fixture
def compare(tmp_path, monkeypatch):
    """Compare a model with a file; gives the result, the references that are compared and the annotator."""
    from typer.testing import CliRunner

    from syntaxformer.cli.main import app

    def call(*more, factors=()):
        lines = {"src": "the dog barks", "ref": "Der Hund &apos;bellt&apos; .", "file": "Der Hund"}
        for name, line in lines.items():
            (tmp_path / name).write_text(f"{line}\n")
        (tmp_path / "model").mkdir(exist_ok=True)
        seen = SimpleNamespace(references=None, annotator=None)

        def load(folder, annotator=None, *further):
            seen.annotator = annotator
            return _Model(annotator, factors)

        def cases(sources, references, *rest):
            seen.references = references
            return cases_of_lines(sources, references, *rest)

        monkeypatch.setattr("syntaxformer.translation.translator.Translator.load", load)
        monkeypatch.setattr("syntaxformer.study.cases.cases_of_lines", cases)
        files = ["--src", str(tmp_path / "src"), "--ref", str(tmp_path / "ref"), *more]
        return CliRunner().invoke(
            app, ["compare", str(tmp_path / "file"), str(tmp_path / "model"), *files]
        ), seen

    return call


def test_references_are_unescaped_before_they_become_the_models_pieces(compare):
    done, seen = compare()
    assert done.exit_code == 0, done.exception
    assert seen.references == [["Der Hund 'bellt'."]]
    assert seen.annotator is None


def test_another_annotator_for_the_models(compare):
    assert compare("--model-annotator", "en")[1].annotator == "en"


def test_a_model_with_factors_of_ones_own_is_compared_by_its_translations(compare, tmp_path):
    done, _ = compare(factors=("pos", "tone"))
    assert str(done.exception) == (
        f"{tmp_path / 'model'}: expected a model without factors of your own, got one that reads tone. "
        "Write its translations with `syntaxformer translate` and --factor, and compare that file."
    )
