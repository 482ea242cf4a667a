"""Programs in processes of their own, which need not import torch and this package first: that takes six seconds.

The first call starts a server that imports them once, and each process is a fork of it. What a process does before
it runs our code (its imports, its pipes, its launcher) is for `subprocess` to test.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import re
import sys
import tempfile
from pathlib import Path
from subprocess import CompletedProcess

COMMAND_LINE = "from syntaxformer.cli.main import main; main()"
TIMEOUT_S = 900
"""By the clock, for one that hangs: Inductor takes minutes on a machine that has other work."""
SERVER = multiprocessing.get_context("forkserver")
SERVER.set_forkserver_preload(
    [
        "syntaxformer.translation.training",
        "syntaxformer.encoders.finetuning",
        "syntaxformer.annotate",
        "spacy",
    ]
)


def last_values(arguments: list[str]) -> list[str]:
    """Arguments without settings (key=value) that a later one replaces: a test changes what several tests share."""
    keys = [(re.match(r"(output|seed|[a-z_]+\.[\w.]+)(?==)", one) or [""])[0] for one in arguments]
    return [
        argument
        for number, (argument, key) in enumerate(zip(arguments, keys, strict=True))
        if not key or arguments[number - 1][0] == "-" or key not in keys[number + 1 :]
    ]


def run(
    program: str, *arguments: object, cwd: Path | None = None, **environment: str
) -> CompletedProcess[str]:
    """Do what `python -c PROGRAM ARGUMENT…` does."""
    return _run([environment], program, arguments, cwd)[0]


def run_team(n_processes: int, program: str, *arguments: object) -> list[CompletedProcess[str]]:
    """Run a program in several processes that find each other as those of `torchrun` do, on the CPU.

    As there, the store by which they do outlives each of them.
    """
    import torch

    store = torch.distributed.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    common = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": f"{store.port}", "CUDA_VISIBLE_DEVICES": ""}
    common |= {"TORCHELASTIC_USE_AGENT_STORE": "True"}
    common |= dict.fromkeys(("WORLD_SIZE", "LOCAL_WORLD_SIZE"), f"{n_processes}")
    ranks = map(str, range(n_processes))
    return _run([{**common, "RANK": rank, "LOCAL_RANK": rank} for rank in ranks], program, arguments, None)


def _run(
    environments: list[dict[str, str]], program: str, arguments: tuple[object, ...], cwd: Path | None
) -> list[CompletedProcess[str]]:
    argv = ["-c", *last_values([*map(str, arguments)])]
    with tempfile.TemporaryDirectory() as folder:
        outputs = [(Path(folder, f"{n}.out"), Path(folder, f"{n}.err")) for n in range(len(environments))]
        processes = [
            SERVER.Process(target=_work, args=(program, argv, cwd or Path.cwd(), os.environ | more, *files))
            for more, files in zip(environments, outputs, strict=True)
        ]
        for process in processes:
            process.start()
        for process in processes:
            process.join(TIMEOUT_S)
            if process.is_alive():
                process.kill()
                process.join()
        return [
            CompletedProcess(argv, process.exitcode, *(file.read_text("utf-8") for file in files))
            for process, files in zip(processes, outputs, strict=True)
        ]


def _work(
    program: str, argv: list[str], cwd: Path, environment: dict[str, str], out: Path, err: Path
) -> None:
    """In the new process: become the program."""
    import torch

    gc.freeze()  # as in tests/conftest.py
    torch.set_num_threads(1)
    for number, file in ((1, out), (2, err)):
        os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT), number)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(cwd)
    sys.argv = argv
    exec(compile(program, "<program>", "exec"), {"__name__": "__main__"})
