"""The encoder of the translation model: infused embeddings, positions, layers with or without syntax.

With infusion kind `pos_encoder` there is a second encoder, which reads tags. The layers of both call the
plug-in that puts syntax inside attention.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from jaxtyping import Float, Int, UInt8
from torch import Tensor, nn
from transformers.modeling_outputs import BaseModelOutput

from syntaxformer.infusion.config import InfusionConfig
from syntaxformer.infusion.families import OWN, parts_in
from syntaxformer.infusion.infusion import Infusion, SyntaxBatch
from syntaxformer.infusion.inside_attention import own_layer
from syntaxformer.nn.infused_embedding import InfusedEmbedding, MappedEmbedding
from syntaxformer.nn.transformer import EncoderLayer
from syntaxformer.translation.model_config import Stack, SyntaxTransformerConfig, asked


@dataclass
class EncoderOutput(BaseModelOutput):
    """Output of an encoder.

    Args:
        governor_losses: Losses of LISA's heads, if they are supervised and governors were given.
        pointed_at: Positions that these heads point at, `[batch, src]` each, if governors were given.
    """

    governor_losses: tuple[Tensor, ...] | None = None
    pointed_at: tuple[Tensor, ...] | None = None


class _Host(Stack):
    """The common part of the encoders of pieces and of tags: layers with syntax."""

    infusion: Infusion | None

    def _add_layers(self, n_layers: int, plug_in: InfusionConfig | None) -> None:
        self.register_module("infusion", None)
        self.add_layers(EncoderLayer, n_layers)
        self.infuse(plug_in)

    def infuse(self, plug_in: InfusionConfig | None) -> None:
        """Put syntax inside the layers."""
        self.infusion = (
            None if plug_in is None or plug_in.is_plain else Infusion(plug_in, parts_in(self, OWN))
        )

    def _run_layers(
        self,
        embedded: Float[Tensor, "batch src d_model"],
        attention_mask: Int[Tensor, "batch src"] | None,
        batch: SyntaxBatch | None,
        attends: bool = False,
        shows_states: bool = False,
    ) -> tuple[Tensor, list[Tensor], list[Tensor | None]]:
        """Return the states after the norm and, if asked for, the states and weights of each layer."""
        mask = None if attention_mask is None else attention_mask.bool()[:, None, None, :]
        states = self.dropout(self.positions(embedded * self.scale))
        hidden, attentions = [states], []
        for number, layer in enumerate(self.layers):
            states, weights = self.run(layer, states, mask, attends, batch and own_layer(batch, number))
            hidden += [states] if shows_states else []
            attentions.append(weights)
        if batch is not None:
            batch.seen.closed = True
        return self.norm(states), hidden, attentions


class TagEncoder(_Host):
    """Encodes the tags of each piece; the output is added to that of the encoder of pieces.

    Args:
        config: The model's config; the `tag_layers` layers have the model's width.
        sizes: Number of rows of each factor's table; the vectors of several factors are summed.

    Source: Kapadia et al. (2020), system 5, "LISA layer trained with POS", figure 1.
    """

    def __init__(self, config: SyntaxTransformerConfig, sizes: Mapping[str, int]) -> None:
        super().__init__(config)
        self.tables = nn.ModuleDict(
            {name: nn.Embedding(size, config.d_model) for name, size in sizes.items()}
        )
        self._add_layers(config.tag_layers, config.plug_in_of_tags)

    def forward(
        self,
        factor_ids: Int[Tensor, "batch src factors"] | None,
        attention_mask: Int[Tensor, "batch src"] | None,
        governors: Int[Tensor, "batch src"] | None,
    ) -> Float[Tensor, "batch src d_model"]:
        """Encode tags.

        Raises:
            ValueError: The number of columns is not the number of factors.
        """
        n_given = 0 if factor_ids is None else factor_ids.shape[-1]
        if factor_ids is None or n_given != len(self.tables):
            raise ValueError(f"factor_ids: expected columns {list(self.tables)}, got {n_given} columns.")
        tags = sum(table(factor_ids[..., column]) for column, table in enumerate(self.tables.values()))
        assert self.infusion is not None, "each layer has a LISA head"
        batch = self.infusion.prepare_batch({"governors": governors}, factor_ids.shape[:2], attention_mask)
        return self._run_layers(tags, attention_mask, batch)[0]


class Encoder(_Host):
    """Infused embeddings, positions, and a stack of encoder layers."""

    main_input_name = "input_ids"

    def __init__(self, config: SyntaxTransformerConfig) -> None:
        super().__init__(config)
        plan = config.width_plan
        source_size = config.source_vocab_size
        n_pieces = config.vocab_size if source_size is None else source_size
        self.embedding = InfusedEmbedding(plan, n_pieces, config.factor_sizes or {}, config.source_pad_id)
        if (narrow := config.source_table_width) is not None:
            self.embedding.word = MappedEmbedding(n_pieces, narrow, plan.word_width, config.source_pad_id)
        self._add_layers(config.encoder_layers, config.plug_in)
        has_tags = self.embedding.kind.join == "encoder"
        self.tags = TagEncoder(config, self.embedding.sizes) if has_tags else None

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
        syntax_settings: Int[Tensor, "batch settings"] | None = None,
    ) -> EncoderOutput | tuple[Any, ...]:
        """Encode source pieces; arguments as in `SyntaxTransformer`, factors in the order of the plan.

        LISA's head is trained on `governors`. Outside training it attends to them if the model injects them.
        """
        attends = asked(self.config, "output_attentions", output_attentions)
        shows_states = asked(self.config, "output_hidden_states", output_hidden_states)
        embedded, batch, seen = self.embedding(input_ids, factor_ids), None, []
        if self.infusion is not None:
            inputs = {"syntax": syntax, "governors": governors, "syntax_settings": syntax_settings}
            batch = self.infusion.prepare_batch(inputs, embedded.shape[:2], attention_mask, attends)
            seen.append(batch.seen)
        states, hidden, attentions = self._run_layers(embedded, attention_mask, batch, attends, shows_states)
        if self.tags is not None:
            states = states + self.tags(factor_ids, attention_mask, governors)
            seen.append(self.tags.infusion.seen)
        output = EncoderOutput(
            last_hidden_state=states,
            hidden_states=tuple(hidden) if shows_states else None,
            attentions=tuple(attentions) if attends else None,
            governor_losses=tuple(loss for s in seen for loss in s.of_all_layers("governor_losses")) or None,
            pointed_at=tuple(at for s in seen for at in s.of_all_layers("pointed_at")) or None,
        )
        return output if asked(self.config, "return_dict", return_dict) else output.to_tuple()
