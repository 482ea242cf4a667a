"""The command in this process."""

from __future__ import annotations

import sys

import pytest

from syntaxformer.cli import main as cli_main


@pytest.fixture
def run(monkeypatch, capsys):
    """Run the command with some arguments: its exit status, and what it wrote to stdout and to stderr."""

    def call(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["syntaxformer", *arguments])
        monkeypatch.setattr("logging.basicConfig", lambda **_: None)
        monkeypatch.setattr("warnings.showwarning", None)
        with pytest.raises(SystemExit) as stopped:
            cli_main.main()
        captured = capsys.readouterr()
        return stopped.value.code, captured.out, captured.err

    return call
