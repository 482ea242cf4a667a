"""Schedules against values worked out by hand, and how evaluations on the development set compare."""

from __future__ import annotations

import signal
from itertools import pairwise
from types import SimpleNamespace

import pytest
import torch
from transformers import Trainer

from syntaxformer.base.errors import ConfigError
from syntaxformer.runs.trainer import (
    SCHEDULES,
    RunCallback,
    RunTrainer,
    best_step,
    constant,
    inverse_sqrt,
    n_without_gain,
    noam,
    scores_at,
)


@pytest.mark.parametrize(
    ("schedule", "warmup", "rates"),
    [
        # d_model 16: factor 1/4. Warm-up 4: 4^-1.5 = 1/8, and the peak is 1/4 · 4^-0.5.
        (noam, 4, {0: 1 / 32, 1: 1 / 32, 3: 3 / 32, 4: 1 / 8, 9: 1 / 12}),
        (noam, 0, {9: 1 / 12}),
        (inverse_sqrt, 4, {1: 0.25, 2: 0.5, 4: 1.0, 16: 0.5}),
        (inverse_sqrt, 0, {1: 1.0, 4: 0.5}),
        (constant, 5, {1: 0.2, 5: 1.0, 500: 1.0}),
        (constant, 0, {1: 1.0}),
    ],
)
def test_schedules_by_hand(schedule, warmup, rates):
    assert {step: schedule(step, warmup, 16) for step in rates} == pytest.approx(rates)


@pytest.mark.parametrize("name", sorted(SCHEDULES))
@pytest.mark.parametrize("warmup", [0, 1, 13])
def test_every_schedule_is_positive_and_falls_or_stays_after_warm_up(name, warmup):
    rates = [SCHEDULES[name](step, warmup, 32) for step in range(1, 101)]
    assert min(rates) > 0
    late = rates[warmup:]
    assert all(after <= before for before, after in pairwise(late))


HISTORY = [
    {"step": 5, "eval_loss": 3.0, "eval_bleu": 7.0, "eval_governor_accuracy": 0.5, "eval_runtime": 1.0},
    {"step": 5, "loss": 9.0},
    {"step": 10, "eval_loss": 2.0, "eval_bleu": 7.0, "eval_governor_accuracy": 0.75},
    {"step": 15, "eval_loss": 2.5, "eval_bleu": 6.0},
]


@pytest.mark.parametrize(("best_by", "best"), [("loss", 10), ("bleu", 5), ("both", 10)])
def test_the_best_evaluation(best_by, best):
    """Of equal BLEU the first is the best by BLEU, the one of lower loss by both."""
    assert best_step(HISTORY, best_by) == best


def test_the_scores_of_an_evaluation():
    assert scores_at(5, HISTORY) == {"loss": 3.0, "bleu": 7.0, "governor_accuracy": 0.5}


@pytest.mark.parametrize(
    ("best_by", "losses", "bleus", "since"),
    [
        ("loss", [3.0, 2.0, 2.5, 2.0], [1.0, 2.0, 3.0, 4.0], 2),
        ("bleu", [3.0, 2.0, 2.5, 2.0], [1.0, 2.0, 3.0, 4.0], 0),
        ("both", [3.0, 2.0, 2.5, 2.0], [1.0, 2.0, 3.0, 4.0], 0),
        ("both", [3.0, 2.0, 1.9, 1.9], [4.0, 3.0, 2.0, 4.0], 1),
        ("both", [3.0, 3.5, 3.5, 4.0], [4.0, 3.0, 3.5, 4.0], 3),
    ],
)
def test_evaluations_since_anything_got_better(best_by, losses, bleus, since):
    history = [
        {"step": step, "eval_loss": loss, "eval_bleu": bleu}
        for step, (loss, bleu) in enumerate(zip(losses, bleus, strict=True))
    ]
    assert n_without_gain(history, best_by) == since


def test_batches_are_copied_without_waiting_where_they_are_pinned(monkeypatch):
    class Both(RunTrainer, Trainer):
        def __init__(self):
            self.args, self.is_deepspeed_enabled = SimpleNamespace(device=torch.device("cpu")), False

    copied = []

    def to(tensor, device, non_blocking):
        copied.append((len(tensor), non_blocking))
        return tensor

    monkeypatch.setattr(torch.Tensor, "to", to)
    monkeypatch.setattr(torch.Tensor, "is_pinned", lambda tensor: len(tensor) == 3)
    batch = {"input_ids": torch.zeros(3), "others": [torch.zeros(2)], "name": "a"}
    assert Both()._prepare_input(batch).keys() == batch.keys()
    assert copied == [(3, True), (2, False)]


class _Products:
    """A Trainer that does not train, but sees how products are computed."""

    def __init__(self, bf16, device):
        self.config, self.model = SimpleNamespace(compile=False), SimpleNamespace()
        self.args = SimpleNamespace(bf16=bf16, device=torch.device(device))

    def train(self):
        return torch.backends.cuda.matmul.fp32_precision


class _Seeing(RunTrainer, _Products):
    __init__ = _Products.__init__


@pytest.mark.parametrize(
    ("device", "bf16", "during"), [("cuda", True, "tf32"), ("cuda", False, "ieee"), ("cpu", True, "ieee")]
)
def test_tf32_ends_with_the_training_that_wants_it(device, bf16, during):
    products = torch.backends.cuda.matmul
    before, products.fp32_precision = products.fp32_precision, "ieee"
    try:
        assert _Seeing(bf16, device).train() == during
        assert products.fp32_precision == "ieee"
    finally:
        products.fp32_precision = before


def test_ctrl_c_is_free_again_where_the_curves_cannot_be_written(monkeypatch, tmp_path):
    monkeypatch.setattr(signal, "signal", lambda number, handler: handlers.update({number: handler}))
    monkeypatch.setattr(signal, "getsignal", lambda number: handlers[number])
    handlers = {signal.SIGINT: signal.default_int_handler}
    callback = RunCallback([], 3, None, "loss", tmp_path)
    callback._writer = SimpleNamespace(close=lambda: (tmp_path / "none" / "curves").touch())
    arguments = SimpleNamespace(logging_steps=1, process_index=0, world_size=1)
    callback.on_train_begin(arguments, SimpleNamespace(global_step=0, is_world_process_zero=True), None)
    assert handlers[signal.SIGINT] != signal.default_int_handler
    with pytest.raises(FileNotFoundError):
        callback.on_train_end()
    assert handlers[signal.SIGINT] is signal.default_int_handler


@pytest.mark.parametrize("key", ["encoder_layerdrop", "decoder_layerdrop"])
def test_layers_left_out_by_chance_stand_against_recorded_steps(key):
    """BART draws them by Python, so a recorded step would leave out the same ones for ever."""
    model = SimpleNamespace(config=SimpleNamespace(**{key: 0.1}))
    with pytest.raises(ConfigError, match=rf"^training\.cuda_graphs: expected false with {key} "):
        RunTrainer(model, None, SimpleNamespace(cuda_graphs=True), [], float, 1, None)
