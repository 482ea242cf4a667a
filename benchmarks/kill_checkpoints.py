"""SIGKILL at random moments of training; afterwards a run must end as one that was never killed.

By itself: a trainer that writes a checkpoint at each update is killed again and again, soon after the first
checkpoint of each process. After each kill the newest whole checkpoint is read, whatever lies beside it; the
next process goes on there.

With --whole-command: `syntaxformer train` is killed at any moment from its start, in a new folder, while it
overwrites a finished run and while it goes on with half a run. Each time the command is given again, as a
user would.

python benchmarks/kill_checkpoints.py [--kills 30] [--seed 1] [--whole-command]
"""

from __future__ import annotations

import argparse
import logging
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
from transformers.utils import logging as hf_logging

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "unit" / "translation" / "training"))

from conftest import make_recipe, make_trainer
from syntaxformer.base.files import MANIFEST, remove_partials, verify_manifest
from syntaxformer.runs.checkpoints import WEIGHTS, load_tensors, numbered_checkpoints, step_of
from syntaxformer.translation.training import last_checkpoint
from toy_grammar import toy_pairs, write_pairs

UPDATES = 130
SETTINGS = {
    "training__max_steps": UPDATES, "training__eval_every": 1, "model__d_model": 128, "model__d_ff": 2048,
    "training__log_every": 1000,
}  # fmt: skip
STEPS = 20
COMMAND = (sys.executable, "-m", "syntaxformer.cli.main", "--quiet", "train", "tiny")
SMALL = (
    "subwords.vocab_size=301", "model.d_model=12", "model.d_ff=17", "model.n_heads=2",
    "model.encoder_layers=1", "model.decoder_layers=1", "training.keep_checkpoints=15",
    f"training.max_steps={STEPS}", "training.eval_every=1", "training.precision=fp32",
    "training.tensorboard=false",
)  # fmt: skip
BEGINNINGS = {"new": (), "overwritten": ("--overwrite",), "resumed": ("--resume",)}
"""Flags of a command that is killed, by what it is to do."""


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
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            code = os.waitstatus_to_exitcode(status)
            raise SystemExit(f"the run ended by itself before its first checkpoint, with exit code {code}")
        time.sleep(0.01)
    time.sleep(seconds)
    os.kill(child, signal.SIGKILL)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


def kill_trainer(place: Path, kills: int, draw: random.Random) -> None:
    """Kill one run so many times, then compare its end with that of a run that was never killed."""
    folder, unbroken = place / "killed", place / "unbroken"
    in_writing = 0
    for kill in range(1, kills + 1):
        if not killed_after(folder, draw.uniform(0.0, 0.5)):
            raise SystemExit(f"the run ended before kill {kill}: raise UPDATES")
        partial = [path.name for path in (folder / "checkpoints").glob(".*.partial")]
        in_writing += bool(partial)
        remove_partials(folder / "checkpoints")
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
    found = same_weights(folder / last, unbroken / last)
    print(
        f"{kills} kills, {in_writing} of them while a checkpoint was written; weights at "
        f"update {UPDATES} are {found} of a run that was never killed"
    )


def same_weights(path: Path, expected: Path) -> str:
    """How near they are, in words; ends the program where they differ."""
    first, second = load_tensors(path), load_tensors(expected)
    if first.keys() != second.keys():
        raise SystemExit(f"{path}: expected the names of {expected}")
    if all(torch.equal(first[name], second[name]) for name in second):
        return "bit for bit those"
    difference = max(float((first[name] - second[name]).abs().max()) for name in second)
    if difference > 1e-5:
        raise SystemExit(f"{path}: expected the weights of {expected}, got others: {difference:.1e} apart")
    return f"within {difference:.1e} of those"


def train(corpus: Path, output: Path, *flags: str) -> subprocess.Popen[str]:
    """Start the command in a process of its own."""
    where = (f"data.dir={corpus}", f"data.cache={corpus / 'cache'}", f"output={output}")
    return subprocess.Popen(
        [*COMMAND, *where, *SMALL, *flags], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )


def train_to_the_end(corpus: Path, output: Path, *flags: str) -> float:
    """Wait for the command, which must succeed; seconds it took."""
    start, process = time.monotonic(), train(corpus, output, *flags)
    error = process.communicate()[1]
    if process.returncode:
        raise SystemExit(f"{' '.join(flags) or 'train'}: exit code {process.returncode}: {error}")
    verify_manifest(output)
    return time.monotonic() - start


def remedy(output: Path, beginning: str) -> tuple[str, ...]:
    """Flags with which a user gives the command again after a kill."""
    if beginning == "overwritten":
        return ("--overwrite",)
    return ("--resume",) if (output / "recipe.yaml").exists() else ()


def state_of(output: Path) -> str:
    """What a kill left, in words."""
    if not output.exists():
        return "no folder"
    partial = sorted(path.name for path in output.rglob(".*.partial"))
    if (output / MANIFEST).exists():
        return "a finished run"
    n_checkpoints = len(list(output.glob("checkpoints/checkpoint-*")))
    left = f"{len(list(output.iterdir()))} names, {n_checkpoints} checkpoints"
    return f"{left}, half-written {', '.join(partial)}" if partial else left


def begin(output: Path, unbroken: Path, beginning: str) -> None:
    """Put what the command will find into its output folder: nothing, a run, or half of one."""
    if beginning != "new":
        shutil.copytree(unbroken, output)
    if beginning == "resumed":
        (output / MANIFEST).unlink()
        for path in numbered_checkpoints(output / "checkpoints"):
            if step_of(path) > STEPS // 2:
                shutil.rmtree(path)


def kill_once(process: subprocess.Popen[str], seconds: float) -> bool:
    """Kill a command so long after its start; whether it still ran."""
    time.sleep(seconds)
    process.kill()
    error = process.communicate()[1]
    if process.returncode not in (0, -signal.SIGKILL):
        raise SystemExit(f"the run ended by itself, with exit code {process.returncode}: {error}")
    return process.returncode != 0


def kill_command(place: Path, kills: int, draw: random.Random) -> None:
    """Kill `syntaxformer train` so many times, each time in a folder of its own; then let it end."""
    corpus, unbroken = place / "corpus", place / "unbroken"
    write_pairs(corpus, {"train": toy_pairs(200), "valid": toy_pairs(300, seed=2)})
    seconds, n_running = train_to_the_end(corpus, unbroken), 0
    for kill in range(1, kills + 1):
        output, beginning = place / f"killed-{kill}", list(BEGINNINGS)[kill % len(BEGINNINGS)]
        begin(output, unbroken, beginning)
        moment = draw.uniform(0.0, seconds)
        n_running += kill_once(train(corpus, output, *BEGINNINGS[beginning]), moment)
        left, flags = state_of(output), remedy(output, beginning)
        train_to_the_end(corpus, output, *flags)
        found = same_weights(output / WEIGHTS, unbroken / WEIGHTS)
        again = f"then {' '.join(flags) or 'plain'}: weights are {found} of the unbroken run"
        print(f"kill {kill} ({beginning}) after {moment:.1f} s: left {left}; {again}", flush=True)
        shutil.rmtree(output)
    print(f"{n_running} of {kills} commands still ran when killed; all ended as the unbroken run")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--whole-command", action="store_true", help="kill `syntaxformer train` itself")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    logging.getLogger("syntaxformer").setLevel(logging.ERROR)
    hf_logging.disable_progress_bar()
    measure = kill_command if arguments.whole_command else kill_trainer
    with tempfile.TemporaryDirectory() as name:
        measure(Path(name), arguments.kills, random.Random(arguments.seed))


if __name__ == "__main__":
    main()
