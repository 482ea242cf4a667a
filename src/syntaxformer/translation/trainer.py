"""`SyntaxTrainer`: Hugging Face's Trainer for a translator.

It adds to `RunTrainer`: batches by a budget of pieces, a dev loss that is averaged over pieces and not over
batches, early stopping, and the choice of the checkpoints that become the model.
"""

from __future__ import annotations

import logging
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate.utils.memory import clear_device_cache, should_reduce_batch_size
from torch import Tensor
from transformers import PreTrainedModel, Trainer, TrainingArguments

from syntaxformer.base.errors import ConfigError
from syntaxformer.nn.kernels.cross_entropy import IGNORED_LABEL
from syntaxformer.runs.checkpoints import numbered_checkpoints, step_of
from syntaxformer.runs.trainer import (
    JUDGED_BY,
    SCHEDULES,
    RunTrainer,
    TallyBook,
    best_step,
    evaluations,
    run_arguments,
    scores_at,
)
from syntaxformer.syntax.inputs import EpochDraws
from syntaxformer.translation.batches import EncodedPairs, TokenBudgetBatches, TranslationCollator
from syntaxformer.translation.checkpoint import host_output
from syntaxformer.translation.model import OF_INFUSION, SyntaxTransformer
from syntaxformer.translation.recipe import Recipe

_log = logging.getLogger("syntaxformer.training")


def training_arguments(recipe: Recipe) -> TrainingArguments:
    """The trainer settings for a recipe; the processes share the batches of each update."""
    config = recipe.training
    arguments = run_arguments(
        config,
        recipe.output / "checkpoints",
        recipe.seed,
        max_steps=config.max_steps,
        per_device_train_batch_size=1,
        learning_rate=config.learning_rate,
        adam_beta1=config.adam_beta1,
        adam_beta2=config.adam_beta2,
        adam_epsilon=config.adam_epsilon,
        eval_strategy="steps",
        eval_steps=config.eval_every,
        save_strategy="steps",
        save_steps=config.eval_every,
        # LISA's head has no gradient when gold governors replace its attention, and labels of a parse have
        # none in batches without the task: processes would wait for each other for ever.
        ddp_find_unused_parameters=recipe.infusion.lisa is not None or recipe.parse_task is not None,
    )
    arguments.gradient_accumulation_steps = max(1, config.accumulate // arguments.world_size)
    return arguments


class SyntaxTrainer(RunTrainer, Trainer):
    """Trains a translator on encoded pairs."""

    def __init__(
        self,
        model: PreTrainedModel,
        recipe: Recipe,
        train_pairs: EncodedPairs,
        dev_pairs: EncodedPairs,
        pad_id: int,
        dev_bleu: Callable[[], dict[str, float]] | None = None,
    ) -> None:
        config, arguments = recipe.training, training_arguments(recipe)
        self.pad_id, self.dev_bleu = pad_id, dev_bleu
        self.is_hosted = not isinstance(model, SyntaxTransformer)
        self.languages = list(recipe.data.directions)
        self._most_rows = sys.maxsize  # pairs that fit in memory
        self._of_update: list[tuple[dict[str, Any], Any]] = []  # batches of the update that is being made
        train_pairs.set_epoch(0)  # pieces of BPE-dropout are more, and the budget counts them
        batches = TokenBudgetBatches(
            train_pairs.src.text_lengths,  # without tags, so that batches equal those of a run without tags
            train_pairs.tgt.lengths,
            config.max_batch_tokens,
            recipe.seed,
            per_update=config.accumulate,
            rank=arguments.process_index,  # the sampler gives each process its share
            world=arguments.world_size,
            at_epoch=train_pairs.set_epoch,
            shares=train_pairs.shares,
        )
        share = 1.0 if recipe.parse_task is None else recipe.parse_task.share
        formula, warmup, d_model = SCHEDULES[config.schedule], config.warmup_steps, model.config.d_model
        super().__init__(
            *(model, arguments, config, batches),
            rate=lambda done: formula(done + 1, warmup, d_model),  # the papers count updates from 1
            n_updates=config.max_steps,
            curves=recipe.output / "logs",
            best_by=config.best_by,
            data_collator=TranslationCollator(
                *(train_pairs, pad_id, share, EpochDraws(recipe.seed, batches), config.cuda_graphs)
            ),
            train_dataset=train_pairs,
            eval_dataset=dev_pairs,
        )
        self.model_accepts_loss_kwargs = True  # also of a pretrained translator, whose loss is made here

    def group_of(self, name: str, parameter: torch.nn.Parameter) -> tuple[int, float]:
        """Parameters that syntax adds may have a rate of their own."""
        (group, rate), own_rate = super().group_of(name, parameter), self.config.infusion_learning_rate
        is_new = OF_INFUSION.match(name) or "infusion" in name.split(".")
        return (group + 2, own_rate) if is_new and own_rate is not None else (group, rate)

    def compute_loss(
        self, model: Any, inputs: dict[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        """The model's loss; answers to auxiliary tasks are counted on the way."""
        if self.is_hosted:
            smoothing = self.config.label_smoothing if model.training else 0.0
            outputs = host_output(model, inputs, smoothing, num_items_in_batch)
            loss: Any = outputs.loss
            loss = loss * self.args.world_size  # whose gradients are averaged, as the base class does
        else:
            loss, outputs = super().compute_loss(model, inputs, True, num_items_in_batch)
        self.tallies.add(outputs.tallies)
        return (loss, outputs) if return_outputs else loss

    def training_step(self, model: Any, inputs: dict[str, Any], num_items_in_batch: Any = None) -> Tensor:
        """Gradients of a batch. One that does not fit in memory is halved, until it fits.

        The update stays the same but for dropout and for the mean of LISA's loss. Gradients that its batches
        have added so far may be half added, so they are all made anew.
        """
        if len(self._of_update) == self.args.gradient_accumulation_steps:
            self._of_update.clear()
        self._of_update.append((inputs, num_items_in_batch))
        try:
            return self._in_parts(model, inputs, num_items_in_batch)
        except RuntimeError as error:
            n_rows = min(len(inputs["labels"]), self._most_rows)
            if not should_reduce_batch_size(error) or n_rows < 2 or self.args.world_size > 1:
                raise
        clear_device_cache(garbage_collection=True)
        model.zero_grad()
        self._most_rows = -(-n_rows // 2)
        _log.warning(
            "a batch of %d pairs does not fit in memory: batches are divided into parts of at most %d pairs, "
            "which is slower. Lower training.max_batch_tokens and raise training.accumulate.",
            n_rows,
            self._most_rows,
        )
        again, loss = self._of_update.copy(), torch.zeros(())
        self._of_update.clear()
        for other in again:
            loss = self.training_step(model, *other)
        return loss

    def _in_parts(self, model: Any, inputs: dict[str, Any], n_items: Any) -> Tensor:
        """Gradients of a batch, in as many parts as fit in memory; the sum of their losses."""
        labels, most = inputs["labels"], self._most_rows
        if len(labels) <= most:
            return super().training_step(model, inputs, n_items)
        n_items = (labels != IGNORED_LABEL).sum() if n_items is None else n_items
        starts = range(0, len(labels), most)
        parts = ({name: tensor[start : start + most] for name, tensor in inputs.items()} for start in starts)
        losses = [super(SyntaxTrainer, self).training_step(model, rows, n_items) for rows in parts]
        return torch.stack(losses).sum()

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Log the loss together with the accuracies since the last log."""
        super().log({**logs, **self.tallies.take()} if "loss" in logs else logs, start_time)

    @torch.no_grad()
    def dev_scores(self) -> dict[str, float]:
        """Loss per target piece on the development set, without smoothing, and BLEU if the recipe needs it.

        Every process computes the same scores on the whole set, with the current weights.

        Raises:
            ConfigError: The loss is not finite, because training diverged.
        """
        pairs: Any = self.eval_dataset
        self.model.eval()
        collate = TranslationCollator(pairs, self.pad_id)
        longest = int(pairs.tgt.lengths.max(initial=1))
        budget = max(self.config.max_batch_tokens, longest)
        n_languages, tallies, totals = len(self.languages), TallyBook(), list[tuple[float, int]]()
        groups = [np.flatnonzero(pairs.corpora == number) for number in range(n_languages)]
        for group in groups or [np.arange(len(pairs))]:
            total, n_pieces, lengths = 0.0, 0, (pairs.src.lengths[group], pairs.tgt.lengths[group])
            for places in TokenBudgetBatches(*lengths, budget, shuffle=False):
                batch = self._prepare_inputs(collate(rows := group[places].tolist()))
                with self.compute_loss_context_manager():
                    output = (
                        host_output(self.model, batch, n_items=1)
                        if self.is_hosted
                        else self.model(**batch, num_items_in_batch=1)
                    )
                total += float(output.loss)
                tallies.add(output.tallies)
                n_pieces += int(pairs.tgt.lengths[rows].sum())
            totals.append((total, n_pieces))
        loss = sum(total for total, _ in totals) / max(sum(n for _, n in totals), 1)
        if not math.isfinite(loss):
            raise ConfigError(
                f"training.learning_rate: expected one that keeps the dev loss finite, got {loss} at "
                f"update {self.state.global_step} with {self.config.learning_rate:g}. Lower it."
            )
        of_languages = zip(self.languages, totals, strict=False)  # one total, if there are no languages
        scores = {f"loss_{language}": total / max(n, 1) for language, (total, n) in of_languages}
        scores = {"loss": loss, **scores, **tallies.take()}
        if self.dev_bleu is not None and "bleu" in JUDGED_BY[self.config.best_by]:
            scores |= self.dev_bleu()
        return scores

    def _determine_best_metric(self, metrics: dict[str, float], trial: Any) -> bool:
        """Keep the best evaluation so far, by the recipe's `best_by`."""
        best = self.state.best_global_step = best_step(self.state.log_history, self.config.best_by)
        self.state.best_metric = scores_at(best, self.state.log_history)[JUDGED_BY[self.config.best_by][0]]
        return best == self.state.global_step

    def retained_checkpoints(self, numbered: list[Path], n_last: int | None = None) -> list[Path]:
        """As in the base class; the recipe says how many are kept."""
        return super().retained_checkpoints(numbered, n_last or self.config.keep_checkpoints)

    def clear_checkpoints(self) -> None:
        """At the end of a run, delete what resuming it for more updates would not read; with 0 kept, all."""
        numbered = numbered_checkpoints(Path(self.args.output_dir))
        self.keep_only(self.retained_checkpoints(numbered, 1) if self.config.keep_checkpoints else ())

    def choose_checkpoints(self) -> tuple[list[Path], dict[str, Any]]:
        """What `best_checkpoints` chooses, and for `run.json` its dev scores and those of all evaluations."""
        best, chosen, scores = self.best_checkpoints()
        dev = {f"dev_{name}": value for name, value in scores.items()}
        steps = {"best_step": step_of(best), "last_step": self.state.global_step}
        history = self.state.log_history
        every = [{"step": step, **scores_at(step, history)} for step in evaluations(history)]
        return chosen, {**dev, **steps, "evaluations": every}
