"""The data report finds every planted fault of a dirty corpus, and hardly anything else."""

from __future__ import annotations

import json
from random import Random

import pytest

from dirty_corpus import FRENCH, write_dirty
from parallel_files import write_sides
from syntaxformer.base.errors import DataError
from syntaxformer.translation import data_report
from syntaxformer.translation.corpora import CorpusConfig, read_dev, read_split, read_train
from syntaxformer.translation.data_report import (
    DataReport,
    add_long,
    read_pair_files,
    report_pairs,
    report_train,
)
from syntaxformer.translation.source import encode_pieces
from syntaxformer.translation.subwords import SubwordConfig, train_subwords

FAULTS = {
    "overlap": data_report.HELD_OUT.format("test"), "duplicate": data_report.DUPLICATE, "tab": data_report.TABS,
    "copy": data_report.COPY, "empty": data_report.EMPTY, "ratio": data_report.RATIOS,
    "script": data_report.SCRIPT, "french": data_report.LANGUAGE,
}  # fmt: skip


def read(folder, name):
    return read_pair_files(folder / f"{name}.ENG", folder / f"{name}.DEU")


def test_every_planted_fault_is_found_and_clean_lines_are_not(tmp_path):
    planted = write_dirty(tmp_path)
    pairs, held_out = read(tmp_path, "Export (final)"), {"test": read(tmp_path, "test")}
    report = report_pairs("dirty", pairs, ("en", "de"), held_out)
    rows_of = {fault: {row + 1 for row in rows} for fault, rows in report.faults.items()}
    assert len(planted["french"]) == 2 * len(FRENCH) == 100
    for kind, fault in FAULTS.items():
        assert planted[kind] <= rows_of[fault], (kind, planted[kind] - rows_of[fault])
    accused = set.union(*rows_of.values()) & planted["clean"]
    assert len(accused) <= 0.005 * len(planted["clean"]), accused


@pytest.mark.parametrize(
    ("fault", "line", "remedy"),
    [
        (data_report.ESCAPES, "Tom &apos;s &quot; cat &amp; dog &quot;", "data.unescape=true"),
        (data_report.MARKS, "the un@@ known cat", "before it was cut"),
        (data_report.MARKS, "▁the ▁cat", "before it was cut"),
        (data_report.MARKS, "the un ##known cat", "before it was cut"),
        (data_report.MARKUP, '<seg id="1">a <b>cat</b></seg>', "remove it"),
        (data_report.MARKUP, "a&nbsp;cat", "remove it"),
        (data_report.TWICE, "Die KÃ¤se", "iconv"),
        (data_report.TWICE, "donâ€™t", "iconv"),
        (data_report.TWICE, "ÐºÐ¾Ñ‚", "iconv"),
        (data_report.UNREADABLE, "a \ufffd cat", "data.drop_unreadable=true"),
    ],
)
def test_text_that_another_program_has_made(fault, line, remedy):
    clean = ["A cat & a dog <3 #1 @ 5 < 6", "CAFÉ» AT&T; Ãn Â5, l'Âge", "me@@home ##", "x = a<b; c>d"]
    report = report_pairs("a", ([*clean, line, "a"], [*clean, "a", line]), (None, None))
    faults = {name: rows for name, rows in report.faults.items() if rows and name in data_report.REMEDIES}
    assert faults == {fault: [4, 5]}
    assert remedy in str(report)


def test_files_without_lines_are_refused(tmp_path):
    (tmp_path / "empty").touch()
    with pytest.raises(DataError, match="empty: expected lines, got none"):
        read_pair_files(tmp_path / "empty", tmp_path / "empty")


def test_sides_that_are_shifted_by_some_lines(caplog):
    chosen = Random(3)
    numbers = [[str(chosen.randrange(99)) for _ in range(chosen.randint(1, 9))] for _ in range(703)]
    src, tgt = ([" ".join([word, *line]) for line in numbers] for word in ("a", "ein"))
    assert report_pairs("a", (src, tgt), (None, None)).faults[data_report.SHIFTED] == []
    for n_letters in range(3, 40, 4):  # lines that are all as long say nothing of a shift
        assert data_report._shifted((["a" * n_letters] * 200, ["b" * 7] * 200)) == []
    for pairs in ((src[1:], tgt[:-1]), (src[:-3], tgt[3:])):
        report = report_pairs("a", pairs, (None, None))
        assert len(report.faults[data_report.SHIFTED]) >= 600
        assert "find the missing line" in str(report)
        report.tell()
        assert "shifted by a line or more. Find the missing line" in caplog.text
    late = report_pairs("a", (src[:-1], tgt[:400] + tgt[401:]), (None, None)).faults[data_report.SHIFTED]
    assert late[0] == 400


def test_clean_leaves_out_what_was_found_and_says_how_much(tmp_path):
    planted = write_dirty(tmp_path)
    sides = {"src": "ENG", "tgt": "DEU", "tabs": "space"}
    settings = {"dir": tmp_path, "train": "Export (final)", "dev": "test", **sides}
    config = CorpusConfig(**settings, clean=True)
    whole = read_train(config)
    text, report = report_train(config, whole, read_split(config, "test"))
    assert {row + 1 for row in text.rows} <= planted["clean"] | planted["tab"]
    assert len(text) >= 0.995 * len(planted["clean"])
    assert f"left out {len(whole) - len(text):,} of {len(whole):,} pairs" in str(report)
    assert report.to_dict()["kept"] == len(text)
    same, report = report_train(CorpusConfig(**settings), whole, read_split(config, "test"))
    assert same is whole
    assert report.kept is None


def test_only_texts_are_compared_with_a_training_text(tmp_path):
    """A parse beside a test set is no test set."""
    for split in ("train", "dev", "test16"):
        write_sides(tmp_path, ["A cat."], ["Eine Katze."], split)
    (tmp_path / "test16.en.conllu").write_text("1\tA\n")
    both = [{"name": "train", "tag": "<2de>"}, {"name": "train", "src": "de", "tgt": "en", "tag": "<2en>"}]
    for train, rows in (("train", [0]), (both, [0, 1])):  # in each direction in which it is trained
        config = CorpusConfig(dir=tmp_path, train=train)
        report = report_train(config, read_train(config), read_dev(config))[1]
        assert report.faults[data_report.HELD_OUT.format("test16")] == rows
        assert not [note for note in report.notes if "Not compared" in note]


def test_text_that_spells_special_pieces_is_as_long_as_training_counts_it():
    tokenizer = train_subwords(["a cat"] * 3, SubwordConfig(vocab_size=301))
    lines = ["</s>" * 7, "a cat"]
    (n_pieces, _) = (len(line.ids) for line in encode_pieces(tokenizer, lines))
    assert n_pieces > 7 + 1
    for limit, rows in ((n_pieces - 1, {0}), (n_pieces, set())):
        tokenizer.backend_tokenizer.encode_special_tokens = False
        assert add_long(DataReport("a", 2), [(tokenizer, [lines])], limit) == rows


def test_clean_does_not_leave_out_most_of_a_text(tmp_path):
    """Files in another language than the recipe says would be emptied, and the run would learn from the rest."""
    for split, words in (("train", "Das ist der Satz"), ("dev", "Ein Haus")):
        write_sides(tmp_path, FRENCH[:9], [f"{words} {n}." for n in range(9)], split)
    config = CorpusConfig(dir=tmp_path, clean=True)
    text, dev = read_train(config), read_split(config, "dev")
    with pytest.raises(DataError, match=r"train\.en: data\.clean: expected to leave out half of the 9 pairs at most, got 9, 9 of them in another language\. Check data\.src"):  # fmt: skip
        report_train(config, text, dev)
    half = config.model_copy(update={"src_language": "fr"})
    assert len(report_train(half, text, dev)[0]) == 9
    again = text.select([*range(9)] * 3)  # duplicates alone may be most of a text, like pairs that are in dev
    assert len(report_train(half, again, dev)[0]) == 9
    assert len(report_train(half, text, text.select([*range(8)]))[0]) == 1
    with pytest.raises(DataError, match="half of the 9 pairs at most, got 9, 9 of them that are also in"):
        report_train(half, text, text)


def test_what_most_of_a_text_has_is_a_warning(caplog):
    """A run with --quiet says nothing else of the report."""
    src, tgt = [f"two words {i}" for i in range(10)], [f"zwei Wörter {i}" for i in range(10)]
    for n_copies, warning in ((2, ""), (3, "30% of the pairs are untranslated copies.")):
        caplog.clear()
        report_pairs("a", (src, src[:n_copies] + tgt[n_copies:]), (None, None)).tell()
        assert warning in caplog.text
        assert caplog.text.count("WARNING") == bool(warning)
    report_pairs("a", (src, tgt), (None, None), {"dev": (src, tgt)}).tell()
    assert "100% of the pairs are also in dev. Check the files" in caplog.text


def test_only_a_sample_of_languages_is_identified_and_that_is_said(monkeypatch):
    monkeypatch.setattr(data_report, "LANGUAGE_SAMPLE", 3)
    pairs = [f"This is the house number {n}." for n in range(7)], [FRENCH[n] for n in range(7)]
    report = report_pairs("a", pairs, ("en", "de"))
    assert report.faults[data_report.LANGUAGE] == [0, 3, 6]
    assert report.to_dict()["faults"][data_report.LANGUAGE]["share"] == 1
    assert "The language of 3 pairs, evenly spread, was identified." in str(report)
    assert report_pairs("a", pairs, ("en", "de"), all_languages=True).faults[data_report.LANGUAGE] == list(
        range(7)
    )


def test_a_language_with_two_scripts_is_not_accused_line_by_line():
    serbian = ["Danas je lepo vreme.", "Čovek čita novine.", "Она чита књигу.", "OK", ""]
    pairs = serbian, ["A b.", "C d.", "Она чита.", "5", "x"]
    report = report_pairs("a", pairs, ("sr", "en"))
    assert report.faults[data_report.SCRIPT] == [2]  # the Cyrillic target
    unchecked = "The script of the source was not checked"
    assert f"{unchecked}: 3 of 4 lines are in another than Cyrl, the usual one of sr." in report.notes
    report = report_pairs("a", pairs, ("km", None))
    assert report.faults[data_report.SCRIPT] == []
    notes = [note for note in report.notes if "script" in note]
    assert notes == [f"{unchecked}: that of km is not known."]


def test_without_room_for_the_identifier_the_report_says_so(monkeypatch):
    error, remedy = OSError(27, "File too large"), "Make room for temporary files."

    def missing():
        raise error

    monkeypatch.setattr(data_report, "identifier", missing)
    report = report_pairs("a", (["A cat."], ["Une chat."]), ("en", "de"))
    assert data_report.LANGUAGE not in report.faults
    assert f"The language of the lines was not checked: {error}. {remedy}" in str(report)


def test_the_command(tmp_path, capsys, monkeypatch):
    from syntaxformer.cli.main import main

    planted = write_dirty(tmp_path)
    files = [str(tmp_path / f"{name}.{end}") for name in ("Export (final)", "test") for end in ("ENG", "DEU")]

    def run(*arguments):
        monkeypatch.setattr("sys.argv", ["syntaxformer", "data", "report", *arguments])
        with pytest.raises(SystemExit) as stopped:
            main()
        output = capsys.readouterr()
        return output.err if stopped.value.code == 2 else json.loads(output.out)["faults"]

    faults = run(*files, "--json")
    assert faults[data_report.COPY]["pairs"] == len(planted["copy"])
    assert faults[data_report.HELD_OUT.format(files[2])]["lines"] == sorted(planted["overlap"])[:3]
    faults = run(*files, "--src-language", "fr", "--tgt-language", "deu", "--json")
    assert faults[data_report.LANGUAGE]["pairs"] > 1000
    assert "quatsch!" in run(*files, "--src-language", "quatsch!")
    assert "expected pairs SRC TGT, got 3 files" in run(*files[:3])
