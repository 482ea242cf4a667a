"""The decoder of the translation model and the cache of its beams; plain, whatever the encoder is told."""

from __future__ import annotations

import math

from jaxtyping import Float, Int
from torch import Tensor, nn
from transformers.cache_utils import DynamicCache, EncoderDecoderCache
from transformers.modeling_outputs import BaseModelOutputWithPastAndCrossAttentions

from syntaxformer.nn.kernels.dropout import Dropout
from syntaxformer.nn.positions import SinusoidalPositions
from syntaxformer.nn.transformer import DecoderLayer
from syntaxformer.translation.model_config import SyntaxTransformerConfig
from syntaxformer.translation.stack import Stack, final_norm, layer_arguments

__all__ = ["Decoder", "TranslationCache"]


class Decoder(Stack):
    """Target embeddings, positions, and a stack of decoder layers."""

    def __init__(self, config: SyntaxTransformerConfig) -> None:
        super().__init__(config)
        self.embedding = nn.Embedding(config.vocab_size, config.d_model, config.pad_token_id)
        self.scale = math.sqrt(config.d_model)
        self.positions = SinusoidalPositions(config.d_model)
        self.dropout = Dropout(config.dropout)
        arguments = layer_arguments(config)
        self.layers = nn.ModuleList(DecoderLayer(**arguments) for _ in range(config.decoder_layers))
        self.norm = final_norm(config)

    def forward(
        self,
        pieces: Int[Tensor, "batch tgt"],
        memory: Float[Tensor, "batch src d_model"],
        memory_mask: Int[Tensor, "batch src"] | None = None,
        cache: EncoderDecoderCache | None = None,
        output_attentions: bool = False,
        output_hidden_states: bool = False,
    ) -> BaseModelOutputWithPastAndCrossAttentions:
        """Return the states of the target pieces and, if asked for, those after each layer, and weights.

        Raises:
            ValueError: A cache of fixed length, or one that the backward pass would fill a second time.
        """
        if cache is not None and self.runs_again:
            raise ValueError(
                "use_cache: expected false in training with gradient checkpointing, which runs each layer "
                "twice, got true. Call the model without a cache, or under torch.no_grad."
            )
        if cache is not None and cache.is_compileable:
            raise ValueError(
                "past_key_values: expected a cache that grows, got one of fixed length, whose empty slots "
                "would be attended to. Leave cache_implementation out of generate."
            )
        first = 0 if cache is None else cache.get_seq_length()
        states = self.dropout(self.positions(self.embedding(pieces) * self.scale, first))
        mask = None if memory_mask is None else memory_mask.bool()[:, None, None, :]
        hidden, own, cross = [states], [], []
        for place, layer in enumerate(self.layers):
            states, *weights = self.run(layer, states, memory, mask, cache, place, output_attentions)
            hidden += [states] if output_hidden_states else []
            own.append(weights[0])
            cross.append(weights[1])
        return BaseModelOutputWithPastAndCrossAttentions(
            last_hidden_state=self.norm(states),
            hidden_states=tuple(hidden) if output_hidden_states else None,
            attentions=tuple(own) if output_attentions else None,
            cross_attentions=tuple(cross) if output_attentions else None,
        )


class TranslationCache(EncoderDecoderCache):
    """Keys and values of a beam search.

    Beams change places only within one sentence, and all beams of a sentence attend to the same encoder
    states: the cross-attention half never needs the reordering that the base class does at each step.
    """

    def __init__(self) -> None:
        super().__init__(DynamicCache(), DynamicCache())

    def reorder_cache(self, beam_idx: Tensor) -> None:
        """Reorder the self-attention half."""
        self.self_attention_cache.reorder_cache(beam_idx)
