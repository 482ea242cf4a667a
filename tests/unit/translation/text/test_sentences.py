"""Where a line of several sentences is cut, and how translations of its sentences are joined."""

from __future__ import annotations

import time

import pytest

from parallel_files import tiny_recipe, write_sides
from syntaxformer.translation.decoding import Hypothesis
from syntaxformer.translation.prepare import prepare
from syntaxformer.translation.sentences import cut_lines, joined, parsed_starts, usual_sentences
from syntaxformer.trees import Sentence


@pytest.mark.parametrize(
    ("line", "cut"),
    [
        ("Two dogs run. They bark!  Why?\u00a0Nobody knows.", ["Two dogs run.", " ", "They bark!", "  ", "Why?", "\u00a0", "Nobody knows."]),
        ('"Stop!" He (the boss) said so. (Really.) "Yes…" 3 left', ['"Stop!"', " ", "He (the boss) said so.", " ", "(Really.)", " ", '"Yes…"', " ", "3 left"]),
        ("Dr. Smith met J. R. Miller of the U.S. Army, e.g. Tom. He left.", ["Dr. Smith met J. R. Miller of the U.S. Army, e.g. Tom.", " ", "He left."]),
        ("Am 3. Mai kam Hr. Maier z. B. Mittags. Er ging.", ["Am 3. Mai kam Hr. Maier z. B. Mittags.", " ", "Er ging."]),
        ("a man . he runs . . . away", ["a man .", " ", "he runs . . .", " ", "away"]),
        ("今日は。明日も！」ねえ", ["今日は。", " ", "明日も！」", " ", "ねえ"]),
        ("Yahoo! is www.a.de. ok", ["Yahoo! is www.a.de. ok"]),
        ("No end", ["No end"]),
        ("...", ["..."]),
        (" x. Y ", [" x. Y "]),
        ("", [""]),
    ],
)  # fmt: skip
def test_rules_cut_after_marks_that_end_a_sentence(line, cut):
    assert cut_lines([line], 1, None) == [cut]
    assert "".join(cut).replace(" ", "") == line.replace(" ", "")


@pytest.mark.parametrize(
    "line", ["." * 10**6, ". " * 3 * 10**5, "a.\u00a0B" * 10**5, "A." + " " * 10**6, ".'" * 10**5]
)
def test_no_line_takes_long(line):
    start = time.process_time()
    cut_lines([line], 1, None)
    assert time.process_time() - start < 1


class HalfParser:
    """Finds two trees in every line: the last word, and all words before it."""

    def annotate(self, lines):
        self.lines = lines
        sentences = []
        for line in lines:
            trees = (-1, *[0] * (len(line.split()) - 2), -1)
            deprels = ("dep",) * len(trees)
            sentences.append(Sentence.from_words(line.split(), governors=trees, deprels=deprels))
        return sentences


def test_a_parser_must_agree_with_the_rules_and_sees_no_other_line():
    lines, parser = ["Run fast. Go on. Stop.", "One sentence here.", "Two here. And there."], HalfParser()
    assert cut_lines(lines, 1, parser) == [["Run fast. Go on.", " ", "Stop."], lines[1:2], lines[2:]]
    assert parser.lines == [lines[0], lines[2]]
    assert cut_lines(lines, 2, None) == [["Run fast.", " ", "Go on.", " ", "Stop."], lines[1:2], lines[2:]]
    assert cut_lines(lines, 2, parser) == [[line] for line in lines]


def test_a_sentence_starts_where_words_hang_on_another_root():
    trees = {"governors": (1, -1, 1, 4, -1), "deprels": ("x", "root", "x", "x", "root")}
    assert parsed_starts(Sentence.from_words("Abcde", **trees)) == {6}


def test_the_usual_number_of_sentences_is_that_of_99_lines_in_100():
    assert usual_sentences(["A."] * 99 + ["A. B. C."], None) == 1
    assert usual_sentences(["Ab. Cd."] * 98 + ["Ab. Cd. Ef."] * 2, None) == 3
    assert usual_sentences([], None) == 1


def test_translations_of_sentences_are_joined_rank_by_rank():
    end, alpha = 2, 0.5
    first = [Hypothesis("A.", -1.0, [5, 6, end]), Hypothesis("B.", -2.0, [5, end])]
    second = [Hypothesis("c", -3.0, [7], loops=True), Hypothesis("", -0.5, [end])]
    best, other = joined([first, second], ["\u00a0"], alpha, end)
    by_hand = {  # Σ log p / pieces ** α; the piece without an end gets one
        "A.\u00a0c": (-1.0 * 3**alpha - 3.0 * 2**alpha) / 5**alpha,
        "B.": (-2.0 * 2**alpha - 0.5 * 1**alpha) / 3**alpha,
    }
    assert {best.text: best.score, other.text: other.score} == pytest.approx(by_hand)
    assert best.score > other.score
    assert (other.loops, other.pieces) == (True, [5, 6, end, 7])
    assert joined([first], [], alpha, end) == first


def test_training_records_the_lines_that_it_saw(tmp_path):
    lines = ["a b c ."] * 98 + ["Ab c de. Fg."] * 2 + ["left out " * 40]
    write_sides(tmp_path, lines, map(str.upper, lines))
    info = prepare(tiny_recipe(tmp_path, "subwords.vocab_size=301", "data.max_pieces=16")).info
    assert (info.longest_line, info.usual_sentences) == (4, 2)
