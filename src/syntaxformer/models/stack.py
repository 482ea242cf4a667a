"""What stacks of layers share: arguments of a layer, the norm behind the last, activation checkpointing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn
from torch.utils.checkpoint import checkpoint

from syntaxformer.models.config import SyntaxTransformerConfig

__all__ = ["Stack", "final_norm", "layer_arguments"]

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


class Stack(nn.Module):
    """Layers one after the other, as `activation_checkpointing_enable` of transformers finds them."""

    gradient_checkpointing = False
    _gradient_checkpointing_func: Callable[..., Any] = staticmethod(checkpoint)

    def run(self, layer: nn.Module, *inputs: Any) -> Any:
        """Apply a layer; with checkpointing on, in training, the backward pass makes its inner states anew.

        Source: Chen et al. (2016), "Training Deep Nets with Sublinear Memory Cost".
        """
        if self.gradient_checkpointing and self.training:
            return self._gradient_checkpointing_func(layer, *inputs)
        return layer(*inputs)
