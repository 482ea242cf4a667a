"""Weights, gradients and optimizer in shards over the processes: PyTorch's FSDP under transformers' Trainer.

Checkpoints do not know of it: they hold whole tensors, so a run may go on with another number of processes.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor
from transformers import PreTrainedModel
from transformers.modeling_layers import GradientCheckpointingLayer

from syntaxformer.nn.transformer import DecoderLayer, EncoderLayer

__all__ = ["shard", "shard_like", "whole", "whole_weights"]

LAYERS = (EncoderLayer, DecoderLayer, GradientCheckpointingLayer)
"""What is gathered for its own computation and let go after it; the rest of a model is gathered as one."""


def shard(trainer: Any) -> None:
    """Shard the model of a trainer, before its optimizer is made; one process is left as it is.

    Source: Zhao et al. (2023), "PyTorch FSDP".
    """
    if trainer.args.world_size == 1:
        return
    model: PreTrainedModel = trainer.model
    for module in list(model.modules()):
        if isinstance(module, LAYERS):
            fully_shard(module)
    fully_shard(model)
    # The Trainer then neither wraps the model nor averages its gradients: the shards do. It looks at it also
    # when it is made, and refuses to write checkpoints, which are ours to write: so it is set only now.
    trainer.is_distributed_loading_by_transformers = True


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
