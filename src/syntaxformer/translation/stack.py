"""What stacks of layers share: arguments of a layer, the norm behind the last, activation checkpointing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from syntaxformer.translation.model_config import SyntaxTransformerConfig

__all__ = ["Stack", "asked", "final_norm", "layer_arguments"]

_OF_A_LAYER = (
    "d_model",
    "n_heads",
    "d_ff",
    "dropout",
    "attention_dropout",
    "activation_dropout",
    "norm",
    "activation",
)


def layer_arguments(config: SyntaxTransformerConfig) -> dict[str, Any]:
    """Arguments of an encoder or decoder layer."""
    return {name: getattr(config, name) for name in _OF_A_LAYER}


def final_norm(config: SyntaxTransformerConfig) -> nn.Module:
    """Pre-norm layers leave their sum unnormalised; post-norm layers do not."""
    return nn.LayerNorm(config.d_model) if config.norm == "pre" else nn.Identity()


def asked(config: SyntaxTransformerConfig, name: str, given: bool | None) -> bool:
    """An argument of `forward` that the config decides where it is not given."""
    return bool(getattr(config, name) if given is None else given)


class Stack(nn.Module):
    """Layers one after the other, as `activation_checkpointing_enable` of transformers finds them."""

    gradient_checkpointing = False
    _gradient_checkpointing_func: Callable[..., Any] = staticmethod(checkpoint)

    def __init__(self, config: SyntaxTransformerConfig) -> None:
        super().__init__()
        self.config = config

    @property
    def runs_again(self) -> bool:
        """Whether the backward pass will run the layers once more."""
        return self.gradient_checkpointing and self.training and torch.is_grad_enabled()

    def run(self, layer: nn.Module, *inputs: Any) -> Any:
        """Apply a layer; with checkpointing on, in training, the backward pass makes its inner states anew.

        Source: Chen et al. (2016), "Training Deep Nets with Sublinear Memory Cost".
        """
        if self.runs_again:
            return self._gradient_checkpointing_func(layer, *inputs)
        return layer(*inputs)
