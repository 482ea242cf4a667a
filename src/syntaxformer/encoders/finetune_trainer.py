"""`FinetuneTrainer`: Hugging Face's Trainer for classification and regression of sentences.

It adds to `RunTrainer`: batches of similar length, a separate learning rate for infusion parameters, and the
official metrics on dev after each epoch.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, Sampler
from transformers import PreTrainedModel, Trainer

from syntaxformer.encoders.finetune_config import FinetuneConfig
from syntaxformer.encoders.pretrained import new_parameters
from syntaxformer.nn import Dropout
from syntaxformer.runs.trainer import RunTrainer, linear, run_arguments

POOL_BATCHES = 50
"""Number of batches that are sorted by length together: enough to save padding, few enough to vary epochs."""


class FinetuneTrainer(RunTrainer, Trainer):
    """Fine-tunes a classifier or regressor.

    Args:
        config: Settings of the run; parameters of an infusion may have a learning rate of their own.
        learning_rate: Learning rate of the checkpoint's parameters.
        lengths: Number of pieces of each training example.
        collate: Makes a batch from examples; a `SyntaxCollator`, if syntax is dropped.
        evaluate_dev: Returns the metrics on dev; the one called "score" chooses the best epoch.
        folder: Folder of the checkpoints.
        class_weights: For each class the number by which the loss of its rows is multiplied; None for 1.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        config: FinetuneConfig,
        learning_rate: float,
        train: Sequence[Any],
        lengths: Sequence[int],
        collate: Any,
        evaluate_dev: Callable[[PreTrainedModel], dict[str, float]],
        folder: Path,
        class_weights: Sequence[float] | None = None,
    ) -> None:
        self.infusion_names, self.evaluate_dev = {*new_parameters(model)}, evaluate_dev
        training, seed = config.training, config.seed
        batches = LengthBatches(lengths, training.batch_size, seed)
        n_updates = len(batches) * training.epochs
        arguments = run_arguments(
            training,
            folder,
            seed,
            num_train_epochs=training.epochs,
            per_device_train_batch_size=training.batch_size,
            learning_rate=learning_rate,
            eval_strategy="epoch",
            save_strategy="epoch",
            metric_for_best_model="score",
            greater_is_better=True,
            accelerator_config={"split_batches": True, "non_blocking": torch.cuda.is_available()},
            # The loss of a process is a mean over its examples, so losses are averaged and not summed.
            average_tokens_across_devices=False,
        )
        Dropout.take_over(model)
        weights = None if class_weights is None else torch.tensor(class_weights, device=arguments.device)
        self.class_weights = weights
        super().__init__(
            *(model, arguments, training, batches, linear(n_updates, training.warmup_frac), n_updates),
            curves=folder.parents[1] / "logs" / folder.name,
            data_collator=collate.aligned(arguments.device),
            train_dataset=train,
            eval_dataset=[],
        )

    def get_train_dataloader(self) -> DataLoader[Any]:
        """Batches of similar length; the processes share each batch."""
        return self.accelerator.prepare(super().get_train_dataloader())

    def group_of(self, name: str, parameter: torch.nn.Parameter) -> tuple[int, float]:
        """Return the parameter group and the learning rate; infusion parameters may have their own rate."""
        is_new, own = name in self.infusion_names, self.config.infusion_learning_rate
        rate = own if is_new and own is not None else self.args.learning_rate
        return 2 * is_new + (parameter.dim() > 1), rate

    def compute_loss(
        self, model: Any, inputs: dict[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        """The model's loss, in which the cross-entropy of a row is multiplied by its class's weight.

        The mean is over rows, so that it does not depend on how processes divide a batch.
        """
        loss, outputs = super().compute_loss(model, inputs, True, num_items_in_batch)
        if self.class_weights is not None:
            labels = inputs["labels"]
            of_rows = cross_entropy(outputs.logits.float(), labels, reduction="none")
            loss = loss + ((self.class_weights[labels] - 1) * of_rows).mean()
        return (loss, outputs) if return_outputs else loss

    def dev_scores(self) -> dict[str, float]:
        """Metrics on dev, and how long the epoch before them took."""
        clock, processor = self.batches.began
        seconds = {
            "epoch_seconds": time.monotonic() - clock,
            "epoch_processor_seconds": time.process_time() - processor,
        }
        return {**self.evaluate_dev(self.model), **seconds}


class LengthBatches(Sampler[list[int]]):
    """Lists of row numbers, each of `batch_size` rows except the last.

    Rows are shuffled, sorted by length within pools of 50 batches and cut into batches, which are shuffled.
    The order depends on (seed, epoch) alone: two runs with the same seed see the same batches, whatever
    random numbers the model draws. `lengths` are the numbers of pieces of the rows.
    """

    def __init__(self, lengths: Sequence[int] | np.ndarray, batch_size: int, seed: int) -> None:
        self.lengths = np.asarray(lengths)
        self.batch_size, self.seed, self.epoch, self.began = batch_size, seed, 0, (0.0, 0.0)

    def __len__(self) -> int:
        return -(-len(self.lengths) // self.batch_size)

    def set_epoch(self, epoch: int) -> None:
        """Choose the order of an epoch, as it begins; the trainer calls it."""
        self.epoch, self.began = epoch, (time.monotonic(), time.process_time())

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
