"""Callbacks of every trainer: noise of each process, lines that say how it goes, TensorBoard."""

from __future__ import annotations

import logging
import sys
import time
from pathlib import Path
from typing import Any

from rich.progress import Progress
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments, set_seed

from syntaxformer.base.config import MAX_SEED
from syntaxformer.base.progress import terminal_bar

__all__ = ["Beginning", "Curves", "ProgressLines"]

_log = logging.getLogger("syntaxformer.training")


class Beginning(TrainerCallback):
    """What a process is before its first update: with noise of its own, and logging as it was told now."""

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        """A checkpoint has the random states of its processes, and the settings of an earlier command."""
        state.logging_steps = args.logging_steps
        if state.global_step == 0 and args.process_index:
            set_seed((args.seed + args.process_index) % (MAX_SEED + 1))


class ProgressLines(TrainerCallback):
    """A line for each log and evaluation, with updates a second and the time left; a bar on a terminal."""

    def __init__(self, max_steps: int) -> None:
        self.max_steps = max_steps
        self._start = 0.0
        self._first_step = 0
        self._bar: Progress | None = None

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        """Start the clock."""
        self._start = time.monotonic()
        self._first_step = state.global_step
        if sys.stderr.isatty() and state.is_world_process_zero and _log.isEnabledFor(logging.INFO):
            self._bar = terminal_bar("updates")
            self._bar.add_task("training", total=self.max_steps, completed=state.global_step)
            self._bar.start()

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        """Move the bar."""
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], completed=state.global_step)

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        """Take the bar away."""
        if self._bar is not None:
            self._bar.stop()

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, float] | None = None,
        **_: Any,
    ) -> None:
        """Write the line."""
        logs = logs or {}
        if not state.is_world_process_zero or "train_runtime" in logs:
            return
        shown = "  ".join(
            f"{name} {value:.5g}"
            for name, value in logs.items()
            if name in _SHOWN or name.endswith("_accuracy")
        )
        done = state.global_step - self._first_step
        rate = done / max(time.monotonic() - self._start, 1e-9)
        left = (self.max_steps - state.global_step) / rate if rate else 0.0
        line = (
            f"step {state.global_step}/{self.max_steps}  {shown}  {rate:.2f} updates/s  {_clock(left)} left"
        )
        if self._bar is None:
            _log.info("%s", line)
        else:
            self._bar.console.print(line, highlight=False)


class Curves(TrainerCallback):
    """Writes every logged number for TensorBoard.

    Args:
        folder: Where the event files go.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._writer: Any = None

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, float] | None = None,
        **_: Any,
    ) -> None:
        """Write the numbers of one log."""
        if not state.is_world_process_zero:
            return
        if self._writer is None:
            from torch.utils.tensorboard import SummaryWriter

            self._writer = SummaryWriter(str(self.folder))
        for name, value in (logs or {}).items():
            self._writer.add_scalar(name, value, state.global_step)

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        """Bring everything to the disk."""
        if self._writer is not None:
            self._writer.close()


_SHOWN = ("loss", "learning_rate", "grad_norm", "eval_loss", "eval_bleu", "eval_score")


def _clock(seconds: float) -> str:
    minutes, seconds = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}"
