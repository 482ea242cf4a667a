"""One process or several: who prepares and writes, who waits.

`accelerate launch` or `torchrun` starts the processes; everything here also holds where there is only one.
"""

from __future__ import annotations

import logging

import torch
from accelerate import PartialState

__all__ = ["process_team"]


def process_team() -> PartialState:
    """The processes of this run; only the first of them talks below a warning.

    Joining them opens the connection (gloo on processors, NCCL on GPUs), so this comes before any other work.
    """
    team = PartialState(cpu=not torch.cuda.is_available())
    if not team.is_main_process:
        logging.getLogger("syntaxformer").setLevel(logging.WARNING)
    return team
