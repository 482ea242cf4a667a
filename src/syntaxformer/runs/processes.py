"""Runs in one or several processes: which one prepares and writes while the others wait.

`accelerate launch` or `torchrun` starts the processes; a single process needs neither.
"""

from __future__ import annotations

import atexit
import logging
import os
import timeit
from datetime import timedelta
from functools import cache, partial
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from accelerate import PartialState
from accelerate.utils import broadcast_object_list

from syntaxformer.base.errors import BackendMissingError, ConfigError, one_line

if TYPE_CHECKING:
    from transformers import TrainingArguments

    from syntaxformer.runs.config import RunConfig, RunTraining

_log = logging.getLogger("syntaxformer.training")

MIXED_PRECISION = "ACCELERATE_MIXED_PRECISION"
"""Variable with the precision of `accelerate launch`, which would override fp32 in the recipe."""

FOREIGN = {"ACCELERATE_USE_FSDP": "--use_fsdp", "ACCELERATE_USE_DEEPSPEED": "--use_deepspeed"}
"""Variable that `accelerate launch` sets → the option behind it."""

PATIENCE = timedelta(days=7)
"""How long processes wait for one another. The first annotates and encodes for all, which may take hours. A
process that dies is noticed at once, by its closed connection or by the launcher."""


def process_team() -> PartialState:
    """Join the processes of this run; only the first logs anything less than a warning.

    Joining opens the connection (gloo on processors, NCCL on GPUs), so this comes before any other work.
    The launcher's precision is ignored: `training.precision` decides, and is stored.

    Raises:
        ConfigError: The launcher was told to shard, so that checkpoints would hold parts of the weights.
    """
    for variable, flag in FOREIGN.items():
        if os.environ.get(variable, "false").lower() == "true":
            raise ConfigError(
                f"launcher: expected plain processes, got {flag}. Leave it out, and set "
                "training.sharded=true to shard weights and optimizer."
            )
    if os.environ.pop(MIXED_PRECISION, "no").lower() != "no":
        _log.warning("the launcher's mixed precision is ignored: training.precision decides")
    team = PartialState(cpu=not torch.cuda.is_available(), timeout=PATIENCE)
    atexit.unregister(_leave)  # so that it runs once, and before the handlers that were there
    atexit.register(_leave)
    if not team.is_main_process:
        logging.getLogger("syntaxformer").setLevel(logging.WARNING)
    return team


def check_compiler(training: RunTraining) -> None:
    """Check, by compiling a sum, that `training.compile` can be had.

    Raises:
        ConfigError: Weights are sharded, which a graph cannot gather.
        BackendMissingError: Nothing can be compiled on this machine.
    """
    if training.sharded:
        raise ConfigError(
            "training.compile: expected false with training.sharded=true, whose layers are gathered outside "
            "of graphs, got true. Set one of them to false."
        )
    from torch._inductor.cpp_builder import get_cpp_compiler

    numbers = torch.zeros(2, device="cuda" if torch.cuda.is_available() else "cpu")
    try:
        if numbers.device.type == "cpu":
            get_cpp_compiler()  # also where the sum is compiled already
        torch.compile(lambda tensor: tensor + 1)(numbers)
    except Exception as error:  # the compiler raises many classes
        _log.warning("torch.compile: %s", one_line(error, 300))
        raise BackendMissingError(
            "training.compile: a C++ compiler (g++, or that of CXX) with headers of Python",
            "apt-get install g++ python3-dev, or set training.compile=false.",
        ) from error


def check_graphs(settings: RunConfig, n_processes: int) -> None:
    """Check that nothing stands against `training.cuda_graphs`.

    Raises:
        ConfigError: There is no GPU, there are several processes, layers run twice or are compiled, or some
            batches have another task.
    """
    training = settings.training
    reasons = {
        "without a GPU": not torch.cuda.is_available(),
        f"with {n_processes} processes": n_processes > 1,
        "with training.compile": training.compile,
        "with training.activation_checkpointing": training.activation_checkpointing,
        "with parse_task": getattr(settings, "parse_task", None) is not None,
    }
    if obstacles := " and ".join(reason for reason, holds in reasons.items() if holds):
        raise ConfigError(f"training.cuda_graphs: expected false {obstacles}, got true. Set it to false.")


def one_device(arguments: TrainingArguments) -> TrainingArguments:
    """Settings of a process that uses one GPU, even if there are more.

    transformers would copy the network to all GPUs with `torch.nn.DataParallel`, and the copies would not see
    the relations of their batches.
    """
    if (n_gpus := arguments.n_gpu) > 1:
        remedy = "`accelerate launch` uses them all, see docs/guides/processes.md"
        _log.warning("training on one of %d GPUs; %s", n_gpus, remedy)
        arguments._n_gpu = 1
    return arguments


def _leave() -> None:
    """Close gloo's connections before Python ends, as its running threads would abort one process in ten.

    NCCL's stay open, because closing them waits for the other processes, which may have died.
    """
    if torch.distributed.is_initialized() and torch.distributed.get_backend() == "gloo":
        torch.distributed.destroy_process_group()


_WORTH_IT = 1.5
"""How much faster bf16 products must be than fp32 ones, because a bf16 step also casts weights and states."""

_SIZE, _REPEATS = 512, 20
"""Products of a few milliseconds; of this many, some run undisturbed even if the core is shared."""


def pick_precision(setting: str) -> str:
    """Resolve "auto": bf16 if the device multiplies matrices faster in bf16 than in fp32, else fp32.

    The first process measures the processor once for all (a tenth of a second), so all processes must make
    their first call at the same place.
    """
    return _fast_precision() if setting == "auto" else setting


@cache
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
    """The time of a product in fp32 divided by that in bf16; the best of several of each."""
    squares = [torch.ones(_SIZE, _SIZE, dtype=kind) for kind in (torch.float32, torch.bfloat16)]
    with torch.inference_mode():
        products = [partial(F.linear, matrix, matrix) for matrix in squares]
        single, half = (min(timeit.repeat(product, number=1, repeat=_REPEATS)) for product in products)
    return single / half
