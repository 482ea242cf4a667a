"""The second encoder of infusion kind `pos_encoder`: it reads tags, with a LISA head in each layer."""

from __future__ import annotations

import math
from collections.abc import Mapping

from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from syntaxformer.nn.kernels.dropout import Dropout
from syntaxformer.nn.syntax_heads import SyntaxContext, SyntaxHeads
from syntaxformer.nn.transformer import EncoderLayer, SinusoidalPositions
from syntaxformer.translation.model_config import Stack, SyntaxTransformerConfig, final_norm, layer_arguments

__all__ = ["TagEncoder"]


class TagEncoder(Stack):
    """Encodes the tags of each piece; its output is added to that of the encoder of pieces.

    Args:
        config: Of the model; its `tag_layers` layers are as wide as the others.
        sizes: Rows of each factor's table; several factors are summed.
        attn_head: The head of each layer that is biaffine.

    Source: Kapadia et al. (2020), system 5, "LISA layer trained with POS", figure 1.
    """

    def __init__(self, config: SyntaxTransformerConfig, sizes: Mapping[str, int], attn_head: int = 0) -> None:
        super().__init__(config)
        self.tables = nn.ModuleDict(
            {name: nn.Embedding(size, config.d_model) for name, size in sizes.items()}
        )
        self.scale = math.sqrt(config.d_model)
        self.positions = SinusoidalPositions(config.d_model)
        self.dropout = Dropout(config.dropout)
        arguments = layer_arguments(config)
        self.layers = nn.ModuleList(
            EncoderLayer(**arguments, syntax=SyntaxHeads(config.d_model, config.n_heads, attn_head))
            for _ in range(config.tag_layers)
        )
        self.norm = final_norm(config)

    def forward(
        self,
        factor_ids: Int[Tensor, "batch src factors"] | None,
        mask: Bool[Tensor, "batch 1 1 src"] | None,
        context: SyntaxContext,
    ) -> Float[Tensor, "batch src d_model"]:
        """Encode tags.

        Raises:
            ValueError: Another number of columns than there are factors.
        """
        n_given = 0 if factor_ids is None else factor_ids.shape[-1]
        if factor_ids is None or n_given != len(self.tables):
            raise ValueError(f"factor_ids: expected columns {list(self.tables)}, got {n_given} columns.")
        tags = sum(table(factor_ids[..., place]) for place, table in enumerate(self.tables.values()))
        states = self.dropout(self.positions(tags * self.scale))
        for layer in self.layers:
            states, _ = self.run(layer, states, mask, False, context)
        return self.norm(states)
