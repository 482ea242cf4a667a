"""One process or several: who prepares and writes, who waits.

`accelerate launch` or `torchrun` starts the processes; everything here also holds where there is only one.
"""

from __future__ import annotations

import atexit
import functools
import logging
import os
from datetime import timedelta
from typing import TYPE_CHECKING

import torch
from accelerate import PartialState

from syntaxformer.base.errors import ConfigError

if TYPE_CHECKING:
    from transformers import TrainingArguments

__all__ = ["one_device", "process_team"]

_log = logging.getLogger("syntaxformer.training")

MIXED_PRECISION = "ACCELERATE_MIXED_PRECISION"
"""How `accelerate launch` passes on its own precision, which would stand where the recipe says fp32."""

FOREIGN = {"ACCELERATE_USE_FSDP": "--use_fsdp", "ACCELERATE_USE_DEEPSPEED": "--use_deepspeed"}
"""What `accelerate launch` sets → its option."""

PATIENCE = timedelta(days=7)
"""How long processes wait for one another: the first annotates and encodes for all, for hours where that is
much. One that dies is noticed at once, by its closed connection or by the launcher."""


def process_team() -> PartialState:
    """The processes of this run; only the first of them talks below a warning.

    Joining them opens the connection (gloo on processors, NCCL on GPUs), so this comes before any other work.
    What the launcher says about precision is left out: `training.precision` decides, and is stored.

    Raises:
        ConfigError: The launcher was told to shard: checkpoints would hold parts of the weights.
    """
    for variable, flag in FOREIGN.items():
        if os.environ.get(variable, "false").lower() == "true":
            raise ConfigError(
                f"launcher: expected plain processes, got {flag}. Leave it out, and set "
                "training.sharded=true to shard weights and optimizer."
            )
    if os.environ.pop(MIXED_PRECISION, "no").lower() != "no":
        _log.warning("the launcher's mixed precision is left out: training.precision decides")
    team = PartialState(cpu=not torch.cuda.is_available(), timeout=PATIENCE)
    _leave_at_exit()
    if not team.is_main_process:
        logging.getLogger("syntaxformer").setLevel(logging.WARNING)
    return team


def one_device(arguments: TrainingArguments) -> TrainingArguments:
    """Settings of a process that has one GPU to work on, also where there are more.

    transformers would copy the network to all of them by threads, `torch.nn.DataParallel`; copies do not see
    the relations of their batch.
    """
    if arguments.n_gpu > 1:
        _log.warning(
            "training on one of %d GPUs; `accelerate launch` uses them all, see docs/processes.md",
            arguments.n_gpu,
        )
        arguments._n_gpu = 1
    return arguments


@functools.cache
def _leave_at_exit() -> None:
    atexit.register(_leave)


def _leave() -> None:
    """Close gloo's connections before Python ends: its threads, still at work then, abort one process in ten.

    NCCL's stay open: to close them waits for the others, who may have died.
    """
    if torch.distributed.is_initialized() and torch.distributed.get_backend() == "gloo":
        torch.distributed.destroy_process_group()
