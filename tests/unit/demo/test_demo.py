"""The demo's corpus, its folder, and what it says where a training cannot work."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import sys
from types import SimpleNamespace

import pytest

from syntaxformer.base.errors import ConfigError, SyntaxformerError
from syntaxformer.demo import run
from syntaxformer.demo.corpus import read_pairs, write_corpus
from syntaxformer.runs import run_folder
from syntaxformer.trees import Sentence


def test_parts_share_no_sentence_of_either_side():
    parts = read_pairs()
    sizes = {split: len(pairs) for split, pairs in parts.items()}
    assert sizes == {"train": 20_000, "valid": 500, "test": 500}
    held_out = parts["valid"] + parts["test"]
    for side in (0, 1):
        assert not {pair[side] for pair in parts["train"]} & {pair[side] for pair in held_out}
    assert len({source for source, _ in held_out}) == 1000
    assert len({pair for pairs in parts.values() for pair in pairs}) == 21_000


def test_sentences_are_short_and_clean():
    for pairs in read_pairs().values():
        for pair in pairs:
            assert all(text.isprintable() and text == " ".join(text.split()) for text in pair)
            assert 1 <= len(re.findall(r"\w+", pair[0])) <= 8


def test_the_licence_lies_beside_what_is_written(tmp_path):
    pairs = write_corpus(tmp_path / "corpus")
    assert len(list((tmp_path / "corpus").iterdir())) == 7
    assert "CC BY 2.0 FR" in (tmp_path / "corpus" / "LICENSE").read_text("utf-8")
    for side, language in enumerate(("en", "de")):
        lines = (tmp_path / "corpus" / f"valid.{language}").read_text("utf-8").split("\n")
        assert lines == [*(pair[side] for pair in pairs["valid"]), ""]


@pytest.mark.parametrize("split", [False, True])
def test_examples_of_a_demo_without_tags_show_the_source(split):
    """`demo infusion.kind=none` has no tagger, and other factors than tags leave them out."""
    sources, outputs = ["a b", "c"], {"baseline": ["x", "y"], "infused": ["x", "z"]}
    annotator = SimpleNamespace(annotate=lambda lines: [Sentence.from_words(line.split()) for line in lines])
    examples = run._examples(annotator if split else None, sources, ["r", "s"], outputs, [True, False])
    assert examples == [
        "\nsource     a b\nreference  r", "baseline   x", "infused    x", "\nsource     c\nreference  s", "baseline   y", "infused    z",
    ]  # fmt: skip


class _Begun(Exception):
    pass


@pytest.mark.parametrize("n_deleted", range(4))
def test_overwriting_that_was_cut_short_can_be_done_again(monkeypatch, tmp_path, n_deleted):
    for name in ("infused", "corpus", "baseline", "cache"):
        (tmp_path / name).mkdir()
    counts = iter(range(9))

    def rmtree(path):
        if next(counts) == n_deleted:
            raise KeyboardInterrupt
        shutil.rmtree(path)

    def begin(corpus):
        raise _Begun

    monkeypatch.setattr(run, "write_corpus", begin)
    with monkeypatch.context() as patch:
        patch.setattr(run_folder, "shutil", type("Cut", (), {"rmtree": staticmethod(rmtree)}))
        with pytest.raises(KeyboardInterrupt):
            run.run_demo(tmp_path, overwrite=True)
    assert len(list(tmp_path.iterdir())) == 4 - n_deleted
    with pytest.raises(_Begun):
        run.run_demo(tmp_path, overwrite=True)
    assert list(tmp_path.iterdir()) == []


def test_a_wrong_setting_is_told_before_anything_is_written(tmp_path):
    with pytest.raises(ConfigError, match=r"training\.max_step: unknown key"):
        run.run_demo(tmp_path / "demo", settings=["training.max_step=2"])
    assert not (tmp_path / "demo").exists()


SAYS = "import sys; print({!r}, file=sys.stderr); sys.exit({})"
WAITS = [sys.executable, "-c", "import time; time.sleep(200)"]


@pytest.mark.timeout(60)
def test_what_a_training_refuses_is_told_and_ends_the_other():
    refuses = [sys.executable, "-c", SAYS.format("error: data.dir: expected text.", 2)]
    with pytest.raises(ConfigError, match=r"^data\.dir: expected text\.$"):
        run._train({"baseline": WAITS, "infused": refuses})


@pytest.mark.timeout(60)
def test_a_training_that_cannot_start_ends_the_other(monkeypatch):
    children, popen = [], subprocess.Popen

    def start(*arguments, **options):
        children.append(popen(*arguments, **options))
        return children[-1]

    monkeypatch.setattr(run.subprocess, "Popen", start)
    with pytest.raises(FileNotFoundError):
        run._train({"baseline": WAITS, "infused": ["no such program"]})
    assert [child.wait(5) for child in children] == [-signal.SIGKILL]


@pytest.mark.timeout(60)
def test_a_training_that_broke_ends_the_other(caplog):
    breaks = [sys.executable, "-c", SAYS.format("Traceback: läuft nicht", 1)]
    with pytest.raises(SyntaxformerError) as caught:
        run._train({"baseline": breaks, "infused": WAITS})
    expected = "training of baseline: expected a model, got exit code 1. See its last messages above."
    assert str(caught.value) == expected
    assert "baseline  Traceback: läuft nicht" in caplog.text
