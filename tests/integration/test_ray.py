"""Annotation and runs of an experiment on a real Ray cluster of this machine: done, failed, killed, lost with their worker."""

from __future__ import annotations

import os
import platform
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import yaml

from syntaxformer.annotate import annotate_to_file, load_annotator
from syntaxformer.annotate.shards import SourceLines
from syntaxformer.base.errors import SyntaxformerError
from syntaxformer.study.experiments.runner import RayExecutor, run_experiment
from syntaxformer.study.experiments.spec import load_spec
from syntaxformer.study.experiments.store import RunStore

pytest.importorskip("ray", reason="ray is not installed")

LINES = [
    f"The dog {number} barked at {number % 11} cats. It slept." if number % 9 else ""
    for number in range(1200)
]


def run(*arguments):
    environment = {**os.environ, "RAY_DISABLE_IMPORT_WARNING": "1", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "syntaxformer", "annotate", "--annotator", "en", *map(str, arguments)]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=environment)


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


pytestmark = pytest.mark.slow

SCRIPT = """
import json, os, pathlib, signal, sys
folder = pathlib.Path(sys.argv[1])
seed = json.loads((folder / "cell.json").read_text())["settings"]["seed"]
again = (folder / "again").exists()
(folder / "again").touch()
if seed == 2:
    sys.exit("error: data: expected a file, found none.")
if seed == 3 and not again:
    os.kill(os.getpid(), signal.SIGKILL)
if seed == 4 and not again:
    (folder / "first").write_text(str(os.getpid()))
    os.kill(os.getppid(), signal.SIGKILL)  # Ray's worker, and this process with it
    signal.pause()
facts = {"threads": os.environ["OMP_NUM_THREADS"], "directory": os.getcwd()}
(folder / "result.json").write_text(json.dumps({"metrics": {"bleu": 1.5}, **facts}))
"""
WAITING_SCRIPT = (
    "import pathlib, sys, time; (pathlib.Path(sys.argv[1]) / 'began').write_text(str(__import__('os').getpid())); "
    "time.sleep(100)"
)


@pytest.fixture(autouse=True)
def _own_environment(monkeypatch):
    monkeypatch.setenv("RAY_DISABLE_IMPORT_WARNING", "1")
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)


@pytest.fixture
def spec(tmp_path):
    content = {
        "name": "small",
        "verb": "train",
        "recipe": "tiny",
        "axes": {"seed": [1, 2, 3, 4]},
        "settings": {"data.dir": "corpus"},
    }
    (tmp_path / "spec.yaml").write_text(yaml.safe_dump(content))
    return load_spec(tmp_path / "spec.yaml")


def _command(script):
    return lambda folder: [sys.executable, "-S", "-c", script, str(folder)]


def test_states_are_those_of_local_processes(spec, tmp_path):
    store, other = RunStore(tmp_path / "store"), RunStore(tmp_path / "other")
    with RayExecutor(2, command=_command(SCRIPT)) as executor:
        counts = run_experiment(spec, store, executor=executor)
        with (
            pytest.raises(SyntaxformerError, match=f"OSError: {platform.node()} .*/no/such"),
            RayExecutor(1, command=lambda folder: ["/no/such/program"]) as broken,
        ):
            run_experiment(spec, other, executor=broken)
        assert {one.state for one in other.runs().values()} == {"killed", "waiting"}
        (first,) = store.folder.glob("cells/*/first")
        _wait_for(lambda: not _is_there(int(first.read_text())))  # it ends with its worker
    runs = {int(one.cell.labels["seed"]): one for one in store.runs().values()}
    assert counts == {"done": 3, "failed": 1}
    assert [runs[seed].attempts for seed in range(1, 5)] == [1, 1, 2, 2]
    assert runs[2].error == "data: expected a file, found none."
    assert {run.result["directory"] for run in runs.values() if run.result} == {str(Path.cwd())}
    threads = max(2, os.cpu_count() or 1) // 2
    assert {run.result["threads"] for run in runs.values() if run.result} == {str(threads)}


@pytest.fixture
def _interruptible():
    """Also where the tests were started in the background of a shell, which then ignore Ctrl-C."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.skipif("SYNTAXFORMER_EXHAUSTIVE" not in os.environ, reason="one more cluster: make test-long")
@pytest.mark.usefixtures("_interruptible")
def test_an_interrupted_runner_ends_its_tasks(spec, tmp_path):
    store = RunStore(tmp_path / "store")

    def interrupt():
        (began,) = _wait_for(lambda: list(store.folder.glob("cells/*/began")))
        _wait_for(began.read_text)
        os.kill(os.getpid(), signal.SIGINT)

    with RayExecutor(1, command=_command(WAITING_SCRIPT)) as executor:
        user = threading.Thread(target=interrupt)
        user.start()
        with pytest.raises(KeyboardInterrupt):
            run_experiment(spec, store, executor=executor)
        user.join()
        (began,) = store.folder.glob("cells/*/began")
        _wait_for(lambda: not _is_there(int(began.read_text())))
    errors = [one.error for one in store.runs().values() if one.state == "killed"]
    assert errors == ["the runner was interrupted"]


def _wait_for(what):
    end = time.monotonic() + 60
    while not (found := what()):
        assert time.monotonic() < end
        time.sleep(0.05)
    return found


def _is_there(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_no_cluster_at_the_address(spec, tmp_path):
    with (
        pytest.raises(SyntaxformerError, match=r"ray: expected a cluster at 127\.0\.0\.1:1, got: .*refused"),
        RayExecutor(1, "127.0.0.1:1") as executor,
    ):
        run_experiment(spec, store := RunStore(tmp_path / "store"), executor=executor)
    assert {one.state for one in store.runs().values()} == {"waiting"}
