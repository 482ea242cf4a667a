"""Syntax inside the translator's encoder: what its config says, and the parts that each layer gets.

The sections are those of the plug-in (`infusion_config`); what the parts compute is in `layers`.
"""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from syntaxformer.infusion.config import LisaConfig, MaskConfig, RelationBiasConfig, TreeOptions
from syntaxformer.nn.relation_index import RelationIndex
from syntaxformer.nn.syntax_heads import MaskRules, SyntaxContext, SyntaxHeads
from syntaxformer.nn.topical import TopicalAttention
from syntaxformer.translation.model_config import SyntaxTransformerConfig

__all__ = ["EncoderMasks", "EncoderSyntax"]


class EncoderMasks(MaskConfig):
    """Syntax attention (Bai et al., 2021, section 4) in a translator's encoder; no paper tried it."""

    preset: Literal["preserving", "paper"] = Field(
        default="preserving",
        description="preserving: full attention and a gate that starts closed; paper: sub-networks only",
    )


class EncoderSyntax(nn.Module):
    """The sections `lisa`, `masks` and `relation_bias` of one encoder, and what its layers share.

    Args:
        config: Of the model.
    """

    def __init__(self, config: SyntaxTransformerConfig) -> None:
        super().__init__()
        self.lisa = None if config.lisa is None else LisaConfig(**config.lisa)
        self.masks = None if config.masks is None else EncoderMasks(**config.masks)
        self.bias = None if config.relation_bias is None else RelationBiasConfig(**config.relation_bias)
        self.inject = self.lisa is not None and self.lisa.inject is not None
        self._n_layers, self._shape = config.encoder_layers, (config.d_model, config.n_heads)
        shared = self.masks is not None and self.masks.topical and not self.masks.per_layer
        self.topical = TopicalAttention(*self._shape) if shared else None
        # No buffer: on the meta device, where `from_pretrained` builds models, it would lose its content.
        includes_full = self.masks is not None and self.masks.preset == "preserving"
        self._active = _active(self.trees, includes_full)

    @property
    def trees(self) -> TreeOptions | None:
        """What the relation tensor of a batch holds; None where none is needed."""
        return self.masks or self.bias

    def of_layer(self, layer: int) -> SyntaxHeads | None:
        """The parts of a layer; None where it is plain."""
        lisa, masks, bias = self.lisa, self.masks, self.bias
        has_lisa = lisa is not None and layer in _chosen(lisa.layers, self._n_layers, self._n_layers - 1)
        has_masks = masks is not None and layer in _chosen(masks.layers, self._n_layers)
        has_bias = bias is not None and layer in _chosen(bias.layers, self._n_layers)
        if not (has_lisa or has_masks or has_bias):
            return None
        return SyntaxHeads(
            *self._shape,
            lisa_head=lisa.attn_head if lisa is not None and has_lisa else None,
            masks=_rules(masks) if masks is not None and has_masks else None,
            bias_shape=(len(bias.used_trees), bias.max_distance) if bias is not None and has_bias else None,
        )

    def context(
        self, syntax: Tensor | None, governors: Tensor | None, key_mask: Tensor | None, training: bool
    ) -> SyntaxContext:
        """What the layers are told about a batch.

        Args:
            syntax: `[batch, trees, src, src]`, ids of relations.
            governors: `[batch, src]`, places of governors, as targets or to inject.
            key_mask: `[batch, src]`, True for pieces.
            training: Nothing is injected in training.

        Raises:
            ValueError: Relations are needed and missing, or of another number of trees.
        """
        options = self.trees
        n_given = 0 if syntax is None else syntax.shape[1]
        if options is not None and n_given != len(options.used_trees):
            raise ValueError(
                f"syntax: expected the relations of {len(options.used_trees)} trees "
                f"({', '.join(options.used_trees)}), got {n_given}."
            )
        index = active = None
        if self.masks is not None and syntax is not None:
            index = RelationIndex.of(syntax, key_mask, self.masks.max_distance)
        if self._active is not None and syntax is not None:
            active = torch.tensor(self._active, device=syntax.device)
        is_supervised = self.lisa is not None and self.lisa.supervised
        return SyntaxContext(
            relations=syntax,
            index=index,
            topical=self.topical,
            active=active,
            injected=governors if self.inject and not training else None,
            wants_logits=governors is not None,
            with_gradient=is_supervised and training and torch.is_grad_enabled(),
        )


def _chosen(layers: tuple[int, ...] | None, n_layers: int, default: int | None = None) -> set[int]:
    """The layers of a section: those named, else the default or all."""
    if layers is not None:
        return set(layers)
    return set(range(n_layers)) if default is None else {default}


def _rules(masks: EncoderMasks) -> MaskRules:
    return MaskRules(
        mode=masks.mode,
        on_empty_row=masks.on_empty_row,
        gate=masks.gate if masks.preset == "preserving" else None,
        topical=masks.topical,
        own_topical=masks.per_layer,
        summation=masks.summation,
    )


def _active(options: TreeOptions | None, includes_full: bool) -> tuple[bool, ...] | None:
    """Sub-networks and biases that take part, full attention last; None for all."""
    if options is None or not set(options.without) - {"dependency", "constituency"}:
        return None
    return (*options.active_networks(options.without), *[True] * includes_full)
