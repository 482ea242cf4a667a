"""Two processes (gloo) fine-tune what one process fine-tunes, plainly and with the model in shards."""

from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import load_file

import own_process

COMMON = (
    "training.precision=fp32", "training.batch_size=8", "training.max_length=32", "training.log_every=1",
    "training.learning_rate=0.003", "training.infusion_learning_rate=0.003", "training.keep_checkpoints=true",
)  # fmt: skip
"""The 40 sentences are five whole batches."""


@pytest.fixture
def finetune(checkpoint, cola, tmp_path):
    settings = json.loads((checkpoint / "config.json").read_text())
    settings |= {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    model = tmp_path / "plain"
    model.mkdir()
    for file in checkpoint.iterdir():
        (model / file.name).write_bytes(file.read_bytes())
    (model / "config.json").write_text(json.dumps(settings))

    def run(name: str, n_processes: int, *overrides: str) -> list[float]:
        given = [part for setting in (*COMMON, *overrides) for part in ("--set", setting)]
        verb = (
            "finetune", "--task", "cola", "--data", cola, "--model", model, "--infuse",
            "masks,pos_add,relation_bias",
        )  # fmt: skip
        command = (own_process.COMMAND_LINE, *verb, "-o", tmp_path / name, *given)
        if n_processes == 1:
            team = [own_process.run(*command, CUDA_VISIBLE_DEVICES="")]
        else:
            team = own_process.run_team(n_processes, *command)
        assert not any(done.returncode for done in team), team
        (state,) = (tmp_path / name / "checkpoints" / "0.003").glob("checkpoint-15/trainer_state.json")
        return [entry["loss"] for entry in json.loads(state.read_text())["log_history"] if "loss" in entry]

    return run


@pytest.mark.slow
def test_two_processes_are_one(finetune, tmp_path):
    one = torch.tensor(finetune("one", 1))
    assert one.shape == (15,)
    assert one[-5:].mean() < one[:5].mean()
    for name, setting in (("two", "training.sharded=false"), ("shards", "training.sharded=true")):
        torch.testing.assert_close(torch.tensor(finetune(name, 2, setting)), one, atol=1e-4, rtol=0)
        weights = [load_file(tmp_path / folder / "model.safetensors") for folder in ("one", name)]
        assert weights[0].keys() == weights[1].keys()
