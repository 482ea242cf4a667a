"""A small experiment, and a store whose runs are written by hand."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

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


def result(bleu: float, **more: object) -> dict:
    """What a run finds."""
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


@pytest.fixture
def content() -> dict:
    return yaml.safe_load(yaml.safe_dump(CONTENT, sort_keys=False))


@pytest.fixture
def write_spec(tmp_path):
    def write(content: dict) -> Path:
        path = tmp_path / "spec.yaml"
        path.write_text(yaml.safe_dump(content, sort_keys=False))
        return path

    return write


@pytest.fixture
def spec(content, write_spec) -> Spec:
    return load_spec(write_spec(content))


@pytest.fixture
def store(tmp_path) -> RunStore:
    return RunStore(tmp_path / "store")


@pytest.fixture
def make_result():
    return result
