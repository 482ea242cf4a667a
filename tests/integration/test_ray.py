"""Annotation on a real Ray cluster of two workers on this machine, one of which is killed."""

import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from syntaxformer.annotate import annotate_to_file, load_annotator
from syntaxformer.annotate.shards import SourceLines

pytest.importorskip("ray", reason="ray is not installed")

LINES = [
    f"The dog {number} barked at {number % 11} cats. It slept." if number % 9 else ""
    for number in range(1200)
]


def run(*arguments):
    environment = {**os.environ, "RAY_DISABLE_IMPORT_WARNING": "1", "OMP_NUM_THREADS": "1"}
    command = [
        sys.executable,
        "-m",
        "syntaxformer.cli.main",
        "annotate",
        "--annotator",
        "en",
        *map(str, arguments),
    ]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )


def kill_one_worker(folder, killed):
    """Kill the process that made the first shard, as soon as its record is there."""
    until = time.monotonic() + 120
    while time.monotonic() < until:
        for shard in folder.glob(".out.parquet.*.shards/[0-9]*.parquet"):
            killed.append(int(shard.with_name(f"{shard.name}.attempts").read_text()))
            os.kill(killed[0], signal.SIGKILL)
            return
        time.sleep(0.02)


@pytest.mark.slow
def test_two_workers_one_killed_give_what_one_process_gives(tmp_path):
    source, target = tmp_path / "in.txt", tmp_path / "out.parquet"
    source.write_text("\n".join(LINES) + "\n")
    killed = []
    killer = threading.Thread(target=kill_one_worker, args=(tmp_path, killed))
    killer.start()
    job = run(source, "-o", target, "--engine", "ray", "--processes", 2, "--lines-per-shard", 150)
    out, err = job.communicate(timeout=240)
    killer.join()
    assert job.returncode == 0, err
    assert killed
    assert out.startswith(f"{target}: 1,200 lines, ")
    assert not [word for word in ("core_worker.cc", "logging.cc", "WARNING") if word in err]
    annotate_to_file(tmp_path / "plain.parquet", SourceLines(str(source)), load_annotator("en"))
    assert target.read_bytes() == (tmp_path / "plain.parquet").read_bytes()
    assert not list(tmp_path.glob(".*"))
