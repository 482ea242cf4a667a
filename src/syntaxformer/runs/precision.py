"""What `training.precision: auto` is on this machine.

That a processor has instructions for bf16 does not say that they are fast: with AMX a product takes a quarter
to an eighth of the time that it takes in fp32, with AVX-512 alone anything from a quarter to twice of it. So
it is measured.
"""

from __future__ import annotations

import functools
import time

import torch
import torch.nn.functional as F
from accelerate.utils import broadcast_object_list

from syntaxformer.runs.processes import process_team

__all__ = ["pick_precision"]

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
