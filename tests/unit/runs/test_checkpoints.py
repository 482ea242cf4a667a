"""Training state on disk: whole or refused, and no pickle in it."""

from __future__ import annotations

import json
import random

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch.optim.lr_scheduler import LambdaLR

from syntaxformer.base.errors import CheckpointError, ConfigError
from syntaxformer.base.files import MANIFEST, atomic_folder, verify_manifest
from syntaxformer.runs.checkpoints import (
    average_weights,
    check_finite,
    complete_checkpoints,
    load_optimizer,
    load_random_state,
    load_tensors,
    optimizer_state,
    random_state,
    save_optimizer,
    save_random_states,
)


def _optimizer(seed: int = 1):
    torch.manual_seed(seed)
    model = torch.nn.Linear(3, 5)
    groups = [{"params": [model.weight], "weight_decay": 0.1}, {"params": [model.bias], "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=0.7, betas=(0.8, 0.9))
    return model, optimizer, LambdaLR(optimizer, lambda step: 1 / (step + 1))


def _steps(model, optimizer, scheduler, n: int, seed: int) -> None:
    torch.manual_seed(seed)
    for _ in range(n):
        optimizer.zero_grad()
        model(torch.randn(7, 3)).square().sum().backward()
        optimizer.step()
        scheduler.step()


def test_a_restored_optimizer_goes_on_as_if_never_stopped(tmp_path):
    model, optimizer, scheduler = _optimizer()
    _steps(model, optimizer, scheduler, 3, 11)
    save_optimizer(tmp_path, optimizer_state(optimizer), scheduler)
    again, other_optimizer, other_scheduler = _optimizer(seed=2)
    again.load_state_dict(model.state_dict())
    load_optimizer(tmp_path, other_optimizer, other_scheduler)
    assert other_scheduler.get_last_lr() == scheduler.get_last_lr() == [0.7 / 4] * 2
    for training in ((model, optimizer, scheduler), (again, other_optimizer, other_scheduler)):
        _steps(*training, 2, 13)
    torch.testing.assert_close(again.weight, model.weight, rtol=0, atol=0)
    torch.testing.assert_close(again.bias, model.bias, rtol=0, atol=0)


def test_the_optimizer_of_another_model_is_refused(tmp_path):
    model, optimizer, scheduler = _optimizer()
    _steps(model, optimizer, scheduler, 1, 11)
    save_optimizer(tmp_path, optimizer_state(optimizer), scheduler)
    other = torch.optim.AdamW(torch.nn.Linear(3, 5).parameters(), lr=0.7)
    with pytest.raises(CheckpointError, match=r"expected the optimizer of this model, got: "):
        load_optimizer(tmp_path, other, LambdaLR(other, lambda step: 1.0))


def _draw() -> tuple:
    return (
        *(random.random(), random.gauss(0, 1)),
        np.random.rand(),
        np.random.randn(),
        torch.rand(5).tolist(),
    )


def test_random_state_comes_back(tmp_path):
    _draw()
    save_random_states(tmp_path, [random_state()])
    expected = [_draw(), _draw()]
    random.seed(5), np.random.seed(5), torch.manual_seed(5)
    load_random_state(tmp_path, 0, seed=1)
    assert [_draw(), _draw()] == expected


def test_a_process_more_than_before_starts_from_seed_and_number(tmp_path):
    save_random_states(tmp_path, [random_state()])
    load_random_state(tmp_path, 1, seed=5)
    numbers = torch.rand(3).tolist()
    torch.manual_seed(6)
    assert torch.rand(3).tolist() == numbers


def test_damaged_random_state_is_refused(tmp_path, monkeypatch):
    content, tensors = random_state()
    save_random_states(tmp_path, [(content, tensors | {"cuda.0": torch.zeros(3, dtype=torch.uint8)})])

    def refuse(state, device):
        raise RuntimeError("RNG state is wrong size")

    with monkeypatch.context() as patch:
        patch.setattr(torch.cuda, "device_count", lambda: 1)
        patch.setattr(torch.cuda, "set_rng_state", refuse)
        with pytest.raises(CheckpointError, match=r"expected random states, got: RNG state is wrong size"):
            load_random_state(tmp_path, 0, seed=1)
    (tmp_path / "0.random.json").write_text('{"python": [3, [1], null]}')
    with pytest.raises(CheckpointError, match=r"0\.random\.json: expected random states, got: "):
        load_random_state(tmp_path, 0, seed=1)
    (tmp_path / "0.random.json").unlink()
    with pytest.raises(CheckpointError, match=r"0\.random\.json: expected a file, found none\."):
        load_random_state(tmp_path, 0, seed=1)


def test_tensors_that_are_none(tmp_path):
    path = tmp_path / "model.safetensors"
    with pytest.raises(CheckpointError, match=r"model\.safetensors: expected a file, found none\."):
        load_tensors(path)
    save_file({"w": torch.zeros(31)}, path)
    whole = path.read_bytes()
    for broken in (whole[:-5], whole[:3], b"", b"\xff" * 40, b"\x80\x04pickle"):
        path.write_bytes(broken)
        with pytest.raises(CheckpointError) as caught:
            load_tensors(path)
        assert str(caught.value).startswith(f"{path}: expected safetensors, got: ")
        assert str(caught.value).endswith(" It is truncated or altered.")


def test_averages_by_hand(tmp_path):
    for number, value in ((1, 1.0), (2, 2.0), (3, 6.0)):
        folder = tmp_path / str(number)
        folder.mkdir()
        save_file(
            {"w": torch.full((2, 3), value), "b": torch.tensor([value, -value])}, folder / "model.safetensors"
        )
    mean = average_weights([tmp_path / "1", tmp_path / "2", tmp_path / "3"])
    assert mean["w"].tolist() == [[3.0] * 3] * 2
    assert mean["b"].tolist() == [3.0, -3.0]
    assert mean["w"].dtype == torch.float32


@pytest.mark.parametrize("other", [{"v": torch.zeros(2)}, {"w": torch.zeros(3)}])
def test_weights_of_other_models_have_no_average(tmp_path, other):
    for name, weights in (("1", {"w": torch.zeros(2)}), ("2", other)):
        (tmp_path / name).mkdir()
        save_file(weights, tmp_path / name / "model.safetensors")
    with pytest.raises(CheckpointError, match="expected the weights of the other"):
        average_weights([tmp_path / "1", tmp_path / "2"])


def _folder(path):
    with atomic_folder(path) as partial:
        save_file({"w": torch.zeros(31)}, partial / "model.safetensors")
        (partial / "state.json").write_text("{}")
    return path


def test_complete_checkpoints_oldest_first_and_what_is_wrong_with_others(tmp_path):
    for step in (1000, 200, 30):
        _folder(tmp_path / f"checkpoint-{step}")
    (tmp_path / ".checkpoint-7.x.partial").mkdir()
    (tmp_path / "checkpoint-best").mkdir()  # not ours
    with (tmp_path / "checkpoint-200" / "model.safetensors").open("r+b") as file:
        file.truncate(17)
    whole, problems = complete_checkpoints(tmp_path)
    assert [path.name for path in whole] == ["checkpoint-30", "checkpoint-1000"]
    size = len((tmp_path / "checkpoint-30" / "model.safetensors").read_bytes())
    assert [str(problem) for problem in problems] == [
        f"{tmp_path / 'checkpoint-200' / 'model.safetensors'}: expected {size} bytes, got 17. It is truncated."
    ]


def test_a_whole_folder_lists_its_files(tmp_path):
    folder = _folder(tmp_path / "a")
    verify_manifest(folder)
    assert sorted(json.loads((folder / MANIFEST).read_text())["files"]) == ["model.safetensors", "state.json"]


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("state.json", None, "state.json: expected a file of 2 bytes, found none"),
        ("state.json", "{", "state.json: expected 2 bytes, got 1"),
        ("state.json", "[]", "state.json: expected the content that was written"),
        (MANIFEST, None, "manifest.json: expected a file, found none"),
        (MANIFEST, "[]", "manifest.json: expected a JSON object, got list"),
        (MANIFEST, '{"files": 3}', "manifest.json: expected a list of files"),
        (MANIFEST, '{"files": {"state.json": 3}}', "manifest.json: expected a list of files"),
        (MANIFEST, '{"files": {"state.json": {"bytes": 2}}}', "manifest.json: expected a list of files"),
    ],
)
def test_every_damage_has_its_message(tmp_path, name, content, problem):
    folder = _folder(tmp_path / "a")
    (folder / name).unlink() if content is None else (folder / name).write_text(content)
    with pytest.raises(CheckpointError, match=f"^{folder}/{problem}"):
        verify_manifest(folder)


@pytest.mark.parametrize("wrong", [float("nan"), float("inf")])
def test_weights_that_are_no_numbers(wrong):
    check_finite({"a": torch.ones(3), "n": torch.tensor(5)}, "checkpoint-7")
    with pytest.raises(ConfigError, match=r"training\.learning_rate:"):
        check_finite({"a": torch.ones(3), "b": torch.tensor([1.0, wrong])}, "checkpoint-7")


def test_the_largest_seed_has_a_next_one(tmp_path):
    load_random_state(tmp_path, 1, 2**32 - 1)
    state = np.random.get_state()[1].tolist()
    np.random.seed(0)
    assert np.random.get_state()[1].tolist() == state
