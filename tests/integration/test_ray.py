"""Annotation on a real Ray cluster of two workers on this machine, one of which is killed."""

import os
import subprocess
import sys
import threading
import time

import psutil
import pytest

from syntaxformer.annotate import annotate_to_file, load_annotator
from syntaxformer.annotate.shards import SourceLines

pytest.importorskip("ray", reason="ray is not installed")

LINES = [
    f"The dog {number} barked at {number % 11} cats. It slept." if number % 9 else ""
    for number in range(1200)
]
SCRIPT = """
from syntaxformer.annotate import shards
from syntaxformer.cli.main import main
shards.LINES_PER_SHARD = 150
main()
"""


def run(*arguments):
    environment = {**os.environ, "RAY_DISABLE_IMPORT_WARNING": "1", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", SCRIPT, "annotate", "--annotator", "en", *map(str, arguments)]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )


def kill_one_worker(job, killed):
    """Kill the first process that works on a shard, as soon as it does."""
    until = time.monotonic() + 120
    while job.poll() is None and not killed and time.monotonic() < until:
        for process in psutil.Process(job.pid).children(recursive=True):
            if not killed and process.is_running() and "ray::_Worker.annotate" in process.cmdline():
                process.kill()
                killed.append(process.pid)
        time.sleep(0.02)


def test_of_rays_errors_only_the_error_is_told():
    from syntaxformer.annotate.ray_engine import reason

    error = ValueError(
        "ray::MapWorker() (pid=7)\n  File x, line 3\nsyntaxformer.base.errors.DataError: /a: no space left.\n"
    )
    assert reason(error) == "syntaxformer.base.errors.DataError: /a: no space left."
    assert reason(ConnectionError("no cluster\n there")) == "no cluster there."


@pytest.mark.slow
def test_two_workers_one_killed_give_what_one_process_gives(tmp_path):
    source, target = tmp_path / "in.txt", tmp_path / "out.parquet"
    source.write_text("\n".join(LINES) + "\n")
    killed = []
    job = run(source, "-o", target, "--engine", "ray", "--processes", 2)
    killer = threading.Thread(target=kill_one_worker, args=(job, killed))
    killer.start()
    out, err = job.communicate(timeout=240)
    killer.join()
    assert job.returncode == 0, err
    assert killed
    assert out.startswith(f"{target}: 1,200 lines, ")
    assert not [word for word in ("core_worker.cc", "logging.cc", "WARNING") if word in err]
    annotate_to_file(tmp_path / "plain.parquet", SourceLines(str(source)), load_annotator("en"))
    assert target.read_bytes() == (tmp_path / "plain.parquet").read_bytes()
    assert not list(tmp_path.glob(".*"))
