"""Our side of the comparison with other toolkits runs, at its tiniest size."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from parallel_files import write_sides
from syntaxformer.demo import corpus

PEERS = Path(__file__).resolve().parents[2] / "benchmarks" / "peers"
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def raw(tmp_path_factory):
    folder = tmp_path_factory.mktemp("peers")
    pairs = corpus.read_pairs()["train"]
    for split, chosen in (("train", pairs[:3000]), ("val", pairs[3000:3032]), ("test2016", pairs[3032:3042])):
        write_sides(folder, *zip(*chosen, strict=True), split)
    return folder


def _run(script, *arguments):
    command = [sys.executable, PEERS / script, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=PEERS)
    assert done.returncode == 0, done.stderr[-2000:]


def test_training_is_metered(raw, tmp_path):
    _run("prepare.py", raw, tmp_path / "data", "--merges", 500)
    _run("ours.py", "train", tmp_path / "data", tmp_path / "out.json", 1, 1, 1, "--factors")
    assert json.loads((tmp_path / "out.json").read_text("utf-8"))["params"] > 10**6


def test_translation_is_forced_to_so_many_steps(raw, tmp_path):
    _run("ours.py", "model", raw, tmp_path / "model")
    for folder in ("pytorch", "int8"):
        _run("ours.py", "translate", tmp_path / "model" / folder, tmp_path / f"{folder}.json", 5)
        assert json.loads((tmp_path / f"{folder}.json").read_text("utf-8"))["tokens"] == 10 * 5
