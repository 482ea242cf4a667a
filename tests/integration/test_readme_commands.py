"""The README's commands in their order, on small data: only sizes and the port are set beside what stands there."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

import own_process

README = Path(__file__).resolve().parents[2] / "README.md"
SMALLER = {
    "train": "subwords.vocab_size=301 model.d_model=32 model.d_ff=31 model.n_heads=2 model.encoder_layers=1 "
    "model.decoder_layers=1 training.max_steps=4 training.eval_every=2 training.max_batch_tokens=257",
    "finetune": "--set training.epochs=1 --set training.max_length=32",
    "serve": "--port 0",
}
"""Verb → what makes it short here. The demo has tests of its own."""


def commands() -> list[list[str]]:
    """Each command of the README that begins with our own, as words."""
    text = re.sub(r"```.*?```", "", README.read_text("utf-8"), flags=re.DOTALL)
    lines = re.findall(r"^ {4}(syntaxformer .*)$", text, re.MULTILINE)
    return [words for line in lines if (words := shlex.split(line, comments=True))[1] != "demo"]


@pytest.mark.slow
def test_they_run_one_after_the_other(newcomer):
    shown = commands()
    assert [words[1] for words in shown] == ["train", "finetune", "serve"]
    *first, serve = [[*words[1:], *SMALLER[words[1]].split()] for words in shown]
    for command in first:
        done = own_process.run(own_process.COMMAND_LINE, *command, cwd=newcomer)
        assert done.returncode == 0, done.stderr
    serve = [sys.executable, "-m", "syntaxformer.cli.main", *serve]
    with subprocess.Popen(serve, cwd=newcomer, stderr=subprocess.PIPE, text=True) as server:
        try:
            said = next(line for line in server.stderr if "Uvicorn running on" in line)
            address = re.search(r"http://[\d.:]+", said)[0]
            with urllib.request.urlopen(f"{address}/v1/models") as answer:
                tasks = {model["name"]: model["task"] for model in json.load(answer)["models"]}
        finally:
            server.terminate()
    assert tasks == {"translator": "translation", "classifier": "classification"}
