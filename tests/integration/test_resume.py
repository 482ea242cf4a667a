"""A run that is stopped and resumed on the command line, its pairs on the disk, cut by BPE-dropout, in shares or altered, is the run that was never stopped."""

from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import load_file

SMALL = (
    "data.dev=dev", "subwords.vocab_size=301", "infusion.kind=sum_then_concat", "infusion.width=5", "model.d_model=24",
    "model.d_ff=31", "model.n_heads=2", "model.dropout=0.2", "training.eval_every=10", "training.precision=fp32",
    "training.tensorboard=false",
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("setting", [
    "data.on_disk=true", "subwords.dropout=0.5",
    "data.train=[{name: train, weight: 0.4}, {name: train, weight: 1.3, tag: <bt>}]",
    "data.augment={upper: 0.2, noise: 0.4}",
])  # fmt: skip
def test_stopped_and_resumed(digits, cli, tmp_path, setting):
    always = [] if "on_disk" in setting else [setting]

    def train(name: str, max_steps: int, *flags: str) -> None:
        where = (f"data.dir={digits.corpus}", f"data.cache={tmp_path / 'cache'}", f"output={tmp_path / name}")
        done = cli("--quiet", "train", "tiny", *where, *SMALL, f"training.max_steps={max_steps}", *flags)
        assert (done.code, done.err) == (0, "")

    train("unbroken", 30, *always)
    train("stopped", 17, setting)
    train("stopped", 30, setting, "--resume")
    first, second = (load_file(tmp_path / name / "model.safetensors") for name in ("unbroken", "stopped"))
    assert first.keys() == second.keys()
    for name, tensor in first.items():
        torch.testing.assert_close(second[name], tensor, atol=1e-5, rtol=0)
    reports = [json.loads((tmp_path / name / "run.json").read_text()) for name in ("unbroken", "stopped")]
    assert abs(reports[0]["dev_loss"] - reports[1]["dev_loss"]) < 1e-5
    assert [report["last_step"] for report in reports] == [30, 30]
