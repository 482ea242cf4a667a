"""A small experiment, a store whose runs are written by hand, and reports whose figures are not drawn."""

from __future__ import annotations

import json
from copy import deepcopy
from types import SimpleNamespace

import pytest
import yaml
from typer.testing import CliRunner

from syntaxformer.base.errors import ConfigError
from syntaxformer.cli.main import app
from syntaxformer.study.experiments import report as report_module
from syntaxformer.study.experiments.report import write_report
from syntaxformer.study.experiments.spec import Spec, load_spec
from syntaxformer.study.experiments.store import RunStore

CONTENT = {
    "name": "small",
    "title": "Small | grid",
    "question": "Does it help?",
    "verb": "train",
    "recipe": "tiny",
    "settings": {"data.dir": "corpus"},
    "axes": {
        "system": {"base": {"infusion.kind": "none"}, "sit": {"infusion.kind": "sum_then_concat"}},
        "fraction": {"10 %": {"data.fraction": 0.1}, "100 %": {"data.fraction": 1.0}},
        "seed": [1, 2, 3],
    },
    "report": {
        "baseline": {"system": "base"},
        "x": "fraction",
        "paper_source": "a paper",
        "paper": [
            {"cell": {"system": "base", "fraction": "10 %"}, "value": 16.28},
            {"cell": {"system": "sit", "fraction": "10 %"}, "value": 17.28},
        ],
    },
}
FINETUNE = {
    "verb": "finetune",
    "recipe": None,
    "settings": {"task": "cola", "model": "encoder", "data.dir": "x"},
    "axes": {"system": {"plain": {"infuse": "none"}, "masks": {"infuse": "masks"}}, "seed": [1, 2, 3]},
    "report": {},
}


@pytest.fixture
def make_result():
    """What a run finds."""

    def make(bleu: float, **more: object) -> dict:
        return {
            "metrics": {"bleu": bleu, "chrf": bleu + 20, "dev_loss": 5 - bleu / 10},
            "curve": [{"step": 10, "value": 4.0}, {"step": 20, "value": 3.0 + bleu / 100}],
            "n_parameters": 1_250_000,
            "commit": "0123456789ab",
            "command": "syntaxformer train tiny",
            "versions": {"torch": "2"},
            "data_sha256": {"train": "f" * 64},
            **more,
        }

    return make


@pytest.fixture
def content() -> dict:
    return deepcopy(CONTENT)


@pytest.fixture
def finetune(content) -> dict:
    content |= deepcopy(FINETUNE)
    return content


@pytest.fixture
def load(tmp_path):
    """The experiment of a content, through its file."""

    def write(content: dict, overrides=()) -> Spec:
        path = tmp_path / "spec.yaml"
        path.write_text(yaml.safe_dump(content, sort_keys=False))
        return load_spec(path, overrides)

    return write


@pytest.fixture
def problems(load):
    """What is wrong with a content, without the path that stands before each."""

    def refused(content: dict, overrides=()) -> list[str]:
        with pytest.raises(ConfigError) as error:
            load(content, overrides)
        return [problem.partition("spec.yaml: ")[2] or problem for problem in error.value.problems]

    return refused


@pytest.fixture
def spec(content, load) -> Spec:
    return load(content)


@pytest.fixture
def store(tmp_path) -> RunStore:
    return RunStore(tmp_path / "store")


@pytest.fixture
def curves(monkeypatch) -> dict:
    """File → curves of the figures of a report, which are not drawn."""
    drawn = {}

    def draw(curves, path, *_):
        path.parent.mkdir(exist_ok=True)
        path.touch()
        drawn[path.name] = curves

    monkeypatch.setattr(report_module, "draw_curves", draw)
    return drawn


@pytest.fixture
def report(curves, tmp_path):
    """The text of a report."""
    return lambda spec, store: write_report(spec, store, tmp_path / "report").read_text("utf-8")


@pytest.fixture
def dry_run(tmp_path, store):
    """The command on the file that was written last."""

    def call(*more):
        path, folder = str(tmp_path / "spec.yaml"), str(store.folder)
        return CliRunner().invoke(app, ["experiment", "run", path, "--dry-run", "--store", folder, *more])

    return call


class InProcess:
    """An executor whose runs are calls of a function here: folder → result, or an exit code."""

    n_jobs = 1

    def __init__(self, work):
        self.work = work
        self.folders = []

    def start(self, folder):
        self.folders.append(folder)
        outcome = self.work(folder)
        if isinstance(outcome, dict):
            (folder / "result.json").write_text(json.dumps(outcome))
        code = 0 if isinstance(outcome, dict) else outcome
        return SimpleNamespace(poll=lambda: code, terminate=lambda: None, wait=lambda: code)


@pytest.fixture
def in_process():
    return InProcess


@pytest.fixture
def no_devices(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
