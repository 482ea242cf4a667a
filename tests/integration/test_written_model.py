"""The model that is written: which weights lie there, and whether `run.json` tells the truth of them."""

from __future__ import annotations

import json

import pytest
import torch

import syntaxformer as sf

RISING = ("training.max_steps=7", "training.warmup_steps=1", "training.learning_rate=0.9")
"""Each update makes it worse: the best checkpoint is an early one."""
SWINGING = (
    "training.max_steps=9", "training.warmup_steps=1", "training.learning_rate=0.4", "model.dropout=0.3",
    "training.max_batch_tokens=64",
)  # fmt: skip
"""The loss goes up and down around the best: the mean lies below all that it is made of."""


def dev_loss(run, corpus) -> float:
    """Loss for each target piece of the corpus, line by line, by the model that lies there."""
    translator = sf.Translator.load(run, device="cpu")
    tokenizer, total, n_pieces = translator.encoder.tokenizer, 0.0, 0
    sides = [(corpus / f"train.{language}").read_text().splitlines() for language in ("en", "de")]
    for pair in zip(*sides, strict=True):
        pieces = [tokenizer(line, add_special_tokens=False)["input_ids"] for line in pair]
        source, target = (torch.tensor([[*one, tokenizer.eos_token_id]]) for one in pieces)
        with torch.no_grad():
            logits = translator.model(input_ids=source, labels=target).logits
        total -= logits.log_softmax(-1).gather(-1, target[..., None]).sum().item()
        n_pieces += target.shape[1]
    return total / n_pieces


def report_of(run) -> tuple[dict, dict[int, float]]:
    """`run.json`, and the loss on dev after each update."""
    report = json.loads((run / "run.json").read_text())
    last = run / "checkpoints" / f"checkpoint-{report['last_step']}" / "trainer_state.json"
    history = json.loads(last.read_text())["log_history"]
    return report, {log["step"]: log["eval_loss"] for log in history if "eval_loss" in log}


@pytest.mark.parametrize(
    ("settings", "n_averaged"), [(RISING, 1), (SWINGING, 3)], ids=["the best alone", "a mean"]
)
def test_averaging_writes_what_is_best_on_dev_with_its_own_loss(
    train, corpus, tmp_path, settings, n_averaged
):
    done = train(*settings, "training.average=3", "training.keep_checkpoints=1").ok()
    report, losses = report_of(tmp_path / "run")
    assert report["dev_loss"] == pytest.approx(dev_loss(tmp_path / "run", corpus), abs=1e-4)
    assert report["dev_loss"] <= min(losses.values())
    assert report["best_step"] == min(losses, key=lambda step: losses[step])
    assert len(report["checkpoints"]) == n_averaged
    steps = [int(name.removeprefix("checkpoint-")) for name in report["checkpoints"]]
    nearest = sorted(losses, key=lambda step: (abs(step - report["best_step"]), step))
    assert steps == sorted(nearest[:n_averaged])
    assert "on dev, the mean of checkpoint-" in done.err
    text = (corpus / "train.en").read_text().splitlines()[:3]
    exact, half = (sf.Translator.load(tmp_path / "run", device=name) for name in ("cpu", "cpu:bf16"))
    assert half.model.dtype == torch.bfloat16
    of_both = [one.model(**inputs_of(one, text)).logits.float() for one in (exact, half)]
    torch.testing.assert_close(*of_both, atol=0.1, rtol=0.1)
    assert len(list(half.translate(text))) == 3


def inputs_of(translator, lines) -> dict[str, torch.Tensor]:
    """Sources, and targets that are the sources."""
    pieces = translator.encoder.tokenizer(lines, padding=True, return_tensors="pt")["input_ids"]
    return {"input_ids": pieces, "labels": pieces}


def test_without_averaging_the_loss_is_that_of_the_best_checkpoint(train, corpus, tmp_path):
    assert train(*RISING).code == 0
    report, losses = report_of(tmp_path / "run")
    assert report["dev_loss"] == min(losses.values())
    assert report["dev_loss"] == pytest.approx(dev_loss(tmp_path / "run", corpus), abs=1e-4)


def test_bleu_and_loss_together(train, tmp_path):
    train("training.best_by=both", "training.patience=5").ok()
    report, losses = report_of(tmp_path / "run")
    assert report["dev_loss"] == losses[report["best_step"]]
    assert 0 <= report["dev_bleu"] <= 100


def test_seconds_count_every_leg(train, tmp_path):
    assert train("training.max_steps=12").code == 0
    first, _ = report_of(tmp_path / "run")
    assert train("training.max_steps=13", flags=("--resume",)).code == 0
    both, _ = report_of(tmp_path / "run")
    assert both["last_step"] == 13
    assert both["seconds"] >= first["seconds"] > 0, "to a tenth of a second"
