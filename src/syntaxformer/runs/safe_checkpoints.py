"""Checkpoints without pickle for any of Hugging Face's trainers: a mixin that stands before `Trainer`.

A checkpoint is written whole or not at all, with a manifest; an interrupted run that resumes from it goes on
as if it had not stopped.
"""

from __future__ import annotations

import logging
import shutil
from pathlib import Path
from typing import Any

from accelerate.utils import gather_object
from transformers import TrainerState

from syntaxformer.base.files import atomic_folder, verify_manifest
from syntaxformer.runs.checkpoints import (
    WEIGHTS,
    load_optimizer,
    load_random_state,
    load_tensors,
    load_weights,
    numbered_checkpoints,
    optimizer_state,
    random_state,
    save_optimizer,
    save_random_states,
    step_of,
)
from syntaxformer.runs.sharding import whole_weights

__all__ = ["SafeCheckpoints"]

_log = logging.getLogger("syntaxformer.training")


class SafeCheckpoints:
    """How a trainer saves and loads its state."""

    args: Any
    state: Any
    model: Any
    optimizer: Any
    lr_scheduler: Any
    accelerator: Any
    train: Any

    def train_from(self, checkpoint: Path | None) -> None:
        """Train to the end, from the beginning or a checkpoint; a run that was at its end stays as it is.

        Later checkpoints are deleted: whoever resumes has found them damaged.

        Raises:
            CheckpointError: The checkpoint is incomplete or belongs to another model.
            DataError: The disk is full.
        """
        if checkpoint is not None:
            verify_manifest(checkpoint)
        self._delete_later_than(checkpoint)
        if checkpoint is None:
            self.train()
            return
        state = TrainerState.load_from_json(str(checkpoint / "trainer_state.json"))
        if self._is_finished(state):
            self.state = state
        else:
            self.train(resume_from_checkpoint=str(checkpoint))

    def _delete_later_than(self, checkpoint: Path | None) -> None:
        """Delete what would count as newer than the checkpoints that this run is about to write."""
        self.accelerator.wait_for_everyone()  # each process has chosen where to go on
        if not self.args.should_save:
            return
        for path in numbered_checkpoints(Path(self.args.output_dir)):
            if checkpoint is None or step_of(path) > step_of(checkpoint):
                _log.info("deleting %s: training goes on before it", path)
                shutil.rmtree(path, ignore_errors=True)

    def _is_finished(self, state: TrainerState) -> bool:
        """Whether nothing is left to train."""
        return state.global_step >= state.max_steps

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        """Write a checkpoint, then delete the ones no longer wanted."""
        folder = Path(self.args.output_dir)
        random_states = gather_object([random_state()])
        weights, optimizer = whole_weights(self.model), optimizer_state(self.optimizer)
        if self.args.should_save:
            if self.state.best_global_step:
                self.state.best_model_checkpoint = str(folder / f"checkpoint-{self.state.best_global_step}")
            with atomic_folder(folder / f"checkpoint-{self.state.global_step}") as partial_folder:
                self._save(str(partial_folder), weights)
                save_optimizer(partial_folder, optimizer, self.lr_scheduler)
                save_random_states(partial_folder, random_states)
                self.state.save_to_json(str(partial_folder / "trainer_state.json"))
            numbered = numbered_checkpoints(folder)
            kept = {path.name for path in self._wanted_checkpoints(numbered)}
            for old in numbered:
                if old.name not in kept | {f"checkpoint-{self.state.best_global_step}"}:
                    shutil.rmtree(old, ignore_errors=True)
        self.accelerator.wait_for_everyone()

    def _wanted_checkpoints(self, numbered: list[Path]) -> list[Path]:
        """Those that are kept beside the best one: the last."""
        return numbered[-1:]

    def _save(self, output_dir: str | None = None, state_dict: Any = None) -> None:
        """Weights and config only: no pickled arguments."""
        self.model.save_pretrained(output_dir or self.args.output_dir, state_dict=state_dict)

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        folder = Path(resume_from_checkpoint)
        verify_manifest(folder)
        load_weights(model or self.model, load_tensors(folder / WEIGHTS), folder)

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        if checkpoint is not None:
            load_optimizer(Path(checkpoint), self.optimizer, self.lr_scheduler)

    def _load_rng_state(self, checkpoint: str | None) -> None:
        if checkpoint is not None:
            load_random_state(Path(checkpoint), self.args.process_index, self.args.seed)
