"""SIGKILL at random moments of a run that writes a checkpoint at each update, again and again.

After each kill the newest whole checkpoint is read, whatever lies beside it; the next process goes on there.
At the end the run must have the weights of one that was never killed.

python benchmarks/kill_checkpoints.py [--kills 30] [--seed 1]
"""

from __future__ import annotations

import argparse
import logging
import os
import random
import signal
import sys
import tempfile
import time
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "unit" / "training"))

from conftest import make_recipe, make_trainer
from syntaxformer.folders import remove_partial_folders
from syntaxformer.tasks.translation import last_checkpoint
from syntaxformer.training.checkpoints import WEIGHTS, load_tensors

UPDATES = 130
SETTINGS = {
    "training__max_steps": UPDATES, "training__eval_every": 1, "model__d_model": 128, "model__d_ff": 2048,
    "training__log_every": 1000,
}  # fmt: skip


def run(folder: Path) -> None:
    """Train from the newest whole checkpoint, or from the beginning, to the end."""
    trainer = make_trainer(make_recipe(folder, **SETTINGS))
    checkpoint = last_checkpoint(folder) if (folder / "checkpoints").is_dir() else None
    trainer.train_from(checkpoint)


def killed_after(folder: Path, seconds: float) -> bool:
    """Train in a process of its own and kill it so long after its first checkpoint; whether it still ran."""
    before, child = set(folder.glob("checkpoints/checkpoint-*")), os.fork()
    if child == 0:
        run(folder)
        os._exit(0)
    while not set(folder.glob("checkpoints/checkpoint-*")) - before:
        time.sleep(0.01)
    time.sleep(seconds)
    os.kill(child, signal.SIGKILL)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    logging.getLogger("syntaxformer").setLevel(logging.ERROR)
    draw = random.Random(arguments.seed)
    with tempfile.TemporaryDirectory() as name:
        folder, unbroken = Path(name) / "killed", Path(name) / "unbroken"
        in_writing = 0
        for kill in range(1, arguments.kills + 1):
            if not killed_after(folder, draw.uniform(0.0, 0.5)):
                raise SystemExit(f"the run ended before kill {kill}: raise UPDATES")
            partial = [path.name for path in (folder / "checkpoints").glob(".*.partial")]
            in_writing += bool(partial)
            remove_partial_folders(folder / "checkpoints")
            whole = last_checkpoint(folder)
            step = 0 if whole is None else int(whole.name.split("-")[1])
            if whole is not None:
                load_tensors(whole / WEIGHTS)
            print(f"kill {kill}: newest whole checkpoint {step}{', killed while writing' if partial else ''}")
        for one in (folder, unbroken):
            if (child := os.fork()) == 0:
                run(one)
                os._exit(0)
            if os.waitpid(child, 0)[1]:
                raise SystemExit(f"{one.name}: the run could not be ended")
        last = Path("checkpoints") / f"checkpoint-{UPDATES}" / WEIGHTS
        ends = [load_tensors(one / last) for one in (folder, unbroken)]
        difference = max(float((ends[0][key] - ends[1][key]).abs().max()) for key in ends[0])
        print(
            f"{arguments.kills} kills, {in_writing} of them while a checkpoint was written; weights at "
            f"update {UPDATES} are within {difference:.1e} of those of a run that was never killed"
        )
        if difference > 1e-5:
            raise SystemExit("expected the same weights")


if __name__ == "__main__":
    main()
