import logging
import sys

from syntaxformer import progress


def test_log_lines_where_there_is_no_terminal(caplog, monkeypatch):
    monkeypatch.setattr(progress, "LOG_EVERY_S", 0.0)
    with caplog.at_level(logging.INFO, logger="syntaxformer.progress"):
        assert list(progress.track("abc", "tagging", unit="letters")) == ["a", "b", "c"]
    assert caplog.messages[0].startswith("tagging: 2 of 3 letters, ")
    assert caplog.messages[0].endswith(" s left")
    assert caplog.messages[-1].startswith("tagging: 3 of 3 letters")
    assert caplog.messages[-1].endswith("done")


def test_a_bar_on_a_terminal(capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert list(progress.track(iter("abc"), "tagging")) == ["a", "b", "c"]


def test_silent_when_not_enabled(caplog, capsys):
    with caplog.at_level(logging.INFO):
        assert list(progress.track("ab", "tagging", enabled=False)) == ["a", "b"]
    assert caplog.messages == []
