"""The common part of both products' trainers: settings, callbacks, schedules, evaluations, checkpoints.

Each product's trainer inherits from `RunTrainer` and then `transformers.Trainer`, and adds its batches, its
loss and its scores on dev.
"""

from __future__ import annotations

import logging
import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from operator import le
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import gather_object
from rich.progress import Progress
from torch import Tensor
from torch.distributed.fsdp import fully_shard
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.data import DataLoader
from transformers import PreTrainedModel, TrainerCallback, TrainerState, TrainingArguments
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.trainer_callback import PrinterCallback

from syntaxformer.base.errors import CheckpointError, ConfigError
from syntaxformer.base.files import atomic_folder, verify_manifest
from syntaxformer.base.progress import terminal_bar
from syntaxformer.nn.transformer import DecoderLayer, EncoderLayer
from syntaxformer.runs.checkpoints import (
    WEIGHTS,
    around,
    average_weights,
    complete_checkpoints,
    load_optimizer,
    load_random_state,
    load_tensors,
    load_weights,
    numbered_checkpoints,
    optimizer_state,
    random_state,
    save_optimizer,
    save_random_states,
    seed_process,
    step_of,
    whole_weights,
)
from syntaxformer.runs.config import RunTraining
from syntaxformer.runs.processes import one_device, pick_precision
from syntaxformer.runs.step_graphs import StepGraphs, Tallies

_log = logging.getLogger("syntaxformer.training")


def run_arguments(config: RunTraining, folder: Path, seed: int, **more: Any) -> TrainingArguments:
    """The trainer settings of a run; `more` are those that a product adds."""
    arguments = TrainingArguments(
        output_dir=str(folder),
        max_grad_norm=config.max_grad_norm,
        bf16=pick_precision(config.precision) == "bf16",
        activation_checkpointing=config.activation_checkpointing,
        activation_checkpointing_kwargs={"use_reentrant": False},
        use_cpu=not torch.cuda.is_available(),
        seed=seed,
        logging_steps=config.log_every,
        logging_nan_inf_filter=False,
        report_to=[],
        disable_tqdm=True,
        dataloader_pin_memory=torch.cuda.is_available(),
        remove_unused_columns=False,
        **more,
    )
    return one_device(arguments)


class RunTrainer:
    """Trains, logs, and saves and loads the state of a run, without pickle.

    Args:
        model: The network, which computes its own loss.
        arguments: The result of `run_arguments`.
        batches: Lists of row numbers; `set_epoch` chooses their order.
        rate: Number of finished updates → factor of each parameter's learning rate.
        curves: Folder for TensorBoard.
        best_by: The key of `JUDGED_BY` for `config.patience`.
        options: Further arguments of `Trainer`.

    Raises:
        ConfigError: Steps are to be recorded, but the model drops layers by chance.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        arguments: TrainingArguments,
        config: Any,
        batches: Any,
        rate: Callable[[int], float],
        n_updates: int,
        curves: Path,
        best_by: str = "score",
        **options: Any,
    ) -> None:
        keys = "encoder_layerdrop", "decoder_layerdrop"
        drops = [key for key in keys if getattr(model.config, key, 0)]
        if config.cuda_graphs and drops:  # a recorded step would leave out the same layers each time
            raise ConfigError(
                f"training.cuda_graphs: expected false with {drops[0]} in the model's config.json, by which "
                "layers are left out by chance, got true. Set it to false."
            )
        self.config, self.batches, self.rate, self.n_updates = config, batches, rate, n_updates
        self.run_callback = RunCallback(
            batches, n_updates, config.patience, best_by, curves if config.tensorboard else None
        )
        super().__init__(model, arguments, callbacks=[self.run_callback], **options)
        if config.sharded:
            shard(self)
        self.remove_callback(PrinterCallback)
        self.tallies = TallyBook()
        self.graphs: StepGraphs | None = None
        if config.cuda_graphs:
            self.graphs = StepGraphs([weight for weight in self.model.parameters() if weight.requires_grad])

    def get_train_dataloader(self) -> DataLoader[Any]:
        """The batches of this run, collated; workers begin anew in each epoch, to know its number."""
        if self.config.workers:  # in forked processes it would warn of threads, and use none
            os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
        return DataLoader(
            self.train_dataset,
            batch_sampler=self.batches,
            collate_fn=self.data_collator,
            pin_memory=self.args.dataloader_pin_memory,
            num_workers=self.config.workers,
        )

    def _prepare_input(self, data: Any) -> Any:
        """Copy a batch to the device, without waiting where its memory is pinned."""
        if isinstance(data, Tensor):
            return data.to(self.args.device, non_blocking=data.is_pinned())
        return super()._prepare_input(data)  # type: ignore[misc]

    def group_of(self, name: str, parameter: torch.nn.Parameter) -> tuple[int, float]:
        """The index of a parameter's group in the optimizer, and its learning rate."""
        return int(parameter.dim() <= 1), self.args.learning_rate

    def create_optimizer(self, model: Any = None) -> torch.optim.Optimizer:
        """Fused AdamW with decoupled weight decay on matrices; no bias decays, whatever its shape."""
        if self.optimizer is None:
            groups: dict[tuple[int, float, float], list[torch.nn.Parameter]] = {}
            for name, parameter in (model or self.model).named_parameters():
                if parameter.requires_grad:
                    is_bare = parameter.dim() < 2 or "bias" in name
                    decay = 0.0 if is_bare else self.config.weight_decay
                    groups.setdefault((*self.group_of(name, parameter), decay), []).append(parameter)
            self.optimizer = torch.optim.AdamW(
                [{"params": groups[key], "lr": key[1], "weight_decay": key[2]} for key in sorted(groups)],
                lr=self.args.learning_rate,
                betas=(self.args.adam_beta1, self.args.adam_beta2),
                eps=self.args.adam_epsilon,
                fused=True,
            )
        return self.optimizer

    def create_scheduler(self, num_training_steps: int, optimizer: Any = None) -> LambdaLR:
        """The schedule of the run, which has the same shape for all learning rates."""
        if self.lr_scheduler is None:
            self.lr_scheduler = LambdaLR(optimizer or self.optimizer, self.rate)
            self._created_lr_scheduler = True
        return self.lr_scheduler

    def training_step(self, model: Any, inputs: dict[str, Any], num_items_in_batch: Any = None) -> Tensor:
        """Gradients of a batch, by a graph if graphs are recorded; its loss."""
        if self.graphs is None:
            return super().training_step(model, inputs, num_items_in_batch)  # type: ignore[misc]
        inputs, n_items = self._prepare_inputs(inputs), "num_items_in_batch"  # type: ignore[attr-defined]
        if num_items_in_batch is not None:
            inputs = {**inputs, n_items: torch.as_tensor(num_items_in_batch, device=self.args.device)}
        accumulate = self.current_gradient_accumulation_steps  # type: ignore[attr-defined]

        def step(tensors: dict[str, Tensor]) -> tuple[Tensor, Tallies]:
            of_run, self.tallies = self.tallies, TallyBook()
            items = tensors.pop(n_items, None)
            try:
                loss = super(RunTrainer, self).training_step(model, tensors, items)  # type: ignore[misc]
                return loss, self.tallies.sums
            finally:  # also where a step cannot be recorded
                self.tallies = of_run

        loss, tallies = self.graphs.run(step, inputs, accumulate)
        self.tallies.add(tallies)
        return loss

    def floating_point_ops(self, inputs: dict[str, Any]) -> int:
        """Return 0: the estimate would cost more than it is worth."""
        return 0

    def dev_scores(self) -> dict[str, float]:
        """Scores of the model on dev."""
        raise NotImplementedError

    def evaluate(
        self, eval_dataset: Any = None, ignore_keys: Any = None, metric_key_prefix: str = "eval"
    ) -> dict[str, float]:
        """Score the development set and log the scores; see `dev_scores`."""
        start = time.monotonic()
        with torch.compiler.set_stance("force_eager"):  # graphs of its own would cost more than they gain
            scores = self.dev_scores()
        metrics = {f"{metric_key_prefix}_{name}": value for name, value in scores.items()}
        metrics[f"{metric_key_prefix}_runtime"] = time.monotonic() - start
        self.log(metrics)
        self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, metrics)
        return metrics

    def train_from(self, checkpoint: Path | None) -> None:
        """Train to the end, from the beginning or a checkpoint; a finished run is not trained further.

        Later checkpoints are deleted, because resuming found them damaged.

        Raises:
            CheckpointError: The checkpoint is incomplete or belongs to another model.
            DataError: The disk is full.
        """
        if checkpoint is not None:
            verify_manifest(checkpoint)
        self.accelerator.wait_for_everyone()  # each process has chosen where to continue
        for path in numbered_checkpoints(Path(self.args.output_dir)) if self.args.should_save else ():
            if checkpoint is None or step_of(path) > step_of(checkpoint):
                _log.info("deleting %s, because training continues before it", path)
                shutil.rmtree(path, ignore_errors=True)
        if checkpoint is None:
            self.train()
            return
        state = TrainerState.load_from_json(str(checkpoint / "trainer_state.json"))
        if state.global_step >= self.n_updates or self.run_callback.is_out_of_patience(state):
            self.state = state
        else:
            self.train(resume_from_checkpoint=str(checkpoint))

    def train(self, *arguments: Any, **options: Any) -> Any:
        """Train as transformers does; callbacks end their work also where training breaks off.

        If it is wanted, calls of the model in training are compiled; the model, with its names, stays itself.
        Beside bf16, products that stay fp32 use TF32 where a GPU has it, until training ends.
        """
        products = torch.backends.cuda.matmul
        before = products.fp32_precision
        if self.args.bf16 and self.args.device.type == "cuda":
            products.fp32_precision = "tf32"
        if self.config.compile:
            self.model.compile(dynamic=True)  # batches differ in both sizes
        try:
            return super().train(*arguments, **options)  # type: ignore[misc]
        except BaseException:
            self.callback_handler.on_train_end(self.args, self.state, self.control)
            raise
        finally:
            self.model._compiled_call_impl = None
            products.fp32_precision = before

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        """Write a checkpoint, then delete those that are no longer needed."""
        folder = Path(self.args.output_dir)
        random_states = gather_object([random_state()])
        weights, optimizer = whole_weights(self.model), optimizer_state(self.optimizer)
        if self.args.should_save:
            if self.state.best_global_step:
                self.state.best_model_checkpoint = str(folder / f"checkpoint-{self.state.best_global_step}")
            with atomic_folder(folder / f"checkpoint-{self.state.global_step}") as partial_folder:
                self.model.save_pretrained(partial_folder, state_dict=weights)
                self.save_beside(partial_folder)
                save_optimizer(partial_folder, optimizer, self.lr_scheduler)
                save_random_states(partial_folder, random_states)
                self.state.save_to_json(str(partial_folder / "trainer_state.json"))
            best = folder / f"checkpoint-{self.state.best_global_step}"
            self.keep_only([best, *self.retained_checkpoints(numbered_checkpoints(folder))])
        self.accelerator.wait_for_everyone()

    def save_beside(self, folder: Path) -> None:
        """Write what loading a checkpoint needs beside the network, into its folder."""

    def keep_only(self, checkpoints: Iterable[Path]) -> None:
        """Delete all other checkpoints."""
        for old in {*numbered_checkpoints(Path(self.args.output_dir))}.difference(checkpoints):
            shutil.rmtree(old, ignore_errors=True)

    def retained_checkpoints(self, numbered: list[Path], n_last: int = 1) -> list[Path]:
        """The newest, the last ones, as many as are kept or averaged, and those around the best one."""
        evaluated, average = evaluations(self.state.log_history), self.config.average
        judged = [path for path in numbered if step_of(path) in evaluated]
        near = around(judged, self.state.best_global_step, average)
        return [*numbered[-1:], *judged[-max(n_last, average) :], *near]

    def best_checkpoints(self) -> tuple[Path, list[Path], dict[str, float]]:
        """After training, the best checkpoint, those whose mean becomes the model, and its scores on dev.

        If `config.average` is over 1, the mean around the best checkpoint is scored, and taken if it is no
        worse. Every process must call this.

        Raises:
            CheckpointError: No checkpoint is complete.
            ConfigError: The loss of the mean is not finite.
        """
        best_by, history, folder = self.run_callback.best_by, self.state.log_history, self.args.output_dir
        evaluated, step = evaluations(history), self.state.best_global_step  # not the one of an interruption
        complete = [path for path in complete_checkpoints(Path(folder))[0] if step_of(path) in evaluated]
        if not complete:
            raise CheckpointError(f"{folder}: expected a checkpoint after training, found none.")
        best = next((path for path in complete if step_of(path) == step), complete[-1])
        if step_of(best) != step:
            _log.warning("the best checkpoint is lost; the last one, %s, is used", best)
        near = around(complete, step_of(best), self.config.average)
        chosen, scores = [best], scores_at(step_of(best), history)
        if len(near) > 1:
            load_weights(self.model, average_weights(near), best)
            mean, name = self.dev_scores(), JUDGED_BY[best_by][0]
            shown = ", ".join(path.name for path in near), name, mean[name], best.name, scores[name]
            _log.info("on dev, the mean of %s has %s %.5g and %s alone %.5g: the better is taken", *shown)
            if rank(mean, best_by) >= rank(scores, best_by):
                chosen, scores = near, mean
        return best, chosen, scores

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        folder = Path(resume_from_checkpoint)
        load_weights(model or self.model, load_tensors(folder / WEIGHTS), folder)

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        if checkpoint is not None:
            load_optimizer(Path(checkpoint), self.optimizer, self.lr_scheduler)

    def _load_rng_state(self, checkpoint: str | None) -> None:
        if checkpoint is not None:
            load_random_state(Path(checkpoint), self.args.process_index, self.args.seed)


class RunCallback(TrainerCallback):
    """What a run does beside its updates: data order, log lines, curves, early stopping, Ctrl-C.

    At Ctrl-C it writes a checkpoint after the update and leaves; a second Ctrl-C leaves at once. Several
    processes leave at once, since they would not stop after the same update.

    `patience` is the number of evaluations without a better score, by this key of `JUDGED_BY`, after which
    training stops; None for any number. Without `curves` there is no TensorBoard.
    """

    def __init__(
        self, batches: Any, max_steps: int, patience: int | None, best_by: str, curves: Path | None
    ) -> None:
        self.batches, self.max_steps, self.patience, self.best_by = batches, max_steps, patience, best_by
        self.curves, self._writer = curves, None
        self._start, self._first_step = 0.0, 0
        self._bar: Progress | None = None
        self._is_interrupted = False

    def is_out_of_patience(self, state: TrainerState) -> bool:
        """Whether as many evaluations as are allowed brought no better score."""
        return self.patience is not None and n_without_gain(state.log_history, self.best_by) >= self.patience

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Seed the processes of a new run, start clock and bar, and listen for Ctrl-C if nobody else does."""
        state.logging_steps = args.logging_steps  # which a checkpoint may change
        if state.global_step == 0 and args.process_index:
            seed_process(args.seed, args.process_index)
        self._start, self._first_step = time.monotonic(), state.global_step
        if sys.stderr.isatty() and state.is_world_process_zero and _log.isEnabledFor(logging.INFO):
            self._bar = terminal_bar("updates")
            self._bar.add_task("training", total=self.max_steps, completed=state.global_step)
            self._bar.start()
        is_free = signal.getsignal(signal.SIGINT) is signal.default_int_handler
        if is_free and args.world_size == 1 and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, self._interrupt)

    def _interrupt(self, *_: Any) -> None:
        self._is_interrupted = True
        signal.signal(signal.SIGINT, signal.default_int_handler)
        _log.warning("interrupted: a checkpoint is written first; Ctrl-C again leaves without it")

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Choose the batches of the epoch, the same however often training was interrupted."""
        self.batches.set_epoch(int((state.epoch or 0) + 1e-9))

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Log after the last update, whatever its number; ask for a checkpoint after Ctrl-C."""
        control.should_log |= state.global_step >= state.max_steps
        control.should_save |= self._is_interrupted
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], completed=state.global_step)

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Stop early if patience ran out, as every evaluation is followed by a save; leave after Ctrl-C."""
        if self.is_out_of_patience(state):
            names = " or ".join(JUDGED_BY[self.best_by])
            _log.info("stopping early: no better %s in %d evaluations", names, self.patience)
            control.should_training_stop = True
        if self._is_interrupted:
            raise KeyboardInterrupt

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
        """Write a line with speed and remaining time, and every number for TensorBoard."""
        logs, step = logs or {}, state.global_step
        if not state.is_world_process_zero:
            return
        if "train_runtime" not in logs:
            shown = "  ".join(
                f"{name} {value:.5g}"
                for name, value in logs.items()
                if name in _SHOWN or name.endswith("_accuracy")
            )
            seconds = max(time.monotonic() - self._start, 1e-9)
            rate = (step - self._first_step) / seconds
            left = timedelta(seconds=int((self.max_steps - step) / rate if rate else 0))
            line = f"step {step}/{self.max_steps}  {shown}  {rate:.2f} updates/s  {left} left"
            if self._bar is None:
                _log.info("%s", line)
            else:
                self._bar.console.print(line, highlight=False)
        if self.curves is not None:
            from torch.utils.tensorboard import SummaryWriter

            self._writer = self._writer or SummaryWriter(str(self.curves))
            for name, value in logs.items():
                self._writer.add_scalar(name, value, step)

    def on_train_end(self, *_: Any, **__: Any) -> None:
        """Remove the bar, listen for Ctrl-C no longer, and last, as a disk may be full, write the curves."""
        if self._bar is not None:
            self._bar.stop()
        if signal.getsignal(signal.SIGINT) == self._interrupt:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        if self._writer is not None:
            self._writer.close()


_SHOWN = ("loss", "learning_rate", "grad_norm", "eval_loss", "eval_bleu", "eval_n_loops", "eval_score")

LAYERS = (EncoderLayer, DecoderLayer, GradientCheckpointingLayer)
"""Layers that are gathered from shards one by one; the rest of a model is gathered as a whole."""


def shard(trainer: Any) -> None:
    """Shard the model of a trainer before its optimizer is made; with one process this does nothing.

    Source: Zhao et al. (2023), "PyTorch FSDP".
    """
    if trainer.args.world_size == 1:
        return
    model: PreTrainedModel = trainer.model
    for module in list(model.modules()):
        if isinstance(module, LAYERS):
            fully_shard(module)
    fully_shard(model)
    # With this flag the Trainer neither wraps the model nor averages its gradients, as the shards do so. Set
    # earlier, the flag would make the Trainer refuse to write checkpoints, which we write ourselves.
    trainer.is_distributed_loading_by_transformers = True


# Evaluations are compared only by the trainer's log, so that resumed runs judge as uninterrupted ones do.

JUDGED_BY = {"loss": ("loss",), "bleu": ("bleu",), "both": ("bleu", "loss"), "score": ("score",)}
"""`training.best_by` → scores by which evaluations are compared; the next score breaks ties."""


class TallyBook:
    """Sums of right answers and of all answers for each accuracy; they stay on the device until `take`."""

    def __init__(self) -> None:
        self.sums: dict[str, tuple[Any, Any]] = {}

    def add(self, tallies: Mapping[str, tuple[Tensor, Tensor]] | None) -> None:
        """Add the answers of one batch."""
        for name, (right, total) in (tallies or {}).items():
            old_right, old_total = self.sums.get(name, (0, 0))
            self.sums[name] = (old_right + right, old_total + total)

    def take(self) -> dict[str, float]:
        """Return the accuracies since the last call and reset the sums."""
        rates = {name: int(right) / max(int(total), 1) for name, (right, total) in self.sums.items()}
        self.sums.clear()
        return rates


def best_step(history: Iterable[Mapping[str, Any]], best_by: str) -> int:
    """The update of the best evaluation in a trainer's log, or the first of several equal ones."""
    ranks = {step: rank(log, best_by, "eval_") for step, log in evaluations(history).items()}
    return max(ranks, key=lambda step: ranks[step])


def evaluations(history: Iterable[Mapping[str, Any]]) -> dict[int, Mapping[str, Any]]:
    """Update → the log of the evaluation after it, in order."""
    return {log["step"]: log for log in history if {"eval_loss", "eval_score"} & log.keys()}


def n_without_gain(history: Iterable[Mapping[str, Any]], best_by: str) -> int:
    """Number of evaluations since the last one that improved on the best value of any score."""
    since, best = 0, ()
    measured = f"eval_{JUDGED_BY[best_by][0]}"
    for values in (rank(log, best_by, "eval_") for log in history if measured in log):
        since = since + 1 if best and all(map(le, values, best)) else 0
        best = tuple(map(max, values, best or values))
    return since


def rank(scores: Mapping[str, float], best_by: str, prefix: str = "") -> tuple[float, ...]:
    """The scores by which an evaluation is compared, as a tuple; larger is better."""
    return tuple((-1 if name == "loss" else 1) * scores[prefix + name] for name in JUDGED_BY[best_by])


def scores_at(step: int, history: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """Loss, accuracies and BLEU of the evaluation after an update."""
    logged = {key: value for log in history if log["step"] == step for key, value in log.items()}
    return {key[5:]: value for key, value in logged.items() if key[:5] == "eval_" and key != "eval_runtime"}


# Learning-rate schedules, as factors of the configured rate.


def noam(step: int, warmup_steps: int, d_model: int) -> float:
    """d_model^-0.5 · min(step^-0.5, step · warmup^-1.5).

    Source: Vaswani et al. (2017), eq. 3; used by Sundararaman et al. (2019).
    """
    step = max(step, 1)
    rise = step * warmup_steps**-1.5 if warmup_steps else step**-0.5
    return d_model**-0.5 * min(step**-0.5, rise)


def inverse_sqrt(step: int, warmup_steps: int, d_model: int) -> float:
    """Rise linearly to 1 over the warm-up, then √(warmup / step); `d_model` is not used."""
    warmup_steps = max(warmup_steps, 1)
    return step / warmup_steps if step < warmup_steps else (warmup_steps / step) ** 0.5


def constant(step: int, warmup_steps: int, d_model: int) -> float:
    """Rise linearly to 1 over the warm-up, then stay at 1; `d_model` is not used."""
    return min(1.0, step / warmup_steps) if warmup_steps else 1.0


def linear(n_updates: int, warmup_frac: float) -> Callable[[int], float]:
    """Factor of the rate by number of updates: it rises from 0 to 1 over the warm-up, then falls to 0.

    Source: Devlin et al. (2019), appendix A.2.
    """
    n_warm = int(n_updates * warmup_frac)

    def rate(n_done: int) -> float:
        if n_done < n_warm:
            return n_done / n_warm
        return max(0.0, (n_updates - n_done) / max(1, n_updates - n_warm))

    return rate


def exponential(n_updates: int, warmup_frac: float, decay: float, interval: int) -> Callable[[int], float]:
    """Rise as `linear` does; every `interval` updates multiply the rate by `decay` (Bai et al. 2021, A.2)."""
    n_warm = int(n_updates * warmup_frac)
    return lambda n_done: n_done / n_warm if n_done < n_warm else decay ** (n_done // interval)


SCHEDULES: dict[str, Callable[[int, int, int], float]] = {
    "noam": noam,
    "inverse_sqrt": inverse_sqrt,
    "constant": constant,
}
