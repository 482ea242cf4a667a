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
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import BertConfig, BertForSequenceClassification, PreTrainedTokenizerFast

from digit_pairs import digit_pairs

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


@pytest.fixture
def newcomer(tmp_path):
    """A folder with the newcomer's files, under the names that the README gives them."""
    (tmp_path / "data").mkdir()
    for split, n, seed in (("train", 211, 1), ("dev", 23, 2)):
        src, tgt = zip(*digit_pairs(n, seed), strict=True)
        (tmp_path / "data" / f"{split}.en").write_text("\n".join(src) + "\n")
        (tmp_path / "data" / f"{split}.de").write_text("\n".join(tgt) + "\n")
    rows = [
        f"the {word} is {'fine' if place % 2 else 'poor'}\t{place % 2}"
        for place, word in enumerate("ab" * 40)
    ]
    (tmp_path / "reviews.tsv").write_text("\n".join(["text\tlabel", *rows]) + "\n")
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "the", "is", "fine", "poor", "a", "b"]
    tokenizer = Tokenizer(models.WordLevel({word: place for place, word in enumerate(words)}, "[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    names = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    checkpoint = tmp_path / "bert-base-uncased"
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names).save_pretrained(checkpoint)
    shape = {"hidden_size": 12, "num_attention_heads": 2, "num_hidden_layers": 1, "intermediate_size": 17}
    config = BertConfig(vocab_size=len(words), max_position_embeddings=40, **shape)
    BertForSequenceClassification(config).save_pretrained(checkpoint)
    return tmp_path


def test_they_run_one_after_the_other(newcomer):
    shown = commands()
    assert [words[1] for words in shown] == ["train", "finetune", "serve"]
    *first, serve = [
        [sys.executable, "-m", "syntaxformer.cli.main", *words[1:], *SMALLER[words[1]].split()]
        for words in shown
    ]
    for command in first:
        done = subprocess.run(command, cwd=newcomer, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    with subprocess.Popen(serve, cwd=newcomer, stderr=subprocess.PIPE, text=True) as server:
        try:
            said = next(line for line in server.stderr if "Uvicorn running on" in line)
            address = re.search(r"http://[\d.:]+", said)[0]
            with urllib.request.urlopen(f"{address}/v1/models") as answer:
                tasks = {model["name"]: model["task"] for model in json.load(answer)["models"]}
        finally:
            server.terminate()
    assert tasks == {"translator": "translation", "classifier": "classification"}
