"""Runs that a kill, a full disk or a damaged file interrupted, on the command line: all of them go on."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import own_process


def test_a_run_that_met_a_full_disk_when_resumed_can_still_be_resumed(
    train, corpus, tmp_path, full_disk, tiny
):
    assert train().code == 0
    run = tmp_path / "run"
    kept = ("tokenizer.json", "tokenizer_config.json", "syntaxformer.json")
    before = {name: (run / name).read_bytes() for name in kept}
    limit = 200 + max((run / name).stat().st_size for name in ("recipe.yaml", "data_report.json"))
    assert len(before["tokenizer.json"]) > limit
    arguments = ["--quiet", "train", "tiny", f"data.dir={corpus}", f"output={run}", *tiny]
    done = own_process.run(full_disk, limit, *arguments, "training.max_steps=3", "--resume")
    assert done.returncode == 2, done.stderr
    assert "checkpoint-3: expected to write the folder, got: File too large" in done.stderr
    assert {name: (run / name).read_bytes() for name in kept} == before
    done = train("training.max_steps=3", flags=("--resume",)).ok()
    assert f"resuming from {run / 'checkpoints' / 'checkpoint-2'}" in done.err


KILLED_WHILE_WRITING = """
import os, signal
from syntaxformer.base import files as folders
from syntaxformer.cli.main import main

write_manifest = folders.write_manifest

def write_once(folder):
    if folder.name.startswith(".checkpoint-2."):
        os.kill(os.getpid(), signal.SIGKILL)
    write_manifest(folder)

folders.write_manifest = write_once
main()
"""


@pytest.mark.slow
def test_a_run_killed_while_it_writes_a_checkpoint_goes_on_from_the_one_before(train, corpus, tmp_path, tiny):
    run, unbroken = tmp_path / "run", tmp_path / "unbroken"
    arguments = ["--quiet", "train", "tiny", f"data.dir={corpus}", f"output={run}", *tiny]
    killed = own_process.run(KILLED_WHILE_WRITING, *arguments)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    (checkpoint, partial) = sorted((run / "checkpoints").iterdir(), reverse=True)
    assert partial.name.startswith(".checkpoint-2.")
    done = train(flags=("--resume",)).ok()
    assert f"resuming from {checkpoint}" in done.err
    assert checkpoint.name == "checkpoint-1"
    assert not partial.exists()
    assert train(f"output={unbroken}").code == 0
    weights = (load_file(folder / "model.safetensors") for folder in (run, unbroken))
    torch.testing.assert_close(*weights, atol=1e-6, rtol=0)


def _flip_a_byte(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-5] ^= 1
    path.write_bytes(content)


def _truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-5])


@pytest.mark.parametrize(
    ("damage", "reason"),
    [(_flip_a_byte, "expected the content that was written"), (_truncate, "It is truncated.")],
)
def test_where_the_best_checkpoint_is_lost_the_model_and_its_metrics_are_those_of_the_last(
    train, tmp_path, damage, reason
):
    rising = "training.learning_rate=0.9"  # each update makes it worse
    settings = ("training.max_steps=4", "training.warmup_steps=1", rising)
    assert train(*settings).code == 0
    run = tmp_path / "run"
    before = json.loads((run / "run.json").read_text())
    assert before["best_step"] < before["last_step"] == 4
    best = run / "checkpoints" / f"checkpoint-{before['best_step']}"
    state = json.loads((run / "checkpoints" / "checkpoint-4" / "trainer_state.json").read_text())
    (last_loss,) = (
        log["eval_loss"] for log in state["log_history"] if log["step"] == 4 and "eval_loss" in log
    )
    damage(best / "model.safetensors")
    done = train(*settings, flags=("--resume",)).ok()
    assert f"skipping a checkpoint: {best / 'model.safetensors'}: " in done.err
    assert reason in done.err
    assert (
        f"the best checkpoint is lost; the last one, {run / 'checkpoints' / 'checkpoint-4'}, is used"
        in done.err
    )
    report = json.loads((run / "run.json").read_text())
    assert (report["checkpoints"], report["best_step"]) == (["checkpoint-4"], 4)
    assert report["dev_loss"] == last_loss > before["dev_loss"]
