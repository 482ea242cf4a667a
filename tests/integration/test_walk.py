"""How far one sentence walks: files whose functions run, and lines of code of the functions that ran."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

import pytest
import torch
from transformers import BertConfig, BertForSequenceClassification, BertTokenizerFast

import syntaxformer as sf
from syntaxformer.cli.main import main
from tiny_hosts import BERT

PACKAGE = Path(sf.__file__).parent


def walk(once) -> tuple[int, int]:
    """Files and lines of code that run the second time: the first time imports what is needed."""
    once()
    lines: dict[tuple[str, int], int] = {}

    def note(frame, event, _):
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(str(PACKAGE)) and code.co_name != "<module>":
            lines[code.co_filename, code.co_firstlineno] = len({line for *_, line in code.co_lines() if line})

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        once()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return len({file for file, _ in lines}), sum(lines.values())


@pytest.mark.slow
def test_one_line_through_an_infused_translator(digits, tmp_path, monkeypatch):
    source, output = tmp_path / "in.txt", tmp_path / "out.txt"
    source.write_text("1 2 3\n")
    command = ["syntaxformer", "translate", f"{digits.sum_then_concat}", f"{source}", "-o", f"{output}"]
    monkeypatch.setattr(sys, "argv", command)

    def once():
        output.unlink(missing_ok=True)
        with pytest.raises(SystemExit) as done:
            main()
        assert done.value.code == 0

    n_files, n_lines = walk(once)
    assert output.read_text().strip()
    assert n_files <= 33, n_files  # the rules of tokenizers, a folder and alignments are files of their own
    assert n_lines <= 2520, (
        n_lines
    )  # ensembles, annotators of one's own, sentences, terms, outputs that go on, capitals


def test_one_sentence_through_an_infused_encoder():
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", "dog", "runs", "."]
    fast = BertTokenizerFast(vocab={word: place for place, word in enumerate(words)})
    shape = BertConfig(**BERT)

    def once():
        config = sf.InfusionConfig(masks={})
        model = sf.infuse(BertForSequenceClassification(shape), config)
        sentences = sf.load_annotator("en+phrases").annotate(["a dog runs."])
        batch = sf.SyntaxCollator(fast, config)([sf.SyntaxExample((sentences[0],), 1)])
        loss = model(**batch).loss
        loss.backward()
        assert torch.isfinite(loss)

    n_files, n_lines = walk(once)
    assert n_files <= 25, n_files  # surgery of classes apart from what is infused
    assert n_lines <= 2570, (
        n_lines
    )  # own relations, records of each thread, lemmas, checks of what is infused
