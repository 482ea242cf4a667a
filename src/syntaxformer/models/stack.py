"""What the stacks of layers of one model share: the arguments of each layer, the norm behind the last."""

from __future__ import annotations

from typing import Any

from torch import nn

from syntaxformer.models.config import SyntaxTransformerConfig

__all__ = ["final_norm", "layer_arguments"]

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
