"""The encoder of the translation model: infused embeddings, positions, layers with or without syntax."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from jaxtyping import Int, UInt8
from torch import Tensor, nn
from transformers.modeling_outputs import BaseModelOutput

from syntaxformer.nn.infused_embedding import InfusedEmbedding, MappedEmbedding
from syntaxformer.nn.kernels.dropout import Dropout
from syntaxformer.nn.lisa import BiaffineHead
from syntaxformer.nn.transformer import EncoderLayer, SinusoidalPositions
from syntaxformer.translation.encoder_syntax import EncoderSyntax
from syntaxformer.translation.model_config import (
    Stack,
    SyntaxTransformerConfig,
    asked,
    final_norm,
    layer_arguments,
)
from syntaxformer.translation.tag_encoder import TagEncoder

__all__ = ["Encoder", "EncoderOutput"]


@dataclass
class EncoderOutput(BaseModelOutput):
    """What an encoder gives.

    Args:
        governor_logits: Of LISA's heads, `[batch, src, src]` each, where governors were given.
    """

    governor_logits: tuple[Tensor, ...] | None = None


class Encoder(Stack):
    """Infused embeddings, positions, and a stack of encoder layers."""

    main_input_name = "input_ids"

    def __init__(self, config: SyntaxTransformerConfig) -> None:
        super().__init__(config)
        plan = config.width_plan
        own = config.source_vocab_size
        n_pieces = config.vocab_size if own is None else own
        self.embedding = InfusedEmbedding(plan, n_pieces, config.factor_sizes or {}, config.source_pad_id)
        if (narrow := config.source_table_width) is not None:
            self.embedding.word = MappedEmbedding(n_pieces, narrow, plan.word_width, config.source_pad_id)
        self.scale = math.sqrt(config.d_model)
        self.positions = SinusoidalPositions(config.d_model)
        self.dropout = Dropout(config.dropout)
        self.syntax = EncoderSyntax(config)
        arguments = layer_arguments(config)
        self.layers = nn.ModuleList(
            EncoderLayer(**arguments, syntax=self.syntax.of_layer(layer))
            for layer in range(config.encoder_layers)
        )
        self.norm = final_norm(config)
        has_tags = self.embedding.kind.join == "encoder"
        attn_head = 0 if self.syntax.lisa is None else self.syntax.lisa.attn_head
        self.tags = TagEncoder(config, self.embedding.sizes, attn_head) if has_tags else None

    def forward(
        self,
        input_ids: Int[Tensor, "batch src"] | None = None,
        attention_mask: Int[Tensor, "batch src"] | None = None,
        factor_ids: Int[Tensor, "batch src factors"] | None = None,
        syntax: UInt8[Tensor, "batch trees src src"] | None = None,
        governors: Int[Tensor, "batch src"] | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        return_dict: bool | None = None,
    ) -> EncoderOutput | tuple[Any, ...]:
        """Encode source pieces.

        Args:
            input_ids: Source pieces, padded on the right.
            attention_mask: 1 for pieces, 0 for padding; None where nothing is padded.
            factor_ids: Factor values, columns in the order of the infusion's plan.
            syntax: Relations of the pieces in each tree, for masks and biases.
            governors: Place of each piece's governor, negative for none: what LISA's head is compared with,
                or, where the model injects and is not in training, what it looks at.
            output_attentions: Return attention weights, `layers × [batch, heads, src, src]`; None: as the
                config says. Likewise below.
            output_hidden_states: Return the input and the states after each layer, before the final norm.
            return_dict: Return an `EncoderOutput`, not a tuple.
        """
        attends = asked(self.config, "output_attentions", output_attentions)
        shows_states = asked(self.config, "output_hidden_states", output_hidden_states)
        key_mask = None if attention_mask is None else attention_mask.bool()
        mask = None if key_mask is None else key_mask[:, None, None, :]
        context = self.syntax.context(syntax, governors, key_mask, self.training)
        states = self.dropout(self.positions(self.embedding(input_ids, factor_ids) * self.scale))
        hidden, attentions = [states], []
        for layer in self.layers:
            states, weights = self.run(layer, states, mask, attends, context)
            hidden += [states] if shows_states else []
            attentions.append(weights)
        states = self.norm(states)
        output = EncoderOutput(
            last_hidden_state=states if self.tags is None else states + self.tags(factor_ids, mask, context),
            hidden_states=tuple(hidden) if shows_states else None,
            attentions=tuple(attentions) if attends else None,
            governor_logits=tuple(context.logits) or None,
        )
        return output if asked(self.config, "return_dict", return_dict) else output.to_tuple()

    @property
    def has_lisa_heads(self) -> bool:
        """Whether any layer, or the second encoder, has a biaffine head."""
        return any(isinstance(module, BiaffineHead) for module in self.modules())
