"""A tiny random BERT with a tokenizer, and a tiny task that it can learn."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

from syntaxformer.encoders.finetune_config import load_finetune
from syntaxformer.encoders.tasks import OWN_TASKS, ClassifierInfo

WORDS = (
    "the", "a", "cat", "dog", "house", "child", "sees", "likes", "sleeps", "runs", "big", "small", "not", ".",
)  # fmt: skip

QUICK = [
    f"training.{setting}" for setting in ("precision=fp32", "batch_size=8", "max_length=32", "learning_rate=0.01")
]  # fmt: skip


def make_checkpoint(folder: Path, seed: int = 7, max_positions: int = 64) -> Path:
    specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    letters = [chr(code) for code in range(ord("a"), ord("z") + 1)]
    pieces = [*specials, *WORDS, *letters, *(f"##{letter}" for letter in letters)]
    numbers = {piece: number for number, piece in enumerate(dict.fromkeys(pieces))}
    tokenizer = Tokenizer(models.WordPiece(numbers, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]",
        model_max_length=max_positions,
    )  # fmt: skip
    torch.manual_seed(seed)
    config = BertConfig(
        vocab_size=len(fast), hidden_size=24, num_hidden_layers=2, num_attention_heads=2, intermediate_size=37, initializer_range=0.2,
        max_position_embeddings=max_positions,
    )  # fmt: skip
    BertModel(config).save_pretrained(folder)
    fast.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory):
    return make_checkpoint(tmp_path_factory.mktemp("checkpoint") / "bert")


def cola_lines(n: int, start: int = 0) -> list[str]:
    """Sentences with "not" are wrong (label 0): something to learn, in the official layout."""
    lines = []
    for number in range(start, start + n):
        subject, verb = WORDS[2 + number % 4], WORDS[6 + number % 4]
        label = number % 2
        text = f"the {subject} {'not ' if label == 0 else ''}{verb} ."
        lines.append(f"gj04\t{label}\t{'' if label else '*'}\t{text}\n")
    return lines


@pytest.fixture(scope="session")
def cola(tmp_path_factory):
    folder = tmp_path_factory.mktemp("CoLA")
    (folder / "train.tsv").write_text("".join(cola_lines(40)))
    (folder / "dev.tsv").write_text("".join(cola_lines(13, 3)))
    (folder / "test.tsv").write_text("index\tsentence\n0\tthe dog likes .\n1\tthe cat not sees .\n")
    return folder


@pytest.fixture
def config_of(checkpoint, cola, tmp_path):
    """Settings of a quick run; keyword `infuse`, further arguments are overrides."""

    def make(*overrides: str, infuse: str = "", **options: object):
        files = {"model": str(checkpoint), "output": tmp_path / "run", "data": {"dir": cola}}
        return load_finetune({"task": "cola", **files, **options}, infuse, [*QUICK, *overrides])

    return make


def info_of(task: str, labels: tuple[str, ...] | None = None, **fields: object) -> ClassifierInfo:
    """The record of a model of an own task, without an annotator."""
    known = {"type": OWN_TASKS[task].type, "metrics": OWN_TASKS[task].metrics, "n_texts": 1}
    return ClassifierInfo(
        task=task, labels=labels, annotator=None, annotator_version=None, **{**known, **fields}
    )


@pytest.fixture
def table(tmp_path):
    """Write a file of the user's; give its path."""

    def make(content: str | bytes, name: str = "mine.tsv") -> Path:
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return make


@pytest.fixture
def messages(caplog):
    """What the run says."""
    caplog.set_level(logging.INFO, "syntaxformer")
    return caplog


@pytest.fixture(scope="session")
def run():
    """The command line in this process, as in tests/integration."""
    from tests.integration.conftest import run

    return run
