"""`SyntaxTrainer`: Hugging Face's Trainer with token-budget batches and checkpoints without pickle.

What differs from the base class, and only that: where batches come from, how the loss on dev is averaged
(over pieces, not over batches), the schedule, and what a checkpoint consists of.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.data import DataLoader
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
from syntaxformer.runs.callbacks import Beginning, Curves, ProgressLines
from syntaxformer.runs.checkpoints import (
    SafeCheckpoints,
    around,
    average_weights,
    best_and_near,
    load_weights,
    shard,
    step_of,
)
from syntaxformer.runs.processes import one_device, pick_precision
from syntaxformer.runs.schedules import SCHEDULES
from syntaxformer.runs.tallies import JUDGED_BY, TallyBook, best_step, n_without_gain, rank, scores_at
from syntaxformer.translation.batches import EncodedPairs, TokenBudgetBatches, TranslationCollator
from syntaxformer.translation.recipe import Recipe, TrainingConfig

__all__ = ["SyntaxTrainer", "training_arguments"]

_log = logging.getLogger("syntaxformer.training")


def training_arguments(recipe: Recipe) -> TrainingArguments:
    """The base class's settings for a recipe; the batches of an update are shared among the processes."""
    config = recipe.training
    arguments = TrainingArguments(
        output_dir=str(recipe.output / "checkpoints"),
        max_steps=config.max_steps,
        per_device_train_batch_size=1,
        max_grad_norm=config.max_grad_norm,
        bf16=pick_precision(config.precision) == "bf16",
        activation_checkpointing=config.activation_checkpointing,
        activation_checkpointing_kwargs={"use_reentrant": False},
        use_cpu=not torch.cuda.is_available(),
        seed=recipe.seed,
        eval_strategy="steps",
        eval_steps=config.eval_every,
        save_strategy="steps",
        save_steps=config.eval_every,
        logging_steps=config.log_every,
        logging_nan_inf_filter=False,
        report_to=[],
        disable_tqdm=True,
        dataloader_pin_memory=torch.cuda.is_available(),
        remove_unused_columns=False,
        # Given gold governors, LISA's head takes no part.
        ddp_find_unused_parameters=recipe.infusion.lisa is not None,
    )
    arguments.gradient_accumulation_steps = max(1, config.accumulate // arguments.world_size)
    return one_device(arguments)


class SyntaxTrainer(SafeCheckpoints, Trainer):
    """Trains a translator on encoded pairs.

    Args:
        model: The network.
        recipe: Settings.
        train_pairs: Training data.
        dev_pairs: Development data.
        pad_id: Piece id of padding.
        dev_bleu: Translates the development set and returns its BLEU; used where the recipe asks for it.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        recipe: Recipe,
        train_pairs: EncodedPairs,
        dev_pairs: EncodedPairs,
        pad_id: int,
        dev_bleu: Callable[[], float] | None = None,
    ) -> None:
        self.config: TrainingConfig = recipe.training
        self.pad_id = pad_id
        self.dev_bleu = dev_bleu
        self.tallies = TallyBook()
        arguments = training_arguments(recipe)
        self.batches = TokenBudgetBatches(
            train_pairs.src.text_lengths,  # not tags: batches are those of a run without them
            train_pairs.tgt.lengths,
            self.config.max_batch_tokens,
            recipe.seed,
            per_update=self.config.accumulate,
            rank=arguments.process_index,
            world=arguments.world_size,
        )
        super().__init__(
            model,
            arguments,
            data_collator=TranslationCollator(train_pairs, pad_id),
            train_dataset=train_pairs,
            eval_dataset=dev_pairs,
            callbacks=[Beginning(), Flow(self.batches, self.config), ProgressLines(self.config.max_steps)],
        )
        if self.config.sharded:
            shard(self)
        if self.config.tensorboard:
            self.add_callback(Curves(recipe.output / "logs"))
        self.remove_callback(PrinterCallback)
        self.remove_callback(ProgressCallback)

    def _is_finished(self, state: TrainerState) -> bool:
        return is_finished(state, self.config)

    def get_train_dataloader(self) -> DataLoader[Any]:
        """Batches by a budget of target pieces; the sampler itself gives each process its share."""
        return DataLoader(
            self.train_dataset,
            batch_sampler=self.batches,
            collate_fn=self.data_collator,
            pin_memory=self.args.dataloader_pin_memory,
        )

    def create_optimizer(self, model: Any = None) -> torch.optim.Optimizer:
        """Adam with decoupled weight decay on matrices; fused."""
        if self.optimizer is None:
            parameters = [p for p in (model or self.model).parameters() if p.requires_grad]
            groups = [
                {"params": [p for p in parameters if p.dim() > 1], "weight_decay": self.config.weight_decay},
                {"params": [p for p in parameters if p.dim() <= 1], "weight_decay": 0.0},
            ]
            betas = (self.config.adam_beta1, self.config.adam_beta2)
            rate, epsilon = self.config.learning_rate, self.config.adam_epsilon
            self.optimizer = torch.optim.AdamW(groups, lr=rate, betas=betas, eps=epsilon, fused=True)
        return self.optimizer

    def create_scheduler(self, num_training_steps: int, optimizer: Any = None) -> LambdaLR:
        """The recipe's schedule; update n uses step n + 1 of the formula, as the papers count from 1."""
        if self.lr_scheduler is None:
            formula, warmup = SCHEDULES[self.config.schedule], self.config.warmup_steps
            d_model = self.model.config.d_model
            rate = lambda done: formula(done + 1, warmup, d_model)  # noqa: E731
            self.lr_scheduler = LambdaLR(optimizer or self.optimizer, rate)
            self._created_lr_scheduler = True
        return self.lr_scheduler

    def compute_loss(
        self,
        model: Any,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: Any = None,
    ) -> Any:
        """The model's loss; answers to auxiliary tasks are counted on the way."""
        loss, outputs = super().compute_loss(model, inputs, True, num_items_in_batch)
        self.tallies.add(outputs.tallies)
        return (loss, outputs) if return_outputs else loss

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Beside the loss, the accuracies since the last log."""
        super().log({**logs, **self.tallies.take()} if "loss" in logs else logs, start_time)

    def floating_point_ops(self, inputs: dict[str, Any]) -> int:
        """Not counted: the estimate costs more than it tells."""
        return 0

    def evaluate(
        self, eval_dataset: Any = None, ignore_keys: Any = None, metric_key_prefix: str = "eval"
    ) -> dict[str, float]:
        """Score the development set, and log it; see `dev_scores`."""
        start = time.monotonic()
        found = self.dev_scores(eval_dataset)
        metrics = {f"{metric_key_prefix}_{name}": value for name, value in found.items()}
        metrics[f"{metric_key_prefix}_runtime"] = time.monotonic() - start
        self.log(metrics)
        self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, metrics)
        return metrics

    @torch.no_grad()
    def dev_scores(self, dev_pairs: Any = None) -> dict[str, float]:
        """Loss per target piece on the development set, without smoothing; BLEU where the recipe wants it.

        Every process computes the same, on the whole set, with the weights as they are.

        Raises:
            ConfigError: The loss is not finite: training went astray.
        """
        pairs: Any = dev_pairs or self.eval_dataset
        self.model.eval()
        collate = TranslationCollator(pairs, self.pad_id)
        longest = int(pairs.tgt.lengths.max(initial=1))
        budget = max(self.config.max_batch_tokens, longest)
        total, n_pieces, tallies = 0.0, 0, TallyBook()
        for rows in TokenBudgetBatches(pairs.src.lengths, pairs.tgt.lengths, budget, shuffle=False):
            batch = self._prepare_inputs(collate(rows))
            with self.compute_loss_context_manager():
                output = self.model(**batch, num_items_in_batch=1)
            total += float(output.loss)
            tallies.add(output.tallies)
            n_pieces += int(pairs.tgt.lengths[rows].sum())
        loss = total / max(n_pieces, 1)
        if not math.isfinite(loss):
            raise ConfigError(
                f"training.learning_rate: expected one that keeps the loss on dev finite, got {loss} at "
                f"update {self.state.global_step} with {self.config.learning_rate:g}. Lower it."
            )
        scores = {"loss": loss, **tallies.take()}
        if self.dev_bleu is not None and "bleu" in JUDGED_BY[self.config.best_by]:
            scores["bleu"] = self.dev_bleu()
        return scores

    def _determine_best_metric(self, metrics: dict[str, float], trial: Any) -> bool:
        """Keep the best evaluation so far, by all that the recipe judges by."""
        best = self.state.best_global_step = best_step(self.state.log_history, self.config.best_by)
        self.state.best_metric = scores_at(best, self.state.log_history)[JUDGED_BY[self.config.best_by][0]]
        return best == self.state.global_step

    def _wanted_checkpoints(self, numbered: list[Path]) -> list[Path]:
        """The last ones, as many as are kept or averaged, and those around the best one."""
        last = numbered[-max(self.config.keep_checkpoints, self.config.average) :]
        return last + around(numbered, self.state.best_global_step, self.config.average)

    def choose_checkpoints(self) -> tuple[list[Path], dict[str, Any]]:
        """The checkpoints whose mean becomes the model, and its scores on dev; every process must ask.

        Where the recipe averages, the mean around the best one is scored, and taken if it is no worse.

        Raises:
            CheckpointError: No checkpoint is whole.
            ConfigError: The loss of the mean is not finite.
        """
        folder, best_by = Path(self.args.output_dir), self.config.best_by
        best, near = best_and_near(folder, self.state.best_global_step, self.config.average)
        chosen, scores = [best], scores_at(step_of(best), self.state.log_history)
        if len(near) > 1:
            load_weights(self.model, average_weights(near), best)
            mean, name = self.dev_scores(), JUDGED_BY[best_by][0]
            shown = ", ".join(path.name for path in near), name, mean[name], best.name, scores[name]
            _log.info("on dev the mean of %s has %s %.5g, %s alone %.5g: the better one is taken", *shown)
            if rank(mean, best_by) >= rank(scores, best_by):
                chosen, scores = near, mean
        dev = {f"dev_{name}": value for name, value in scores.items()}
        return chosen, {**dev, "best_step": step_of(best), "last_step": self.state.global_step}


class Flow(TrainerCallback):
    """Sets the epoch of the data order, evaluates after the last update, stops when patience is used up."""

    def __init__(self, batches: TokenBudgetBatches, config: TrainingConfig) -> None:
        self.batches = batches
        self.config = config

    def on_epoch_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        """Batches of epoch n are the same however often training was interrupted."""
        self.batches.set_epoch(int(state.epoch or 0))

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        """The last update is evaluated and saved, whatever its number."""
        if state.global_step >= self.config.max_steps:
            control.should_evaluate = control.should_save = control.should_log = True

    def on_save(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        """Early stopping: each evaluation is followed by a checkpoint, so this is called once for each."""
        if is_out_of_patience(state, self.config):
            names = " or ".join(JUDGED_BY[self.config.best_by])
            _log.info("no better %s in %d evaluations: stopping", names, self.config.patience)
            control.should_training_stop = True


def is_out_of_patience(state: TrainerState, config: TrainingConfig) -> bool:
    """Whether so many evaluations as the recipe allows brought nothing better."""
    return (
        config.patience is not None and n_without_gain(state.log_history, config.best_by) >= config.patience
    )


def is_finished(state: TrainerState, config: TrainingConfig) -> bool:
    """Whether nothing is left to train."""
    return state.global_step >= config.max_steps or is_out_of_patience(state, config)
