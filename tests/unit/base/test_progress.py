import logging
import sys

from syntaxformer.base import progress


def test_log_lines_where_there_is_no_terminal(caplog, monkeypatch):
    monkeypatch.setattr(progress, "LOG_EVERY_S", 0.0)
    with caplog.at_level(logging.INFO, logger="syntaxformer.base.progress"):
        assert list(progress.track("abc", "tagging", unit="letters")) == ["a", "b", "c"]
    assert caplog.messages[0].startswith("tagging: 2 of 3 letters, ")
    assert caplog.messages[0].endswith(" s left")
    assert caplog.messages[-1].startswith("tagging: 3 of 3 letters")
    assert caplog.messages[-1].endswith("done")


def test_a_bar_on_a_terminal(caplog, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setattr(progress, "_line", None)
    caplog.set_level(logging.INFO, "syntaxformer.base.progress")
    assert list(progress.track(iter("abc"), "tagging")) == ["a", "b", "c"]


def test_no_bar_where_only_warnings_are_shown(caplog, monkeypatch):
    """As under --quiet."""
    monkeypatch.setattr(progress, "terminal_bar", None)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    caplog.set_level(logging.WARNING, "syntaxformer.base.progress")
    assert list(progress.track("ab", "tagging")) == ["a", "b"]
