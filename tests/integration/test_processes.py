"""Two processes (gloo) train the model that one process trains, and a run may go on with another number."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
import torch
from safetensors.torch import load_file

import own_process

SMALL = (
    "data.dev=dev", "subwords.vocab_size=301", "infusion.kind=sum_then_concat", "infusion.width=5", "model.d_model=24",
    "model.d_ff=31", "model.n_heads=2", "model.dropout=0", "training.eval_every=15", "training.precision=fp32",
    "training.tensorboard=false", "training.accumulate=2", "training.max_batch_tokens=211", "training.log_every=1",
)  # fmt: skip


KILLED = """
import os, signal
from syntaxformer.cli.main import main
from syntaxformer.runs.trainer import RunCallback

def kill(self, args, state, control, **_):
    if state.global_step == 20 and os.environ["RANK"] == "1":
        os.kill(os.getpid(), signal.SIGKILL)

RunCallback.on_step_begin = kill
main()
"""

DISAGREEING = """
import os
import torch
from syntaxformer.runs import processes as precision

precision._has_bf16 = lambda: True
precision._bf16_gain = lambda: {"0": 9.0, "1": 0.1}[os.environ["RANK"]]
print(precision.pick_precision("auto"))
torch.distributed.destroy_process_group()
"""


PATIENT = """
import torch
from syntaxformer.runs.processes import process_team

process_team()
group = torch.distributed.distributed_c10d._get_default_group()
print(group._get_backend(torch.device("cpu")).options._timeout.days)
torch.distributed.barrier()  # one that leaves while the other connects resets the connection
"""


SHARDED = """
from types import SimpleNamespace
import torch
from transformers import BertConfig, BertForSequenceClassification
from syntaxformer.infusion import InfusionConfig, infuse
from syntaxformer.runs.processes import process_team
from syntaxformer.runs.trainer import shard

process_team()
shape = dict(hidden_size=24, num_attention_heads=2, num_hidden_layers=3, intermediate_size=31)
model = BertForSequenceClassification(BertConfig(vocab_size=101, **shape))
infuse(model, InfusionConfig(masks={}))
n_parameters = sum(parameter.numel() for parameter in model.parameters())
shard(SimpleNamespace(args=SimpleNamespace(world_size=2), model=model))
optimizer = torch.optim.AdamW(model.parameters())
for parameter in model.parameters():
    parameter.grad = torch.ones_like(parameter)
optimizer.step()
moments = [tensor for state in optimizer.state.values() for name, tensor in state.items() if name != "step"]
tensors = [*model.parameters(), *(parameter.grad for parameter in model.parameters()), *moments]
print(n_parameters, sum(tensor.to_local().nbytes for tensor in tensors))
torch.distributed.barrier()
"""


@pytest.fixture(scope="module")
def unbroken(digits, tmp_path_factory):
    """What one process trains in 45 updates, without a launcher."""
    folder = tmp_path_factory.mktemp("processes") / "unbroken"
    where = (f"data.dir={digits.corpus}", f"data.cache={folder.parent / 'cache'}", f"output={folder}")
    command = ("train", "tiny", *where, *SMALL, "training.max_steps=45")
    done = own_process.run(own_process.COMMAND_LINE, *command, CUDA_VISIBLE_DEVICES="")
    assert done.returncode == 0, done.stderr[-9000:]
    return folder


@pytest.fixture
def train(digits, tmp_path):
    """Train in several processes; by the launcher where one of them dies, which it must answer."""

    def run(
        name: str, n_processes: int, max_steps: int, *flags: str, dies: str = "", fails: bool = False
    ) -> str:
        where = (f"data.dir={digits.corpus}", f"data.cache={tmp_path / 'cache'}", f"output={tmp_path / name}")
        verb = ["train", "tiny", *where, *SMALL, f"training.max_steps={max_steps}", *flags]
        if dies:
            (tmp_path / "script.py").write_text(dies)
            team = [_torchrun(n_processes, str(tmp_path / "script.py"), *verb)]
        else:
            team = own_process.run_team(n_processes, own_process.COMMAND_LINE, *verb)
        said = "".join(done.stderr for done in team)
        assert any(done.returncode for done in team) == (fails or bool(dies)), said[-9000:]
        printed = "".join(done.stdout for done in team)  # the first process speaks for all
        assert printed == ("" if fails or dies else f"{tmp_path / name}\n")
        return said

    return run


def _torchrun(n_processes: int, *program: str) -> subprocess.CompletedProcess[str]:
    launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={n_processes}"]
    return subprocess.run(
        [sys.executable, *launcher, *program],
        env={**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True, text=True, timeout=200,
    )  # fmt: skip


def _losses(folder) -> list[float]:
    last = max((folder / "checkpoints").glob("checkpoint-*"), key=lambda path: int(path.name.split("-")[1]))
    history = json.loads((last / "trainer_state.json").read_text())["log_history"]
    return [entry["loss"] for entry in history if "loss" in entry]


@pytest.mark.slow
def test_two_processes_are_one(train, unbroken, tmp_path):
    train("two", 2, 45)
    assert not torch.equal(_draws_of(tmp_path / "two", 0), _draws_of(tmp_path / "two", 1))
    assert torch.equal(_draws_of(tmp_path / "two", 0), _draws_of(unbroken, 0))
    one, two = _losses(unbroken), _losses(tmp_path / "two")
    assert len(one) == 45
    torch.testing.assert_close(torch.tensor(two), torch.tensor(one), atol=1e-4, rtol=0)
    weights = (load_file(folder / "model.safetensors") for folder in (tmp_path / "two", unbroken))
    torch.testing.assert_close(*weights, atol=1e-4, rtol=0)


def _draws_of(folder, process: int) -> torch.Tensor:
    (last,) = (folder / "checkpoints").glob(f"checkpoint-45/{process}.random.safetensors")
    return load_file(last)["cpu"]


@pytest.mark.slow
def test_a_run_of_two_goes_on_with_one(train, unbroken, tmp_path):
    train("changed", 2, 25)
    train("changed", 1, 45, "--resume")
    changed = torch.tensor(_losses(tmp_path / "changed"))
    torch.testing.assert_close(changed, torch.tensor(_losses(unbroken)), atol=1e-4, rtol=0)


@pytest.mark.slow
def test_shards_of_two_processes_are_one(train, tmp_path):
    """Broken off twice, so that shards are read back by two and by one; clipped: a norm is over all shards."""
    common = ("training.max_grad_norm=0.5", "lisa={}", "relation_bias={}", "masks={}")
    train("one", 1, 45, *common)
    train("two", 2, 25, "training.sharded=true", *common)
    train("two", 2, 35, "--resume", "training.sharded=true", *common)
    train("two", 1, 45, "--resume", "training.sharded=true", *common)
    one, two = _losses(tmp_path / "one"), _losses(tmp_path / "two")
    torch.testing.assert_close(torch.tensor(two), torch.tensor(one), atol=1e-4, rtol=0)
    weights = (load_file(tmp_path / name / "model.safetensors") for name in ("two", "one"))
    # Gradients of key biases are rounding alone, which Adam blows up.
    torch.testing.assert_close(*weights, atol=1e-3, rtol=0)


def test_a_launcher_that_shards_itself_is_refused(cli, digits, tmp_path, monkeypatch):
    monkeypatch.setenv("ACCELERATE_USE_FSDP", "true")
    done = cli("train", "tiny", f"data.dir={digits.corpus}", f"output={tmp_path / 'out'}")
    assert (done.code, done.err) == (
        2,
        "error: launcher: expected plain processes, got --use_fsdp. Leave it out, and set training.sharded=true "
        "to shard weights and optimizer.\n",
    )
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_a_killed_process_ends_the_run_and_costs_updates_since_the_last_checkpoint(train, unbroken, tmp_path):
    """Rank 1 gets SIGKILL at update 20: the launcher ends rank 0, and two others go on from update 15."""
    train("killed", 2, 30, dies=KILLED)
    names = [path.name for path in (tmp_path / "killed" / "checkpoints").glob("checkpoint-*")]
    assert names == ["checkpoint-15"]
    train("killed", 2, 30, "--resume")
    killed = torch.tensor(_losses(tmp_path / "killed"))
    torch.testing.assert_close(killed, torch.tensor(_losses(unbroken)[:30]), atol=1e-4, rtol=0)


def test_batches_that_two_cannot_share(train):
    said = train("odd", 2, 5, "training.accumulate=3", fails=True)
    assert "error: training.accumulate: expected a multiple of 2, the number of processes, got 3" in said


def _printed_by_two(program: str) -> list[str]:
    """What two processes of a program print."""
    team = own_process.run_team(2, program)
    assert [done.returncode for done in team] == [0, 0], team
    return [done.stdout for done in team]


def test_processes_take_the_precision_that_the_first_measured():
    assert _printed_by_two(DISAGREEING) == ["bf16\n", "bf16\n"]


def test_processes_wait_for_the_first_one_as_long_as_it_annotates():
    """PyTorch's own half an hour is over before a large text is annotated."""
    assert _printed_by_two(PATIENT) == ["7\n", "7\n"]


def test_a_parameter_takes_sixteen_bytes_over_all_shards():
    """As docs/guides/processes.md says, for an infused model as well."""
    (n_parameters, first), (_, second) = (map(int, said.split()) for said in _printed_by_two(SHARDED))
    assert first + second == 16 * n_parameters
    assert max(first, second) < 9 * n_parameters
