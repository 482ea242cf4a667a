"""The commands of the tutorials in their order, on small data: only sizes are set beside what stands there."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import yaml

DOCS = Path(__file__).resolve().parents[2] / "docs"
SMALLER = {
    "train": "subwords.vocab_size=301 model.d_model=32 model.d_ff=31 model.n_heads=2 model.encoder_layers=1 "
    "model.decoder_layers=1 training.max_steps=4 training.eval_every=2 training.max_batch_tokens=257",
    "finetune": "--set training.epochs=1 --set training.max_length=32",
}
"""Verb → what makes it short here."""


def _commands(page: str) -> list[tuple[bytes, list[str]]]:
    """Standard input and words of each command, but `serve`, which the README's test starts."""
    text = (DOCS / page).read_text("utf-8")
    found = re.findall(r'^ {4}(?:echo "(.*)" \| )?syntaxformer (.*)$', text, re.MULTILINE)
    commands = [(said.encode(), shlex.split(words, comments=True)) for said, words in found]
    return [(said, words) for said, words in commands if words[0] != "serve"]


@pytest.fixture
def follow(cli, newcomer, monkeypatch):
    """Type all commands of a page; returns what they printed."""
    monkeypatch.chdir(newcomer)
    (newcomer / "input.en").write_text("1 2 3\n")
    (newcomer / "new.txt").write_text("the a is fine\n")

    def call(page: str) -> list[str]:
        printed = []
        for said, words in _commands(page):
            done = cli("--quiet", *words, *SMALLER.get(words[0], "").split(), stdin=said + b"\n")
            assert done.code == 0, (words, done.err)
            printed.append(done.out)
        return printed

    return call


def test_train_a_translator(follow, newcomer):
    printed = "\n".join(follow("tutorial-translate.md"))
    assert printed.count("(paired bootstrap)") == 3
    for name in ("runs/sit-int8", "attention.png", "cases.md", "output.de"):
        assert (newcomer / name).exists()


def test_fine_tune_an_encoder(follow):
    printed = "\n".join(follow("tutorial-encoder.md"))
    assert printed.count("macro_f1") == 4
    assert printed.count("p(1)") == 2


def test_ask_a_research_question(follow, newcomer):
    (content,) = re.findall(
        r"```yaml\n(.*?)```", (DOCS / "tutorial-research.md").read_text("utf-8"), re.DOTALL
    )
    spec = yaml.safe_load(content)
    spec["settings"] |= {"training.epochs": 1, "training.max_length": 32}
    spec["axes"]["seed"] = spec["axes"]["seed"][:1]
    (newcomer / "masks.yaml").write_text(yaml.safe_dump(spec, sort_keys=False))
    (newcomer / "glue" / "CoLA").mkdir(parents=True)
    rows = "".join(f"x\t{place % 2}\t\tthe a is {'fine' if place % 2 else 'poor'}\n" for place in range(40))
    for split in ("train", "dev"):
        (newcomer / "glue" / "CoLA" / f"{split}.tsv").write_text(rows)
    follow("tutorial-research.md")
    report = (newcomer / "report" / "report.md").read_text("utf-8")
    assert "## Against system shuffled" in report
    assert "3 runs: 3 done" in report
