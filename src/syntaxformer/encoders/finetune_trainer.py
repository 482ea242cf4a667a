"""`FinetuneTrainer`: Hugging Face's Trainer for classification and regression of sentences.

What differs from the base class: batches of like length, a rate of its own for infusion parameters, the
official metrics on dev after each epoch, and checkpoints without pickle.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.data import DataLoader, Sampler
from transformers import (
    PreTrainedModel,
    Trainer,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
)
from transformers.trainer_callback import PrinterCallback, ProgressCallback

from syntaxformer.base.errors import ConfigError
from syntaxformer.encoders.finetune_config import FinetuneTraining
from syntaxformer.nn import Dropout
from syntaxformer.runs.callbacks import Beginning, Curves, ProgressLines
from syntaxformer.runs.checkpoints import SafeCheckpoints, shard
from syntaxformer.runs.processes import one_device, pick_precision
from syntaxformer.runs.schedules import linear

__all__ = ["FinetuneTrainer"]

Evaluate = Callable[[PreTrainedModel], dict[str, float]]

POOL_BATCHES = 50
"""Batches sorted by length together: enough for little padding, few enough to keep epochs different."""


class FinetuneTrainer(SafeCheckpoints, Trainer):
    """Fine-tunes a classifier or regressor.

    Args:
        model: The network; it computes its loss.
        config: Settings.
        learning_rate: Of the checkpoint's parameters.
        infusion_names: Names of the parameters that have `config.infusion_learning_rate`.
        train: Training examples.
        lengths: Pieces of each.
        collate: Examples to a batch.
        evaluate_dev: Gives the metrics on dev; its "score" chooses the best epoch.
        folder: Where checkpoints go.
        seed: Of dropout and data order.

    Raises:
        ConfigError: The processes cannot share a batch evenly.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        config: FinetuneTraining,
        learning_rate: float,
        infusion_names: Sequence[str],
        train: Sequence[Any],
        lengths: Sequence[int],
        collate: Callable[[list[Any]], dict[str, torch.Tensor]],
        evaluate_dev: Evaluate,
        folder: Path,
        seed: int,
    ) -> None:
        self.config, self.infusion_names, self.evaluate_dev = config, frozenset(infusion_names), evaluate_dev
        self.batches = LengthBatches(lengths, config.batch_size, seed)
        self.epochs = _Epochs(self.batches)
        arguments = one_device(_arguments(config, learning_rate, folder, seed))
        if config.batch_size % arguments.world_size:
            raise ConfigError(
                f"training.batch_size: expected a multiple of the {arguments.world_size} processes, "
                f"got {config.batch_size}."
            )
        Dropout.take_over(model)
        n_updates = len(self.batches) * config.epochs
        super().__init__(
            model,
            arguments,
            data_collator=collate,
            train_dataset=train,
            eval_dataset=[],
            callbacks=[Beginning(), self.epochs, ProgressLines(n_updates)],
        )
        if config.sharded:
            shard(self)
        if config.tensorboard:
            self.add_callback(Curves(folder.parents[1] / "logs" / folder.name))
        self.remove_callback(PrinterCallback)
        self.remove_callback(ProgressCallback)

    def get_train_dataloader(self) -> DataLoader[Any]:
        """Batches of like length."""
        loader = DataLoader(
            self.train_dataset,  # type: ignore[arg-type]
            batch_sampler=self.batches,
            collate_fn=self.data_collator,
            pin_memory=self.args.dataloader_pin_memory,
        )
        return self.accelerator.prepare(loader)

    def create_optimizer(self, model: Any = None) -> torch.optim.Optimizer:
        """AdamW: decay on matrices only; infusion parameters with their own rate."""
        if self.optimizer is None:
            rates = (self.args.learning_rate, self.config.infusion_learning_rate)
            groups: dict[tuple[bool, bool], list[torch.nn.Parameter]] = {}
            for name, parameter in (model or self.model).named_parameters():
                if parameter.requires_grad:
                    key = (name in self.infusion_names, parameter.dim() > 1)
                    groups.setdefault(key, []).append(parameter)
            self.optimizer = torch.optim.AdamW(
                [
                    {
                        "params": groups[new, matrix],
                        "lr": rates[new],
                        "weight_decay": self.config.weight_decay if matrix else 0.0,
                    }
                    for new, matrix in sorted(groups)
                ],
                lr=rates[0],
                fused=True,
            )
        return self.optimizer

    def create_scheduler(self, num_training_steps: int, optimizer: Any = None) -> LambdaLR:
        """Linear warm-up, linear decay to nothing, the same shape for all rates."""
        if self.lr_scheduler is None:
            rate = linear(num_training_steps, self.config.warmup_frac)
            self.lr_scheduler = LambdaLR(optimizer or self.optimizer, rate)
            self._created_lr_scheduler = True
        return self.lr_scheduler  # type: ignore[return-value]

    def floating_point_ops(self, inputs: dict[str, Any]) -> int:
        """Not counted: the estimate costs more than it tells."""
        return 0

    def evaluate(
        self, eval_dataset: Any = None, ignore_keys: Any = None, metric_key_prefix: str = "eval"
    ) -> dict[str, float]:
        """Metrics on dev."""
        start = time.monotonic()
        found = self.evaluate_dev(self.model)
        metrics = {f"{metric_key_prefix}_{name}": value for name, value in found.items()}
        metrics[f"{metric_key_prefix}_runtime"] = time.monotonic() - start
        self.log({**metrics, **self.epochs.seconds})
        self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, metrics)
        return metrics


class LengthBatches(Sampler[list[int]]):
    """Lists of row numbers, `batch_size` each but for the last.

    Rows are shuffled, sorted by length within pools of 50 batches, cut, and the batches shuffled. The order
    comes from (seed, epoch) alone: two runs with one seed see the same batches, whatever the model draws.

    Args:
        lengths: Pieces of each row.
        batch_size: Rows of a batch.
        seed: Seed of the order.
    """

    def __init__(self, lengths: Sequence[int] | np.ndarray, batch_size: int, seed: int) -> None:
        self.lengths = np.asarray(lengths)
        self.batch_size, self.seed, self.epoch = batch_size, seed, 0

    def __len__(self) -> int:
        return -(-len(self.lengths) // self.batch_size)

    def set_epoch(self, epoch: int) -> None:
        """Choose the order of an epoch; the trainer calls it."""
        self.epoch = epoch

    def __iter__(self) -> Iterator[list[int]]:
        random = np.random.default_rng((self.seed, self.epoch))
        rows = random.permutation(len(self.lengths))
        pool = self.batch_size * POOL_BATCHES
        batches: list[list[int]] = []
        for start in range(0, len(rows), pool):
            part = rows[start : start + pool]
            part = part[np.argsort(-self.lengths[part], kind="stable")].tolist()
            batches += [part[at : at + self.batch_size] for at in range(0, len(part), self.batch_size)]
        for place in random.permutation(len(batches)).tolist():
            yield batches[place]


class _Epochs(TrainerCallback):
    """Sets the order of each epoch's data and takes its time."""

    def __init__(self, batches: LengthBatches) -> None:
        self.batches = batches
        self.seconds: dict[str, float] = {}
        self._start = (0.0, 0.0)

    def on_epoch_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        """Batches of epoch n are the same however often training was interrupted."""
        self.batches.set_epoch(round(state.epoch or 0))
        self._start = (time.monotonic(), time.process_time())

    def on_epoch_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        """Stop the clock before evaluation."""
        clock, processor = self._start
        self.seconds = {
            "epoch_seconds": time.monotonic() - clock,
            "epoch_processor_seconds": time.process_time() - processor,
        }


def _arguments(config: FinetuneTraining, learning_rate: float, folder: Path, seed: int) -> TrainingArguments:
    return TrainingArguments(
        output_dir=str(folder),
        num_train_epochs=config.epochs,
        per_device_train_batch_size=config.batch_size,
        learning_rate=learning_rate,
        max_grad_norm=config.max_grad_norm,
        bf16=pick_precision(config.precision) == "bf16",
        activation_checkpointing=config.activation_checkpointing,
        activation_checkpointing_kwargs={"use_reentrant": False},
        use_cpu=not torch.cuda.is_available(),
        seed=seed,
        eval_strategy="epoch",
        save_strategy="epoch",
        metric_for_best_model="score",
        greater_is_better=True,
        logging_steps=config.log_every,
        logging_nan_inf_filter=False,
        report_to=[],
        disable_tqdm=True,
        dataloader_pin_memory=torch.cuda.is_available(),
        accelerator_config={"split_batches": True},
        # Losses are means over a process's examples: those of the processes are averaged, not summed.
        average_tokens_across_devices=False,
        remove_unused_columns=False,
    )
