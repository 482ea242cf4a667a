"""The encoder of the translation model: infused embeddings, positions, layers."""

from __future__ import annotations

import math

from jaxtyping import Int
from torch import Tensor, nn
from transformers.modeling_outputs import BaseModelOutput

from syntaxformer.layers.dropout import Dropout
from syntaxformer.layers.infusion import InfusedEmbedding
from syntaxformer.layers.infusion_plan import WidthPlan, plan_widths
from syntaxformer.layers.positions import SinusoidalPositions
from syntaxformer.layers.transformer import EncoderLayer
from syntaxformer.models.config import SyntaxTransformerConfig
from syntaxformer.models.stack import final_norm, layer_arguments

__all__ = ["Encoder"]


class Encoder(nn.Module):
    """Infused embeddings, positions, and a stack of encoder layers."""

    main_input_name = "input_ids"

    def __init__(self, config: SyntaxTransformerConfig) -> None:
        super().__init__()
        stored = config.infusion
        plan = WidthPlan.from_dict(stored) if stored else plan_widths("none", config.d_model)
        own = config.source_vocab_size
        self.embedding = InfusedEmbedding(
            plan,
            config.vocab_size if own is None else own,
            config.factor_sizes or {},
            config.pad_token_id if own is None else config.source_pad_token_id,
        )
        self.scale = math.sqrt(config.d_model)
        self.positions = SinusoidalPositions(config.d_model)
        self.dropout = Dropout(config.dropout)
        arguments = layer_arguments(config)
        self.layers = nn.ModuleList(EncoderLayer(**arguments) for _ in range(config.encoder_layers))
        self.norm = final_norm(config)

    def forward(
        self,
        input_ids: Int[Tensor, "batch src"],
        attention_mask: Int[Tensor, "batch src"] | None = None,
        factor_ids: Int[Tensor, "batch src factors"] | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        return_dict: bool | None = True,
    ) -> BaseModelOutput:
        """Encode source pieces.

        Args:
            input_ids: Source pieces, padded on the right.
            attention_mask: 1 for pieces, 0 for padding; None where nothing is padded.
            factor_ids: Factor values, columns in the order of the infusion's plan.
            output_attentions: Return attention weights, `layers × [batch, heads, src, src]`.
            output_hidden_states: Return the input and the states after each layer.
            return_dict: Accepted because `generate` passes it; the answer is always a `BaseModelOutput`.
        """
        states = self.dropout(self.positions(self.embedding(input_ids, factor_ids) * self.scale))
        mask = None if attention_mask is None else attention_mask.bool()[:, None, None, :]
        hidden, attentions = [states], []
        for layer in self.layers:
            states, weights = layer(states, mask, bool(output_attentions))
            hidden.append(states)
            attentions.append(weights)
        return BaseModelOutput(
            last_hidden_state=self.norm(states),
            hidden_states=tuple(hidden) if output_hidden_states else None,
            attentions=tuple(attentions) if output_attentions else None,
        )
