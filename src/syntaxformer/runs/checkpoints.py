"""Training state on disk, without pickle: tensors in safetensors, the rest in JSON. Averages."""

from __future__ import annotations

import json
import logging
import random
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
        CheckpointError: It is missing, truncated or something else.
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
    """The state of an optimizer, its tensors by parameter and name; with shards, every process must ask."""
    state = optimizer.state_dict()
    tensors = {
        f"{number}.{name}": whole(value).contiguous()
        for number, slots in state["state"].items()
        for name, value in slots.items()
    }
    return {"tensors": tensors, "param_groups": state["param_groups"]}


def save_optimizer(folder: Path, state: dict[str, Any], scheduler: Any) -> None:
    """Write what `optimizer_state` gave, and the state of the optimizer's schedule."""
    save_file(state["tensors"], folder / OPTIMIZER)
    # A schedule made of functions cannot be stored, and need not be: the recipe makes the same one.
    schedule = {key: value for key, value in scheduler.state_dict().items() if key != "lr_lambdas"}
    content = {"param_groups": state["param_groups"], "scheduler": schedule}
    (folder / OPTIMIZER_GROUPS).write_text(json.dumps(content), "utf-8")


def load_optimizer(folder: Path, optimizer: Any, scheduler: Any) -> None:
    """Restore what `save_optimizer` wrote.

    Raises:
        CheckpointError: The files are incomplete or belong to another model.
    """
    content: dict[str, Any] = read_json(folder / OPTIMIZER_GROUPS)
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    slots: dict[int, dict[str, Tensor]] = {}
    for key, tensor in load_tensors(folder / OPTIMIZER).items():
        number, _, name = key.partition(".")
        slots.setdefault(int(number), {})[name] = tensor
    try:
        slots = {
            number: {name: shard_like(tensor, parameters[number]) for name, tensor in slot.items()}
            for number, slot in slots.items()
        }
        optimizer.load_state_dict({"state": slots, "param_groups": content["param_groups"]})
        scheduler.load_state_dict(
            {**content["scheduler"], "lr_lambdas": scheduler.state_dict()["lr_lambdas"]}
        )  # type: ignore[dict-item]
    except (KeyError, IndexError, ValueError, TypeError) as error:
        raise CheckpointError(f"{folder}: expected the optimizer of this model, got: {error}.") from error


def random_state() -> RandomState:
    """The states of all random number generators of this process: what goes into JSON, and tensors."""
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


def load_random_state(folder: Path, process: int, seed: int) -> None:
    """Restore what `save_random_states` wrote; a process that was not there begins with the seed.

    Raises:
        CheckpointError: The files are incomplete.
    """
    if process and not (folder / f"{process}.{RANDOM}").exists():
        set_seed((seed + process) % (MAX_SEED + 1))
        return
    content: dict[str, Any] = read_json(folder / f"{process}.{RANDOM}")
    tensors = load_tensors(folder / f"{process}.{RANDOM_TENSORS}")
    try:
        version, numbers, gauss = content["python"]
        random.setstate((version, tuple(numbers), gauss))
        name, keys, *rest = content["numpy"]
        np.random.set_state((name, np.array(keys, np.uint32), *rest))
        torch.set_rng_state(tensors["cpu"])
    except (KeyError, ValueError, TypeError, RuntimeError) as error:
        raise CheckpointError(
            f"{folder / f'{process}.{RANDOM}'}: expected random states, got: {error}. It was altered."
        ) from error
    for device in range(torch.cuda.device_count()):
        if (state := tensors.get(f"cuda.{device}")) is not None:
            torch.cuda.set_rng_state(state, device)


def complete_checkpoints(folder: Path) -> tuple[list[Path], list[CheckpointError]]:
    """Checkpoints below a folder that are whole, oldest first, and what is wrong, and said, of others."""
    whole, problems = [], []
    for path in numbered_checkpoints(folder):
        try:
            verify_manifest(path)
            whole.append(path)
        except CheckpointError as error:
            _log.warning("skipping a checkpoint: %s", error)
            problems.append(error)
    return whole, problems


def last_with_its_best(whole: Sequence[Path]) -> Path | None:
    """The newest of some whole checkpoints among which is also the best one until then."""
    names = {path.name for path in whole}
    for path in reversed(whole):
        best = read_json(path / "trainer_state.json").get("best_global_step")
        if best is None or f"checkpoint-{best}" in names:
            return path
    return None


def numbered_checkpoints(folder: Path) -> list[Path]:
    """Folders `checkpoint-NUMBER` below a folder, oldest first, whole or not."""
    paths = [
        path for path in folder.glob("checkpoint-*") if path.name.removeprefix("checkpoint-").isdecimal()
    ]
    return sorted(paths, key=step_of)


def step_of(checkpoint: Path) -> int:
    """The update after which a checkpoint was written."""
    return int(checkpoint.name.removeprefix("checkpoint-"))


def around(checkpoints: Sequence[Path], step: int | None, n: int) -> list[Path]:
    """The `n` checkpoints nearest to an update, in order; of two at one distance the earlier."""
    near = sorted(checkpoints, key=lambda path: (abs(step_of(path) - (step or 0)), step_of(path)))
    return sorted(near[:n], key=step_of)


def best_and_near(folder: Path, best_step: int | None, n: int) -> tuple[Path, list[Path]]:
    """The best whole checkpoint below a folder, or else the last, and the `n` whole ones around it.

    Raises:
        CheckpointError: None is whole.
    """
    found, _ = complete_checkpoints(folder)
    if not found:
        raise CheckpointError(f"{folder}: expected a checkpoint after training, found none.")
    best = next((path for path in found if step_of(path) == best_step), found[-1])
    if step_of(best) != best_step:
        _log.warning("the best checkpoint is lost: taking the last one, %s", best)
    return best, around(found, step_of(best), n)


def average_weights(checkpoints: Sequence[Path]) -> dict[str, Tensor]:
    """Mean of the weights of several checkpoints, summed in double precision.

    Raises:
        CheckpointError: They are of different models.

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
    """Hold that weights are numbers.

    Raises:
        ConfigError: Some are not: training went astray.
    """
    wrong = [name for name, tensor in weights.items() if not torch.isfinite(tensor).all()]
    if wrong:
        raise ConfigError(
            "training.learning_rate: expected one that keeps weights finite, got NaN or infinity in "
            f"{wrong[0]} of {source}. Lower it."
        )


def load_weights(model: PreTrainedModel, weights: dict[str, Tensor], source: Path) -> None:
    """Put weights into a model; tied tables are stored once.

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
    missing = set(result.missing_keys) - {
        *model.all_tied_weights_keys,
        *(model._keys_to_ignore_on_save or ()),
    }
    if missing or result.unexpected_keys:
        wrong = sorted([*missing, *result.unexpected_keys])[:5]
        raise CheckpointError(
            f"{source}: expected weights of this model, got other names: {', '.join(wrong)}."
        )


def whole(tensor: Tensor) -> Tensor:
    """A tensor without shards; every process must ask for it."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def whole_weights(model: PreTrainedModel) -> dict[str, Tensor] | None:
    """All weights where a model is in shards, else None; every process must ask for them."""
    weights = model.state_dict()
    if not any(isinstance(tensor, DTensor) for tensor in weights.values()):
        return None
    return {name: whole(tensor) for name, tensor in weights.items()}


def shard_like(tensor: Tensor, other: Tensor | None) -> Tensor:
    """This process's shards of a tensor, cut as those of another of its shape; itself where that has none."""
    if not isinstance(other, DTensor) or tensor.shape != other.shape:
        return tensor
    with torch.no_grad():
        placed = tensor.to(other.device)
        return distribute_tensor(placed, other.device_mesh, other.placements, src_data_rank=None)
