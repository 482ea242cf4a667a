"""`SyntaxTransformer`: an encoder-decoder whose encoder input is infused with factors.

A Hugging Face model: `from_pretrained`, `save_pretrained` and `generate` work as everywhere. How texts become
piece ids and factor ids is the business of `data`.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn
from transformers import GenerationMixin, PreTrainedModel
from transformers import initialization as init
from transformers.cache_utils import DynamicCache, EncoderDecoderCache
from transformers.modeling_outputs import BaseModelOutput, Seq2SeqLMOutput

from syntaxformer.layers.dropout import Dropout
from syntaxformer.layers.infusion import InfusedEmbedding, WidthPlan, plan_widths
from syntaxformer.layers.positions import SinusoidalPositions
from syntaxformer.layers.transformer import DecoderLayer, EncoderLayer
from syntaxformer.models.config import SyntaxTransformerConfig

__all__ = ["Decoder", "Encoder", "SyntaxTransformer", "TranslationCache"]

IGNORED_LABEL = -100


def _layer_arguments(config: SyntaxTransformerConfig) -> dict[str, Any]:
    names = (
        "d_model",
        "n_heads",
        "d_ff",
        "dropout",
        "attention_dropout",
        "activation_dropout",
        "norm",
        "activation",
    )
    return {name: getattr(config, name) for name in names}


def _final_norm(config: SyntaxTransformerConfig) -> nn.Module:
    """Pre-norm layers leave their sum unnormalised; post-norm layers do not."""
    return nn.LayerNorm(config.d_model) if config.norm == "pre" else nn.Identity()


class Encoder(nn.Module):
    """Infused embeddings, positions, and a stack of encoder layers."""

    main_input_name = "input_ids"

    def __init__(self, config: SyntaxTransformerConfig) -> None:
        super().__init__()
        stored = config.infusion
        plan = WidthPlan.from_dict(stored) if stored else plan_widths("none", config.d_model)
        self.embedding = InfusedEmbedding(
            plan, config.vocab_size, config.factor_sizes or {}, config.pad_token_id
        )
        self.scale = math.sqrt(config.d_model)
        self.positions = SinusoidalPositions(config.d_model)
        self.dropout = Dropout(config.dropout)
        arguments = _layer_arguments(config)
        self.layers = nn.ModuleList(EncoderLayer(**arguments) for _ in range(config.encoder_layers))
        self.norm = _final_norm(config)

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


class Decoder(nn.Module):
    """Target embeddings, positions, and a stack of decoder layers."""

    def __init__(self, config: SyntaxTransformerConfig) -> None:
        super().__init__()
        self.embedding = nn.Embedding(config.vocab_size, config.d_model, config.pad_token_id)
        self.scale = math.sqrt(config.d_model)
        self.positions = SinusoidalPositions(config.d_model)
        self.dropout = Dropout(config.dropout)
        arguments = _layer_arguments(config)
        self.layers = nn.ModuleList(DecoderLayer(**arguments) for _ in range(config.decoder_layers))
        self.norm = _final_norm(config)

    def forward(
        self,
        pieces: Int[Tensor, "batch tgt"],
        memory: Float[Tensor, "batch src d_model"],
        memory_mask: Int[Tensor, "batch src"] | None = None,
        cache: EncoderDecoderCache | None = None,
        return_weights: bool = False,
    ) -> tuple[Float[Tensor, "batch tgt d_model"], tuple[Tensor, ...] | None]:
        """Return the states of the target pieces and, if asked for, cross-attention weights by layer."""
        first = 0 if cache is None else cache.get_seq_length()
        states = self.dropout(self.positions(self.embedding(pieces) * self.scale, first))
        mask = None if memory_mask is None else memory_mask.bool()[:, None, None, :]
        attentions = []
        for place, layer in enumerate(self.layers):
            states, weights = layer(states, memory, mask, cache, place, return_weights)
            attentions.append(weights)
        return self.norm(states), tuple(attentions) if return_weights else None


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


class SyntaxTransformer(PreTrainedModel, GenerationMixin):
    """Encoder-decoder for translation with syntax-infused source embeddings.

    Source: Vaswani et al. (2017); Sundararaman et al. (2019), "Syntax-infused Transformer".
    """

    config_class = SyntaxTransformerConfig
    config: SyntaxTransformerConfig
    base_model_prefix = ""
    main_input_name = "input_ids"
    accepts_loss_kwargs = True
    supports_gradient_checkpointing = False
    _supports_sdpa = True
    _tied_weights_keys: ClassVar[dict[str, str]] = {"output.weight": "decoder.embedding.weight"}

    def __init__(self, config: SyntaxTransformerConfig) -> None:
        super().__init__(config)
        self.encoder = Encoder(config)
        self.decoder = Decoder(config)
        self.output = nn.Linear(config.d_model, config.vocab_size, bias=False)
        same_width = self.encoder.embedding.plan.word_width == config.d_model
        if config.share_source_embedding and same_width:
            self._tied_weights_keys = {
                "encoder.embedding.word.weight": "decoder.embedding.weight",
                "output.weight": "decoder.embedding.weight",
            }
        self.post_init()

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        """Glorot: U(-b, b), b = √(6 / (rows + columns)), each map and each table by itself.

        Source: Glorot & Bengio (2010). Differs: fused projections take the bound of one projection, and
        factor tables that of the word table: Glorot on 20 rows would make features 20 times larger.
        """
        if isinstance(module, nn.Linear):
            columns, rows = module.weight.shape[1], module.weight.shape[0]
            rows = columns if rows in (2 * columns, 3 * columns) and module.bias is not None else rows
            self._uniform(module.weight, rows, columns)
            if module.bias is not None:
                init.zeros_(module.bias)
        elif isinstance(module, nn.Embedding):
            self._uniform(module.weight, self.config.vocab_size, module.embedding_dim)
            if module.padding_idx is not None and not getattr(module.weight, "_is_hf_initialized", False):
                init.zeros_(module.weight[module.padding_idx])
        elif isinstance(module, nn.LayerNorm):
            init.ones_(module.weight)
            init.zeros_(module.bias)

    @staticmethod
    def _uniform(weight: Tensor, rows: int, columns: int) -> None:
        bound = math.sqrt(6 / (rows + columns))
        init.uniform_(weight, -bound, bound)

    def get_encoder(self, modality: str | None = None) -> Encoder:
        """Return the encoder, as `generate` asks for it."""
        return self.encoder

    def get_input_embeddings(self) -> nn.Embedding:
        """Return the source word table."""
        return self.encoder.embedding.word

    def get_output_embeddings(self) -> nn.Linear:
        """Return the output projection."""
        return self.output

    def forward(
        self,
        input_ids: Int[Tensor, "batch src"] | None = None,
        attention_mask: Int[Tensor, "batch src"] | None = None,
        factor_ids: Int[Tensor, "batch src factors"] | None = None,
        decoder_input_ids: Int[Tensor, "batch tgt"] | None = None,
        labels: Int[Tensor, "batch tgt"] | None = None,
        encoder_outputs: BaseModelOutput | None = None,
        past_key_values: EncoderDecoderCache | None = None,
        use_cache: bool | None = None,
        output_attentions: bool | None = None,
        num_items_in_batch: Tensor | int | None = None,
        **ignored: Any,
    ) -> Seq2SeqLMOutput:
        """Score target pieces.

        Args:
            input_ids: Source pieces.
            attention_mask: 1 for source pieces, 0 for padding.
            factor_ids: Factor values of the source pieces.
            decoder_input_ids: Target pieces shifted right; made from `labels` if absent.
            labels: Target pieces, -100 where no loss is wanted.
            encoder_outputs: An earlier result of the encoder.
            past_key_values: Cache of an incremental decoding.
            use_cache: Return a cache.
            output_attentions: Return cross-attention weights, `layers × [batch, heads, tgt, src]`.
            num_items_in_batch: Divisor of the loss under accumulation: the target pieces of the update.
            ignored: Further keywords of `generate`.

        Raises:
            ValueError: Neither `decoder_input_ids` nor `labels` are given.
        """
        if encoder_outputs is None:
            encoder_outputs = self.encoder(input_ids, attention_mask, factor_ids, output_attentions)
        if decoder_input_ids is None:
            if labels is None:
                raise ValueError("forward: expected decoder_input_ids or labels, got neither.")
            decoder_input_ids = self.prepare_decoder_input_ids_from_labels(labels)
        if use_cache and past_key_values is None:
            past_key_values = TranslationCache()
        states, attentions = self.decoder(
            decoder_input_ids,
            encoder_outputs.last_hidden_state,
            attention_mask,
            past_key_values,
            bool(output_attentions),
        )
        logits = self.output(states)
        return Seq2SeqLMOutput(
            loss=None if labels is None else self._loss(logits, labels, num_items_in_batch),
            logits=logits,
            past_key_values=past_key_values,
            cross_attentions=attentions,
            encoder_last_hidden_state=encoder_outputs.last_hidden_state,
            encoder_attentions=encoder_outputs.attentions,
        )

    def prepare_decoder_input_ids_from_labels(
        self, labels: Int[Tensor, "batch tgt"]
    ) -> Int[Tensor, "batch tgt"]:
        """Shift labels right: start piece first, padding where labels are ignored."""
        shifted = labels.roll(1, dims=1).masked_fill(
            labels.roll(1, dims=1) == IGNORED_LABEL, self.config.pad_token_id
        )
        shifted[:, 0] = self.config.decoder_start_token_id
        return shifted

    def _loss(self, logits: Tensor, labels: Tensor, n_items: Tensor | int | None) -> Float[Tensor, ""]:
        """Cross-entropy per target piece; smoothed in training mode, plain (log-perplexity) otherwise."""
        # In training the logits keep their precision: in bf16 each piece's loss is rounded, their sum is not.
        logits = logits if self.training else logits.float()
        smoothing = self.config.label_smoothing if self.training else 0.0
        with torch.autocast(logits.device.type, enabled=False):
            losses = F.cross_entropy(
                logits.flatten(0, 1),
                labels.flatten(),
                ignore_index=IGNORED_LABEL,
                reduction="none",
                label_smoothing=smoothing,
            )
        total = losses.float().sum()
        return total / ((labels != IGNORED_LABEL).sum() if n_items is None else n_items)
