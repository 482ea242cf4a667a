"""Training on digit strings: data order, resumption, early stopping, accumulation, the best checkpoint."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import signal
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import TrainerCallback

import own_process
from recorder import Recorder
from syntaxformer.base.errors import CheckpointError, ConfigError
from syntaxformer.runs.checkpoints import complete_checkpoints
from syntaxformer.runs.processes import one_device, process_team
from syntaxformer.translation.batches import EncodedPairs
from syntaxformer.translation.source import EncodedText
from syntaxformer.translation.training import SyntaxTrainer, training_arguments

PICKLE_MAGICS = (b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05", b"PK\x03\x04", b"\x1f\x8b")
LONG = {"training__max_steps": 29, "training__eval_every": 7}
KILLED = """
import os, runpy, signal, sys
from pathlib import Path
from transformers import TrainerCallback

class Kill(TrainerCallback):
    def on_step_end(self, args, state, control, **_):
        if state.global_step == 17:
            os.kill(os.getpid(), signal.SIGKILL)

sys.path.insert(0, str(Path(sys.argv[1]).parents[3]))
made = runpy.run_path(sys.argv[1])
trainer = made["make_trainer"](made["make_recipe"](Path(sys.argv[2]), training__max_steps=29, training__eval_every=7))
trainer.add_callback(Kill())
trainer.train()
"""


def _losses(trainer) -> dict[int, float]:
    return {log["step"]: log["loss"] for log in trainer.state.log_history if "loss" in log}


def _names(folder: Path, run: str = "run") -> set[str]:
    """The whole checkpoints of a run."""
    return {path.name for path in complete_checkpoints(folder / run / "checkpoints")[0]}


def _weights(trainer) -> dict[str, torch.Tensor]:
    return {name: tensor.detach().clone() for name, tensor in trainer.model.state_dict().items()}


def _batches_of(trainer) -> list[list[list[int]]]:
    """Train, and return the labels of every batch that the collator made."""
    batches, collate = [], trainer.data_collator

    def noting(rows):
        batch = collate(rows)
        batches.append(batch["labels"].tolist())
        return batch

    trainer.data_collator = noting
    trainer.train()
    return batches


def test_pieces_of_bpe_dropout_count_for_the_budget(tiny_trainer, monkeypatch):
    """Each epoch has its own pieces: here some of them twice. The batches of all epochs are full, and fit."""
    clean = {}

    def again(pairs, epoch):
        rng, sides = np.random.default_rng(epoch), []
        for side in clean.setdefault("pairs", (pairs.src, pairs.tgt)):
            counts = 1 + (rng.random(len(side.pieces)) < 0.4)
            splits = np.append(0, np.cumsum(counts))[side.splits]
            sides.append(EncodedText(side.pieces.repeat(counts), splits, side.factors.repeat(counts, 0)))
        return EncodedPairs(*sides)

    monkeypatch.setattr(EncodedPairs, "again", again)
    trainer = tiny_trainer()
    for epoch in range(4):
        trainer.batches.set_epoch(epoch)
        lengths = trainer.train_dataset.tgt.lengths
        sizes = [len(rows) * lengths[rows].max() for rows in trainer.batches]
        assert max(sizes) <= 1.15 * 131
        assert np.mean(sizes) >= 0.75 * 131


@pytest.mark.slow
def test_an_interrupted_run_ends_like_an_unbroken_one(tiny_trainer, tiny_recipe, tmp_path):
    """SIGKILL at update 17, three updates after a checkpoint and in the middle of the second epoch."""
    unbroken = tiny_trainer(**LONG, output=tmp_path / "unbroken")
    assert 9 < len(unbroken.batches) < 15
    unbroken.train()

    conftest = Path(__file__).with_name("conftest.py")
    killed = own_process.run(KILLED, conftest, tmp_path / "run")
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    whole, problems = complete_checkpoints(tmp_path / "run" / "checkpoints")
    assert [path.name for path in whole] == ["checkpoint-7", "checkpoint-14"]
    assert problems == []

    resumed = tiny_trainer(**LONG)
    resumed.train_from(whole[-1])
    first, second = _losses(unbroken), _losses(resumed)
    assert list(second) == list(range(1, 30))
    for step in range(15, 30):
        assert second[step] == pytest.approx(first[step], abs=1e-5)
    for name, tensor in _weights(unbroken).items():
        torch.testing.assert_close(_weights(resumed)[name], tensor, atol=1e-5, rtol=0)
    assert resumed.state.best_global_step == unbroken.state.best_global_step
    assert resumed.state.best_metric == pytest.approx(unbroken.state.best_metric, abs=1e-5)


class CtrlC(TrainerCallback):
    """Presses Ctrl-C after an update."""

    def __init__(self, step: int, times: int = 1) -> None:
        self.step, self.times = step, times

    def on_step_begin(self, args, state, control, **_) -> None:
        if state.global_step + 1 == self.step:
            for _ in range(self.times):
                os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.slow
def test_ctrl_c_writes_a_checkpoint_that_is_not_averaged(tiny_trainer, tmp_path, caplog):
    """At update 17 of 29, with evaluations at 7, 14, 21, 28, 29."""
    settings = {**LONG, "training__average": 3, "training__keep_checkpoints": 1}
    unbroken = tiny_trainer(**settings, output=tmp_path / "unbroken")
    unbroken.train()
    interrupted = tiny_trainer(**settings)
    interrupted.add_callback(CtrlC(17))
    with pytest.raises(KeyboardInterrupt):
        interrupted.train_from(None)
    assert "interrupted: a checkpoint is written first; Ctrl-C again leaves without it" in caplog.text
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    folder = tmp_path / "run" / "checkpoints"
    assert _names(tmp_path) == {"checkpoint-7", "checkpoint-14", "checkpoint-17"}
    resumed = tiny_trainer(**settings)
    # The checkpoint would be nearer to the best one than those that are averaged.
    resumed.train_from(folder / "checkpoint-17")
    for name, tensor in _weights(unbroken).items():
        torch.testing.assert_close(_weights(resumed)[name], tensor, atol=1e-5, rtol=0)
    assert _names(tmp_path) == _names(tmp_path, "unbroken")
    shutil.copytree(folder / "checkpoint-29", folder / "checkpoint-27")
    chosen, report = resumed.choose_checkpoints()
    assert "checkpoint-27" not in [path.name for path in chosen]
    assert [evaluation["step"] for evaluation in report["evaluations"]] == [7, 14, 21, 28, 29]
    first, expected = (run["evaluations"][0]["loss"] for run in (report, unbroken.choose_checkpoints()[1]))
    assert first == pytest.approx(expected, abs=1e-5)


def test_a_second_ctrl_c_leaves_at_once(tiny_trainer, tmp_path):
    trainer = tiny_trainer()
    trainer.add_callback(CtrlC(7, times=2))
    with pytest.raises(KeyboardInterrupt):
        trainer.train_from(None)
    assert [path.name for path in (tmp_path / "run" / "checkpoints").iterdir()] == ["checkpoint-5"]


@pytest.mark.parametrize(
    ("keep", "average", "left"), [(5, 1, {15, 35}), (5, 3, {10, 15, 20, 25, 30, 35}), (0, 1, set())]
)
def test_at_the_end_stays_what_a_longer_run_reads(tiny_trainer, tmp_path, keep, average, left):
    bleus = iter([1.0, 1.0, 9.0, 1.0, 1.0, 1.0, 1.0])
    trainer = tiny_trainer(
        lambda: {"bleu": next(bleus)}, training__best_by="bleu", training__max_steps=35,
        training__average=average, training__keep_checkpoints=keep,
    )  # fmt: skip
    trainer.train()
    trainer.clear_checkpoints()
    assert _names(tmp_path) == {f"checkpoint-{step}" for step in left}


@pytest.mark.slow
@pytest.mark.parametrize("step", [7, 13])
def test_resumption_at_any_checkpoint(tiny_trainer, tmp_path, step):
    """In the middle of an epoch, and at the end of one (13 updates are the first epoch)."""
    settings = {"training__max_steps": 20, "training__eval_every": step}
    unbroken = tiny_trainer(**settings, output=tmp_path / "unbroken")
    unbroken.train()
    stopped = tiny_trainer(**{**settings, "training__max_steps": step})
    stopped.train()
    resumed = tiny_trainer(**settings)
    resumed.train_from(tmp_path / "run" / "checkpoints" / f"checkpoint-{step}")
    assert _losses(resumed) == pytest.approx(_losses(unbroken), abs=1e-5)


def test_a_finished_run_stays_as_it_is(tiny_trainer, tmp_path):
    trainer = tiny_trainer()
    trainer.train()
    again = tiny_trainer()
    again.train_from(tmp_path / "run" / "checkpoints" / "checkpoint-13")
    assert again.state.global_step == 13
    assert again.state.best_global_step == trainer.state.best_global_step


@pytest.mark.slow
def test_a_run_that_was_stopped_early_is_not_trained_on(tiny_trainer, tmp_path):
    bleus = iter([9.0, 1.0, 1.0])
    settings = {"training__best_by": "bleu", "training__max_steps": 35, "training__patience": 2}
    tiny_trainer(lambda: {"bleu": next(bleus)}, **settings).train()
    last = tmp_path / "run" / "checkpoints" / "checkpoint-15"
    again = tiny_trainer(lambda: pytest.fail("trained on"), **settings)
    again.train_from(last)
    assert (again.state.global_step, again.state.best_global_step) == (15, 5)
    more = tiny_trainer(
        lambda: {"bleu": 10.0}, **{**settings, "training__patience": 3, "training__max_steps": 20}
    )
    more.train_from(last)
    assert (more.state.global_step, more.state.best_global_step) == (20, 20)


@pytest.mark.slow
def test_baseline_and_infused_run_see_the_same_batches(tiny_trainer, tmp_path):
    baseline, infused = (
        _batches_of(tiny_trainer(infusion__kind=kind, output=tmp_path / kind, training__max_steps=29))
        for kind in ("none", "sum_then_concat")
    )
    assert len(baseline) >= 29
    assert baseline == infused


@pytest.mark.slow
def test_another_seed_sees_another_order_and_epochs_differ(tiny_trainer, tmp_path):
    trainers = [
        tiny_trainer(seed=seed, output=tmp_path / str(seed), training__max_steps=29) for seed in (1, 2)
    ]
    first, other = map(_batches_of, trainers)
    n_batches = len(trainers[0].batches)
    epochs = first[:n_batches], first[n_batches : 2 * n_batches], other[:n_batches]
    assert epochs[0] != epochs[2]
    assert epochs[0] != epochs[1]
    rows = [sorted(tuple(row[: row.index(2)]) for batch in epoch for row in batch) for epoch in epochs]
    assert rows[0] == rows[1] == rows[2]


def test_two_half_batches_accumulated_are_one_batch(tiny_trainer, tmp_path):
    """The loss is a mean over the pieces of the update, however they are dealt to batches."""
    settings = {"model__dropout": 0.0, "training__max_steps": 1, "training__eval_every": 1}
    settings |= {"training__max_grad_norm": 0.0, "model__attention_dropout": 0.0}
    whole = tiny_trainer(**settings, output=tmp_path / "whole")
    halves = tiny_trainer(**settings, training__accumulate=2, output=tmp_path / "halves")
    rows = list(range(17))

    class Batches(list):
        def set_epoch(self, epoch):
            pass

    # Halves of different size and length: a mean of two means would differ.
    for trainer, batches in ((whole, [rows]), (halves, [rows[:5], rows[5:]])):
        trainer.batches = Batches(batches)
        trainer.train()
    assert _losses(halves)[1] == pytest.approx(_losses(whole)[1], abs=1e-4)
    states = [list(trainer.optimizer.optimizer.state.values()) for trainer in (whole, halves)]
    for state, other in zip(*states, strict=True):
        for slot in ("exp_avg", "exp_avg_sq"):  # Adam's first moments are the gradient and its square, scaled
            torch.testing.assert_close(state[slot], other[slot], atol=1e-7, rtol=1e-4)


def test_dev_loss_is_a_mean_over_pieces_without_smoothing(tiny_trainer):
    trainer = tiny_trainer(training__label_smoothing=0.1)
    model, pairs = trainer.model.eval(), trainer.eval_dataset
    total = 0.0
    for row in range(len(pairs)):
        source = pairs.src.pieces[pairs.src.splits[row] : pairs.src.splits[row + 1]]
        target = pairs.tgt.pieces[pairs.tgt.splits[row] : pairs.tgt.splits[row + 1]]
        labels = torch.tensor(target, dtype=torch.long)[None]
        logits = model(input_ids=torch.tensor(source, dtype=torch.long)[None], labels=labels).logits
        total -= float(logits.detach().log_softmax(-1).gather(-1, labels[..., None]).sum())
    metrics = trainer.evaluate()
    assert metrics["eval_loss"] == pytest.approx(total / len(pairs.tgt.pieces), rel=1e-5)


@pytest.mark.parametrize(
    ("bleus", "best", "last"),
    [([5.0, 9.0, 7.0, 3.0, 9.5, 9.5, 1.0], 25, 35), ([9.0, 1.0, 1.0, 1.0, 9.9, 9.9, 9.9], 5, 20)],
)
def test_the_best_checkpoint_by_bleu_and_early_stopping(tiny_trainer, tmp_path, bleus, best, last):
    scores = iter(bleus)
    trainer = tiny_trainer(
        lambda: {"bleu": next(scores)}, training__best_by="bleu", training__max_steps=35, training__patience=3,
        training__keep_checkpoints=1,
    )  # fmt: skip
    trainer.train()
    assert (trainer.state.best_global_step, trainer.state.global_step) == (best, last)
    assert _names(tmp_path) == {f"checkpoint-{best}", f"checkpoint-{last}"}


def test_a_checkpoint_holds_no_pickle_and_names_no_file_it_lacks(tiny_trainer, tmp_path):
    tiny_trainer(training__max_steps=5).train()
    folder = tmp_path / "run" / "checkpoints" / "checkpoint-5"
    files = sorted(path for path in folder.iterdir() if path.is_file())
    assert {path.suffix for path in files} == {".json", ".safetensors"}
    assert not any(path.read_bytes().startswith(PICKLE_MAGICS) for path in files)
    listed = json.loads((folder / "manifest.json").read_text())["files"]
    assert {*listed, "manifest.json"} == {path.name for path in files}
    assert [path.name for path in folder.parent.iterdir()] == ["checkpoint-5"]


def test_noam_counts_updates_from_one(tiny_trainer):
    trainer = tiny_trainer(training__schedule="noam", training__learning_rate=1.0, training__warmup_steps=4)
    trainer.train()
    rates = [log["learning_rate"] for log in trainer.state.log_history if "learning_rate" in log]
    # d_model 12. The rate that update n uses, as logged after it.
    assert rates[:3] == pytest.approx([12**-0.5 * step * 4**-1.5 for step in (1, 2, 3)])
    assert rates[8] == pytest.approx(12**-0.5 * 9**-0.5)


def test_a_process_works_on_one_gpu_where_there_are_more(tiny_recipe, caplog):
    """Else transformers copies the network to all of them, by threads."""
    arguments = training_arguments(tiny_recipe())
    assert arguments.n_gpu == 0  # on a processor
    arguments._n_gpu = 2
    assert one_device(arguments).n_gpu == 1
    assert "training on one of 2 GPUs" in caplog.text


def test_processes_do_not_wait_for_the_labels_of_a_parse(tiny_recipe):
    """Batches without the task give their table no gradient; two processes then stopped, without a word."""
    assert training_arguments(tiny_recipe(parse_task={"share": 0.5})).ddp_find_unused_parameters
    assert not training_arguments(tiny_recipe()).ddp_find_unused_parameters


def test_precision_is_the_recipes_not_the_launchers(tiny_trainer, monkeypatch, caplog):
    """`accelerate launch --mixed_precision` passes its own on in the environment."""
    monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", "bf16")
    process_team()
    assert tiny_trainer().accelerator.mixed_precision == "no"
    assert "the launcher's mixed precision is ignored: training.precision decides" in caplog.messages
    monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", "no")
    caplog.clear()
    process_team()
    assert not caplog.messages


def test_a_resumed_run_logs_as_often_as_it_is_told_now(tiny_trainer, tmp_path):
    tiny_trainer(training__max_steps=5).train()
    resumed = tiny_trainer(training__max_steps=10, training__log_every=4)
    resumed.train_from(tmp_path / "run" / "checkpoints" / "checkpoint-5")
    assert list(_losses(resumed)) == [1, 2, 3, 4, 5, 8, 10]


def test_weights_of_another_model_are_refused(tiny_trainer, tmp_path):
    tiny_trainer(training__max_steps=5).train()
    folder = tmp_path / "run" / "checkpoints" / "checkpoint-5"
    for shape in ({"model__d_ff": 19}, {"model__encoder_layers": 2}):
        with pytest.raises(CheckpointError, match="checkpoint-5: expected weights of this model, got other"):
            tiny_trainer(**shape).train_from(folder)


def test_a_damaged_checkpoint_does_not_outlive_the_whole_ones_before_it(tiny_trainer, tmp_path):
    tiny_trainer(training__max_steps=10).train()
    folder = tmp_path / "run" / "checkpoints"
    shutil.copytree(folder / "checkpoint-10", folder / "checkpoint-30")
    (folder / "checkpoint-30" / "model.safetensors").write_bytes(b"cut off")
    again = tiny_trainer(training__max_steps=20, training__keep_checkpoints=1)
    again.train_from(folder / "checkpoint-10")
    assert _names(tmp_path) == {f"checkpoint-{again.state.best_global_step}", "checkpoint-20"}
    assert complete_checkpoints(folder)[1] == []


def test_no_damaged_checkpoint_outlives_a_run_that_begins_again(tiny_trainer, tmp_path):
    folder = tmp_path / "run" / "checkpoints"
    (folder / "checkpoint-30").mkdir(parents=True)
    tiny_trainer(training__max_steps=5, training__keep_checkpoints=1).train_from(None)
    assert [path.name for path in folder.iterdir()] == ["checkpoint-5"]


def test_activation_checkpointing_of_a_recipe_runs_layers_again_and_changes_no_loss(tiny_trainer):
    losses, calls = {}, {}
    for setting in ("false", "true"):
        trainer = tiny_trainer(training__max_steps=3, training__activation_checkpointing=setting)
        counted = calls[setting] = []
        trainer.model.encoder.layers[0].feed_forward.register_forward_hook(
            lambda module, *_, counted=counted: counted.append(module.training)
        )
        trainer.train()
        losses[setting] = _losses(trainer)
    assert calls["true"].count(True) == 2 * calls["false"].count(True) > 0
    assert losses["true"] == pytest.approx(losses["false"], rel=1e-5)


def test_tags_between_words_leave_the_batches_as_they_are(tiny_recipe, tiny_trainer):
    recipe, plain = tiny_recipe(), tiny_trainer()
    pairs = plain.train_dataset
    tags = np.random.default_rng(1).integers(0, 4, len(pairs))
    splits = np.concatenate([[0], np.cumsum(pairs.src.lengths + tags)])
    tagged = EncodedText(
        np.ones(splits[-1], np.int32), splits, np.zeros((splits[-1], 0), np.int32), n_tags=tags
    )
    other = SyntaxTrainer(plain.model, recipe, EncodedPairs(tagged, pairs.tgt), pairs, 0, None)
    assert [list(batch) for batch in other.batches] == [list(batch) for batch in plain.batches]


def test_a_loss_on_dev_that_is_not_finite_ends_the_run(tiny_trainer, tmp_path):
    """No checkpoint is written of it; nothing is translated for its BLEU."""
    trainer = tiny_trainer(
        lambda: pytest.fail("translated dev"), training__learning_rate="1.0e+30", training__best_by="bleu"
    )
    message = (
        r"^training\.learning_rate: expected one that keeps the dev loss finite, got nan at update 5 with"
    )
    with pytest.raises(ConfigError, match=message):
        trainer.train()
    assert complete_checkpoints(tmp_path / "run" / "checkpoints") == ([], [])


@pytest.mark.slow
def test_workers_make_the_same_run(tiny_trainer, tmp_path):
    """Also with what is drawn, or cut into pieces, anew in each epoch."""
    losses, settings = [], {"infusion__kind": "sum_then_concat"}
    for n_workers in (0, 2):
        trainer = tiny_trainer(output=tmp_path / str(n_workers), training__workers=n_workers, **settings)
        pairs = trainer.train_dataset
        pairs.again = lambda epoch, src=pairs.src, tgt=pairs.tgt: EncodedPairs(
            dataclasses.replace(src, pieces=4 + (src.pieces + epoch) % 10), tgt
        )
        trainer.train_from(None)
        losses.append(_losses(trainer))
    assert len(losses[0]) == 13
    assert losses[0] == losses[1]


COMPILED = """
import json, safetensors, sys
from pathlib import Path
sys.path[:0] = sys.argv[1].split(":")
import torch
from conftest import make_recipe, make_trainer
graphs, compile = [], torch.nn.Module.compile
torch.nn.Module.compile = lambda module, **options: compile(module, backend=by, **options)
def by(graph, inputs):
    graphs.append(graph)
    return graph.forward
def trained(name, compiled, checkpoint=None, **settings):
    settings |= {"training__compile": compiled, "model__dropout": 0.0, "model__attention_dropout": 0.0}
    trainer = make_trainer(make_recipe(Path(sys.argv[2], name), **settings))
    trainer.train_from(checkpoint)
    assert trainer.model._compiled_call_impl is None, "used as it is from now on"
    losses = [log["loss"] for log in trainer.state.log_history if "loss" in log]
    return losses, [log["eval_loss"] for log in trainer.state.log_history if "eval_loss" in log]
found = {"eager": trained("eager", False), "n_eager": len(graphs), "compiled": trained("compiled", True)}
first = Path(sys.argv[2], "compiled", "checkpoints", "checkpoint-10")
found |= {"n_compiled": len(graphs), "names": list(safetensors.safe_open(first / "model.safetensors", "pt").keys())}
print(json.dumps(found | {"resumed": trained("compiled", True, first)}))
"""


@pytest.mark.slow
def test_a_compiled_run_is_the_same_run_and_resumes(tmp_path):
    """By a compiler that leaves operations as they are; shapes are checked outside of graphs, so not here."""
    here = Path(__file__).parent
    ran = own_process.run(COMPILED, f"{here}:{here.parents[2]}", tmp_path)
    assert ran.returncode == 0, ran.stderr[-3000:]
    report = json.loads(ran.stdout.splitlines()[-1])
    assert report["n_eager"] == 0
    assert report["n_compiled"] == 2, "one for batches with padding, one without; none for dev"
    assert not [name for name in report["names"] if "_orig_mod" in name]
    for name in ("compiled", "resumed"):
        for losses, expected in zip(report[name], report["eager"], strict=True):
            assert losses == pytest.approx(expected, abs=1e-5)


def test_recorded_steps_train_as_others_do(tiny_trainer, monkeypatch):
    """Batches are rounded up; without dropout, losses and weights are those of a run without graphs."""
    runs = {}
    for is_recorded in (False, True):
        trainer = tiny_trainer(training__cuda_graphs=is_recorded, model__dropout=0, training__max_steps=29)
        if is_recorded:
            recorder = Recorder.of_trainer(trainer, monkeypatch)
        trainer.train()
        weights = _weights(trainer)  # those of keys have no gradient but rounding, which Adam enlarges
        runs[is_recorded] = _losses(trainer), {name: weights[name] for name in weights if "key" not in name}
    assert list(runs[True][0]) == list(range(1, 30))
    torch.testing.assert_close(runs[True], runs[False], rtol=1e-3, atol=1e-4)
    assert {"run", "recorded", "replayed"} == {*recorder.calls}
    sides = [inputs[name] for inputs in recorder.inputs for name in ("input_ids", "labels")]
    assert all(size % 8 == 0 for tensor in sides for size in tensor.shape)


def test_a_step_that_cannot_be_recorded_loses_no_counts(tiny_trainer, monkeypatch):
    """Recording fails in the middle of the step: what was counted before is still there."""
    trainer = tiny_trainer(training__cuda_graphs=True)
    book, trainer.current_gradient_accumulation_steps = trainer.tallies, 1

    def fails(*_, **__):
        raise RuntimeError("stream is capturing")

    monkeypatch.setattr(trainer, "compute_loss", fails)
    with pytest.raises(RuntimeError, match="capturing"):
        trainer.training_step(trainer.model, {"labels": torch.zeros(1, 1)})
    assert trainer.tallies is book
