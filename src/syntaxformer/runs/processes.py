"""One process or several: who prepares and writes, who waits.

`accelerate launch` or `torchrun` starts the processes; everything here also holds where there is only one.
"""

from __future__ import annotations

import atexit
import functools
import logging
import os
import time
from datetime import timedelta
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from accelerate import PartialState
from accelerate.utils import broadcast_object_list

from syntaxformer.base.errors import ConfigError

if TYPE_CHECKING:
    from transformers import TrainingArguments

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
    atexit.unregister(_leave)  # once, before those that were there
    atexit.register(_leave)
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


def _leave() -> None:
    """Close gloo's connections before Python ends: its threads, still at work then, abort one process in ten.

    NCCL's stay open: to close them waits for the others, who may have died.
    """
    if torch.distributed.is_initialized() and torch.distributed.get_backend() == "gloo":
        torch.distributed.destroy_process_group()


_WORTH_IT = 1.5
"""How many times as fast as in fp32 products have to be: a step in bf16 also casts weights and states."""

_ROWS, _COLUMNS, _REPEATS = 512, 512, 20
"""Products of a few milliseconds: some of so many are whole also where another process shares the core."""


def pick_precision(wanted: str) -> str:
    """Resolve "auto": bf16 where the device multiplies matrices in it faster than in fp32, else fp32.

    A processor is measured once (a tenth of a second), by the first of several processes for all of them: the
    first call of each has to come at the same place.
    """
    return _fast_precision() if wanted == "auto" else wanted


@functools.cache
def _fast_precision() -> str:
    if torch.cuda.is_available():
        return "bf16" if torch.cuda.is_bf16_supported(including_emulation=False) else "fp32"
    team = process_team()
    choice = [""]
    if team.is_main_process:
        choice = ["bf16" if _has_bf16() and _bf16_gain() >= _WORTH_IT else "fp32"]
    if team.num_processes > 1:
        choice = broadcast_object_list(choice)
    return choice[0]


def _has_bf16() -> bool:
    capabilities = torch.cpu.get_capabilities() if hasattr(torch.cpu, "get_capabilities") else {}
    return bool(capabilities.get("amx_bf16") or capabilities.get("avx512_bf16"))


def _bf16_gain() -> float:
    """Seconds of a product in fp32 by seconds in bf16: the best of some turns of each."""
    types = (torch.float32, torch.bfloat16)
    operands = {
        kind: (torch.ones(_ROWS, _COLUMNS, dtype=kind), torch.ones(_COLUMNS, _COLUMNS, dtype=kind))
        for kind in types
    }
    seconds: dict[torch.dtype, list[float]] = {kind: [] for kind in types}
    with torch.inference_mode():
        for _ in range(_REPEATS):
            for kind, (rows, weight) in operands.items():
                start = time.perf_counter()
                F.linear(rows, weight)
                seconds[kind].append(time.perf_counter() - start)
    return min(seconds[torch.float32]) / min(seconds[torch.bfloat16])
