"""Stores training state without pickle, as safetensors and JSON, and averages weights."""

from __future__ import annotations

import json
import logging
import random
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate.utils import set_seed
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.distributed.tensor import DTensor, distribute_tensor
from transformers import PreTrainedModel

from syntaxformer.base.config import MAX_SEED
from syntaxformer.base.errors import CheckpointError, ConfigError
from syntaxformer.base.files import read_json, verify_manifest

WEIGHTS = "model.safetensors"
OPTIMIZER, OPTIMIZER_GROUPS = "optimizer.safetensors", "optimizer.json"
RANDOM, RANDOM_TENSORS = "random.json", "random.safetensors"

_log = logging.getLogger("syntaxformer.training")

RandomState = tuple[dict[str, Any], dict[str, Tensor]]


def load_tensors(path: Path) -> dict[str, Tensor]:
    """Read a safetensors file.

    Raises:
        CheckpointError: It is missing, truncated or another kind of file.
    """
    try:
        return load_file(path)
    except FileNotFoundError as error:
        raise CheckpointError(f"{path}: expected a file, found none.") from error
    except (SafetensorError, OSError, ValueError) as error:
        raise CheckpointError(
            f"{path}: expected safetensors, got: {error}. It is truncated or altered."
        ) from error


def optimizer_state(optimizer: Any) -> dict[str, Any]:
    """The state of an optimizer, by parameter and name; with shards, every process must call this."""
    state = optimizer.state_dict()
    tensors = {
        f"{number}.{name}": whole(value).contiguous()
        for number, slots in state["state"].items()
        for name, value in slots.items()
    }
    return {"tensors": tensors, "param_groups": state["param_groups"]}


def save_optimizer(folder: Path, state: dict[str, Any], scheduler: Any) -> None:
    """Write the result of `optimizer_state` and the state of the schedule."""
    save_file(state["tensors"], folder / OPTIMIZER)
    # The functions of a schedule cannot be stored, and need not be: the recipe gives the same ones.
    schedule = {key: value for key, value in scheduler.state_dict().items() if key != "lr_lambdas"}
    content = {"param_groups": state["param_groups"], "scheduler": schedule}
    (folder / OPTIMIZER_GROUPS).write_text(json.dumps(content), "utf-8")


def load_optimizer(folder: Path, optimizer: Any, scheduler: Any) -> None:
    """Restore the state that `save_optimizer` wrote.

    Raises:
        CheckpointError: The files are incomplete or belong to another model.
    """
    content: dict[str, Any] = read_json(folder / OPTIMIZER_GROUPS)
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    slots: dict[int, dict[str, Tensor]] = {}
    try:
        for key, tensor in load_tensors(folder / OPTIMIZER).items():
            number, _, name = key.partition(".")
            slots.setdefault(int(number), {})[name] = shard_like(tensor, parameters[int(number)])
        optimizer.load_state_dict({"state": slots, "param_groups": content["param_groups"]})
        functions = {"lr_lambdas": scheduler.state_dict()["lr_lambdas"]}
        scheduler.load_state_dict({**content["scheduler"], **functions})
    except (KeyError, IndexError, ValueError, TypeError) as error:
        raise CheckpointError(f"{folder}: expected the optimizer of this model, got: {error}.") from error


def random_state() -> RandomState:
    """The states of all random number generators of this process, as JSON content and as tensors."""
    version, numbers, gauss = random.getstate()
    generator: Any = np.random.get_state()
    name, keys, *rest = generator
    content = {"python": [version, list(numbers), gauss], "numpy": [name, keys.tolist(), *rest]}
    tensors = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_available():
        tensors |= {f"cuda.{device}": state for device, state in enumerate(torch.cuda.get_rng_state_all())}
    return content, tensors


def save_random_states(folder: Path, states: Sequence[RandomState]) -> None:
    """Write the random states of all processes, in the order of their numbers."""
    for process, (content, tensors) in enumerate(states):
        (folder / f"{process}.{RANDOM}").write_text(json.dumps(content), "utf-8")
        save_file(tensors, folder / f"{process}.{RANDOM_TENSORS}")


def seed_process(seed: int, process: int) -> None:
    """Seed all generators of a process, each with another number."""
    set_seed((seed + process) % (MAX_SEED + 1))


def load_random_state(folder: Path, process: int, seed: int) -> None:
    """Restore the states that `save_random_states` wrote; a new process starts from the seed.

    Raises:
        CheckpointError: The files are incomplete.
    """
    path = folder / f"{process}.{RANDOM}"
    if process and not path.exists():
        seed_process(seed, process)
        return
    content: dict[str, Any] = read_json(path)
    tensors = load_tensors(folder / f"{process}.{RANDOM_TENSORS}")
    try:
        version, numbers, gauss = content["python"]
        random.setstate((version, tuple(numbers), gauss))
        name, keys, *rest = content["numpy"]
        np.random.set_state((name, np.array(keys, np.uint32), *rest))
        torch.set_rng_state(tensors["cpu"])
        for device in range(torch.cuda.device_count()):
            if (state := tensors.get(f"cuda.{device}")) is not None:
                torch.cuda.set_rng_state(state, device)
    except (KeyError, ValueError, TypeError, RuntimeError) as error:
        raise CheckpointError(f"{path}: expected random states, got: {error}. It was altered.") from error


def complete_checkpoints(folder: Path) -> tuple[list[Path], list[CheckpointError]]:
    """The complete checkpoints in a folder, oldest first, and the problems of others, which are logged."""
    complete, problems = [], []
    for path in numbered_checkpoints(folder):
        try:
            verify_manifest(path)
            complete.append(path)
        except CheckpointError as error:
            _log.warning("skipping a checkpoint: %s", error)
            problems.append(error)
    return complete, problems


def last_with_its_best(complete: Sequence[Path]) -> Path | None:
    """The newest of some complete checkpoints whose own best checkpoint is among them."""
    names = {path.name for path in complete}
    for path in reversed(complete):
        best = read_json(path / "trainer_state.json").get("best_global_step")
        if best is None or f"checkpoint-{best}" in names:
            return path
    return None


def numbered_checkpoints(folder: Path) -> list[Path]:
    """The folders `checkpoint-NUMBER` in a folder, oldest first, complete or not."""
    paths = [
        path for path in folder.glob("checkpoint-*") if path.name.removeprefix("checkpoint-").isdecimal()
    ]
    return sorted(paths, key=step_of)


def step_of(checkpoint: Path) -> int:
    """The update after which a checkpoint was written."""
    return int(checkpoint.name.removeprefix("checkpoint-"))


def around(checkpoints: Sequence[Path], step: int | None, n: int) -> list[Path]:
    """The `n` checkpoints nearest to an update, in order; the earlier of two at the same distance."""
    near = sorted(checkpoints, key=lambda path: (abs(step_of(path) - (step or 0)), step_of(path)))
    return sorted(near[:n], key=step_of)


def average_weights(checkpoints: Sequence[Path]) -> dict[str, Tensor]:
    """Mean of the weights of several checkpoints, summed in double precision.

    Raises:
        CheckpointError: The checkpoints belong to different models.

    Source: Vaswani et al. (2017), section 6.1.
    """
    total: dict[str, Tensor] = {}
    for path in checkpoints:
        weights = load_tensors(path / WEIGHTS)
        shapes = {name: tensor.shape for name, tensor in weights.items()}
        if total and shapes != {name: tensor.shape for name, tensor in total.items()}:
            raise CheckpointError(
                f"{path}: expected the weights of the other checkpoints, got another model's."
            )
        for name, tensor in weights.items():
            total[name] = total.get(name, 0) + tensor.double()
    return {name: (tensor / len(checkpoints)).float() for name, tensor in total.items()}


def check_finite(weights: Mapping[str, Tensor], source: str) -> None:
    """Check that weights are finite.

    Raises:
        ConfigError: Some are not, because training diverged.
    """
    wrong = [name for name, tensor in weights.items() if not torch.isfinite(tensor).all()]
    if wrong:
        raise ConfigError(
            "training.learning_rate: expected one that keeps weights finite, got NaN or infinity in "
            f"{wrong[0]} of {source}. Lower it."
        )


def load_weights(
    model: PreTrainedModel, weights: dict[str, Tensor], source: Path, may_lack: re.Pattern[str] | None = None
) -> None:
    """Load weights into a model; tied tables are stored once, and names like `may_lack` keep what they have.

    Raises:
        CheckpointError: Names or shapes do not fit the model.
    """
    current = model.state_dict()
    weights = {name: shard_like(tensor, current.get(name)) for name, tensor in weights.items()}
    try:
        result = model.load_state_dict(weights, strict=False)
    except RuntimeError as error:
        raise CheckpointError(
            f"{source}: expected weights of this model, got other shapes. {error}"
        ) from error
    # Positions that are computed (Marian) are not saved.
    unsaved = {*model.all_tied_weights_keys, *(model._keys_to_ignore_on_save or ())}
    missing = set(result.missing_keys) - unsaved
    if may_lack is not None:
        missing = {name for name in missing if not may_lack.match(name)}
    if missing or result.unexpected_keys:
        wrong = sorted([*missing, *result.unexpected_keys])[:5]
        raise CheckpointError(
            f"{source}: expected weights of this model, got other names: {', '.join(wrong)}."
        )


def whole(tensor: Tensor) -> Tensor:
    """A tensor without shards; every process must call this."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def whole_weights(model: PreTrainedModel) -> dict[str, Tensor] | None:
    """All weights if a model is in shards, else None; every process must call this."""
    weights = model.state_dict()
    if not any(isinstance(tensor, DTensor) for tensor in weights.values()):
        return None
    return {name: whole(tensor) for name, tensor in weights.items()}


def shard_like(tensor: Tensor, other: Tensor | None) -> Tensor:
    """This process's shard of a tensor, split like `other`; the tensor itself if `other` has no shards."""
    if not isinstance(other, DTensor) or tensor.shape != other.shape:
        return tensor
    with torch.no_grad():
        placed = tensor.to(other.device)
        return distribute_tensor(placed, other.device_mesh, other.placements, src_data_rank=None)
