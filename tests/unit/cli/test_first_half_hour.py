"""What somebody meets in the first half hour: help, sentences on the terminal, notices, remedies."""

from __future__ import annotations

import json
import logging

import pytest
from typer.testing import CliRunner

from syntaxformer.base.errors import AlignmentError, ConfigError
from syntaxformer.base.progress import track
from syntaxformer.cli import options
from syntaxformer.cli.main import app, common
from syntaxformer.translation.recipe import load_recipe


def _annotate(*arguments):
    done = CliRunner().invoke(app, ["annotate", *map(str, arguments)])
    return done.stdout if done.exit_code == 0 else done.exception.problems


def test_sentences_are_printed(tmp_path):
    path = tmp_path / "a.en"
    path.write_text("two  dogs\n\nein Hünd\n")
    arguments = path, "--annotator", "spaces", "--format"
    assert _annotate(*arguments[:3]) == _annotate(*arguments, "conllu")
    assert [line.split("\t")[:2] for line in _annotate(*arguments, "conllu").splitlines()] == [
        ["# text = two  dogs"], ["1", "two"], ["2", "dogs"], [""], ["# text = "], [""], ["# text = ein Hünd"], ["1", "ein"], ["2", "Hünd"], [""],
    ]  # fmt: skip
    objects = list(map(json.loads, _annotate(*arguments, "json").splitlines()))
    assert objects[0] == {"text": "two  dogs", "words": ["two", "dogs"], "offsets": [[0, 3], [5, 9]]}
    assert [sentence["words"] for sentence in objects] == [["two", "dogs"], [], ["ein", "Hünd"]]
    assert [line.split() for line in _annotate(*arguments, "table").splitlines() if line] == [
        ["word"], ["two", "1"], ["dogs", "2"], ["word"], ["ein", "1"], ["Hünd", "2"],
    ]  # fmt: skip


def test_a_table_has_the_trees(tmp_path):
    (tmp_path / "a.conllu").write_text(
        "1\tdogs\tdog\tNOUN\tNNS\t_\t2\tnsubj\t_\t_\n2\trun\trun\tVERB\tVBP\t_\t0\troot\t_\t_\n\n"
    )
    (tmp_path / "a.en").write_text("dogs run\n")
    shown = _annotate(tmp_path / "a.en", "--annotator", f"conllu:{tmp_path}/a.conllu", "--format", "table")
    header, *words = [line.split() for line in shown.splitlines() if line]
    rows = [dict(zip(["number", *header[1:]], word[1:], strict=True)) for word in words]
    assert [row["upos"] for row in rows] == ["NOUN", "VERB"]
    assert [(row["number"], row["governors"], row["deprels"]) for row in rows] == [("1", "2", "nsubj"), ("2", "0", "root")]  # fmt: skip


def test_what_is_printed_is_not_stored(tmp_path):
    path = tmp_path / "a.en"
    path.write_text("a\n")
    expected = "--format: expected none with -o, which writes Parquet. Leave one out."
    assert _annotate(path, "-o", tmp_path / "x.parquet", "--format", "json") == [expected]
    assert _annotate(path, "--engine", "ray") == ["--engine ray: expected -o with it. Leave one out."]


def test_all_keys_that_a_start_refuses_are_named_at_once(tmp_path, monkeypatch):
    stored = {"model": {"d_model": 64, "d_ff": 256, "n_heads": 4, "encoder_layers": 3}, "infusion": {}}
    monkeypatch.setattr("syntaxformer.translation.recipe.own_sections", lambda path: stored)
    monkeypatch.setattr("syntaxformer.translation.recipe.is_own", lambda path: True)
    monkeypatch.setattr("syntaxformer.translation.recipe.local_folder", str)
    with pytest.raises(ConfigError) as caught:
        load_recipe("tiny", [f"model.init_from={tmp_path}"])
    named = [problem.partition(": ")[2] for problem in caught.value.problems]
    assert any(problem.startswith("subwords.vocab_size: expected none") for problem in named)
    assert any(problem.startswith("model.d_model: expected 64, as in model.init_from") for problem in named)
    assert any(problem.startswith("model.encoder_layers: expected 3, as in") for problem in named)


def test_errors_of_factors_name_file_and_line():
    with pytest.raises(AlignmentError) as caught, options.errors_of_factors(["case=c.txt", "tone=t.txt"]):
        raise AlignmentError("column tone: expected 3 values, one per word, got 2.", line=7)
    assert str(caught.value) == "t.txt:7: column tone: expected 3 values, one per word, got 2."
    assert (caught.value.path, caught.value.line) == ("t.txt", 7)
    with pytest.raises(AlignmentError, match=r"^line 7: other"), options.errors_of_factors(None):
        raise AlignmentError("other", line=7)


def test_a_warning_begins_so(capsys):
    logger, handlers, level = logging.getLogger("syntaxformer"), logging.root.handlers[:], logging.root.level
    try:
        common()
        logger.warning("%s: expected en, as of the model", "a.de")
        logger.info("3 lines")
    finally:
        logging.basicConfig(handlers=handlers, level=level, force=True)
    assert capsys.readouterr().err.splitlines() == ["warning: a.de: expected en, as of the model", "3 lines"]


def test_of_nothing_no_progress_is_said(caplog):
    with caplog.at_level(logging.INFO):
        assert list(track([], "counting words")) == []
        assert list(track([1], "annotating")) == [1]
    assert [record.getMessage().partition(":")[0] for record in caplog.records] == ["annotating"]
