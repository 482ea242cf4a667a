"""What `-o` may name: no input of the command, by name or by link, and no ending that says something else."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from syntaxformer.base.errors import ConfigError
from syntaxformer.cli.options import factor_files, refuse_inputs, refuse_other_endings


def test_links_to_an_input_are_the_input(tmp_path):
    (source := tmp_path / "in").write_text("text\n")
    (tmp_path / "soft").symlink_to(source)
    os.link(source, tmp_path / "hard")
    for name in ("in", "soft", "hard", "../" + tmp_path.name + "/in"):
        with pytest.raises(ConfigError) as caught:
            refuse_inputs(tmp_path / name, [None, source])
        assert str(caught.value) == f"-o: expected another file than the input, got {source}."
    refuse_inputs(tmp_path / "out", [None, source])
    refuse_inputs(None, [source])


def test_pipes_and_devices_may_be_read_and_written(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/null")):
        refuse_inputs(path, [path])


def test_endings(tmp_path):
    for name in ("x.md", "x.html", "x"):
        refuse_other_endings(tmp_path / name, (".md", ".html"))
    with pytest.raises(ConfigError) as caught:
        refuse_other_endings(tmp_path / "x.pdf", (".md", ".html"))
    assert str(caught.value) == "-o: expected a file ending of .md or .html, got x.pdf. Use x.md."


def test_files_of_factors():
    assert factor_files(["tone=a", "case=b=c"]) == {"tone": Path("a"), "case": Path("b=c")}
    assert factor_files(None) == {}
    with pytest.raises(ConfigError, match=r"^--factor: expected NAME=FILE, got none\.$"):
        factor_files(["tone=a", "none"])


@pytest.mark.parametrize(
    "arguments",
    [
        ("translate", "model", "in"),
        ("translate", "model", "other", "--factor", "tone=in"),
        ("evaluate", "model", "--src", "in", "--ref", "other"),
        ("evaluate", "model", "--src", "other", "--ref", "in"),
        ("compare", "model", "in", "--src", "other", "--ref", "other"),
        ("compare", "model", "other", "--src", "other", "--ref", "other", "--train", "in"),
        ("probe", "model", "--treebank", "other", "--test", "in"),
        ("annotate", "in"),
    ],
)
def test_no_verb_writes_over_what_it_reads(run, monkeypatch, tmp_path, arguments):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in").write_text("mine\n")
    message = "error: -o: expected another file than the input, got in.\n"
    assert run(*arguments, "-o", "in") == (2, "", message)
    assert (tmp_path / "in").read_text() == "mine\n"
